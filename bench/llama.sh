#!/usr/bin/env bash
# llama.sh [PAIR...] : plain decoding, llama.cpp's own drafts, `full` and pruned drafts in
# llama.cpp, a table a pair, best of five, every token compared; beside each what `plan` predicted
# from llama.cpp's own trace and costs. On an idle machine, after `make tools llama`. Pairs are
# those of llama_pair.sh.
#
# In the environment: what llama_pair.sh reads, ROUNDS (5), LIMIT (1 prompt of each file), TOKENS
# (64).
. "$(dirname "$0")/llama_pair.sh"
rounds=${ROUNDS:-5} limit=${LIMIT:-1} tokens=${TOKENS:-64}

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

# plan HEAD POLICIES [OPTION...] : $work/plan.json, from the trace and the costs.
plan() {
    local head=$1 listed=$2
    shift 2
    "$build/bin/specrt-eval" plan --target "$target" --draft "$head" --bundle "$work/pair.specb" \
        --trace "$work/trace" --costs "$work/pair.costs" --policy "$listed" --topk 1 --json "$@" \
        >"$work/plan.json"
}

run_pair() {
    local name=$1 steps
    local policies=(microspec static:512+window+successor:256 sketch:64)
    build_pair "$name"
    [ "$name" != smollm2-bf16 ] || policies=(microspec static:2048+window:1024@min=0 static:8192)
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
