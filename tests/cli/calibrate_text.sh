# Text and JSON in one run: the same answers give the same counts in every shape and packing.
. "$CLI_TESTS/lib.bash"
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
warns "vocabtrim-calibrate: 16 tokens, domains: 1"
cat >batch.jsonl <<'END'
{"custom_id": "1", "response": {"status_code": 200, "body": {"choices": [{"message": {"role": "assistant", "content": "Hello, world! Hello again."}}]}}, "error": null}
{"custom_id": "2", "response": {"status_code": 200, "body": {"choices": [{"message": {"role": "assistant", "content": "One two three, one two three."}}]}}, "error": null}
END
for shape in sharegpt.json openai.jsonl batch.jsonl; do
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
warns "vocabtrim-calibrate: 22 tokens, domains: 1"
count c.field --corpus alpaca.json --field instruction
printf 'Say hello.' >say.txt
printf 'Count.' >count.txt
count c.plain --corpus say.txt count.txt
diff <(rows c.field) <(rows c.plain) || fail "--field counts something else"

# Records in .txt and tables are text until told otherwise, with a line that says what to do.
cp batch.jsonl batch.txt
printf 'id,answer\n1,"Hello, world!"\n' >table.csv
count c.raw --corpus batch.txt table.csv
warns "*warning: batch.txt: JSON records, counted as text with their keys; --format json reads the \
records, as does the name .jsonl*"
warns "*warning: table.csv: a table, counted as text with its separators; put the column to count \
into .jsonl, found columns id,answer*"
count c.txt --corpus batch.txt --format json
! grep -q warning ../err || fail "$(cat ../err)"
diff <(rows c.alpaca) <(rows c.txt) || fail "--format json counts something else"
count c.same --corpus batch.txt table.csv --format text
! grep -q warning ../err || fail "$(cat ../err)"
same c.raw c.same

# Each answer ends with one terminator, which is in the ranks and not in the number of tokens.
accepts vocabtrim-calibrate --tokenizer "$TOKENIZER" --holdout 0 --corpus alpaca.json \
    --json -o a.specb
has 'domains[].n_completions=2' n_tokens=16 n_records=2 n_selected=8192
[ "$(rows c.alpaca | awk '{ n += $2 } END { print n }')" = 16 ] || fail "$(cat c.alpaca)"
