#!/bin/bash
# run.sh : proof on a GPU, and its speed. By steps, each with a time limit; one that fails or runs
# out of time leaves what it found, and the others go on.
#
#     tests/gpu/run.sh                    twice: what a quarter of an hour on a card can tell
#     tests/gpu/run.sh STEPS=all          all there is, as long as it takes with LIMIT=0
#     tests/gpu/run.sh SEED=7 STEPS="build twins"
#     tests/gpu/run.sh DRY=1 ROUNDS=1     on the CPU's harness: a look at this script, not at a GPU
#
# STEPS   of build twins graph bench stress ncu debug sanitize host. Without it the first call has
#         build twins graph bench; the next one of the same sources and device has build ncu stress,
#         or, of the tests that failed in the first, debug and sanitize by racecheck alone
# OUT     folder of the results (build/gpu): cuda.json, cuda.txt and logs.txt. Commit the first two
#         under bench/results. What earlier calls found, of the same sources and device, stays
# LIMIT   seconds that all may take (570, of a next call 200; 0: as long as it takes); what is left
#         then is said to be left out, and waits for another call
# SEED    of all random data; without it a new one, which is told
# ROUNDS  seeds that each test is run with (2);  TESTS: these alone, of tests/gpu/test_gpu_*.c
#
# OUT, LIMIT, SEED, ROUNDS and STEPS may also stand in the environment.
#
# The step `host` has the sample pair, with build/sample/model.specb (make calibrate) if it is
# there.
# With 16 cores expect 1 to 2 minutes of `build` (nvcc takes 40 s for one architecture, twice side
# by side), 1 of `twins`, 3 of `bench`, 2 of `graph debug`, 1 of `stress` (64 sequences for 1,000
# cycles, twice, bit for bit), 1 of `ncu` (three launches of the product), 4 of `sanitize`, 1 of
# `host`.
# Programs and results stay in build/gpu-bin, where the next call finds them; on another machine put
# the call before's cuda.txt and cuda.json into OUT.
#
# Needs the CUDA toolkit and a C and C++ compiler, no library of the tools. Without a toolkit it
# fetches nvcc and compute-sanitizer of the driver's CUDA version, 13.0 or later, from PyPI.
# Exit 1 where something failed or was left out, 2 for wrong settings, 77 where there is no GPU.
set -u
export LC_ALL=C
cd "$(dirname "$0")/../.." || exit 1
stop() { echo "run.sh: $*" >&2; exit 2; }
dry= tests= bin=build/gpu-bin out=${OUT:-build/gpu} rounds=${ROUNDS:-2}
limit=${LIMIT:-} seed=${SEED:-}
all_steps="build twins graph bench stress ncu debug sanitize host"
steps=${STEPS:-}
settings="DRY OUT ROUNDS LIMIT SEED TESTS STEPS"
. bench/settings.bash
[ ${#words[@]} = 0 ] || stop "expected settings, one of $settings, found '${words[0]}'"
[ "$steps" != all ] || steps=$all_steps
[ -n "$seed" ] || seed=$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')
cuda=${CUDA_HOME:-/usr/local/cuda}
if [ -z "${CUDA_HOME:-}" ] && command -v nvcc >/dev/null; then
    cuda=$(dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")")
fi
all_tests() {
    for source in tests/gpu/test_gpu_*.c; do basename "$source" .c; done | grep -vx test_gpu_runtime
}
[ -n "$tests" ] || tests=$(all_tests)

for step in $steps; do
    case " $all_steps " in *" $step "*) ;;
        *) stop "STEPS: expected some of '$all_steps', found '$step'" ;; esac
done
for test in $tests; do [ -e "tests/gpu/$test.c" ] ||
    stop "TESTS: expected names as test_gpu_pack, found '$test'"; done
