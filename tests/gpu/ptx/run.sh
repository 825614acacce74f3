#!/usr/bin/env bash
# run.sh [LONG=1] [COVER=1] [SEED=N] FOLDER "75 90" TEST... : every test on nvcc's PTX in the
# folder, of each architecture, and first the cases named `whole` with the ids of a published
# vocabulary. Known reports are in known.txt, with reasons. Then faults are planted (faults.py);
# last, a tally.
# LONG : heads of bf16 and of f32 have that many rows, too
# COVER : instead of planting faults tell how much of each kernel has run (cover.py)
# SEED : of the order in which warps run
set -u
long= cover= seed=0
while [[ $1 = [A-Z]*=* ]]; do declare "$(tr A-Z a-z <<<"${1%%=*}")=${1#*=}"; shift; done
folder=$1 architectures=$2; shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
settings=,seed=$seed
if [ -n "$cover" ]; then
    settings=$settings,cover=$work/cover
    mkdir "$work/cover"
fi
one() { # ARCHITECTURE TEST, which may have arguments
    local name="${2##*/} sm_$1" log="$3/${2##*/}.$1"
    if SPECRT_PTX=$(ls "$4"/*compute_"$1".ptx)$5 $2 >"$log" 2>&1; then
        echo "ok   $name"
    else
        tail -n 40 "$log"
        echo "FAIL $name"
    fi
}
export -f one
for t in "$@"; do
    case $t in
        *_real)
            for c in ${long:+bf16 f32} q8_0 f16 far; do
                set -- "$t --filter whole_$c long=1" "$@"
            done ;;
        *_tree) set -- "$t --filter whole long=1" "$@" ;;
    esac
done
for a in $architectures; do for t in "$@"; do printf '%s\0%s\0' "$a" "$t"; done; done |
    xargs -0 -n 2 -P "$(nproc)" bash -c 'one "$3" "$4" "$0" "$1" "$2"' \
        "$work" "$folder" "$settings" | tee "$work/all"
if [ -n "$cover" ]; then
    python3 "${0%/*}/cover.py" "$work/cover"
    exit
fi
# Faults are aimed at the data of the usual size.
env -u TEST_QUICK python3 "${0%/*}/faults.py" "$folder" | tee "$work/faults"
read -r named _ missed _ <<<"$(tail -n 1 "$work/faults")"
failed=$(($(grep -c ^FAIL "$work/all") + missed))
echo "$(($(grep -c '^ok ' "$work/all") + named)) passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
