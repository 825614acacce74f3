#!/usr/bin/env python3
"""Prompts that chose nothing in this project: no list, router, sketch or default was made or picked by them.

usage: held_out.py MODELCO OUT
MODELCO is the source package modelco 1.1.2 from PyPI, unpacked. Writes OUT/NAME.jsonl of eight prompts each, spread
over the test half: WildChat (users' questions), PubMedQA (biomedical abstracts), MBPP (short coding tasks), BBH
(reasoning puzzles), human_interest and infinite_chat (open questions). Prompts over 3,000 characters are left out."""
import json
import os
import sys

SETS = {"wildchat": "wildchat", "pubmedqa": "pubmedqa", "mbpp": "mbpp", "bbh": "bbh",
        "human_interest": "human_interest", "infinite_chat": "infinite_chat_open"}
EACH, LONGEST = 8, 3000


def main():
    folder, out = sys.argv[1:]
    os.makedirs(out, exist_ok=True)
    for name, file in SETS.items():
        with open(f"{folder}/model_collaboration/data/{file}.json") as f:
            prompts = [r["input"].strip() for r in json.load(f)["test"]]
        fitting = [p for p in prompts if 0 < len(p) <= LONGEST]
        chosen = [fitting[i * len(fitting) // EACH] for i in range(EACH)]
        with open(f"{out}/{name}.jsonl", "w") as f:
            for prompt in chosen:
                f.write(json.dumps({"prompt": prompt, "domain": name}) + "\n")


if __name__ == "__main__":
    main()
