# Prompts of the text that a pair was trained on come under names that say "seen".
. "$CLI_TESTS/lib.bash"
top=$CLI_TESTS/../..
mkdir prompts
for task in medical rag; do
    printf '{"prompt": "Is \\"domain\\": \\"x\\" it?", "domain": "%s"}\n' $task >prompts/$task.jsonl
done
mkdir bench-sample
touch bench-sample/model.specb
cd "$top" || exit 1
bash -c '. bench/settings.bash
    . bench/pair.sh
    pair sample
    [ "$(unseen rag medical) $(seen rag medical)" = "rag medical" ] || exit 1
    cat $(tasks rag medical)' bash BUILD="$OLDPWD" >"$OLDPWD/asked" || exit 1
[ "$(sed 's/.*"domain": //' "$OLDPWD/asked" | tr -d '\n')" = '"rag"}"seen-medical"}' ] ||
    { cat "$OLDPWD/asked"; exit 1; }
