# The tool's help; one with an example first for every verb; unknown verbs list the verbs.
. "$CLI_TESTS/lib.bash"
helps specrt-bundle
for verb in info verify merge extract unpack pack export import map check; do
    accepts specrt-bundle $verb -h
    prints "Example:
  specrt-bundle $verb *
*Usage: specrt-bundle $verb *"
    refuses 2 "specrt-bundle: expected *, found 0 arguments" specrt-bundle $verb
    refuses 2 "specrt-bundle: *'--nonsense'" specrt-bundle $verb --nonsense
done
accepts specrt-bundle --version
prints "specrt-bundle *"
refuses 2 "specrt-bundle: expected a verb: info, verify, *" specrt-bundle
refuses 2 "specrt-bundle: unknown verb 'inform'; expected info, verify, *" specrt-bundle inform \
    a.specb
refuses 2 "specrt-bundle: *'inform'*" specrt-bundle inform -h
refuses 2 "specrt-bundle: *'inform'*" specrt-bundle -q inform
