#!/usr/bin/env bash
# server.sh BUILD [SERVER] : llama.cpp's server with the type draft-specrt, opt-in since `make
# llama-patched` takes long. Three slots answer at once, with drafts and without; every token is the
# same. Run from the project's root, after `make tools llama`; SERVER is another binary. Closes with
# "N passed, N failed, N skipped".
set -u
build=$(cd "$1" && pwd) passed=0 failed=0
server=${2:-$build/llama/patched/build/bin/llama-server}
convert=$build/tests/llama_convert
for program in "$server" "$convert"; do
    [ ! -x "$program" ] || continue
    echo "skipped: no $program; make llama llama-patched builds it"
    echo "0 passed, 0 failed, 1 skipped"
    exit 77
done
work=$(mktemp -d) pid=
export XDG_CACHE_HOME=$work/cache # costs of auto
mkdir "$XDG_CACHE_HOME"
trap '[ -z "$pid" ] || kill "$pid" 2>"$work/kill"; rm -rf "$work"' EXIT
. tests/llama/costs.bash
target=data/sample/target.gguf draft=data/sample/draft-small.gguf

check() { # NAME COMMAND... : exit code 0
    local name=$1; shift
    if "$@" >"$work/out" 2>&1; then passed=$((passed + 1)); return; fi
    failed=$((failed + 1))
    echo "FAIL $name: $(tail -c 600 "$work/out")"
}

# ask.py PORT PROMPTS OUT BODY : every prompt twice, three at a time; a line of tokens each, then
# how many were drafted and accepted. BODY, JSON, changes the request. What auto says of each answer
# is in OUT.notes, counters in OUT.metrics.
cat >"$work/ask.py" <<'PY'
import json, sys, urllib.request
from concurrent.futures import ThreadPoolExecutor

def ask(prompt):
    body = {"prompt": prompt, "n_predict": 40, "temperature": 0, "return_tokens": True,
            "cache_prompt": False} | json.loads(sys.argv[4])
    request = urllib.request.Request(f"http://127.0.0.1:{sys.argv[1]}/completion",
                                     json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=300))

prompts = [json.loads(line)["prompt"] for line in open(sys.argv[2])] * 2
with ThreadPoolExecutor(3) as pool:
    answers = list(pool.map(ask, prompts))
with open(sys.argv[3], "w") as out:
    for answer in answers:
        print(*answer["tokens"], file=out)
times = [answer["timings"] for answer in answers]
print(sum(t.get("draft_n", 0) for t in times), sum(t.get("draft_n_accepted", 0) for t in times))
with open(sys.argv[3] + ".notes", "w") as out:
    for t in times:
        if "draft_note" in t:
            print(t["draft_plain_n"], t["draft_estimated_speedup"], t["draft_note"], file=out)
metrics = urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/metrics", timeout=300)
open(sys.argv[3] + ".metrics", "wb").write(metrics.read())
PY

free_port() {
    python3 -c 'import socket
s = socket.socket()
s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])'
}

# healthy PORT : answers, or has ended.
healthy() {
    local port=$1
    for _ in $(seq 600); do
        kill -0 "$pid" 2>"$work/kill" || return 1
        python3 -c "import urllib.request as u; u.urlopen('http://127.0.0.1:$port/health')" \
            2>"$work/health" && return 0
        sleep 0.2
    done
    return 1
}

# serve NAME ARGUMENT... : $model's answers to requests with $body in NAME.ids, the log in NAME.log,
# figures in NAME.n.
model=$work/target.gguf body={}
serve() {
    local name=$1 port code; shift
    port=$(free_port)
    "$server" -m "$model" -np 3 -c 3072 -t 1 --no-warmup --metrics \
        --host 127.0.0.1 --port "$port" \
        "$@" >"$work/$name.log" 2>&1 &
    pid=$!
    healthy "$port" &&
        python3 "$work/ask.py" "$port" "$work/prompts.jsonl" "$work/$name.ids" "$body" \
            >"$work/$name.n"
    code=$?
    kill "$pid" 2>"$work/kill"
    wait "$pid" 2>"$work/kill"
    pid=
    [ $code = 0 ] || tail -n 5 "$work/$name.log"
    return $code
}

