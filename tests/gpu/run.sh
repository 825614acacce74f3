#!/bin/bash
# run.sh : proof on a GPU, and its speed, in about 8 minutes with the build. By steps, each with a time limit; one
# that fails or runs out of time leaves what it found, and the others go on.
#
#     tests/gpu/run.sh                          all of STEPS="build twins graph debug sanitize host bench"
#     SEED=7 STEPS="build twins" tests/gpu/run.sh
#     DRY=1 tests/gpu/run.sh                    on the CPU's harness: a look at this script, not at a GPU
#
# SEED    of all random data; without it a new one, which is told
# ROUNDS  seeds that each test is run with (8)
# OUT     folder of the results (build/gpu): cuda.json, cuda.txt, logs.txt, sizes.svg, timeline.svg. Commit the
#         first two under bench/results
# TARGET, DRAFT, BUNDLE, PROMPT : models for the step `host`, and ids; else the sample pair, with the bundle
#         build/sample.specb (make calibrate) if it is there
#
# Needs the CUDA toolkit and a C compiler, no library of the tools. Programs go to build/gpu-bin and stay there for
# other steps. Exit 1 where something failed, 77 where there is no GPU.
set -u
export LC_ALL=C
cd "$(dirname "$0")/../.."
dry=${DRY:-} out=${OUT:-build/gpu} bin=build/gpu-bin rounds=${ROUNDS:-8}
steps=${STEPS:-build twins graph debug sanitize host bench}
seed=${SEED:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}
cuda=${CUDA_HOME:-/usr/local/cuda}
if [ -z "${CUDA_HOME:-}" ] && command -v nvcc >/dev/null; then cuda=$(dirname "$(dirname "$(command -v nvcc)")"); fi
if [ -z "$dry" ] && ! nvidia-smi -L >/dev/null 2>&1; then
    echo "skipped tests/gpu/run.sh: no GPU (nvidia-smi lists none)"
    exit 77
fi
mkdir -p "$out" "$bin"
opt=2 slow=1
if [ -n "$dry" ]; then opt=1 slow=20; fi
logs=$out/logs.txt table=$out/cuda.txt failed=0 lines=() # of the JSON
: >"$logs"
tests=$(for source in tests/gpu/test_gpu_*.c; do basename "$source" .c; done | grep -vx test_gpu_runtime)

say() { echo "$*" | tee -a "$table"; }

# check NAME SECONDS COMMAND... : a line of the table and of the JSON; what the command prints goes to the logs.
check() {
    local name=$1 limit=$2 began=$EPOCHREALTIME code verdict note
    shift 2
    echo "== $name: $*" >>"$logs"
    timeout -k 5 $((limit * slow)) "$@" >"$bin/output" 2>&1
    code=$?
    head -c 1000000 "$bin/output" >>"$logs"
    note=$(grep -v '^ *$' "$bin/output" | tail -n 1 | tr -d '"\\\n' | tr '\t' ' ' | cut -c 1-120)
    case $code in 0) verdict=pass ;; 77) verdict=skipped ;; 124 | 137) verdict="out of time" ;; *) verdict=FAIL ;; esac
    tell "$name" "$verdict" "$(awk "BEGIN { printf \"%.1f\", $EPOCHREALTIME - $began }")" "$note"
    [ "$verdict" = pass ] || [ "$verdict" = skipped ]
}

# tell NAME VERDICT SECONDS NOTE
tell() {
    case $2 in FAIL | "out of time") failed=$((failed + 1)) ;; esac
    say "$(printf '%-34s %-11s %6ss  %s' "$1" "$2" "$3" "$4")"
    lines+=("{\"step\": \"$1\", \"verdict\": \"$2\", \"seconds\": $3, \"note\": \"$4\"}")
}

# --- build ---

