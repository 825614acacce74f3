#!/usr/bin/env bash
# run.sh BUILD : the package in python/ over BUILD's library and program; $PYTHON is the interpreter
# (Debian's, else python3). SPECRT_TEST_HIDE="torch numpy" runs the tests as without these packages.
# Closes with "N passed, N failed, N skipped".
set -u
cd "$(dirname "$0")/../.."
build=$(cd "$1" && pwd)
. tests/python/find.bash
if [ -n "${SAN:-}" ]; then why="a sanitized library needs a sanitized Python"
elif [ ! -e "$build/libspecrt.so" ]; then why="no libspecrt.so (make lib)"; fi
if [ -n "$why" ]; then
    echo "skipped python: $why"
    echo "python: 0 passed, 0 failed, 1 skipped"
    exit 0
fi
# Nothing of what is tested comes from elsewhere.
SPECRT_LIBRARY=$(readlink -f "$build/libspecrt.so") SPECRT_TOOLS=$build/bin PYTHONPATH=python \
    PYTHONDONTWRITEBYTECODE=1 "$python" tests/python/test_specrt.py