head -qn 1 data/prompts/*.jsonl >"$work/prompts.jsonl"
check target "$convert" f32 $target "$work/target.gguf"
corpus="--tokenizer $target --corpus data/prompts --field prompt -q"
check lists "$build/bin/vocabtrim-calibrate" $corpus --size 2000 --holdout 0 -o "$work/pair.specb"
check graph "$build/bin/cograph-build" $corpus --successor-count 1 -o "$work/pair.specb"
check plain serve plain

# drafts NAME POLICY : $plain's tokens, $least of which $md drafted, no pass with its head.
md="-md $draft" plain=plain least=1
drafts() {
    local name=$1 policy=$2; shift 2
    check "$name" serve "$name" $md --spec-type draft-specrt --spec-draft-n-max 4 \
        --spec-specrt-policy "$policy" "$@"
    check "$name: tokens" cmp "$work/$plain.ids" "$work/$name.ids"
    check "$name: accepted" awk "{ exit !(\$1 > 0 && \$2 >= $least) }" "$work/$name.n"
    check "$name: policy" grep -F "draft-specrt: policy ${policy%%@*}" "$work/$name.log"
    check "$name: passes" sh -c '! grep -E "draft-specrt: (expected|llama_process|token)" "$0"' \
        "$work/$name.log"
    echo "$name: drafted and accepted $(cat "$work/$name.n")"
}
drafts full full
drafts one full --spec-draft-n-max 1
check simple serve simple -md "$draft" --spec-type draft-simple --spec-draft-n-max 4 \
    --spec-draft-p-min 0
check "full: as many as draft-simple" cmp "$work/simple.n" "$work/full.n"
drafts window window:256@min=0
drafts list static:512 --spec-specrt-bundle "$work/pair.specb"

# own_drafts NAME TYPE ARGUMENT... : the same for a type of llama.cpp's own.
own_drafts() {
    local name=$1 type=$2; shift 2
    check "$name" serve "$name" --spec-type "$type" --spec-draft-n-max 3 --spec-draft-p-min 0 "$@"
    check "$name: tokens" cmp "$work/$plain.ids" "$work/$name.ids"
    check "$name: accepted" awk "{ exit !(\$1 > 0 && \$2 >= $least) }" "$work/$name.n"
    echo "$name: drafted and accepted $(cat "$work/$name.n")"
}

# ---- auto, by the clock: the default ----

# answers NAME TEXT [ARGUMENT...] : $plain's tokens, and one line of the log has the text.
answers() {
    local name=$1 text=$2; shift 2
    check "$name" again "$work/$name.log" serve "$name" --spec-type draft-specrt "$@"
    check "$name: tokens" cmp "$work/$plain.ids" "$work/$name.ids"
    check "$name: $text" test "$(grep -cF -- "$text" "$work/$name.log")" = 1
}
pair="-md $draft --spec-draft-n-max 4"
answers auto-measured "draft-specrt: costs: measured in " $pair
kept=$(echo "$XDG_CACHE_HOME"/specrt/*.costs)
check auto-kept test -e "$kept"

# Drafts that are fast by these costs are made in three slots; each answer has a line.
given 0.01 0.01
answers auto-on "draft-specrt: costs: read from $kept" $pair
check "auto-on: $(cat "$work/auto-on.n")" awk '{ exit !($1 > 0) }' "$work/auto-on.n"
check auto-on-notes test "$(grep -c "drafting o[nf]* in [0-9]*% of cycles: a pass of " \
    "$work/auto-on.ids.notes")" = "$(wc -l <"$work/plain.ids")"
check auto-on-log test "$(grep -c "drafting o[nf]* in [0-9]*% of cycles: a pass of " \
    "$work/auto-on.log")" = "$(wc -l <"$work/plain.ids")"
for name in num_plain_total estimated_speedup num_draft_tokens_total; do
    check "auto-on-metrics $name" grep -qE "^llamacpp:spec_decode_$name [0-9.e+]+$" \
        "$work/auto-on.ids.metrics"
done
beside=$work/pair.specb.$(basename "$kept")
cp "$kept" "$beside"
answers auto-sum "draft-specrt: policy static:512+successor:64" $pair \
    --spec-specrt-policy auto+static:512+successor:64 --spec-specrt-bundle "$work/pair.specb"
check auto-beside grep -F "costs: read from $beside" "$work/auto-sum.log"
# Drafts that cannot be faster, and drafters that are not there: none, and one line.
given 0.5 1.2
too_slow="drafting off: a pass of 4 tokens costs 2.50 passes here, its draft 3.63; too slow"
answers auto-off "$too_slow" $pair
sed "2s/machine/machines/" "$kept" >"$work/damaged" && cp "$work/damaged" "$kept"
answers auto-damaged "the file is damaged; measured again in " $pair
answers auto-missing "drafting off: failed to load draft model, 'none.gguf'; plain decoding" \
    -md none.gguf
answers auto-none "drafting off: $model: it has no MTP layers to draft with; expected -md FILE"

# llama.cpp's own type draft-eagle3, with a head that specrt-bundle cut to a list: it loads, drafts.
eagle=$build/tests/eagle3_head
check eagle-make "$eagle" make "$work/target.gguf" "$work/eagle.safetensors" 2
check eagle-list "$build/bin/specrt-bundle" export "$work/pair.specb" -q --format gguf \
    --drafter "$work/eagle.safetensors" --target "$work/target.gguf" -o "$work/eagle.gguf"
check eagle serve eagle -md "$work/eagle.gguf" --spec-type draft-eagle3 --spec-draft-n-max 3 \
    --spec-draft-p-min 0
check "eagle: tokens" cmp "$work/plain.ids" "$work/eagle.ids"
check "eagle: drafted" awk '{ exit !($1 > 0) }' "$work/eagle.n"

# list_of FILE TARGET : llama.cpp's own type draft-mtp, with the server's libraries, loads FILE with
# its head cut to a list, as FILE-cut. Its logits are those of the whole head.
list_of() {
    check "cut $1" "$build/bin/specrt-bundle" export "$work/pair.specb" -q --for llama.cpp \
        --drafter "$work/$1.gguf" -o "$work/$1-cut.gguf"
    check "cut $1: logits" env LD_LIBRARY_PATH="$(dirname "$server")" "$build/tests/llama_mtp" \
        "$work/$2.gguf" "$work/$1.gguf" "$work/$1-cut.gguf"
}

# MTP layers: the target's own, and those of a file that holds nothing else, with whole heads and
# with cut ones, where a whole model's output.weight stays whole. States of qwen35 are rolled back
# by snapshots, of qwen3next by the server's copies, and glm4moe has none.
mtp() { "$build/tests/llama_mtp_model" "$1" $target "$work/$1.gguf"; }
for of in qwen35moe step35 qwen35 qwen3next glm4moe; do
    for kind in "" ,tail ,tail,own; do check "mtp $of$kind" mtp "$of$kind"; done
    list_of $of $of
    list_of $of,tail $of
done
for of in qwen35 qwen3next glm4moe; do
    model=$work/$of.gguf plain=$of-plain md=
    check "$plain" serve "$plain"
    drafts "mtp-$of" full
    answers "mtp-$of-auto" "draft-specrt: costs: measured in "
    md="-md $work/$of,tail,own.gguf"
    drafts "mtp-$of-tail" window:16384@min=16384
    md="-md $work/$of,tail-cut.gguf"
    drafts "mtp-$of-tail-cut" full
    own_drafts "mtp-$of-tail-cut-own" draft-mtp $md
    model=$work/$of-cut.gguf md=
    drafts "mtp-$of-cut" full
    own_drafts "mtp-$of-cut-own" draft-mtp
done
# Gemma 4's drafter, a file of its own, drafts in draft-mtp alone.
for of in gemma4 gemma4-assistant; do check "mtp $of" mtp $of; done
list_of gemma4-assistant gemma4
model=$work/gemma4.gguf plain=gemma-plain
check "$plain" serve "$plain"
own_drafts mtp-gemma-cut draft-mtp -md "$work/gemma4-assistant-cut.gguf"
# Of step35 draft-mtp has a layer for each depth, with a cut head each.
check "mtp step35,two" mtp step35,two
list_of step35,two step35,two
model=$work/step35,two.gguf plain=step35-plain
check "$plain" serve "$plain"
model=$work/step35,two-cut.gguf
own_drafts mtp-step35-two-cut draft-mtp
check "mtp two" mtp qwen35,two
model=$work/target.gguf plain=plain

# ---- block drafters ----

# as_own NAME TYPE FILE ARGUMENT... : with the whole vocabulary FILE drafts as many tokens as
# llama.cpp's own type does, and as many of them are accepted.
as_own() {
    local name=$1 type=$2 file=$3; shift 3
    md="-md $work/$file.gguf"
    drafts "$name" full --spec-draft-n-max 7 "$@"
    own_drafts "$name-own" "$type" $md --spec-draft-n-max 7 "$@"
    check "$name: as many as $type" cmp "$work/$name.n" "$work/$name-own.n"
}

# The sample's drafter takes the target's head; one cut to a list brings its own.
block=$build/tests/llama_block
check block-make "$build/tests/block_gguf" $target data/sample/block "$work/dspark.gguf"
check block-late "$build/tests/block_gguf" $target data/sample/block "$work/late.gguf" late
check block-cut "$build/bin/specrt-bundle" export "$work/pair.specb" -q --for llama.cpp \
    --drafter "$work/dspark.gguf" --target "$model" -o "$work/dspark-cut.gguf"
as_own dspark draft-dspark dspark
as_own dspark-trust draft-dspark dspark --spec-draft-p-min 0.5
as_own dspark-late draft-dspark late
as_own dspark-cut draft-dspark dspark-cut
md="-md $work/dspark.gguf"
drafts dspark-window window:256@min=0 --spec-draft-n-max 7 --kv-unified
drafts dspark-list static:512+successor:64 --spec-specrt-bundle "$work/pair.specb"
body='{"temperature": 0.8, "seed": 5}' plain=sampled
check sampled serve sampled
drafts dspark-sampled window:256@min=0
body={} plain=plain
answers dspark-measured "draft-specrt: costs: measured in " $md --spec-draft-n-max 7
kept=$(grep -l "^block 7$" "$XDG_CACHE_HOME"/specrt/*.costs)
given 0.01 0.01
answers dspark-auto "draft-specrt: costs: read from $kept" $md --spec-draft-n-max 7
check "dspark-auto: $(cat "$work/dspark-auto.n")" awk '{ exit !($2 > 0) }' "$work/dspark-auto.n"

# Drawn weights: what they draft is rejected, and hybrid targets are rolled back.
least=0
check dflash-make "$block" make dflash "$model" "$work/dflash.gguf"
as_own dflash draft-dflash dflash
for of in qwen35 qwen3next; do
    check "block $of" "$block" make dspark,low "$work/$of.gguf" "$work/$of-block.gguf"
    model=$work/$of.gguf plain=$of-plain
    as_own "block-$of" draft-dspark "$of-block"
done
model=$work/target.gguf plain=plain

# refuses NAME TEXT ARGUMENT... : the log says why there are no drafts.
refuses() {
    local name=$1 text=$2; shift 2
    serve "$name" --spec-type draft-specrt "$@" >"$work/out" 2>&1
    check "$name" grep -F -- "$text" "$work/$name.log"
}
check other "$convert" tokens=reversed $draft "$work/other.gguf"
refuses vocabulary "has another vocabulary" -md "$work/other.gguf"
refuses bundle "tokenizer: expected 'golden'" -md $draft \
    --spec-specrt-bundle tests/golden/bundles/v1.0-raw.specb
refuses policy "policy 'nothing'" -md $draft --spec-specrt-policy nothing
refuses mtp-other "expected the target's llama, found qwen35" -md "$work/qwen35,tail,own.gguf"
answers eagle-head "found an EAGLE-3 head" -md "$work/eagle.gguf"
answers block-other "off: drafter: dflash.embedding_length: expected the target's width, found 64" \
    -md "$work/qwen35-block.gguf"
answers block-batch "draft-specrt: -ub: expected 64 or more" -md "$work/dspark.gguf" -ub 32
check dflash2-make "$block" make dflash2 "$model" "$work/dflash2.gguf"
answers dflash2 "dflash2.gguf: selector_hidden.weight: expected DFlash or DSpark, found" \
    -md "$work/dflash2.gguf"
model=$work/qwen35,two.gguf
refuses mtp-two "qwen35.nextn_predict_layers: expected 1, found 2"

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
