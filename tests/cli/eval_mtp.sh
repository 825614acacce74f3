# MTP modules as drafters: the same drafts from safetensors and from GGUF, alone or behind the
# target's own layers; and files that do not fit, each a line.
. "$CLI_TESTS/lib.bash"
module=$sample/mtp.safetensors
for kind in whole alone; do
    "$CLI_BIN/../tests/mtp_gguf" "$target" "$module" $kind.gguf $kind || fail "no $kind.gguf"
done
decode() { specrt-eval decode --target "$target" --max-tokens 24 --topk 1 --num-steps 4 "$@"; }
accepts decode --prompt "What is a heap?"
cp ../out plain
drafted() {
    accepts decode --prompt "What is a heap?" --policy full "$@"
    cmp ../out plain || fail "other tokens with $*"
    sed -n 's/.*: full: accept length \([0-9.]*\),.*/\1/p' ../err
}
length=$(drafted --draft "$module")
for kind in whole alone; do
    [ "$(drafted --draft $kind.gguf)" = "$length" ] || fail "$kind.gguf drafts otherwise"
done
[ "$(target=whole.gguf && drafted --draft whole.gguf)" = "$length" ] ||
    fail "a tail changes its model"
[ "${length%.*}" -gt 1 ] || fail "accept length $length: nothing is drafted"
accepts specrt-eval compare --target "$target" --draft "$module" --topk 1 --num-steps 4 \
    --max-tokens 8 --policy microspec,full --prompt "Why?"
prints "*all equal*"

# A module whose head was cut to a list drafts as the whole head does under that list.
accepts vocabtrim-calibrate --tokenizer "$target" --corpus "$root/data/corpus/qa" --size 2048 \
    -o list.specb
accepts specrt-bundle export list.specb --format gguf --drafter whole.gguf -o cut.gguf
accepts decode --prompt "What is a heap?" --draft "$module" --bundle list.specb --policy static:2048
under_list=$(sed -n 's/.*: accept length \([0-9.]*\),.*/\1/p' ../err)
[ "$under_list" != "$length" ] || fail "the list misses nothing: $length"
[ "$(drafted --draft cut.gguf)" = "$under_list" ] || fail "cut.gguf does not draft as its list"
[ "$(target=cut.gguf && drafted --draft cut.gguf)" = "$under_list" ] ||
    fail "a cut tail changes its model"

# one with another tokenizer, of the same size; one that has none
LC_ALL=C sed 's/llama-bpe/llama-bpf/' alone.gguf >other.gguf
refuses 3 "*other.gguf: *" decode --draft other.gguf --prompt x
LC_ALL=C sed 's/tokenizer\.ggml\./tokenizer.none./g' alone.gguf >bare.gguf
accepts decode --draft bare.gguf --policy full --prompt x

# without a tensor, of another width, for another vocabulary
without() { LC_ALL=C sed "s/$1/$2/" "$3" >"$4"; }
without mtp.norm.weight mtp.mono.weight "$module" cut.safetensors
refuses 3 "*cut.safetensors: mtp.norm.weight: missing; expected [[]256]" \
    decode --draft cut.safetensors --prompt x
without nextn.hnorm nextn.horn_ alone.gguf short.gguf
refuses 3 "*short.gguf: blk.6.nextn.hnorm.weight: missing; expected [[]256]" \
    decode --draft short.gguf --prompt x
mkdir folder
cp "$module" folder
sed 's/"hidden_size": *[0-9]*/"hidden_size": 128/' "$sample/config.json" >folder/config.json
refuses 3 "*folder/config.json: hidden_size: expected the target's 256, found 128; *" \
    decode --draft folder/mtp.safetensors --prompt x
sed 's/"vocab_size": *[0-9]*/"vocab_size": 128256/' "$sample/config.json" >folder/config.json
refuses 3 "*folder/config.json: vocab_size: expected the target's 32768, found 128256; *" \
    decode --draft folder/mtp.safetensors --prompt x
refuses 3 "*alignment: expected an EAGLE head*, found an MTP module*" specrt-eval compare \
    --target "$target" --draft "$module" --align lora --policy full --max-tokens 4 --prompt x

is_quick && exit 0
# What calibration makes for one is of the target's head.
accepts specrt prepare --for specrt --target "$target" --drafter alone.gguf --limit 2 --tokens 4 \
    --text "$root/data/corpus/qa" --prompts "$root"/data/prompts/*.jsonl --with sketch \
    --policy sketch:128 -o x
prints "*sketch:128*"
accepts decode --draft "$module" --bundle x/model.specb --policy sketch:128 --prompt x
