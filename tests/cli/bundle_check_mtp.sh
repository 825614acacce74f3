# Lists and files for MTP layers that engines load otherwise than they are meant: each fault by its
# name, with its fix; and those without.
. "$CLI_TESTS/lib.bash"
# A target of 354 tokens, of which three end a text or its thinking, with a head of 384 rows.
mkdir t
sed 's/"<tool>",/"<think>",/; s/"<left>",/"<\/think>",/' \
    "$CLI_TESTS/../golden/tokenizers/bytes.json" >t/tokenizer.json
echo '{"vocab_size": 384, "hidden_size": 8, "mtp_num_hidden_layers": 1}' >t/config.json
head_file t/model.safetensors 384
seq 0 353 | shuf --random-source=t/tokenizer.json >all.txt
accepts specrt-bundle import all.txt --tokenizer t --model t --size 100 -o x.specb
warns "specrt-bundle: all.txt: text list, 354 ids; size 100
*its last 254 ids are beyond that size; --size 354 *"
export_for() { specrt-bundle export x.specb "$@"; }

# finds CODES FILE FLAGS... : exactly these for the target t.
finds() { found "$1" "$2" --target t "${@:3}"; }
lists="specrt-bundle export BUNDLE --drafter DIR --for ENGINE -o FILE, with a bundle of this target"
trained="take a list that has them, as vocabtrim-calibrate's; a trained head needs training for it"

# Lists as we write them.
for format in text sglang-pt mtplx vllm-json npy; do
    accepts export_for --format $format -o list-$format
    finds "" list-$format --bundle x.specb
    case $format in
    text) kind="text list" ;;
    sglang-pt) kind="torch list" ;;
    npy) kind="npy array" ;;
    *) kind="JSON list" ;;
    esac
    has "kind=$kind" target=t
done
accepts export_for --format exllamav3 --size 256 -o list.blocks
finds "" list.blocks --for exllamav3 --bundle x.specb
finds "" list.blocks --bundle x.specb
has 'kind=list of blocks'
accepts specrt-bundle check list-text --target t
warns "*list-text: text list, nothing found"

# Ids that the head has no rows for, repeated ones, another list of the same size, a shorter one.
sed '$d' list-text | cat - <(echo 384) >range.txt
finds ids-range range.txt --for sglang
finds "ids-range mapping" range.txt --bundle x.specb
finding ids-range wrong hand null "1 ids are no rows of the target's head, which has 384 (384)" \
    "$lists"
finding mapping fewer hand null "1 of its 100 ids are others than the bundle's of that size (183 \
is missing)" "export the list from this bundle; a trained head needs the one that it was trained \
with"
sed '$d' list-text | cat - <(tail -n 2 list-text | head -n 1) >twice.txt
finds list twice.txt
finding list wrong hand null "twice.txt: *id 21 *entries 98 and 99; *" "$lists"
tail -n 1 all.txt | cat <(sed '$d' list-text) - >other.txt
finds "" other.txt
finds mapping other.txt --bundle x.specb
head -n 1 list-text >one.txt
finds "thinking mapping" one.txt --bundle x.specb
finding mapping fewer hand null "size 1: *9 *354 *" "export a list from this bundle"
finding thinking fewer hand null "2 of the target's 2 thinking tags have no row (347, <think>): \
where thinking begins or ends is never drafted" "$trained"

# Terminators and thinking tags, by the target's special tokens.
grep -vx 346 list-text >endless.txt
finds terminators endless.txt
finding terminators fewer hand null "1 of * 1 *(346): *" "$trained"
grep -vxE '347|349' list-text >thoughtless.txt
finds thinking thoughtless.txt
accepts specrt-bundle check list-text --target t --for text
specrt-bundle check thoughtless.txt --target t >../out 2>../err
prints "*thinking (every engine): 2 of *(347, <think>)*"

# A mask of the tokenizer's ids, not of the head's rows.
accepts specrt-bundle export x.specb --format eagle3-pt --size 256 --n-vocab 1000 -o short.pt
finds t2d-length short.pt
finding t2d-length fewer export "specforge speculators" "t2d has 1000 entries; expected *, the \
rows of the target's head" "specrt-bundle export BUNDLE --format F --n-vocab N -o FILE"

