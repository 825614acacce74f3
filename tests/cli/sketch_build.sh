# sketch-build on the sample pair: the same bytes for any threads, what a scan finds, a policy that
# decodes with it as the full vocabulary would, and what it refuses.
. "$CLI_TESTS/lib.bash"
sample=$CLI_TESTS/../../data/sample
pair=(--target "$sample/target.gguf" --draft "$sample/draft.safetensors")
prompts=$CLI_TESTS/../../data/prompts/code.jsonl

accepts specrt-eval record "${pair[@]}" --prompts "$prompts" --limit $(most 6 4) \
    --max-tokens 32 --num-steps 3 --topk 1 -o a.trace
accepts sketch-build --model "$sample/target.gguf" --trace a.trace --states 60 --codes int8 \
    --threads 1 -o one.specb
warns '*warning: a.trace: * states choose directions of 256 columns, *: record 5?? states or more*'
[ "$(wc -l <../err)" = 1 ] || fail "more than one warning: $(cat ../err)"
prints '*recorded states*fewest bytes for 0.99: --policy sketch:*'
accepts sketch-build --model "$sample/target.gguf" --trace a.trace --states 60 --codes int8 \
    --threads 3 -o three.specb
same one.specb three.specb
accepts specrt-bundle info one.specb
prints '*sketch *32,768 rows in rank 32*'

# with enough states there is no warning, and the advice says what was seen of such a sketch
enough() {
    accepts specrt-eval record "${pair[@]}" --prompts "$prompts" --limit 12 --max-tokens 64 \
        --num-steps 3 --topk 1 -o enough.trace
    accepts sketch-build --model "$sample/target.gguf" --trace enough.trace --states 60 --json
    [ ! -s ../err ] || fail "a warning beside a trace: $(cat ../err)"
    prints '*"advice":"--policy sketch:128 (figures: bench\/results\/published.md)*'
}
is_brief || enough

# from the head alone; below the gate nothing is written
sketch-build -q --model "$sample/target.gguf" --codes int8 --rank 4 --states 20 --min-recall 0.999 \
    -o two.specb 2>../err
[ $? = 4 ] && [ ! -e two.specb ] || fail "expected exit 4 and no bundle"
warns '*no rank up to 4 finds 0.999 of the ten best rows; nothing is written*'

# without a trace it says what that costs and how to get one; the figures and the bundle say so too
accepts sketch-build -q --json --model "$sample/target.gguf" --codes int8 --rank 4 --states 20 \
    --min-recall 0 -o two.specb
warns "*warning: without --trace *may draft much worse*record --target $sample/target.gguf*"
[ "$(grep -c warning: ../err)" = 1 ] || fail "more than one line: $(cat ../err)"
prints '*"states":"synthetic"*'
accepts specrt-bundle info two.specb --json
prints '*"states":"synthetic"*'

# where the bundle has ranks, the frequent rows come first (with the forced) and the
# basis leans towards frequent rows
accepts vocabtrim-calibrate -q --tokenizer "$sample/target.gguf" --corpus "$prompts" \
    --messages all --size 100 -o ranked.specb
accepts specrt-bundle info ranked.specb
first=$(sed -n 's/^top *\([0-9]*\) .*/\1/p' ../out)
rank=$(most 32 8)
for bundle in even ranked; do
    accepts sketch-build --model "$sample/target.gguf" --codes int8 --rank $rank --states 20 \
        --min-recall 0 -o $bundle.specb
    accepts specrt-bundle extract $bundle.specb sketch -o $bundle.bin
done
rows=$((64 + 4 * rank * 256 + 4 * 256)) # where docs/FORMAT.md puts them
grep -qw "$first" <<<"$(od -An -td4 -j $rows -N 64 ranked.bin)" ||
    fail "row $first is not among the first 16"
[ "$(od -An -td4 -j $rows -N 4 even.bin | tr -d ' ')" = 0 ] ||
    fail "without ranks, rows come by number"
cmp -s -n $rows even.bin ranked.bin && fail "ranks do not change the basis"

# half the bytes for each dimension: the same for any threads, and what decodes with it is plain
# decoding's
few_and_more=$(most "1 3" 3)
for threads in $few_and_more; do
    accepts sketch-build --model "$sample/target.gguf" --trace a.trace --states 60 --codes int4 \
        --threads $threads -o four$threads.specb
