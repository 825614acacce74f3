#!/usr/bin/env python3
"""compare.py A B -- COMMAND... : whether the build in folder B is faster or slower than the build in A.

    git worktree add ../old v1.0.0 && make -C ../old bench-build && make bench-build
    bench/compare.py ../old/build build -- {}/bench/bench_head
    bench/compare.py ../old/build build --value '([0-9.]+) MB/s' --more -- {}/bench/bench_tokenizer

"{}" in COMMAND becomes A or B. The builds take turns, A B then B A, so that a machine that slows down meets both. Each
pair gives a ratio B/A; the verdict is the median ratio with an interval that holds the true one with at least 95%
probability, whatever the noise looks like (order statistics). Without --value the ratio is of processor time.

Exit code 0; 4 where B is worse by more than --least; 1 where a command fails.
"""
import argparse
import math
import re
import resource
import statistics
import subprocess
import sys


def interval(values, certainty=0.95):
    """Order statistics around the median: low, high. Fewer than six values give no such interval: their range."""
    values, n = sorted(values), len(values)
    k = 0  # so many values are left out at each end
    while 2 * sum(math.comb(n, i) for i in range(k + 2)) / 2 ** n <= 1 - certainty and 2 * (k + 1) < n:
        k += 1
    return values[k], values[n - 1 - k]


def verdict(ratios, least):
    """One line and whether B is worse. ratios: time of B over A."""
    middle, (low, high) = statistics.median(ratios), interval(ratios)
    shown = f"{middle - 1:+.1%} ({low - 1:+.1%} to {high - 1:+.1%})"
    if low > 1 + least:
        return f"slower: {shown}", True
    if high < 1 - least:
        return f"faster: {shown}", False
    if low >= 1 - least and high <= 1 + least:
        return f"same within {least:.1%}: {shown}", False
    return f"undecided: {shown}; take more rounds or a quieter machine", False


def measure(command, folder, args):
    """Cost of one run, smaller is better."""
    words = [word.replace("{}", folder) for word in command]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(words, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{' '.join(words)}: exit code {done.returncode}: {done.stderr.strip()[-300:]}")
    if not args.value:
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    found = [float(x) for x in re.findall(args.value, done.stdout)]
    if not found or min(found) <= 0:
        sys.exit(f"{' '.join(words)}: --value {args.value}: expected a number above 0, found {found or 'none'}")
    mean = math.exp(statistics.fmean(map(math.log, found)))  # geometric: each number counts the same
    return 1 / mean if args.more else mean


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("a", metavar="A", help="a build folder")
    p.add_argument("b", metavar="B", help="another")
    p.add_argument("command", metavar="COMMAND", nargs="+", help="with {} for the folder")
    p.add_argument("--rounds", type=int, default=12, help="pairs of runs (12; 6 at least for an interval of 95%%)")
    p.add_argument("--least", type=float, default=0.02, help="what counts as a difference (0.02)")
    p.add_argument("--value", metavar="REGEX", help="a number that COMMAND prints, in one group, instead of its time")
    p.add_argument("--more", action="store_true", help="a greater --value is better")
    args = p.parse_args()
    if args.rounds < 1:
        p.error(f"--rounds {args.rounds}: expected 1 or more")
    ratios = []
    for i in range(args.rounds):
        cost = {}
        for which in "ab" if i % 2 == 0 else "ba":
            cost[which] = measure(args.command, getattr(args, which), args)
        ratios.append(cost["b"] / cost["a"])
    line, worse = verdict(ratios, args.least)
    print(f"{' '.join(args.command)}: B is {line}, {args.rounds} pairs")
    return 4 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
