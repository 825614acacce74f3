# sketch-build on the sample pair: its help and its table, the same bytes for any threads, what a
# search finds, a policy that decodes with it as the full vocabulary would, and what it refuses.
. "$CLI_TESTS/lib.bash"
prompts=$CLI_TESTS/../../data/prompts/code.jsonl

helps sketch-build
accepts specrt-eval record "${pair[@]}" --prompts "$prompts" --limit $(most 6 4) \
    --max-tokens 32 --num-steps 3 --topk 1 -o a.trace
for threads in 1 3; do
    accepts sketch-build --model "$sample/target.gguf" --trace a.trace --states 60 \
        --threads $threads --min-recall 0.8 -o on$threads.specb
    [ $threads = 1 ] || lasting <../out
    warns '*: a.trace: * states choose directions of 256 columns: record 5?? states or more*'
    [ "$(wc -l <../err)" = 1 ] || fail "more than one warning: $(cat ../err)"
done
same on1.specb on3.specb
accepts specrt-bundle info on1.specb
prints '*sketch *32,768 rows of 256 columns: signs in 96 directions, two bits in 240, chosen by *'
accepts specrt-bundle info on1.specb --json
has sketch.n_signs=96 sketch.rank=240 sketch.n_rows=32768 sketch.n_cols=256 sketch.whitened=true \
    'sections[tag=sketch].version=3' 'sections[tag=sketch].raw_bytes=2753344' \
    'provenance.sketch.tool=sketch-build *' provenance.sketch.states=trace \
    provenance.sketch.n_states=$(most 60 55)
is_brief || has 'provenance.sketch.recall[keep=2048].bytes_pass=663808 672512 * 794368 933632' \
    'provenance.sketch.recall[keep=2048].recall_at_10=0.9567 0.9867 0.9983 1 1 1' \
    'provenance.sketch.recall[rows=32].recall_of_best=0.9833 0.9833 0.9833 0.9833 0.9833 0.9833'
accepts specrt-bundle verify on1.specb
accepts specrt-eval compare "${pair[@]}" --bundle on1.specb --prompts "$prompts" --limit 1 \
    --max-tokens $(most 24 8) --num-steps 3 --topk 3 --policy sketch:64 \
    --policy window:100+sketch:64@signs=32@keep=512@scan=20000

# rows in clusters, of which a policy previews the best; OpenBLAS with another CPU's kernels, which
# add in another order, and another number of threads give the same bytes
clustered() { # FILE OPTION...
    accepts sketch-build --model "$sample/target.gguf" --trace a.trace --states 60 \
        --min-recall 0.8 --clusters 128 -o "$@"
}
clustered clusters.specb --threads 1 --json
has 'clusters[].probed=2 4 8 16 32' n_clusters=12? 'clusters[probed=32].recall_of_best=[01]*'
other_kernels() {
    OPENBLAS_CORETYPE=Prescott clustered older.specb --threads 3
    prints '*the best of 12? clusters reads (sketch:M@clusters=K)*'
    same clusters.specb older.specb
}
is_quick || other_kernels
accepts specrt-bundle info clusters.specb
prints '*two bits in 240, chosen by recorded states; in 12? clusters*'
accepts specrt-bundle verify clusters.specb
accepts specrt-eval compare "${pair[@]}" --bundle clusters.specb --prompts "$prompts" --limit 1 \
    --max-tokens $(most 24 8) --num-steps 3 --topk 3 --policy sketch:64@clusters=16@keep=500
refuses 2 "*clusters: the section has none*" specrt-eval compare "${pair[@]}" --bundle on1.specb \
    --prompts "$prompts" --limit 1 --policy sketch:64@clusters=16

