# A drafter's folder cut to a bundle's ids, as engines load it; byte for byte where nothing is cut.
. "$CLI_TESTS/lib.bash"
cp "$CLI_TESTS/../golden/bundles/v1.0-raw.specb" a.specb
head_file head.safetensors 20
config() { # FILE ARCHITECTURE ROWS MORE
    echo "{\"architectures\": [\"$2\"], \"vocab_size\": 20, \"draft_vocab_size\": $3${4:-}}" >"$1"
}
direct() { # SIZE FILE : the list's rows of the whole head
    accepts specrt-bundle export a.specb --format safetensors --size "$1" --head head.safetensors \
        -o "$2"
}
cut() { specrt-bundle export a.specb --drafter "$@"; }
mkdir e
direct 12 e/model.safetensors
config e/config.json LlamaForCausalLMEagle3 12
echo '{"eos_token_id": 3}' >e/generation_config.json
echo weights >e/pytorch_model.bin

# Nothing to cut: the same bytes, and what stands beside them, but other weights.
accepts cut e --for vllm --size 12 -o same --json
has file=same engine=vllm n_ids=12 n_rows=12 n_rows_before=12 cut=false coverage=0.8105 n_vocab=20 \
    n_missing=0 same_weights=true token_map=null
for file in config.json model.safetensors generation_config.json; do same e/$file same/$file; done
[ "$(ls same | wc -l)" = 3 ] || fail "same/ holds $(ls same)"
for engine in vllm sglang specforge llama.cpp; do
    accepts cut e/model.safetensors --for $engine -o $engine
    warns "specrt-bundle: $engine: 8 of 12 rows of the head, for $engine
*specrt-bundle: $engine: its 8 rows cover 58.95% of the counted tokens"
    direct 8 eight.safetensors
    same $engine/model.safetensors eight.safetensors
    rm eight.safetensors
    holds $engine/config.json architectures=LlamaForCausalLMEagle3 vocab_size=20 draft_vocab_size=8
done
# Through the d2t of one that is cut already; ids without a row give way to the next ones.
accepts cut vllm --for vllm --size 5 -o five
direct 5 five.safetensors
same five/model.safetensors five.safetensors
holds five/config.json draft_vocab_size=5
refuses 2 "*size 9: expected at most 8, the ids of the bundle that have rows in \
vllm/model.safetensors" cut vllm --for vllm --size 9 -o x
refuses 2 "*size 1: expected at least 2 (the forced ids)" cut vllm --for vllm --size 1 -o x
accepts cut five --for sglang -o default
warns "specrt-bundle: default: 5 of 5 rows of the head, the weights as they were, for sglang
*: 14 ids of a higher rank have no row in this drafter
*warning: default: nothing was cut: the drafter had 5 rows, and the list is not smaller; *--size*
*default: its 5 rows cover 36.84% *"
holds default/config.json draft_vocab_size=5
same default/model.safetensors five.safetensors

# The drafter has the only copy of the rows that a cut leaves out.
for drafter in e e/model.safetensors; do
    refuses 2 "*: -o e/: would replace $drafter, which is read; name another place" cut $drafter \
        --for vllm --size 8 -f -o e/
done
refuses 2 "*: -o a.specb: would replace a.specb,*" specrt-bundle export a.specb --format text -f \
    -o a.specb

# A list of another model: it has tokens that the drafter lacks, or lacks more than padding.
mkdir small large
safetensors small/model.safetensors lm_head.weight:BF16:9,1:$(printf 'abcd%.0s' {1..9})
safetensors large/model.safetensors lm_head.weight:BF16:40,1:$(printf 'abcd%.0s' {1..40})
for size in small:9 large:40; do
    echo "{\"architectures\": [\"LlamaForCausalLMEagle3\"], \"vocab_size\": ${size#*:}}" \
        >${size%:*}/config.json
    refuses 3 "*: ${size%:*}/model.safetensors: expected a drafter of the bundle's vocabulary, 20 \
ids, found one of ${size#*:}; calibrate with the tokenizer of the drafter's target" \
        cut ${size%:*} --for vllm --size 4 -o x
done

