# compare --align: drafters that learn beside those that stay; snapshots; bad input.
. "$CLI_TESTS/lib.bash"
compare() {
    specrt-eval compare --target "$target" --draft "$draft" --topk 1 --num-steps 3 --stream \
        --max-tokens "$(most 16 8)" --prompts "$prompts/qa.jsonl" --limit 2 \
        --policy window:64@min=16 "$@"
}
window=window:64@min=16
# lengths : accept lengths of the JSON, of rows and of requests
lengths() { json ../out 'rows[].accept_length' 'requests[].accept_length'; }
# drafts_as_frozen ALIGNMENT : each request of the JSON takes the cycles of the drafter that stays
drafts_as_frozen() { has "requests[policy=$window ($1)].n_cycles=$(json ../out \
    "requests[policy=$window].n_cycles")"; }

accepts compare --align lora@batch=4@rate=0.01
prints "*window:64@min=16 *
window:64@min=16 (lora@batch=4@rate=0.01) *
alignment * path A * path B * steps *
window:64@min=16 (lora@batch=4@rate=0.01) *compared with plain decoding: all equal"

# the same bytes on every run and for any threads; another rate drafts otherwise
accepts compare --align lora@batch=4@rate=0.01 --json --align-save a.safetensors
row="rows[policy=$window (lora@batch=4@rate=0.01)]"
for key in n_path_a n_path_b n_rejected n_dropped n_bad_steps loss bytes.parameters bytes.moments \
    bytes.activations n_looks n_taken n_returns n_restarts look_ms; do
    has "$row[domain=all].align.$key=*"
done
has "$row.align_ms=*"
json ../out "$row[domain=all].align.n_steps" "$row[domain=all].align.update_ms" | xargs |
    awk '{ exit !($1 > 0 && $2 > 0.01) }' || fail "no steps, or no milliseconds: $(cat ../out)"
! json ../out "$row[domain=qa].align" 2>/dev/null || fail "alignment is of all domains, once"
lengths >lengths
accepts compare --align lora@batch=4@rate=0.01 --json --align-save b.safetensors \
    --threads 1
cmp a.safetensors b.safetensors || fail "another run saves other bytes"
lengths | cmp - lengths || fail "another run drafts otherwise"
refuses 2 "*: a.safetensors: *" compare --align lora --align-save a.safetensors
holds adapter_config.json r=32
grep -aq 'base_model.model.layers.0.self_attn.q_proj.lora_A.weight' a.safetensors ||
    fail "not PEFT's names"

# a rate of 0 drafts as the frozen drafter does; what was learnt is there again
accepts compare --align lora@batch=4@rate=0 --json
drafts_as_frozen lora@batch=4@rate=0 || fail "a rate of 0 drafts otherwise than the frozen drafter"
accepts compare --align lora@rate=0 --align-load a.safetensors --align-save c.safetensors
cmp a.safetensors c.safetensors || fail "a snapshot came back other"

# OSD
accepts compare --align osd@interval=1 --align-save osd.safetensors
prints "*window:64@min=16 (osd@interval=1) *compared with plain decoding: all equal"

# what does not fit
refuses 2 "*--align: expected off, lora, lora-paper or osd, found 'on'" compare --align on
refuses 2 "*--align: 'optimiser=lion': expected rate, *" compare --align lora@optimiser=lion
refuses 2 "*--align-save and --align-load: expected --align lora or osd with them" compare \
    --align-load a.safetensors
refuses 2 "*--align-save: expected one --policy and one --align, *" compare --policy full \
    --align lora --align-save d.safetensors
refuses 2 "*--align-save: *" compare --align lora,osd \
    --align-save d.safetensors
refuses 2 "*--align: 'rat=1': *" compare --align lora@rat=1
refuses 2 "*--align: 'rank=257': *" compare --align lora@rank=257
refuses 2 "*--align: expected at most 8, found more" compare \
    --align lora,lora,lora,lora,lora,lora,lora,lora,lora
refuses 2 "*--align: 'rate=-1': *" compare --align lora@rate=-1
refuses 1 "*: nosuch: *" compare --align lora --align-load nosuch
refuses 3 "*lib.bash: *" compare --align lora --align-load "$CLI_TESTS/lib.bash"
refuses 3 "*osd.safetensors: *lora_A.weight: expected \[32, 256\], found none" compare \
    --align lora --align-load osd.safetensors
refuses 3 "*a.safetensors: *lora_A.weight: expected \[8, 256\], found \[32, 256\] of F32" \
    compare --align lora@rank=8@alpha=32 --align-load a.safetensors
refuses 3 "*a.safetensors: lora_alpha: expected 8, found 32" compare --align lora@rank=8 \
    --align-load a.safetensors
cp osd.safetensors other.safetensors
cp "${draft%/*}/config.json" .
draft=other.safetensors refuses 3 "*a.safetensors: is of another drafter; expected digest *, found \
*" compare --align lora --align-load a.safetensors
head -c 5000 a.safetensors >cut.safetensors
refuses 3 "*cut.safetensors: *" compare --align lora --align-load cut.safetensors
small=$CLI_TESTS/../../data/sample/draft-small.gguf
draft=$small refuses 3 "*alignment of all parameters: expected an EAGLE head, found an independent \
drafter*" compare --align osd

is_quick && exit 0
# several at once, each with a drafter of its own
accepts compare --align lora@batch=4@rate=0.01,osd@interval=1,lora@batch=2@optimiser=sgd
prints "*(lora@batch=4@rate=0.01) *(osd@interval=1) *(lora@batch=2@optimiser=sgd) *all equal"

# steps beside the cycles, plain descent
accepts compare --align lora@batch=4@optimiser=sgd --align-async
prints "*all equal"
accepts compare --align lora@batch=2 --temperature 0.7
prints "*all equal"

# a guard drafts with nothing that a rate of 1e9 made; several alignments
accepts compare --align lora@batch=4@rate=1e9@clip=0@guard=1 --json
has "rows[policy=$window (lora@batch=4@rate=1e9@clip=0@guard=1)][domain=all].align.n_looks=[1-9]*"
drafts_as_frozen lora@batch=4@rate=1e9@clip=0@guard=1 || fail "a guard drafts with ruin"
accepts compare --align lora@guard=2@batch=4,lora@batch=4,osd@guard=1@interval=1
prints "*looks*back*restarts*all equal"

# settings that ruin the drafter, or never train it: decoding goes on without loss
accepts compare --align lora@batch=4@rate=1e9@clip=0
prints "*all equal"
accepts compare --align osd@interval=1@rate=1e9
prints "*all equal"

# an independent drafter learns by adapters in every layer
draft=$small accepts compare --align lora@batch=4@rate=0.01 --align-save small.safetensors
prints "*(lora@batch=4@rate=0.01) *all equal"
grep -aq 'base_model.model.model.layers.1.self_attn.v_proj.lora_B.weight' small.safetensors ||
    fail "no adapter of the second layer"
draft=$small accepts compare --align lora@rate=0 --align-load small.safetensors \
    --align-save again.safetensors
cmp small.safetensors again.safetensors || fail "an independent drafter's snapshot came back other"
refuses 3 "*small.safetensors: is of another drafter; *" compare --align lora \
    --align-load small.safetensors
