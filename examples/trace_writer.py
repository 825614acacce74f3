#!/usr/bin/env python3
"""trace_writer.py LOG.jsonl OUT.trace --n-vocab N : decoding cycles that any engine logged, as a trace for specrt.

    {"domain": "code", "tokens": [1, 5, 9]}                                        a sequence and its prompt
    {"tokens": [7, 3], "nodes": [0, 1], "tree_tokens": [9, 7], "tree_parents": [-1, 0]}    a cycle of it

A line is a record; a cycle has what it emitted ("tokens"), and whatever else of specrt.trace.FIELDS was known, as
nested lists. Where the engine is Python, specrt.TraceWriter takes its arrays instead.
"""
import argparse
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
import specrt  # noqa: E402


def convert(args, part):
    sizes = {name: getattr(args, name) for name in ("d_target", "d_draft", "n_top", "n_draft_top", "n_tree_top")}
    with open(args.log) as log, specrt.TraceWriter(part, args.n_vocab, policy=args.policy, **sizes) as trace:
        for number, line in enumerate(log, 1):
            record = json.loads(line)
            try:
                (trace.cycle if "nodes" in record else trace.sequence)(**record)
            except (specrt.SpecrtError, TypeError) as error:
                raise specrt.SpecrtError(f"{args.log}:{number}: {error}") from None


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("log")
    p.add_argument("out")
    p.add_argument("--n-vocab", type=int, required=True)
    p.add_argument("--policy", default="", help="that drafted, where it is known")
    for name, size in ("d-target", 0), ("d-draft", 0), ("n-top", 10), ("n-draft-top", 64), ("n-tree-top", 0):
        p.add_argument("--" + name, type=int, default=size)
    args = p.parse_args()
    part = args.out + ".part"  # until it is whole
    try:
        convert(args, part)
        os.replace(part, args.out)
    except (specrt.SpecrtError, ValueError, OSError) as error:
        if os.path.exists(part):
            os.remove(part)
        sys.exit(f"trace_writer: {error}")


if __name__ == "__main__":
    main()