flags="-std=c99 -D_GNU_SOURCE -DSPECRT_WORKER -O$opt -g -fPIC -Iinclude -Itests -Itests/gpu -idirafter $cuda/include"
zstd=-lzstd
if ! echo '#include <zstd.h>' | ${CC:-cc} -E - >/dev/null 2>&1; then zstd= flags="$flags -DSPECRT_NO_ZSTD"; fi
kernels() { # kernels OUT FLAG...
    local to=$1
    shift
    if [ -n "$dry" ]; then
        ${CXX:-c++} -std=c++11 -DSPECRT_HARNESS -O1 -fPIC -Iinclude -Itests/gpu -idirafter "$cuda/include" "$@" \
            -x c++ -c cuda/specrt_kernels.cu -o "$to"
    else
        "$cuda/bin/nvcc" -std=c++14 -O3 -lineinfo -diag-suppress 1675 -Iinclude -Xcompiler -fPIC -arch=native "$@" \
            -c cuda/specrt_kernels.cu -o "$to"
    fi
}
link() { # link OUT OBJECT...
    local to=$1
    shift
    if [ -n "$dry" ]; then
        ${CXX:-c++} "$@" "$bin/harness.o" "$bin/runtime.o" $zstd -lm -lpthread -o "$to"
    else
        "$cuda/bin/nvcc" -arch=native "$@" $zstd -lm -lpthread -o "$to"
    fi
}

build_all() {
    local pids=() blas= test
    kernels "$bin/kernels.o" & pids+=($!)
    kernels "$bin/debug.o" -DSPECRT_CUDA_DEBUG & pids+=($!)
    if [ -n "$dry" ]; then
        for test in harness runtime; do
            ${CXX:-c++} -std=c++11 -DSPECRT_HARNESS -O1 -fPIC -Iinclude -Itests/gpu -idirafter "$cuda/include" \
                -c tests/gpu/$test.cc -o "$bin/$test.o" || return 1
        done
    else
        blas=$(ls "$cuda"/lib64/libcublasLt.so* "$cuda"/lib/libcublasLt.so* 2>/dev/null | head -n 1)
        [ -e "$cuda/include/cublasLt.h" ] || blas=
        if [ -n "$blas" ]; then flags="$flags -DBENCH_CUBLASLT" blas="$blas -Xlinker -rpath=$(dirname "$blas")"; fi
        [ -n "$blas" ] || echo "no cuBLASLt: nothing to compare products with"
    fi
    for test in $tests bench_gpu bench_cycle; do
        ${CC:-cc} $flags -c tests/gpu/$test.c -o "$bin/$test.o" || return 1
    done
    ${CC:-cc} $flags -c tools/common/specrt_impl.c -o "$bin/specrt.o" || return 1
    for test in "${pids[@]}"; do wait "$test" || return 1; done
    for test in $tests; do
        link "$bin/$test" "$bin/$test.o" "$bin/kernels.o" || return 1
        link "$bin/$test.debug" "$bin/$test.o" "$bin/debug.o" || return 1
    done
    link "$bin/bench_gpu" "$bin/bench_gpu.o" "$bin/bench_cycle.o" "$bin/kernels.o" $blas || return 1
    link "$bin/libspecrt_cuda.so" -shared "$bin/kernels.o" "$bin/specrt.o" || return 1
    echo "built for $([ -n "$dry" ] && echo the harness || nvidia-smi --query-gpu=name,compute_cap --format=csv,noheader)"
}

export cuda dry bin flags zstd tests seed rounds
export -f kernels link build_all
step_build() { check build 240 bash -c build_all; }

# --- proof ---

# Every test with its own data, then with fresh seeds.
run_rounds() {
    local i
    "$1" || return 1
    for ((i = 0; i < rounds; i++)); do
        SPECRT_TEST_SEED=$((seed + i)) "$1" || { echo "$1 failed: SPECRT_TEST_SEED=$((seed + i))"; return 1; }
    done
}
export -f run_rounds
step_twins() { for test in $tests; do check "twin $test" 60 bash -c 'run_rounds "$0"' "$bin/$test"; done; }

# Cycles captured and replayed, more of them, and 64 sequences at once.
step_graph() {
    check "graphs of 60 cycles" 60 env SPECRT_TEST_LONG=1 SPECRT_TEST_SEED="$seed" "$bin/test_gpu_session" --filter policies
    check "64 sessions" 60 env SPECRT_TEST_LONG=1 SPECRT_TEST_SEED="$seed" "$bin/test_gpu_session" --filter batch
}

