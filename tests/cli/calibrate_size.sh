# Sizes out of range name the range, before the corpus is read.
. "$CLI_TESTS/lib.bash"
ids a.bin 5 5 5 3 3 9
run() { vocabtrim-calibrate --tokenizer none --id-bytes 2 --n-vocab 12 --corpus a.bin --keep 1-4 \
    "$@" -o x.specb; }
for size in 0 -3 3 13 99999999999; do
    refuses 2 "vocabtrim-calibrate: --size $size; expected 4 (terminators, specials and kept ids; \
at least 1) to 12 (ids that are no placeholders)" run --size "$size"
done
refuses 2 "*--size: expected a whole number, found 'many'" run --size many
# A k is 1,024; other suffixes are refused.
refuses 2 "vocabtrim-calibrate: --size 32768; *" run --size 32k
for size in 32K 32m 32kb k 1.5k 9007199254740993k; do
    refuses 2 "*--size: *found '$size'" run --size $size
done
for rules in "--size 4 --mass 0.5" "--size 4 --min-count 2" "--mass 0.5 --min-count 2" \
    "--min-count 2 --budget-mib 3"; do
    refuses 2 "*give one of --size, --mass, --accept-loss, --min-count and --budget-mib" run $rules
done
refuses 2 "*--mass: expected a number from 1e-09 to 1, found '1.5'" run --mass 1.5
refuses 2 "*--mass: *found 'nan'" run --mass nan
refuses 2 "*--min-count: expected a whole number from 1 to 9e+15, found '0'" run --min-count 0
refuses 2 "*--budget-mib needs --model for the bytes of a row" run --budget-mib 3

# Without a rule a quarter of a small vocabulary, but not less than what is forced.
accepts run --holdout 0
warns "*size 4 instead *12 valid ids, 4 of them forced"
prints "ids: 4 tokens in 1 documents; 12 ids, 4 of them forced*>        4       0.000% *"
of() { accepts vocabtrim-calibrate --tokenizer none --id-bytes 2 --n-vocab "$1" --corpus a.bin \
    --keep 1 --json; }
of 42
has n_selected=11 selection.value=11 n_tokens=6 n_valid=42
warns "*size 11 instead *
*warning: all records fell into one part of 10, so nothing was held out and coverage of other text \
is unknown; give more records (a text file is one)"
of 65536
has n_selected=32768 'sweep[].size=512 1024 2048 4096 8192 16384 32768 65536'
! grep -q default ../err || fail "the default size is told: $(cat ../err)"
