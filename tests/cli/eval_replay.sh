# replay gives what the recorded run itself printed, the same for any number
# of threads, up to any cut.
. "$CLI_TESTS/lib.bash"
text=$(cd "$CLI_TESTS/../../data/corpus" && pwd)
accepts vocabtrim-calibrate --tokenizer "$sample/target.gguf" --corpus "$text" --size 4096 \
    -o a.specb
accepts cograph-build --tokenizer "$sample/target.gguf" --corpus "$text" -o a.specb
is_quick || accepts cluster-build --model "$sample/target.gguf" --router centroid --clusters 64 \
    --iterations 4 -o a.specb
is_quick || accepts hnsw-build --model "$sample/target.gguf" --m 2 --ef-construction 8 --metric ip \
    --min-recall 0 -o a.specb
# of POLICY FIELD... : its fields over all domains and of the recorded tree, of the replay at hand
of() {
    local field row="rows[policy=$1][domain=all]"; shift
    for field; do json ../out "$row.$field" | cut -d ' ' -f 1; done | xargs
}
record() { # TRACE POLICY FLAGS...
    accepts specrt-eval record --target "$sample/target.gguf" --draft "$sample/draft.safetensors" \
        --bundle a.specb --prompts "$prompts/code.jsonl" --prompts "$prompts/qa.jsonl" --limit 1 \
        --max-tokens 16 --json -f -o "$1" --policy "${@:2}"
    printed=$(json ../out accept_length coverage shortlist_rows | xargs)
}
turn=0
# every kind of source that reads recorded data alone, in trees and in chains
for policy in full static:2048 static:4096/1024 window:700 microspec microspec-paper \
    window:500@mode=stream@positions=last static:1024+window:300@kver=8 \
    static:600+retrieve:64 static:600+retrieve:64@sem=hnsw_h \
    static:600+retrieve:64@graph=off@keep=on; do
    for tree in "--num-steps 4 --topk 3 --num-draft-tokens 12" "--num-steps 3 --topk 1"; do
        case "$policy $tree" in static:2048*"topk 1" | full*"topk 1" | \
            *paper*"topk 1") continue ;; esac
        turn=$((turn + 1)) # briefly: a policy with trees, the next with chains
        if is_brief && [ $((turn % 2)) = 0 ]; then continue; fi
        if is_quick && [ $((turn % 4)) = 1 ]; then continue; fi
        record a.trace "$policy" $tree
        accepts specrt-eval replay --trace a.trace --bundle a.specb --policy "$policy" --json
        found=$(of "$policy" accept_length coverage shortlist_rows)
        [ "$found" = "$printed" ] ||
            fail "$policy $tree: the run printed $printed; replay found $found"
        found=$(of "$policy" estimated coverage_estimated shortlist_rows_estimated)
        [ "$found" = "false false false" ] || fail "$policy: expected it to be exact, found $found"
    done
done
# lists made of the path: in a chain its tokens are all there, its hidden states
# up to the last emitted token
for policy in static:600+successor:64 $(most centroid:8 centroid:8 ""); do
    record a.trace $policy --num-steps 3 --topk 1
    accepts specrt-eval replay --trace a.trace --bundle a.specb --model "$sample/target.gguf" \
        --policy $policy --json
    found=$(of $policy accept_length coverage shortlist_rows)
    [ "${found% *}" = "${printed% *}" ] ||
        fail "$policy: the run printed $printed; replay found $found"
    [[ $policy != *succ* || $found = "$printed" ]] ||
        fail "$policy: the run printed $printed; replay found $found"
    [ "$(of $policy coverage_estimated)" = false ] || fail "$policy: expected exact coverage"
done
is_quick || [ "$(of $policy shortlist_rows_estimated)" = true ] || fail \
    "centroid: expected rows to be estimated"
record a.trace static:600+retrieve:64@mode=async
accepts specrt-eval replay --trace a.trace --bundle a.specb \
    --policy static:600+retrieve:64@mode=async --json
