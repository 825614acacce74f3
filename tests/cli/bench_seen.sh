# Prompts of the text that a pair was trained on come under names that say "seen".
. "$CLI_TESTS/lib.bash"
top=$CLI_TESTS/../..
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
