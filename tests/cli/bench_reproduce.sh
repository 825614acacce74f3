# bench/reproduce.sh --list : what the papers have is a function, or says what it lacks.
. "$CLI_TESTS/lib.bash"
top=$CLI_TESTS/../..
cd "$top" || exit 1
list=$(bench/reproduce.sh --list) || fail "no list"

# declared FILE... : the names of these files that are functions, with - for _
declared() {
    bash -c 'item() { :; }; lacks() { :; }
        for file; do . "$file"; done
        compgen -A function' bash "$@" | tr _ - | sort -u
}
# without_function : names of a list that have neither a function nor a word on what they lack
without_function() {
    awk 'NR > 1 && !($2 == "-" && / lacks [^ ]/) && !($2 ~ /^[0-9]+$/) { print $1 }
        NR > 1 && $2 ~ /^[0-9]+$/ { print $1 > "/dev/stderr" }' 2>runs
    sort runs | comm -23 - functions
}
here=$(mktemp -d) && trap 'rm -rf "$here"' EXIT
declared bench/reproduce/*.bash >"$here/functions"
cd "$here" || exit 1
[ -z "$(without_function <<<"$list")" ] || fail "no function: $(without_function <<<"$list")"
# the check itself: a name that is no function, and one that does not say what it lacks
bad=$(printf 'head\nmicrospec-table9 3 x y\nevospec-fig1 - x lacks \nfrspec-table1 2 x y\n')
[ "$(without_function <<<"$bad" | xargs)" = "evospec-fig1 microspec-table9" ] ||
    fail "faults of a list are not found: $(without_function <<<"$bad")"

# as many as the papers have
for paper in "microspec 4 5" "evospec 10 6" "vocabtrim 5 4"; do
    set -- $paper
    for kind in "table $2" "fig $3"; do
        for n in $(seq "${kind#* }"); do
            grep -q "^$1-${kind% *}$n " <<<"$list" || fail "the list lacks $1-${kind% *}$n"
        done
    done
done
[ -z "$(awk '{ print $1 }' <<<"$list" | sort | uniq -d)" ] || fail "a name is in the list twice"

cd "$CLI_TESTS/../.." || exit 1
bench/reproduce.sh microspec-table9 2>"$here/err"
[ $? = 2 ] && grep -q "found 'microspec-table9'; --list has the names" "$here/err" ||
    fail "an unknown name: $(cat "$here/err")"
bench/reproduce.sh evospec-fig1 2>"$here/err"
[ $? = 77 ] && grep -q 'EvoSpec, Fig. 1 lacks' "$here/err" || fail "$(cat "$here/err")"