# with enough states there is no warning, and the advice says what was seen of such a sketch
enough() {
    accepts specrt-eval record "${pair[@]}" --prompts "$prompts" --limit 12 --max-tokens 64 \
        --num-steps 3 --topk 1 -o enough.trace
    accepts sketch-build --model "$sample/target.gguf" --trace enough.trace --states 60 --json
    [ ! -s ../err ] || fail "a warning beside a trace: $(cat ../err)"
    has 'advice=--policy hybrid, with*window+sketch:256 (figures: bench/results/held-out.md)' \
        n_states_basis=542 'recall[keep=512].recall_at_10=0.9517 0.975 0.9817 0.9817 0.9833 0.9833'
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
has n_rows=5 n_cols=8 n_states=512 n_states_basis=0 'recall[].keep=1 2' 'recall[].rows=5 5' \
    'recall[].bytes_pass=4054 4118' 'recall[].recall_at_10=0.1 0.2' \
    'recall[].recall_of_best=0.7793 0.9395' \
    'advice=record states and give --trace before this drafts'
accepts sketch-build -q --model few.safetensors --min-recall 0 --clusters 5 --json
# a cluster of one row, whose block of 16 places holds all
has n_clusters=5 'clusters[].probed=1' 'clusters[].places=16' 'clusters[].recall_at_10=0.5' \
    'clusters[].recall_of_best=1'
refuses 2 "*--clusters: expected at most the rows, 5, found 6*" \
    sketch-build --model few.safetensors --clusters 6 --json

# without a trace it says what that costs and how to get one; the figures and the bundle say so too
accepts sketch-build -q --json --model "$sample/target.gguf" --signs 32 --states 20 \
    --min-recall 0 -o two.specb
warns "*warning: without --trace *may draft much worse*record --target $sample/target.gguf*"
[ "$(grep -c warning: ../err)" = 1 ] || fail "more than one line: $(cat ../err)"
has 'tool=sketch-build *' model=target.gguf tensor=token_embd.weight n_rows=32768 n_signs=32 \
    rank=240 states=synthetic n_states=20 n_states_basis=0 seed=1 'recall[].#=36' \
    'recall[rows=32].keep=512 1024 2048 4096 8192 16384' \
    'recall[rows=32].bytes_pass=303360 336128 401664 532736 794880 1319168' \
    'recall[rows=32].recall_at_10=0.45 0.595 0.67 0.755 0.795 0.82' \
    'recall[keep=16384].rows=32 64 128 256 512 1024' \
    'recall[keep=16384].recall_at_10=0.82 0.875 0.925 0.95 0.955 0.955'
accepts specrt-bundle info two.specb --json
has provenance.sketch.states=synthetic sketch.whitened=false sketch.n_signs=32

# where the bundle has ranks, the frequent rows come first (with the forced) and the
# basis leans towards frequent rows
ids corpus.bin 7 7 7 9 9 5
accepts vocabtrim-calibrate -q --tokenizer none --id-bytes 2 --n-vocab 300 --keep 299 \
    --corpus corpus.bin --holdout 0 --size 100 -o ranked.specb
for bundle in even ranked; do
    accepts sketch-build --model head.safetensors --min-recall 0 -o $bundle.specb
    [ $bundle = even ] && found="0.8063   0.8102" || found="0.7756   0.7789"
    prints "*512 synthetic states*
      37   $found *of the best row*MB that a pass reads*
     150   0.0182   0.0187   0.0197   0.0217
*fewest bytes for 0: --policy sketch:32@keep=4
*"
    accepts specrt-bundle extract $bundle.specb sketch -o $bundle.bin
done
rows=$((64 + 240 * 16 + 4 * 8)) # where docs/FORMAT.md puts them, behind a basis of f16
[ "$(od -An -td4 -j $rows -N 16 ranked.bin | xargs)" = "299 7 9 5" ] ||
    fail "rows are not in the order of ranks"
[ "$(od -An -td4 -j $rows -N 4 even.bin | tr -d ' ')" = 0 ] ||
    fail "without ranks, rows come by number"
cmp -s -n $rows even.bin ranked.bin && fail "ranks do not change the basis"

# measured with a trace of its own, all of the other chooses directions
held_out() {
    accepts sketch-build --json --model "$sample/target.gguf" --trace a.trace --held-out a.trace \
        --states 100 --min-recall 0.8
    has n_states=100 'recommended_keep=*'
    is_brief || has n_states_basis=161 \
        'recall[keep=512].recall_at_10=0.955 0.989 0.992 0.993 0.993 0.993'
    all=$(json ../out n_states_basis)
    accepts specrt-bundle info on1.specb --json
    measured=$((all / 2 < 60 ? all / 2 : 60)) # at most half of a trace
    has provenance.sketch.n_states_basis=$((all - measured))
}
is_quick || held_out

refuses 2 "*--held-out: expected one FILE, found 'a.trace' and 'b.trace'*" sketch-build \
    --model m.gguf --trace a.trace --held-out a.trace --held-out b.trace -o x.specb
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
    refuses 3 "*a.trace: tokenizer: *; record with this model and its drafter" sketch-build \
        --model "$other" --trace a.trace -o x.specb
