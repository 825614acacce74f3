# Real answers of Llama-3 models: as many tokens as tiktoken counts, and a list of exactly 32,768.
. "$CLI_TESTS/lib.bash"
tokenizer=$(data tokenizers/llama3/tokenizer.model) || { echo "$tokenizer"; exit 77; }
corpus=$(data generations/llama3) || { echo "$corpus"; exit 77; }
accepts vocabtrim-calibrate --tokenizer "$tokenizer" --corpus "$corpus" --json -o x.specb \
    --export text=list
has n_tokens=6787530 n_selected=32768 n_distinct=54070 'coverage_holdout=0.98*'
[ "$(sort -n list | uniq | wc -l)" = 32768 ] ||
    fail "the list holds $(sort -n list | uniq | wc -l) ids"
for id in 128001 128009; do grep -qx $id list || fail "terminator $id is missing"; done
grep -qx 128011 list && fail "a reserved placeholder is in"
true
