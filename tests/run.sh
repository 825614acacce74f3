#!/usr/bin/env bash
# run.sh [--times] [--all] BUILD [NAME...] : every unit test that is built, the compile tests, the
# examples, the command-line tests and the Python package; with NAMEs, of all but the unit tests
# only the command-line tests whose names hold one of them. The compile tests build for themselves,
# so a sanitized run leaves them out. With --times the seconds of CPU that each took stand before
# the tally. --all takes the tests that know EVERYTHING=1 alone, with all of their data. Closes with
# one line "N passed, N failed, N skipped".
set -u
times= all=
if [ "$1" = --times ]; then times=$1; shift; fi
if [ "$1" = --all ]; then all=$1; shift; export EVERYTHING=1; fi
build=$1; shift
. tests/sanitized.bash
# A sanitized run takes more, unless TEST_QUICK=1 asks for no more.
if [ -n "${EVERYTHING:-}" ]; then unset TEST_QUICK
elif ! is_sanitized "$build/bin"; then export TEST_QUICK=1; fi
passed=0 failed=0 skipped=0
tally() { # name, output: add up its last "N passed, N failed, N skipped"
    local line; line=$(grep -oE '[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped' <<<"$2" | tail -n 1)
    if [ -z "$line" ]; then echo "FAIL $1: no result line"; failed=$((failed + 1)); return; fi
    set -- $line
    passed=$((passed + $1)); failed=$((failed + $3)); skipped=$((skipped + $5))
}
# As many at a time as there are cores, reported in the order of their names; long ones begin.
tests=$(find "$build/tests" -maxdepth 1 -name 'test_*' -type f -perm -u+x ! -name '*.*' | sort)
if [ -n "$all" ]; then
    shares=$(grep -lwE 'test_brief|test_quick|LEFT_TO_ALL' tests/*/test_*.c |
        xargs -n 1 basename -s .c)
    shares+=$'\n'test_gpu_faults # whose kernels are compiled for it alone
    tests="tests/compile/run.sh
tests/python/run.sh $build
$(grep -E "/($(paste -sd '|' <<<"$shares"))$" <<<"$tests")"
elif [ $# = 0 ]; then
    tests="tests/python/run.sh $build
tests/examples.sh $build/bin
$tests"
    is_sanitized "$build/bin" || tests="tests/compile/run.sh
$tests"
fi
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
# log_of TEST : the name of its log, of the part of its path below tests/.
log_of() { local name=${1#*tests/}; echo "$logs/${name//\//-}"; }
logged() { # TEST [ARGUMENT]
    local log; log=$(log_of "$1")
    "$@" >"$log" 2>&1; echo $? >"$log.code"
    times >"$log.times"
}
export logs; export -f log_of logged
xargs -L 1 -P "$(nproc)" bash -c 'logged "$@"' logged <<<"$tests"
while read -r test _; do
    out=$(cat "$(log_of "$test")"); code=$(cat "$(log_of "$test").code")
    case $test in *.sh) echo "$out" ;; *) grep -vE '^skipped ' <<<"$out" ;; esac
    tally "$test" "$out"
    # A crash after the last line still counts.
    if [ "$code" -gt 1 ]; then echo "FAIL $test: exit $code"; failed=$((failed + 1)); fi
done <<<"$tests"
if ! grep -q /test_gpu_ <<<"$tests"; then
    echo "skipped test_gpu: no headers of the CUDA toolkit (CUDA_HOME), or a run of a part"
    skipped=$((skipped + 1))
fi
out=$(tests/cli/run.sh $times $all "$build/bin" "$@" 2>&1); echo "$out"
tally tests/cli/run.sh "$out"
[ -z "$times" ] || awk -f tests/times.awk "$logs"/*.times | sort -rn
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
