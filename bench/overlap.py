#!/usr/bin/env python3
"""overlap.py --test NAME=PATH... --text NAME=PATH... [--words 13] [--show N]

How many documents of each test set share 13 words in a row with a text (what a pair was trained on,
or lists were calibrated on). Words are runs of letters, digits and underscores, in lower case; a run
ends with the string that holds it. A document with no 13 words in a row is looked for whole, from 6
words on, and counted apart. A path is a folder or a file, .txt, .md, .jsonl or .json, also .gz and
.zst (by the program zstd). A text file is one document; so is a record of the others, with all
strings in it. A name given twice is one set of several paths. --show N prints N shared runs of each
test set. Needs Python's standard library only."""
import argparse
import collections
import gzip
import json
import os
import re
import subprocess
import sys

WORD = re.compile(r"\w+")
LEAST = 6  # words of a short document, below which to find it says nothing
KINDS = (".txt", ".md", ".jsonl", ".json")


def bare(path):
    return re.sub(r"\.(gz|zst)$", "", path)


def files(path):
    if not os.path.isdir(path):
        return [path]
    return sorted(os.path.join(folder, name) for folder, _, names in os.walk(path)
                  for name in names if bare(name).endswith(KINDS))


def content(path):
    if path.endswith(".zst"):
        data = subprocess.run(["zstd", "-dcq", path], stdout=subprocess.PIPE, check=True).stdout
    else:
        with (gzip.open if path.endswith(".gz") else open)(path, "rb") as f:
            data = f.read()
    return data.decode("utf-8", "replace")


def records(path):
    text = content(path)
    if not bare(path).endswith((".json", ".jsonl")):
        return [text]
    try:
        found = json.loads(text)
    except ValueError:
        found = list(lines(path, text))
    return found if isinstance(found, list) else [found]


def lines(path, text):
    """JSON Lines end with a line feed and nothing else: their strings may hold other ends of lines."""
    for i, line in enumerate(text.split("\n"), 1):
        try:
            if line.strip():
                yield json.loads(line)
        except ValueError as fault:
            sys.exit(f"overlap.py: {path}: line {i}; expected JSON, found: {fault}")


def strings(value):
    """All strings of a record, but not its keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from strings(part)


def documents(paths):
    """Each a list of pieces, each a list of words."""
    for path in paths:
        for name in files(path):
            for record in records(name):
                yield [WORD.findall(s.lower()) for s in strings(record)]


class Tests:
    """Runs of words of the test sets, by what they begin with."""

    def __init__(self, sets, n):
        self.n, self.sets, self.short = n, {}, set()
        self.runs = collections.defaultdict(set)  # run: documents, as (set, number)
        self.n_runs = collections.Counter()       # of a set
        self.lengths = collections.defaultdict(set)
        for name, paths in sets.items():
            self.sets[name] = 0
            for pieces in documents(paths):
                self.add((name, self.sets[name]), pieces)
                self.sets[name] += 1

    def add(self, document, pieces):
        found = {tuple(piece[i:i + self.n]) for piece in pieces
                 for i in range(len(piece) - self.n + 1)}
        if not found:
            self.short.add(document)
            longest = max(pieces, key=len, default=[])
            found = {tuple(longest)} if len(longest) >= LEAST else set()
        for run in found:
            self.runs[run].add(document)
            self.lengths[run[:3]].add(len(run))
        self.n_runs[document[0]] += len(found)

    def shared(self, pieces):
        """The runs that stand in these pieces."""
        for piece in pieces:
            for i in range(len(piece) - LEAST + 1):
                for length in self.lengths.get(tuple(piece[i:i + 3]), ()):
                    run = tuple(piece[i:i + length])
                    if run in self.runs:
                        yield run


def compare(tests, paths):
    """Documents and words of a text, and the runs it shares with the tests."""
    n_documents = n_words = 0
    found = set()
    for pieces in documents(paths):
        n_documents += 1
        n_words += sum(map(len, pieces))
        found.update(tests.shared(pieces))
    return n_documents, n_words, found


def table(tests, name, result):
    n_documents, n_words, found = result
    held, n_runs = collections.defaultdict(set), collections.Counter()
    for run in found:
        for document in tests.runs[run]:
            held[document[0]].add(document)
            n_runs[document[0]] += 1
    for test, n in tests.sets.items():
        short = {d for d in tests.short if d[0] == test}
        long_held, n_long = len(held[test] - short), n - len(short)
        print(f"{test:18s} {n_long:6d} {long_held:6d} {100 * long_held / max(n_long, 1):6.1f}% "
              f"{100 * n_runs[test] / max(tests.n_runs[test], 1):6.1f}% "
              f"{len(short):6d} {len(held[test] & short):6d}  {name} ({n_documents:,}; {n_words:,})")


def show(tests, found, n):
    for test in tests.sets:
        runs = sorted(run for run in found if any(d[0] == test for d in tests.runs[run]))
        for run in runs[::max(1, len(runs) // n)][:n]:
            print(f"    {test}: {' '.join(run)}")


def named(pairs):
    sets = {}
    for pair in pairs:
        name, equals, path = pair.partition("=")
        if not equals or not os.path.exists(path):
            sys.exit(f"overlap.py: {pair}; expected NAME=PATH of a file or folder that exists")
        sets.setdefault(name, []).append(path)
    return sets


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--test", nargs="+", required=True, metavar="NAME=PATH")
    parser.add_argument("--text", nargs="+", required=True, metavar="NAME=PATH")
    parser.add_argument("--words", type=int, default=13)
    parser.add_argument("--show", type=int, default=0, metavar="N")
    options = parser.parse_args()
    tests, texts = Tests(named(options.test), options.words), named(options.text)
    n = options.words
    print(f"long: documents of {n} words in a row and more; held: those that share {n} with the text; runs: of all\n"
          f"their {n} words in a row, the share found; short: other documents; whole: those that stand in it whole\n")
    print(f"{'test set':18s} {'long':>6s} {'held':>6s} {'':7s} {'runs':>7s} {'short':>6s} {'whole':>6s}  "
          "text (documents; words)")
    for name, paths in texts.items():
        result = compare(tests, paths)
        table(tests, name, result)
        if options.show:
            show(tests, result[2], options.show)


if __name__ == "__main__":
    main()
