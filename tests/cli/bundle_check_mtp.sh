# Lists and files for MTP layers that engines load otherwise than they are meant: each fault by its
# name, with its fix; and those without.
. "$CLI_TESTS/lib.bash"
NARRATES=1
# A target of 354 tokens, of which three end a text or its thinking, with a head of 384 rows.
mkdir t
sed 's/"<tool>",/"<think>",/; s/"<left>",/"<\/think>",/' \
    "$CLI_TESTS/../golden/tokenizers/bytes.json" >t/tokenizer.json
echo '{"vocab_size": 384, "hidden_size": 8, "mtp_num_hidden_layers": 1}' >t/config.json
head_file t/model.safetensors 384
seq 0 353 | shuf --random-source=t/tokenizer.json >all.txt
accepts specrt-bundle import all.txt --tokenizer t --model t --size 100 -o x.specb
export_for() { specrt-bundle export x.specb "$@"; }

# finds CODES FILE FLAGS... : exactly these for the target t.
finds() { found "$1" "$2" --target t "${@:3}"; }

# Lists as we write them.
for format in text sglang-pt mtplx vllm-json npy; do
    accepts export_for --format $format -o list-$format
    finds "" list-$format --bundle x.specb
done
accepts export_for --format exllamav3 --size 256 -o list.blocks
finds "" list.blocks --for exllamav3 --bundle x.specb
finds "" list.blocks --bundle x.specb
accepts specrt-bundle check list-text --target t
warns "*list-text: text list, nothing found"

# Ids that the head has no rows for, repeated ones, another list of the same size, a shorter one.
sed '$d' list-text | cat - <(echo 384) >range.txt
finds ids-range range.txt --for sglang
finds "ids-range mapping" range.txt --bundle x.specb
sed '$d' list-text | cat - <(tail -n 2 list-text | head -n 1) >twice.txt
finds list twice.txt
tail -n 1 all.txt | cat <(sed '$d' list-text) - >other.txt
finds "" other.txt
finds mapping other.txt --bundle x.specb
head -n 1 list-text >one.txt
finds "thinking mapping" one.txt --bundle x.specb

# Terminators and thinking tags, by the target's special tokens.
grep -vx 346 list-text >endless.txt
finds terminators endless.txt
grep -vxE '347|349' list-text >thoughtless.txt
finds thinking thoughtless.txt
accepts specrt-bundle check list-text --target t --for text
specrt-bundle check thoughtless.txt --target t >../out 2>../err
prints "*thinking (every engine): 2 of the target's 2 thinking tags have no row (347, <think>)*"

# Another tokenizer of the same size: by the digest in the list, or by the bundle.
sed 's/\(_sha256": "\)..../\10123/' list-mtplx >digest.json
cmp -s digest.json list-mtplx && fail "the digest is the same"
finds tokenizer digest.json --for mtplx
mkdir u
cp t/tokenizer.json t/config.json t/model.safetensors u
sed -i 's/"Ā": 0,/"Ā": 1,/; s/"ā": 1,/"ā": 0,/' u/tokenizer.json
accepts specrt-bundle import all.txt --tokenizer u --model u --size 100 -o u.specb
finds "tokenizer" list-text --bundle u.specb
sed '/^# tok/s/.$/x/' list.blocks >unsigned.blocks
finds "" unsigned.blocks --for exllamav3
grep -v '^#' list.blocks >bare.blocks
finds "" bare.blocks --for exllamav3

# Blocks that are no groups, SGLang's tied heads and several layers.
sed '$d' list.blocks >seven.blocks
finds "groups" seven.blocks --for exllamav3
sed -i 's/"hidden/"tie_word_embeddings": true, "hidden/' t/config.json
finds tied-head list-sglang-pt --for sglang
finds "" list-mtplx --for mtplx
sed -i 's/"mtp_num_hidden_layers": 1/"mtp_num_hidden_layers": 0/' t/config.json
finds "" list-sglang-pt --for sglang
echo '{"vocab_size": 384, "hidden_size": 8, "num_nextn_predict_layers": 3}' >t/config.json
finds mtp-layers list-sglang-pt --for sglang

# A folder: cut as it should be, with another mapping of the same size, and tied.
echo '{"vocab_size": 384, "hidden_size": 8}' >t/config.json
mkdir m
cp t/config.json m
safetensors m/model.safetensors mtp.fc.weight:BF16:1,2:01020304
finds "" m
accepts export_for --drafter m --for specrt --target t -o cut
finds "" cut --bundle x.specb
finds "" cut --for specrt
finds mtp-head cut --for vllm
finds mtp-head cut --for llama.cpp
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
echo '{"vocab_size": 384, "draft_vocab_size": 100, "tie_word_embeddings": true}' >m/config.json
safetensors m/model.safetensors mtp.fc.weight:BF16:1,2:01020304 \
    model.embed_tokens.weight:BF16:2,1:01020304
finds "tied tied-head" m

# A head of another type than the target's cannot be compared with its rows.
mkdir f
cp t/config.json f
wide=$(for i in 1 2 3; do for k in 1 2 3 4 5 6 7 8; do printf 0000803f; done; done)
safetensors f/model.safetensors "d2t:I64:3:$(i64 3 8 10)" "lm_head.weight:F32:3,8:$wide" \
    mtp.fc.weight:BF16:1,2:01020304 "t2d:BOOL:384:$(mask 384 3 9 12)"
finds "draft-vocab-size terminators thinking" f --for specrt

# A GGUF: cut as it should be, with the list of another cut, and without the head that was cut.
sample=$CLI_TESTS/../../data/sample
target=$sample/target.gguf
"$CLI_BIN/../tests/mtp_gguf" "$target" "$sample/mtp.safetensors" whole.gguf whole || fail "no GGUF"
seq 30000 | shuf --random-source="$target" >all.txt
tac all.txt >back.txt
for list in all back; do
    accepts specrt-bundle import $list.txt --tokenizer "$target" --size 256 -o $list.specb
    accepts specrt-bundle export $list.specb --drafter whole.gguf --for llama.cpp -o $list.gguf -f
done
rm -r t
cp "$target" t
finds "" all.gguf --bundle all.specb
finds mapping all.gguf --bundle back.specb
finds architecture all.gguf --for llama.cpp
finds "" whole.gguf
cat <(head -c -2048 all.gguf) <(tail -c 2048 back.gguf) >swapped.gguf
finds d2t-rows swapped.gguf
prints '*"what":"250 of 256 rows are*' # all but those of specials
cat <(head -c -2048 all.gguf) <(for i in $(seq 256); do printf '\1\0\0\0\0\0\0\0'; done) >same.gguf
finds d2t-content same.gguf
cat <(head -c -8 all.gguf) <(printf '\0\0\1\0\0\0\0\0') >range.gguf
finds d2t-content range.gguf
sed 's/shared_head_head/shared_head_gone/' all.gguf >gone.gguf
finds tied-head gone.gguf