for setting in "SEED=$seed" "ROUNDS=$rounds" "LIMIT=${limit:-0}"; do
    case ${setting#*=} in '' | *[!0-9]*) stop "expected a number, found '$setting'" ;; esac
done
if [ -z "$dry" ] && ! nvidia-smi -L >/dev/null 2>&1; then
    echo "skipped tests/gpu/run.sh: no GPU (nvidia-smi lists none)"
    exit 77
fi
command -v ${CC:-cc} >/dev/null && command -v ${CXX:-c++} >/dev/null ||
    stop "no C and C++ compiler: install gcc and g++, or name them by CC= and CXX="
install="install the CUDA toolkit, named by CUDA_HOME= or in PATH"
mkdir -p "$out" "$bin" && : >>"$out/logs.txt" && : >>"$out/cuda.txt" && : >>"$out/cuda.json" ||
    stop "OUT: cannot write to $out"

# --- the toolkit ---

pip_install() { # pip_install PACKAGE... : of the version, into the folder
    "${PYTHON:-python3}" -m pip install -q --no-input --disable-pip-version-check \
        --root-user-action=ignore --target "$into" "${@/%/==$version.*}" >"$bin/pip.txt" 2>&1
}
fetch_toolkit() { # fetch_toolkit VERSION : without compute-sanitizer if that is not to be had
    local version=$1 into=$bin/toolkit-$1 missing=$cuda/bin/nvcc
    local packages=(nvidia-cuda-{nvcc,crt,runtime,cccl} nvidia-nvvm)
    cuda=$PWD/$into/nvidia/cu${version%%.*}
    [ ! -x "$cuda/bin/nvcc" ] || return 0
    echo "no $missing: fetching that of CUDA $version from PyPI"
    pip_install "${packages[@]}" nvidia-cuda-sanitizer-api || pip_install "${packages[@]}" ||
        stop "no $missing, and none of CUDA $version from PyPI ($(tail -n 1 "$bin/pip.txt"));" \
            "$install"
}
# A toolkit that compiles for the device, and whose programs its driver runs; sets `arch`.
find_toolkit() {
    local driver version capability
    driver=$(nvidia-smi | sed -n 's/.*CUDA Version: *\([0-9.]*\).*/\1/p')
    capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1)
    [ -x "$cuda/bin/nvcc" ] || fetch_toolkit "${driver:-unknown}"
    version=$("$cuda/bin/nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')
    [ -z "$driver" ] || [ "${version%%.*}" -le "${driver%%.*}" ] ||
        stop "$cuda: expected CUDA ${driver%%.*} or older, which the driver runs, found $version;" \
            "$install"
    arch=${capability/./}
    "$cuda/bin/nvcc" --list-gpu-arch | grep -qx "compute_$arch" ||
        stop "$cuda: CUDA $version does not compile for compute capability $capability; $install"
    arch=sm_$arch
}
if [ -z "$dry" ]; then
    find_toolkit
elif [ ! -e "$cuda/include/cuda_fp16.h" ]; then
    stop "no $cuda/include/cuda_fp16.h; $install"
fi

opt=2 slow=1
if [ -n "$dry" ]; then opt=1 slow=20; fi
logs=$out/logs.txt parts=$bin/parts failed=0 left_out=0 too_long=

# --- results ---

commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
device=$([ -n "$dry" ] && echo "the CPU's harness" || nvidia-smi --query-gpu=name,driver_version \
    --format=csv,noheader | head -n 1)
sources=$(cat include/specrt.h cuda/specrt_kernels.cu tests/*.h {tests,bench}/gpu/*.[ch]* |
    sha256sum | cut -c 1-12)
header="$device, sources $sources"

# A step's part of either result is a file of its own; those of other steps come from OUT, else from
# the call before.
take_earlier() {
    local step from=$out
    rm -rf "$parts"
    mkdir "$parts"
    [ -s "$out/cuda.txt" ] || from=$bin/kept
    [ "$(head -n 1 "$from/cuda.txt" 2>/dev/null)" = "$header" ] || { : >"$logs"; return; }
    [ -s "$logs" ] || cp "$from/logs.txt" "$logs"
    awk -v parts="$parts/" '/^== /{ file = parts $2 ".txt" } file { print >file }' "$from/cuda.txt"
    for step in $all_steps; do
        grep "^{\"of\": \"$step\"" "$from/cuda.json" | sed 's/,$//' >"$parts/$step.json"
    done
    sed -n '/^"benchmarks"/,$p' "$from/cuda.json" | grep '^{' | sed 's/,$//' >"$parts/benchmarks"
}

# Without STEPS: first what proves and measures, then a closer look, at what failed if anything did.
choose_steps() {
    local wrong
    [ -z "$steps" ] || return 0
    steps="build twins graph bench"
    [ -s "$parts/twins.json" ] || return 0
    : "${limit:=200}"
    wrong=$(grep -hE '"verdict": "(FAIL|out of time)"' "$parts"/{twins,graph}.json |
        grep -oE 'test_gpu_[a-z_]+' | sort -u | xargs)
    steps="build ncu stress"
    [ -z "$wrong" ] || steps="build debug sanitize" tests=$wrong sanitizer_tools=racecheck
    echo "the next call: $steps${wrong:+ of $wrong}"
}

# All of it after each step: whoever ends this script early has that.
give_results() {
    local step
    {
        echo "$header"
        for step in $all_steps; do cat "$parts/$step.txt" 2>/dev/null; done
    } >"$out/cuda.txt"
    {
        printf '{"device": "%s", "commit": "%s", "sources": "%s",\n"steps": [\n' "$device" \
            "$commit" "$sources"
        for step in $all_steps; do cat "$parts/$step.json" 2>/dev/null; done | sed '$!s/$/,/'
        printf '],\n"benchmarks": [\n'
        sed '$!s/$/,/' "$parts/benchmarks" 2>/dev/null
        printf ']}\n'
    } >"$out/cuda.json"
    mkdir -p "$bin/kept" && cp "$out"/{cuda.txt,cuda.json,logs.txt} "$bin/kept"
}

say() { echo "$*" | tee -a "$parts/$step.txt"; }

# tell NAME VERDICT SECONDS NOTE : a line of the table and of the JSON
tell() {
    case $2 in FAIL) failed=$((failed + 1)) ;;
        "out of time") failed=$((failed + 1)) too_long="$too_long$1, " ;;
        "left out") left_out=$((left_out + 1)) ;; esac
    say "$(printf '%-41s %-11s %6ss  %s' "$1" "$2" "$3" "$4")"
    echo \
        "{\"of\": \"$step\", \"step\": \"$1\", \"verdict\": \"$2\", \"seconds\": $3, \"seed\": $seed, \"note\": \"$4\"}" \
        >>"$parts/$step.json"
}

# check NAME SECONDS COMMAND... : what the command prints goes to the logs, and
# where it fails its end here.
check() {
    local name=$1 most=$(($2 * slow)) left=$((limit - SECONDS)) began=$EPOCHREALTIME
    local code verdict note
    shift 2
    if [ "$limit" != 0 ]; then
        if [ $left -lt 5 ]; then
            tell "$name" "left out" 0 "LIMIT=$limit; STEPS=$step runs it"
            return 1
        fi
        [ $most -le $left ] || most=$left
    fi
    echo "== $name: $*" >>"$logs"
    timeout -k 5 $most "$@" >"$bin/output" 2>&1
    code=$?
    head -c 1000000 "$bin/output" >>"$logs"
    note=$(grep -v '^ *$' "$bin/output" | tail -n 1 | tr -d '"\\' | tr -c '\n -~' '?' |
        cut -c 1-110)
    case $code in 0) verdict=pass ;; 77) verdict=skipped ;;
    124 | 137) verdict="out of time" note="after $most s: $note" ;;
    *) verdict=FAIL note="exit $code: $note" ;; esac
    tell "$name" "$verdict" "$(awk "BEGIN { printf \"%.1f\", $EPOCHREALTIME - $began }")" "$note"
    [ "$verdict" = pass ] || [ "$verdict" = skipped ] ||
        { tail -n 12 "$bin/output" | cut -c 1-200 | sed 's/^/    /'; return 1; }
}

# --- build ---

flags="-std=c99 -D_GNU_SOURCE -DSPECRT_WORKER -DSPECRT_TOOLS -O$opt -g -fPIC"
flags="$flags -Isrc -Itests -Itests/gpu -Ibench/gpu"
zstd=-lzstd blas=
if ! echo '#include <zstd.h>' | ${CC:-cc} -E - >/dev/null 2>&1; then
    zstd= flags="$flags -DSPECRT_NO_ZSTD"
fi
# cuBLASLt: the toolkit's, or that of PyTorch's packages.
blas_folders() {
    echo "$cuda"
    "${PYTHON:-python3}" -c 'import glob, sys
for path in sys.path:
    for folder in sorted(glob.glob(path + "/nvidia/*/include/cublasLt.h")): print(folder[:-19])' \
        2>/dev/null
}
find_blas() {
    local folder
    while read -r folder; do
        [ -e "$folder/include/cublasLt.h" ] || continue
        blas=$(ls "$folder"/lib64/libcublasLt.so* "$folder"/lib/libcublasLt.so* 2>/dev/null |
            head -n 1)
        [ -z "$blas" ] || { flags="$flags -DBENCH_CUBLASLT -idirafter $folder/include"; return; }
    done < <(blas_folders)
}
[ -n "$dry" ] || find_blas

kernels() { # kernels FILE OUT FLAG...
    local from=$1 to=$2
    shift 2
    if [ -n "$dry" ]; then
        harness -x c++ -c "$from" -o "$to" "$@"
    else
        "$cuda/bin/nvcc" -std=c++14 -O3 -lineinfo -diag-suppress 1675 -DSPECRT__KERNEL=extern \
            -Iinclude -Xcompiler -fPIC -arch="$arch" "$@" -c "$from" -o "$to"
    fi
}
harness() {
    ${CXX:-c++} -std=c++11 -DSPECRT_HARNESS -DSPECRT__KERNEL=extern -O1 -fPIC -Iinclude \
        -Itests/gpu -idirafter "$cuda/include" "$@"
}
compile() { # compile NAME
    case $1 in
    kernels) kernels cuda/specrt_kernels.cu "$bin/kernels.o" ;;
    debug) kernels cuda/specrt_kernels.cu "$bin/debug.o" -DSPECRT_CUDA_DEBUG ;;
    bench_read) kernels bench/gpu/bench_read.cu "$bin/bench_read.o" ;;
    harness | runtime) harness -c "tests/gpu/$1.cc" -o "$bin/$1.o" ;;
    specrt) ${CC:-cc} $flags -DSPECRT_IMPLEMENTATION -DSPECRT__INTERNAL= -x c -c include/specrt.h \
        -o "$bin/specrt.o" ;;
    bench_*) ${CC:-cc} $flags -DNO_TEST_MAIN -idirafter "$cuda/include" -c "bench/gpu/$1.c" \
        -o "$bin/$1.o" ;;
    *) ${CC:-cc} $flags -idirafter "$cuda/include" -c "tests/gpu/$1.c" -o "$bin/$1.o" ;;
    esac
}
link_all() { # link_all OUT OBJECT...
    local to=$1
    shift
    if [ -n "$dry" ]; then
        ${CXX:-c++} "$@" "$bin/harness.o" "$bin/runtime.o" $zstd -lm -lpthread -o "$to"
    else
        "$cuda/bin/nvcc" -arch="$arch" "$@" $zstd -lm -lpthread -o "$to"
    fi
}
link() { # link NAME
    case $1 in
    bench_gpu)
        link_all "$bin/$1" "$bin/$1.o" "$bin/bench_cycle.o" "$bin/bench_read.o" "$bin/kernels.o" \
            "$bin/specrt.o" ${blas:+"$blas" -Xlinker "-rpath=$(dirname "$blas")"} ;;
    *.so) link_all "$bin/$1" -shared "$bin/kernels.o" "$bin/specrt.o" ;;
    *.debug) link_all "$bin/$1" "$bin/${1%.debug}.o" "$bin/debug.o" "$bin/specrt.o" ;;
    *) link_all "$bin/$1" "$bin/$1.o" "$bin/kernels.o" "$bin/specrt.o" ;;
    esac
}
each() { # each FUNCTION NAME... : as many at a time as there are cores; fails where one does
    local run=$1
    shift
    printf '%s\n' "$@" | xargs -P "$(nproc)" -I '{}' bash -c "$run {}"
}
is_built() { [ "$(cat "$bin/built" 2>/dev/null)" = "$header" ]; }
build_all() {
    local test programs= missing=
    for test in $tests; do
        programs="$programs $test $test.debug"
        [ -x "$bin/$test.debug" ] || missing=1
    done
    if is_built && [ -z "$missing" ]; then echo "built before"; return; fi
    rm -f "$bin/built"
    [ -n "$dry$blas" ] || echo "no cuBLASLt: nothing to compare products with"
    each compile kernels debug $tests bench_gpu bench_cycle bench_read specrt \
        ${dry:+harness runtime} || return 1
    each link $programs bench_gpu libspecrt_cuda.so || return 1
    echo "$header" >"$bin/built"
    echo \
        "built for $([ -n "$dry" ] && echo the harness || nvidia-smi --query-gpu=name,compute_cap --format=csv,noheader)"
}

