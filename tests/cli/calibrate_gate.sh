# Below --min-coverage: exit code 4 and no file, unless --allow-below.
. "$CLI_TESTS/lib.bash"
ids a.bin 5 5 5 3 3 9 9 2 7 5
run() { vocabtrim-calibrate --tokenizer none --id-bytes 2 --n-vocab 12 --keep 7 --corpus a.bin \
    --holdout 0 --size 3 "$@"; }
run --min-coverage 0.9 -o x.specb --report x.html --counts-out x >../out 2>../err
[ $? = 4 ] || fail "exit code is not 4"
warns \
    "*3 ids cover 66.6667% of the ranked tokens, less than --min-coverage 90%; nothing is written*"
[ ! -e x.specb ] && [ ! -e x.html ] && [ ! -e x ] || fail "files were written"
run --min-coverage 0.9 --allow-below -o x.specb -q
[ $? = 4 ] || fail "exit code is not 4"
[ -s x.specb ] || fail "--allow-below wrote nothing"
accepts run --min-coverage 0.6 -o y.specb
warns "*warning: no text was held out, so --min-coverage is held against the text that was ranked, \
*"
