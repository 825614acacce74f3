# --json prints exactly one object with the keys that scripts rely on.
. "$CLI_TESTS/lib.bash"
accepts vocabtrim-calibrate --tokenizer "$TOKENIZER" --corpus "$CLI_TESTS" --holdout 0.3 --json \
    --accept-rate 0.8,0.7,0.6 --target-params 1e8 --draft-params 3e7 --d-draft 512 --size 2000
[ "$(wc -l <../out)" = 1 ] || fail "more than one line"
json ../out n_tokens n_distinct bytes_read seconds peak_bytes best_size n_bad_records \
    'domains[0].name' coverage_calibration coverage_holdout >../json || fail "a field is missing"
has n_selected=2000 'sweep[].size=512 1024 2000 2048 4096 8192 16384 32758' \
    'sweep[0].coverage_calibration=0.*' 'sweep[0].coverage_holdout=0.*' 'sweep[0].tau=[12].*' \
    'sweep[0].mbsu=[12].*' 'advice=--policy hybrid, with cograph-build*(figures: *held-out.md)'
# Nothing is claimed without rates.
accepts vocabtrim-calibrate --tokenizer "$TOKENIZER" --corpus "$CLI_TESTS" --holdout 0 --json
has coverage_holdout=null 'sweep[-1].mbsu=null' speed=null best_size=null
