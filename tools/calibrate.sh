#!/bin/sh
# calibrate.sh BIN TOKENIZER CORPUS MODEL DRAFT OUT : what `make calibrate` does. Calibrate, build
# what policies need, compare them, say what came out. Empty arguments mean the sample in data/;
# CORPUS may be several paths. OUT is by default beside BIN, named after the model.
#
# A GGUF that the engine runs writes its own CORPUS where none is given (the sample text fills the
# ranks below), and drafts for itself where there is no DRAFT: its states are what sketch, index
# and routers are made from, and what its lists keep of accept length is measured.
# In the environment: TOKENS of an answer, PROMPTS of a domain; SECTIONS to build beside the ranks,
# POLICIES to compare.
set -eu
# path NAME : the same file, under a name that no command takes for an option.
path() { case $1 in -?*) printf './%s\n' "$1" ;; *) printf '%s\n' "$1" ;; esac; }
bin=$1 tokenizer=$(path "$2") corpus=$3 model=$(path "$4") draft=$(path "$5") out=$(path "$6")
given=$tokenizer$corpus$model$draft sample=
sections=${SECTIONS-cograph centroid dynaspec coral sketch hnsw}
tools=$(dirname "$0")
data=$tools/../data
[ "$0" != tools/calibrate.sh ] || data=data
num_steps=3 # drafts of a chain, as specrt-eval decodes and compares by default
answers_weight=100 # a word of the target's own counts as so many of the sample text

say() { printf 'calibrate: %s\n' "$*" >&2; }
fail() { say "$@"; exit 2; }
# run COMMAND... : as COMMAND alone, but a signal to this script ends COMMAND, too. A shell handles
# signals after a command in the foreground, and during `wait`.
running=
run() {
    running=1
    "$@" <&0 &
    code=0
    wait $! || code=$?
    running=
    return $code
}
stop() {
    trap '' INT TERM HUP
    [ -z "$running" ] || { kill "${!:-}" && wait; } 2>/dev/null || :
    exit 130
}
trap stop INT TERM HUP
invalid() { say "$@"; exit 3; }
exists() { [ -z "$2" ] || [ -e "$2" ] || fail "$1=$2: no such file or folder"; }
counting_number() {
    case $2 in '' | 0* | *[!0-9]*) fail "$1=$2: expected a number above 0" ;; esac
}
includes() { case " $1 " in *" $2 "*) ;; *) return 1 ;; esac; }
at_least_one() { if [ "$1" -gt 0 ]; then echo "$1"; else echo 1; fi; }
is_gguf() { [ -f "$1" ] && [ "$(head -c 4 "$1")" = GGUF ]; }
# An MTP module scores by the target's head; names of tensors follow the tokenizer.
has_mtp() { LC_ALL=C head -c 64000000 "$1" | LC_ALL=C grep -aq 'nextn\.eh_proj'; }

# name_of PATH : its last part, a file's without the suffix.
name_of() {
    name=${1%/}
    name=${name##*/}
    [ -d "$1" ] || name=${name%.*}
    printf '%s\n' "$name"
}

# beside MODEL : the tokenizer inside a GGUF, or in a checkpoint's folder.
beside() {
    if is_gguf "$1"; then echo "$1"; return; fi
    folder=$1
    [ -d "$folder" ] || folder=$(dirname "$folder")
    for file in "$folder"/tokenizer.json "$folder"/*.tiktoken "$folder"/tokenizer.model \
        "$folder"/*.gguf; do
        [ ! -e "$file" ] || { echo "$file"; return; }
    done
}

# number KEY FILE : the first number under that key of a tool's JSON.
number() { sed -n "s/^[^\n]*\"$1\":\([-0-9.e+]*\).*/\1/p" "$2"; }

# ---- what is given ----

exists MODEL "$model"
exists DRAFT "$draft"
exists TOKENIZER "$tokenizer"
pair=$data/sample
if [ -z "$given" ] && [ -e "$pair/target.gguf" ] && [ -e "$pair/draft.safetensors" ]; then
    model=$pair/target.gguf draft=$pair/draft.safetensors
    sample=1
fi
tokens=${TOKENS:-48} prompts=${PROMPTS:-20}
counting_number TOKENS "$tokens"
counting_number PROMPTS "$prompts"
if [ -n "$draft" ] && { [ -z "$model" ] || ! is_gguf "$model"; }; then
    fail "DRAFT=$draft needs its target as MODEL=, a GGUF"
fi
case $model in
*.safetensors | *.json) ;;
*)
    [ -z "$model" ] || [ -d "$model" ] || is_gguf "$model" ||
        invalid "MODEL=$model: expected a GGUF, a .safetensors file or a checkpoint's folder"
    ;;
