# hnsw-build refuses what it cannot do, and leaves nothing behind.
. "$CLI_TESTS/lib.bash"
refuses 2 "*expected --model*" hnsw-build -o x.specb
refuses 2 "*expected -o FILE*" hnsw-build --model m.gguf
refuses 2 "*--metric: expected one of ip, augmented-l2, auto, found 'l2'" hnsw-build \
    --model m.gguf --metric l2 -o x.specb
refuses 2 "*--vectors: expected one of none, int8, f16, found 'f32'" hnsw-build --model m.gguf \
    --vectors f32 -o x.specb
refuses 1 "*m.gguf: *" hnsw-build --model m.gguf -o x.specb
echo "no model" >m.gguf
refuses 3 "*m.gguf: *" hnsw-build --model m.gguf -o x.specb

# Traces: something else, cut in the header, damaged behind it.
head_file model.safetensors 300
build() { hnsw-build --model model.safetensors --m 4 --ef-construction 16 --min-recall 0 "$@"; }
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
