# hnsw-build: the same bytes for any threads, what a search finds, the gate, what it refuses, and
# what it leaves behind.
. "$CLI_TESTS/lib.bash"
NARRATES=1
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
    prints '*300 of 300 rows*a sample at ef 64 finds *recall@10*synthetic queries*16 *chosen*512 *'
done
same on1.specb on3.specb
accepts specrt-bundle verify on1.specb --model model.safetensors
accepts build --min-recall 0.99 --queries 100 --json -o more.specb
head='"n_rows":300,"n_nodes":300,"n_reserved":0,"n_zero":0,"n_duplicate":0'
prints "{*$head,\"metric\":\"*\",\"vectors\":\"int8\",*\"n_queries\":100,\"recall_at_10\":*}"
# The first ef that finds enough is chosen; those up to 512 are shown.
steps=$(grep -o '"ef":[0-9]*' ../out | tail -n +2 | cut -d : -f 2 | xargs)
[ "$steps" = "16 32 64 128 256 512" ] || fail "other steps: $(cat ../out)"
speed=',"queries_per_second":'
grep -qE '"ef":32,"recall_at_10":0.99[0-9]*'$speed'([0-9.]+)\}.*\]'$speed'\1,' ../out ||
    fail "not the figures of ef 32: $(cat ../out)"
prints '{*"ef":32,*"recall_at_10":0.99*"sweep":\[{"ef":16,"recall_at_10":0.9[0-8]*}'
for metric in ip augmented-l2; do
    accepts build --metric $metric --vectors none --json
    prints "{*\"metric\":\"$metric\",\"vectors\":\"none\",*}"
    grep -q sample_recall ../out && fail "a sample for one metric"
done
# Rows of zeros, and rows that are there already; fewer rows than the ten best.
safetensors few.safetensors \
    lm_head.weight:BF16:5,2:803f0000803f0000000000000000804000000000
accepts hnsw-build --model few.safetensors --json
prints '{*"n_rows":5,"n_nodes":2,"n_reserved":0,"n_zero":2,"n_duplicate":1,*"recall_at_10":1,*'
# Placeholders of the model's own tokenizer.
accepts hnsw-build --model "$CLI_TESTS/../../data/sample/target.gguf" --m 2 --ef-construction 8 \
    --metric ip --queries 1 --min-recall 0 --json
prints '*"n_rows":32768,"n_nodes":32758,"n_reserved":10,*'
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
prints '{*"metric":"ip",*"sample_recall_ip":0.[89]*"sample_recall_augmented_l2":0.[567]*}'

# Traces: something else, cut in the header, damaged behind it.
sample=$CLI_TESTS/../../data/sample
accepts specrt-eval record --target "$sample/target.gguf" --draft "$sample/draft.safetensors" \
    --prompt "A text" --max-tokens 4 -q -o good.trace
refuses 3 "*model.safetensors: not a specrt trace; *" build --trace model.safetensors -o x.specb
head -c 60 good.trace >cut.trace
refuses 3 "*cut.trace: not a specrt trace; *" build --trace cut.trace -o x.specb
{ head -c 400 good.trace; printf 'XXXX'; tail -c +405 good.trace; } >flipped.trace
refuses 3 "*flipped.trace: *" build --trace flipped.trace -o x.specb
refuses 3 "*good.trace: hidden states of width 256; expected 8, the columns of the head" build \
    --trace good.trace -o x.specb
