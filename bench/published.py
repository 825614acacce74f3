#!/usr/bin/env python3
"""Policies on a pair of published models: recorded once under the full vocabulary, then replayed.

usage: published.py BUILD NAME TARGET DRAFT BUNDLE HEAD PROMPTS... SETTING=VALUE...
BUNDLE holds what policies need, HEAD (a model) the rows that they score; PROMPTS are JSON Lines, a
task each. Recordings stay in BUILD/published/NAME-*.trace: those that are there are not made again.
Settings: LIMIT prompts of a task (8; 0: no tables of greedy answers), TOKENS of an answer (64), THREADS (1),
TEMPERATURES beside 0 ("0.7 1.0"), of WARM prompts a task (3); RUNS prompts a task (0) whose answers of 32 tokens
are decoded under policies too, each token compared with plain decoding's, beside what replay says. What accept
lengths rest on and how good estimates ("~") are: docs/methods/replay.md."""
import json
import os
import re
import subprocess
import sys

LISTS = ["static:2048", "static:8192", "static:16384", "static:32768", "static:2048+retrieve",
         "static:8192+retrieve", "static:32768+retrieve", "static:2048+retrieve@prompt=best",
         "window:3072", "microspec-paper", "microspec", "static:512+window+successor:256",
         "static:2048+retrieve+successor:256"]
CENTROIDS = ["centroid", "centroid+retrieve@graph=off"]
SKETCHES = ["sketch:64", "sketch:128", "static:2048+sketch:128"]
WARM = ["static:2048", "static:32768", "static:2048+retrieve", "microspec",
        "static:512+window+successor:256", "sketch:128"]
RUN = ["microspec", "static:512+window+successor:256", "sketch:128"]
SINCE = ["0-32", "32-64", "64-128"]


SETTINGS = dict(a.split("=", 1) for a in sys.argv[7:] if re.match("[A-Z]+=", a))


def prompts_named():
    return [a for a in sys.argv[7:] if not re.match("[A-Z]+=", a)]


def number(name, default):
    return SETTINGS.get(name, default)


class Pair:
    def __init__(self, build, name, target, draft, bundle, head, prompts):
        self.tool, self.prompts = f"{build}/bin/specrt-eval", prompts
        self.bundle, self.head = bundle, head
        self.folder, self.name = f"{build}/published", name
        self.models = ["--target", target, "--draft", draft]
        self.common = ["--topk", "1", "--num-steps", "4",
                       "--threads", number("THREADS", "1")]
        info = json.loads(self.run([f"{build}/bin/specrt-bundle", "info", bundle, "--json"]))
        self.sections = {s["tag"] for s in info["sections"]}
        os.makedirs(self.folder, exist_ok=True)

    def run(self, command):
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout

    def policies(self):
        has = lambda *names: any(n in self.sections for n in names)
        return (["full", "full@head=q4_0", *LISTS, "evospec"] + ["evospec-paper"] * has("hnsw")
                + ["dynaspec", "dynaspec-paper"] * has("cluster") + ["coral", "coral-paper"] * has("group")
                + CENTROIDS * has("centroid") + SKETCHES * has("sketch"))

    def record(self, temperature, limit, tokens=None, kind=None):
        """Traces of all tasks -> their paths."""
        paths = []
        for prompts in self.prompts:
            task = os.path.basename(prompts).removesuffix(".jsonl")
            paths.append(f"{self.folder}/{self.name}-{task}-{kind or temperature}.trace")
            if os.path.exists(paths[-1]):
                continue
            print(f"recording {paths[-1]}", file=sys.stderr)
            self.run([self.tool, "record", *self.models, *self.common, "--policy", "full",
                      "--prompts", prompts, "--limit", limit, "--max-tokens", tokens or number("TOKENS", "64"),
                      "--temperature", temperature, "-q", "-o", paths[-1]])
        return paths

    def replay(self, paths, policies, *options):
        """-> {(policy, domain): row}, under the recorded tree."""
        traces = [a for path in paths for a in ("--trace", path)]
        said = json.loads(self.run([self.tool, "replay", *traces, "--bundle", self.bundle,
                                    "--model", self.head, "--embedding", self.models[1],
                                    "--policy", ",".join(policies), "--json", "-q", *options]))
        return {(r["policy"], r["domain"]): r for r in said["rows"]}

    def compare(self, policies, limit, tokens):
        """-> rows of what decoding under each policy accepted, the whole vocabulary's first. Give
        tasks of one turn: recordings hold first turns alone."""
        said = json.loads(self.run([self.tool, "compare", *self.models, *self.common, "--bundle",
                                    self.bundle, "--policy", ",".join(policies), "--prompts",
                                    *self.prompts, "--limit", limit, "--max-tokens", tokens,
                                    "--json", "-q"]))
        return [r for r in said["rows"] if r["domain"] == "all" and r["policy"] != "plain"]

    def choosing(self, policies):
        """Of each policy: bytes that a pass reads beside the rows scored; the bytes of a row."""
        said = json.loads(self.run([self.tool, "compare", *self.models, *self.common,
                                    "--bundle", self.bundle, "--policy", ",".join(policies[1:]),
                                    "--prompt", "Why?", "--max-tokens", "6", "--json", "-q"]))
        read = {r["policy"]: r for r in said["rows"] if r["domain"] == "all"}
        row = read["full"]["bytes_pass"] / read["full"]["shortlist_rows"]
        beside = {p: read[p]["bytes_pass"] - row * read[p]["shortlist_rows"] for p in policies}
        # a copy of the whole head in fewer bits reads less than its rows as stored
        return {p: x if "@head=" in p else max(0, x) for p, x in beside.items()}, row


