# The same bytes for any number of threads: counts, bundle, report.
. "$CLI_TESTS/lib.bash"
cp -r "$CLI_TESTS/.." tree # the tests themselves are a corpus of many small files
for threads in 1 2 7; do
    accepts vocabtrim-calibrate --tokenizer "$TOKENIZER" --corpus tree/*/*.c tree/cli \
        --threads $threads --holdout 0.3 -o $threads.specb --counts-out $threads.counts \
        --report $threads.html --export sglang-pt=$threads.pt
    for kind in specb counts html pt; do same 1.$kind $threads.$kind; done
done
