#!/usr/bin/env bash
# run.sh BUILD : specrt-llama on the sample pair, opt-in since it needs llama.cpp (`make llama`).
# Every answer is plain greedy decoding's, for chains and trees; where weights are quantised, a
# token that differs must be the target's own when it is fed the same passes. Then what is refused,
# and the commands of docs/integrations/llama.cpp.md. Run from the project's root; closes with
# "N passed, N failed, N skipped".
set -u
build=$(cd "$1" && pwd) root=$PWD passed=0 failed=0 skipped=0
llama=$build/bin/specrt-llama convert=$build/tests/llama_convert
if [ ! -x "$llama" ] || [ ! -x "$convert" ]; then
    echo "skipped: no specrt-llama; make llama builds it"
    echo "0 passed, 0 failed, 1 skipped"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. tests/llama/costs.bash
target=data/sample/target.gguf draft=data/sample/draft-small.gguf
out=$work/out err=$work/err
export XDG_CACHE_HOME=$work/cache # costs of auto
mkdir "$XDG_CACHE_HOME"

pass() { passed=$((passed + 1)); }
fail() { failed=$((failed + 1)); echo "FAIL $*"; }
check() { # NAME COMMAND... : exit code 0
    local name=$1; shift
    if "$@"; then pass; else fail "$name: $(tail -c 600 "$err" "$out" 2>/dev/null)"; fi
}
logged() { "$@" >"$out" 2>"$err"; }
run() { logged "$llama" "$@"; }

# refuses NAME CODE TEXT ARGUMENT... : that exit code, one line on stderr with the text (beside one
# that names -h), no output. The policy is named, so that there is no answer without its drafts.
refuses() {
    local name=$1 code=$2 text=$3 found policy="--policy microspec"; shift 3
    case " $* " in *" --policy "* | *" --bench "* | *" --record "*) policy= ;; esac
    "$llama" -q -p "The patient has" -n 4 $policy "$@" >"$out" 2>"$err"; found=$?
    if [ $found = "$code" ] && grep -qF -- "$text" "$err" &&
        [ "$(grep -vc "^specrt-llama: -h shows" "$err")" = 1 ] &&
        [ ! -s "$out" ]; then
        pass
    else
        fail "$name: expected exit $code and '$text', found $found: $(cat "$err" "$out")"
    fi
}

