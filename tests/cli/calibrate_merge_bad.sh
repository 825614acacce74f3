# Count files that are no such files, are cut, or belong to something else.
. "$CLI_TESTS/lib.bash"
ids a.bin 5 5 5 3 3 9
ids b.bin 1 1 4
count() { vocabtrim-calibrate --tokenizer none --id-bytes 2 --n-vocab 12 --keep 7 --corpus a.bin \
    --holdout 0 "$@"; }
merge() { vocabtrim-calibrate --merge "$@" -o x.specb; }
accepts count --counts-out good
refuses 1 "*: nowhere: *" merge good nowhere
: >empty
refuses 3 "*: empty: empty; expected a count file" merge good empty
refuses 3 "*: a.bin:1: a NUL byte; expected text" merge a.bin
echo "hello" >text
refuses 3 "*: text:1: not a count file; expected '#specrt-counts 1' or 2" merge text
head -c 100 good >cut
refuses 3 "*: cut:2: the file is cut in the middle of a line" merge good cut
grep -v '^3' good >lost
refuses 3 "*: lost:10: #end does not agree with the rows above: lines were lost or changed" merge \
    lost
gzip -c good | head -c 60 >cut.gz
refuses 3 "*: cut.gz: gzip data at byte 60: *" merge cut.gz
vocabtrim-calibrate --tokenizer none --id-bytes 2 --n-vocab 13 --keep 7 --corpus b.bin --holdout 0 \
    --counts-out other -q
refuses 3 \
    "*: other: counts of another tokenizer; expected ids (00000000, 12 ids), found ids (00000000, 13 ids)" \
    merge good other
vocabtrim-calibrate --tokenizer none --id-bytes 2 --n-vocab 12 --keep 8 --corpus b.bin --holdout 0 \
    --counts-out other -q -f
refuses 3 "*: other: expected the special tokens of the counts before, found others; count \
everything with one tokenizer file" merge good other
vocabtrim-calibrate --tokenizer none --id-bytes 2 --n-vocab 12 --keep 7 --corpus b.bin \
    --holdout 0.2 --counts-out other -q -f
refuses 3 "*: other: counted with other options; expected '*folds=1 *', found '*folds=5 *'" \
    merge good other
refuses 3 "*: good: *44 ids*12" vocabtrim-calibrate --tokenizer none \
    --n-vocab 44 --keep 7 --merge good -o x.specb
