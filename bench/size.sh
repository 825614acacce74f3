#!/usr/bin/env bash
# size.sh [COMMIT] : bytes of text and seconds of compiling of two programs that include the
# header's implementation: examples/minimal.c with a static list, examples/batch.c with MicroSpec's
# sessions (tutorial_session.c in older commits). First as of a commit, if one is named; then as
# the files are, also with SPECRT_SMALL. Without CC, gcc compiles. Seconds are the least of three
# processor times.
set -eu
cd "$(dirname "$0")/.."
cc=${CC:-gcc}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sections="-ffunction-sections -fdata-sections -Wl,--gc-sections"
TIMEFORMAT=%U

# measure FOLDER PROGRAM FLAG... : a row's two figures.
measure() {
    local folder=$1 program=$2 least=
    shift 2
    for _ in 1 2 3; do
        time=$( { time $cc -std=c99 "$@" -I"$folder/include" "$folder/examples/$program.c" \
            -lzstd -lm -o "$work/program"; } 2>&1)
        least=$(printf '%s\n' $least "$time" | sort -n | head -n 1)
    done
    printf ' %9d %6.1f' "$(size "$work/program" | awk 'NR == 2 { print $1 }')" "$least"
}
table() { # table FOLDER TITLE MACRO...
    local folder=$1 title=$2 session
    shift 2
    [ -e "$folder/examples/batch.c" ] && session=batch || session=tutorial_session
    printf '\n%s\n%-37s %16s %16s\n' "$title" "bytes and seconds" minimal $session
    for flags in "-O2" "-O2 $sections" "-Os $sections"; do
        printf '%-37s' "${flags/ $sections/, unused parts dropped}"
        for program in minimal $session; do measure "$folder" $program $flags "$@"; done
        echo
    done
}

$cc --version | head -n 1
if [ $# -gt 0 ]; then
    git archive "$1" include examples | tar -x -C "$work"
    table "$work" "as of $1"
fi
table . "as the files are"
table . "with SPECRT_SMALL" -DSPECRT_SMALL
