#!/usr/bin/env python3
"""conversations.py SHAREGPT [CHARACTERS] : conversations of more than 50 turns as prompts, JSON Lines, on
standard output: their first 51 questions, each cut at a word to so many characters (60), so that a
small model's context holds all turns. SHAREGPT is build/models/sharegpt.json (`make models
NAME=sharegpt`), whose conversations come in pieces. Python's standard library is enough."""
import collections
import json
import sys

TURNS = 51


def conversations(pieces):
    """The questions of each, its pieces joined in their order."""
    joined = collections.OrderedDict()
    for piece in pieces:
        name, _, number = piece["id"].rpartition("_")
        part = (int(number) if number.isdigit() else 0, piece["conversations"])
        joined.setdefault(name or piece["id"], []).append(part)
    for parts in joined.values():
        parts.sort(key=lambda part: part[0])
        yield [m["value"] for _, messages in parts for m in messages if m["from"] in ("human", "user")]


def cut(text, most):
    text = " ".join(text.split())
    return (text if len(text) <= most else text[:most].rsplit(" ", 1)[0]) or "Go on."


def main(path, most=60):
    with open(path, encoding="utf-8") as f:
        pieces = json.load(f)
    for questions in conversations(pieces):
        if len(questions) >= TURNS:
            turns = [cut(q, int(most)) for q in questions[:TURNS]]
            print(json.dumps({"turns": turns, "domain": "conversations"}, ensure_ascii=False))


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main(*sys.argv[1:])