[ "$(of static:600+retrieve:64@mode=async coverage_estimated)" = true ] || fail "$(cat ../out)"
# hundreds of policies in one pass, by any number of threads; a cut trace replays up to the cut
policies=$(for n in $(seq 600 $(most 100 1000) 4000); do
    echo "static:$n,window:$n@min=64,static:600+window:$n"; done | paste -sd,)
record a.trace full
replay() { specrt-eval replay --trace "$@" --bundle a.specb --policy "$policies" --tree 3/1/4 \
    --tree 4/4/20; }
accepts replay a.trace --json --threads 1
cp ../out one.json
accepts replay a.trace --json --threads 3
same one.json ../out
accepts replay a.trace --trace a.trace --stream
size=$(stat -c %s a.trace)
cat a.trace a.trace | head -c $((size - 100)) >cut.trace
# its only block
refuses 3 "*cut.trace: expected a sequence, *is cut short" replay cut.trace
refuses 3 "*: a.specb: *" replay a.specb
{ head -c $((size - 200)) a.trace; printf 'XXXX'; tail -c 196 a.trace; } >damaged.trace
refuses 3 "*damaged.trace: block 1: *" replay damaged.trace
refuses 2 "*policy 'coral': head: expected --model FILE, found none" \
    replay a.trace --policy coral
# lists too short for the recorded tree: what a run says of them, by any number of threads
for policy in static:8 retrieve:3 successor:2 window:4@min=2; do
    refuses 2 "*topk: expected at most the [2-8] rows of policy '$policy', found 10" \
        specrt-eval replay --trace a.trace --bundle a.specb --policy full,$policy,microspec
done
refuses 2 "*policy 'window:4@min=2', found 10" specrt-eval replay --trace a.trace --threads 3 \
    --bundle a.specb --policy static:600,window:4@min=2,retrieve:3
refuses 1 "*: /dev/full: *" specrt-eval record \
    --target "$sample/target.gguf" --draft "$sample/draft.safetensors" --prompt hi --max-tokens 4 \
    -q -f -o /dev/full
refuses 2 "*expected --trace FILE*" specrt-eval replay --policy full
refuses 2 "*--tree: expected num_steps/topk/num_draft_tokens*'6/10'*" specrt-eval replay \
    --trace a.trace --tree 6/10
refuses 2 "*tree 7/10/60: expected at most what was recorded, 6/10/60; *" specrt-eval replay \
    --trace a.trace --tree 7/10/60
refuses 3 "*policy 'static:100': *vocabtrim-calibrate builds it*" specrt-eval replay \
    --trace a.trace --policy static:100
refuses 2 "*policy 'static:2': a.specb: static: size: expected *to *, found 2" replay a.trace \
    --policy static:2

# Without the drafter's best tokens nobody can say what else would have been drafted.
accepts specrt-eval record "${pair[@]}" --prompt "1, 2, 3," --max-tokens 12 --num-steps 3 --topk 1 \
    --draft-top 0 -q -o bare.trace
accepts specrt-eval replay --trace bare.trace --policy microspec,full --tree 2/1/3
warns "*the trace has no best tokens of the drafter*; record with --draft-top above 0*"
prints "*oracle  *- *microspec  *- *accept length *"
refuses 3 "*bare.trace: expected the drafter's best tokens; *" \
    specrt-eval plan "${pair[@]}" --trace bare.trace --measure 1
# turns of a conversation, each a sequence whose prompt repeats what came before
for first in "Name a colour." "Name a tree."; do
    echo "{\"turns\": [\"$first\", \"Another one.\", \"And a town.\"], \"domain\": \"talk\"}"
done >turns.jsonl
turns() { # THREADS
    accepts specrt-eval record --target "$sample/target.gguf" --draft "$sample/draft.safetensors" \
        --prompts turns.jsonl --turns 3 --max-tokens 10 --topk 1 --num-steps 3 -f \
        -o turns.trace --threads $1
}
turns 1
mv turns.trace one.trace
turns 2
same one.trace turns.trace
accepts specrt-eval replay --trace turns.trace --policy full --json
has 'rows[policy=full][domain=all].n_sequences=6*'
