#!/usr/bin/env python3
"""training_text.py DATA OUT : what the 128k pair was trained on, as far as the folder of benchmark
data holds it, for bench/overlap.py: OUT/train/DOMAIN.jsonl; and its held-out documents as text,
OUT/heldout/DOMAIN.jsonl. Documents are split as weights/pair128k/train/data.py does, and the split is
checked against the held-out token ids. Python's library, C headers, manual pages and licences came
from the machine it was trained on and are not made again, so the held-out documents of code and
manuals have no counterpart. Needs Python's standard library only."""
import base64
import glob
import json
import pathlib
import random
import re
import sys
import tarfile

CHUNK = 6000  # characters
QUESTION = re.compile(r"<Question[^>]*>(.*?)</Question>", re.S)
ANSWER = re.compile(r"<Answer>(.*?)</Answer>", re.S)


def members(path):
    with tarfile.open(path) as archive:
        for m in archive:
            if m.isfile():
                yield m, archive.extractfile(m).read().decode("utf-8", "ignore")


def math(data):
    for line in open(data / "prompts/gsm8k/train.jsonl", encoding="utf-8"):
        row = json.loads(line)
        yield row["question"], row["answer"]


def medical(data):
    found = []
    for m, text in members(data / "domains/medical/medquad.tar.gz"):
        if m.name.endswith(".xml"):
            found += [(re.sub(r"\s+", " ", q), re.sub(r"[ \t]+", " ", a.strip())[:CHUNK])
                      for q, a in zip(QUESTION.findall(text), ANSWER.findall(text)) if a.strip()]
    random.Random(1).shuffle(found)
    return found


def legal(data):
    for m, text in members(data / "domains/legal/legalbench_tasks.tar.gz"):
        if m.size > 400:
            for i in range(0, len(text), CHUNK):
                if len(text[i:i + CHUNK]) > 400:
                    yield "", text[i:i + CHUNK]


def tool(data):
    """One list for each file: each has its own cap and its own count of documents."""
    for path in glob.glob(str(data / "domains/function_calling/*.json")):
        yield [("", line) for line in open(path, encoding="utf-8") if len(line) > 200]


def capped(items, n_bytes):
    for item in items:
        yield item
        n_bytes -= len(item[1].encode())
        if n_bytes < 0:
            return


class HeldOut:
    """The documents that were kept out, as text, by domain."""

    def __init__(self, data):
        ranks = dict(reversed(line.split()) for line in
                     open(data / "tokenizers/llama3/tokenizer.model", "rb").read().splitlines())
        self.bytes = {int(rank): base64.b64decode(token) for rank, token in ranks.items()}
        self.domains = json.load(open(data / "weights/pair128k/heldout.json", encoding="utf-8"))

    def text(self, ids):
        return b"".join(self.bytes.get(i, b"\n") for i in ids).decode("utf-8", "replace")

    def documents(self, domain):
        return [(self.text(d["prompt_ids"]), self.text(d["answer_ids"])) for d in self.domains[domain]]

    def bytes_of(self, domain, n_tokens):
        """As many tokens as text of this kind, in bytes."""
        sizes = [(len(self.text(d["answer_ids"]).encode()), len(d["answer_ids"]))
                 for d in self.domains[domain]]
        return n_tokens * sum(b for b, _ in sizes) / sum(n for _, n in sizes)


def write(folder, domain, pairs):
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / f"{domain}.jsonl", "w", encoding="utf-8") as f:
        f.writelines(json.dumps(pair) + "\n" for pair in pairs)


def split(parts, step):
    """Of every part each step-th document is held out: what was trained on, and the answers kept out."""
    train, test = [], set()
    for items in parts:
        for i, (question, answer) in enumerate(items):
            if i % step == step - 1:
                test.add(answer.strip())
            else:
                train.append((question, answer))
    return train, test


def main():
    data, out = map(pathlib.Path, sys.argv[1:3])
    held_out = HeldOut(data)
    parts = {"math": ([math(data)], 10), "medical": ([medical(data)], 10),
             "legal": ([capped(legal(data), held_out.bytes_of("legal", 2e6))], 20),
             "tool": ([capped(items, held_out.bytes_of("tool", 8e5)) for items in tool(data)], 20)}
    for domain in held_out.domains:
        known = held_out.documents(domain)
        write(out / "heldout", domain, known)
        if domain not in parts:
            print(f"{domain}: its training text is not in the data folder")
            continue
        train, test = split(*parts[domain])
        write(out / "train", domain, train)
        n = sum(any(t.startswith(a.strip()[:200]) for t in test) for _, a in known)
        print(f"{domain}: {len(train)} documents trained on; {n} of {len(known)} held out by this split")


main()
