#!/bin/bash
# run.sh [OUT] : proof on a GPU. Builds for the one at hand, holds every kernel to its CPU twin, looks for races
# and stray accesses with compute-sanitizer, replays graphs, and times it all: OUT/cuda.json and OUT/cuda.txt
# (build/gpu; commit them under bench/results). Exit 77 where there is no GPU.
set -e
cd "$(dirname "$0")/../.."
if ! nvidia-smi -L >/dev/null 2>&1; then echo "skipped tests/gpu/run.sh: no GPU (nvidia-smi lists none)"; exit 77; fi
cuda=${CUDA_HOME:-/usr/local/cuda}
if command -v nvcc >/dev/null; then cuda=$(dirname "$(dirname "$(command -v nvcc)")"); fi
build=build/gpu out=${1:-build/gpu}
mkdir -p "$build" "$out"
nvidia-smi -L

# Needs the CUDA toolkit, a C compiler and libzstd: no other library of the tools.
flags="-std=c99 -D_GNU_SOURCE -DSPECRT_WORKER -DSPECRT_NO_ZSTD -O2 -g -Iinclude -Itests -Itests/gpu -idirafter $cuda/include"
"$cuda/bin/nvcc" -std=c++14 -O3 -lineinfo -diag-suppress 1675 -Iinclude -arch=native -c cuda/specrt_kernels.cu -o $build/kernels.o
"$cuda/bin/nvcc" -std=c++14 -O3 -lineinfo -diag-suppress 1675 -Iinclude -arch=native -DSPECRT_CUDA_DEBUG \
    -c cuda/specrt_kernels.cu -o $build/debug.o

link() { # link OBJECT KERNELS OUT [LIBRARY]
    "$cuda/bin/nvcc" -arch=native "$1" "$2" -lm -lpthread $4 -o "$3"
}
failed=0 tests=
for source in tests/gpu/test_gpu_*.c; do
    test=$(basename "$source" .c)
    [ "$test" != test_gpu_runtime ] || continue # of the harness
    ${CC:-cc} $flags -c "$source" -o "$build/$test.o"
    link "$build/$test.o" $build/kernels.o "$build/$test"
    link "$build/$test.o" $build/debug.o "$build/$test.debug"
    tests="$tests $test"
done
export SPECRT_TEST_LONG=1 # 64 sessions at once, and more cycles
for test in $tests; do
    "$build/$test" || failed=$((failed + 1))
    "$build/$test.debug" || failed=$((failed + 1)) # the same, each launch waited for
    for tool in memcheck racecheck synccheck; do
        command -v "$cuda/bin/compute-sanitizer" >/dev/null || { echo "skipped $tool: no compute-sanitizer"; continue; }
        if "$cuda/bin/compute-sanitizer" --tool $tool --error-exitcode 9 "$build/$test" >"$build/$test.$tool" 2>&1; then
            echo "$tool $test: $(tail -1 "$build/$test.$tool")"
        else
            echo "FAIL $tool $test: see $build/$test.$tool"; failed=$((failed + 1))
        fi
    done
done

blas=
if [ -e "$cuda/include/cublas_v2.h" ]; then blas=-lcublas flags="$flags -DBENCH_CUBLAS"; fi
${CC:-cc} $flags -c tests/gpu/bench_gpu.c -o $build/bench_gpu.o
link $build/bench_gpu.o $build/kernels.o $build/bench_gpu $blas
$build/bench_gpu "$out/cuda.json" | tee "$out/cuda.txt"
[ $failed -eq 0 ] || { echo "$failed failed"; exit 1; }
