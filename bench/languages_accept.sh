#!/usr/bin/env bash
# languages_accept.sh : accept length by language, the worst first (bench/results/languages.md):
# the pair of Qwen answers the questions of bench/languages.jsonl, the same six in six languages,
# drafting with the whole vocabulary; policies are replayed over what was recorded. Lists are
# those of the last run of bench/languages.sh with Qwen's tokenizer. Run from the project's root
# after make and make models NAME=qwen-1.5b (qwen-0.5b, sharegpt).
set -euo pipefail
build=${BUILD:-build} work=${BUILD:-build}/languages
target=$build/models/qwen-1.5b.gguf draft=$build/models/qwen-0.5b.gguf
eval=$build/bin/specrt-eval
record() { # NAME TOKENS ARGUMENT... : unless it is there
    [ -e "$work/$1.trace" ] ||
        "$eval" record --target "$target" --draft "$draft" --topk 1 --num-steps 4 \
            --max-tokens "$2" -o "$work/$1.trace" -q "${@:3}"
}
for i in 0 1 2; do # so that a run that ends goes on
    sed -n "$((12 * i + 1)),$((12 * i + 12))p" bench/languages.jsonl >"$work/questions$i.jsonl"
    record answers$i 48 --prompts "$work/questions$i.jsonl"
done
# States that choose a sketch's directions: of other questions, in English and in the six languages.
english=(data/prompts/{qa,technical,prose,math,medical,code}.jsonl)
record states-english 64 --prompts "${english[@]}" --limit 4
record states-languages 48 --prompts bench/languages_states.jsonl
route() { # NAME LIST STATES CORPUS... : the list's bundle with a graph of the corpus and a sketch
    cp "$work/$2.specb" "$work/$1.specb"
    "$build/bin/cograph-build" --tokenizer "$draft" --corpus "${@:4}" -o "$work/$1.specb" -q -f
    "$build/bin/sketch-build" --model "$draft" --trace "$work/states-$3.trace" \
        -o "$work/$1.specb" -q -f --allow-below
}
sharegpt=$build/models/sharegpt.json
route sketch-english english english "$sharegpt"
route sketch-languages english languages "$sharegpt"
route all-languages balanced languages "$sharegpt" "$work"/text/*.jsonl
replay() { # BUNDLE POLICIES : into BUNDLE.accept.json
    "$eval" replay --trace "$work/answers0.trace" --trace "$work/answers1.trace" \
        --trace "$work/answers2.trace" --model "$draft" --bundle "$work/$1.specb" --policy "$2" \
        --json -q >"$work/$1.accept.json" 2>/dev/null
}
for list in english all half balanced; do replay $list static:32768; done
replay sketch-english full,microspec,window+successor:256,sketch:512,hybrid
replay sketch-languages sketch:256,sketch:512,hybrid
replay all-languages window+successor:256,sketch:512,hybrid
"${PYTHON:-python3}" - "$work" <<'END'
import json
import sys

rows = {} # by policy and language
names = "sketch-english english all half balanced sketch-languages all-languages".split()
for name in names:
    for row in json.load(open(f"{sys.argv[1]}/{name}.accept.json"))["rows"]:
        alone = row["policy"] in ("full", "microspec")
        if row["policy"] != "oracle" and (name == names[0] or not alone):
            policy = f"`{row['policy']}`" + ("" if alone else f", {name}")
            rows.setdefault(policy, {})[row["domain"]] = row


def share(policy, language):
    return rows[policy][language]["accept_length"] / rows["`full`"][language]["accept_length"]


languages = [language for language in rows["`full`"] if language != "all"]
languages.sort(key=lambda language: share("`static:32768`, english", language))
print("| policy | " + " | ".join(["all", *languages, "worst, %"]) + " |")
print("|---" + "|--:" * (len(languages) + 2) + "|")
for policy, row in rows.items():
    lengths = [f"{row[language]['accept_length']:.2f}" for language in ["all", *languages]]
    worst = min(share(policy, language) for language in languages)
    print(f"| {policy} | " + " | ".join(lengths) + f" | {100 * worst:.1f} |")
tokens = [f"{rows['`full`'][language]['n_tokens']:,}" for language in ["all", *languages]]
print("| tokens | " + " | ".join(tokens) + " | |")
END
