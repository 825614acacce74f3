# cluster-build --router: training from a trace of the sample pair, what it
# leaves behind, what it refuses.
. "$CLI_TESTS/lib.bash"
record() { # TRACE FLAGS...
    local trace=$1
    shift
    accepts specrt-eval record --target "$target" --draft "$sample/draft.safetensors" \
        --num-steps 3 --topk 1 --draft-top 0 -o "$trace" "$@"
}
record a.trace --prompts "$CLI_TESTS"/../../data/prompts/{code,qa,math}.jsonl --limit $(most 3 2) \
    --max-tokens $(most 30 20)
build() { cluster-build --model "$target" --clusters 32 --iterations 4 --trace a.trace --hidden 32 \
    "$@"; }
accepts build --router dynaspec --threads 1 -o one.specb
prints "*router dynaspec, *trained on * positions, * held out; * epochs*level *all *"
is_brief || prints "*340 to 3,051*23 23 3 2 2 1 1 1: about 6,828 rows*216 positions, 23 held out; \
18 epochs, the best 15: loss 2.6775, held out 6.7777
*   0          9   18332  1.0000  1.0000  -
*  all         23   13305  0.6957  1.0000  -"
accepts build --router dynaspec --threads 3 -o three.specb
same one.specb three.specb
accepts specrt-bundle verify one.specb
accepts specrt-eval decode --target "$target" --draft "$sample/draft.safetensors" \
    --bundle one.specb --policy dynaspec --tree --prompt "The cat" --max-tokens 8
# a chain's coverage from the recording alone, which keeps what the drafter's first pass was fed
record c.trace --bundle one.specb --policy dynaspec --prompt "The cat" --max-tokens 30 --json
is_brief || has n_tokens=30 n_cycles=9 accept_length=3.2222 coverage=0.7931 \
    shortlist_rows=13337.5556
covered=$(json ../out coverage)
accepts specrt-eval replay --trace c.trace --bundle one.specb --model "$target" --policy dynaspec \
    --json
row='rows[policy=dynaspec][domain=all]'
has "$row.coverage=$covered" "$row.coverage_estimated=false"
# A drafter with a head of its own: its clusters, and a router that reads the target's embedding.
of_small() {
    small=$sample/draft-small.gguf
    accepts specrt-eval record --target "$target" --draft "$small" --num-steps 3 --topk 1 \
        --draft-top 0 --prompts "$CLI_TESTS"/../../data/prompts/{code,qa,math}.jsonl --limit 2 \
        --max-tokens 20 -o d.trace
    accepts cluster-build --model "$small" --embedding "$target" --clusters 8 --iterations 4 \
        --trace d.trace --hidden 32 --router dynaspec -o small.specb
    accepts specrt-eval replay --trace d.trace --bundle small.specb --model "$small" \
        --embedding "$target" --policy dynaspec
    accepts specrt-eval decode --target "$target" --draft "$small" --bundle small.specb \
        --policy dynaspec --prompt "The cat" --max-tokens 8
    refuses 2 "*the router reads an embedding of 256 columns, found 96*" specrt-eval replay \
        --trace d.trace --bundle small.specb --model "$small" --policy dynaspec
}
is_quick || of_small
cluster-build --model "$target" --clusters 8 --iterations 4 --trace a.trace --router coral \
    --json -o one.specb >../json ||
    fail "coral is not trained"
cp ../json ../out
has router.kind=coral router.loss=argmax 'router.rows_mean=*' 'router.recall=*' \
    'router.recall_oracle=*' 'router.loss_holdout[0]=*' 'seconds_router=*' \
    router.recall_static=null router.all.mass_static=null # without ranks there is no list
accepts specrt-eval decode --target "$target" --draft "$sample/draft.safetensors" \
    --bundle one.specb --policy coral --tree --prompt "The cat" --max-tokens 8

# What is learnt beyond how often clusters are meant: recall held out is
# above that of shuffled labels. Not briefly: a sanitizer has seen both kinds of training.
if ! is_brief; then
    record b.trace --policy microspec --prompts "$CLI_TESTS"/../../data/prompts/*.jsonl --limit 4 \
        --max-tokens 40
    recall() { # FLAGS... : of what is held out
        cluster-build --model "$target" --clusters 64 --balanced --iterations 2 --trace b.trace \
            --schedule flat --mean-rows 1024 --holdout 0.25 --json "$@" >../json ||
            fail "not trained: $*"
        json ../json router.recall
    }
    for router in dynaspec coral; do
        trained=$(recall --router $router) shuffled=$(recall --router $router --shuffle-labels)
        awk "BEGIN { exit !($trained > $shuffled + 0.05) }" ||
            fail "$router: recall $trained, of shuffled labels $shuffled"
    done
fi
refuses 2 "*--shuffle-labels: expected --json and no -o, *" build --router coral \
    --shuffle-labels -o x.specb

# An interrupt leaves the bundle as it was, and the next run starts afresh.
cp one.specb before.specb
cluster-build --model "$target" --clusters 32 --iterations 4 --trace a.trace --router dynaspec \
    --hidden 2048 --epochs 1000 --patience 1000 -f -o one.specb 2>../err &
job=$!
sleep $(most 1 1 0.4)
kill -INT $job 2>/dev/null || kill -TERM $job
wait $job
case $? in 130 | 143) ;; *) fail "expected an interrupted run" ;; esac
same one.specb before.specb
[ -z "$(find . -name '*tmp-*')" ] || fail "a temporary file stayed"
accepts build --router dynaspec -f -o one.specb

# Rows clustered as the states of a trace tell them apart, the same for any threads.
for threads in $(most "1 3" "1 3" 3); do
    accepts cluster-build --model "$target" --ordered --clusters 64 --iterations 4 --trace a.trace \
        --threads $threads -o states-$threads.specb
done
prints "32,758 rows of 256 columns in 64 clusters of 512 to 512
10 copies, *router centroid, clusters by level 1 *"
is_quick || same states-1.specb states-3.specb

# Bad input.
refuses 2 "*expected --trace for --router dynaspec; *" cluster-build --model "$target" \
    --router dynaspec -o x.specb
refuses 2 "*--trace: expected --router centroid, dynaspec or coral *" build --router none -o x.specb
refuses 2 "*--loss: expected *, found 'best'" build --router coral --loss best -o x.specb
refuses 2 "*--mean-rows: expected room for one of the 32 clusters a level, *" \
    build --router dynaspec --mean-rows 3 -o x.specb
refuses 1 "*: nowhere.trace: *" cluster-build --model "$target" --router coral \
    --trace nowhere.trace -o x.specb
refuses 3 "*one.specb: *not a specrt trace*" cluster-build --model "$target" --router coral \
    --trace one.specb -o x.specb
record few.trace --prompt "The cat" --max-tokens 8
refuses 3 "*training: expected 64 or more drafted positions of 2 or more prompts, found *" \
    cluster-build --model "$target" --router dynaspec --trace few.trace -o x.specb
[ ! -e "$SPECRT_DATA/weights/pair128k/target.gguf" ] ||
    refuses 3 "*a.trace: *; record with this model and its drafter" \
        cluster-build --model "$SPECRT_DATA/weights/pair128k/target.gguf" --router coral \
        --trace a.trace -o x.specb
