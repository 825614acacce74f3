# Policies side by side on one drafter: table, JSON and page; every token is checked.
. "$CLI_TESTS/lib.bash"
compare() {
    specrt-eval compare --target "$target" --draft "$draft" --topk 1 --num-steps 2 --max-tokens 8 \
        --prompts "$prompts/code.jsonl" "$prompts/qa.jsonl" --limit 2 "$@"
}

accepts compare --policy window:16@min=8,full --policy microspec-paper --report page.html -o it.json
prints "* accept *policy *length *tok/s *
plain *
full *32768 *
window:16@min=8 *
microspec-paper *
accept length * code * qa*% in loops *
accepted at * 1.* 2.*microspec-paper is window:3072@mode=stream*
* rows a pass *keeps *
*plain*over whole requests (prompt *, answer * tokens)*4 turns, 32 tokens, *% of them in *\
(period <= 64)*; 96 tokens compared with plain decoding: all equal"
[ "$(grep -o "<svg[^>]*role=.img" page.html | wc -l)" = 4 ] || fail "expected four plots"
grep -q "Speed, times plain decoding, by task" page.html || fail "no speed by task"
grep -q "over whole requests (prompt " page.html || fail "no advice"
grep -q "% of tokens in loops" page.html || fail "no loops by task"
grep -qE 'nan|inf[^o]' page.html && fail "a page with nan"
# A cycle is the sum of its parts: draft, head, target, verify, update.
sed -n '/<h2>Milliseconds of a cycle/,/<\/table>/s/<[^>]*>/ /gp' page.html >times
awk '$1 == "plain" { n += $2 == "-" && $3 == "-" && $6 == "-" && $7 > 0 }
    $1 == "full" { n += ($2 + $3 + $4 + $5 + $6 - $7) ^ 2 < 0.002 && $2 * $3 * $4 * $8 > 0 }
    END { exit n != 2 }' times || fail "$(cat times)"
refuses 2 "*: page.html: *" compare --report page.html
holds it.json target=target.gguf recommended rows[0].policy=plain
refuses 2 "*: it.json: *" compare -o it.json

# A stream: what was learnt stays, one change of domain; what lists held, what events cost.
length=$(most 24 10)
accepts compare --policy microspec --stream --lists --max-tokens $length
prints "*best tokens held*
full * 100.00 *100.0 *100.0 *100.0 *- *- *-
microspec * *tokens since the domain changed (1 times)*before*0-32*256-*all equal"
awk '/best tokens held/ { on = 1; next } !NF { on = 0 }
    on && $1 != "policy" { for (i = 2; i <= NF; i++) if ($i > 100) exit 1 }' ../out ||
    fail "more than all: $(cat ../out)"
rows=$(awk '$1 == "microspec" { print $5; exit }' ../out)
accepts compare --policy microspec --max-tokens $length
[ "$rows" -ge "$(awk '$1 == "microspec" { print $5; exit }' ../out)" ] ||
    fail "a stream forgets: $rows rows"
# Turns of a conversation: forgotten, or kept.
echo '{"turns": ["Name a colour.", "Another one, please.", "Name a town by the sea."]}' \
    >turns.jsonl
turns() {
    specrt-eval compare --target "$target" --draft "$draft" --topk 1 --num-steps 2 --max-tokens \
        $length --prompts turns.jsonl --policy retrieve:200@graph=off+window:8@min=8 "$@"
}
accepts turns --memory conversation
prints "*compared with plain decoding: all equal*"
rows=$(awk '$1 ~ /^retrieve/ { print $5; exit }' ../out)
is_quick || accepts turns
is_quick || [ "$rows" -gt "$(awk '$1 ~ /^retrieve/ { print $5; exit }' ../out)" ] ||
    fail "a conversation forgets: $rows rows"
refuses 2 "*--memory: expected off or conversation, found 'user'" turns --memory user
refuses 2 "*--memory conversation: expected no --stream*" turns --memory conversation --stream
accepts compare --policy retrieve@graph=off+window:8@min=8 --json --lists --stream --max-tokens \
    $(most 16 8)
row='rows[policy=retrieve@graph=off+window:8@min=8][domain=all]'
has "$row.mass=0.*" "$row.recall.10=*" "$row.recall.50=*" "$row.recall.100=*" \
    "$row.recall_beyond_fixed.10=*" "$row.events_per_cycle=*" "$row.update_event_ms=*" \
    "$row.accept_length_since_change.before=*" "$row.accept_length_since_change.256-=null"

accepts compare --json --temperature 0.7
for key in recommended recommended_policy recommended_by as_fast outcome pruning_outcome advice; do
    has "$key=*"
done
row='rows[policy=full][domain=all]'
for key in worst_domain worst_accept_full speedup_request n_tokens accept_length coverage \
    shortlist_rows draft_ms head_ms update_ms verify_ms prefill_ms tokens_per_second speedup_plain \
    speedup_full bytes_extra drafter ci95 n_compared loop_share acceptance; do
    has "$row.$key=*"
done
has "$row.n_prompts=4" "$row.temperature=0.7" "$row.first_divergence=null" \
    'rows[].domain=all code qa all code qa all code qa' 'rows[domain=all].policy=plain full *'
accepts compare --temperature 0.7 --sampled-drafts
prints "*; 0 tokens compared with plain decoding: sampled drafts have its distribution*"
