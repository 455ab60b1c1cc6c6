#!/usr/bin/env python3
"""Writes a checkpoint that has every name, type and shape of a released one and no data.

    tools/make_sparse_checkpoint.py CONFIG_JSON OUT_DIR

The tensors follow from CONFIG_JSON alone: with the released config that is 96,085 tensors of about
510 GB in 48 shards, with their index. The data are holes, so the set takes only the headers' room
on a disk that supports sparse files, and all values read as zero. It shows that opening costs little
time and memory; it is no model.

The derivation is written independently of src/weights/inventory.cc on purpose: the two check each
other. Names inside `vision.` and `aligner.` are stand-ins; their number and total size are right.
"""

import argparse
import json
import math
import os
import struct
import sys

DTYPE_BYTES = {"F32": 4, "BF16": 2, "F8_E4M3": 1, "F8_E8M0": 1, "I8": 1}


def tiles(n):
    return -(-n // 32)


def fp8(name, rows, cols):
    """A matrix with one scale per 32x32 tile."""
    yield name + ".weight", "F8_E4M3", [rows, cols]
    yield name + ".scale", "F8_E8M0", [tiles(rows), tiles(cols)]


def fp4(name, rows, cols):
    """Two codes a byte, one scale per row and 32 columns."""
    yield name + ".weight", "I8", [rows, cols // 2]
    yield name + ".scale", "F8_E8M0", [rows, tiles(cols)]


def block(prefix, c, experts):
    """What a layer and a draft stage have in common."""
    d, heads, hc = c["hidden_size"], c["num_attention_heads"], c["hc_mult"]
    latent, inner = c["o_groups"] * c["o_lora_rank"], c["moe_intermediate_size"]
    for norm in ("attn_norm", "ffn_norm"):
        yield f"{prefix}.{norm}.weight", "BF16", [d]
    for sublayer in ("attn", "ffn"):
        mixes = (2 + hc) * hc
        yield f"{prefix}.hc_{sublayer}_fn", "F32", [mixes, hc * d]
        yield f"{prefix}.hc_{sublayer}_base", "F32", [mixes]
        yield f"{prefix}.hc_{sublayer}_scale", "F32", [3]
    yield from fp8(f"{prefix}.attn.wq_a", c["q_lora_rank"], d)
    yield from fp8(f"{prefix}.attn.wq_b", heads * c["head_dim"], c["q_lora_rank"])
    yield from fp8(f"{prefix}.attn.wkv", c["head_dim"], d)
    yield from fp8(f"{prefix}.attn.wo_a", latent, heads * c["head_dim"] // c["o_groups"])
    yield from fp8(f"{prefix}.attn.wo_b", d, latent)
    yield f"{prefix}.attn.q_norm.weight", "BF16", [c["q_lora_rank"]]
    yield f"{prefix}.attn.kv_norm.weight", "BF16", [c["head_dim"]]
    yield f"{prefix}.attn.attn_sink", "F32", [heads]
    yield f"{prefix}.ffn.gate.weight", "BF16", [experts, d]
    yield f"{prefix}.ffn.gate.bias", "F32", [experts]
    yield f"{prefix}.ffn.gate.bias_vl", "F32", [experts]
    for e in range(experts):
        for w, rows, cols in (("w1", inner, d), ("w2", d, inner), ("w3", inner, d)):
            yield from fp4(f"{prefix}.ffn.experts.{e}.{w}", rows, cols)
    for w, rows, cols in (("w1", inner, d), ("w2", d, inner), ("w3", inner, d)):
        yield from fp8(f"{prefix}.ffn.shared_experts.{w}", rows, cols)


def layer(n, c):
    prefix, d, head = f"layers.{n}", c["hidden_size"], c["head_dim"]
    yield from block(prefix, c, c["n_routed_experts"])
    if n in c["kv_source_layer_ids"]:
        yield f"{prefix}.attn.compressor.wkv.weight", "BF16", [head, d]
        if c["compress_ratios"][n] > 1:
            yield f"{prefix}.attn.compressor.wgate.weight", "BF16", [head, d]
        yield f"{prefix}.attn.compressor.norm.weight", "BF16", [head]
        yield f"{prefix}.attn.indexer.wk.weight", "BF16", [c["index_head_dim"], head]
        yield f"{prefix}.attn.indexer.k_norm.weight", "BF16", [c["index_head_dim"]]
    if n in c["index_source_layer_ids"]:
        rows = c["index_n_heads"] * c["index_head_dim"]
        yield from fp8(f"{prefix}.attn.indexer.wq_b", rows, c["q_lora_rank"])
        yield f"{prefix}.attn.indexer.weights_proj.weight", "BF16", [c["index_n_heads"], d]


def engram(n, rows, c):
    prefix, d, hc, dim = f"layers.{n}.engram", c["hidden_size"], c["hc_mult"], c["engram_head_dim"]
    yield f"{prefix}.embed.weight", "F8_E4M3", [rows, dim]
    yield f"{prefix}.embed.scale", "F8_E8M0", [rows, tiles(dim)]
    gathered = (c["engram_max_ngram_size"] - 1) * c["engram_n_heads"] * dim
    yield from fp8(f"{prefix}.wkv", (hc + 1) * d, gathered)
    yield f"{prefix}.q_weight", "BF16", [hc, d]
    yield f"{prefix}.k_weight", "BF16", [hc, d]


def draft_stage(s, c):
    prefix, d = f"mtp.{s}", c["hidden_size"]
    yield from block(prefix, c, c["dspark_n_routed_experts"])
    if s == 0:
        yield from fp8(f"{prefix}.main_proj", d, len(c["dspark_target_layer_ids"]) * d)
        yield f"{prefix}.main_norm.weight", "BF16", [d]
    if s == c["num_nextn_predict_layers"] - 1:
        rank = c["dspark_markov_rank"]
        yield f"{prefix}.norm.weight", "BF16", [d]
        yield f"{prefix}.markov_head.embed.weight", "BF16", [c["vocab_size"], rank]
        yield f"{prefix}.markov_head.head.weight", "BF16", [c["vocab_size"], rank]
        yield f"{prefix}.confidence_head.proj.weight", "BF16", [1, d + rank]


def vision(config):
    """Names here are stand-ins; count and total size are those of the release."""
    v, d = config.get("vision_config"), config["text_config"]["hidden_size"]
    if v is None:
        return
    width, inner, patch = v["hidden_size"], v["intermediate_size"], 3 * v["patch_size"] ** 2
    for n in range(v["num_hidden_layers"]):
        for name, shape in (
            ("norm1.weight", [width]), ("norm2.weight", [width]),
            ("qkv.weight", [3 * width, width]), ("qkv.bias", [3 * width]),
            ("proj.weight", [width, width]), ("proj.bias", [width]),
            ("gate_up.weight", [2 * inner, width]), ("down.weight", [width, inner]),
        ):
            yield f"vision.layers.{n}.{name}", "BF16", shape
    yield "vision.patch_embed.weight", "BF16", [width, patch]
    yield "vision.patch_embed.bias", "BF16", [width]
    yield "vision.norm.weight", "BF16", [width]
    yield "aligner.w1.weight", "BF16", [d, v["downsample_ratio"] ** 2 * width]
    yield "aligner.w1.bias", "BF16", [d]
    yield "aligner.w2.weight", "BF16", [d, d]
    yield "aligner.w2.bias", "BF16", [d]
    for name in ("image_start", "image_end", "image_newline"):
        yield name, "BF16", [d]


def tensor_bytes(tensor):
    return math.prod(tensor[2]) * DTYPE_BYTES[tensor[1]]


def shards(config):
    """The released distribution: embedding, layers, the rest, head, draft stages, Engram tables."""
    c = config["text_config"]
    table = [c["vocab_size"], c["hidden_size"]]
    yield [("embed.weight", "BF16", table)]
    for n in range(c["num_hidden_layers"]):
        yield list(layer(n, c))
    yield [("norm.weight", "BF16", [c["hidden_size"]])] + list(vision(config))
    yield [("head.weight", "BF16", table)]
    for s in range(c["num_nextn_predict_layers"]):
        yield list(draft_stage(s, c))
    for n, rows in zip(c["engram_layer_ids"], c["engram_num_embeddings"]):
        yield list(engram(n, rows, c))


def write_shard(path, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, dtype, shape in tensors:
        end = at + tensor_bytes((name, dtype, shape))
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.truncate(8 + len(text) + at)
    return at


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("config_json")
    parser.add_argument("out_dir")
    args = parser.parse_args()
    with open(args.config_json, encoding="utf-8") as f:
        config = json.load(f)
    os.makedirs(args.out_dir, exist_ok=True)

    groups = list(shards(config))
    weight_map, total = {}, 0
    for n, tensors in enumerate(groups, 1):
        name = f"model-{n:05}-of-{len(groups):05}.safetensors"
        total += write_shard(os.path.join(args.out_dir, name), tensors)
        weight_map.update((tensor[0], name) for tensor in tensors)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    for name, value in (("model.safetensors.index.json", index), ("config.json", config)):
        with open(os.path.join(args.out_dir, name), "w", encoding="utf-8") as f:
            json.dump(value, f, indent=1)
    print(f"{len(weight_map)} tensors, {total} bytes, {len(groups)} shards in {args.out_dir}")


if __name__ == "__main__":
    sys.exit(main())
