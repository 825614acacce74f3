#!/usr/bin/env bash
# groups.sh TOKENIZER N_VOCAB CORPUS... : what a list covers of text that it was not made from, with
# single ids and with whole groups of 128 (bench/results/mtp.md). Every other file of the corpus
# makes the list. N_VOCAB: rows of the head. Run from the project's root after make.
set -euo pipefail
tokenizer=$1 n_vocab=$2
shift 2
build=${BUILD:-build} work=${BUILD:-build}/groups
mkdir -p "$work"
made=() met=() i=0
for file; do
    if [ $((i++ % 2)) = 0 ]; then made+=("$file"); else met+=("$file"); fi
done
count() { # NAME CORPUS...
    "$build/bin/vocabtrim-calibrate" --tokenizer "$tokenizer" --corpus "${@:2}" --holdout 0 -q -f \
        --counts-out "$work/$1.counts" 2>/dev/null
}
count made "${made[@]}"
count met "${met[@]}"
covers() { # BUNDLE
    "$build/bin/specrt-bundle" drift "$1" --counts "$work/met.counts" --max-drop 1 --json 2>/dev/null |
        sed -E 's/.*"coverage":([0-9.]+).*/\1/'
}
echo "rows single groups"
for n in 16384 32768 65536 98304; do
    rm -f "$work"/{ids,groups}.specb
    "$build/bin/vocabtrim-calibrate" --merge "$work/made.counts" --size "$n" -q \
        -o "$work/ids.specb" 2>/dev/null
    "$build/bin/specrt-bundle" export "$work/ids.specb" --format exllamav3 --n-vocab "$n_vocab" \
        -o "$work/blocks.txt" -q -f
    "$build/bin/specrt-bundle" import "$work/blocks.txt" --tokenizer "$tokenizer" -q \
        -o "$work/groups.specb"
    printf '%d %.2f%% %.2f%%\n' "$n" "$(bc -l <<<"100 * $(covers "$work/ids.specb")")" \
        "$(bc -l <<<"100 * $(covers "$work/groups.specb")")"
done