# A flag alone that engines read otherwise; weights in several files become one.
mkdir tied parts
cp e/model.safetensors tied
config tied/config.json LlamaForCausalLMEagle3 12 ', "tie_word_embeddings": true'
accepts cut tied --for vllm --size 12 -o untied
holds untied/config.json tie_word_embeddings=false draft_vocab_size=12
list=d2t:I64:3:$(i64 3 9 16) mask=t2d:BOOL:20:$(mask 20 3 10 18)
rows=lm_head.weight:BF16:3,1:aaaabbbbcccc
safetensors parts/1.safetensors "$list" "$mask"
safetensors parts/2.safetensors "$rows"
echo '{"weight_map": {"d2t": "1.safetensors", "t2d": "1.safetensors",
    "lm_head.weight": "2.safetensors"}}' >parts/model.safetensors.index.json
config parts/config.json LlamaForCausalLMEagle3 3
accepts cut parts --for vllm --size 3 -o one --json
has same_weights=true n_ids=3 n_rows=3 n_rows_before=3 cut=false n_missing=3 coverage=0.1789
mkdir one-again && cp one/config.json one-again
safetensors one-again/model.safetensors "$list" "$rows" "$mask"
found "" one && found "" one-again
cmp <(tail -c 50 one/model.safetensors) <(tail -c 50 one-again/model.safetensors) ||
    fail "other rows"

# Any type of rows, scales beside them, both orders of ids, absolute ones, and a layer's other name.
mkdir f g
# EAGLE's own name of the target's class, beside all of an EAGLE-3 layer.
layer() { echo fc.weight:F32:1,3:$zeros "$1.hidden_norm.weight:F32:1:00000000" \
    "$1.self_attn.q_proj.weight:F32:1,2:${zeros:8}"; }
zeros=000000000000000000000000
config f/config.json LlamaForCausalLM 3 ', "tie_word_embeddings": true, "bias": true'
safetensors f/model.safetensors $(layer layers.0) d2t:I64:3:$(i64 3 9 1) \
    lm_head.weight:F8_E4M3:3,4:aaaaaaaabbbbbbbbcccccccc t2d:BOOL:20:$(mask 20 3 10)
refuses 3 "*: f/model.safetensors: *different ids*" cut f --for sglang -o x
rows="lm_head.weight:F8_E4M3:2,4:aaaaaaaabbbbbbbb"
safetensors f/model.safetensors d2t:I64:3:$(i64 10 2 16) $(layer layers.0) \
    layers.0.x:F32:1:01020304 \
    lm_head.weight:F8_E4M3:3,4:bbbbbbbbaaaaaaaacccccccc \
    lm_head.weight_scale:F32:3,1:020000000100000003000000 lm_head.input_scale:F32::0a0b0c0d \
    t2d:BOOL:20:$(mask 20 3 10 18)
accepts cut f --for sglang --size 2 -o cut
safetensors expected.safetensors d2t:I64:2:$(i64 3 9) fc.weight:F32:1,3:$zeros \
    lm_head.input_scale:F32::0a0b0c0d lm_head.weight_scale:F32:2,1:0100000002000000 \
    midlayer.norms:F32:1,3:$zeros midlayer.x:F32:1:01020304 "$rows" \
    t2d:BOOL:20:$(mask 20 3 10)
body() { tail -c "$2" "$1"; }
cmp <(body cut/model.safetensors 84) <(body expected.safetensors 84) || fail "not the rows of f"
grep -q midlayer.x cut/model.safetensors || fail "the layer is not renamed"
holds cut/config.json tie_word_embeddings=false architectures=LlamaForCausalLMEagle3 vocab_size=20 \
    draft_vocab_size=2 bias=true # SGLang's
accepts cut f --for vllm --size 2 -o cut-vllm
! json cut-vllm/config.json bias 2>/dev/null || fail "vLLM would take bias for the attention's"
holds cut-vllm/config.json architectures=LlamaForCausalLMEagle3 tie_word_embeddings=false
safetensors g/model.safetensors d2t:I64:3:$(i64 10 3 18) \
    lm_head.weight:BF16:3,1:bbbbaaaacccc t2d:BOOL:20:$(mask 20 3 10 18)
config g/config.json LlamaForCausalLMEagle3 3
accepts cut g --for vllm --size 2 -o ids
holds ids/config.json architectures=LlamaForCausalLMEagle3 draft_vocab_size=2
cmp <(body ids/model.safetensors 40) <(printf '\3\0\0\0\0\0\0\0\11\0\0\0\0\0\0\0\xaa\xaa\xbb\xbb'
    printf '\0\0\0\1\0\0\0\0\0\0\1\0\0\0\0\0\0\0\0\0') || fail "absolute ids are not made offsets"

