#!/usr/bin/env python3
"""Trains the sample's EAGLE-2 head further with and without CORAL's CSRA, on the same text in the same
order, and compares both by accept length and acceptance at each position.

usage: bench/csra.py [TOKENS [LIMIT [MAX_TOKENS]]]

TOKENS (7e5) of data/corpus train each head; LIMIT (8) prompts of each file of data/prompts are
answered with at most MAX_TOKENS (48) at temperatures 0 and 1. Needs what data/README.md lists for
retraining the pair, in the Python that runs this script, and build/bin/specrt-eval. Works in
build/csra; heads that are there already are only compared. Both heads train at once, with one thread
each, so that the same versions give the same weights anywhere."""
import gzip
import json
import pathlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from align import intervals

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORK, WEIGHTS, LEVELS = ROOT / "build" / "csra", ("0", "0.1"), 6
PASSAGE = 4000  # characters


def read(path):
    """-> the file's documents: rows of JSON, or passages of plain text."""
    if path.suffix == ".zst":
        text = subprocess.check_output(["zstd", "-dcq", path]).decode()
    else:
        text = (gzip.open(path) if path.suffix == ".gz" else open(path, "rb")).read().decode()
    if ".jsonl" in path.name:
        return [json.loads(line) for line in text.splitlines()]
    if path.suffix == ".json":
        return json.loads(text)
    return [{"text": text[i:i + PASSAGE]} for i in range(0, len(text), PASSAGE)]


def shaped(row):
    """As data/collect_text.py writes it: text, or messages."""
    if "conversations" in row:
        roles = {"human": "user", "gpt": "assistant"}
        return {"messages": [{"role": roles[m["from"]], "content": m["value"]}
                             for m in row["conversations"]]}
    if "instruction" in row:
        return {"messages": [{"role": "user", "content": row["instruction"]},
                             {"role": "assistant", "content": row["output"]}]}
    return {k: row[k] for k in ("text", "messages") if k in row}


def write_text():
    for folder in sorted((ROOT / "data" / "corpus").iterdir()):
        if folder.is_dir():
            (WORK / "text" / folder.name).mkdir(parents=True, exist_ok=True)
            rows = [shaped(row) for path in sorted(folder.iterdir()) for row in read(path)]
            with open(WORK / "text" / folder.name / "corpus.jsonl", "w") as out:
                out.writelines(json.dumps(row) + "\n" for row in rows)


def script(name, *arguments):
    subprocess.run([sys.executable, ROOT / "data" / name, *arguments], check=True)


def train(weight, tokens):
    """-> the folder of the head, with the loss times that weight."""
    work = WORK / weight
    if not (work / "head").exists():
        work.mkdir(exist_ok=True)
        for ids in WORK.glob("*.npy"):
            (work / ids.name).unlink(missing_ok=True)
            (work / ids.name).symlink_to(ids)
        script("train_sample.py", "draft", "--work", work, "--tokens", tokens, "--steps", "3",
               "--init", ROOT / "data" / "sample" / "draft.safetensors", "--rate", ".5",
               "--csra", weight, "--threads", "1", "--f32")
        script("export_sample.py", "--work", work, "-o", work / "head")
    return work / "head"


def figures(head, temperature, limit, max_tokens):
    data, prompts = ROOT / "data", []
    for path in sorted((data / "prompts").glob("*.jsonl")):
        prompts += ["--prompts", path]
    out = subprocess.check_output(
        [ROOT / "build" / "bin" / "specrt-eval", "compare", "--target",
         data / "sample" / "target.gguf", "--draft", head / "draft.safetensors", "--policy", "full",
         "--topk", "1", "--num-steps", str(LEVELS), "--temperature", temperature, "--limit", limit,
         "--max-tokens", max_tokens, "--stream", "--json", *prompts])
    run = json.loads(out)
    row = next(r for r in run["rows"] if r["policy"] == "full" and r["domain"] == "all")
    return row, [r for r in run["requests"] if r["policy"] == "full"]


def main():
    tokens, limit, max_tokens = (sys.argv[1:] + ["7e5", "8", "48"][len(sys.argv) - 1:])[:3]
    write_text()
    script("train_sample.py", "tokens", "--text", WORK / "text", "--work", WORK)
    with ThreadPoolExecutor() as both:
        heads = list(both.map(train, WEIGHTS, [tokens] * len(WEIGHTS)))
    print(f"{float(tokens) / 1e6:g}M tokens; chains of {LEVELS}; {limit} prompts a file, answers "
          f"of at most {max_tokens} tokens\n")
    print(f"{'CSRA':5} {'temperature':>11} {'accept length':>13} {'95%':>11}  accepted at position "
          f"1 to {LEVELS}")
    for temperature in ("0", "1"):
        runs = [figures(head, temperature, limit, max_tokens) for head in heads]
        for weight, (row, _) in zip(WEIGHTS, runs):
            low, high = row["ci95"]["accept_length"]
            print(f"{weight:5} {temperature:>11} {row['accept_length']:13.3f} {low:5.2f}-{high:<5.2f} ",
                  *(f"{a:.3f}" for a in row["acceptance"]), flush=True)
        (without, base), (row, aligned) = runs
        low, high = intervals(aligned, base)
        print(f"      with / without: {row['accept_length'] / without['accept_length']:.3f} x "
              f"({low:.3f}-{high:.3f}, over prompts in pairs)")


if __name__ == "__main__":
    sys.exit(main())