# A prompt of every domain, and sentences to end: without a template most questions have no answer.
{
    head -qn 1 data/prompts/*.jsonl
    for text in "The patient has a fever and" "On day one the" "The first party shall"; do
        printf '{"prompt": "%s"}\n' "$text"
    done
} >"$work/prompts.jsonl"

# Names of the library that llama.cpp has too would stand in for its own.
for library in $(ldd "$llama" | awk '/llama|ggml/ { print $3 }'); do
    nm -D --defined-only "$library"
done | awk '{ print $3 }' | sort -u >"$work/theirs"
check names-known grep -qx gguf_find_tensor "$work/theirs"
nm --defined-only "$llama" | awk '$2 ~ /[TDB]/ { print $3 }' | sort -u |
    grep -vx -e '_.*' -e 'main' | comm -12 - "$work/theirs" >"$out"
check names test ! -s "$out"

# ---- tokens ----

# same NAME ARGUMENT... : --bench finds every way's tokens plain decoding's; a split is let through
# where the target repeats it and $splits is not empty. $md names the drafter, where there is one.
splits= md="-md $draft"
same() {
    local name=$1 found; shift
    run --bench --rounds 1 --json -q -t 1 -n 16 $md --prompts "$work/prompts.jsonl" "$@" || {
        fail "$name: $(cat "$err")"
        return
    }
    found=$(grep -oE '"splits": ?\[.*' "$out")
    if [ "${found// /}" = '"splits":[]}' ]; then pass
    elif [ -n "$splits" ] && ! grep -q '"target_repeats": *false' <<<"$found"; then
        echo "$name: $found"
        pass
    else
        fail "$name: $found"
    fi
}

tree="--num-steps 3 --topk 4 --num-draft-tokens 16"
for type in f32 f16 bf16; do
    check "convert $type" "$convert" $type $target "$work/$type.gguf"
    same "$type chain" -m "$work/$type.gguf" -t 1
    same "$type tree" -m "$work/$type.gguf" -t 2 $tree
done
splits=1
check "convert q4_0" "$convert" q4_0 $target "$work/q4_0.gguf"
same "q8_0 chain" -m $target -t 2 --num-steps 7
same "q8_0 tree" -m $target -t 1 --num-steps 6 --topk 10 --num-draft-tokens 60
same "q4_0 chain" -m "$work/q4_0.gguf" -t 1
# A full context, a prompt of several passes.
same "short context" -m $target -c 64 -n -1
yes "On day one the fever rose." | head -n 40 | tr '\n' ' ' >"$work/long"
same "long prompt" -m $target -f "$work/long" -n 8

# The token that ends an answer ends it in the middle of a chain, too, of llama.cpp's own draft.
check "own draft's end" logged "$llama" compare --target $target --draft $draft --threads 1 -q \
    --policy full --num-steps 4 --prompts data/prompts/math.jsonl --limit 2 --max-tokens 64 \
    --short 8 --json
check short grep -q '"speedup_short"' "$out"

# What is resumed goes on as what was read, bit for bit.
for type in f32 bf16 q4_0; do
    check "state $type" logged "$build/tests/llama_state" "$work/$type.gguf" $draft
done

# ---- answers ----

# A bundle made from llama.cpp's reading of the vocabulary opens, and its policies run.
corpus="--tokenizer $target --corpus data/prompts --field prompt -q"
check lists "$build/bin/vocabtrim-calibrate" $corpus --size 2000 --holdout 0 \
    -o "$work/lists.specb"
check graph "$build/bin/cograph-build" $corpus --successor-count 1 -o "$work/lists.specb"
same "bundle chain" -m $target --bundle "$work/lists.specb" --policy static \
    --policy static:512+window:256@min=0+successor:64 --policy static:100+retrieve:64
same "bundle tree" -m $target --bundle "$work/lists.specb" --policy static:512+successor:64 $tree

answer_by() { # DRAFTER ARGUMENT...
    local drafter=$1; shift
    run -m $target -md "$drafter" -q -t 1 -p "The patient has a fever and" -n 40 "$@"
}
answer() { answer_by $draft "$@"; }
figure() { grep -oE "\"$1\": ?[0-9.]+" | head -n 1 | sed 's/.*: *//'; }
check answer answer
cp "$out" "$work/text"
check answer-json answer --json
text=$(tr '\n' ' ' <"$work/text" | head -c 60)
check answer-same grep -qE -- "\"text\": ?\"${text:0:30}" "$out"
# Sampled: an answer follows from prompt and seed, whatever drafts.
check sampled answer --temp 0.8 --top-p 0.95 -s 5 --policy full
cp "$out" "$work/sampled"
check sampled-window answer --temp 0.8 --top-p 0.95 -s 5 --policy window:64@min=0 --num-steps 2
check sampled-same cmp "$out" "$work/sampled"
check sampled-differs test "$(cat "$work/sampled")" != "$(cat "$work/text")"
printf '{"prompt": "What is it?\\nIt is"}\n{"prompt_ids": [5, 6, 7]}\n' >"$work/two"
check prompts answer --prompts "$work/two" --json
check prompts-three test "$(grep -o '"ids"' "$out" | wc -l)" = 3

# Drafts that end early, and such of a drafter whose logits are scaled, as Granite's are: the answer
# is the same. Its chains are those of the plain drafter, but end earlier, for its probabilities are
# flatter.
same_text() { # NAME COMMAND... : the greedy answer
    local name=$1; shift
    check "$name" "$@"
    check "$name: text" cmp "$out" "$work/text"
}
same_text p-min answer --draft-p-min 0.4
same_text p-min-tree answer --draft-p-min 0.1 $tree
check granite "$convert" granite=8 $draft "$work/granite.gguf"
same_text granite-chain answer_by "$work/granite.gguf" --policy microspec
same_text granite-tree answer_by "$work/granite.gguf" --policy microspec $tree
accepted() { answer_by "$@" --json --policy full && figure accept_length <"$out"; }
check granite-chains test "$(accepted "$work/granite.gguf")" = "$(accepted $draft)"
check granite-sure test "$(accepted "$work/granite.gguf" --draft-p-min 0.1)" != \
    "$(accepted $draft --draft-p-min 0.1)"

# Sampled drafts keep the target's distribution, also of a drafter whose logits are capped.
check tiny "$convert" tiny=0 $target "$work/tiny.gguf"
check tiny-draft "$convert" tiny=0.7 $target "$work/tiny-draft.gguf"
check tiny-capped "$convert" tiny=0.7,2 $target "$work/tiny-capped.gguf"
for kind in draft capped; do
    check "distribution $kind" logged "$build/tests/llama_distribution" "$work/tiny.gguf" \
        "$work/tiny-$kind.gguf"
done

# ---- traces ----

# replays NAME ARGUMENT... : what specrt-llama says of its run, replay of its trace says again, for
# the policy that was recorded; and that policy decodes as much, as fast, without a trace.
replays() {
    local name=$1 said found policy=$2; shift 2
    check "$name record" answer --prompts "$work/prompts.jsonl" --json --policy "$policy" "$@" \
        --record "$work/$name.trace"
    said=$(figure accept_length <"$out") found=
    figures_of() { for key in n_tokens n_cycles accept_length; do figure $key <"$out"; done; }
    figures_of >"$work/recorded"
    check "$name plain" answer --prompts "$work/prompts.jsonl" --json --policy "$policy" "$@"
    check "$name same" cmp <(figures_of) "$work/recorded"
    check "$name replay" logged "$build/bin/specrt-eval" replay --trace "$work/$name.trace" --json \
        --bundle "$work/lists.specb" --policy $policy
    found=$(tr '{' '\n' <"$out" | grep -A 1 "\"policy\": *\"$policy\".*\"domain\": *\"all\"" |
        figure accept_length)
    check "$name figures: $said, replayed $found" test -n "$said" -a "$said" = "$found"
}
replays chain full
replays list static:512 --bundle "$work/lists.specb"
replays tree full $tree
# What calls cost in llama.cpp, and a plan of both.
check costs run -m $target -md $draft -t 1 -q --costs "$work/pair.costs"
kept=$work/pair.costs; given 0.3 0.2 # a busy machine's decide nothing
check plan logged "$build/bin/specrt-eval" plan --target $target --draft $draft --json \
    --trace "$work/chain.trace" --costs "$work/pair.costs" --policy window:64@min=0 \
    --topk 1 --costs-out "$work/plan.costs"
check plan-policies grep -q '"policy":"window:64@min=0"' "$out"
check plan-auto run -m $target -md $draft -t 1 -q -p x -n 8 --policy auto \
    --auto-costs "$work/plan.costs"
# By the clock, with chains longer than a session's default.
check plan-engine logged "$build/bin/specrt-eval" plan --engine llama --target $target \
    --draft $draft --policy window:64@min=0 --topk 1 --max-tokens 4 --measure 0.1 -q --prompt x
refuses trace-there 2 "chain.trace: exists" -m $target -md $draft --record "$work/chain.trace"
refuses trace-bench 2 "expected one of --bench, --record and --costs" -m $target -md $draft \
    --record "$work/b" --bench

# A message in the template is another prompt, with a system's before it a third.
newline=$'\n\n'
llama3="{% for message in messages %}{{ '<|start_header_id|>' + message['role'] +
'<|end_header_id|>$newline' + message['content'] | trim + '<|eot_id|>' }}{% endfor %}
{% if add_generation_prompt %}
{{ '<|start_header_id|>assistant<|end_header_id|>$newline' }}{% endif %}"
check template "$convert" "template=$llama3" $target "$work/chat.gguf"
chat() { run -m "$work/chat.gguf" -md $draft -q -t 1 -p "Why is the sky blue?" -n 16 "$@"; }
for how in "" -cnv "-cnv -sys Brief."; do
    check "chat $how" chat $how
    cat "$out" >>"$work/chats"