done
is_brief || same four1.specb four3.specb
prints '*in rank 64 of int4*'
accepts specrt-bundle info four3.specb
prints '*sketch *32,768 rows in rank 64*codes of 4 bits*'
accepts specrt-eval compare "${pair[@]}" --bundle four3.specb --prompts "$prompts" --limit 1 \
    --max-tokens $(most 24 8) --num-steps 3 --topk 3 --policy sketch:64@rank=32

# by default bands of an eighth of an f16 row's bytes: the same for any threads; what decodes with
# them is plain decoding's
for threads in $few_and_more; do
    accepts sketch-build --model "$sample/target.gguf" --trace a.trace --states 60 \
        --threads $threads -o bands$threads.specb
done
is_brief || same bands1.specb bands3.specb
prints '*in rank * of several widths*bytes of a row, in bands: *directions of *bit*of the best row*'
accepts specrt-bundle info bands3.specb --json
prints '*"sketch":{*"codes":"bands","bands":\[{"rank":*,"bits":*'
accepts specrt-bundle verify bands3.specb
accepts specrt-eval compare "${pair[@]}" --bundle bands3.specb --prompts "$prompts" --limit 1 \
    --max-tokens $(most 24 8) --num-steps 3 --topk 3 --policy sketch:64 \
    --policy window:100+sketch:64@rank=8

# measured with a trace of their own; on the sample pair both kinds find nearly all
accepts sketch-build --json --model "$sample/target.gguf" --trace a.trace --held-out a.trace \
    --states 100 --bytes 36 --min-recall 0
bands=$(grep -oE '"recall_at_10":[0-9.]+' ../out | tail -1)
grep -q '"n_states":100,' ../out || fail "not measured with --held-out: $(cat ../out)"
grep -qE '"bytes_per_row":3[456]' ../out || fail "the budget is not spent: $(cat ../out)"
is_brief || accepts sketch-build --json --model "$sample/target.gguf" --trace a.trace \
    --states 100 --rank 64 --min-recall 0
one_width=$(grep -oE '"recall_at_10":[0-9.]+' ../out | tail -1)
[[ ${bands#*:} > 0.9 && ${one_width#*:} > 0.9 ]] ||
    fail "recall: bands $bands, one width $one_width"

refuses 2 '*--bytes: bands choose ranks and widths*' sketch-build --model m.gguf --bytes 40 \
    --rank 8 -o x.specb
refuses 2 '*--held-out: expected --trace*' sketch-build --model m.gguf --held-out a.trace \
    -o x.specb
refuses 2 '*--bytes: expected 10 or more, room for a line of codes, found 9*' sketch-build \
    --model "$sample/target.gguf" --trace a.trace --states 60 --bytes 9 -o x.specb
refuses 2 '*--codes: expected int8 or int4, found int2*' sketch-build --model m.gguf --codes int2 \
    -o x.specb
refuses 2 '*--rank: expected a multiple of 8, found 12*' sketch-build --model m.gguf --rank 12 \
    -o x.specb
refuses 2 '*give --model*' sketch-build -o x.specb
refuses 2 '*nothing to write*' sketch-build --model m.gguf
refuses 2 '*--rank: expected a multiple of 4, found 6*' sketch-build --model m.gguf --codes int8 \
    --rank 6 -o x.specb
refuses 2 '*--rank: expected at most 256, the columns of *, found 264*' sketch-build \
    --model "$sample/target.gguf" --rank 264 -o x.specb
refuses 1 '*m.gguf: *' sketch-build --model m.gguf -o x.specb
refuses 2 '*one.specb: holds section sketch; use -f to replace it' sketch-build \
    --model "$sample/target.gguf" -o one.specb
echo "no trace" >x.trace
refuses 3 '*x.trace: *' sketch-build --model "$sample/target.gguf" --trace x.trace -o x.specb
refuses 2 '*: sketch: rank: expected at most *4, found 8; build it with*' specrt-eval decode \
    "${pair[@]}" --bundle two.specb --policy sketch:9@rank=8 --prompt x

# a trace of a model with another tokenizer, of as many columns
other=$SPECRT_DATA/weights/pair128k/target.gguf
[ ! -e "$other" ] ||
    refuses 3 \
    "*a.trace: was recorded with another tokenizer than that of *; record with this model and its drafter" \
    sketch-build --model "$other" --trace a.trace -o x.specb
