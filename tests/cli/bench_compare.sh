# bench/compare.py : a difference is told from noise. The numbers are printed, not measured.
. "$CLI_TESTS/lib.bash"
require python3
compare() { "$CLI_TESTS/../../bench/compare.py" "$@"; }
# build NAME COSTS... : a program that prints them in turn, one a run; they stand beside the test's
# folder, in which no refused command may change a file.
build() {
    local name=$1; shift
    mkdir "$name"
    printf '%s\n' "$@" >"../$name.costs"
    cat >"$name/run" <<'SH'
#!/bin/sh
costs=../$(basename "$(dirname "$0")").costs
echo "took $(head -n 1 "$costs") ms"
{ tail -n +2 "$costs"; head -n 1 "$costs"; } >../next && mv ../next "$costs"
SH
    chmod +x "$name/run"
}
build a 100 100 100 100
build b 110 111 109 110
build noisy 80 125 90 111
build fails 1 && printf '#!/bin/sh\necho broken >&2\nexit 3\n' >fails/run
same_as() { compare a "$1" --value 'took ([0-9.]+) ms' --rounds 12 "${@:2}" -- {}/run; }
same_as b >../out && fail "slower, and exit code 0"
prints '*B is slower: +10.0% (+9.0% to +11.0%), 12 pairs'
accepts compare b a --value 'took ([0-9.]+) ms' --rounds 12 -- {}/run
prints '*B is faster: -9.1% (*'
accepts same_as b --more # where a greater number is better
prints '*B is faster: *'
accepts same_as noisy
prints '*B is undecided: * (-20.0% to +25.0%); take more rounds*'
accepts same_as a
prints '*B is same within 2.0%: +0.0% (+0.0% to +0.0%), 12 pairs'
accepts same_as b --least 0.2
prints '*B is same within 20.0%: *'
refuses 1 'fails/run: exit code 3: broken' same_as fails
refuses 1 'a/run: --value nothing (.): expected a number above 0, found none' \
    compare a b --value 'nothing (.)' -- {}/run