# Another tokenizer of the same size: by the digest in the list, or by the bundle.
sed 's/\(_sha256": "\)..../\10123/' list-mtplx >digest.json
cmp -s digest.json list-mtplx && fail "the digest is the same"
finds tokenizer digest.json --for mtplx
again="calibrate with the target's tokenizer"
finding tokenizer wrong hand null "the list is for another tokenizer than the target's, gpt2-style \
BPE (*)" "$again"
mkdir u
cp t/tokenizer.json t/config.json t/model.safetensors u
sed -i 's/"Ā": 0,/"Ā": 1,/; s/"ā": 1,/"ā": 0,/' u/tokenizer.json
accepts specrt-bundle import all.txt --tokenizer u --model u --size 100 -o u.specb
echo "A word." >word.txt
refuses 3 "*u: the model's own tokenizer is gpt2-style BPE (*); expected gpt2-style BPE (*)" \
    vocabtrim-calibrate --tokenizer t --corpus word.txt --holdout 0 --model u -o v.specb
finds "tokenizer" list-text --bundle u.specb
finding tokenizer wrong hand null "the bundle is for another *" "$again"
sed '/^# tok/s/.$/x/' list.blocks >unsigned.blocks
finds "" unsigned.blocks --for exllamav3
grep -v '^#' list.blocks >bare.blocks
finds "" bare.blocks --for exllamav3

# Blocks that are no groups, SGLang's tied heads and several layers.
sed '$d' list.blocks >seven.blocks
finds "groups" seven.blocks --for exllamav3
finding groups wrong hand exllamav3 "blocks are no whole groups of 128 ids, ascending: exllamav3 \
refuses them" "$lists"
sed -i 's/"hidden/"tie_word_embeddings": true, "hidden/' t/config.json
finds tied-head list-sglang-pt --for sglang
without="start SGLang without a list for this target"
finding tied-head wrong export sglang "the head is tied to the embedding: SGLang scores MTP layers \
by the whole of it and takes wrong tokens from a list" "$without"
finds "" list-mtplx --for mtplx
sed -i 's/"mtp_num_hidden_layers": 1/"mtp_num_hidden_layers": 0/' t/config.json
finds "" list-sglang-pt --for sglang
echo '{"vocab_size": 384, "hidden_size": 8, "num_nextn_predict_layers": 3}' >t/config.json
finds mtp-layers list-sglang-pt --for sglang
finding mtp-layers wrong hand sglang "of 3 MTP layers SGLang scores each by the whole head: the \
list is left out" "$without"

# A folder: cut as it should be, with another mapping of the same size, and tied.
echo '{"vocab_size": 384, "hidden_size": 8}' >t/config.json
mkdir m
cp t/config.json m
safetensors m/model.safetensors mtp.fc.weight:BF16:1,2:01020304
finds "" m
has 'kind=an MTP drafter'
accepts export_for --drafter m --for specrt --target t -o cut
finds "" cut --bundle x.specb
finds "" cut --for specrt
finds mtp-head cut --for vllm
page="docs/mtp.md has what this engine takes for MTP layers"
finding mtp-head wrong hand vllm "a cut head is of no use here: vLLM scores MTP layers with the \
target's whole head, whatever head they bring" "$page"
finds mtp-head cut --for llama.cpp
finding mtp-head wrong hand llama.cpp "*convert the model (convert_hf_to_gguf.py, --mtp for the \
layers alone) and cut the GGUF" "$page"
accepts specrt-bundle import other.txt --tokenizer t --model t --size 100 -o other.specb
accepts specrt-bundle export other.specb --drafter m --for specrt --target t -o mixed
# The head of one cut with the list of the other: rows begin at the same place of both files.
whole=$(stat -c %s cut/model.safetensors)
[ "$whole" = "$(stat -c %s mixed/model.safetensors)" ] || fail "other sizes"
tail=$((100 * 16 + 4 + 384)) # what is behind d2t: the head, mtp.fc and t2d
cat <(head -c $((whole - tail)) mixed/model.safetensors) \
    <(tail -c $tail cut/model.safetensors | head -c $((100 * 16 + 4))) \
    <(tail -c 384 mixed/model.safetensors) >swapped