export -f kernels harness compile link_all link each is_built build_all
step_build() { check build 240 bash -c build_all; }

# --- proof ---

name_tests() {
    quick=${tests/test_gpu_whole/}
    twins=${quick/test_gpu_faults/} # which is for kernels built for debugging
}

# Every test with its own data, then with fresh seeds.
run_rounds() {
    local i
    "$1" || return
    for ((i = 0; i < rounds; i++)); do
        "$1" seed=$((seed + i)) || { echo "$1 seed=$((seed + i)) failed"; return 1; }
    done
}
export -f run_rounds
step_twins() {
    local test
    for test in $twins; do check "twin $test" 60 bash -c 'run_rounds "$0"' "$bin/$test"; done
    [ -n "$dry" ] || [ ! -x "$bin/test_gpu_real" ] ||
        check "twin test_gpu_real at real size" 120 "$bin/test_gpu_real" long=1
    [ -n "$dry" ] || [ ! -x "$bin/test_gpu_tree" ] ||
        check "twin test_gpu_tree at real size" 60 "$bin/test_gpu_tree" --filter whole long=1
    [ -n "$dry" ] || [ ! -x "$bin/test_gpu_filter" ] ||
        check "twin test_gpu_filter at real size" 60 "$bin/test_gpu_filter" --filter whole long=1
    [ -n "$dry" ] || [ ! -x "$bin/test_gpu_whole" ] ||
        check "test_gpu_whole at real size" 120 "$bin/test_gpu_whole"
}

