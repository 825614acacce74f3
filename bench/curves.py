#!/usr/bin/env python3
"""Curves that a results file prints, as the file that --costs takes.

usage: curves.py FILE PAIR >pair.costs
FILE (bench/results/raw/machine-c/auto.txt, raw/machine-a/plan-curves.txt) has a line PAIR, or "== PAIR", and behind it
those that `specrt-eval plan` prints of its curves, rounded as there."""
import hashlib
import re
import sys

NUMBER = r"\d+(?:\.\d+)?"


def line_of(lines, begin):
    return next(l for l in lines if l.startswith(begin)).split("  ", 1)[1]


def points(name, line):
    return [f"{name} {x} {float(y) / 1e3:.9g}" for x, y in re.findall(rf"(\d+): ({NUMBER})", line)]


def main():
    lines = [l.rstrip("\n") for l in open(sys.argv[1], encoding="utf-8")]
    lines = lines[next(i for i, l in enumerate(lines) if l.removeprefix("== ").split(",")[0] == sys.argv[2]):]
    number = f"({NUMBER})"
    heads = re.findall(rf"(\d+): {number}, {number} \({number}, {number}\)", line_of(lines, "head, ms"))
    of = lambda name, k: [f"{name} {h[0]} {float(h[k]) / 1e3:.9g}" for h in heads]
    out = ["specrt costs 1", "machine " + sys.argv[1], "key " + sys.argv[2]]
    out += points("target", line_of(lines, "target, ms")) + points("draft", line_of(lines, "drafter's layer, ms"))
    out += of("first", 1) + of("next 1", 2) + of("next 4", 3) + of("next 10", 4)
    text = "\n".join(out) + "\n"
    print(f"{text}sum {hashlib.sha256(text.encode()).hexdigest()[:16]}")


main()
