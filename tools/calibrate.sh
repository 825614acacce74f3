#!/bin/sh
# calibrate.sh BIN TOKENIZER CORPUS MODEL OUT : what `make calibrate` does: calibrate, show the bundle, use
# it. An empty TOKENIZER or CORPUS means the sample in data/; CORPUS may be several paths.
set -eu
bin=$1 tokenizer=$2 corpus=$3 model=$4 out=$5
given=$tokenizer$corpus$model
data=$(dirname "$0")/../data
[ "$0" != tools/calibrate.sh ] || data=data

say() { printf 'calibrate: %s\n' "$*" >&2; }
fail() { say "$@"; exit 2; }

# beside MODEL : the tokenizer inside a GGUF, or in a checkpoint's folder.
beside() {
    case $1 in *.gguf) echo "$1"; return ;; esac
    folder=$1
    [ -d "$folder" ] || folder=$(dirname "$folder")
    for file in "$folder"/tokenizer.json "$folder"/*.tiktoken "$folder"/tokenizer.model \
        "$folder"/*.gguf; do
        [ ! -e "$file" ] || { echo "$file"; return; }
    done
}

[ -z "$model" ] || [ -e "$model" ] || fail "MODEL=$model: no such file or folder"
[ -z "$tokenizer" ] || [ -e "$tokenizer" ] || fail "TOKENIZER=$tokenizer: no such file or folder"

# A path that exists may hold spaces; else they separate several.
if [ -z "$corpus" ]; then
    set -- "$data"/corpus/*/
elif [ -e "$corpus" ]; then
    set -- "$corpus"
else
    # shellcheck disable=SC2086
    set -- $corpus
fi
for path; do
    [ -e "$path" ] || [ "$path" = - ] || fail "CORPUS=$corpus: $path: no such file or folder"
done

# The default output is ours to replace; another bundle keeps its other sections.
if [ "$out" = "${bin%/bin}/sample.specb" ]; then
    rm -f "$out"
elif [ -e "$out" ] && ! "$bin/specrt-bundle" verify -q "$out" >/dev/null 2>&1; then
    fail "OUT=$out exists and is no bundle; remove it or name another file"
fi

if [ -z "$tokenizer" ] && [ -n "$model" ]; then
    tokenizer=$(beside "$model")
    [ -n "$tokenizer" ] || fail "MODEL=$model: no tokenizer in its folder; name one with TOKENIZER="
    say "taking the model's own tokenizer, $tokenizer"
elif [ -z "$tokenizer" ]; then
    tokenizer=$data/tokenizer.json
    [ -z "$given" ] || say "no TOKENIZER= or MODEL= given: counting with the sample's, $tokenizer"
fi
[ -z "$given" ] || [ -n "$corpus" ] ||
    say "no CORPUS= given: counting the sample text, not what your model writes"

mkdir -p "$(dirname "$out")"
report=${out%.specb}.html
"$bin/vocabtrim-calibrate" --tokenizer "$tokenizer" --corpus "$@" ${model:+--model "$model"} \
    --holdout 0.05 --report "$report" -f -o "$out"
info=$("$bin/specrt-bundle" info "$out")
printf '%s\n' "$info" | sed '/^provenance/,$d'
"$bin/minimal" "$out"
say "$out is ready and $report shows its coverage; $bin/specrt-bundle info tells what it was made from"
