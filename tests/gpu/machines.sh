#!/usr/bin/env bash
# machines.sh : what run.sh says on machines that cannot run it: one line, and what to do. A script
# in the place of nvidia-smi says which driver and device there are; nothing else is replaced.
set -u
cd "$(dirname "$0")/../.." || exit 1
work=$(mktemp -d) passed=0 failed=0 skipped=0
trap 'rm -rf "$work"' EXIT
driver() { # driver CUDA CAPABILITY
    printf '#!/bin/sh\ncase "$*" in *compute_cap*) echo %s ;; -L) echo GPU 0 ;;
*) echo "| CUDA Version: %s |" ;; esac\n' "$2" "$1" >"$work/nvidia-smi"
    chmod +x "$work/nvidia-smi"
}
# expect CODE TEXT VARIABLE=VALUE... : run.sh ends with the code and a last line that has the text.
expect() {
    local code=$1 text=$2 found
    shift 2
    env PATH="$work:$PATH" "$@" tests/gpu/run.sh STEPS=build OUT="$work/out" >"$work/log" 2>&1
    found=$?
    if [ $found = "$code" ] && tail -n 1 "$work/log" | grep -q -- "$text"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL $*: expected exit $code and '$text', found exit $found:"
        tail -n 5 "$work/log"
    fi
}

printf '#!/bin/sh\nexit 9\n' >"$work/nvidia-smi"
chmod +x "$work/nvidia-smi"
expect 77 "no GPU" CUDA_HOME=
driver 13.0 9.0
expect 2 "install gcc and g++" CC=no-such-compiler
driver 99.9 9.0 # nothing of it was fetched before
expect 2 "from PyPI (.*); install the CUDA toolkit" CUDA_HOME="$work/none" PYTHON=no-such-python
cuda=${CUDA_HOME:-/usr/local/cuda}
if [ -x "$cuda/bin/nvcc" ]; then
    driver 13.0 2.0
    expect 2 "does not compile for compute capability 2.0" CUDA_HOME="$cuda"
    driver 9.2 9.0
    expect 2 "expected CUDA 9 or older" CUDA_HOME="$cuda"
else
    skipped=2
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