mv swapped mixed/model.safetensors
finds d2t-rows mixed
again="cut the head again, or take the list that it was cut with"
finding d2t-rows wrong hand null "10 of 100 rows are not the target's rows of the listed tokens: \
row 43 is token 148's, listed as 147" "$again"
echo '{"vocab_size": 384, "draft_vocab_size": 100, "tie_word_embeddings": true}' >m/config.json
safetensors m/model.safetensors mtp.fc.weight:BF16:1,2:01020304 \
    model.embed_tokens.weight:BF16:2,1:01020304
finds "tied tied-head" m
finding tied-head wrong export null "the head is tied to the embedding and not cut: drafts are \
scored by the whole of it" "specrt-bundle export BUNDLE --drafter DIR --for ENGINE -o OUT"

# A head of another type than the target's: rows of no token, of the listed ones, and of others.
mkdir f
cp t/config.json f
tail -c $((384 * 16)) t/model.safetensors >rows
row() { od -An -v -tx1 -j $(($1 * 16)) -N 16 rows | tr -d ' \n'; }
wide() { for id; do row "$id"; done | sed 's/..../0000&/g'; } # bf16 as f32
finds_wide() { # FINDING ROWS
    safetensors f/model.safetensors "d2t:I64:3:$(i64 3 8 10)" "lm_head.weight:F32:3,8:$2" \
        mtp.fc.weight:BF16:1,2:01020304 "t2d:BOOL:384:$(mask 384 3 9 12)"
    finds "draft-vocab-size ${1:+$1 }terminators thinking" f --for specrt
}
finds_wide "" "$(for i in 1 2 3; do printf %08x%056x 0x0000803f 0; done)"
finds_wide "" "$(wide 3 9 12)"
finds_wide d2t-rows "$(wide 3 12 9)"
finding d2t-rows wrong hand null "2 of 3 rows are not the target's rows of the listed tokens: \
row 1 is token 12's, listed as 9" "$again"

# A GGUF: cut as it should be, with the list of another cut, and without the head that was cut.
"$CLI_BIN/../tests/mtp_gguf" "$target" "$sample/mtp.safetensors" whole.gguf whole || fail "no GGUF"
seq 30000 | shuf --random-source="$target" >all.txt
tac all.txt >back.txt
for list in all back; do
    accepts specrt-bundle import $list.txt --tokenizer "$target" --size 256 -o $list.specb
    warns "*$list.txt: text list, 30000 ids; size 256
*6 forced ids *
*its last 29750 ids *--size 30006 *"
    accepts specrt-bundle export $list.specb --drafter whole.gguf --for llama.cpp -o $list.gguf -f
done
rm -r t
cp "$target" t
finds "" all.gguf --bundle all.specb
has 'kind=a model with MTP layers'
finds mapping all.gguf --bundle back.specb
has 'findings[0].what=250 of its 256 ids *(16538 is missing)'
finds architecture all.gguf --for llama.cpp
finding architecture wrong export llama.cpp "architecture llama: releases of llama.cpp read d2t of \
eagle3 and dflash alone, and do not load this file" "build llama.cpp with its pull request 29143"
finds "" whole.gguf
finds gguf whole.gguf --for vllm
finding gguf wrong hand "vllm sglang specforge speculators" "is a GGUF: *folders of safetensors" \
    "specrt-bundle export BUNDLE --drafter DIR --for ENGINE -o OUT, from the folder"
cat <(head -c -2048 all.gguf) <(tail -c 2048 back.gguf) >swapped.gguf
finds d2t-rows swapped.gguf
has "findings[0].what=250 of 256 rows *: row 6 is token 18248's, listed as 16538" # not specials
cat <(head -c -2048 all.gguf) <(for i in $(seq 256); do printf '\1\0\0\0\0\0\0\0'; done) >same.gguf
finds d2t-content same.gguf
finding d2t-content wrong hand null "same.gguf: GGUF d2t *id 1 *entries 0 and 1; *" \
    "specrt-bundle export BUNDLE --drafter FILE --for llama.cpp -o OUT.gguf, from the whole file"
cat <(head -c -8 all.gguf) <(printf '\0\0\1\0\0\0\0\0') >range.gguf
finds d2t-content range.gguf
has 'findings[0].what=range.gguf: *entry 255 is 65536; *[[]0, 32768)'
sed 's/shared_head_head/shared_head_gone/' all.gguf >gone.gguf
finds tied-head gone.gguf
has "findings[0].what=there is a d2t of 256 entries and no head that is cut: drafts are scored by \
the whole embedding, which is tied to the head"
