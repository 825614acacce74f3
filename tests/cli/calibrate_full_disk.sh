# A disk that fills: one line, exit code 1, and none of the outputs of that run.
. "$CLI_TESTS/lib.bash"
[ -c /dev/full ] || skip "no /dev/full"
ids a.bin 5 5 5 3 3 9
run() { vocabtrim-calibrate --tokenizer none --id-bytes 2 --n-vocab 12 --keep 7 --corpus a.bin \
    -q --holdout 0 "$@"; }
to_full() { "$@" >/dev/full; }
refuses 1 "vocabtrim-calibrate: /dev/full: cannot write: No space left on device" run -o /dev/full
refuses 1 "vocabtrim-calibrate: /dev/full: cannot write: No space left on device" run \
    --counts-out /dev/full
refuses 1 "*/dev/full: cannot write: No space*" run --counts-out /dev/full -o x.specb
refuses 1 "*/dev/full: cannot write: No space*" run --report /dev/full -o x.specb --counts-out c
refuses 1 "*/dev/full: cannot write: No space*" run --export text=/dev/full -o x.specb \
    --report r.html
refuses 1 "vocabtrim-calibrate: stdout: cannot write: No space left on device" to_full run \
    --json -o x.specb --report r.html
refuses 1 "*-: cannot write: No space*" to_full run --counts-out - -o x.specb
refuses 1 "*no/such/x.specb: cannot create: No such file or directory" run -o no/such/x.specb
refuses 1 "*: .: expected a file, found a folder" run --report .
