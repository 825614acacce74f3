# auto: replay's figures are the same for any number of threads, a run's tokens are plain decoding's
# (compare fails where they are not), and what is missing is said.
. "$CLI_TESTS/lib.bash"
sample=$CLI_TESTS/../../data/sample prompts=$CLI_TESTS/../../data/prompts
pair=(--target "$sample/target.gguf" --draft "$sample/draft.safetensors")
costs_with "target 1 1e-3" "target 60 15e-3" >lines
sealed given.costs <lines
accepts specrt-eval record "${pair[@]}" --prompts "$prompts/qa.jsonl" --limit 3 --max-tokens 24 \
    --topk 1 --num-steps 4 -q -o a.trace
for threads in 1 3; do
    accepts specrt-eval replay --trace a.trace --costs given.costs --policy auto,full --json \
        --threads $threads -q
    cp ../out $threads.json
done
same 1.json 3.json
grep -q '"auto":\[{"way":"auto","domain":"all"' 1.json || fail "expected auto's rows"
accepts specrt-eval replay --trace a.trace --costs given.costs --policy auto+window:64@min=8,full -q
prints "*by the costs*of fixed choices*auto *best fixed *"
accepts specrt-eval compare "${pair[@]}" --costs given.costs --policy auto,auto+full \
    --prompts "$prompts/qa.jsonl" --limit 2 --max-tokens 24 --topk 1 --num-steps 4 -q
# Costs may name what `auto` drafts from; `auto+SPEC` names another. Without either it is microspec.
replay_json() {
    accepts specrt-eval replay --trace a.trace --policy "$2",full --costs "$1" --json -q
    cp ../out "$3"
}
named() { # FILE ROWS POLICY
    { cat lines; echo "policy $2 $3"; } | sealed "$1"
}
named named.costs 0 window:64@min=8
replay_json given.costs auto a.json
replay_json given.costs auto+microspec b.json
same a.json b.json
replay_json named.costs auto a.json
replay_json given.costs auto+window:64@min=8 b.json
same a.json b.json
replay_json named.costs auto+microspec b.json
cmp -s a.json b.json && fail "expected auto+microspec to name another policy"
accepts specrt-eval compare "${pair[@]}" --costs named.costs --policy auto \
    --prompts "$prompts/qa.jsonl" --limit 1 --max-tokens 8 --topk 1 --num-steps 4 -q
prints "*auto is window:64@min=8*"
# `plan` names the fastest, but for those that read more than their rows.
planned() { # FILE POLICY FLAGS...
    accepts specrt-eval plan "${pair[@]}" --trace a.trace --topk 1 --costs named.costs \
        --costs-out "$1" --policy "$2" "${@:3}"
    prints "*--policy ${2##*,} *With $1 auto drafts from *"
}
planned chosen.costs window:256@min=256,microspec
replay_json chosen.costs auto a.json
replay_json given.costs auto+window:3072@kver=8@positions=tree@min=3072 b.json
same a.json b.json
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
        specrt-eval replay --trace a.trace --costs bad.costs --policy auto
done
# The error of a policy that does not open names the file of costs that named it, if one did.
missing() { # CODE POLICY WHY
    local from=$1 policy=$2 why=$3
    named missing.costs 0 $policy
    for asked in auto auto,full; do
        refuses $from "*missing.costs: policy: expected one that opens here, found policy *$why*; \
name its bundle by --bundle, or another policy by --policy auto+POLICY" \
            specrt-eval replay --trace a.trace --costs missing.costs --policy $asked
    done
}
missing 3 static:2048 "section 'ranks'"
missing 2 sketch:128 "expected --model FILE, found none"
for policy in auto,static:2048 auto,full; do
    refuses 3 "*missing.costs: policy: expected *: sketch: needs a bundle with section 'sketch'*" \
        specrt-eval compare "${pair[@]}" --costs missing.costs --policy $policy --prompt x
done
refuses 3 "specrt-eval replay: policy 'static:2048': static: needs a bundle *builds it" \
    specrt-eval replay --trace a.trace --costs named.costs --policy auto,static:2048
refuses 3 "specrt-eval compare: policy 'static:2048': static: needs a bundle *builds it" \
    specrt-eval compare "${pair[@]}" --costs missing.costs --policy auto+static:2048 --prompt x
refuses 2 "*--policy auto: expected --costs FILE*" specrt-eval replay --trace a.trace --policy auto
refuses 2 "*expected auto once, found 'auto+full' too" specrt-eval replay --trace a.trace \
    --costs given.costs --policy auto,auto+full
refuses 2 "*policy 'nothing': *" specrt-eval replay --trace a.trace --costs given.costs \
    --policy auto+nothing
accepts specrt-eval record "${pair[@]}" --prompt "1, 2, 3," --max-tokens 8 --num-steps 3 --topk 1 \
    --draft-top 0 -q -o bare.trace
refuses 3 "*bare.trace: --policy auto: expected the drafter's best tokens; *" specrt-eval replay \
    --trace bare.trace --costs given.costs --policy auto
for verb in plan "record -o auto.trace"; do
    refuses 2 "*--policy auto+full: expected a fixed policy; compare, decode and replay take auto" \
        specrt-eval $verb "${pair[@]}" --prompt x --policy auto+full
done
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
