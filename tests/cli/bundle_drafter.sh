# An EAGLE-3 checkpoint as a GGUF for llama.cpp, its head cut to a list; the list read back from it.
. "$CLI_TESTS/lib.bash"
# Rows for every third token.
"$CLI_BIN/../tests/eagle3_head" make "$target" head.safetensors 3 || fail "no head"
seq 0 2 3000 >map.txt
accepts specrt-bundle import map.txt --values absolute --tokenizer "$target" --model "$target" \
    -o x.specb
accepts specrt-bundle verify x.specb --tokenizer "$target" --model "$target"
prints "x.specb: ok, 3 sections; tokenizer matches; model matches"
convert() { specrt-bundle export x.specb --format gguf --drafter head.safetensors "$@"; }
accepts convert --target "$target" -o small.gguf
accepts specrt-bundle export x.specb --format text -o x.txt
kept=$(awk '$1 % 3 == 0' x.txt | wc -l)
all=$(wc -l <x.txt)
accepts convert --target "$target" -o again.gguf --json
has n_ids=$kept file=again.gguf format=gguf n_vocab=32768 n_missing=0 n_rows=499 \
    n_rows_before=10923 cut=true coverage=null
warns "*warning: head.safetensors: has no row for $((all - kept)) of the list's $all tokens, which \
are left out"
cmp small.gguf again.gguf || fail "two exports differ"
accepts specrt-bundle import small.gguf --tokenizer "$target" -o y.specb --json
has n_imported=$kept 'kind=GGUF d2t' values=absolute n_forced_added=6 n_selected=499 n_valid=505
accepts cluster-build --model small.gguf --clusters 2 --router none -o y.specb
prints "499 rows of 256 columns in 2 clusters of 195 to 304
*"

# Cut again, the most frequent tokens that have rows stay; other architectures take none.
accepts specrt-bundle export x.specb --format gguf --drafter small.gguf --size 100 \
    -o few.gguf --json
has n_ids=100 n_rows=100 n_rows_before=$kept cut=true coverage=null n_missing=204
warns "*warning: 2 of the bundle's terminators have no row in small.gguf: it cannot draft the end \
of a text"
accepts specrt-bundle import few.gguf --tokenizer "$target" -o few.specb --json
has n_imported=100
accepts specrt-bundle export x.specb --for llama.cpp --drafter small.gguf -o uncut.gguf
warns "*uncut.gguf: nothing was cut: *$kept rows, *"
refuses 2 "*size 600: *$kept, *small.gguf" \
    specrt-bundle export x.specb --format gguf --drafter small.gguf --size 600 -o no.gguf
# An engine's name does as well as the format; a target that llama.cpp does not load is named.
mkdir folder && cp head.safetensors folder/model.safetensors
echo '{"architectures": ["LlamaForCausalLMEagle3"], "vocab_size": 32768}' >folder/config.json
accepts specrt-bundle export x.specb --for llama.cpp --drafter folder --target "$target" \
    -o folder.gguf
same folder.gguf small.gguf
for flag in "--for llama.cpp" "--format gguf"; do
    refuses 2 "*--target folder: expected a GGUF, which llama.cpp loads, found a folder; convert \
it: python3 llama.cpp/convert_hf_to_gguf.py folder --outfile target.gguf" specrt-bundle export \
        x.specb $flag --drafter folder --target folder -o no.gguf
done
rm -r folder
refuses 3 "*target.gguf: architecture 'llama' without MTP layers: llama.cpp reads d2t of eagle3 \
and dflash drafters, and does not load others that are cut (wrong shape); draft with the whole \
file in specrt-llama --policy static:1501" \
    specrt-bundle export x.specb --format gguf --drafter "$target" -o no.gguf
refuses 2 "*head.safetensors: an EAGLE-3 checkpoint has no tokenizer: expected --target FILE.gguf, \
the model that it was trained for" convert -o no.gguf
refuses 2 "*small.gguf: has an LM head: expected no --target" \
    specrt-bundle export x.specb --format gguf --drafter small.gguf --target "$target" -o no.gguf
refuses 2 "*--target goes with --drafter" specrt-bundle export x.specb --format text \
    --target "$target" -o no.txt
refuses 2 "*: small.gguf: *" convert --target "$target" -o small.gguf
refuses 1 "*: /dev/full: *" convert --target "$target" -o /dev/full

# Without a head of its own it has rows for all of the list: the target's.
"$CLI_BIN/../tests/eagle3_head" make "$target" bare.safetensors 0 || fail "no drafter"
accepts specrt-bundle export x.specb --format gguf --drafter bare.safetensors --target "$target" \
    -o bare.gguf --json
has n_ids=$all n_rows=$all n_rows_before=32768
accepts specrt-bundle import bare.gguf --tokenizer "$target" -o bare.specb --json
has n_imported=$all n_forced_added=0

# Rows of a quantised head are those of the same head in f16.
"$CLI_BIN/../tests/eagle3_head" make "$target" halves.safetensors 1 || fail "no head"
for head in "$target" halves.safetensors; do
    accepts specrt-bundle export x.specb --format safetensors --head "$head" \
        -o "rows-${head##*.}.safetensors"
done
same rows-gguf.safetensors rows-safetensors.safetensors
rm halves.safetensors

# What config.json says is read, and held to the tensors.
for config in \
    '{"num_attention_heads": 7}|num_attention_heads: does not divide the rows of q_proj and k_proj' \
    '{"target_hidden_size": 64}|fc.weight: expected three states of the target a row; *' \
    '{"rope_scaling": {"factor": 8}}|config.json: rope_scaling: expected none; *'; do
    echo "${config%%|*}" >config.json
    refuses 3 "*head.safetensors: ${config#*|}" convert --target "$target" -o no.gguf
done
echo '{"rope_theta": 50000, "rope_scaling": null}' >config.json
accepts convert --target "$target" -o other.gguf
cmp -s small.gguf other.gguf && fail "rope_theta changes nothing"
echo "[]" >config.json
refuses 3 "*: config.json: *" convert --target "$target" -o no.gguf
rm config.json
head -c 100000 head.safetensors >cut.safetensors
refuses 3 "*: cut.safetensors: tensor \"fc.weight\": ends at byte 393216 of the data, which has \
98696 (is the download complete[?])" specrt-bundle export x.specb --format gguf \
    --drafter cut.safetensors -o no.gguf

# A target with room for every id, but of another tokenizer.
echo 5 6 7 8 >few.txt
accepts specrt-bundle import few.txt --values absolute --size 6 \
    --tokenizer "$CLI_TESTS/../golden/tokenizers/spm.json" -o z.specb
refuses 3 "*target.gguf: the model's own tokenizer is specrt sample target (gguf); expected \
SentencePiece-style BPE (tokenizer.json)" \
    specrt-bundle export z.specb --format gguf --drafter head.safetensors --target "$target" \
    -o no.gguf
[ ! -e no.gguf ] || fail "a refused file is there"
