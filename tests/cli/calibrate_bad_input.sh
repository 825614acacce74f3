# Bad files: one line, the right exit code, nothing written.
. "$CLI_TESTS/lib.bash"
run() { vocabtrim-calibrate --tokenizer "$TOKENIZER" --holdout 0 -o x.specb "$@"; }
echo "Hello world." >good.txt

refuses 1 "*: nowhere.txt: cannot open: No such file or directory" run --corpus good.txt nowhere.txt
refuses 1 "*: nowhere: *" vocabtrim-calibrate --tokenizer nowhere --corpus good.txt -o x.specb
: >empty.txt
refuses 3 "*: no tokens were counted: the corpus holds no text that a target wrote (--messages all \
counts prompts too)" run --corpus empty.txt
refuses 3 "*: the corpus holds no text" run --corpus empty.txt --messages all
head -c 3000 /dev/urandom >binary.bin
refuses 3 "*: binary.bin: token ids, not text; they are counted with --tokenizer none" run \
    --corpus binary.bin
printf '\177ELF\1\1\1\0\0\0\0\0' >program
refuses 3 "*: program: an ELF program" run --corpus program
: >empty
refuses 3 "*: empty: not a tokenizer; expected a tiktoken rank file, a tokenizer.json or a GGUF" \
    vocabtrim-calibrate --tokenizer empty --corpus good.txt -o x.specb
head -c 5000 "$TOKENIZER" >cut.json
refuses 3 "*: cut.json: byte 5000: not JSON: it ends too early" vocabtrim-calibrate \
    --tokenizer cut.json --corpus good.txt -o x.specb
refuses 3 "*: good.txt: *" vocabtrim-calibrate --tokenizer good.txt --corpus good.txt -o x.specb

# A record that is no JSON is counted and shown; --strict makes it fatal.
printf '{"text": "one"}\n{"text": oops}\n{"text": "three"}\n' >bad.jsonl
refuses 3 "*: bad.jsonl:2: *" run --corpus bad.jsonl --strict
accepts run --corpus bad.jsonl --json
warns "*warning: 1 bad records were skipped, such as:*bad.jsonl:2: *"
has n_bad_records=1 'bad_examples=bad.jsonl:2: malformed JSON at byte 9 of the record (*)' \
    n_records=3 n_tokens=2
rm x.specb
printf '{"words": "one"}\n' >unknown.jsonl
refuses 3 "*: unknown.jsonl:1: no known field; found words; expected conversations, messages, \
output, response, completion, answer, text or content, or --field NAME" run --corpus unknown.jsonl
echo '{}' >none.jsonl
refuses 3 "*: none.jsonl:1: *found none; *" run --corpus none.jsonl
[ ! -c /dev/zero ] || refuses 1 "*: /dev/zero: over 1 GiB from a pipe or device; expected a file" \
    vocabtrim-calibrate --tokenizer /dev/zero --corpus good.txt -o x.specb

# Ill-formed UTF-8 is counted as U+FFFD and reported.
printf 'caf\351 ol\351\n' >latin1.txt
accepts run --corpus latin1.txt --json
warns "*warning: 2 ill-formed byte sequences were counted as U+FFFD, first in latin1.txt*"
has n_replaced=2
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
refuses 3 "*: cut.txt.zst: zstd data at byte 20000: it ends here, in the middle; the file is cut \
short" run --corpus cut.txt.zst
gzip -c long.txt | head -c 20000 >cut.txt.gz
refuses 3 "*: cut.txt.gz: gzip data at byte 20000: *" run --corpus good.txt cut.txt.gz

# Token ids outside the vocabulary, and files of ids that are cut.
ids ids.bin 5 11 12
refuses 3 "*: ids.bin: id 12 at index 2; expected 0 to 11 (*" vocabtrim-calibrate --tokenizer none \
    --id-bytes 2 --n-vocab 12 --keep 1 --corpus ids.bin -o x.specb
refuses 2 "*: ids.bin: expected --id-bytes 2 or 4, since *" vocabtrim-calibrate --tokenizer none \
    --n-vocab 12 --keep 1 --corpus ids.bin -o x.specb
head -c 3 ids.bin >cut.bin
refuses 3 "*: cut.bin: the last id is cut short; expected a multiple of 2 bytes, found 3" \
    vocabtrim-calibrate --tokenizer none --id-bytes 2 --n-vocab 12 --keep 1 \
    --corpus cut.bin -o x.specb
refuses 3 "*: good.txt: no token ids (.bin or .npy)" vocabtrim-calibrate --tokenizer none \
    --id-bytes 2 --n-vocab 12 --keep 1 --corpus good.txt -o x.specb
printf '5\nx\n' >keep.txt
refuses 3 "*: keep.txt: *found 'x[?]'" run --keep keep.txt --corpus good.txt
