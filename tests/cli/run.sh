#!/usr/bin/env bash
# run.sh [--times] [--all] BIN [NAME...] : every command-line test, or those whose name holds one of
# the NAMEs; --all, those that know EVERYTHING=1 alone, with all of their data. Closes with
# "N passed, N failed, N skipped".
#
# A test is NAME.sh. It runs in an empty folder with the tools first on PATH and $CLI_TESTS naming
# this folder, and fails by its exit code. Beside it may stand
#     NAME.sh.exit          the exit code to expect instead of 0
#     NAME.sh.stdout.exact  what it must print; .stderr.exact likewise
#     NAME.sh.stdout.glob   a pattern that all of it must match; .stderr.glob likewise
# ACCEPT=1 writes .exact files anew, to be read as a diff before they are committed.
# Exit code 77 means skipped; the last line on stdout says why. As many run at a time as there are
# cores, and one more, since some wait for servers. --times tells the seconds of CPU that each took.
set -u
times= all=
if [ "$1" = --times ]; then times=$1; shift; fi
if [ "$1" = --all ]; then all=$1; shift; export EVERYTHING=1; unset TEST_QUICK; fi
export CLI_TESTS; CLI_TESTS=$(cd "$(dirname "$0")" && pwd)
CLI_BIN=$(cd "$1" && pwd) || exit 1
export CLI_BIN PATH="$CLI_BIN:$PATH" LC_ALL=C CLI_SANITIZED=
. "$CLI_TESTS/../sanitized.bash"
if is_sanitized "$CLI_BIN"; then CLI_SANITIZED=1; fi
[ -z "${SPECRT_DATA:-}" ] || export SPECRT_DATA="$(cd "$SPECRT_DATA" 2>/dev/null && pwd)"
export SPECRT_DATA="${SPECRT_DATA:-$CLI_TESTS/../../../shared/data}"
shift
export MALLOC_PERTURB_=197 # glibc: what a tool has not set, or has freed, holds no zeros
unset MAKEFLAGS MAKELEVEL MFLAGS
unset SLURM_ARRAY_TASK_ID SLURM_ARRAY_TASK_COUNT OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE \
    PMI_RANK PMI_SIZE
export scratch; scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT

# takes_a_share TEST : of its data (lib.bash: most); it says something else then.
takes_a_share() {
    [ -z "${EVERYTHING:-}" ] && grep -q '$(most \|^is_quick && exit' "$CLI_TESTS/$1"
}

# matches TEST STREAM : compare what was printed with what stands beside the test.
matches() {
    local expected=$CLI_TESTS/$1.$2.exact pattern=$CLI_TESTS/$1.$2.glob printed=$scratch/$1/$2
    if [ -e "$expected" ] && [ -n "${ACCEPT:-}" ]; then cp "$printed" "$expected"; fi
    if [ -e "$expected" ] && ! takes_a_share "$1"; then
        diff -u "$expected" "$printed" || return 1
    fi
    [ -e "$pattern" ] || return 0
    # The pattern file is one glob: unquoted on purpose.
    case "$(cat "$printed")" in $(cat "$pattern")) return 0 ;; esac
    echo "$2 does not match $1.$2.glob:"; cat "$printed"
    return 1
}

wanted() { # NAME PATTERN...
    local name=$1 pattern; shift
    [ $# = 0 ] && return 0
    for pattern; do case $name in *"$pattern"*) return 0 ;; esac; done
    return 1
}

# one TEST : run it in its folder of the scratch; leaves "verdict", one word, and "report".
one() {
    local name=$1 script=$CLI_TESTS/$1 folder=$scratch/$1 code expected_code verdict=failed why
    mkdir -p "$folder/work"
    (cd "$folder/work" && exec bash "$script") >"$folder/stdout" 2>"$folder/stderr" </dev/null
    code=$?
    times >"$scratch/$name.times"
    expected_code=$(cat "$script.exit" 2>/dev/null || echo 0)
    if [ $code = 77 ]; then
        verdict=skipped; echo "skipped $name: $(tail -n 1 "$folder/stdout")"
    elif [ $code != "$expected_code" ]; then
        echo "FAIL $name: exit $code, expected $expected_code"
        tail -n 20 "$folder/stdout" "$folder/stderr"
    elif ! why=$(matches "$name" stdout && matches "$name" stderr); then
        echo "FAIL $name: $why"
    else
        verdict=passed
    fi >"$folder/report"
    echo $verdict >"$folder/verdict"
    rm -rf "$folder/work"
}
export -f one matches takes_a_share

names=$(for script in "$CLI_TESTS"/*.sh; do
    name=$(basename "$script")
    if [ "$name" != run.sh ] && wanted "$name" "$@"; then echo "$name"; fi
done)
# Tests of much data begin, so that none runs alone at the end.
first=$(cd "$CLI_TESTS" && grep -lE 'is_(brief|quick)|\$\(most |left_to_all' $names </dev/null)
[ -z "$all" ] || names=$first
{ echo "$first"; grep -vxF "$first" <<<"$names"; } |
    xargs -r -P $(($(nproc) + 1)) -n 1 bash -c 'one "$0"'
for name in $names; do cat "$scratch/$name/report"; done
[ -z "$times" ] || awk -f "$CLI_TESTS/../times.awk" "$scratch"/*.times | sort -rn
count() { cat "$scratch"/*/verdict | grep -c "$1"; }
failed=$(count failed)
echo "command line: $(count passed) passed, $failed failed, $(count skipped) skipped"
[ "$failed" = 0 ]