esac

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
    shift
    set -- "$@" "$(path "$path")"
done

# The default output is ours to replace; another bundle keeps its other sections.
ours=
if [ -z "$out" ]; then
    name=$(name_of "${model:-${tokenizer:-corpus}}")
    if [ -n "$sample" ] || [ -z "$given" ]; then
        name=sample
    elif [ "$name" = sample ]; then
        name=sample_model
    fi
    out=${bin%/bin}/$name.specb ours=1
elif [ -e "$out" ] && ! run "$bin/specrt-bundle" verify -q "$out" >/dev/null 2>&1; then
    fail "OUT=$out exists and is no bundle; remove it or name another file"
fi
answers=${out%.specb}-answers.jsonl
report=${out%.specb}.html
comparison=${out%.specb}-compare.html

if [ -z "$tokenizer" ] && [ -n "$model" ]; then
    tokenizer=$(beside "$model")
    [ -n "$tokenizer" ] || fail "MODEL=$model: no tokenizer in its folder; name one with TOKENIZER="
elif [ -z "$tokenizer" ]; then
    tokenizer=$data/tokenizer.json
    [ -z "$given" ] || say "no TOKENIZER= or MODEL= given: counting with the sample's, $tokenizer"
fi

# ---- whether it runs, and how fast ----

mkdir -p "$(dirname "$out")"
work=
trap '[ -z "$work" ] || rm -rf "$work"' EXIT
work=$(mktemp -d "${TMPDIR:-/tmp}/calibrate-XXXXXX")
bar=
[ ! -t 2 ] || bar=--progress

# A fifth of the prompts is for comparing: lists must not be judged on what they were made from.
share_out() {
    mkdir "$work/ask" "$work/test"
    for file in "$data"/prompts/*.jsonl; do
        head -n "$prompts" "$file" | awk 'NR % 5 != 1' >"$work/ask/${file##*/}" || return
        head -n "$prompts" "$file" | awk 'NR % 5 == 1' >"$work/test/${file##*/}" || return
    done
}
share_out 2>/dev/null || { say "$work: cannot write; TMPDIR= names another folder"; exit 1; }
n_domains=$(find "$work/test" -name '*.jsonl' | wc -l)
n_domains=$((n_domains))

# counts MODEL : whether the tokenizer, and the model's head, can be read.
counts() {
    echo text >"$work/text"
    run "$bin/vocabtrim-calibrate" -q --tokenizer "$tokenizer" --corpus "$work/text" --domain text \
        ${1:+--model "$1"} --holdout 0 -f -o "$work/counted.specb" >"$work/counted"
}
# refused CODE : end with what the tool said.
refused() { cat "$work/why" >&2; exit "$1"; }

