# auto: a run's tokens are plain decoding's (compare fails where they are not), costs may name what
# it drafts from, and what is missing is said.
. "$CLI_TESTS/lib.bash"
costs_with "target 1 1e-3" "target 60 15e-3" >lines
sealed given.costs <lines
accepts specrt-eval record "${pair[@]}" --prompts "$prompts/qa.jsonl" --limit 3 --max-tokens 24 \
    --topk 1 --num-steps 4 -q -o a.trace
accepts specrt-eval compare "${pair[@]}" --costs given.costs --policy auto,auto+full \
    --prompts "$prompts/qa.jsonl" --limit 2 --max-tokens 24 --topk 1 --num-steps 4 -q
# Costs may name what `auto` drafts from; `auto+SPEC` names another. Without either it is microspec.
named() { # FILE ROWS POLICY
    { cat lines; echo "policy $2 $3"; } | sealed "$1"
}
named named.costs 0 window:64@min=8
accepts specrt-eval compare "${pair[@]}" --costs named.costs --policy auto \
    --prompts "$prompts/qa.jsonl" --limit 1 --max-tokens 8 --topk 1 --num-steps 4 -q
prints "*auto is window:64@min=8*"
accepts specrt-eval compare "${pair[@]}" --costs named.costs --policy auto+microspec \
    --prompts "$prompts/qa.jsonl" --limit 1 --max-tokens 8 --topk 1 --num-steps 4 -q
prints "*auto+microspec is window:3072*"
# `plan` names the fastest, but for those that read more than their rows.
planned() { # FILE POLICY FLAGS...
    accepts specrt-eval plan "${pair[@]}" --trace a.trace --topk 1 --costs named.costs \
        --costs-out "$1" --policy "$2" "${@:3}"
    prints "*--policy ${2##*,} *With $1 auto drafts from *"
}
planned chosen.costs window:256@min=256,microspec
grep -q "^policy [0-9]* window:3072@kver=8@positions=tree@min=3072$" chosen.costs ||
    fail "expected microspec: $(cat chosen.costs)"
# Its rows are those that it scored, here fewer than its bound.
planned few.costs window:1024
[ "$(awk '$1 == "policy" { print $2 }' few.costs)" -lt 1024 ] ||
    fail "expected fewer rows than 1024: $(cat few.costs)"
accepts sketch-build --model "$sample/target.gguf" --trace a.trace --states 40 --min-recall 0 \
    -o a.specb
planned full.costs sketch:128 --bundle a.specb
prints "*With full.costs auto drafts from full.*"
for policy in 7 null "" auto window:0 full+full; do
    named bad.costs 0 "$policy"
    refuses 3 "*bad.costs: line 16: expected *a policy that there is, found policy 0 $policy" \
        specrt-eval compare "${pair[@]}" --costs bad.costs --policy auto --prompt x
done
# The error of a policy that does not open names the file of costs that named it, if one did.
for policy in static:2048/ranks sketch:128/sketch; do
    named missing.costs 0 ${policy%/*}
    refuses 3 "*missing.costs: policy: expected one that opens here, found policy *section \
'${policy#*/}'*; name its bundle by --bundle, or another policy by --policy auto+POLICY" \
        specrt-eval compare "${pair[@]}" --costs missing.costs --policy auto,full --prompt x
done
refuses 3 "specrt-eval compare: policy 'static:2048': static: needs a bundle *builds it" \
    specrt-eval compare "${pair[@]}" --costs missing.costs --policy auto+static:2048 --prompt x
expected="*--policy auto+full: expected a fixed policy; compare and decode take auto"
for verb in plan "record -o auto.trace"; do
    refuses 2 "$expected" specrt-eval $verb "${pair[@]}" --prompt x --policy auto+full
done
refuses 2 "$expected" specrt-eval replay --trace a.trace --policy full,auto+full
# Answers by auto are plain decoding's; a drafter that does not fit leaves that.
answer() {
    accepts specrt-eval decode --target "$sample/target.gguf" --prompt "1, 2," --max-tokens 12 "$@"
}
answer -q
cp ../out plain
answer --draft "$sample/draft.safetensors" --policy auto+full --costs given.costs -q
same plain ../out
answer --draft none.gguf --policy auto -q
same plain ../out
warns "*warning: drafting off: none.gguf: *; plain decoding*"
refuses 1 "*none.gguf: *" specrt-eval decode --target "$sample/target.gguf" --prompt x \
    --draft none.gguf --policy microspec
# So they are of a block drafter, whose passes are timed, or whose costs are given.
block=(--target "$sample/target.gguf" --draft "$sample/block")
timed() {
    answer --draft "$sample/block" --policy auto --num-steps 7 -q
    same plain ../out
    ! grep "drafting off" ../err || fail "expected an answer with drafts"
}
is_quick || timed
{
    grep -v "^draft" lines
    printf '%s\n' "draft 1 2e-4" "draft 7 3e-4" "draft 14 4e-4" "block 7"
} | sealed block.costs
accepts specrt-eval compare "${block[@]}" --costs block.costs --policy auto+full,auto \
    --prompts "$prompts/qa.jsonl" --limit 2 --max-tokens 24 --num-steps 7 -q
refuses 3 "*given.costs: expected costs of a drafter of blocks, found those of drafts token by \
token; measure this drafter's" \
    specrt-eval compare "${block[@]}" --costs given.costs --policy auto --prompt x
refuses 3 "*block.costs: expected costs of drafts token by token, found those of a drafter of *" \
    specrt-eval compare "${pair[@]}" --costs block.costs --policy auto --prompt x
is_quick && exit 0
# `plan` chooses among blocks, none longer than the drafter's, and its costs are of blocks.
accepts specrt-eval plan "${block[@]}" --policy full --topk 1 --prompts "$prompts/qa.jsonl" \
    --limit 2 --max-tokens 12 --measure 0.5 --json --costs-out planned.costs
has costs.n_block=7
