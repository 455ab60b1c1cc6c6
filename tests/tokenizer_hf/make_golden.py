"""Made tests/data/tokenizer/: a small tokenizer of the DeepSeek-V3 kind, and the ids that `tokenizers` gives for corpus.py.

usage: make_golden.py PROJECT_ROOT [--train]

--train also trains the tokenizer anew (on the project's own text); without it only the ids are written.
"""
import glob
import json
import os
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

import corpus

V3_PATTERNS = [
    r"\p{N}{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
]
VOCAB_SIZE = 4000


def train(root, path):
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(p), "isolated") for p in V3_PATTERNS]
        + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    texts = [open(f, encoding="utf-8").read() for pattern in ("src/base/*.h", "src/base/*.cc", "models/*/tools/*.py", "models/*/README.md")
             for f in sorted(glob.glob(os.path.join(root, pattern)))]
    texts += [s for s in corpus.SENTENCES + corpus.EMOJI + corpus.CODE for _ in range(4)]
    specials = ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"]
    tok.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE, special_tokens=specials, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    # Beyond the vocabulary, as in the released file; some overlap, some are searched in the second pass.
    for content, normalized in [("<｜User｜>", False), ("<｜Assistant｜>", False), ("<think>", True), ("</think>", True), ("<｜User", True),
                                ("｜>", True), ("foo bar", True), ("foo", True), ("｜DSML｜", False), ("  \n", True)]:
        tok.add_tokens([AddedToken(content, normalized=normalized, special=False)])
    tok.add_special_tokens([AddedToken("<｜place▁holder▁no▁%d｜>" % i, normalized=False, special=True) for i in range(12)])
    tok.save(path, pretty=False)


def main():
    root = sys.argv[1]
    data = os.path.join(root, "tests/data/tokenizer")
    trained = os.path.join(data, "deepseek_v3_kind.json")
    if "--train" in sys.argv:
        train(root, trained)
    texts = list(corpus.fixed()) + list(corpus.randomised(120, seed=1))
    golden = {"made_by": "tests/tokenizer_hf/make_golden.py", "texts_hex": [t.hex() for t in texts], "ids": {}}
    for name in ("tests/data/tokenizer/deepseek_v3_kind.json", "models/ember-tiny/tokenizer.json"):
        tok = Tokenizer.from_file(os.path.join(root, name))
        golden["ids"][name] = [tok.encode(t.decode("utf-8", "replace"), add_special_tokens=False).ids for t in texts]
    with open(os.path.join(data, "golden_ids.json"), "w") as f:
        json.dump(golden, f, separators=(",", ":"))


if __name__ == "__main__":
    main()
