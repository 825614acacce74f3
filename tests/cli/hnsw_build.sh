# hnsw-build: its help, the same bytes for any threads, what a search finds, the gate, what it
# refuses, and what it leaves behind.
. "$CLI_TESTS/lib.bash"
helps hnsw-build
refuses 2 "*expected --model*" hnsw-build -o x.specb
refuses 2 "*expected -o FILE*" hnsw-build --model m.gguf
refuses 2 "*--metric: expected one of ip, augmented-l2, auto, found 'l2'" hnsw-build \
    --model m.gguf --metric l2 -o x.specb
refuses 2 "*--vectors: expected one of none, int8, f16, found 'f32'" hnsw-build --model m.gguf \
    --vectors f32 -o x.specb
refuses 1 "*m.gguf: *" hnsw-build --model m.gguf -o x.specb
echo "no model" >m.gguf
refuses 3 "*m.gguf: *" hnsw-build --model m.gguf -o x.specb

head_file model.safetensors 300
build() { hnsw-build --model model.safetensors --m 4 --ef-construction 16 --min-recall 0 "$@"; }
for threads in 1 3; do
    accepts build --threads $threads -o on$threads.specb
    prints '*300 of 300 rows*ef 64 finds 1.000 by products, 1.000 by distances*recall@10*
      16       0.960 * chosen
      32       0.995 *
     512       1.000 *'
done
same on1.specb on3.specb
accepts specrt-bundle verify on1.specb --model model.safetensors
accepts build --min-recall 0.99 --queries 100 --json -o more.specb
has 'tool=hnsw-build *' model=model.safetensors tensor=lm_head.weight n_rows=300 n_nodes=300 \
    n_reserved=0 n_zero=0 n_duplicate=0 metric=ip vectors=int8 m=4 ef_construction=16 seed=1 \
    queries=synthetic n_queries=100 n_repaired=0 sample_recall_ip=1 sample_recall_augmented_l2=1
# The first ef that finds enough is chosen; those up to 512 are shown.
has ef=32 recall_at_10=0.997 'sweep[].ef=16 32 64 128 256 512' \
    'sweep[].recall_at_10=0.966 0.997 1 1 1 1' \
    "queries_per_second=$(json ../out 'sweep[ef=32].queries_per_second')"
for metric in ip augmented-l2; do
    accepts build --metric $metric --vectors none --json
    [ $metric = ip ] && recall="0.9607 0.9949 1 1 1 1" || recall="0.9352 0.9896 0.9998 1 1 1"
    has metric=$metric vectors=none ef=16 n_queries=512 "sweep[].recall_at_10=$recall"
    json ../out sample_recall_ip >../json 2>&1 && fail "a sample for one metric"
done
# Rows of zeros, and rows that are there already; fewer rows than the ten best.
safetensors few.safetensors \
    lm_head.weight:BF16:5,2:803f0000803f0000000000000000804000000000
accepts hnsw-build --model few.safetensors --json
has n_rows=5 n_nodes=2 n_reserved=0 n_zero=2 n_duplicate=1 m=32 ef_construction=256 recall_at_10=1
# Placeholders of the model's own tokenizer.
of_target() {
    accepts hnsw-build --model "$CLI_TESTS/../../data/sample/target.gguf" --m 2 \
        --ef-construction 8 --metric ip --queries 1 --min-recall 0 --json
    has n_rows=32768 n_nodes=32758 n_reserved=10 n_repaired=9723 \
        'sweep[].recall_at_10=0 0 0 0 0.1 0.1'
}
is_quick || of_target
# Below the gate nothing is written, but on demand.
head_file large.safetensors 4000
few_links() { hnsw-build --model large.safetensors --m 2 --ef-construction 8 --metric ip \
    --queries 100 --min-recall 1 -q -o few.specb "$@" 2>../err; }
few_links
[ $? = 4 ] && [ ! -e few.specb ] || fail "expected exit 4 and no bundle"
warns '*finds 0.9* of the ten best at ef 2048, less than --min-recall 1; nothing is written*'
few_links --allow-below
[ $? = 4 ] && [ -e few.specb ] || fail "expected exit 4 and a bundle"
warns '*finds 0.9* of the ten best at ef 2048, less than --min-recall 1'
accepts hnsw-build --model large.safetensors --m 2 --ef-construction 8 --min-recall 0 --json
has metric=ip sample_recall_ip=0.8088 sample_recall_augmented_l2=0.5994 n_repaired=1208 \
    'sweep[].recall_at_10=0.5123 0.6705 0.8088 0.9018 0.9533 0.9766'

# Traces: something else, cut in the header, damaged behind it.
accepts specrt-eval record --target "$sample/target.gguf" --draft "$sample/draft.safetensors" \
    --prompt "A text" --max-tokens 4 -q -o good.trace
refuses 3 "*model.safetensors: not a specrt trace; *" build --trace model.safetensors -o x.specb
head -c 60 good.trace >cut.trace
refuses 3 "*cut.trace: not a specrt trace; *" build --trace cut.trace -o x.specb
{ head -c 400 good.trace; printf 'XXXX'; tail -c +405 good.trace; } >flipped.trace
refuses 3 "*flipped.trace: *" build --trace flipped.trace -o x.specb
refuses 3 "*good.trace: hidden states of width 256; expected 8, the columns of the head" build \
    --trace good.trace -o x.specb
