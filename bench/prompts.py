#!/usr/bin/env python3
"""prompts.py DATA OUT : the prompt sets of bench/pair.sh, as JSON Lines under OUT, from the folder
of benchmark data: Spec-Bench, HumanEval, GSM8K, LegalBench, MedQuAD and BFCL. Needs Python's
standard library only. The order is fixed; specrt-eval's --limit spreads over it."""
import csv
import gzip
import io
import json
import pathlib
import re
import sys
import tarfile

MOST = 200  # prompts kept of each archive


def write(path, records):
    with open(path, "w", encoding="utf-8") as f:
        for record in records:
            f.write(json.dumps(record, ensure_ascii=False) + "\n")


def members(path, pattern):
    with tarfile.open(path) as archive:
        names = sorted(n for n in archive.getnames() if re.search(pattern, n))
        for name in names:
            yield name, archive.extractfile(name).read().decode("utf-8", "replace")


def legal(path):
    """Each task's prompt without its worked examples, where it has one, about its first training text."""
    rows = {}
    for name, text in members(path, r"/train\.tsv$"):
        first = next(csv.DictReader(io.StringIO(text), delimiter="\t"), None)
        if first:
            rows[name.split("/")[1]] = first
    prompts = dict(members(path, r"/base_prompt(_wo_example)?\.txt$"))
    for task, row in rows.items():
        stem = f"tasks/{task}/base_prompt"
        text = prompts.get(stem + "_wo_example.txt") or prompts.get(stem + ".txt")
        if not text:
            continue
        for key, value in row.items():
            text = text.replace("{{%s}}" % key, value or "")
        if "{{" not in text:
            yield {"prompt": text.strip(), "domain": "legal"}


def medical(path):
    seen = set()
    for _, text in members(path, r"\.xml$"):
        for question in re.findall(r"<Question[^>]*>([^<]+)</Question>", text)[:1]:
            if question not in seen:
                seen.add(question)
                yield {"prompt": question.strip(), "domain": "medical"}


def spread(records):
    records = list(records)
    n = min(MOST, len(records))
    return [records[i * len(records) // n] for i in range(n)]


def lines(path):
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def main():
    data, out = map(pathlib.Path, sys.argv[1:3])
    out.mkdir(parents=True, exist_ok=True)
    tasks = {}
    for record in lines(data / "prompts/spec_bench/question.jsonl"):
        task = record["category"]
        if task not in ("translation", "summarization", "qa", "math_reasoning", "rag"):
            task = "mt_bench"
        tasks.setdefault(task, []).append({"turns": record["turns"], "domain": task})
    for task, records in tasks.items():
        write(out / f"{task}.jsonl", records)
    write(out / "humaneval.jsonl", [{"prompt": r["prompt"], "domain": "humaneval"}
                                    for r in lines(data / "prompts/humaneval/HumanEval.jsonl.gz")])
    write(out / "gsm8k.jsonl", spread({"prompt": r["question"], "domain": "gsm8k"}
                                      for r in lines(data / "prompts/gsm8k/train.jsonl")))
    write(out / "legal.jsonl", spread(legal(data / "domains/legal/legalbench_tasks.tar.gz")))
    write(out / "medical.jsonl", spread(medical(data / "domains/medical/medquad.tar.gz")))
    calls = lines(data / "domains/function_calling/BFCL_v4_live_multiple.json")
    write(out / "function_calling.jsonl",
          spread({"question": r["question"], "function": r["function"], "domain": "function_calling"}
                 for r in calls))


main()
