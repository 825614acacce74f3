#!/usr/bin/env bash
# exports.sh COMPILER... : the functions that specrt.h declares for applications, a name a line,
# sorted; what libspecrt.so exports. Those of a GPU are in libspecrt_cuda.so.
set -eu
cd "$(dirname "$0")/.."
"$@" -DSPECRT_WORKER -Iinclude -E -P include/specrt.h | tr '\n' ' ' |
    grep -oE 'extern [^;{]* \*?specrt_[a-z0-9_]+\(' | grep -oE 'specrt_[a-z0-9_]+\($' |
    tr -d '(' | grep -v '^specrt_cuda_' | sort -u
