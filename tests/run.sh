#!/usr/bin/env bash
# run.sh BUILD : every unit test, the compile tests, the examples and the command-line tests; closes
# with one line "N passed, N failed, N skipped".
set -u
build=$1
passed=0 failed=0 skipped=0
tally() { # name, output: add up its last "N passed, N failed, N skipped"
    local line; line=$(grep -oE '[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped' <<<"$2" | tail -n 1)
    if [ -z "$line" ]; then echo "FAIL $1: no result line"; failed=$((failed + 1)); return; fi
    set -- $line
    passed=$((passed + $1)); failed=$((failed + $3)); skipped=$((skipped + $5))
}
for test in "$build"/tests/test_*; do
    case $test in *.o | *.d) continue ;; esac
    [ -x "$test" ] || continue
    out=$("$test" 2>&1); code=$?
    grep -vE '^skipped ' <<<"$out"
    tally "$test" "$out"
    # A crash after the last line still counts.
    if [ $code -gt 1 ]; then echo "FAIL $test: exit $code"; failed=$((failed + 1)); fi
done
for script in tests/compile/run.sh tests/cli/run.sh tests/examples.sh; do
    [ -x "$script" ] || continue
    out=$("$script" "$build/bin" 2>&1); echo "$out"
    tally "$script" "$out"
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
