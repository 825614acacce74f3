# What engines take for MTP layers: lists, and files with a cut head; what would draft wrong tokens
# is refused.
. "$CLI_TESTS/lib.bash"
accepts vocabtrim-calibrate --tokenizer "$target" --corpus "$root/data/corpus/qa" \
    --model "$target" --size 2048 -o list.specb
export_for() { specrt-bundle export list.specb --drafter "$@"; }
mkdir module
cp "$sample/mtp.safetensors" module/model.safetensors
cp "$sample/config.json" module/config.json

# Lists: ids by rank, and whole groups of them.
for engine in text mtplx sglang; do
    accepts export_for module --for $engine -o list.$engine
    warns "specrt-bundle: list.$engine: 2048 ids of 32768, format *
*its 2048 rows cover 82.09% *"
done
accepts specrt-bundle export list.specb --format text -o direct.txt
same list.text direct.txt
accepts specrt-bundle export list.specb --format sglang-pt -o direct.pt
same list.sglang direct.pt
json list.mtplx ids | tr ' ' '\n' | cmp - direct.txt || fail "$(tail -c 100 list.mtplx)"
json list.mtplx tokenizer_sha256 | grep -qE '^[0-9a-f]{64}$' || fail "$(tail -c 100 list.mtplx)"
accepts specrt-bundle map list.mtplx --format text -o back.txt
same list.text back.txt
accepts export_for module --for exllamav3 -o blocks.txt --json
has format=exllamav3 n_ids=2048 n_vocab=32768 n_missing=0 n_rows=2048 n_rows_before=32768 cut=true \
    coverage=0.6862
grep -v '^#' blocks.txt >bare.txt
awk 'NR % 8 == 1 ? $1 % 8 : $1 != last + 1 { bad = 1 }
    { last = $1 } END { exit bad || NR != 128 }' bare.txt ||
    fail "blocks are no whole groups of 128 ids: $(head blocks.txt)"
accepts specrt-bundle map blocks.txt --format text -o ids.txt
warns "specrt-bundle: ids.txt: 2048 ids of list of blocks (absolute), format text"
[ "$(wc -l <ids.txt)" = 2048 ] || fail "the blocks are $(wc -l <ids.txt) ids"
[ "$(head -n 3 direct.txt | grep -cxf ids.txt)" = 3 ] || fail "forced ids are missing"
accepts specrt-bundle map bare.txt --values blocks --format text -o bare-ids.txt
same ids.txt bare-ids.txt
refuses 2 "*format exllamav3: expected whole groups of 128 ids; export them from a bundle" \
    specrt-bundle map direct.txt --values absolute --format exllamav3 -o no.txt
refuses 2 "*size 100: expected at least 128 (groups of 128 with forced ids) and at most 32768" \
    export_for module --for exllamav3 --size 100 -o no.txt
refuses 3 "*list.sglang: --values blocks: expected a text list of blocks" specrt-bundle map \
    list.sglang --values blocks --format text -o no.txt

# A module cut to a folder drafts as the whole head does under that list; so does a GGUF.
decode() {
    accepts specrt-eval decode --target "$target" --max-tokens 24 --topk 1 --num-steps 4 \
        --prompt "What is a heap?" "$@"
    sed -n 's/.*: accept length \([0-9.]*\),.*/\1/p' ../err
}
under_list=$(decode --draft "$sample/mtp.safetensors" --bundle list.specb --policy static:2048)
refuses 2 "*module/model.safetensors: is an MTP drafter: *(--target)" \
    export_for module --for specrt -o no
accepts export_for module --for specrt --target "$target" -o cut
warns "specrt-bundle: cut: 2048 of 32768 rows of the head, for specrt
*"
holds cut/config.json draft_vocab_size=2048
[ "$(decode --draft cut --policy full)" = "$under_list" ] || fail "cut/ does not draft as its list"
"$CLI_BIN/../tests/mtp_gguf" "$target" "$sample/mtp.safetensors" whole.gguf whole || fail "no GGUF"
accepts export_for whole.gguf --for llama.cpp -o cut.gguf
accepts specrt-bundle export list.specb --format gguf --drafter whole.gguf -o direct.gguf
same cut.gguf direct.gguf
[ "$(decode --draft cut.gguf --policy full)" = "$under_list" ] || fail "cut.gguf drafts otherwise"

# A sidecar without a head takes the target's rows.
"$CLI_BIN/../tests/mtp_gguf" "$target" "$sample/mtp.safetensors" alone.gguf alone || fail "no GGUF"
refuses 3 "*alone.gguf: has no output.weight: llama.cpp would score the target's whole head; \
convert the drafter with its LM head, or name the target (--target)" export_for alone.gguf \
    --for llama.cpp -o no
accepts export_for alone.gguf --for llama.cpp --target "$target" -o alone-cut.gguf
[ "$(decode --draft alone-cut.gguf --policy full)" = "$under_list" ] ||
    fail "alone-cut.gguf drafts otherwise"
