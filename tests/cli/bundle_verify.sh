# Checksums, content, and whether a bundle belongs to a tokenizer and a model.
. "$CLI_TESTS/lib.bash"
golden=$CLI_TESTS/../golden/bundles tokenizer=$CLI_TESTS/../../data/tokenizer.json
for f in v1.0-raw v1.0-zstd; do
    accepts specrt-bundle verify "$golden/$f.specb"
    prints "*$f.specb: ok, 3 sections"
done
echo "5 6 7" >map.txt
accepts specrt-bundle import map.txt --tokenizer "$tokenizer" --size 6 --values absolute \
    -o own.specb
accepts specrt-bundle verify own.specb --tokenizer "$tokenizer" --json
has file=own.specb ok=true n_sections=3 tokenizer=matches model=null
refuses 3 "*v1.0-raw.specb: tokenizer: expected 'golden' (sha256 0102030405060708...), found \
another (sha256 a7aa2fe1b3887837...); use the bundle made for this model" specrt-bundle verify \
    "$golden/v1.0-raw.specb" --tokenizer "$tokenizer"
refuses 3 "*own.specb: records no head, so model.gguf cannot be compared with it" \
    specrt-bundle verify own.specb --model model.gguf
refuses 1 "*: none.json: *" specrt-bundle verify own.specb --tokenizer none.json
refuses 3 "*: map.txt: line 1 of a tiktoken file: bad base64 before the space" \
    specrt-bundle verify own.specb --tokenizer map.txt
ids a.bin 5 5 5
accepts vocabtrim-calibrate --tokenizer none --id-bytes 2 --n-vocab 12 --corpus a.bin --keep 7 \
    -o ids.specb
refuses 3 "*ids.specb: records no tokenizer, so */tokenizer.json cannot be compared with it" \
    specrt-bundle verify ids.specb --tokenizer "$tokenizer"
for n in 0 8 63 64 200 700; do
    head -c $n "$golden/v1.0-zstd.specb" >cut.specb
    case $n in
    0) found="not a specrt bundle; expected *, found an empty file" ;;
    8 | 63) found="truncated; expected a header of 64 bytes, found $n" ;;
    *) found="header: expected a file of 746 bytes, found $n; copy it again" ;;
    esac
    refuses 3 "specrt-bundle: cut.specb: $found" specrt-bundle verify cut.specb
done

# A section that the runtime skips is checked too.
accepts specrt-bundle verify "$CLI_TESTS/extra.specb"
{ head -c 260 "$CLI_TESTS/extra.specb"; printf 'X'; tail -c +262 "$CLI_TESTS/extra.specb";
} >flipped.specb
for verb in "verify flipped.specb" "extract flipped.specb extra" \
    "unpack flipped.specb -o x.specb"; do
    refuses 3 "*flipped.specb: section 'extra': checksum expected 48eebc1335c35fd7, found \
c0500042f67ea871; the file is damaged" specrt-bundle $verb
done

# Sound checksums over content that is not what its format says: a graph that
# leads out of its vocabulary.
refuses 3 "*damaged.specb: section 'cograph': ids: expected ids below n_vocab, found another" \
    specrt-bundle verify "$CLI_TESTS/damaged.specb"
accepts specrt-bundle info "$CLI_TESTS/damaged.specb"
warns "*warning: *damaged.specb: section 'cograph': ids: *"
