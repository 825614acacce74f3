#!/usr/bin/env python3
"""Makes data/corpus, the small calibration corpus, from the text of collect_text.py.

usage: data/make_corpus.py [TEXT] [OUT]

Per domain a folder of a few hundred kilobytes, in the file formats that corpora come in. Only text
that is in the public domain or under a permissive licence or CC BY is taken; OUT/ORIGINS.md says
what came from where. Documents are chosen by their digest. Needs zstd."""
import argparse
import gzip
import hashlib
import json
import os
import re
import subprocess
import sys
from collections import namedtuple

import text_shapes as shape

KB = 1 << 10
PASSAGE = 1500  # characters

# One file of the corpus: kilobytes of each source's text, and a pattern its documents' "from" has.
Part = namedtuple("Part", "path sources wanted", defaults=("",))

PARTS = [
    Part("prose/sherlock-holmes.txt", {"prose/sherlock-holmes": 160}),
    Part("prose/novels.jsonl.gz",
         {"prose/austen": 120, "prose/moby-dick": 80, "prose/canterbury": 60}),
    Part("prose/history.md", {"prose/us-history": 80}),
    Part("code/python.txt", {"code/python-library": 120}, "^(?!.*turtle)"),
    Part("code/go.jsonl", {"code/go": 80}),
    Part("code/c.txt", {"code/zstandard": 50, "code/libuv": 50}),
    Part("code/javascript.txt", {"code/lodash": 40}),
    Part("code/tasks.jsonl", {"code/humaneval": 90, "code/python-help": 60}),
    Part("legal/contracts.jsonl", {"legal/legalbench": 220}, r"/(cuad|maud|contract_nli)_"),
    Part("legal/licences.txt", {"legal/licences": 170}, "/cc[0-]"),
    Part("legal/constitution.txt", {"legal/us-founding": 60}),
    Part("medical/medquad.jsonl", {"medical/medquad": 330}),
    Part("medical/surgery.txt", {"medical/manual-of-surgery": 80}),
    Part("technical/sqlite.md", {"technical/sqlite": 100}),
    Part("technical/postgresql.jsonl", {"technical/postgresql": 100}),
    Part("technical/python.md", {"technical/python": 120}),
    Part("technical/nodejs.md", {"technical/nodejs": 80}),
    Part("qa/dictionary.json", {"qa/wordnet": 240}),
    Part("qa/faq.jsonl", {"qa/python-faq": 150, "qa/sqlite-faq": 40}),
    Part("math/gsm8k.jsonl.zst", {"math/gsm8k": 400}),
]


def choose(path, kilobytes, wanted):
    """Documents of one source up to a size, those of lowest digest, in the source's order."""
    lines = [line for line in open(path, "rb") if re.search(wanted, json.loads(line)["from"])]
    kept, size = set(), 0
    for i in sorted(range(len(lines)), key=lambda i: hashlib.sha256(lines[i]).digest()):
        if size + len(lines[i]) <= kilobytes * KB:
            kept.add(i)
            size += len(lines[i])
    return [json.loads(lines[i]) for i in sorted(kept)]


def pair(row):
    return [m["content"] for m in row["messages"]]


def alpaca(rows):
    records = [dict(zip(("instruction", "output"), pair(row))) for row in rows]
    return json.dumps(records, ensure_ascii=False, indent=0)


def share_gpt(row):
    turns = zip(("human", "gpt"), pair(row))
    return {"id": row["from"], "conversations": [{"from": r, "value": c} for r, c in turns]}


def passages(row):
    """A text in records of a few paragraphs, so that some of it can be held out."""
    if "text" not in row:
        return [row]
    return [{"text": text, "from": row["from"]} for text in shape.pieces(row["text"], PASSAGE)]


def render(path, rows):
    """The rows in the format that the file's name tells; qa/ holds shapes other than messages."""
    if ".jsonl" in path:
        records = [share_gpt(row) for row in rows] if path.startswith("qa/") else \
            [record for row in rows for record in passages(row)]
        return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    if path.endswith(".json"):
        return alpaca(rows)
    return "\n\n".join(row["text"] for row in rows) + "\n"


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    data = text.encode()
    if path.endswith(".gz"):
        data = gzip.compress(data, 9, mtime=0)
    elif path.endswith(".zst"):
        data = subprocess.run(["zstd", "-q", "-19"], input=data, stdout=subprocess.PIPE,
                              check=True).stdout
    with open(path, "wb") as f:
        f.write(data)
    return len(data)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("text", nargs="?", default="build/text")
    parser.add_argument("out", nargs="?", default="data/corpus")
    options = parser.parse_args()
    try:
        manifest = json.load(open(os.path.join(options.text, "manifest.json")))
    except OSError as e:
        sys.exit(f"{e.filename}: {e.strerror}; run data/collect_text.py first")
    origin = {m["file"]: m for m in manifest}
    table = ["# Where the texts come from", "", "| file | documents | source | licence |",
             "|---|--:|---|---|"]
    for part in PARTS:
        rows = []
        for source, kilobytes in part.sources.items():
            chosen = choose(os.path.join(options.text, source + ".jsonl"), kilobytes, part.wanted)
            m = origin[source + ".jsonl"]
            table.append(f"| `{part.path}` | {len(chosen)} | {m['origin']} | {m['licence']} |")
            rows += chosen
        n_bytes = write(os.path.join(options.out, part.path), render(part.path, rows))
        print(f"{part.path:28} {n_bytes:8}")
    with open(os.path.join(options.out, "ORIGINS.md"), "w") as f:
        f.write("\n".join(table) + "\n")


if __name__ == "__main__":
    main()
