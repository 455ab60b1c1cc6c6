#!/usr/bin/env python3
"""Makes a long text with planted facts, and questions about them, for a model of the Ember-tiny kind.

  make_recall_document.py --tokens 30000 --document doc.txt --questions questions.json

The facts that are asked for lie at the window's edge (the first digits of the code are `sliding_window` tokens before
the place of the first answer, when the window question is the first), at the start, at the given depths and at the
very end; other facts with similar keys lie between them. The text is what the model's own tools/gen_prompts.py would
write; its generator and tokenizer are imported from there. Questions are not part of the document.

questions.json: {"tokens", "sliding_window", "questions": [{"place", "depth", "prompt", "expected"}]}.
"""
import argparse
import json
import os
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
DEPTHS = (0.25, 0.5, 0.75)


def load_generator(model, seed):
    sys.path.insert(0, os.path.join(model, "tools"))
    from data import Gen
    from tok import Tok
    from gen_prompts import FACT
    return Gen(Tok(model), seed), FACT


class Document:
    """Token ids of the text, and where each asked fact begins."""

    def __init__(self, gen, fact_tokens, num_tokens, num_facts, window):
        self.gen, self.fact_tokens = gen, fact_tokens
        self.keys = gen.keys(num_facts, 0.5)
        self.codes = [(gen.num[gen.r.randrange(1000)], gen.num[gen.r.randrange(1000)]) for _ in self.keys]
        self.places = self._places(num_tokens, window)
        if num_facts < len(self.places) or num_tokens < 40 * num_facts:
            raise ValueError(f"needs at least {len(self.places)} facts and 40 tokens for each")
        self.ids = self._write(num_tokens)

    def question(self, i):
        """Ids of question i as it is asked after the document: with its newline, up to the code."""
        gen = self.gen
        return gen.q + list(self.keys[i]) + gen.qa[:-1]

    def _places(self, num_tokens, window):
        """[(name, first token)], in the order of asking; the index is that of the fact."""
        last = num_tokens - self.fact_tokens
        # The newline after the text, the question, and the blank that the answer opens with.
        query = num_tokens + 1 + len(self.question(0))
        first_code = self.fact_tokens - 4  # a fact ends in: code, blank, code, full stop
        places = [("window edge", query - window - first_code)]
        if last - places[0][1] < self.fact_tokens:
            raise ValueError("the window is too small to keep its edge free of the last fact")
        places += [("start", 0)] + [(f"depth {d}", round(d * last)) for d in DEPTHS] + [("end", last)]
        return places

    def _fact(self, i):
        gen, (a, b) = self.gen, self.codes[i]
        return gen.fact + list(self.keys[i]) + gen.isp + [a, gen.SP, b, gen.DOT]

    def _filler(self, num_tokens, facts):
        """Sentences of exactly num_tokens with the given facts strewn in; a cut sentence comes first."""
        left, sentences = num_tokens - self.fact_tokens * len(facts), []
        while left > 0:
            sentences.append(self.gen.filler()[-left:])
            left -= len(sentences[-1])
        cut = [sentences.pop()] if sentences else []
        sentences += [self._fact(i) for i in facts]
        self.gen.r.shuffle(sentences)
        return sum(cut + sentences, [])

    def _write(self, num_tokens):
        asked = sorted((at, i) for i, (_, at) in enumerate(self.places))
        gaps = [[begin[0] + self.fact_tokens, end[0]] for begin, end in zip(asked, asked[1:])]
        others = [[] for _ in gaps]
        roomy = [g for g, (begin, end) in enumerate(gaps) if end - begin > num_tokens // 8]
        for i in range(len(self.places), len(self.keys)):
            others[self.gen.r.choice(roomy)].append(i)
        ids = self._fact(asked[0][1])
        for (begin, end), facts, (_, i) in zip(gaps, others, asked[1:]):
            ids += self._filler(end - begin, facts) + self._fact(i)
        return ids


def make(model, num_tokens, num_facts, seed):
    """-> (text, questions as written to the JSON file)."""
    with open(os.path.join(model, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    window = config.get("text_config", config)["sliding_window"]
    gen, fact_tokens = load_generator(model, seed)
    document = Document(gen, fact_tokens, num_tokens, num_facts, window)
    tok = gen.tok
    text = tok.decode(document.ids) + "\n"
    if tok.encode(text) != document.ids + [gen.NL]:
        raise ValueError("the text does not encode back to its tokens")
    questions = []
    for i, (place, at) in enumerate(document.places):
        a, b = document.codes[i]
        questions.append({"place": place, "depth": round(at / num_tokens, 3), "prompt": tok.decode(document.question(i)),
                          "expected": tok.decode([a, gen.SP, b, gen.DOT])})
    return text, {"tokens": len(document.ids) + 1, "sliding_window": window, "questions": questions}


def self_test(model):
    for num_tokens, num_facts in ((700, 8), (5000, 24)):
        text, made = make(model, num_tokens, num_facts, seed=3)
        assert make(model, num_tokens, num_facts, seed=3)[0] == text, "one seed, one text"
        assert make(model, num_tokens, num_facts, seed=4)[0] != text, "another seed, another text"
        assert made["tokens"] == num_tokens + 1 and text.count("The code for") == num_facts
        assert "Question" not in text and "Answer" not in text
        tok = load_generator(model, 0)[0].tok
        ids = tok.encode(text)
        for question in made["questions"]:
            key = question["prompt"].split("the code for ")[1].split("?")[0]
            fact = f"The code for {key} is {question['expected']}"
            assert text.count(fact) == 1 and text.count(f"for {key} is") == 1, fact
            at = text.index(fact)
            if question["place"] == "start":
                assert at <= 1
            elif question["place"] == "end":
                assert text.rstrip().endswith(fact)
            elif question["place"] == "window edge":
                whole = ids + tok.encode(question["prompt"] + " " + question["expected"])
                answer = len(whole) - 4
                code = len(tok.encode(text[:at + len(fact)])) - 4
                assert whole[answer:] == whole[code:code + 4]
                assert answer - 1 - code == made["sliding_window"], (answer, code)  # the blank asks
            else:
                assert abs(at / len(text) - float(question["place"].split()[1])) < 0.05
    print("make_recall_document self-test: passed")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=os.path.join(ROOT, "models", "ember-tiny"))
    parser.add_argument("--tokens", type=int, default=30000)
    parser.add_argument("--facts", type=int, default=48)
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--document", help="the text file to write")
    parser.add_argument("--questions", help="the JSON file to write")
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        return self_test(options.model)
    if not options.document or not options.questions:
        parser.error("--document and --questions are needed")
    text, questions = make(options.model, options.tokens, options.facts, options.seed)
    for path, content in ((options.document, text),
                          (options.questions, json.dumps(questions, indent=1, ensure_ascii=False) + "\n")):
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
