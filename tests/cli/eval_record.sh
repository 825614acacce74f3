# What record writes is what was decoded: tokens, the target's best, the drafter's along the path.
. "$CLI_TESTS/lib.bash"
trace() { "$CLI_BIN/../tests/trace" "$@"; }
prompts=$CLI_TESTS/../../data/prompts/code.jsonl
accepts specrt-eval record --target "$target" --draft "$draft" --prompts "$prompts" --limit 2 \
    --max-tokens 12 --num-steps 3 --topk 2 --num-draft-tokens 6 -o a.trace
warns "*: a.trace: 12 cycles, 24 tokens
*: full: accept length 2.17, 100.0% covered, 32768 shortlist rows"
accepts trace a.trace
cp ../out a.txt
# the emitted tokens : the target's best : the drafter's
grep -qx 'c 3780 198 1206 302 : 3780 198 1206 302 : 3780 198 1206 -1' a.txt &&
    grep -qx 'c 15740 : 15740 : 11965' a.txt || fail "$(cat a.txt)"
[ "$(grep -c '^s code:' a.txt)" = 2 ] || fail "expected two sequences"
[ "$(tail -n 1 a.txt)" = whole ] || fail "expected a whole trace"
# greedy: each emitted token is the target's best; the drafter was asked at the root of every cycle
awk -F ' : | :$' \
    '/^c/ { if (substr($1, 2) != " " $2) bad = 1; split($3, d, " "); if (d[1] < 0) bad = 1; n++ }
    END { exit bad || n < 4 }' <(sed 's/ :/ : /g; s/  */ /g' a.txt) ||
    { cat a.txt; fail "rows are not what was decoded"; }
# the target's ten best where the last token of a cycle was drawn
accepts trace --tops a.trace
awk '/^c/ { split($0, p, " *: *"); n = split(p[1], t); k = split(p[2], b)
    if (k != 10 || t[n] != b[1]) bad = 1 } END { exit bad }' ../out || fail "other best tokens"
# a head with a row for every third token: its best are ids, not rows
"$CLI_BIN/../tests/eagle3_head" make "$target" third.safetensors 3 || fail "no head"
accepts specrt-eval record --target "$target" --draft third.safetensors --prompts "$prompts" \
    --limit 2 --max-tokens 12 --num-steps 3 --topk 1 -o third.trace
warns "*: third.trace: 20 cycles, 24 tokens
*: full: accept length 1.10, 45.5% covered, 10923 shortlist rows"
accepts trace third.trace
awk '/^c/ { split($0, part, ":"); n = split(part[3], d, " ")
        for (i = 1; i <= n; i++) bad += d[i] > 0 && d[i] % 3; all += n }
    END { exit bad || all < 8 }' ../out || { cat ../out; fail "rows are not named by ids"; }
# the first prompt has the tokens of the target alone; the one that comes with it is in no cycle
says_as_generate() { # TRACE.txt PROMPTS.jsonl FLAGS...
    accepts specrt-eval generate --target "$target" --prompts "$2" --max-tokens 12 --ids "${@:3}"
    local ids found
    ids=$(json ../out '[0].ids')
    found=$(awk '/^s/ && n++ { exit } /^c/ { sub(/^c/, ""); sub(/ :.*/, ""); printf "%s", $0 }' \
        "$1")
    case "$found " in " ${ids#* } "*) ;; *) fail "expected $ids, found$found" ;; esac
}
says_as_generate a.txt "$prompts" --limit 2
# the same file whatever the threads; a cut one reads up to the cut
accepts specrt-eval record --target "$target" --draft "$draft" --prompts "$prompts" --limit 2 \
    --max-tokens 12 --num-steps 3 --topk 2 --num-draft-tokens 6 --threads 3 -o b.trace
same a.trace b.trace
# sampled, with a prompt that does not fit passed over: draws are those of the prompt's number
{ for text in "The cat" "$(printf 'long %.0s' $(seq 3000))" "One, two," "x ="; do
    echo "{\"prompt\": \"$text\"}"; done; } >mixed.jsonl
for threads in 1 3; do
    accepts specrt-eval record --target "$target" --draft "$draft" --prompts mixed.jsonl \
        --max-tokens 12 --num-steps 3 --topk 1 --temperature 0.8 --threads $threads \
        -o t$threads.trace
    warns "*warning: 1 prompt was passed over: 1 unfit, first mixed.jsonl:2: prompt: expected 1 to \
2047 tokens, found 3011
*: t$threads.trace: 22 cycles, 36 tokens
*: full: accept length 1.50, *"
done
same t1.trace t3.trace
accepts trace t1.trace
[ "$(grep -c '^s ' ../out)" = 3 ] || fail "expected three sequences"
grep -qx 'c 727 284 220 17 : 727 284 220 17 : 727 284 220 -1' ../out || fail "$(cat ../out)"
cp ../out t1.txt
says_as_generate t1.txt mixed.jsonl --temperature 0.8
head -c 2000 a.trace >cut.trace
accepts trace cut.trace
prints '*cut'
refuses 2 "*expected --draft FILE and -o FILE for the trace" specrt-eval record --target "$target" \
    --prompts "$prompts"
refuses 2 "*: a.trace: *" specrt-eval record --target "$target" --draft "$draft" --prompt x \
    -o a.trace
refuses 2 "*policy 'nothing': position 1: expected full, static, window, *" specrt-eval record \
    --target "$target" --draft "$draft" --prompt x --policy nothing -o n.trace
