#!/usr/bin/env python3
"""Static lists by the rules of FR-Spec and of vLLM's builder beside ours, made from the same text
with the same tokenizer, then decoded with by the sample pair, one run.

usage: peers_lists.py BUILD [SIZE...]
Both rules are written here anew from their descriptions. FR-Spec (Zhao et al. 2025): every
document encoded with the tokenizer's special tokens, ids by count, the best SIZE, the terminator
made a member. vLLM's draft token map: 95% of the documents counted without special tokens;
special and added tokens always kept, then the best by count; ascending. Ours:
vocabtrim-calibrate, from the text alone and with the target's own answers to other prompts than
those decoded. Needs PyPI's tokenizers."""
import collections
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import tokenizers

PAIR = pathlib.Path("data/sample")
TOKENIZER = "data/tokenizer.json"
END = "<|eot_id|>"


def documents():
    for path in sorted(pathlib.Path("data/corpus").glob("*/*")):
        if path.suffix in (".txt", ".md"):
            yield from path.read_text(encoding="utf-8", errors="replace").split("\n\n")
        elif path.suffix == ".jsonl":
            for line in path.read_text(encoding="utf-8").splitlines():
                record = json.loads(line)
                yield next((v for v in map(record.get, ("text", "output", "answer", "code")) if isinstance(v, str)), "")


def best(counts, n):
    return [i for i, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:n]]


def frspec(tok, docs, size):
    counts = collections.Counter()
    for doc in docs:
        counts.update(tok.encode(doc, add_special_tokens=True).ids)
    ids, end = best(counts, size), tok.token_to_id(END)
    return ids if end in ids else ids[:-1] + [end]


def vllm(tok, docs, size):
    counts = collections.Counter()
    for doc in docs:
        if hashlib.sha256(doc.encode()).digest()[0] % 20:
            counts.update(tok.encode(doc, add_special_tokens=False).ids)
    kept = {i for i, _ in tok.get_added_tokens_decoder().items()}
    for i in best(counts, len(counts)):
        if len(kept) >= size:
            break
        kept.add(i)
    return sorted(kept)


def run(*command):
    return subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout


def imported(build, ids, folder):
    path = folder / "list.json"
    path.write_text(json.dumps(ids))
    out = folder / "list.specb"
    run(f"{build}/bin/specrt-bundle", "import", path, "--tokenizer", TOKENIZER, "-q", "-f", "-o", out)
    return out


def ours(build, folder, size, answers=None):
    out, text = folder / "ours.specb", folder / "docs.jsonl"
    weights = ["--weights", f"{answers}:100"] if answers else []
    run(f"{build}/bin/vocabtrim-calibrate", "--tokenizer", TOKENIZER, "--corpus", *([answers] if answers else []), text,
        *weights, "--size", size, "-q", "-f", "-o", out)
    return out


def split_prompts(folder):
    """Every fifth prompt is decoded, the target answers the others."""
    files = {"ask": [], "test": []}
    for path in sorted(pathlib.Path("data/prompts").glob("*.jsonl")):
        lines = path.read_text(encoding="utf-8").splitlines()
        for kind in files:
            out = folder / f"{kind}-{path.name}"
            out.write_text("\n".join(l for i, l in enumerate(lines) if (i % 5 == 0) == (kind == "test")) + "\n")
            files[kind].append(out)
    return files


def decode(build, bundle, prompts):
    out = json.loads(run(f"{build}/bin/specrt-eval", "compare", "--target", PAIR / "target.gguf", "--draft",
                         PAIR / "draft.safetensors", "--bundle", bundle, "--policy", "static", "--topk", 1, "--num-steps", 3,
                         "--prompts", *prompts, "--max-tokens", 48, "--threads", 1, "--json"))
    rows = {row["policy"]: row for row in out["rows"] if row["domain"] == "all"}
    return rows["static"], rows["full"]


def main():
    build, *sizes = sys.argv[1:]
    tok = tokenizers.Tokenizer.from_file(TOKENIZER)
    docs = list(documents())
    print(f"{'list':24s} {'made in':>9s} {'rows':>7s} {'covered':>8s} {'accept':>7s}  of full's")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        answers, files = folder / "answers.jsonl", split_prompts(folder)
        with open(folder / "docs.jsonl", "w", encoding="utf-8") as f:
            f.writelines(json.dumps({"text": doc}) + "\n" for doc in docs if doc.strip())
        run(f"{build}/bin/specrt-eval", "generate", "--target", PAIR / "target.gguf", "--prompts", *files["ask"],
            "--max-tokens", 48, "-q", "-o", answers)
        for size in map(int, sizes or (2048, 8192)):
            makers = {
                "FR-Spec's rule": lambda: imported(build, frspec(tok, docs, size), folder),
                "vLLM's rule": lambda: imported(build, vllm(tok, docs, size), folder),
                "ours, same text": lambda: ours(build, folder, size),
                "ours, with answers": lambda: ours(build, folder, size, answers),
            }
            for rule, make in makers.items():
                begin = time.perf_counter()
                bundle = make()
                seconds = time.perf_counter() - begin
                mine, full = decode(build, bundle, files["test"])
                print(f"{rule:24s} {seconds:7.2f} s {mine['shortlist_rows']:7.0f} {100 * mine['coverage']:7.1f}% "
                      f"{mine['accept_length']:7.3f}  {100 * mine['accept_length'] / full['accept_length']:6.1f}%", flush=True)


main()
