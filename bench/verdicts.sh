#!/usr/bin/env bash
# verdicts.sh CELL... : do `plan`, `compare` and `auto` say the same of one pair on one machine? A
# row each: what `plan` says before anything was decoded, what `compare` finds by the clock on the
# same prompts, and what `auto` made of whole requests. A cell is PAIR:ENGINE:THREADS[:busy]: a pair
# of llama_pair.sh, the engine (specrt, llama), and, if busy, as many other programs as processors.
#
# In the environment: what llama_pair.sh reads, LIMIT (1 prompt of each task), TOKENS (48).
. "$(dirname "$0")/llama_pair.sh"
limit=${LIMIT:-1} tokens=${TOKENS:-48}

# row CELL : of $work/plan.json and $work/compare.json.
row() {
    python3 - "$1" "$work/plan.json" "$work/compare.json" <<'PY'
import json, sys
cell, plan, found = sys.argv[1], *(json.load(open(path)) for path in sys.argv[2:])
auto = next(r for r in found["rows"] if r["policy"] == "auto" and r["domain"] == "all")
busy = lambda o: "too busy to tell" if "too busy" in " ".join(o["advice"]) else "no verdict"
told, seen = (o["outcome"] or busy(o) for o in (plan, found))
name = lambda o: f" `{o}`" if o else ""
way = plan["recommended_policy"]
low, high = auto["ci95"]["speedup_request"]
against = {told, seen} == {"faster", "slower"}
print(f"| {cell} | {told}{name(way and way['policy'])} | {seen}{name(found['recommended_policy'])}"
      f" | {auto['speedup_request']:.2f} ({low:.2f}-{high:.2f}), {auto['accept_length']:.2f}"
      f" | {'**no**' if against else 'yes'} |")
PY
}

# ask VERB : $work/VERB.json, of the cell's pair.
ask() {
    local verb=$1
    shift
    "$build/bin/specrt-eval" "$verb" --engine "$engine" --target "$target" --draft "$draft" \
        --bundle "$work/pair.specb" --threads "$n" --policy "$fixed" --prompts $PROMPTS \
        --limit "$limit" --max-tokens "$tokens" --json -q "$@" >"$work/$verb.json"
}

run_cell() {
    local pair engine n busy fixed=hybrid others=()
    IFS=: read -r pair engine n busy <<<"$1"
    build_pair "$pair"
    [[ $pair != smollm2* ]] || fixed=static:512+window+successor:256
    if [ "$busy" = busy ]; then
        for _ in $(seq "$(nproc)"); do yes >/dev/null & others+=($!); done
    fi
    ask plan --topk 1 || echo "$1: plan ended with code $?" >&2
    fixed=$fixed,auto ask compare || echo "$1: compare ended with code $?" >&2
    [ ${#others[@]} = 0 ] || kill "${others[@]}"
    row "$1" || echo "$1: no row" >&2
}

echo "| pair:engine:threads | \`plan\` | \`compare\` | \`auto\`, whole requests and accept length" \
    "| no contradiction |"
echo "|---|---|---|--:|---|"
for cell in "${@:-sample:specrt:2}"; do run_cell "$cell"; done
