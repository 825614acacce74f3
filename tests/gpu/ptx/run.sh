#!/usr/bin/env bash
# run.sh FOLDER "75 90" TEST... : every test on nvcc's PTX in the folder, of each architecture, and
# first the cases named `whole` with the ids of a published vocabulary (SPECRT_TEST_REAL).
# Known reports are in known.txt, with reasons. Then faults are planted (faults.py); last, a tally.
# LONG=1 : heads of bf16 and of f32 have that many rows, too
# COVER=1 : instead of planting faults tell how much of each kernel has run (cover.py)
set -u
folder=$1 architectures=$2; shift 2
export SPECRT_PTX_KNOWN=${0%/*}/known.txt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -n "${COVER:-}" ]; then
    export SPECRT_PTX_COVER=$work/cover
    mkdir "$SPECRT_PTX_COVER"
fi
one() { # ARCHITECTURE TEST, which may have arguments
    local name="${2##*/} sm_$1" log="$3/${2##*/}.$1"
    case $2 in *whole*) export SPECRT_TEST_REAL=1 ;; esac
    if SPECRT_PTX=$(ls "$4"/*compute_"$1".ptx) $2 >"$log" 2>&1; then
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
            for c in ${LONG:+bf16 f32} q8_0 f16 far; do set -- "$t --filter whole-$c" "$@"; done ;;
        *_tree) set -- "$t --filter whole" "$@" ;;
    esac
done
for a in $architectures; do for t in "$@"; do printf '%s\0%s\0' "$a" "$t"; done; done |
    xargs -0 -n 2 -P "$(nproc)" bash -c 'one "$2" "$3" "$0" "$1"' "$work" "$folder" |
    tee "$work/all"
if [ -n "${COVER:-}" ]; then
    python3 "${0%/*}/cover.py" "$SPECRT_PTX_COVER"
    exit
fi
python3 "${0%/*}/faults.py" "$folder" | tee "$work/faults"
read -r named _ missed _ <<<"$(tail -n 1 "$work/faults")"
failed=$(($(grep -c ^FAIL "$work/all") + missed))
echo "$(($(grep -c '^ok ' "$work/all") + named)) passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