# Cycles captured and replayed, more of them, 64 sequences at once, many policies; on the harness
# fewer.
step_graph() {
    local long=long=1
    [ -z "$dry" ] || long=
    local name of=$bin/test_gpu_session
    for name in policies batch random; do
        check "test_gpu_session, $name as graphs" 60 "$of" --filter $name $long seed="$seed"
    done
}

# 64 sequences for 1,000 cycles replayed as a graph, twice: each cycle bit for bit the same, and
# three of the sequences as their twins; on the harness fewer.
step_stress() {
    local long=long=1
    [ -z "$dry" ] || long=
    check "64 sequences, twice" 240 "$bin/test_gpu_session" --filter stress $long seed="$seed"
}

# Each launch waited for, so that what fails is named.
step_debug() { for test in $quick; do check "debug $test" 30 "$bin/$test.debug"; done; }

# Several at a time, of the tests' smallest data.
sanitizer_limit=60
run_sanitizers() {
    local tool test
    rm -f "$bin"/*.code
    for tool in $sanitizer_tools; do
        for test in $twins; do echo "$tool $test"; done
    done | xargs -P 6 -n 2 sh \
        -c 'timeout -k 5 $sanitizer_limit "$0" --tool "$2" --error-exitcode 9 "$1/$3" \
            >"$1/$3.$2" 2>&1
        echo $? >"$1/$3.$2.code"' "$1" "$bin"
}
export sanitizer_limit
export -f run_sanitizers
step_sanitize() {
    local tool test sanitizer=$cuda/bin/compute-sanitizer
    [ -x "$sanitizer" ] || sanitizer=$(command -v compute-sanitizer)
    if [ -n "$dry" ]; then
        tell sanitize skipped 0 "it looks at GPUs; make asan and make tsan-gpu at the harness"
        return
    fi
    if [ -z "$sanitizer" ]; then tell sanitize skipped 0 "no compute-sanitizer"; return; fi
    check "all sanitizers" 400 bash -c 'run_sanitizers "$0"' "$sanitizer"
    for tool in $sanitizer_tools; do
        for test in $twins; do
            check "$tool $test" $sanitizer_limit sh -c \
                'cat "$0"; exit "$(cat "$0.code" || echo 124)"' "$bin/$test.$tool"
        done
    done
}

# PyTorch drives the library, lossless against its own greedy decoding.
step_host() {
    local python=${PYTHON:-python3} bundle= how="--max-tokens 128 --policy full"
    how="$how --policy window:2048"
    "$python" -c 'import torch, safetensors' 2>/dev/null ||
        { tell torch_host skipped 0 "$python has no torch and safetensors (PYTHON=)"; return; }
    if [ -n "$dry" ]; then
        how="--device cpu --max-tokens 4 --num-steps 2 --topk 2 --num-draft-tokens 4"
        how="$how --policy window:256"
    fi
    [ ! -e build/sample/model.specb ] || bundle=build/sample/model.specb
    [ -n "$dry" ] || [ -z "$bundle" ] ||
        how="$how --policy static:4096 --policy microspec --policy evospec"
    check torch_host 120 "$python" examples/torch_host.py --library "$bin/libspecrt_cuda.so" $how \
        --target data/sample/target.gguf --draft data/sample/draft.safetensors \
        ${bundle:+--bundle "$bundle"} --ids 1,2,3,4,5,6,7,8
    say "$(grep -E 'tokens/s' "$bin/output")"
}

# Clocks before and after say whether the card held its speed.
clocks() { # clocks WHEN : a line of the table and of the benchmarks
    local fields="clocks.sm clocks.mem power.draw temperature.gpu clocks_throttle_reasons.active"
    local now=none
    [ -n "$dry" ] || now=$(nvidia-smi --format=csv,noheader --query-gpu="${fields// /,}" |
        head -n 1)
    say "$1 bench: $now"
    echo "{\"what\": \"clocks $1\", \"$fields\": \"$now\"}" >>"$parts/benchmarks"
}
step_bench() {
    clocks before
    check bench 240 "$bin/bench_gpu" ${dry:+--tiny} "$bin/bench.jsonl"
    grep '}$' "$bin/bench.jsonl" >>"$parts/benchmarks"
    clocks after
    say "$(cat "$bin/output")"
}

# What holds the product back, by its counters: three launches, of the first sizes that bench has.
look_closer() { # look_closer OUT NCU
    "$2" --clock-control none --kernel-name-base demangled --kill yes -c 3 --set full \
        -k 'regex:head_tiles' "$bin/bench_gpu" /dev/null sizes >"$1" 2>&1
    cat "$1"
    if grep -q ERR_NVGPUCTRPERM "$1"; then echo "counters need a permission"; exit 77; fi
    grep 'Memory Throughput' "$1" # the last line is the note
}
export -f look_closer
step_ncu() {
    local ncu=$cuda/bin/ncu
    [ -x "$ncu" ] || ncu=$(command -v ncu)
    if [ -n "$dry" ]; then tell ncu skipped 0 "it looks at GPUs"; return; fi
    if [ -z "$ncu" ]; then tell ncu skipped 0 "no ncu"; return; fi
    check ncu 90 bash -c 'look_closer "$@"' ncu "$out/ncu.txt" "$ncu"
}

# --- all ---

sanitizer_tools="racecheck memcheck synccheck initcheck"
take_earlier
choose_steps
: "${limit:=570}"
name_tests
export arch cuda dry bin flags zstd blas tests seed rounds header twins sanitizer_tools
echo "$header, SEED=$seed"
for step in $steps; do
    [ "$step" = build ] || is_built ||
        stop "STEPS: '$step' needs what 'build' makes of these sources"
    rm -f "$parts/$step.json" "$parts/$step.txt" "$bin/output"
    if [ "$step" = bench ]; then rm -f "$bin/bench.jsonl" "$parts/benchmarks"; fi
    say "== $step of commit $commit, SEED=$seed"
    "step_$step"
    give_results
    if [ "$step" = build ] && [ $((failed + left_out)) != 0 ]; then break; fi
done
echo "results in $out"
[ -z "$too_long" ] || echo "OUT OF TIME, and so not proven: ${too_long%, }"
[ $((failed + left_out)) = 0 ] || { echo "$failed failed, $left_out left out"; exit 1; }