refuses 2 "*whole.gguf: has an LM head: expected no --target" export_for whole.gguf \
    --for llama.cpp --target "$target" -o no
refuses 2 "*module: a list takes no rows: expected no --target" export_for module --for text \
    --target "$target" -o no

# DeepSeek's names, in a whole model: the layer's own head is cut, and nothing of the model's own
# layers is there.
mkdir deep tied
layer=model.layers.2
row() { printf "$1%.0s" 1 2 3 4; }
head20=$(for i in $(seq 0 19); do row "$(printf %02x "$i")aa"; done)
kept() { for i; do row "$(printf %02x "$i")aa"; done; }
cp "$CLI_TESTS/../golden/bundles/v1.0-raw.specb" a.specb
echo '{"vocab_size": 20, "num_hidden_layers": 2, "hidden_size": 4}' >deep/config.json
safetensors deep/model.safetensors lm_head.weight:BF16:20,4:$(kept $(seq 20 39)) \
    model.layers.0.x.weight:BF16:1,1:0102 $layer.eh_proj.weight:BF16:1,2:01020304 \
    $layer.shared_head.head.weight:BF16:20,4:$head20 model.layers.3.eh_proj.weight:BF16:1,2:05060708
accepts specrt-bundle export a.specb --drafter deep --for specrt --size 4 -o deep4 --json
has engine=specrt n_ids=4 n_rows=4 n_rows_before=20 cut=true coverage=0.2842 n_vocab=20 \
    n_missing=0 same_weights=false token_map=null
accepts specrt-bundle export a.specb --format text --size 4 -o four.txt
mapfile -t four < <(sort -n four.txt)
offsets=$(for i in 0 1 2 3; do echo $((four[i] - i)); done)
safetensors expected.safetensors d2t:I64:4:$(i64 $offsets) $layer.eh_proj.weight:BF16:1,2:01020304 \
    $layer.shared_head.head.weight:BF16:4,4:$(kept "${four[@]}") \
    model.layers.3.eh_proj.weight:BF16:1,2:05060708 t2d:BOOL:20:$(mask 20 "${four[@]}")
cmp <(tail -c 92 deep4/model.safetensors) <(tail -c 92 expected.safetensors) ||
    fail "not the rows of the layer's own head"
grep -q 'lm_head\|layers.0' deep4/model.safetensors && fail "the target's tensors are there"

refuses 3 "*deep/model.safetensors: has 2 MTP layers: SGLang scores each by the whole head and \
leaves a list out" specrt-bundle export a.specb --drafter deep --for sglang -o no

# A tied head: its rows become a head of the drafter's own; SGLang would draft wrong tokens.
echo '{"text_config": {"vocab_size": 20, "hidden_size": 4, "tie_word_embeddings": true}}' \
    >tied/config.json
safetensors tied/model.safetensors model.embed_tokens.weight:BF16:20,4:$head20 \
    mtp.fc.weight:BF16:1,2:01020304
accepts specrt-bundle export a.specb --drafter tied --for specrt --size 4 -o tied4
grep -q 'lm_head.weight' tied4/model.safetensors || fail "no head"
grep -q 'embed_tokens' tied4/model.safetensors && fail "the embedding is there"
json tied4/config.json tie_word_embeddings text_config.tie_word_embeddings 2>&1 | grep -q true &&
    fail "still tied: $(cat tied4/config.json)"
refuses 3 "*tied/model.safetensors: its head is tied to the embedding: SGLang scores by the whole \
of it and takes wrong tokens from a list; start it without one" specrt-bundle export a.specb \
    --drafter tied --for sglang -o no
accepts specrt-bundle export a.specb --drafter tied --for text -o tied.txt
warns "specrt-bundle: tied.txt: 8 ids of 20, format text
*its 8 rows cover 58.95% *"

# vLLM's list is SGLang's, and of any file with MTP layers: the plug-in and vllm#59740 read it.
accepts export_for module --for vllm -o vllm.pt
accepts specrt-bundle export list.specb --format sglang-pt -o list.pt
same vllm.pt list.pt
accepts specrt-bundle export a.specb --drafter tied --for vllm -o tied.pt
accepts export_for whole.gguf --for vllm -o whole.pt

# Engines that take none, and files that are none.
refuses 3 "*: module/model.safetensors: is an MTP drafter: *convert_hf_to_gguf.py*" export_for \
    module --for llama.cpp -o no
refuses 3 "*module*: speculators reads MTP layers with the whole vocabulary alone" \
    export_for module --for speculators -o no
refuses 3 "*draft.safetensors: has no MTP layers: mtplx takes a list for those alone" export_for \
    "$sample/draft.safetensors" --for mtplx -o no
refuses 2 "*--values goes with a folder of safetensors that is cut" export_for module --for text \
    --values offset -o no