done
check chats test "$(sort -u "$work/chats" | wc -l)" = "$(wc -l <"$work/chats")"

# said NAME TEXT [TIMES] : stderr has a line with the text, once or so many times.
said() { check "$1" test "$(grep -cF -- "$2" "$err")" = "${3:-1}"; }
unused() { "$llama" -m "$1" -md $draft -p "The sky" -p "The sea" -n 2 >"$out" 2>"$err"; }
check template-unused unused "$work/chat.gguf"
said template-named "template: none, by --chat-template; the model's own is llama3"
check template-odd "$convert" template=odd $target "$work/odd.gguf"
check template-odd unused "$work/odd.gguf"
said template-unknown "template: none, by --chat-template; the model's own is of no form known here"
check template-none unused $target
said template-none "template: none, by --chat-template"
said template-none "the model's own" 0
check template-used "$llama" -m "$work/chat.gguf" -md $draft -cnv -p "The sky" -n 2 \
    >"$out" 2>"$err"
said template-used "template: llama3, as the model's own says"
check template-guessed "$llama" -m $target -md $draft -cnv -p "The sky" -n 2 >"$out" 2>"$err"
said template-guessed "guessed from the special tokens; the model has none of its own"

# The target ends its answer to a finished sentence at once: nothing is decoded, and no table shows
# it. Beside a prompt with an answer it does not count as the same as plain decoding.
finished() { "$llama" -q -t 1 -m "$1" -md $draft -p "The answer is 30." "${@:2}" >"$out" 2>"$err"; }
for format in "" --json; do
    finished "$work/chat.gguf" --bench --rounds 1 $format
    check "finished-code $format" test $? = 3
    said "finished $format" "nothing was decoded for 1 of 1 turns"
    said "finished-hint $format" "try other prompts or --chat-template"
    check "finished-table $format" test ! -s "$out"
