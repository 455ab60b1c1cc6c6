"""Compares ids, decoding and token maps with the `tokenizers` package, on more texts and settings than the golden files hold.

usage: compare_live.py ENCODE_LINES_PROGRAM PROJECT_ROOT

Ends with status 1 at any difference, and when the package is missing.
"""
import json
import os
import subprocess
import sys
import tempfile

from tokenizers import Regex, Tokenizer, normalizers

import corpus

CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CL100K_POSSESSIVE = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s")
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def sequence(*steps, **byte_level):
    return {"type": "Sequence", "pretokenizers": list(steps) + [dict(BYTE_LEVEL, **byte_level)]}


def variants(base):
    """The same vocabulary under other settings."""
    def changed(**model_changes):
        pre = model_changes.pop("pre_tokenizer", base["pre_tokenizer"])
        return dict(base, pre_tokenizer=pre, model=dict(base["model"], **model_changes))
    # Begins before a token of the first pass; corpus.SPECIAL has "x<｜place▁holder▁no▁1｜>".
    early = {"id": base["added_tokens"][-1]["id"] + 1, "content": "x<｜", "single_word": False, "lstrip": False,
             "rstrip": False, "normalized": True, "special": False}
    yield "second pass begins earlier", dict(base, added_tokens=base["added_tokens"] + [early])
    yield "merges as texts", changed(merges=[" ".join(m) for m in base["model"]["merges"]])
    yield "ignore_merges, fewer merges", changed(ignore_merges=True, merges=base["model"]["merges"][::3])
    yield "byte_fallback, unk_token", changed(byte_fallback=True, unk_token="<｜▁pad▁｜>", fuse_unk=True)
    yield "GPT-2", changed(pre_tokenizer=dict(BYTE_LEVEL, use_regex=True))
    yield "GPT-2, prefix space", changed(pre_tokenizer=dict(BYTE_LEVEL, use_regex=True, add_prefix_space=True))
    yield "cl100k, removed inverted", changed(pre_tokenizer=sequence(split(CL100K, "Removed", True)))
    yield "cl100k, prefix space", changed(pre_tokenizer=sequence(split(CL100K), add_prefix_space=True))
    yield "cl100k, possessive", changed(pre_tokenizer=sequence(split(CL100K_POSSESSIVE)))
    yield "removed", changed(pre_tokenizer=sequence(split(r"\s+|\p{P}", "Removed"), use_regex=True))
    yield "empty matches", changed(pre_tokenizer=sequence(split(r"\p{Nd}*"), split(r"(?=[A-Z])"), split("x|")))
    yield "anchors", changed(pre_tokenizer=sequence(split(r"^.|.$"), split(r"\A\S|\S\z|\S+(?<=[aeiou])|(?<!\S)[^\s]|(?>a+)b\d\D\P{L}")))


class Failures:
    def __init__(self):
        self.count = 0
        self.compared = 0

    def check(self, what, text, ours, theirs):
        self.compared += 1
        if ours != theirs:
            self.count += 1
            if self.count <= 20:
                print(f"DIFFERS: {what}\n  text   {text[:200]!r}\n  ours   {str(ours)[:400]}\n  theirs {str(theirs)[:400]}")


def filtered(program, arguments, texts):
    result = subprocess.run([program, *arguments], input="".join(t.hex() + "\n" for t in texts), capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{program} {' '.join(arguments)} failed: {result.stderr}")
    lines = result.stdout.splitlines()
    if texts and len(lines) != len(texts):
        sys.exit(f"{program} {' '.join(arguments)} answered {len(lines)} of {len(texts)} lines")
    return lines


def compare_ids(program, name, path, texts, failures):
    tok = Tokenizer.from_file(path)
    for text, line in zip(texts, filtered(program, ["encode", path], texts)):
        ours = json.loads(line)
        as_python = text.decode("utf-8", "replace")
        ids = tok.encode(as_python, add_special_tokens=False).ids
        decoded = tok.decode(ids, skip_special_tokens=False)
        failures.check(f"{name}: ids", text, ours["ids"], ids)
        failures.check(f"{name}: decoded", text, bytes.fromhex(ours["text"]).decode(), decoded)
        failures.check(f"{name}: streamed", text, bytes.fromhex(ours["stream"]).decode(), decoded)
        failures.check(f"{name}: without specials", text, bytes.fromhex(ours["plain"]).decode(), tok.decode(ids, skip_special_tokens=True))


def engram_normalizer():
    sentinel = "\ue000"
    return normalizers.Sequence([
        normalizers.NFKC(), normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase(),
        normalizers.Replace(Regex(r"[ \t\r\n]+"), " "), normalizers.Replace(Regex(r"^ $"), sentinel), normalizers.Strip(),
        normalizers.Replace(sentinel, " ")])


def compare_normalizer(program, failures):
    normalizer = engram_normalizer()
    texts = [chr(c).encode() for c in range(0x110000) if corpus.assigned(c)]
    texts += [t for t in list(corpus.fixed()) + list(corpus.randomised(4000, seed=3)) if t.decode("utf-8", "replace").encode() == t]
    for text, line in zip(texts, filtered(program, ["normalize"], texts)):
        failures.check("Engram key", text, bytes.fromhex(line).decode(), normalizer.normalize_str(text.decode()))


def compare_token_map(program, name, path, failures):
    tok, normalizer = Tokenizer.from_file(path), engram_normalizer()
    compressed, expected = {}, []
    for i in range(tok.get_vocab_size()):
        text = tok.decode([i], skip_special_tokens=False)
        key = tok.id_to_token(i) if "\ufffd" in text else (normalizer.normalize_str(text) or text)
        expected.append(compressed.setdefault(key, len(compressed)))
    failures.check(f"{name}: token map", b"", json.loads(filtered(program, ["token-map", path], [])[0]), expected)


def main():
    program, root = sys.argv[1:]
    trained = os.path.join(root, "tests/data/tokenizer/deepseek_v3_kind.json")
    tiny = os.path.join(root, "models/ember-tiny/tokenizer.json")
    failures = Failures()
    compare_normalizer(program, failures)
    texts = list(corpus.fixed()) + list(corpus.randomised(3000, seed=2)) + list(corpus.long_runs())
    for name, path in (("ember-tiny", tiny), ("DeepSeek-V3 kind", trained)):
        compare_ids(program, name, path, texts, failures)
        compare_token_map(program, name, path, failures)
    texts = list(corpus.fixed()) + list(corpus.randomised(600, seed=4))
    with tempfile.TemporaryDirectory() as folder:
        for name, variant in variants(json.load(open(trained, encoding="utf-8"))):
            path = os.path.join(folder, "tokenizer.json")
            with open(path, "w", encoding="utf-8") as f:
                json.dump(variant, f, ensure_ascii=False)
            compare_ids(program, name, path, texts, failures)
    print(f"{failures.compared} comparisons, {failures.count} differences")
    return 1 if failures.count else 0


if __name__ == "__main__":
    sys.exit(main())