counts ""
runs=
text=${corpus:-the sample text, not what your model writes}
if [ -n "$model" ] && is_gguf "$model"; then
    code=0
    run "$bin/specrt-eval" generate -q --json --target "$model" --prompts "$work"/test/*.jsonl \
        --limit 1 --max-tokens $((tokens < 8 ? tokens : 8)) -o "$work/tried.jsonl" \
        >"$work/speed" 2>"$work/why" || code=$?
    case $code in
    0) runs=1 ;;
    3) [ -z "$draft" ] || refused 3 ;;
    *) refused $code ;;
    esac
    [ -n "$runs" ] ||
        say "the engine cannot run $(sed 's/^[^:]*: //' "$work/why"); counting $text"
elif [ -n "$model" ]; then
    say "the engine runs GGUF, which $model is not; counting $text"
elif [ -n "$given" ] && [ -z "$corpus" ]; then
    say "no CORPUS= given: counting $text"
fi
if [ -n "$draft" ]; then
    run "$bin/specrt-eval" record -q --target "$model" --draft "$draft" --num-steps "$num_steps" \
        --topk 1 --prompt "Why?" --max-tokens 2 -o "$work/tried.trace" 2>"$work/why" || refused $?
fi
# A model that cannot run may still have a head to make clusters of.
[ -z "$model" ] || [ -n "$runs" ] || counts "$model" 2>"$work/why" || model=

# What is made is of the head that drafts: the target's for EAGLE and MTP, unless it has one of its
# own. That may hold fewer tokens than are ranked, so that ranks are bound to none.
head=$model ranked=$model
if [ -n "$draft" ] && is_gguf "$draft" && ! has_mtp "$draft"; then head=$draft ranked=$draft; fi
case $draft in
*.safetensors)
    ! head -c 1000000 "$draft" | grep -aq '"lm_head.weight"' || head=$draft ranked=
    ;;
esac

# ---- the plan ----

plan=ranks
if [ -n "$runs" ] && [ -z "$corpus" ] && [ "$prompts" -gt 1 ]; then plan="answers ranks"; fi
! includes "$sections" cograph || plan="$plan cograph"
[ -z "$model" ] || ! includes "$sections" centroid || plan="$plan centroid"
trained=
for section in dynaspec coral sketch hnsw; do
    # An index is searched with states of the target, so it is of the target's head alone.
    if [ $section = hnsw ] && [ "$head" != "$model" ]; then continue; fi
    ! includes "$sections" $section || trained="$trained $section"
done
if [ -n "$runs" ] && [ -n "$trained" ] && [ "$prompts" -gt 1 ]; then
    plan="$plan states$trained"
fi
[ -z "$runs" ] || plan="$plan compare"
planned() { includes "$plan" "$1"; }

# Real models are slow, and most where they draft for themselves: fewer prompts are recorded (a
# sketch wants two states for a column of the head) and compared.
recorded=$prompts compared=$prompts
if [ -z "$sample" ]; then
    recorded=$(at_least_one $((prompts * 2 / 5))) compared=$(at_least_one $((prompts / 10)))
    [ -n "$draft" ] || compared=$(at_least_one $((prompts / 20)))
fi

# Decoding alone is foreseen: one sequence on each core for answers, 1.7 times the work of a plain
# token where the target drafts for itself, and the answers of which one is shown.
foresee() {
    awk -v domains="$n_domains" -v prompts="$prompts" -v tokens="$tokens" -v plan=" $plan " \
        -v recorded="$recorded" -v compared="$compared" -v own="${draft:+0}" \
        -v speed="$(number n_tokens "$work/speed") $(number seconds "$work/speed")" '
        function least(a, b) { return a < b ? a : b }
        BEGIN {
            split(speed, s, " ")
            rate = s[1] / s[2]
            test = int((prompts + 4) / 5)
            ask = prompts - test
            each = domains * tokens / rate
            work = own == "" ? 1.7 : 1
            seconds = each * least(compared, test) * (own == "" ? 1 + work * 9 : 2 + work * 13)
            if (plan ~ / answers /) seconds += each * ask
            if (plan ~ / states /) seconds += each * work * least(recorded, ask)
            printf "%.3g tokens/s here: about ", rate
            if (seconds < 90) printf "%d seconds", seconds + 1
            else if (seconds < 5400) printf "%.0f minutes", seconds / 60
            else printf "%.1f hours", seconds / 3600
        }'
}

n_steps=$(echo "$plan" | wc -w) n_done=0
step() {
    n_done=$((n_done + 1))
    printf '[%d/%d] %s\n' $n_done $((n_steps)) "$*" >&2
}
# add SECTION WHAT TOOL [FLAGS...] : a section of the bundle; without it the
# policies that need it stay out.
built=
add() {
    section=$1 what=$2 tool=$3
    shift 3
    planned "$section" || return 0
    step "$section: $what"
    code=0
    # shellcheck disable=SC2086
    run "$bin/$tool" "$@" -q $bar -f -o "$out" || code=$?
    case $code in
    0) built="$built $section" ;;
    3 | 4) say "$section is left out" ;;
    *) exit $code ;;
    esac
}
has() { includes "$built" "$1"; }

# ---- the work ----

[ -z "$runs" ] ||
    say "$(name_of "$model") writes $(foresee) of decoding, and some of building" \
        "(PROMPTS=$prompts TOKENS=$tokens: smaller ones take less)"

weights=
if planned answers; then
    step "answers: the target writes on prompts of $n_domains domains, for the text to be its own"
    # shellcheck disable=SC2086
    run "$bin/specrt-eval" generate -q $bar --target "$model" --prompts "$work"/ask/*.jsonl \
        --max-tokens "$tokens" -f -o "$answers"
    weights=$answers:$answers_weight
    set -- "$answers" "$@"
fi

heavy="; one of an answer counts as $answers_weight of the sample text"
step "ranks: which tokens come most${weights:+$heavy}"
[ -z "$ours" ] || rm -f "$out"
# shellcheck disable=SC2086
run "$bin/vocabtrim-calibrate" -q $bar --tokenizer "$tokenizer" --corpus "$@" \
    ${ranked:+--model "$ranked"} ${weights:+--weights "$weights"} \
    --report "$report" -f -o "$out"

add cograph "which tokens follow which" cograph-build --tokenizer "$tokenizer" --corpus "$@"
set -- --model "$head" --tokenizer "$tokenizer" --router
add centroid "the head's rows in small clusters" cluster-build "$@" centroid
trace=$work/trace
if planned states; then
    with="itself as drafter"
    [ -z "$draft" ] || with="its drafter"
    step "states: the target answers again with $with, for what follows to learn from"
    # shellcheck disable=SC2086
    run "$bin/specrt-eval" record -q $bar --target "$model" --draft "${draft:-$model}" \
        --num-steps "$num_steps" --topk 1 --prompts "$work"/ask/*.jsonl --limit "$recorded" \
        --max-tokens "$tokens" -o "$trace"
fi
# The published numbers of rows would be half of the sample's vocabulary.
add dynaspec "clusters, and a router that chooses among them" cluster-build "$@" dynaspec \
    --embedding "$model" --trace "$trace" ${sample:+--mean-rows 1024 --schedule flat}
add coral "the same as large groups" cluster-build "$@" coral --trace "$trace" \
    ${sample:+--clusters 64 --mean-rows 1024}
add sketch "the head in few dimensions, to scan" sketch-build --model "$head" --trace "$trace" \
    --min-recall 0.9
# The sample's is searched by no policy that is compared: a quarter of the work.
links=
[ -z "$sample" ] || links="--m 16 --ef-construction 100"
# shellcheck disable=SC2086
add hnsw "an index to search the head" hnsw-build --model "$head" --trace "$trace" $links

# ---- the comparison ----

policies=static,static:2048
! has cograph || policies=$policies,static:2048+retrieve,static:512+window+successor:256
! has centroid || policies=$policies,centroid
! has dynaspec || policies=$policies,dynaspec
! has coral || policies=$policies,coral
! has sketch || policies=$policies,sketch:128
! has sketch || ! has cograph || policies=$policies,hybrid
if [ -n "$draft" ]; then
    policies=$policies,microspec
    ! has cograph || policies=$policies,evospec
    ! has centroid || policies=$policies,centroid+retrieve@graph=off
fi
if planned compare; then
    step "policies: each decodes other prompts, beside plain decoding"
    # shellcheck disable=SC2086
    run "$bin/specrt-eval" compare -q $bar --json --target "$model" --draft "${draft:-$model}" \
        --bundle "$out" --policy "${POLICIES:-$policies}" \
        --prompts "$work"/test/*.jsonl --limit "$compared" --max-tokens "$tokens" \
        --report "$comparison" -f >"$work/compare.json"
fi

# ---- what came out ----

shown() { printf '  %-10s %s\n' "$@"; }
printf '\n'
shown bundle "$out"
shown coverage "$report"
! planned answers || shown answers "$answers"
! planned compare || shown policies "$comparison"
printf '\n'
run "$bin/specrt-bundle" info "$out"
best=
if planned compare; then
    printf '\n'
    sed 's/{"policy":/\n&/g' "$work/compare.json" |
        awk -v own="$([ -n "$draft" ] || echo 1)" -v best="$work/best" \
            -f "$tools/calibrate_policies.awk"
    [ ! -e "$work/best" ] || best=$(cat "$work/best")
fi

# quoted WORD... : as one types them.
quoted() {
    for word; do
        case $word in
        *[!A-Za-z0-9_./:=@+,-]*) printf " '%s'" "$(printf %s "$word" | sed "s/'/'\\\\''/g")" ;;
        *) printf ' %s' "$word" ;;
        esac
    done
}

# decode_command [OPTIONS...] : to decode, the first prompt that anybody would type.
decode_command() {
    asked=$(sed -n 's/^{"prompt": "\([^"\\]*\)".*/\1/p' "$work"/test/*.jsonl | head -n 1)
    quoted "$bin/specrt-eval" decode --target "$model" "$@" --max-tokens "$tokens" --prompt "$asked"
    printf '\n'
}
printf '\nNext:\n '
if [ -n "$draft" ] && [ "$best" = plain ]; then
    decode_command
elif [ -n "$best" ] && [ -n "$draft" ]; then
    decode_command --draft "$draft" --bundle "$out" --policy "$best"
else
    quoted "$bin/specrt-bundle" export "$out" --format sglang-pt -o "${out%.specb}.pt"
    printf '\n'
fi
printf '\nThe tools on PATH:\n export PATH=%s:"$PATH"\n' \
    "$(quoted "$(cd -- "$bin" && pwd)" | cut -c 2-)"
