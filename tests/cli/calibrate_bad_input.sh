# Bad files: one line, the right exit code, nothing written.
. "$CLI_TESTS/lib.bash"
NARRATES=1
run() { vocabtrim-calibrate --tokenizer "$TOKENIZER" --holdout 0 -o x.specb "$@"; }
echo "Hello world." >good.txt

refuses 1 "*: nowhere.txt: cannot open: No such file*" run --corpus good.txt nowhere.txt
refuses 1 "*: nowhere: cannot open: No such file*" vocabtrim-calibrate --tokenizer nowhere \
    --corpus good.txt -o x.specb
: >empty.txt
refuses 3 "*: no tokens were counted*" run --corpus empty.txt
head -c 3000 /dev/urandom >binary.bin
refuses 3 "*: binary.bin: *" run --corpus binary.bin
printf '\177ELF\1\1\1\0\0\0\0\0' >program
refuses 3 "*: program: *ELF*" run --corpus program
: >empty
refuses 3 "*: empty: *" vocabtrim-calibrate --tokenizer empty --corpus good.txt -o x.specb
head -c 5000 "$TOKENIZER" >cut.json
refuses 3 "*: cut.json: *" vocabtrim-calibrate --tokenizer cut.json --corpus good.txt -o x.specb
refuses 3 "*: good.txt: *" vocabtrim-calibrate --tokenizer good.txt --corpus good.txt -o x.specb

# A record that is no JSON is counted and shown; --strict makes it fatal.
printf '{"text": "one"}\n{"text": oops}\n{"text": "three"}\n' >bad.jsonl
refuses 3 "*: bad.jsonl:2: *" run --corpus bad.jsonl --strict
accepts run --corpus bad.jsonl --json
warns "*warning: 1 bad records were skipped, such as:*bad.jsonl:2: *"
prints '*"n_bad_records":1,"bad_examples":\["bad.jsonl:2: *'
rm x.specb
printf '{"words": "one"}\n' >unknown.jsonl
refuses 3 "*: unknown.jsonl*words*" run --corpus unknown.jsonl
echo '{}' >none.jsonl
refuses 3 "*: none.jsonl:1: no known field; found none; expected *" run --corpus none.jsonl
[ ! -c /dev/zero ] || refuses 1 "*: /dev/zero: over 1 GiB from a pipe or device; *" \
    vocabtrim-calibrate --tokenizer /dev/zero --corpus good.txt -o x.specb

# Ill-formed UTF-8 is counted as U+FFFD and reported.
printf 'caf\351 ol\351\n' >latin1.txt
accepts run --corpus latin1.txt --json
warns "*warning: 2 ill-formed byte sequences were counted as U+FFFD, first in latin1.txt*"
rm x.specb

# Names of files may be any bytes; JSON is UTF-8 all the same, printed and stored.
cp good.txt $'caf\351.txt'
for path in $'caf\351.txt' latin1.txt; do
    accepts run --corpus "$path" --json
    iconv -f UTF-8 -t UTF-8 <../out >/dev/null || fail "the JSON is no UTF-8"
    accepts specrt-bundle info x.specb --json
    iconv -f UTF-8 -t UTF-8 <../out >/dev/null || fail "the provenance is no UTF-8"
    rm x.specb
done

# Cut in the middle.
for ((i = 0; i < 20000; i++)); do echo "line $i of a long text that packs well $((i * i))";
done >long.txt
zstd -qc long.txt | head -c 20000 >cut.txt.zst
refuses 3 "*: cut.txt.zst: zstd data at byte *: *cut short" run --corpus cut.txt.zst
gzip -c long.txt | head -c 20000 >cut.txt.gz
refuses 3 "*: cut.txt.gz: gzip data at byte *: *cut short" run --corpus good.txt cut.txt.gz

# Token ids outside the vocabulary, and files of ids that are cut.
ids ids.bin 5 11 12
refuses 3 "*: ids.bin: *12*" vocabtrim-calibrate --tokenizer none --id-bytes 2 --n-vocab 12 \
    --keep 1 --corpus ids.bin -o x.specb
refuses 2 "*: ids.bin: *--id-bytes*" vocabtrim-calibrate --tokenizer none --n-vocab 12 --keep 1 \
    --corpus ids.bin -o x.specb
head -c 3 ids.bin >cut.bin
refuses 3 "*: cut.bin: *" vocabtrim-calibrate --tokenizer none --id-bytes 2 --n-vocab 12 --keep 1 \
    --corpus cut.bin -o x.specb
refuses 3 "*: good.txt: *" vocabtrim-calibrate --tokenizer none --id-bytes 2 --n-vocab 12 --keep 1 \
    --corpus good.txt -o x.specb
printf '5\nx\n' >keep.txt
refuses 3 "*: keep.txt: expected ids below*" run --keep keep.txt --corpus good.txt
