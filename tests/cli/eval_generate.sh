# The target's own answers, the same for any number of threads, that vocabtrim-calibrate counts.
. "$CLI_TESTS/lib.bash"
generate() { specrt-eval generate --target "$target" --prompts "$prompts/code.jsonl" \
    "$prompts/qa.jsonl" --limit 3 --max-tokens 6 "$@"; }

accepts generate --ids -o one.jsonl --threads 1
warns "*template: llama3, guessed from the special tokens; the model has none of its own
*6 answers, 36 tokens in *"
accepts generate --ids -o two.jsonl --threads 2
same one.jsonl two.jsonl
[ "$(wc -l <one.jsonl)" = 6 ] || fail "$(wc -l <one.jsonl) lines"
holds one.jsonl '[].domain=code code code qa qa qa' '[].n_tokens=6 6 6 6 6 6' \
    '[].n_loop=0 0 0 0 0 0' '[0].ids=728 3780 198 1206 302 4120' \
    '[3].prompt=What does the word "ambiguous" mean[?]' '[4].output=First find the total number of'
accepts generate
[ "$(wc -l <../out)" = 6 ] || fail "stdout: $(cat ../out)"
! json ../out '[0].ids' 2>/dev/null || fail "ids that nobody asked for"
accepts vocabtrim-calibrate --tokenizer "$target" --corpus one.jsonl --holdout 0 -q --size 100 \
    -o answers.specb
accepts specrt-bundle info answers.specb
prints "*36 tokens counted
*top        324 198 728 1206 3780 *
coverage   1.0000 of the calibration text
*domains one.jsonl,*"

# It is what decoding writes.
accepts generate --temperature 0.8 --seed 3 -o hot.jsonl
cmp -s one.jsonl hot.jsonl && fail "temperature makes no difference"
refuses 2 "*: one.jsonl: *" generate -o one.jsonl
accepts generate -f -o one.jsonl
refuses 3 "*: 6 unfit, first code.jsonl:1: prompt: *3 *28" generate --context 4 -o none.jsonl
refuses 2 "*--context: expected at most the 2048 positions of */target.gguf, found 4096" generate \
    --context 4096

# Of 40 ids those from the eleventh on repeat a loop: eight in a row equal the id two places before.
accepts specrt-eval generate --target "$target" --prompt "y, y, y, y, y, y, y, y, y, y" --ids \
    --max-tokens 40
has n_tokens=40 n_loop=30 'ids=88 11 369 11 369 11 *'

# Prompts saved with a byte order mark and CRLF; figures for scripts.
printf '\357\273\277{"prompt":"hi"}\r\n{"prompt":"ho"}\r\n' >windows.jsonl
accepts specrt-eval generate --target "$target" --prompts windows.jsonl --max-tokens 2 \
    -q -o windows.out --json
has n_prompts=2 n_answers=2 n_tokens=4 n_empty=0 n_unfit=0 chat_template=llama3 \
    'chat_template_from=special tokens' system_prompt=null
took=$(json ../out seconds)
[ "${took%.*}" -le "$SECONDS" ] || fail "$took of the $SECONDS s of this test"
