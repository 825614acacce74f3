# --json prints exactly one object with the keys that scripts rely on.
. "$CLI_TESTS/lib.bash"
accepts vocabtrim-calibrate --tokenizer "$TOKENIZER" --corpus "$CLI_TESTS" --holdout 0.3 --json \
    --accept-rate 0.8,0.7,0.6 --target-params 1e8 --draft-params 3e7 --d-draft 512 --size 2000
[ "$(wc -l <../out)" = 1 ] || fail "more than one line"
for key in n_tokens n_distinct n_selected coverage_calibration coverage_holdout bytes_read seconds \
    peak_bytes sweep size mbsu tau domains best_size n_bad_records advice; do
    prints "{*\"$key\":*}"
done
prints '*"sweep":\[{"size":1024,"coverage_calibration":0.*,"coverage_holdout":0.*,"tau":*,"mbsu":*'
prints '*"n_selected":2000,*'
prints '*"advice":"--policy hybrid, with *held-out.md)*'
# Nothing is claimed without rates.
accepts vocabtrim-calibrate --tokenizer "$TOKENIZER" --corpus "$CLI_TESTS" --holdout 0 --json
prints '*"coverage_holdout":null,*"mbsu":null}\],"speed":null,"best_size":null,*'
