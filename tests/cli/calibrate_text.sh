# Text and JSON in one run: the same answers give the same counts in every shape and packing.
. "$CLI_TESTS/lib.bash"
NARRATES=1
count() { accepts vocabtrim-calibrate --tokenizer "$TOKENIZER" --holdout 0 --domain d \
    --counts-out "$@"; }
rows() { grep -v '^#' "$1"; }

cat >alpaca.json <<'END'
[{"instruction": "Say hello.", "output": "Hello, world! Hello again."},
 {"instruction": "Count.", "output": "One two three, one two three."}]
END
cat >sharegpt.json <<'END'
[{"conversations": [{"from": "human", "value": "Say hello."}, {"from": "gpt", "value": "Hello, world! Hello again."},
                    {"from": "human", "value": "Count."}, {"from": "gpt", "value": "One two three, one two three."}]}]
END
cat >openai.jsonl <<'END'
{"messages": [{"role": "user", "content": "Say hello."}, {"role": "assistant", "content": "Hello, world! Hello again."}]}
{"messages": [{"role": "system", "content": "Be brief."}, {"role": "assistant", "content": "One two three, one two three."}]}
END
count c.alpaca --corpus alpaca.json
for shape in sharegpt.json openai.jsonl; do
    count c.$shape --corpus $shape
    diff <(rows c.alpaca) <(rows c.$shape) || fail "$shape counts differently"
done
gzip -k alpaca.json && zstd -q openai.jsonl
count c.gz --corpus alpaca.json.gz
diff <(rows c.alpaca) <(rows c.gz) || fail ".gz counts differently"
count c.zst --corpus openai.jsonl.zst
diff <(rows c.alpaca) <(rows c.zst) || fail ".zst counts differently"
count c.stdin --corpus - <alpaca.json
diff <(rows c.alpaca) <(rows c.stdin) || fail "stdin counts differently"

# Prompts count with --messages all; --field takes what it is told.
count c.all --corpus alpaca.json --messages all
[ "$(wc -l <c.all)" -gt "$(wc -l <c.alpaca)" ] || fail "--messages all counts nothing more"
count c.field --corpus alpaca.json --field instruction
printf 'Say hello.' >say.txt
printf 'Count.' >count.txt
count c.plain --corpus say.txt count.txt
diff <(rows c.field) <(rows c.plain) || fail "--field counts something else"

# Each answer ends with one terminator, which is in the ranks and not in the number of tokens.
accepts vocabtrim-calibrate --tokenizer "$TOKENIZER" --holdout 0 --corpus alpaca.json \
    --json -o a.specb
prints '*"n_completions":2,*'
tokens=$(rows c.alpaca | awk '{ n += $2 } END { print n }')
prints "*\"n_tokens\":$tokens,*"