# EAGLE-3 without a head drafts with the target's: the list's rows of that become its own.
mkdir h
safetensors h/model.safetensors midlayer.self_attn.q_proj.weight:F32:1:00000000
config h/config.json LlamaForCausalLMEagle3 20 ', "hidden_size": 8'
refuses 2 "*: h/model.safetensors: is an EAGLE-3 drafter: expected its head as a tensor \
lm_head.weight, found none; where it drafts with the target's, name that (--target)" cut h \
    --for vllm -o x
accepts cut h --for vllm --size 5 --target head.safetensors -o h5 --json
has n_ids=5 n_rows=5 n_rows_before=20 cut=true coverage=0.3684 same_weights=false
holds h5/config.json draft_vocab_size=5 hidden_size=8
cmp <(body h5/model.safetensors 100) <(body five.safetensors 100) || fail "not the target's rows"
accepts cut h5 --for sglang --size 5 -o h5-again
refuses 2 "*h5/model.safetensors: is an EAGLE-3 drafter: expected no --target: rows are taken of \
it where a drafter has no lm_head.weight" cut h5 --for vllm --target head.safetensors -o x
config h/config.json LlamaForCausalLMEagle3 20 ', "hidden_size": 16'
refuses 3 "*head.safetensors: rows of its head have 8 numbers; expected 16, hidden_size of \
h/config.json" cut h --for vllm --target head.safetensors -o x
head_file short.safetensors 3
refuses 3 "*short.safetensors: has no row for token 3; its head has 3 rows" cut h --for vllm \
    --target short.safetensors -o x

# A drafter that scores by the target's head: SGLang takes a list for it, the others do not.
echo "The patient has a fever and a cough." >text.txt
accepts vocabtrim-calibrate --tokenizer "$TOKENIZER" --corpus text.txt --holdout 0 --size 100 \
    -o s.specb
accepts specrt-bundle export s.specb --drafter "$sample/draft.safetensors" --for sglang -o sg
warns "specrt-bundle: sg: the drafter, and token_map.pt of 100 ids: start sglang with \
--speculative-token-map sg/token_map.pt
*its 100 rows cover 100.00% *"
accepts specrt-bundle export s.specb --format sglang-pt -o map.pt
same sg/token_map.pt map.pt
same sg/model.safetensors "$sample/draft.safetensors"
holds sg/config.json architectures=LlamaForCausalLMEagle hidden_size=256 num_hidden_layers=1 \
    vocab_size=32768 tie_word_embeddings=false
refuses 3 "*/draft.safetensors: is an EAGLE-1/2 drafter: it scores by the target's head, whole in \
this engine; SGLang takes a list for it (--for sglang), vLLM with the plug-in of the Python \
package" specrt-bundle export s.specb --drafter "$sample/draft.safetensors" --for vllm -o x

# What is refused leaves no folder.
mkdir whole plain
cp head.safetensors whole/model.safetensors
config whole/config.json LlamaForCausalLM 20
refuses 3 "*: whole/model.safetensors: is a model of its own: engines want its whole vocabulary; \
expected an EAGLE or MTP drafter" cut whole --for vllm -o x
safetensors plain/model.safetensors midlayer.self_attn.q_proj.weight:F32:1:00000000 \
    lm_head.weight:BF16:3,1:aaaabbbbcccc
config plain/config.json LlamaForCausalLMEagle3 3
refuses 3 "*: plain/model.safetensors: d2t: missing; expected one for the 3 rows of \
lm_head.weight, which are fewer than the target's 20; take it from the mapping that the drafter \
was trained with" cut plain --for vllm -o x
refuses 3 "*: e/config.json: is EAGLE's own, which speculators does not read; expected that of \
speculators; convert the drafter with speculators first" cut e --for speculators -o x
touch same/notes
refuses 2 "*same: expected a new or empty folder, found notes in it, which this command does not \
write" cut g --for vllm -f -o same
rm same/notes
refuses 2 "*/same/config.json: *" cut e --for vllm -o same
accepts cut e --for vllm -o same -f
refuses 2 "*e/config.json: expected a folder, found a file" cut e --for vllm \
    -o e/config.json
refuses 2 "*--for: *'x'" cut e --for x -o x
refuses 2 "*--for: expected a folder or file to write to (-o DIR)" cut e --for vllm
refuses 2 "*--for goes without --format and --head" cut e --for vllm --format text -o x
refuses 2 "*--for: expected the drafter to cut (--drafter DIR)" specrt-bundle export a.specb \
    --for vllm -o x
refuses 1 "*: none: *" cut none --for vllm -o x
refuses 1 "*no/such: cannot make the folder: No such file or directory" cut e --for vllm -o no/such
