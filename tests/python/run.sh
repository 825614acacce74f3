#!/usr/bin/env bash
# run.sh BUILD [SEEDS=N] [HIDDEN...] : the package in python/ over BUILD's library and program, as
# without the packages HIDDEN (numpy, torch); $PYTHON is the interpreter (Debian's, else python3).
# SEEDS=N runs N random sequences of each test in conformance/. Closes with "N passed, N failed, N
# skipped".
set -u
cd "$(dirname "$0")/../.."
build=$(cd "$1" && pwd)
shift
seeds=
case ${1:-} in SEEDS=*) seeds=$1; shift ;; esac
hidden=$(mktemp -d)
trap 'rm -rf "$hidden"' EXIT
for package; do echo 'raise ImportError("hidden by run.sh")' >"$hidden/$package.py"; done
export PYTHONPATH=$hidden:python PYTHONDONTWRITEBYTECODE=1
. tests/python/find.bash
. tests/sanitized.bash
if is_sanitized "$build/bin"; then why="a sanitized library needs a sanitized Python"
elif [ ! -e "$build/libspecrt.so" ]; then why="no libspecrt.so (make lib)"; fi
if [ -n "$why" ]; then
    echo "skipped python: $why"
    echo "python: 0 passed, 0 failed, 1 skipped"
    exit 0
fi
# Nothing of what is tested comes from elsewhere.
SPECRT_LIBRARY=$(readlink -f "$build/libspecrt.so") SPECRT_TOOLS=$build/bin \
    "$python" tests/python/test_specrt.py $seeds
