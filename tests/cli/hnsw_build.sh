# hnsw-build refuses what it cannot do, and leaves nothing behind.
. "$CLI_TESTS/lib.bash"
refuses 2 "*give --model*" hnsw-build -o x.specb
refuses 2 "*nothing to write*" hnsw-build --model m.gguf
refuses 2 "*--metric: expected one of ip, augmented-l2, auto, found 'l2'" hnsw-build --model m.gguf --metric l2 -o x.specb
refuses 2 "*--vectors: expected one of none, int8, f16, found 'f32'" hnsw-build --model m.gguf --vectors f32 -o x.specb
refuses 1 "*m.gguf: *" hnsw-build --model m.gguf -o x.specb
echo "no model" >m.gguf
refuses 3 "*m.gguf: *" hnsw-build --model m.gguf -o x.specb