def accept(row):
    return f"{'~' if row['estimated'] else ''}{row['accept_length']:.2f}"


def table(names, rows):
    print("| " + " | ".join(names) + " |")
    print("|---|" + "--:|" * (len(names) - 1))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def whole(pair, policies, rows, read):
    bytes_beside, bytes_row = read
    full = rows["full", "all"]["accept_length"]
    def line(p):
        r = rows[p, "all"]
        low, high = r["ci95"]["accept_length"]
        megabytes = (bytes_beside[p] + bytes_row * r["shortlist_rows"]) / 1e6
        return (f"`{p}`", accept(r), f"{low:.2f}-{high:.2f}", f"{100 * r['accept_length'] / full:.1f}%",
                f"{100 * r['coverage']:.1f}%", f"{r['shortlist_rows']:,.0f}", f"{megabytes:.2f}")
    table(["policy", "accept length", "95%", "of full", "covered", "rows", "MB a pass"], map(line, policies))


def by_task(policies, rows):
    tasks = [d for p, d in rows if p == "full" and d != "all"] or ["all"]
    full = rows["full", "all"]
    print(f"{full['n_sequences']} sequences, {full['n_tokens']} tokens. Accept length by task:\n")
    table(["policy", *tasks], [(f"`{p}`", *(accept(rows[p, t]) for t in tasks)) for p in policies])


def since(policies, rows):
    print("Accept length by tokens since the task changed, sessions going on from prompt to prompt:\n")
    def line(p):
        spans = [rows[p, "all"]["accept_length_since"][s] for s in SINCE]
        return (f"`{p}`", *("-" if x is None else f"{x:.2f}" for x in spans))
    table(["policy", *SINCE], map(line, policies))


def equal_bytes(pair, policies, rows, read, paths):
    """A fixed list of as many bytes a pass as each policy that pays for its choice."""
    bytes_beside, bytes_row = read
    chosen = [p for p in policies if not p.startswith("static:") or "+" in p][1:]
    size = {p: int(bytes_beside[p] / bytes_row + rows[p, "all"]["shortlist_rows"]) for p in chosen}
    lists = pair.replay(paths, sorted({f"static:{n}" for n in size.values()}))
    print("Beside a fixed list that reads as many bytes a pass:\n")
    def line(p):
        fixed = f"static:{size[p]}"
        return f"`{p}`", accept(rows[p, "all"]), f"`{fixed}`", accept(lists[fixed, "all"])
    table(["policy", "accept length", "list of as many bytes", "accept length"], map(line, chosen))


def warm(pair, temperature, policies):
    """Accept length and share of the full vocabulary's at one temperature."""
    rows = pair.replay(pair.record(temperature, number("WARM", "3")), ["full", *policies])
    full = rows["full", "all"]
    print(f"Temperature {temperature}: {full['n_sequences']} sequences, {full['n_tokens']} tokens.\n")
    def line(p):
        r = rows[p, "all"]
        return f"`{p}`", accept(r), f"{100 * r['accept_length'] / full['accept_length']:.1f}%"
    table(["policy", "accept length", "of full"], map(line, ["full", *policies]))


def runs(pair, policies):
    """What decoding accepted beside what one recording of the whole vocabulary foretells."""
    limit, tokens = number("RUNS", "0"), "32"
    found = pair.compare(policies, limit, tokens)
    told = pair.replay(pair.record("0", limit, tokens, "runs"), ["full", *policies])
    print(f"Decoded, {limit} prompts a task of {tokens} tokens; {found[0]['n_tokens']} tokens under "
          "each policy, all equal to plain decoding's:\n")
    def line(r):
        run, estimate = r["accept_length"], told[r["policy"], "all"]["accept_length"]
        low, high = r["ci95"]["accept_length"]
        return (f"`{r['policy']}`", f"{run:.3f}", f"{low:.2f}-{high:.2f}", f"{estimate:.3f}",
                f"{100 * (estimate / run - 1):+.1f}%")
    table(["policy", "run", "95%", "replay", "off by"], map(line, found))


def greedy(pair):
    paths, policies = pair.record("0", number("LIMIT", "8")), pair.policies()
    rows, read = pair.replay(paths, policies), pair.choosing(policies)
    whole(pair, policies, rows, read)
    by_task(policies, rows)
    equal_bytes(pair, policies, rows, read, paths)
    since(policies, pair.replay(paths, policies, "--stream"))


def main():
    pair = Pair(*sys.argv[1:7], prompts_named())
    policies = pair.policies()
    if number("LIMIT", "8") != "0":
        greedy(pair)
    if number("RUNS", "0") != "0":
        runs(pair, [p for p in RUN if p in policies])
    for temperature in number("TEMPERATURES", "0.7 1.0").split():
        warm(pair, temperature, [p for p in WARM if p in policies])


if __name__ == "__main__":
    main()
