# What benchmarks say of text that a pair was trained on: shared words are found in every kind of
# file, and prompts of its training text come under names that say "seen".
. "$CLI_TESTS/lib.bash"
require python3
require zstd
top=$CLI_TESTS/../..
run="one two three four five six seven eight nine ten eleven twelve thirteen"
mkdir text other
echo "{\"messages\": [{\"content\": \"He said: ${run^^}, and left.\"}]}" | gzip >text/chat.jsonl.gz
echo "[{\"output\": \"a b c d e f g\"}]" | zstd -q -o text/answers.json.zst
printf '{"text": "line\xe2\x80\xa8separator"}\n{"text": "x"}\n' >text/lines.jsonl
echo "${run% *} fourteen" >text/near.md
echo "$run" >text/ignored.c
echo "$run" >other/a.txt

{
    echo "{\"prompt\": \"Zero ${run// /, } fourteen\"}"       # held
    echo "{\"prompt\": \"${run% *}\", \"next\": \"thirteen\"}"  # strings do not join; found whole
    echo "{\"prompt\": \"${run/seven/zero} fourteen\"}"        # not held
    echo "{\"prompt\": \"A b, c d, e f g\"}"                   # short, and whole
    echo "{\"prompt\": \"a b c\"}"                             # too short to look for
} >test.jsonl
python3 "$top/bench/overlap.py" --test t=test.jsonl --text text=text other=other >table || exit 1
# test, long, held, %, runs, short, whole, text (documents; words)
grep -qE '^t +2 +1 +50\.0% +[0-9.]+% +3 +2 +text \(5; ' table || { cat table; exit 1; }
grep -qE '^t +2 +1 +50\.0% +[0-9.]+% +3 +1 +other \(1; 13\)' table || { cat table; exit 1; }
python3 "$top/bench/overlap.py" --test t=none.jsonl --text text=text 2>why && exit 1
[ "$(wc -l <why)" = 1 ] || { cat why; exit 1; }
printf '{"text": "x"}\n{"text": \n' >bad.jsonl
python3 "$top/bench/overlap.py" --test t=bad.jsonl --text text=text 2>why && exit 1
[ "$(wc -l <why)" = 1 ] && grep -q 'bad.jsonl: line 2;' why || { cat why; exit 1; }

mkdir prompts
for task in medical rag; do
    printf '{"prompt": "Is \\"domain\\": \\"x\\" it?", "domain": "%s"}\n' $task >prompts/$task.jsonl
done
touch bench-sample.specb
cd "$top" || exit 1
BUILD=$OLDPWD PROMPTS=$OLDPWD/prompts bash -c '. bench/pair.sh
    pair sample
    [ "$(unseen rag medical) $(seen rag medical)" = "rag medical" ] || exit 1
    cat $(tasks rag medical)' >"$OLDPWD/asked" || exit 1
[ "$(sed 's/.*"domain": //' "$OLDPWD/asked" | tr -d '\n')" = '"rag"}"seen-medical"}' ] ||
    { cat "$OLDPWD/asked"; exit 1; }
