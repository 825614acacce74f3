#!/usr/bin/env python3
"""What a sketch is worth by the number of recorded states that choose its directions.

usage: sketch_states.py BUILD HEAD TRAIN.trace TEST.trace...
HEAD is the model whose head drafts. Directions come from the first part of TRAIN (a trace is
readable up to any cut, so that few states are those of few prompts); the first TEST measures
recall, all of them together the accept length, by replay. In the environment: CUTS of TRAIN
("1/6 1/3 1/2 2/3 1"), STATES to measure with (400), ONE_WIDTH=1 for the same table of one
width, THREADS (1)."""
import json
import os
import subprocess
import sys
import tempfile


def number(name, default):
    return os.environ.get(name, default)


def said(command):
    command += ["--json", "-q", "--threads", number("THREADS", "1")]
    shown = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if shown.returncode not in (0, 4):  # 4: built, but below --min-recall
        sys.exit(shown.stderr)
    return json.loads(shown.stdout)


def cut_trace(path, share, out):
    with open(path, "rb") as whole, open(out, "wb") as part:
        part.write(whole.read(int(os.path.getsize(path) * share)))


def found(sketch, key, rows):
    """By all of its dimensions."""
    return next(r[key] for r in reversed(sketch["recall"]) if r["rows"] == rows)


def row(build, head, trace, tests, work):
    bundle = f"{work}/one.specb"
    command = [f"{build}/bin/sketch-build", "--model", head, "--trace", trace, "--held-out", tests[0],
               "--states", number("STATES", "400"), "--allow-below", "-f", "-o", bundle]
    sketch = said(command + (["--codes", "int4"] if number("ONE_WIDTH", "") else []))
    traces = [a for t in tests for a in ("--trace", t)]
    rows = said([f"{build}/bin/specrt-eval", "replay", *traces, "--bundle", bundle, "--model", head,
                 "--policy", "full,sketch:128,sketch:512"])["rows"]
    accept = {r["policy"]: r["accept_length"] for r in rows if r["domain"] == "all"}
    kept = [f"{100 * accept[p] / accept['full']:.1f}%" for p in ("sketch:128", "sketch:512")]
    return (f"{sketch['n_states_basis']:,}", f"{sketch['bytes_per_row']:g}",
            f"{found(sketch, 'recall_at_10', 128):.3f} / {found(sketch, 'recall_of_best', 128):.3f}",
            *kept)


def main():
    build, head, train, *tests = sys.argv[1:]
    print(f"{os.path.basename(head)}: {'one width' if number('ONE_WIDTH', '') else 'bands'}\n")
    print("| states that choose | bytes of a row | ten best / best among 128 | `sketch:128` keeps "
          "| `sketch:512` |")
    print("|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as work:
        for cut in number("CUTS", "1/6 1/3 1/2 2/3 1").split():
            above, _, below = cut.partition("/")
            cut_trace(train, int(above) / int(below or 1), f"{work}/cut.trace")
            print("| " + " | ".join(row(build, head, f"{work}/cut.trace", tests, work)) + " |", flush=True)
    print()


main()
