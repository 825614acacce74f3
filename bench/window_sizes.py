#!/usr/bin/env python3
"""How large a window must be: accept length and coverage by W, replayed.

usage: window_sizes.py BUILD TRACE...
MicroSpec's window to the letter (Eq. 2 to 4: a stream, nothing filled) and ours, kept full. In the
environment: SIZES ("64 128 256 384 512 768 1024 2048 3072 4096"). Intervals are 95%, by prompts."""
import json
import os
import subprocess
import sys

PAPER = "window:{}@mode=stream@positions=last@emitted=off@min=0"
OURS = "window:{0}@kpre=8@kver=8@positions=tree@min={0}"


def replay(build, traces, policies):
    command = [f"{build}/bin/specrt-eval", "replay", "--json", "-q", "--policy", ",".join(policies)]
    command += [a for t in traces for a in ("--trace", t)]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return {r["policy"]: r for r in json.loads(said)["rows"] if r["domain"] == "all"}


def cells(row):
    low, high = row["ci95"]["accept_length"]
    less, more = (100 * x for x in row["ci95"]["coverage"])
    return (f"{row['active_rows']:,.0f} | {100 * row['coverage']:.1f}% ({less:.1f}-{more:.1f}) | "
            f"{'~' if row['estimated'] else ''}{row['accept_length']:.2f} ({low:.2f}-{high:.2f})")


def main():
    sizes = os.environ.get("SIZES", "64 128 256 384 512 768 1024 2048 3072 4096").split()
    rows = replay(sys.argv[1], sys.argv[2:],
                  ["full", *(p.format(w) for w in sizes for p in (PAPER, OURS))])
    full = rows["full"]
    print(f"{full['n_sequences']} answers, {full['n_tokens']} tokens; `full`: {cells(full)}\n")
    print("| W | the paper's: rows | covered | accept length (95%) | ours: rows | covered | accept length (95%) |")
    print("|--:|--:|--:|--:|--:|--:|--:|")
    for w in sizes:
        print(f"| {int(w):,} | {cells(rows[PAPER.format(w)])} | {cells(rows[OURS.format(w)])} |")


main()
