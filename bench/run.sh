#!/usr/bin/env bash
# run.sh BUILD : every benchmark, with the machine and the commit, ready for bench/results.
set -eu
build=$1
echo "machine: $(grep -m 1 'model name' /proc/cpuinfo | cut -d: -f2-), $(nproc) cores"
echo "commit: $(git rev-parse --short HEAD 2>/dev/null || echo unknown)"
for bench in bench/bench_*.c; do
    name=$(basename "$bench" .c)
    echo "== $name"
    "$build/bench/$name"
done
