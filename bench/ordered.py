#!/usr/bin/env python3
"""Accept length of ordered heads by clusters C, clusters scored K and tokens in every cluster H, by replay.

usage: ordered.py BUILD HEAD BUNDLE STATES WORK TRACES... [SETTING=VALUE...]
BUNDLE has ranks, and what POLICIES need. STATES is a trace that chose clusters; TRACES were recorded under the full
vocabulary, on other text. Each head is built in WORK unless it is there. Settings: HEADS, comma-separated, each
C/K/H/FROM[/N]: FROM is `states` or `rows`, N the tokens with a slot of their own (all that fit); POLICIES to replay
beside them; ITERATIONS of k-means (25)."""
import json
import os
import shutil
import subprocess
import sys


def run(command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def build(tools, head, bundle, states, work, spec, iterations):
    """-> the bundle with these clusters"""
    clusters, _, hot, source, *distinct = spec
    path = f"{work}/{'-'.join([clusters, hot, source, *distinct])}.specb"
    if not os.path.exists(path):
        shutil.copy(bundle, path + ".part")
        run([f"{tools}/cluster-build", "--model", head, "--ordered", "--clusters", clusters, "--schedule", "1",
             "--iterations", iterations, "--threads", "2", *(["--hot", hot] if hot != "0" else []),
             *(["--trace", states] if source == "states" else []),
             *(["--distinct", distinct[0]] if distinct else []), "-q", "-f", "-o", path + ".part"])
        os.rename(path + ".part", path)
    return path


def replay(tools, head, traces, bundle, policies):
    """-> {policy: {task: row}}"""
    said = json.loads(run([f"{tools}/specrt-eval", "replay", *(a for t in traces for a in ("--trace", t)), "--bundle",
                           bundle, "--model", head, "--policy", ",".join(policies), "--json", "-q", "--threads", "1"]))
    rows = {}
    for row in said["rows"]:
        rows.setdefault(row["policy"], {})[row["domain"]] = row
    return rows


def line(names, rows, full, n_read, n_vocab):
    """One line of the table. n_read: rows and centroids that a draft step multiplies; None: other data, too."""
    share = {d: rows[d]["accept_length"] / full[d]["accept_length"] for d in full}
    worst = min((d for d in full if d != "all"), key=share.get)
    low, high = rows["all"]["ci95"]["accept_length"]
    print("| " + " | ".join([*names, f"{rows['all']['accept_length']:.2f}", f"{low:.2f}-{high:.2f}",
                             f"{100 * share['all']:.1f}%", f"{100 * share[worst]:.1f}%", worst,
                             f"{100 * rows['all']['recall']['draft_10']:.1f}%",
                             f"{n_read:,.0f} | 1/{n_vocab / n_read:.0f}" if n_read else "- | -"]) + " |", flush=True)


def main():
    given = [a.split("=", 1) for a in sys.argv[6:] if "=" in a]
    settings = dict(given)
    tools, head, bundle, states, work = sys.argv[1] + "/bin", *sys.argv[2:6]
    traces = [a for a in sys.argv[6:] if "=" not in a]
    os.makedirs(work, exist_ok=True)
    beside = ["full", *filter(None, settings.get("POLICIES", "").split(","))]
    rows = replay(tools, head, traces, bundle, beside)
    full = rows["full"]
    n_vocab = full["all"]["shortlist_rows"]
    print(f"{full['all']['n_sequences']} sequences, {full['all']['n_tokens']} tokens\n")
    print("| head or policy | accept length | 95% | of full | worst task | | the drafter's best ten | rows read | of the "
          "head |\n|---|--:|--:|--:|--:|---|--:|--:|--:|")
    for policy in beside:
        plain = policy.split(":")[0] in ("full", "static") and "+" not in policy
        line([f"`{policy}`"], rows[policy], full, rows[policy]["all"]["shortlist_rows"] if plain else None, n_vocab)
    print("\n| C | K | H | clusters by | accept length | 95% | of full | worst task | | the drafter's best ten | rows read "
          "| of the head |\n|--:|--:|--:|---|--:|--:|--:|--:|---|--:|--:|--:|")
    for text in settings["HEADS"].split(","):
        spec = text.split("/")
        path = build(tools, head, bundle, states, work, spec, settings.get("ITERATIONS", "25"))
        policy = f"centroid:{spec[1]}@always=0"
        found = replay(tools, head, traces, path, [policy])[policy]
        names = [spec[0], spec[1], spec[2], spec[3] + (f", {int(spec[4]):,} tokens" if len(spec) > 4 else "")]
        line(names, found, full, int(spec[1]) * n_vocab / int(spec[0]) + int(spec[0]), n_vocab)


if __name__ == "__main__":
    main()
