# Tokens that are members however seldom they occur: all of one byte, by which any text can be
# drafted.
. "$CLI_TESTS/lib.bash"
echo "Hello, world!" >a.txt
run() { vocabtrim-calibrate --tokenizer "$TOKENIZER" --corpus a.txt --holdout 0 "$@"; }
accepts run --size 300 --keep bytes -o bytes.specb
accepts specrt-bundle info bytes.specb --json
forced=$(json ../out ranks.n_forced)
has 'provenance.ranks.selection.keep=0 1 2 3 * 254 255'
accepts run --size 300 -o none.specb
accepts specrt-bundle info none.specb --json
without=$(json ../out ranks.n_forced)
[ $((forced - without)) = 256 ] || fail "$forced forced ids with --keep bytes, $without without"
refuses 2 "*--size 100; expected 262 *" run --size 100 --keep bytes -o x.specb
ids ids.bin 1 2 3
refuses 2 "*--keep bytes: expected a --tokenizer, which knows their ids" vocabtrim-calibrate \
    --tokenizer none --n-vocab 12 --id-bytes 2 --keep bytes --corpus ids.bin -o x.specb
