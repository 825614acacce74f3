#!/usr/bin/env bash
# run.sh BUILD : the package in python/ over BUILD's library and program; $PYTHON is the interpreter
# (Debian's, else python3). Closes with "N passed, N failed, N skipped".
set -u
cd "$(dirname "$0")/../.."
build=$(cd "$1" && pwd)
for python in "${PYTHON:-}" /usr/bin/python3 python3; do
    [ -n "$python" ] && "$python" -c 'import numpy' 2>/dev/null && break
    python=
done
if [ -n "${SAN:-}" ]; then why="a sanitized library needs a sanitized Python"
elif [ ! -e "$build/libspecrt.so" ]; then why="no libspecrt.so (make lib)"
elif [ -z "$python" ]; then why="no python3 with numpy (apt-get install -y python3-numpy)"; fi
if [ -n "${why:-}" ]; then
    echo "skipped python: $why"
    echo "python: 0 passed, 0 failed, 1 skipped"
    exit 0
fi
# Nothing of what is tested comes from elsewhere.
SPECRT_LIBRARY=$(readlink -f "$build/libspecrt.so") SPECRT_TOOLS=$build/bin PYTHONPATH=python \
    PYTHONDONTWRITEBYTECODE=1 "$python" tests/python/test_specrt.py
