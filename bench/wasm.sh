#!/usr/bin/env bash
# wasm.sh [ROUNDS] : products of packed rows in WebAssembly, with vectors of 128 bits and without,
# beside this machine's own code: bench_simd.c, compiled three times, in turns. The least of ROUNDS
# turns (3), of 10 measurements each. Needs zig and wasmtime (pip install ziglang wasmtime); gcc.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
options="-std=c99 -D_GNU_SOURCE -O3 -Iinclude -DSPECRT_NO_FILES -DSPECRT_NO_ZSTD"
zig="${ZIG:-python3 -m ziglang} cc -target wasm32-wasi"
$zig -msimd128 $options bench/bench_simd.c -lm -o "$work/vectors.wasm"
$zig $options bench/bench_simd.c -lm -o "$work/scalar.wasm"
gcc $options bench/bench_simd.c -lm -o "$work/native"

turn() {
    tests/wasm/run.py "$work/vectors.wasm" 10 | sed 's/^/simd128 /'
    tests/wasm/run.py "$work/scalar.wasm" 10 | sed 's/^/no-simd /'
    "$work/native" 10 | sed 's/^/native  /'
}

echo "build   kernels type  hidden rows   ms; 2,048 rows of 1,024 columns"
for ((i = 0; i < ${1:-3}; i++)); do turn; done | awk '
    { key = sprintf("%-7s %-7s %-5s %11d", $1, $2, $3, $4) }
    !(key in least) { order[n++] = key }
    !(key in least) || $5 < least[key] { least[key] = $5 }
    END { for (i = 0; i < n; i++) printf "%s %8.3f\n", order[i], least[order[i]] }'
echo "load of the machine at the end: $(cut -d " " -f 1-3 /proc/loadavg)"
