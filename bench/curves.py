#!/usr/bin/env python3
"""Curves that a results file prints, as the JSON that --costs takes.

usage: curves.py FILE PAIR >costs.json
FILE (bench/results/raw/machine-c/auto.txt, raw/machine-a/plan-curves.txt) has a line PAIR, or "== PAIR", and behind it
those that `specrt-eval plan` prints of its curves, rounded as there."""
import json
import re
import sys

NUMBER = r"\d+(?:\.\d+)?"


def line_of(lines, begin):
    return next(l for l in lines if l.startswith(begin)).split("  ", 1)[1]


def points(line, size):
    return [{size: int(x), "seconds": float(y) / 1e3} for x, y in re.findall(rf"(\d+): ({NUMBER})", line)]


def main():
    lines = [l.rstrip("\n") for l in open(sys.argv[1], encoding="utf-8")]
    lines = lines[next(i for i, l in enumerate(lines) if l.removeprefix("== ").split(",")[0] == sys.argv[2]):]
    number = f"({NUMBER})"
    heads = re.findall(rf"(\d+): {number}, {number} \({number}, {number}\)", line_of(lines, "head, ms"))
    of = lambda k: [{"rows": int(h[0]), "seconds": float(h[k]) / 1e3} for h in heads]
    json.dump({"source": " ".join(sys.argv[1:]), "head_first": of(1),
               "head": [{"topk": 1, "points": of(2)}, {"topk": 4, "points": of(3)},
                        {"topk": 10, "points": of(4)}],
               "draft": points(line_of(lines, "drafter's layer, ms"), "tokens"),
               "target": points(line_of(lines, "target, ms"), "nodes")}, sys.stdout)


main()