# Each launch waited for, so that what fails is named.
step_debug() { for test in $tests; do check "debug $test" 30 "$bin/$test.debug"; done; }

# Several at a time, of the tests' smallest data. What takes longer than its limit is left out, and said to be.
step_sanitize() {
    local tool test sanitizer=$cuda/bin/compute-sanitizer
    local sanitized=${tests/test_gpu_faults/} # which reads where nothing is
    [ -x "$sanitizer" ] || sanitizer=$(command -v compute-sanitizer) ||
        { tell sanitize skipped 0 "no compute-sanitizer"; return; }
    for tool in racecheck memcheck synccheck; do
        for test in $sanitized; do echo "$tool $test"; done
    done | xargs -P "${SANITIZERS:-6}" -n 2 sh -c 'timeout -k 5 40 "$1" --tool "$3" --error-exitcode 9 "$2/$4" >"$2/$4.$3" 2>&1
        echo $? >"$2/$4.$3.code"' sh "$sanitizer" "$bin"
    for tool in racecheck memcheck synccheck; do
        for test in $sanitized; do
            check "$tool $test" 5 sh -c 'cat "$0"; code=$(cat "$0.code")
                if [ "$code" = 124 ]; then echo "left out: longer than 40 s"; exit 77; fi; exit "$code"' "$bin/$test.$tool"
        done
    done
}

# PyTorch drives the library, lossless against its own greedy decoding.
step_host() {
    local python=${PYTHON:-python3} how="--max-tokens 128 --policy full --policy window:2048"
    "$python" -c 'import torch, safetensors' 2>/dev/null ||
        { tell torch_host skipped 0 "$python has no torch and safetensors (PYTHON=)"; return; }
    if [ -n "$dry" ]; then
        how="--device cpu --max-tokens 4 --num-steps 2 --topk 2 --num-draft-tokens 4 --policy window:256"
    fi
    [ -n "${BUNDLE:-}" ] || [ ! -e build/sample.specb ] || BUNDLE=build/sample.specb
    [ -n "$dry" ] || [ -z "${BUNDLE:-}" ] || how="$how --policy static:4096 --policy microspec --policy evospec"
    check torch_host 120 "$python" examples/torch_host.py --library "$bin/libspecrt_cuda.so" $how \
        --target "${TARGET:-data/sample/target.gguf}" --draft "${DRAFT:-data/sample/draft.safetensors}" \
        ${BUNDLE:+--bundle "$BUNDLE"} --ids "${PROMPT:-1,2,3,4,5,6,7,8}"
    grep -E 'tokens/s' "$bin/output" | tee -a "$table"
}

step_bench() {
    check bench 150 "$bin/bench_gpu" ${dry:+--tiny} "$bin/bench.jsonl"
    cat "$bin/output" >>"$table"
    cat "$bin/output"
}

# --- all ---

commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
device=$([ -n "$dry" ] && echo "the CPU's harness" || nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1)
: >"$table"
say "$device, commit $commit, SEED=$seed"
rm -f "$bin/bench.jsonl"
for step in $steps; do
    if ! declare -F "step_$step" >/dev/null; then echo "run.sh: no step $step" >&2; exit 2; fi
    "step_$step"
    if [ "$step" = build ] && [ $failed != 0 ]; then tail -n 20 "$logs"; break; fi
done
{
    printf '{"device": "%s", "commit": "%s", "seed": %s,\n"steps": [\n' "$device" "$commit" "$seed"
    (IFS=$'\n'; echo "${lines[*]}") | sed '$!s/$/,/'
    printf '],\n"benchmarks": [\n'
    if [ -e "$bin/bench.jsonl" ]; then grep '}$' "$bin/bench.jsonl" | sed '$!s/$/,/'; fi
    printf ']}\n'
} >"$out/cuda.json"
python3 tests/gpu/plot.py "$out/cuda.json" "$out" 2>&1 | tee -a "$logs"
echo "results in $out"
[ $failed = 0 ] || { echo "$failed failed"; exit 1; }
