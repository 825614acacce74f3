# The whole head in fewer bits, the rival of cutting rows: POLICY@head=TYPE. Tokens stay plain
# decoding's, bytes are the copy's, and replay of states says what a run does.
. "$CLI_TESTS/lib.bash"
pair=(--target "$sample/target.gguf" --draft "$sample/draft.safetensors" --topk 1 --num-steps 3
    --prompts "$prompts/code.jsonl" "$prompts/math.jsonl" --limit 2 --max-tokens $(most 32 12))
row() { json "$1" "rows[policy=$2][domain=all].$3" | cut -d ' ' -f 1; }

accepts specrt-eval compare "${pair[@]}" --policy full@head=q8_0,full@head=q4_0 -o run.json
prints "*full@head=q4_0 *: all equal"
# of 256 columns in q8_0, and in 18 bytes for every 34
[ "$(row run.json full@head=q8_0 bytes_pass)" = "$(row run.json full bytes_pass)" ] ||
    fail "q8_0: expected the bytes of a head in q8_0"
awk "BEGIN { exit !($(row run.json full@head=q4_0 bytes_pass) * 34 == \
    $(row run.json full bytes_pass) * 18) }" || fail "q4_0: expected 18 bytes for each 32 columns"
holds run.json 'rows[policy=full@head=q4_0][domain=all].policy_text=full@head=q4_0' \
    'rows[policy=full@head=q4_0][domain=all].first_divergence=null'

# A head that is in q8_0 already drafts the same; 4 bits draft about what replay says.
accepts specrt-eval record "${pair[@]}" --policy full -q -o full.trace
heads=full,full@head=q8_0,full@head=q4_0$(most ",full@head=iq4_nl,static@head=q4_0" \
    ",full@head=iq4_nl,static@head=q4_0" "")
accepts vocabtrim-calibrate --tokenizer "$sample/target.gguf" --corpus "$prompts/code.jsonl" \
    --field prompt --size 300 -o a.specb
for threads in 1 2; do
    accepts specrt-eval replay --trace full.trace --model "$sample/target.gguf" --bundle a.specb \
        --policy $heads --threads $threads --json
    cp ../out replay$threads.json
done
same replay1.json replay2.json
for file in run.json replay1.json; do
    [ "$(row $file full@head=q8_0 accept_length)" = "$(row $file full accept_length)" ] ||
        fail "$file: q8_0 of q8_0 drafts otherwise"
done
awk "BEGIN { x = $(row replay1.json full@head=q4_0 accept_length) / \
    $(row run.json full@head=q4_0 accept_length); exit !(x > 0.94 && x < 1.06) }" ||
    fail "q4_0: replay finds $(row replay1.json full@head=q4_0 accept_length)"
holds replay1.json 'rows[policy=full@head=q4_0][domain=all].estimated=true'

accepts specrt-eval decode "${pair[@]}" --policy full@head=q4_0 --json
has 'policy=full@head=q4_0'

expected="expected q8_0, q4_0, q4_1 or iq4_nl at its end, found 'q5_0'"
refuses 2 "*policy 'full@head=q5_0': head: $expected" \
    specrt-eval compare "${pair[@]}" --policy full@head=q5_0
refuses 2 "*policy 'auto+full@head=q4_0': head: expected a fixed policy, *" \
    specrt-eval compare "${pair[@]}" --policy auto+full@head=q4_0
refuses 2 "*policy 'full@head=q4_0': head: expected the drafter's head as stored; *" \
    specrt-eval record "${pair[@]}" --policy full@head=q4_0 -o b.trace
refuses 2 "*policy 'full@head=q4_0': head: expected --model FILE and traces *" \
    specrt-eval replay --trace full.trace --policy full@head=q4_0
refuses 2 "*policy 'full@head=q4_0': head: expected * as stored with --trace, *" \
    specrt-eval plan "${pair[@]:0:4}" --trace full.trace --policy full@head=q4_0 --measure 1

is_quick && exit 0
# Without policies plan tries the copy that has fewer bytes than the file; q8_0 is what it has.
accepts specrt-eval plan "${pair[@]:0:4}" --prompt hi --max-tokens 8 --topk 1 --num-steps 2 \
    --measure 0.1 --json
has 'choices[policy=full@head=q4_0].policy_text=full@head=q4_0' \
    'choices[policy=full@head=q4_0].shortlist_rows=32768*'
! grep -q "head=q8_0" ../out || fail "q8_0 was tried over a head in q8_0"
