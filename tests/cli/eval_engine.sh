# Another engine: specrt-llama in the same folder takes over, with the arguments as they were.
. "$CLI_TESTS/lib.bash"
mkdir bin
cp "$CLI_BIN/specrt-eval" bin
for verb in decode generate; do
    refuses 2 "specrt-eval $verb: --engine: expected specrt or llama, found 'nosuch'" \
        specrt-eval $verb --engine nosuch --target "$target" --prompt x
done
for given in "--engine llama" --engine=llama; do
    # shellcheck disable=SC2086 # two words
    refuses 2 "*--engine llama: expected specrt-llama in the folder of specrt-eval, found none; *" \
        bin/specrt-eval decode $given --target "$target" --prompt x
done
accepts bin/specrt-eval decode --engine specrt --target "$target" --prompt x --max-tokens 2
printf '#!/bin/sh\nprintf "%%s|" "$@"\n' >bin/specrt-llama
chmod +x bin/specrt-llama
accepts bin/specrt-eval compare --target "a b" --engine llama --prompt -
prints "compare|--target|a b|--engine|llama|--prompt|-|"
accepts bin/specrt-eval decode --engine=llama -q
prints "decode|--engine=llama|-q|"
accepts bin/specrt-eval decode --engine specrt --target "$target" --prompt x --max-tokens 2
