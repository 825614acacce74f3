#!/bin/sh
# calibrate.sh BIN TOKENIZER CORPUS MODEL DRAFT OUT : what `make calibrate` does. Calibrate,
# build what policies need, show the bundle, use it. Empty arguments mean the sample in data/;
# CORPUS may be several paths.
#
# With a target and a drafter (MODEL, DRAFT, or the sample pair) policies are compared at the end;
# without a CORPUS the target then writes its own first, and the sample text fills the ranks below.
# In the environment, for models slower than the sample: TOKENS of an answer, PROMPTS of a domain;
# SECTIONS to build beside the ranks (cograph centroid dynaspec coral sketch hnsw), POLICIES to
# compare, LONG=1 for many more.
set -eu
bin=$1 tokenizer=$2 corpus=$3 model=$4 draft=$5 out=$6
given=$tokenizer$corpus$model$draft sample=
tokens=${TOKENS:-128} prompts=${PROMPTS:-20}
sections=${SECTIONS-cograph centroid dynaspec coral sketch hnsw}
data=$(dirname "$0")/../data
[ "$0" != tools/calibrate.sh ] || data=data
answers_weight=100 # a word of the target's own counts as so many of the sample text

say() { printf 'calibrate: %s\n' "$*" >&2; }
fail() { say "$@"; exit 2; }
exists() { [ -z "$2" ] || [ -e "$2" ] || fail "$1=$2: no such file or folder"; }
counting_number() {
    case $2 in '' | 0* | *[!0-9]*) fail "$1=$2: expected a number above 0" ;; esac
}

wants() { case " $sections " in *" $1 "*) ;; *) return 1 ;; esac; }
# add SECTION TOOL [FLAGS...] : a section of the bundle; without it the
# policies that need it stay out.
built=
add() {
    section=$1 tool=$2
    shift 2
    wants "$section" || return 0
    say "$tool adds $section"
    code=0
    "$bin/$tool" "$@" -q -f -o "$out" || code=$?
    case $code in
    0) built="$built $section" ;;
    3 | 4) say "$section is left out" ;;
    *) exit $code ;;
    esac
}
has() { case "$built " in *" $1 "*) ;; *) return 1 ;; esac; }

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

exists MODEL "$model"
exists DRAFT "$draft"
exists TOKENIZER "$tokenizer"
counting_number TOKENS "$tokens"
counting_number PROMPTS "$prompts"
case $model in
    *.gguf) ;;
    *) [ -z "$draft" ] || fail "DRAFT=$draft needs its target as MODEL=, a GGUF" ;;
esac
pair=$data/sample
if [ -z "$given" ] && [ -e "$pair/target.gguf" ] && [ -e "$pair/draft.safetensors" ]; then
    model=$pair/target.gguf draft=$pair/draft.safetensors
    sample=1
fi

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
    [ -z "$given" ] || say "taking the model's own tokenizer, $tokenizer"
elif [ -z "$tokenizer" ]; then
    tokenizer=$data/tokenizer.json
    [ -z "$given" ] || say "no TOKENIZER= or MODEL= given: counting with the sample's, $tokenizer"
fi
[ -z "$given" ] || [ -n "$corpus" ] || [ -n "$draft" ] ||
    say "no CORPUS= given: counting the sample text, not what your model writes"

mkdir -p "$(dirname "$out")"
weights=
if [ -n "$draft" ]; then
    work=$(mktemp -d "${TMPDIR:-/tmp}/calibrate-XXXXXX")
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' INT TERM HUP
    # A fifth of the prompts is for comparing: lists must not be judged on what they were made from.
    mkdir "$work/ask" "$work/test"
    for file in "$data"/prompts/*.jsonl; do
        head -n "$prompts" "$file" | awk 'NR % 5 != 1' >"$work/ask/${file##*/}"
        head -n "$prompts" "$file" | awk 'NR % 5 == 1' >"$work/test/${file##*/}"
    done
