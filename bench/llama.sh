#!/usr/bin/env bash
# llama.sh [PAIR...] : plain decoding, llama.cpp's own drafts, `full` and pruned drafts in
# llama.cpp, a table a pair, best of five, every token compared; beside each what `plan` predicted
# from llama.cpp's own trace and costs. On an idle machine, after `make tools llama`.
#
#     sample      the sample pair
#     qwen        Qwen2.5-Coder 1.5B as published (Q4_K_M) with its 0.5B sibling: `make models`
#                 with NAME=qwen-1.5b and NAME=qwen-0.5b
#     qwen-bf16   the same target as BF16, made of that file by llama.cpp
#     smollm2-bf16  SmolLM2-135M-Instruct (NAME=smollm2) as BF16, with its EAGLE-3 head of
#                 data/smollm2-eagle3 cut to 16,384 rows; prompts in the chat template that the head
#                 was trained on
#
# In the environment: BUILD, THREADS (2), ROUNDS (5), PROMPTS (prompt files; else TASKS of
# Spec-Bench, all six by default, where SPECRT_DATA has them), LIMIT (1 of each), TOKENS (64),
# CORPUS (the text of lists and graph: ShareGPT for published models where it is at hand, else
# data/corpus), ASKED (the questions whose states a sketch is made from; data/prompts). What PROMPTS
# hold is neither in CORPUS nor in ASKED.
set -euo pipefail
build=${BUILD:-build} threads=${THREADS:-2} rounds=${ROUNDS:-5} limit=${LIMIT:-1}
tokens=${TOKENS:-64}
asked=${ASKED:-$(echo data/prompts/*.jsonl)} llama=$build/bin/specrt-llama
fail() { echo "bench/llama.sh: $*" >&2; exit 1; }
[ -x "$llama" ] || fail "no $llama; make llama builds it"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ -z "${PROMPTS:-}" ]; then
    data=${SPECRT_DATA:-../shared/data}
    [ -e "$data/prompts/spec_bench/question.jsonl" ] ||
        fail "no $data/prompts/spec_bench/question.jsonl; set SPECRT_DATA or PROMPTS"
    [ -d "$build/prompts" ] || python3 bench/prompts.py "$data" "$build/prompts"
    for task in ${TASKS:-mt_bench translation summarization qa math_reasoning rag}; do
        [ -e "$build/prompts/$task.jsonl" ] || fail "TASKS: no $build/prompts/$task.jsonl"
        PROMPTS="${PROMPTS:-} $build/prompts/$task.jsonl"
    done
fi

# models PAIR : its target and drafter.
models() {
    local at=$build/models
    case $1 in
    sample) target=data/sample/target.gguf draft=data/sample/draft-small.gguf ;;
    qwen | qwen-bf16) target=$at/qwen-1.5b.gguf draft=$at/qwen-0.5b.gguf ;;
    smollm2-bf16) target=$at/smollm2.gguf draft=data/smollm2-eagle3/draft.safetensors ;;
    *) fail "$1: expected sample, qwen, qwen-bf16 or smollm2-bf16" ;;
    esac
    for file in "$target" "$draft"; do
        [ -e "$file" ] || fail "no $file; make models NAME=$(basename "$file" .gguf)"
    done
    [[ $1 = *-bf16 ]] || return 0
    local whole=${target%.gguf}-bf16.gguf
    if [ ! -e "$whole" ]; then # Qwen's has 3 GB; by llama.cpp's own conversion
        "$build/tests/llama_convert" bf16 "$target" "$whole.part" || fail "$target: no BF16 of it"
        mv "$whole.part" "$whole"
    fi
    target=$whole
}

# general_text PAIR : what its lists are counted from.
general_text() {
    local chat=$build/models/sharegpt.json
    if [ -n "${CORPUS:-}" ]; then echo "$CORPUS"
    elif [ "$1" != sample ] && [ -e "$chat" ]; then echo "$chat"
    else echo data/corpus/*/; fi
}

# What plan says of a policy, beside what was measured; then the table's own lines on splits.
table() { # PLAN BENCH
    python3 - "$1" "$2" <<'PY'
import json, sys
plan, bench = (json.load(open(path)) for path in sys.argv[1:])
steps = bench["num_steps"]
said = {c["policy"]: c for c in plan["choices"]}
print(f"{'':50} {'tokens/s':>9} {'x plain':>8} {'x own':>8} {'accept':>7} {'rows':>7} "
      f"{'same':>8}  plan: tokens/s, accept, error")
rows = [row for row in bench["rows"] if row["domain"] == "all"]
plain, own = rows[0], next(row for row in rows if row["policy"] == "llama.cpp's own draft")
for row in rows:
    c = said.get(row["policy"]) or next(
        (c for c in plan["choices"] if c["policy_text"] == row["policy_text"]), None)
    speed, told = row["tokens_per_second"], ""
    if c and (row is plain or c["num_steps"] == steps):
        told = (f"{c['tokens_per_second']:.1f}, {c['accept_length']:.2f}, "
                f"{100 * (c['tokens_per_second'] / speed - 1):+.1f}%")
    elif c:
        told = f"best with {c['num_steps']} steps: {c['tokens_per_second']:.1f}"
    print(f"{row['policy']:50} {speed:9.1f} {speed / plain['tokens_per_second']:8.2f} "
          f"{speed / own['tokens_per_second']:8.2f} {row['accept_length']:7.2f} "
          f"{row['shortlist_rows'] or 0:7.0f} {row['n_same']:3} of {row['n_turns']:<2}  {told}")
for s in bench["splits"]:
    print(f"{s['policy']}, prompt {s['prompt'] + 1}, token {s['token'] + 1}: "
          f"plain decoding had the two {s['plain_margin']:.3g} apart; the target alone, fed the "
          f"same passes, {'says it too' if s['target_repeats'] else 'does NOT say it'}")
PY
}

# build_bundle HEAD SIZE : $work/pair.specb, a list of SIZE ids and the graph; then $draft as
# llama.cpp loads it: an EAGLE-3 head is cut to the list, of another a sketch is made.
build_bundle() {
    local head=$1 size=$2 text=(--tokenizer "$target" --corpus $corpus -q -f -o "$work/pair.specb")
    "$build/bin/vocabtrim-calibrate" "${text[@]}" --size "$size" --holdout 0
    "$build/bin/cograph-build" "${text[@]}" --successor-count 1
    if [[ $head = *.safetensors ]]; then
        draft=$work/draft.gguf
        "$build/bin/specrt-bundle" export "$work/pair.specb" --format gguf --drafter "$head" \
            --target "$target" --size "$size" -q -o "$draft"
        return
    fi
    "$llama" -m "$target" -md "$draft" -t "$threads" --bundle "$work/pair.specb" -q \
        --prompts $asked --limit 8 -n 32 --num-steps 4 \
        --policy full --force --record "$work/asked" >"$work/answers"
    "$build/bin/sketch-build" --model "$draft" --trace "$work/asked" -q -f -o "$work/pair.specb"
}

# plan HEAD POLICIES [OPTION...] : $work/plan.json, from the trace and the costs.
plan() {
    local head=$1 listed=$2
    shift 2
    "$build/bin/specrt-eval" plan --target "$target" --draft "$head" --bundle "$work/pair.specb" \
        --trace "$work/trace" --costs "$work/pair.costs" --policy "$listed" --topk 1 --json "$@" \
        >"$work/plan.json"
}

run_pair() {
    local name=$1 steps corpus head size=512
    local policies=(microspec static:512+window+successor:256 sketch:64)
    models "$name"
    corpus=$(general_text "$name") head=$draft
    if [ "$name" = smollm2-bf16 ]; then
        size=16384 policies=(microspec static:2048+window:1024@min=0 static:8192)
    fi
    build_bundle "$head" "$size"
    local pair=(-m "$target" -md "$draft" -t "$threads" --bundle "$work/pair.specb" -q)
    [ "$head" = "$draft" ] || pair+=(--conversation)
    local listed=full$(printf ',%s' "${policies[@]}")
    "$llama" "${pair[@]}" --prompts $PROMPTS --limit "$limit" -n "$tokens" --num-steps 8 \
        --policy full --force --record "$work/trace" >"$work/answers"
    "$llama" "${pair[@]}" --prompts $PROMPTS --limit "$limit" -n "$tokens" --force \
        --costs "$work/pair.costs"
    plan "$head" "$listed"
    steps=$(python3 -c 'import json, sys
print(max(1, json.load(open(sys.argv[1]))["recommended"]["num_steps"]))' "$work/plan.json")
    plan "$head" "$listed" --num-steps "$steps"
    "$llama" "${pair[@]}" --prompts $PROMPTS --limit "$limit" -n "$tokens" --num-steps "$steps" \
        $(printf -- '--policy %s ' "${policies[@]}") --bench --rounds "$rounds" --json \
        >"$work/bench.json"
    echo "$name: $(basename "$target"), $(basename "$draft"); chain of $steps, as plan says;" \
        "$threads threads, best of $rounds, $tokens tokens"
    table "$work/plan.json" "$work/bench.json"
    echo
}

for name in "${@:-sample}"; do run_pair "$name"; done
