# What record writes is what was decoded: tokens, the target's best, the drafter's along the path.
. "$CLI_TESTS/lib.bash"
NARRATES=1
target=$CLI_TESTS/../../data/sample/target.gguf draft=$CLI_TESTS/../../data/sample/draft.safetensors
trace() { "$CLI_BIN/../tests/trace" "$@"; }
prompts=$CLI_TESTS/../../data/prompts/code.jsonl
accepts specrt-eval record --target "$target" --draft "$draft" --prompts "$prompts" --limit 2 \
    --max-tokens 12 --num-steps 3 --topk 2 --num-draft-tokens 6 -o a.trace
accepts trace a.trace
cp ../out a.txt
[ "$(grep -c '^s code:' a.txt)" = 2 ] || fail "expected two sequences"
[ "$(tail -n 1 a.txt)" = whole ] || fail "expected a whole trace"
# greedy: each emitted token is the target's best; the drafter was asked at the root of every cycle
awk -F ' : | :$' \
    '/^c/ { if (substr($1, 2) != " " $2) bad = 1; split($3, d, " "); if (d[1] < 0) bad = 1; n++ }
    END { exit bad || n < 4 }' <(sed 's/ :/ : /g; s/  */ /g' a.txt) ||
    { cat a.txt; fail "rows are not what was decoded"; }
# a head with a row for every third token: its best are ids, not rows
"$CLI_BIN/../tests/eagle3_head" make "$target" third.safetensors 3 || fail "no head"
accepts specrt-eval record --target "$target" --draft third.safetensors --prompts "$prompts" \
    --limit 2 --max-tokens 12 --num-steps 3 --topk 1 -o third.trace
accepts trace third.trace
awk '/^c/ { split($0, part, ":"); n = split(part[3], d, " ")
        for (i = 1; i <= n; i++) bad += d[i] > 0 && d[i] % 3; all += n }
    END { exit bad || all < 8 }' ../out || { cat ../out; fail "rows are not named by ids"; }
# the first prompt has the tokens of the target alone; the one that comes with it is in no cycle
says_as_generate() { # TRACE.txt PROMPTS.jsonl FLAGS...
    accepts specrt-eval generate --target "$target" --prompts "$2" --max-tokens 12 --ids "${@:3}"
    local ids found
    ids=$(sed 's/.*"ids": *\[//; s/\].*//; s/,/ /g; s/  */ /g' ../out | head -n 1)
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
    warns "*mixed.jsonl:2*"
done
same t1.trace t3.trace
accepts trace t1.trace
[ "$(grep -c '^s ' ../out)" = 3 ] || fail "expected three sequences"
cp ../out t1.txt
says_as_generate t1.txt mixed.jsonl --temperature 0.8
head -c 2000 a.trace >cut.trace
accepts trace cut.trace
prints '*cut'
refuses 2 "*expected --draft FILE and -o FILE*" specrt-eval record --target "$target" \
    --prompts "$prompts"
refuses 2 "*a.trace: exists; *" specrt-eval record --target "$target" --draft "$draft" --prompt x \
    -o a.trace
refuses 2 "*policy 'nothing'*" specrt-eval record --target "$target" --draft "$draft" --prompt x \
    --policy nothing -o n.trace
