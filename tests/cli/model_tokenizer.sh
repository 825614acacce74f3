# A model whose tokenizer cannot be read is refused as vocabtrim-calibrate does; one without any
# is not.
. "$CLI_TESTS/lib.bash"
sample=$CLI_TESTS/../../data/sample/target.gguf
calibrate() { vocabtrim-calibrate --tokenizer "$1" --corpus "$1" -o x.specb; }
cluster() { cluster-build --model "$1" --router none --clusters 2 -o x.specb; }
hnsw() { hnsw-build --model "$1" -o x.specb; }

# rename FROM TO FILE : the sample target with another name, of as many letters, in its header.
rename() { LC_ALL=C sed "s/$1/$2/" "$sample" >"$3"; }

rename llama-bpe other-bpe pre.gguf
rename tokenizer.ggml.merges tokenizer.ggml.mergeX merges.gguf
for tool in calibrate cluster hnsw; do
    refuses 3 '*: pre.gguf: tokenizer.ggml.pre is "other-bpe"; supported: gpt-2 phi-2 *' $tool \
        pre.gguf
    refuses 3 '*: merges.gguf: tokenizer.ggml.merges; expected an array of strings' \
        $tool merges.gguf
done

# Where a tokenizer was given, or a trace says whose it is, the model's own is not needed.
accepts cluster-build --model pre.gguf --tokenizer "$sample" --router none --clusters 2 -o x.specb
prints '32,758 rows of 256 columns in 2 clusters of 6,458 to 26,300
*left out: 10 reserved rows, *'
accepts specrt-eval record --target "$sample" --draft "${sample%/*}/draft.safetensors" \
    --prompt "A text" --max-tokens 32 -q -o a.trace
accepts sketch-build --model pre.gguf --trace a.trace --states 20 --min-recall 0 -o s.specb

rename tokenizer.ggml.model tokenizer.ggml.modeX no_model.gguf
LC_ALL=C sed 's/tokenizer.ggml.tokens/tokenizer.ggml.tokenX/' no_model.gguf >none.gguf
rm x.specb
accepts cluster none.gguf
warns '*warning: none.gguf: expected a tokenizer *'
prints '32,768 rows of 256 columns in 2 clusters of 6,454 to 26,314
*'
refuses 3 \
    '*: none.gguf: no tokenizer in this GGUF; expected tokenizer.ggml.model and tokenizer.ggml.tokens' calibrate none.gguf
is_quick && exit 0
accepts hnsw-build --model none.gguf --m 2 --ef-construction 8 --queries 20 --min-recall 0 \
    -o h.specb
prints '*32,768 of 32,768 rows *0.295 by products, 0.060 by distances*      16       0.070 *chosen*'
