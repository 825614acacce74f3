#!/usr/bin/env python3
"""What `auto` would gain if it chose windows' sizes and trees, and how slow it is at worst.

usage: auto_bound.py BUILD COSTS TRACE...
COSTS is a file of curves; bench/auto.sh makes it (BOUND=1). A way is `auto` over one window, kept full,
in drafts of one class of trees, and learns as ever; each is replayed over all TRACEs. Chosen afterwards
for each prompt, the best of them is a bound of what a choice between them could gain (that it might
change within a prompt is not in it); "others" is the way that was best on the other prompts of a
task, which takes the luck out of that choice. Gains are of time, over the default's and over the one
way that is best on all prompts. In the environment: BUNDLE; WINDOWS ("128 256 512 1024 2048 3072");
TREES beside chains, num_steps/topk/num_draft_tokens each (""); GUARD=1: no bound, and `auto`'s speed
by task instead, beside its slowest prompts."""
import collections
import json
import os
import subprocess
import sys

DEFAULT = ("microspec", "chain")


def replay(build, costs, traces, policy, tree):
    command = [f"{build}/bin/specrt-eval", "replay", "--costs", costs, "--json", "-q", "--policy",
               f"auto+{policy}" if policy else "auto"]
    command += [a for t in traces for a in ("--trace", t)]
    command += ["--bundle", os.environ["BUNDLE"]] if os.environ.get("BUNDLE") else []
    command += ["--tree", tree] if tree != "chain" else []
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [s for s in json.loads(said)["auto_sequences"] if s["n_tokens"] > 0]


def window(size):
    return f"window:{size}@kpre=8@kver=8@positions=tree@min={size}"



def best_of(ways, places):
    """The way that costs least over these prompts."""
    return min(ways, key=lambda w: sum(ways[w][i] for i in places))


def print_bound(title, ways, default, domains, n_tokens):
    """Of ways {(policy, tree): [cost of a prompt]}."""
    every = range(len(domains))
    tasks = collections.defaultdict(list)
    for i in every:
        tasks[domains[i]].append(i)
    base, one = sum(default), best_of(ways, every)
    chosen = {
        "default": base,
        "one way": sum(ways[one]),
        "by task": sum(sum(ways[best_of(ways, p)][i] for i in p) for p in tasks.values()),
        "others": sum(ways[best_of(ways, [j for j in tasks[domains[i]] if j != i] or every)][i]
                      for i in every),
        "by prompt": sum(min(w[i] for w in ways.values()) for i in every),
    }
    print(f"{title}: {len(ways)} ways; the best on all prompts is {one[0].split('@')[0]}, {one[1]}")
    for name, cost in chosen.items():
        print(f"  {name:<10} x plain {sum(n_tokens) / cost:6.3f}   over the default "
              f"{100 * (base / cost - 1):+6.2f}%   over one way {100 * (chosen['one way'] / cost - 1):+6.2f}%")


def bound(build, costs, traces):
    sizes = os.environ.get("WINDOWS", "128 256 512 1024 2048 3072").split()
    trees = os.environ.get("TREES", "").split()
    ways, default = {}, replay(build, costs, traces, *DEFAULT)
    for tree in ["chain", *trees]:
        for size in sizes:
            rows = replay(build, costs, traces, window(size), tree)
            ways[f"window:{size}", tree] = [s["auto"] for s in rows]
    domains, n_tokens = [s["domain"] for s in default], [s["n_tokens"] for s in default]
    default = [s["auto"] for s in default]
    largest = f"window:{sizes[-1]}"
    print(f"{len(default)} prompts, {sum(n_tokens)} tokens")
    print_bound("sizes", {w: c for w, c in ways.items() if w[1] == "chain"}, default, domains, n_tokens)
    if trees:
        print_bound("trees", {w: c for w, c in ways.items() if w[0] == largest}, default, domains, n_tokens)
        print_bound("both", ways, default, domains, n_tokens)
        print("  " + "  ".join(f"{t} {sum(n_tokens) / sum(ways[largest, t]):.3f}" for t in ["chain", *trees])
              + f"  (x plain, {largest})")
    print("  " + "  ".join(f"{s} {sum(n_tokens) / sum(ways[f'window:{s}', 'chain']):.3f}" for s in sizes)
          + "  (x plain, chains)")


def guard(build, costs, traces):
    rows = replay(build, costs, traces, None, "chain")
    tasks = collections.defaultdict(list)
    for s in rows:
        tasks[s["domain"]].append(s)
    speed = lambda group: sum(s["n_tokens"] for s in group) / sum(s["auto"] for s in group)
    least = min(tasks, key=lambda t: speed(tasks[t]))
    prompts = sorted(rows, key=lambda s: s["n_tokens"] / s["auto"])
    print(f"  all {speed(rows):.3f}   least by task {speed(tasks[least]):.3f} ({least}, "
          f"{sum(s['n_tokens'] for s in tasks[least])} tokens)   of {len(rows)} prompts "
          f"{sum(s['n_tokens'] < 0.98 * s['auto'] for s in rows)} below 0.98, the slowest "
          f"{speed(prompts[:1]):.3f} ({prompts[0]['n_tokens']} tokens)")
    print("  " + "  ".join(f"{t} {speed(tasks[t]):.3f}" for t in sorted(tasks)))


def main():
    (guard if os.environ.get("GUARD") else bound)(*sys.argv[1:3], sys.argv[3:])


main()
