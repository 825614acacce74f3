# A plan: costs, a policy with its tree, the verdicts; checked by decoding.
. "$CLI_TESTS/lib.bash"
seconds=$(most 1 1 0.2) # of measuring: long enough to time sizes again, once
plan() {
    specrt-eval plan --target "$target" --draft "$draft" --max-tokens 8 --measure $seconds \
        --prompts "$CLI_TESTS/../../data/prompts/code.jsonl" --limit 2 "$@"
}

accepts plan --policy microspec --num-steps 3 --num-draft-tokens 8 --check 2 --costs-out here.costs
prints "head, ms for 1 row*32768: *target, ms by nodes  1: *60: *prompts, ms *16: *held back*error
*microspec * s, 2 prompts*"
busy() { # whether the machine was, and then there is no verdict
    grep -q "too busy to tell: .*; wait until the machine is idle" ../out
}
if busy; then
    prints "*
No verdict: too busy to tell: *"
    [ ! -e here.costs ] || fail "costs of a busy machine are kept"
else
    prints "*over whole requests (prompt *, answer * tokens)*
With here.costs auto drafts from *"
    grep -qE '^policy [0-9]+ (full|window:3072@.*)' here.costs || fail "$(cat here.costs)"
    grep -qE '^target 1 [0-9.e-]+ [0-9.e-]+ [0-9.e-]+$' here.costs || fail "$(cat here.costs)"
fi

seconds=0.1
plan_json() {
    accepts plan --json --topk 4 --num-steps 2 --policy window:64@min=16
    for key in costs.head costs.draft costs.target costs.error_median costs.prompt \
        costs.prompt_all costs.draft_prompt recommended outcome pruning_outcome advice; do
        has "$key=*"
    done
    has 'choices[policy=window:64@min=16].num_steps=2' 'choices[policy=window:64@min=16].topk=4'
    for key in num_draft_tokens tokens_per_second ci95 speedup_plain accept_length; do
        has "choices[policy=window:64@min=16].$key=?*"
    done
    if busy; then
        has costs.disturbed=true recommended=null recommended_policy=null outcome=null
    else
        has costs.disturbed=false 'recommended.policy=?*' 'outcome=[a-z]*'
    fi
}
is_quick || plan_json

# From a recording, without decoding; then the same checked.
specrt-eval record --target "$target" --draft "$draft" --num-steps 3 --topk 1 --max-tokens 8 \
    -q -o run.trace --prompts "$CLI_TESTS/../../data/prompts/code.jsonl" --limit 2 || fail "record"
accepts specrt-eval plan --target "$target" --draft "$draft" --trace run.trace --num-steps 3 \
    --topk 1 --measure 0.1
for policy in microspec full; do # which is faster is the machine's affair
    prints "*
$policy *replayed; *"
    # A plan that draws from all rows has nothing to stand beside.
    busy || grep -q "^Draft with --policy full" ../out ||
        prints "*over whole requests (prompt *Beside drafts from all rows *"
done
refuses 2 "*expected --prompts FILE*" specrt-eval plan --target "$target" --draft "$draft" \
    --trace run.trace --check 1

# Costs of another engine: a pass takes 10 ms there whatever it does, and nothing else counts.
costs() { # PASS HEAD : seconds of the target's pass, and of a product with 40,000 rows
    printf '%s\n' "target 1 $1" "target 40000 $1" "draft 1 1e-9" "draft 40000 1e-9"
    for name in first "next 1" "next 4" "next 10"; do
        printf '%s\n' "$name 1 1e-9" "$name 40000 $2"
    done
}
costs 0.01 1e-9 >lines
sealed costs.costs <lines
theirs() {
    specrt-eval plan --target "$target" --draft "$draft" --trace run.trace --costs "$@"
}
accepts theirs costs.costs --policy full --json
has 'choices[policy=plain].tokens_per_second=100' 'choices[policy=full].accept_full=1' \
    'choices[policy=full].worst_domain=*' 'recommended_by=?*'
accepts theirs costs.costs --policy full
prints "*measured by another engine: costs.costs*over answers of 48 tokens without their prompts*"
{ cat lines; for name in prompt prompt_all draft_prompt; do echo "$name 64 0.64"; done; } >again
sealed prompts.costs <again # prompts take time, too, and the drafter reads them
accepts theirs prompts.costs --policy full
prints "*over whole requests (prompt *; its prompts take 2.00 times plain decoding's*"
costs 10 5 | sealed dear.costs # rows are dear: what is recommended scores few
accepts theirs dear.costs --policy microspec
prints "*--policy microspec *"
# A drafter that keeps what it drafted reads less at the next draft's first pass than another.
speed() { json ../out 'choices[policy=full].tokens_per_second'; }
sed 's/^draft 1 .*/draft 1 0.001/; s/^draft 40000 .*/draft 40000 40/' lines >again
sealed again.costs <again
{ cat again; echo "keeps_chains 1"; } | sealed kept.costs
accepts theirs again.costs --policy full --num-steps 3 --topk 1 --json
again=$(speed)
accepts theirs kept.costs --policy full --num-steps 3 --topk 1 --json
kept=$(speed)
awk "BEGIN { exit !($kept > $again && $kept < 1.5 * $again) }" || fail "kept $kept, again $again"
refuses 2 "*--costs: expected --trace with it, *" theirs costs.costs --check 1 --prompt x
refuses 1 "*none.costs: expected a file of costs, found none that opens" theirs none.costs
echo '{"draft": []}' >bad.costs # of older versions
refuses 3 "*bad.costs: expected the first line *; specrt-eval plan --costs-out *" theirs bad.costs
sed '/^next 4/d' lines | sealed bad.costs
refuses 3 "*bad.costs: expected costs of the head, lines *, found none; *" theirs bad.costs
sed 's/0.01/-1/' lines | sealed bad.costs
refuses 3 "*bad.costs: line 4: expected *, seconds above 0*, found target 1 -1" theirs bad.costs
sed 's/0.01/0.02/' costs.costs >bad.costs
refuses 3 "*bad.costs: sum: expected *: the file is damaged" theirs bad.costs

is_quick || refuses 3 "*prompts: expected an answer of 2 tokens or more, found 2 of 1 token; *" \
    plan --max-tokens 1 -q
refuses 2 "*no tree is within --topk (1, 4 or 10)*" plan --topk 7
refuses 2 "*--context: expected at least 73 positions, *of 8 tokens and a tree, found 72*" \
    plan --context 72 # the tree has 64 nodes
refuses 2 "*--sampled-drafts: *" plan --sampled-drafts --temperature 1
refuses 2 "*--draft*" plan --draft none
