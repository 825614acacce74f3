#!/usr/bin/env bash
# run.sh : the interoperability tests of this folder, opt-in: each script skips what it has no
# package or data for. $PYTHON is the interpreter (python3). Run from the project's root; closes
# with one line "N passed, N failed, N skipped".
set -u
passed=0 failed=0 skipped=0
for script in tests/interop/*_interop.py; do
    echo "== $script"
    out=$("${PYTHON:-python3}" "$script" 2>&1)
    code=$?
    echo "$out"
    line=$(grep -oE '[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped' <<<"$out" | tail -n 1)
    if [ -z "$line" ]; then
        echo "FAIL $script: exit $code without a result line"
        failed=$((failed + 1))
        continue
    fi
    read -r p _ f _ s _ <<<"${line//,/}"
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