done
check finished-beside finished "$work/chat.gguf" -p "The patient has" -n 8 --bench --rounds 1
said finished-beside "warning: nothing was decoded for 1 of 2 turns"
check finished-beside-rows test "$(grep -c "same as plain in 1 of 1 turns$" "$out")" = 3
check finished-answer finished "$work/chat.gguf"
said finished-answer "warning: nothing was decoded for 1 of 1 prompts"

# ---- what is refused ----

pair="-m $target -md $draft"
check mamba "$convert" mamba $target "$work/mamba.gguf"
check causal "$convert" causal=false $target "$work/encoder.gguf"
check scale "$convert" logit_scale=0.5 $draft "$work/scaled.gguf"
refuses recurrent 3 "target: recurrent" -m "$work/mamba.gguf" -md $draft
refuses recurrent-drafter 3 "drafter: recurrent" -m $target -md "$work/mamba.gguf"
refuses encoder 3 "target: an encoder" -m "$work/encoder.gguf" -md $draft
# This architecture's graph does not scale, whatever the file says.
refuses scaled 3 "rows times states are not these logits" -m $target -md "$work/scaled.gguf"
head -c 100000 $draft >"$work/cut.gguf"
refuses cut 3 "cut.gguf: llama.cpp does not load it: " -m $target -md "$work/cut.gguf"
refuses no-file 1 "none.gguf: " -m $target -md none.gguf
refuses bundle 3 "tokenizer: expected 'golden'" $pair --bundle tests/golden/bundles/v1.0-raw.specb
refuses section 3 "cluster-build" $pair --bundle "$work/lists.specb" --policy dynaspec
check context "$llama" $pair -q -t 1 -n 4 -c 16 -p "The patient has" -f "$work/long" \
    >"$out" 2>"$err"
said context "prompt: expected 1 to 15 tokens, found "
refuses context-long 2 "--context: expected at most the 2048 positions" $pair -c 4096
refuses policy 2 "policy 'nothing'" $pair --policy nothing
refuses policies 2 "expected one, found more" $pair --policy full --policy microspec
refuses number 2 "--num-steps: expected a whole number from 1 to 32" $pair --draft-max 99
refuses no-drafter 2 "it has no MTP layers to draft with; expected a drafter" -m $target
refuses unknown 2 "unknown option '--what'" $pair --what
refuses no-prompts 3 "found none" $pair --prompts /dev/null
printf '{"prompt_ids": [5, 1000000]}\n' >"$work/ids"
check ids "$llama" $pair -q --prompts "$work/ids" "$work/two" -n 4 >"$out" 2>"$err"
said ids "1 prompt was passed over: 1 unfit, first ids:1: prompt: token 1: expected 0 to "
# A drafter without the target's last tokens, its terminators among them.
check short "$convert" cut=7 $draft "$work/short.gguf"
same_text short-chain answer_by "$work/short.gguf" --policy microspec
same_text short-tree answer_by "$work/short.gguf" --policy full $tree
# A drafter of another vocabulary: the golden one has other tokens.
check other "$convert" tokens=reversed $draft "$work/other.gguf"
refuses other 3 "drafter: its vocabulary is another: token " -m $target -md "$work/other.gguf"

