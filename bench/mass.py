#!/usr/bin/env python3
"""How much of other answers a draft vocabulary covers, by the size of the text it was made of.

usage: mass.py BUILD DATA
A fourth of a model's answers is the test; lists are calibrated on 2,000, 20,000 and 200,000 tokens
of the others, drawn several times. "own share" takes the fewest ids that cover 98% of the very text
that was ranked, which is what --mass did; the others are vocabtrim-calibrate as it is."""
import json, os, random, subprocess, sys, tempfile

MODELS = [("llama3/Meta-Llama-3-8B-Instruct", "llama3/tokenizer.model"),
          ("qwen/Qwen2-72B-Instruct", "qwen/qwen.tiktoken")]
RULES = [("own share of 98%", None), ("--mass 0.98", ["--mass", "0.98"]),
         ("--mass 0.98 --holdout 0", ["--mass", "0.98", "--holdout", "0"]),
         ("--mass 0.95", ["--mass", "0.95"]), ("--mass 0.9", ["--mass", "0.9"]),
         ("--size 32768", ["--size", "32768"]), ("--size 8192", ["--size", "8192"])]
BYTES_A_TOKEN = 4.6


def write(path, answers):
    with open(path, "w", encoding="utf-8", errors="surrogatepass") as f:
        f.writelines(json.dumps({"text": a}) + "\n" for a in answers)
    return path


def share(ids, of):
    return sum(n for id, (n, _) in of.items() if id in ids) / sum(n for n, _ in of.values())


class Calibration:
    def __init__(self, build, tokenizer, folder):
        self.tool = [f"{build}/bin/vocabtrim-calibrate", "--tokenizer", tokenizer]
        self.folder = folder

    def run(self, corpus, *options):
        done = subprocess.run([*self.tool, "--corpus", corpus, "-f", *options], check=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return json.loads(done.stdout) if "--json" in options else None

    def counts(self, corpus, holdout):
        """Of each id, how often in the part that is ranked and in the one held out."""
        path = f"{self.folder}/counts"
        self.run(corpus, "--holdout", holdout, "--counts-out", path)
        with open(path, encoding="utf-8") as f:
            rows = [line.split("\t") for line in f if not line.startswith("#")]
        return {int(id): (int(n), int(held_out)) for id, n, held_out in rows}

    def own_share(self, corpus, least):
        """The frequent ids of the part that is ranked, until they cover so much of it."""
        rows, covered, ids = self.counts(corpus, "0.05"), 0, []
        n = [sum(row[s] for row in rows.values()) for s in (0, 1)]
        for id in sorted(rows, key=lambda id: (-rows[id][0], id)):
            if covered >= least * n[0]:
                break
            covered += rows[id][0]
            ids.append(id)
        held_out = sum(rows[id][1] for id in ids) / n[1] if n[1] else None
        return set(ids), {"n_tokens": sum(n), "n_selected": len(ids),
                          "coverage_calibration": covered / n[0], "coverage_holdout": held_out}

    def choose(self, corpus, rule):
        if rule is None:
            return self.own_share(corpus, 0.98)
        path = f"{self.folder}/list"
        found = self.run(corpus, *rule, "--json", "--export", f"text={path}")
        with open(path) as f:
            return {int(line) for line in f if not line.startswith("#")}, found


def draw(answers, n_tokens, seed):
    """Answers at random, until they hold about so many tokens."""
    answers, taken, n_bytes = answers[:], [], 0
    random.Random(seed).shuffle(answers)
    for answer in answers:
        if n_bytes >= BYTES_A_TOKEN * n_tokens:
            break
        taken.append(answer)
        n_bytes += len(answer.encode("utf-8", "surrogatepass"))
    return taken


def spread(values, form):
    return form(sum(values) / len(values)) + f" ({form(min(values))}-{form(max(values))})"


def table(tool, answers):
    test = tool.counts(write(f"{tool.folder}/test.jsonl", answers[3::4]), "0")
    rest = [a for i, a in enumerate(answers) if i % 4 != 3]
    percent = lambda x: f"{100 * x:.1f}"
    thousands = lambda x: f"{x:,.0f}"
    for n_tokens, n_draws in ((2000, 6), (20000, 6), (200000, 3)):
        corpora = [write(f"{tool.folder}/{seed}.jsonl", draw(rest, n_tokens, seed))
                   for seed in range(n_draws)]
        for name, rule in RULES:
            lists = [tool.choose(corpus, rule) for corpus in corpora]
            found = [f for _, f in lists]
            held_out = [f["coverage_holdout"] for f in found if f["coverage_holdout"] is not None]
            print("|", " | ".join((
                thousands(sum(f["n_tokens"] for f in found) / n_draws),
                f"`{name}`" if rule else name,
                spread([f["n_selected"] for f in found], thousands),
                spread([f["coverage_calibration"] for f in found], percent),
                spread(held_out, percent) if held_out else "-",
                spread([share(ids, test) for ids, _ in lists], percent))), "|", flush=True)


def main():
    build, data = sys.argv[1:3]
    for model, tokenizer in MODELS:
        with open(f"{data}/generations/{model}.json", encoding="utf-8") as f:
            answers = [r["output"] for r in json.load(f) if r.get("output")]
        print(f"\n== {os.path.basename(model)}: {len(answers)} answers, a fourth of them the test\n")
        print("| tokens | rule | ids | calibration, % | hold-out, % | other answers, % |")
        print("|--:|---|--:|--:|--:|--:|")
        with tempfile.TemporaryDirectory() as folder:
            table(Calibration(build, f"{data}/tokenizers/{tokenizer}", folder), answers)


main()
