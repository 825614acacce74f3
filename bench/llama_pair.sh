# shellcheck shell=bash
# llama_pair.sh : pairs of models for llama.cpp, which llama.sh and readme.sh share; source it.
# `build_pair NAME` sets target and draft as llama.cpp loads them, head (what its maker published),
# and makes $work/pair.specb. Names:
#
#     sample      the sample pair
#     qwen        Qwen2.5-Coder 1.5B as published (Q4_K_M) with its 0.5B sibling: `make models`
#                 with NAME=qwen-1.5b and NAME=qwen-0.5b
#     qwen-bf16, qwen-q8_0   the same target of another type, made of that file by llama.cpp
#     smollm2-bf16  SmolLM2-135M-Instruct (NAME=smollm2) as BF16, with its EAGLE-3 head of
#                 data/smollm2-eagle3 cut to 16,384 rows; prompts in the chat template that the head
#                 was trained on
#
# In the environment: BUILD, THREADS (2), PROMPTS (prompt files; else TASKS of Spec-Bench, all six
# by default, where SPECRT_DATA has them), CORPUS (the text of lists and graph: ShareGPT for
# published models where it is at hand, else data/corpus), ASKED (the questions whose states a
# sketch is made from; data/prompts). What PROMPTS hold is neither in CORPUS nor in ASKED.
set -euo pipefail
build=${BUILD:-build} threads=${THREADS:-2}
asked=${ASKED:-$(echo data/prompts/*.jsonl)} llama=$build/bin/specrt-llama
fail() { echo "$0: $*" >&2; exit 1; }
[ -x "$llama" ] || fail "no $llama; make llama builds it"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ -z "${PROMPTS:-}" ]; then
    data=${SPECRT_DATA:-../shared/data}
    [ -e "$data/prompts/spec_bench/question.jsonl" ] ||
        fail "no $data/prompts/spec_bench/question.jsonl; set SPECRT_DATA or PROMPTS"
    [ -d "$build/prompts" ] || python3 bench/prompts.py "$data" "$build/prompts"
    for task in ${TASKS:-mt_bench translation summarization qa math_reasoning rag}; do
        [ -e "$build/prompts/$task.jsonl" ] || fail "TASKS: no $build/prompts/$task.jsonl"
        PROMPTS="${PROMPTS:-} $build/prompts/$task.jsonl"
    done
fi

# models PAIR : its target and drafter.
models() {
    local at=$build/models
    case $1 in
    sample) target=data/sample/target.gguf draft=data/sample/draft-small.gguf ;;
    qwen | qwen-bf16 | qwen-q8_0) target=$at/qwen-1.5b.gguf draft=$at/qwen-0.5b.gguf ;;
    smollm2-bf16) target=$at/smollm2.gguf draft=data/smollm2-eagle3/draft.safetensors ;;
    *) fail "$1: expected sample, qwen, qwen-bf16, qwen-q8_0 or smollm2-bf16" ;;
    esac
    for file in "$target" "$draft"; do
        [ -e "$file" ] || fail "no $file; make models NAME=$(basename "$file" .gguf)"
    done
    [[ $1 = *-* ]] || return 0
    local type=${1##*-} whole=${target%.gguf}-${1##*-}.gguf
    if [ ! -e "$whole" ]; then # Qwen's has 3 GB as BF16; by llama.cpp's own conversion
        "$build/tests/llama_convert" "$type" "$target" "$whole.part" || fail "$target: no $type of it"
        mv "$whole.part" "$whole"
    fi
    target=$whole
}

# general_text PAIR : what its lists are counted from.
general_text() {
    local chat=$build/models/sharegpt.json
    if [ -n "${CORPUS:-}" ]; then echo "$CORPUS"
    elif [ "$1" != sample ] && [ -e "$chat" ]; then echo "$chat"
    else echo data/corpus/*/; fi
}

# build_bundle HEAD SIZE : $work/pair.specb, a list of SIZE ids and the graph; then $draft as
# llama.cpp loads it: an EAGLE-3 head is cut to the list, of another a sketch is made.
build_bundle() {
    rm -f "$work/pair.specb" # of another tokenizer
    local head=$1 size=$2 text=(--tokenizer "$target" --corpus $corpus -q -f -o "$work/pair.specb")
    "$build/bin/vocabtrim-calibrate" "${text[@]}" --size "$size" --holdout 0
    "$build/bin/cograph-build" "${text[@]}" --successor-count 1
    if [[ $head = *.safetensors ]]; then
        draft=$work/draft.gguf
        "$build/bin/specrt-bundle" export "$work/pair.specb" --format gguf --drafter "$head" \
            --target "$target" --size "$size" -q -o "$draft"
        return
    fi
    "$llama" -m "$target" -md "$draft" -t "$threads" --bundle "$work/pair.specb" -q \
        --prompts $asked --limit 8 -n 32 --num-steps 4 \
        --policy full --force --record "$work/asked" >"$work/answers"
    "$build/bin/sketch-build" --model "$draft" --trace "$work/asked" -q -f -o "$work/pair.specb"
}

# One drafter's bundle serves its target in every type.
build_pair() {
    local size=512 corpus
    models "$1"
    if [ "$draft" = "${head:-}" ]; then draft=$loaded; return; fi
    corpus=$(general_text "$1") head=$draft
    [ "$1" != smollm2-bf16 ] || size=16384
    build_bundle "$head" "$size"
    loaded=$draft
}
