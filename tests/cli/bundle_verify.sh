# Checksums, content, and whether a bundle belongs to a tokenizer and a model.
. "$CLI_TESTS/lib.bash"
NARRATES=1
golden=$CLI_TESTS/../golden/bundles tokenizer=$CLI_TESTS/../../data/tokenizer.json
for f in v1.0-raw v1.0-zstd; do
    accepts specrt-bundle verify "$golden/$f.specb"
    prints "*$f.specb: ok, 3 sections"
done
echo "5 6 7" >map.txt
accepts specrt-bundle import map.txt --tokenizer "$tokenizer" --size 6 --values absolute \
    -o own.specb
accepts specrt-bundle verify own.specb --tokenizer "$tokenizer" --json
prints '{"file":"own.specb","ok":true,"n_sections":3,"tokenizer":"matches","model":null}'
refuses 3 "*v1.0-raw.specb: *tokenizer*" specrt-bundle verify "$golden/v1.0-raw.specb" \
    --tokenizer "$tokenizer"
refuses 3 "*own.specb: records no head, so model.gguf cannot be compared with it" \
    specrt-bundle verify own.specb --model model.gguf
refuses 1 "*none.json*" specrt-bundle verify own.specb --tokenizer none.json
refuses 3 "*map.txt*" specrt-bundle verify own.specb --tokenizer map.txt
ids a.bin 5 5 5
accepts vocabtrim-calibrate --tokenizer none --id-bytes 2 --n-vocab 12 --corpus a.bin --keep 7 \
    -o ids.specb
refuses 3 "*ids.specb: records no tokenizer, so *" specrt-bundle verify ids.specb \
    --tokenizer "$tokenizer"
for n in 0 8 63 64 200 700; do
    head -c $n "$golden/v1.0-zstd.specb" >cut.specb
    refuses 3 "specrt-bundle: cut.specb: *" specrt-bundle verify cut.specb
done

# A section that the runtime skips is checked too.
accepts specrt-bundle verify "$CLI_TESTS/extra.specb"
{ head -c 260 "$CLI_TESTS/extra.specb"; printf 'X'; tail -c +262 "$CLI_TESTS/extra.specb";
} >flipped.specb
for verb in "verify flipped.specb" "extract flipped.specb extra" \
    "unpack flipped.specb -o x.specb"; do
    refuses 3 "*flipped.specb: section 'extra': checksum expected *; the file is damaged" \
        specrt-bundle $verb
done

# Sound checksums over content that is not what its format says: a graph that
# leads out of its vocabulary.
refuses 3 "*damaged.specb: section 'cograph': ids: expected*" specrt-bundle verify \
    "$CLI_TESTS/damaged.specb"
accepts specrt-bundle info "$CLI_TESTS/damaged.specb"
warns "*warning: *damaged.specb: section 'cograph': ids: expected*"
