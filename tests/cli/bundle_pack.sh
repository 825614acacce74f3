# Raw and back: the same bytes, the same sections.
. "$CLI_TESTS/lib.bash"
golden=$CLI_TESTS/../golden/bundles/v1.0-zstd.specb
accepts specrt-bundle pack "$golden" -o packed.specb
accepts specrt-bundle unpack packed.specb -o raw.specb --json
has file=raw.specb n_sections=3 raw_bytes=1498 stored_bytes=1498
accepts specrt-bundle info raw.specb --json
has 'sections[].zstd=false false false'
accepts specrt-bundle pack raw.specb -o again.specb
same packed.specb again.specb
# In place.
accepts specrt-bundle unpack again.specb -f -o again.specb
same raw.specb again.specb
refuses 2 "*: raw.specb: *" specrt-bundle unpack packed.specb -o raw.specb
refuses 2 "*found 2 arguments" specrt-bundle pack packed.specb raw.specb -o x.specb

# Through a pipe.
specrt-bundle unpack packed.specb -o - >piped.specb 2>../err || fail "$(cat ../err)"
same raw.specb piped.specb
