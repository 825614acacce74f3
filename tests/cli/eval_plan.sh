# A plan: costs, a policy with its tree, the verdicts; checked by decoding.
. "$CLI_TESTS/lib.bash"
target=$CLI_TESTS/../../data/sample/target.gguf
draft=$CLI_TESTS/../../data/sample/draft.safetensors
seconds=1 # of measuring: long enough to time sizes again, once
plan() {
    specrt-eval plan --target "$target" --draft "$draft" --max-tokens 8 --measure $seconds \
        --prompts "$CLI_TESTS/../../data/prompts/code.jsonl" --limit 2 "$@"
}

accepts plan --policy microspec --num-steps 3 --num-draft-tokens 8 --check 2 --costs-out here.json
prints "head, ms for 1 row*32768: *target, ms by nodes  1: *60: *held back*error
*microspec * s, 2 prompts*
*over whole requests (prompt *, answer * tokens)*
With here.json auto drafts from *"
grep -qE '"policy":"(full|window:3072@.*)"' here.json || fail "no policy: $(cat here.json)"

seconds=0.1
accepts plan --json --topk 4 --num-steps 2 --policy window:64@min=16
for key in costs head draft target error_median recommended policy num_steps topk num_draft_tokens \
    tokens_per_second ci95 speedup_plain outcome pruning_outcome advice choices accept_length; do
    prints "*\"$key\":*"
done
prints '{*"policy":"window:64@min=16",*"num_steps":2,"topk":4,*}'

# From a recording, without decoding; then the same checked.
specrt-eval record --target "$target" --draft "$draft" --num-steps 3 --topk 1 --max-tokens 8 \
    -q -o run.trace --prompts "$CLI_TESTS/../../data/prompts/code.jsonl" --limit 2 || fail "record"
accepts specrt-eval plan --target "$target" --draft "$draft" --trace run.trace --num-steps 3 \
    --topk 1 --measure 0.1
for policy in microspec full; do # which is faster is the machine's affair
    prints "*
$policy *replayed; *over answers of *Beside drafts from all rows *"
done
accepts specrt-eval plan --target "$target" --draft "$draft" --trace run.trace --costs here.json \
    --num-steps 3 --topk 1 --policy microspec
refuses 2 "*expected --prompts FILE*" specrt-eval plan --target "$target" --draft "$draft" \
    --trace run.trace --check 1

# Costs of another engine: a pass takes 10 ms there whatever it does, and nothing else counts.
point() {
    printf '[{"%s": 1, "seconds": %s}, {"%s": 40000, "seconds": %s}]' "$1" "$2" "$1" "${3:-$2}"
}
costs() { # PASS HEAD : seconds of the target's pass, and of a product with 40,000 rows
    rows=$(point rows 1e-9 "$2")
    printf '{"head_first": %s, "head": [' "$rows"
    for topk in 1 4 10; do printf '{"topk": %s, "points": %s},' $topk "$rows"; done | sed 's/,$//'
    printf '], "draft": %s, "target": %s}' "$(point tokens 1e-9)" "$(point nodes "$1")"
}
costs 0.01 1e-9 >costs.json
theirs() {
    specrt-eval plan --target "$target" --draft "$draft" --trace run.trace --costs "$@"
}
accepts theirs costs.json --policy full --json
prints '{*"policy":"plain",*"tokens_per_second":100,*}'
prints '*"accept_full":1,"worst_domain":*"recommended_by":"*'
accepts theirs costs.json --policy full
prints "*measured by another engine: costs.json*"
costs 10 5 >dear.json # rows are dear: what is recommended scores few
accepts theirs dear.json --policy microspec
prints "*--policy microspec *"
# A drafter that keeps what it drafted reads less at the next draft's first pass than another.
speed() {
    grep -o '"policy":"full"[^}]*' ../out | grep -oE '"tokens_per_second":[0-9.]+' | sed 's/.*://;q'
}
dear=$(point tokens 0.001 40)
sed "s/\"draft\": .*, \"target\"/\"draft\": $dear, \"target\"/" costs.json >again.json
sed 's/}$/, "keeps_chains": true}/' again.json >kept.json
accepts theirs again.json --policy full --num-steps 3 --topk 1 --json
again=$(speed)
accepts theirs kept.json --policy full --num-steps 3 --topk 1 --json
kept=$(speed)
awk "BEGIN { exit !($kept > $again && $kept < 1.5 * $again) }" || fail "kept $kept, again $again"
refuses 2 "*--costs: expected --trace with it, *" theirs costs.json --check 1 --prompt x
refuses 1 "*none.json: cannot open*" theirs none.json
echo '[]' >bad.json
refuses 3 "*bad.json: expected the JSON object that specrt-eval plan *writes" theirs bad.json
sed 's/"topk": 4/"topk": 5/' costs.json >bad.json
refuses 3 "*bad.json: head: expected points for a topk of 4, found none" theirs bad.json
sed 's/0.01/-1/' costs.json >bad.json
refuses 3 "*bad.json: target: expected 1 to 64 objects with nodes and seconds*" theirs bad.json

refuses 2 "*no tree is within --topk (1, 4 or 10)*" plan --topk 7
refuses 2 "*--context: expected at least 73 positions, *of 8 tokens and a tree, found 72*" \
    plan --context 72 # the tree has 64 nodes
refuses 2 "*--sampled-drafts: *" plan --sampled-drafts --temperature 1
refuses 2 "*expected --draft FILE*" plan --draft none
