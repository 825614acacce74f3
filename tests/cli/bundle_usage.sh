# Help with an example first, for the tool and for every verb; unknown verbs list the verbs.
. "$CLI_TESTS/lib.bash"
accepts specrt-bundle -h
prints "Example:
  specrt-bundle info model.specb
*info*verify*merge*extract*unpack*pack*export*import*map*check*"
for verb in info verify merge extract unpack pack export import map check; do
    accepts specrt-bundle $verb -h
    prints "Example:
  specrt-bundle $verb *
*Usage: specrt-bundle $verb *"
    refuses 2 "specrt-bundle: expected *, found 0 arguments" specrt-bundle $verb
    refuses 2 "specrt-bundle: unknown option '--nonsense'" specrt-bundle $verb --nonsense
done
accepts specrt-bundle --version
prints "specrt-bundle *"
refuses 2 "specrt-bundle: expected a verb: info, verify, *" specrt-bundle
refuses 2 "specrt-bundle: unknown verb 'inform'; expected info, verify, *" specrt-bundle inform \
    a.specb
refuses 2 "specrt-bundle: unknown verb 'inform'; expected info, *" specrt-bundle inform -h
refuses 2 "specrt-bundle: unknown verb 'inform'; expected info, *" specrt-bundle -q inform