# ---- auto, by the clock ----

# Costs are measured once and kept; what cannot be used is measured again, and one line says why.
auto() {
    "$llama" -m $target -md $draft -p "The patient has a fever and" -n 40 -t 1 "$@" >"$out" 2>"$err"
}
counts() { grep -oE "\"$1\": ?[0-9]+" "$out" | grep -oE '[0-9]+$'; }
auto_sampled() { auto --temp 0.8 --top-p 0.95 -s 5 -q "$@"; }

# measures NAME [ARGUMENT...] : auto, until it keeps what it measures; skipped where the machine is
# too busy for that.
measures() {
    local name=$1; shift
    if again "$err" auto "$@"; then return; fi
    echo "skipped: $name: costs that are kept: the machine is too busy to measure them"
    skipped=$((skipped + 1))
    return 1
}

# The last run kept what it measured.
by_kept_costs() {
    said auto-measured "costs: measured in "
    check auto-measured cmp "$out" "$work/text"
    check auto-read auto
    said auto-read "costs: read from $XDG_CACHE_HOME/specrt/"
    kept=$(echo "$XDG_CACHE_HOME"/specrt/*.costs)
    check auto-one test -e "$kept"
    cp "$kept" "$work/costs"
    check auto-threads auto -t 2
    said auto-threads "costs: measured in "
    sed "2s/machine/machines/" "$kept" >"$work/damaged" && cp "$work/damaged" "$kept"
    local measured
    measures auto-damaged; measured=$?
    said auto-damaged "the file is damaged; measured again in "
    check auto-damaged cmp "$out" "$work/text"
    if [ $measured = 0 ]; then
        check auto-mended auto
        said auto-mended "costs: read from "
    fi
    cp "$work/lists.specb" "$work/beside.specb"
    if measures auto-beside --bundle "$work/beside.specb"; then
        check auto-beside ls "$work"/beside.specb.*.costs >"$out"
    fi
    cp "$work/costs" "$kept"

    # Fast drafts are made, by costs that say so; the answer is plain decoding's.
    given 0.01 0.01
    check auto-on auto --json
    check "auto-on: $(cat "$err")" test "$(counts n_drafted)" -gt 0
    check auto-on-answer auto
    check auto-on-answer cmp "$out" "$work/text"
    said auto-on-line " tokens drafted, "
    # Drafts that cost more than they can give are not; one line says what decided.
    given 0.5 1.2
    check auto-off auto
    said auto-off \
        "drafting off: a pass of 4 tokens costs 2.50 passes here, its draft 3.63; too slow"
    check auto-off cmp "$out" "$work/text"
    check auto-off-json auto --json
    check auto-off-json grep -qE \
        '"policy": ?"plain".*"drafting": ?false.*"note": ?"drafting off' "$out"
    given 0.5 1.2 "another one"
    check auto-moved auto
    said auto-moved "$kept: machine: expected "
    # Sampled answers do not depend on drafts either.
    given 0.01 0.01
    check auto-sampled auto_sampled
    check auto-sampled cmp "$out" "$work/sampled"
    given 0.5 1.2
    check auto-sampled-plain auto_sampled
    check auto-sampled-plain cmp "$out" "$work/sampled"
}
rm -rf "$XDG_CACHE_HOME"/specrt
if measures auto; then by_kept_costs; fi

# Without a drafter that fits, the target decodes and one line says why.
without() { # NAME TEXT ARGUMENT...
    local name=$1 text=$2; shift 2
    check "$name" "$llama" -m $target -p "The patient has a fever and" -n 40 -q "$@" \
        >"$out" 2>"$err"
    check "$name: answer" cmp "$out" "$work/text"
    check "$name: one line" test "$(wc -l <"$err")" = 1
    said "$name" "$text"
}
without auto-none "drafting off: $target: it has no MTP layers to draft with; expected a drafter"
without auto-missing "drafting off: none.gguf: cannot be opened; plain decoding" -md none.gguf
without auto-other "drafting off: drafter: its vocabulary is another: token " -md "$work/other.gguf"
without auto-mamba "drafting off: drafter: recurrent" -md "$work/mamba.gguf" --policy auto
# Of several prompts draws differ as those of sessions do.
many() { run -m $target --prompts "$work/two" -n 12 -q --temp 0.9 -s 3 "$@"; }
check auto-many many -md $draft --policy full
cp "$out" "$work/many"
check auto-many-plain many
check auto-many-plain cmp "$out" "$work/many"

# ---- an EAGLE-3 head ----

# Cut to a list, it loads, and its passes are those of our engine: features, logits of the listed
# tokens, -inf for all others. Where llama.cpp has batches of tokens with states, specrt-llama
# drafts with it: what it reads after drafts is what it reads of a prompt, and tokens are plain
# decoding's. Of a checkpoint without a head (bare) the listed rows are the target's.
eagle=$build/tests/eagle3_head
check eagle-make "$eagle" make $target "$work/eagle.safetensors" 3
check eagle-list logged "$build/bin/specrt-bundle" export "$work/lists.specb" -q --json \
    --format gguf --drafter "$work/eagle.safetensors" --target $target -o "$work/eagle.gguf"
n_ids=$(figure n_ids <"$out")
if [ -x "$build/tests/llama_eagle3" ]; then
    check eagle-passes "$build/tests/llama_eagle3" $target "$work/eagle.gguf" "$work/passes"
    check eagle-same "$eagle" check $target "$work/eagle.safetensors" "$work/passes" "$n_ids"
    check eagle-bare "$eagle" make $target "$work/bare.safetensors" 0
    check eagle-bare logged "$build/bin/specrt-bundle" export "$work/lists.specb" -q --json \
        --format gguf --drafter "$work/bare.safetensors" --target $target -o "$work/bare.gguf"
    n_ids=$(figure n_ids <"$out")
    check eagle-bare "$build/tests/llama_eagle3" $target "$work/bare.gguf" "$work/passes"
    check eagle-bare "$eagle" check $target "$work/bare.safetensors" "$work/passes" "$n_ids"
    check eagle-state logged "$build/tests/llama_state" "$work/f32.gguf" "$work/eagle.gguf"
    splits=
    heads="-m $work/f32.gguf -t 1 --policy window:64@min=0" md="-md $work/eagle.gguf"
    same "eagle chain" $heads --bundle "$work/lists.specb" \
        --policy static:200+window:64@min=0+successor:64
    same "eagle tree" $heads $tree
    same "eagle auto" $heads --policy auto
    md="-md $draft"
    refuses eagle-layers 3 "expected layers from 1 on and below the target's 1, found 2" \
        -m "$work/tiny.gguf" -md "$work/eagle.gguf"
else
    refuses eagle 3 "drafter: architecture eagle3: " -m $target -md "$work/eagle.gguf"
fi

# ---- block drafters ----

# blocks [CHANGE] : the sample's drafter in a GGUF. llama.cpp's states and drafts are ours, tokens
# are plain decoding's under any policy, and one line says what is not supported.
blocks() {
    check "blocks $*" "$build/tests/block_gguf" $target data/sample/block "$work/b.gguf" "$@"
}
refuses_block() { blocks $1 && refuses "block $1" 3 "$2" -m $target -md "$work/b.gguf"; }
drafts_by_blocks() {
    local run32="-m $f32 -t 1" twice=$build/tests/llama_drafts_block
    blocks late && check blocks-late logged "$twice" "$f32" "$work/b.gguf"
    blocks && check blocks-own logged "$twice" "$f32" "$work/b.gguf" 10
    splits= md="-md $work/b.gguf"
    same "blocks chain" $run32 --num-steps 7 --policy window:64@min=0 --bundle "$work/lists.specb" \
        --policy static:200+window:64@min=0+successor:64
    same "blocks short" $run32 --num-steps 3 --policy window:64@min=0
    same "blocks tree" $run32 --num-steps 7 --topk 4 --num-draft-tokens 24 --policy window:64@min=0
    splits=1
    same "blocks q8_0" -m $target -t 2 --policy window:64@min=0
    md="-md $draft"
    by_block() { answer_by "$work/b.gguf" --num-steps 7 "$@"; }
    same_text blocks-p-min by_block --policy full --draft-p-min 0.5
    check blocks-sampled by_block --temp 0.8 --top-p 0.95 -s 5 --policy window:64@min=0
    check blocks-sampled-same cmp "$out" "$work/sampled"
    verb="decode --target $target --draft $work/b.gguf --chat-template none --max-tokens 40 -q"
    for option in --by-position --no-markov "--topk 4 --by-position"; do
        same_text "blocks $option" run $verb --prompt "The patient has a fever and" --threads 1 \
            --num-steps 7 --bundle "$work/lists.specb" --policy static:200+successor:64 $option
    done
    check blocks-auto run -m $target -md "$work/b.gguf" -t 1 -p "The patient has a fever and" \
        -n 40 --num-steps 7
    check blocks-auto-text cmp "$out" "$work/text"
    check blocks-auto-says grep -qE "drafting (on|off).*: a pass of .* costs .* passes here" "$err"
    check blocks-costs run -m $target -md "$work/b.gguf" -t 1 -q --costs "$work/b.costs"
    check blocks-costs grep -qx "block 7" "$work/b.costs"
    local small=auto+window:256@min=8
    kept=$work/b.costs given 0.01 0.01 # drafts are fast
    same_text blocks-auto-costs by_block --policy $small --auto-costs "$work/b.costs"
    check blocks-auto-drafts by_block --policy $small --auto-costs "$work/b.costs" --json
    check blocks-auto-drafts test "$(figure accept_length <"$out")" \> 1.5
    refuses_block no-mask "tokenizer.ggml.mask_token_id: expected a token of the vocabulary"
    refuses_block no-size "dflash.block_size: expected 2 to 64 positions, found 0"
    refuses_block layers=6 "expected layers from 1 on and below the target's 6, found 6"
    refuses_block layers=0 "dflash.target_layers: expected layers from 1 on"
    refuses_block scale "markov_w2.scale: a Markov head with a scale is not supported"
    refuses_block gated "llama.cpp does not load it: "
    check block-selector "$block" make dflash2 $target "$work/b.gguf"
    refuses block-selector 3 "found a selector (DFlash 2)" -m $target -md "$work/b.gguf"
    check block-many "$block" make dflash,many $target "$work/b.gguf"
    refuses block-many 3 "dflash.target_layers: expected at most 8 layers, found 9" -m $target \
        -md "$work/b.gguf"
    check block-width "$block" make dflash "$work/tiny.gguf" "$work/b.gguf"
    refuses block-width 3 "drafter: " -m $target -md "$work/b.gguf"
}

# Cut to a list, each loads in llama.cpp and drafts as the whole one does at the ids kept, in
# specrt-llama as in llama.cpp. One without a head takes the target's rows.
block=$build/tests/llama_block
if [ -x "$block" ]; then
    f32=$work/f32.gguf # llama.cpp rounds states for rows of q8_0
    for kind in dflash dspark dflash2 dspark,bare; do
        take=
        [ $kind != dspark,bare ] || take="--target $f32"
        check "block $kind" logged "$block" make $kind $f32 "$work/block.gguf"
        check "block $kind" logged "$build/bin/specrt-bundle" export "$work/lists.specb" -q \
            --for llama.cpp --drafter "$work/block.gguf" $take -f -o "$work/block-cut.gguf"
        check "block $kind" logged "$build/bin/specrt-bundle" check "$work/block-cut.gguf" -q \
            --for llama.cpp
        check "block $kind" logged "$block" check $f32 "$work/block.gguf" "$work/block-cut.gguf"
        [ $kind = dflash2 ] || check "block $kind drafts" logged "$build/tests/llama_drafts_block" \
            $f32 "$work/block-cut.gguf"
    done
    drafts_by_blocks
fi

# ---- MTP layers ----

# Small models with drawn weights. Drafts have the logits of llama.cpp's own type draft-mtp and read
# no head; what is read after drafts, and resumed, is what a prompt gives, a recurrent state too;
# tokens are plain decoding's, of the target's own layers (with the model's head and with their own)
# and of a file that holds nothing else. Some drafts are accepted, and some are not.
mtp() { # ARCHITECTURE[,...] : that model
    check "make $1" "$build/tests/llama_mtp_model" "$1" $target "$work/$1.gguf"
}
few="--limit 2 -n 16"
more_than_one() { figure accept_length <"$out" | awk '{ exit !($1 > 1.05 && $1 < 4) }'; }
# drafts_by_mtp ARCHITECTURE chains|"" : all of these
drafts_by_mtp() {
    local of=$work/$1.gguf kind
    for kind in "" ,own ,tail,own ,none; do mtp "$1$kind"; done
    check "mtp $1 logits" logged "$build/tests/llama_mtp" $of "$work/$1,tail,own.gguf"
    check "mtp $1 state" logged "$build/tests/llama_state" $of $of $2
    check "mtp $1 drafts" logged "$llama" -m $of -q --json --prompts "$work/prompts.jsonl" -n 16 \
        -t 1 --policy full
    check "mtp $1 accepted" more_than_one
    splits= md=
    same "mtp $1" -m "$of" -t 1 $few --policy window:64@min=0 --bundle "$work/lists.specb" \
        --policy static:200+window:64@min=0+successor:64
    same "mtp $1 own" -m "$work/$1,own.gguf" -t 2 $few --num-steps 7
    md="-md $work/$1,tail,own.gguf"
    same "mtp $1 tail" -m "$work/$1,none.gguf" -t 1 $few
    md="-md $draft"
}
if [ -x "$build/tests/llama_mtp" ]; then
    for of in qwen35 qwen35moe qwen3next; do drafts_by_mtp $of chains; done
    for of in glm4moe step35; do drafts_by_mtp $of ""; done
    md=
    same "mtp tree" -m "$work/glm4moe.gguf" -t 1 $few $tree
    # Gemma 4's drafter is a file of its own, whose passes read the target's cache.
    mtp gemma4 && mtp gemma4-assistant
    gemma="$work/gemma4.gguf $work/gemma4-assistant.gguf"
    check mtp-gemma-logits logged "$build/tests/llama_mtp" $gemma
    check mtp-gemma-state logged "$build/tests/llama_state" $gemma
    md="-md $work/gemma4-assistant.gguf"
    same "mtp gemma" -m "$work/gemma4.gguf" -t 1 $few --policy window:64@min=0
    same "mtp gemma tree" -m "$work/gemma4.gguf" -t 1 $few $tree
    refuses mtp-gemma 3 "expected the target's llama, found gemma4-assistant" -m $target $md
    md=
    # A second layer drafts nothing in step35: the first drafts to any depth.
    mtp step35,two
    same "mtp step35 two" -m "$work/step35,two.gguf" -t 1 $few
    check mtp-costs run -m "$work/glm4moe.gguf" -t 1 -q --costs "$work/mtp.costs"
    same "mtp auto" -m "$work/glm4moe.gguf" -t 1 $few --policy auto --auto-costs \
        "$work/mtp.costs"
    md="-md $draft"
    tail="-md $work/qwen35,tail,own.gguf"
    mtp qwen35,two
    refuses mtp-two 3 "qwen35.nextn_predict_layers: expected 1, found 2" -m "$work/qwen35,two.gguf"
    refuses mtp-none 2 "qwen35,none.gguf: it has no MTP layers" -m "$work/qwen35,none.gguf"
    refuses mtp-other 3 "architecture: expected the target's llama, found qwen35" -m $target $tail
    refuses mtp-tree 3 "its state does not branch; expected chains" -m "$work/qwen35.gguf" $tree
    refuses hybrid-drafter 3 "drafter: partly recurrent" -m $target -md "$work/qwen35,none.gguf"
    same "hybrid target" -m "$work/qwen35.gguf" -t 1 $few
    for of in qwen35 qwen3next; do
        check "blocks $of" logged "$block" make dspark,low "$work/$of.gguf" "$work/b.gguf"
        md="-md $work/b.gguf"
        same "blocks $of" -m "$work/$of.gguf" -t 1 $few --policy window:64@min=0
    done
fi

# ---- docs/integrations/llama.cpp.md ----

# Its commands as they stand, but for those that build, in a folder that looks like the root.
mkdir "$work/root"
ln -s "$build" "$work/root/build"
ln -s "$root/data" "$work/root/data"
awk '/^## /{ mine = /specrt-llama/ } /^```/{ fence = /^```sh/; next }
    mine && fence && !/^make /' docs/integrations/llama.cpp.md >"$work/commands"
check commands grep -q specrt-llama "$work/commands"
check integrations logged sh -c 'cd "$0/root" && sh -eu ../commands' "$work"
check integrations-bench grep -q "same as plain" "$out"
check integrations-verdict grep -q "over whole requests" "$out"

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