fi
if [ -n "$draft" ] && [ -z "$corpus" ] && [ "$prompts" -gt 1 ]; then
    say "the target answers the prompts in $data/prompts"
    answers=${out%.specb}-answers.jsonl
    "$bin/specrt-eval" generate --target "$model" --prompts "$work"/ask/*.jsonl \
        --max-tokens "$tokens" -f -o "$answers"
    weights=$answers:$answers_weight
    set -- "$answers" "$@"
fi

report=${out%.specb}.html
"$bin/vocabtrim-calibrate" --tokenizer "$tokenizer" --corpus "$@" ${model:+--model "$model"} \
    ${weights:+--weights "$weights"} --holdout 0.05 --report "$report" -f -o "$out"

# EAGLE drafts with the target's head, unless it has one of its own.
head=$model
case $draft in
*.gguf) head=$draft ;;
*.safetensors) ! head -c 1000000 "$draft" | grep -aq '"lm_head.weight"' || head=$draft ;;
esac
add cograph cograph-build --tokenizer "$tokenizer" --corpus "$@"
if [ -n "$model" ]; then
    set -- --model "$head" --tokenizer "$tokenizer" --router
    add centroid cluster-build "$@" centroid
    trace=
    if [ -n "$draft" ] && [ "$prompts" -gt 1 ] &&
        { wants dynaspec || wants coral || wants sketch; }; then
        say "the target answers again with its drafter, recorded for routers, sketch and index"
        trace=$work/trace
        "$bin/specrt-eval" record -q --target "$model" --draft "$draft" --num-steps 3 --topk 1 \
            --prompts "$work"/ask/*.jsonl --max-tokens "$tokens" -o "$trace"
        # The published numbers of rows would be half of the sample's vocabulary.
        add dynaspec cluster-build "$@" dynaspec --embedding "$model" --trace "$trace" \
            ${sample:+--mean-rows 1024 --schedule flat}
        add coral cluster-build "$@" coral --trace "$trace" \
            ${sample:+--clusters 64 --mean-rows 1024}
    fi
    add sketch sketch-build --model "$head" ${trace:+--trace "$trace"} --min-recall 0.9
    add hnsw hnsw-build --model "$model" ${trace:+--trace "$trace"}
fi
info=$("$bin/specrt-bundle" info "$out")
printf '%s\n' "$info" | sed '/^provenance/,$d'
"$bin/minimal" "$out"
say "$out is ready and $report shows its coverage;" \
    "$bin/specrt-bundle info tells what it was made from"

[ -n "$draft" ] || exit 0
policies=static,microspec,static:2048
if has cograph; then
    policies=$policies,evospec,static:2048+retrieve,static:512+window+successor:256
fi
! has centroid || policies=$policies,centroid,centroid+retrieve@graph=off
! has dynaspec || policies=$policies,dynaspec
! has coral || policies=$policies,coral
! has sketch || policies=$policies,sketch:128,sketch:64@certified=on
if [ -n "${LONG:-}" ] && has cograph; then
    for size in 1024 4096 8192; do
        policies=$policies,static:$size,static:$size+retrieve,static:$size+retrieve:512
        policies=$policies,static:$size+retrieve:1024,static:$size+retrieve@graph=off
        policies=$policies,static:$size+successor,static:$size+window+successor
    done
    policies=$policies,static:512+retrieve+successor:256,static:2048+retrieve@graph=off
    policies=$policies,static:2048+retrieve@prompt=best
    policies=$policies,static:2048+retrieve@prompt=best+successor:256
    for sem in hnsw_h hnsw_w; do
        ! has hnsw ||
            policies=$policies,static:2048+retrieve@sem=$sem,static:2048+retrieve@sem=$sem@graph=off
    done
    ! has centroid || policies=$policies,static:512+centroid
fi
# FR-Spec and DynaSpec with one size at every level and with fewer further down,
# the same on average over three.
if [ -n "${LONG:-}" ] && [ -n "$sample" ] && has dynaspec; then
    policies=$policies,static:1280,static:1772/1772/296
    policies=$policies,cluster:10,cluster:14@schedule=german,cluster:12@schedule=halving
fi
comparison=${out%.specb}-compare.html
say "decoding other prompts of each domain with every policy; plots go to $comparison"
"$bin/specrt-eval" compare --target "$model" --draft "$draft" --bundle "$out" \
    --policy "${POLICIES:-$policies}" --num-steps 3 --topk 1 --prompts "$work"/test/*.jsonl \
    --max-tokens "$tokens" --report "$comparison" -f
