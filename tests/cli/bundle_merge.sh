# Sections of several bundles in one: conflicts, other tokenizers, and what stays as it was.
. "$CLI_TESTS/lib.bash"
golden=$CLI_TESTS/../golden/bundles/v1.0-zstd.specb extra=$CLI_TESTS/extra.specb
tokenizer=$CLI_TESTS/../../data/tokenizer.json
accepts specrt-bundle merge "$golden" "$extra" -o both.specb
warns "specrt-bundle: both.specb: 4 sections, *"
accepts specrt-bundle info both.specb --json
has 'sections[].tag=extra ident prov ranks' 'sections[].version=7 1 1 1' \
    'sections[0].optional=true' 'sections[0].depends=tokenizer' 'sections[0].raw_bytes=230' \
    'sections[].zstd=true true false true' 'provenance.extra.tool=by hand' tokenizer.name=golden \
    tokenizer.n_vocab=20 tokenizer.n_normal=18 head.rows=20 ranks.n_default=8
accepts specrt-bundle merge "$extra" "$golden" -o reverse.specb
same both.specb reverse.specb
specrt-bundle extract both.specb extra -o extra.bin -q
[ "$(sort -u extra.bin)" = "a section nobody knows" ] || fail "a section the runtime skips was lost"
# The same section twice is no conflict.
accepts specrt-bundle merge both.specb "$golden" -o again.specb
same both.specb again.specb

refuses 2 "*: both.specb: *" specrt-bundle merge "$golden" -o both.specb
accepts specrt-bundle merge "$golden" -o both.specb -f
accepts specrt-bundle info both.specb --json
has 'sections[].tag=ident prov ranks' # what was there before has gone
json ../out provenance.extra 2>/dev/null && fail "the provenance of what was there has stayed"

# A different section of the same name; the later one wins by force.
accepts specrt-bundle export "$golden" --format text --size 8 -o list.txt
accepts specrt-bundle import "$CLI_TESTS/../golden/maps/list.pkl" --values absolute \
    --tokenizer "$tokenizer" --size 6 -o own.specb
echo "15 7 300" >other.txt
accepts specrt-bundle import other.txt --values absolute --tokenizer "$tokenizer" --size 6 \
    -o other.specb
refuses 2 "*other.specb: section 'ranks' differs from that of own.specb; use -f to take the later \
one" specrt-bundle merge own.specb other.specb -o c.specb
accepts specrt-bundle merge own.specb other.specb -o c.specb -f
same c.specb other.specb

refuses 3 "*own.specb: tokenizer: expected 'golden' (20 tokens), as in the bundle, found \
'llama3-style BPE (tokenizer.json)' (32768 tokens); write to another file" specrt-bundle merge \
    "$golden" own.specb -o d.specb
refuses 1 "*: none.specb: *" specrt-bundle merge "$golden" none.specb -o d.specb
refuses 3 "*: list.txt: not a specrt bundle; expected the magic \\\\x89SPECB, found other bytes" \
    specrt-bundle merge "$golden" list.txt -o d.specb
refuses 2 "*expected -o FILE" specrt-bundle merge "$golden"
refuses 1 "*: /dev/full: *" specrt-bundle merge "$golden" -o /dev/full
refuses 1 "*: no/such/d.specb: cannot create: No such file or directory" specrt-bundle merge \
    "$golden" -o no/such/d.specb
