# One section, raw.
. "$CLI_TESTS/lib.bash"
cp "$CLI_TESTS/extra.specb" a.specb
accepts specrt-bundle extract a.specb extra
prints "a section nobody knows*"
accepts specrt-bundle extract a.specb extra -o section.bin --json
has file=section.bin section=extra bytes=230
[ "$(sort -u section.bin)" = "a section nobody knows" ] || fail "wrong bytes"
refuses 2 "*: section.bin: *" specrt-bundle extract a.specb extra -o section.bin
refuses 3 "*a.specb: has no section 'ranks'; it holds extra, ident, prov" specrt-bundle extract \
    a.specb ranks
refuses 2 "*expected a bundle and a section, found 1 argument" specrt-bundle extract a.specb
refuses 2 "*expected --json or the section, found both*" specrt-bundle extract a.specb extra --json
refuses 1 "*: /dev/full: *" specrt-bundle extract a.specb extra -o /dev/full
