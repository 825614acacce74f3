# sketch-build on the sample pair: the same bytes for any threads, what a search finds, a policy
# that decodes with it as the full vocabulary would, and what it refuses.
. "$CLI_TESTS/lib.bash"
NARRATES=1
sample=$CLI_TESTS/../../data/sample
pair=(--target "$sample/target.gguf" --draft "$sample/draft.safetensors")
prompts=$CLI_TESTS/../../data/prompts/code.jsonl

accepts sketch-build --help
accepts specrt-eval record "${pair[@]}" --prompts "$prompts" --limit $(most 6 4) \
    --max-tokens 32 --num-steps 3 --topk 1 -o a.trace
for threads in 1 3; do
    accepts sketch-build --model "$sample/target.gguf" --trace a.trace --states 60 \
        --threads $threads --min-recall 0.8 -o on$threads.specb
    warns '*: a.trace: * states choose directions of 256 columns: record 5?? states or more*'
    [ "$(wc -l <../err)" = 1 ] || fail "more than one warning: $(cat ../err)"
done
same on1.specb on3.specb
prints '*96 signs and 240 pairs of bits each*share of the ten best rows*of the best row*MB that*'
prints '*fewest bytes for 0.8: --policy sketch:*@keep=*'
accepts specrt-bundle info on1.specb
prints '*sketch *32,768 rows of 256 columns: signs in 96 directions, two bits in 240, chosen by *'
accepts specrt-bundle info on1.specb --json
prints '*"sketch":{*"n_signs":96,*"rank":240,*'
accepts specrt-bundle verify on1.specb
accepts specrt-eval compare "${pair[@]}" --bundle on1.specb --prompts "$prompts" --limit 1 \
    --max-tokens $(most 24 8) --num-steps 3 --topk 3 --policy sketch:64 \
    --policy window:100+sketch:64@signs=32@keep=512@scan=20000

# OpenBLAS takes another CPU's kernels, which add in another order
NARRATES= OPENBLAS_CORETYPE=Prescott accepts sketch-build --model "$sample/target.gguf" \
    --trace a.trace --states 60 --min-recall 0.8 -o older.specb
for file in on1 older; do
    NARRATES= accepts specrt-bundle extract $file.specb sketch -o $file.bin
done
same on1.bin older.bin

# with enough states there is no warning, and the advice says what was seen of such a sketch
enough() {
    accepts specrt-eval record "${pair[@]}" --prompts "$prompts" --limit 12 --max-tokens 64 \
        --num-steps 3 --topk 1 -o enough.trace
    accepts sketch-build --model "$sample/target.gguf" --trace enough.trace --states 60 --json
    [ ! -s ../err ] || fail "a warning beside a trace: $(cat ../err)"
    prints '*"advice":"--policy hybrid, with*(figures: bench\/results\/held-out.md)*'
}
is_brief || enough

# from the head alone; below the gate nothing is written, but on demand
head_file head.safetensors 300
gate() { sketch-build -q --model head.safetensors --min-recall 1 --signs 32 -o gate.specb "$@" \
    2>../err; }
gate
[ $? = 4 ] && [ ! -e gate.specb ] || fail "expected exit 4 and no bundle"
warns '*32 signs and rank 240 do not find 1 of the ten best rows; nothing is written*'
gate --allow-below
[ $? = 4 ] && [ -e gate.specb ] || fail "expected exit 4 and a bundle"
refuses 3 "*gate.specb: head: expected 'lm_head.weight' *; write to another file" sketch-build \
    --model "$sample/target.gguf" -f -o gate.specb

# fewer rows than the best that are looked for
head_file few.safetensors 5
accepts sketch-build -q --model few.safetensors --min-recall 0 --json
prints '*"n_rows":5,*"rows":5,*'

# without a trace it says what that costs and how to get one; the figures and the bundle say so too
accepts sketch-build -q --json --model "$sample/target.gguf" --signs 32 --states 20 \
    --min-recall 0 -o two.specb
warns "*warning: without --trace *may draft much worse*record --target $sample/target.gguf*"
[ "$(grep -c warning: ../err)" = 1 ] || fail "more than one line: $(cat ../err)"
prints '*"states":"synthetic"*'
accepts specrt-bundle info two.specb --json
prints '*"states":"synthetic"*'

# where the bundle has ranks, the frequent rows come first (with the forced) and the
# basis leans towards frequent rows
ids corpus.bin 7 7 7 9 9 5
accepts vocabtrim-calibrate -q --tokenizer none --id-bytes 2 --n-vocab 300 --keep 299 \
    --corpus corpus.bin --holdout 0 --size 100 -o ranked.specb
for bundle in even ranked; do
    accepts sketch-build --model head.safetensors --min-recall 0 -o $bundle.specb
    accepts specrt-bundle extract $bundle.specb sketch -o $bundle.bin
done
rows=$((64 + 240 * 16 + 4 * 8)) # where docs/FORMAT.md puts them, behind a basis of f16
[ "$(od -An -td4 -j $rows -N 16 ranked.bin | xargs)" = "299 7 9 5" ] ||
    fail "rows are not in the order of ranks"
[ "$(od -An -td4 -j $rows -N 4 even.bin | tr -d ' ')" = 0 ] ||
    fail "without ranks, rows come by number"
cmp -s -n $rows even.bin ranked.bin && fail "ranks do not change the basis"

# measured with a trace of its own, all of the other chooses directions
accepts sketch-build --json --model "$sample/target.gguf" --trace a.trace --held-out a.trace \
    --states 100 --min-recall 0.8
prints '*"n_states":100,*"recommended_keep":*'
n_basis() { grep -o '"n_states_basis":[0-9]*' ../out | head -n 1 | cut -d : -f 2; }
all=$(n_basis)
accepts specrt-bundle info on1.specb --json
measured=$((all / 2 < 60 ? all / 2 : 60)) # at most half of a trace
[ "$(n_basis)" = $((all - measured)) ] || fail "states that choose: $(n_basis) of $all"

refuses 2 '*--held-out: expected --trace*' sketch-build --model m.gguf --held-out a.trace \
    -o x.specb
refuses 2 '*--signs: expected a multiple of 32, found 48*' sketch-build --model m.gguf --signs 48 \
    -o x.specb
refuses 2 '*--rank: expected 240, 496, 752..., found 256*' sketch-build --model m.gguf --rank 256 \
    -o x.specb
refuses 2 '*--signs: expected at most the rank, 240, found 256*' sketch-build \
    --model "$sample/target.gguf" --signs 256 -o x.specb
refuses 2 '*expected --model*' sketch-build -o x.specb
refuses 2 '*expected -o FILE*' sketch-build --model m.gguf
refuses 1 '*m.gguf: *' sketch-build --model m.gguf -o x.specb
refuses 2 '*on1.specb: has a section sketch already; use -f to replace it' sketch-build \
    --model "$sample/target.gguf" -o on1.specb
echo "no trace" >x.trace
refuses 3 '*x.trace: *' sketch-build --model "$sample/target.gguf" --trace x.trace -o x.specb
refuses 2 '*: sketch: signs: expected at most *32, found 64; build it with*' specrt-eval decode \
    "${pair[@]}" --bundle two.specb --policy sketch:9@signs=64 --prompt x

# a trace of a model with another tokenizer, of as many columns
other=$SPECRT_DATA/weights/pair128k/target.gguf
[ ! -e "$other" ] ||
    NARRATES= refuses 3 \
    "*a.trace: tokenizer: expected that of *, found another; record with this model and its drafter" \
    sketch-build --model "$other" --trace a.trace -o x.specb
