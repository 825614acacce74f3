# Sections of several bundles in one: conflicts, other tokenizers, and what stays as it was.
. "$CLI_TESTS/lib.bash"
NARRATES=1
golden=$CLI_TESTS/../golden/bundles/v1.0-zstd.specb extra=$CLI_TESTS/extra.specb
tokenizer=$CLI_TESTS/../../data/tokenizer.json
accepts specrt-bundle merge "$golden" "$extra" -o both.specb
accepts specrt-bundle info both.specb --json
prints \
    '*"tag":"extra","version":7,*"optional":true,"depends":[[]"tokenizer"]*"tag":"ranks"*"provenance":{"extra":{"tool":"by hand"}*"ranks":*'
accepts specrt-bundle merge "$extra" "$golden" -o reverse.specb
same both.specb reverse.specb
specrt-bundle extract both.specb extra -o extra.bin -q
[ "$(sort -u extra.bin)" = "a section nobody knows" ] || fail "a section the runtime skips was lost"
# The same section twice is no conflict.
accepts specrt-bundle merge both.specb "$golden" -o again.specb
same both.specb again.specb

refuses 2 "*both.specb: exists; use -f to replace it" specrt-bundle merge "$golden" -o both.specb
accepts specrt-bundle merge "$golden" -o both.specb -f
accepts specrt-bundle info both.specb --json
case $(cat ../out) in *extra*) fail "what was there before has stayed" ;; esac

# A different section of the same name; the later one wins by force.
accepts specrt-bundle export "$golden" --format text --size 8 -o list.txt
accepts specrt-bundle import "$CLI_TESTS/../golden/maps/list.pkl" --values absolute \
    --tokenizer "$tokenizer" --size 6 -o own.specb
echo "15 7 300" >other.txt
accepts specrt-bundle import other.txt --values absolute --tokenizer "$tokenizer" --size 6 \
    -o other.specb
refuses 2 "*other.specb: section 'ranks' differs from that of own.specb; use -f *" \
    specrt-bundle merge own.specb other.specb -o c.specb
accepts specrt-bundle merge own.specb other.specb -o c.specb -f
same c.specb other.specb

refuses 3 "*own.specb: tokenizer: *golden*" specrt-bundle merge "$golden" own.specb -o d.specb
refuses 1 "*none.specb*" specrt-bundle merge "$golden" none.specb -o d.specb
refuses 3 "*list.txt*" specrt-bundle merge "$golden" list.txt -o d.specb
refuses 2 "*expected -o FILE" specrt-bundle merge "$golden"
refuses 1 "*/dev/full: cannot write*" specrt-bundle merge "$golden" -o /dev/full
refuses 1 "*no/such*" specrt-bundle merge "$golden" -o no/such/d.specb
