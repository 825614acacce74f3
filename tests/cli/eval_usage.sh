# The tool's help; one with an example first for every verb; unknown verbs and flags.
. "$CLI_TESTS/lib.bash"
helps specrt-eval
for verb in decode generate compare; do
    accepts specrt-eval $verb -h
    prints "Example:
  specrt-eval $verb *
*Usage: specrt-eval $verb *"
    refuses 2 "specrt-eval $verb: unknown option '--nonsense'" specrt-eval $verb --nonsense
    refuses 2 "specrt-eval $verb: unexpected argument 'stray'" specrt-eval $verb stray
done
# Lists that were read before the fault: a leak's report would be more than one line.
for verb in decode generate compare plan record; do
    refuses 2 "specrt-eval $verb: *'--nonsense'" specrt-eval $verb --prompts a b \
        --nonsense
done
refuses 2 "specrt-eval replay: --tree: expected S/K/N" specrt-eval replay --trace a --policy b \
    --tree
refuses 2 "specrt-bundle: *'--nonsense'" specrt-bundle info a --nonsense
refuses 2 "cluster-build: *'--nonsense'" cluster-build --trace a --nonsense
refuses 2 "cograph-build: *'--nonsense'" cograph-build --corpus a b --nonsense
refuses 2 "vocabtrim-calibrate: --size: *'x'" vocabtrim-calibrate --corpus a b --size x
accepts specrt-eval --version
prints "specrt-eval *"
refuses 2 "specrt-eval: expected a verb: decode, *" specrt-eval
refuses 2 "specrt-eval: *'decoed'; *" specrt-eval decoed
refuses 2 "specrt-eval decode: expected --target FILE, a GGUF" specrt-eval decode --prompt x
refuses 2 "specrt-eval generate: expected --prompts FILE or --prompt" specrt-eval generate \
    --target t.gguf
refuses 2 "specrt-eval compare: expected --prompts FILE or --prompt" specrt-eval compare \
    --target t.gguf --draft d
refuses 2 "specrt-eval compare: expected --draft FILE, *" specrt-eval compare --target t.gguf \
    --prompt x
refuses 2 "specrt-eval compare: *--draft*" specrt-eval compare --target t.gguf \
    --draft none --prompt x
refuses 2 "*--policy: expected --draft FILE*" specrt-eval decode --target t.gguf --policy full \
    --prompt x
# Policies are read before any model is.
refuses 2 "*policy 'windw:9': position 1: *" specrt-eval compare --target t --draft d --prompt x \
    --policy full,windw:9
refuses 2 "*policy 'centroid@schedule=flta': position 19: expected table, harmonic or \
flat, found 'flta'" specrt-eval compare --target t --draft d --prompt x \
    --policy full,centroid@schedule=flta

# Help fits a terminal of 100 columns.
for tool in "$CLI_BIN"/*-build "$CLI_BIN/vocabtrim-calibrate" "$CLI_BIN/specrt-bundle"; do
    [ -z "$("$tool" -h | awk 'length > 100')" ] || fail "$tool -h has long lines"
done
for verb in "" decode generate compare plan record replay; do
    [ -z "$(specrt-eval $verb -h | awk 'length > 100')" ] || fail "$verb -h has long lines"
done
