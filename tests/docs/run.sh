#!/usr/bin/env bash
# run.sh [--times] BUILD [PAGE...] : the commands of pages and of help texts (the page help) as they
# are, those of a page in order, in a folder with the files that they name. Closes with "N passed, N
# failed, N skipped": commands, and blocks that begin with ```sh and the reason why they are not
# run. Run from the project's root. The sample's vocabulary is smaller than those of pages: sizes
# become a quarter.
set -u
times=
if [ "$1" = --times ]; then times=$1; shift; fi
build=$(cd "$1" && pwd) root=$PWD; shift
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill $server; rm -rf "$work"' EXIT
export PATH="$build/bin:$PATH" LC_ALL=C
unset MAKEFLAGS MAKELEVEL MFLAGS
for program in python3 curl; do
    command -v $program >/dev/null || { echo "skipped: needs $program"; exit 77; }
done
die() { echo "FAIL tests/docs: $*"; echo "0 passed, 1 failed, 0 skipped"; exit 1; }

# ---- the files that pages name, of the sample pair ----

# folder NAME HEAD CONFIG : a checkpoint's folder.
folder() {
    mkdir "$1" && cp "$root/data/tokenizer.json" "$1/" && cp "$2" "$1/model.safetensors" &&
        sed "s/\"LlamaForCausalLM\"/\"$3\"/" "$root/data/sample/config.json" >"$1/config.json"
}
records() { # FIELD PATH... : a line of JSON for each line of text
    local field=$1; shift
    cat "$@" | tr -d '\r\t' | sed 's/[\\"]/\\&/g; s/.*/{"'"$field"'": "&"}/'
}
world() {
    local sample=$root/data/sample
    cp "$sample/draft.safetensors" "$sample/config.json" "$root/data/tokenizer.json" .
    cp "$sample/target.gguf" target.gguf && ln target.gguf llama3.gguf
    cp "$sample/draft-small.gguf" draft.gguf && ln draft.safetensors eagle.safetensors
    "$build/tests/eagle3_head" make target.gguf eagle3.safetensors 1
    "$build/tests/mtp_gguf" target.gguf "$sample/mtp.safetensors" Qwen.gguf whole
    ln Qwen.gguf Qwen-MTP.gguf && ln Qwen.gguf Qwen3.5-27B.gguf
    folder llama3 draft.safetensors LlamaForCausalLM
    folder eagle draft.safetensors LlamaForCausalLMEagle
    folder eagle3 eagle3.safetensors LlamaForCausalLMEagle3
    folder Qwen3.5-27B "$sample/mtp.safetensors" Qwen3_5ForCausalLM
    cp -r "$root/data/corpus/code" code && cp -r "$root/data/corpus" corpus
    mkdir answers counts
    records output "$root"/data/corpus/qa/* "$root"/data/corpus/code/c.txt >chat.jsonl
    cp chat.jsonl answers.jsonl && cp chat.jsonl today.jsonl && cp chat.jsonl answers/
    head -qn 1 "$root"/data/prompts/{qa,code}.jsonl >questions.jsonl
    vocabtrim-calibrate -q --tokenizer target.gguf --corpus chat.jsonl corpus -o model.specb
    cograph-build -q --tokenizer target.gguf --corpus chat.jsonl -o model.specb
    ln model.specb llama3.specb && ln model.specb pair.specb
    specrt-bundle export model.specb -q --format gguf --drafter eagle3.safetensors \
        --target target.gguf --size 16384 -o eagle3-f16.gguf
    ln model.specb ranks.specb && specrt-bundle unpack -q model.specb -o model-raw.specb
    specrt-bundle export model.specb -q --format sglang-pt -o freq_8192.pt
    cluster-build -q --model target.gguf --clusters 64 -o clusters.specb
    vocabtrim-calibrate -q --tokenizer target.gguf --corpus today.jsonl --counts-out today.counts
    cp today.counts counts/part-0 && cp -r eagle3 drafter
    specrt-eval record -q --target target.gguf --draft draft.safetensors --num-steps 3 \
        --prompts questions.jsonl --max-tokens 64 -o target.trace
    ln target.trace pair.trace && ln target.trace run.trace
}
mkdir "$work/world"
(cd "$work/world" && set -e && world) >"$work/log" 2>&1 || die "no files: $(tail -n 5 "$work/log")"
python3 tests/cli/endpoint.py "$work/port" "$work/asked" &
server=$!
for ((i = 0; i < 100; i++)); do [ -e "$work/port" ] && break; sleep 0.1; done
port=$(cat "$work/port") || die "no server"

# ---- pages ----

# run NAME : its script, in a folder of its own where the project's files are, too; leaves a report.
run() {
    local name=$1 page=$work/pages/${1//[\/ ]/-} path code
    cp -rl "$work/world" "$page/in"
    for path in "$root"/* "$root/.ci"; do
        [ -e "$page/in/${path##*/}" ] || ln -s "$path" "$page/in/"
    done
    ln -sfn "$build" "$page/in/build"
    sed -i "s/32768/8192/g; s/32000/8000/g; s/65536/16384/g
        s/localhost:8000/127.0.0.1:$port/" "$page/script"
    # What the page makes before it uses it is not there.
    for path in $(grep -oE -- "$makes[^ ]+" "$page/script" | sed -E "s/$makes//"); do
        grep -oE -- "($makes|[^ ]+ )?$path/?( |\$)" "$page/script" | head -n 1 |
            grep -qE -- "$makes" && rm -rf "$page/in/${path:?}"
    done
    (cd "$page/in" && AT=$page/at exec bash -eu -o pipefail ../script) >"$page/log" 2>&1 </dev/null
    code=$?
    echo $code >"$page/code"
    if [ $code != 0 ]; then
        echo "FAIL $(tail -n 1 "$page/at"): exit $code: $(tail -n 4 "$page/log")" >"$page/report"
    fi
    times >"$page.times"
    rm -rf "$page/in"
}
export -f run
export work build root port makes='(-o |--counts-out |-pt=)'

# put NAME : a page's script is what stdin says.
put() {
    local page=$work/pages/${1//[\/ ]/-}
    mkdir -p "$page"
    cat >"$page/script"
    [ -s "$page/script" ] && echo "$1" >>"$work/names"
}
# example TOOL [VERB] : the command of its help, unless a page has it.
example() {
    local command
    command=$("$@" -h | awk '/^Example:$/ { on = 1; next } on && !/^ / { exit }
        on { sub(/^ +/, ""); printf "%s%s", n++ ? " " : "", $0 }')
    grep -qxF -- "$command" "$work"/pages/*/script 2>/dev/null ||
        printf '%s\n' "echo '$* -h' >>\"\$AT\"" "$command" | put "$*"
}
examples() {
    local tool verb
    for tool in "$build"/bin/*; do
        tool=${tool##*/}
        [ -d "$root/tools/$tool" ] && [ "$tool" != specrt-llama ] || continue
        example "$tool"
        for verb in $("$tool" -h | awk '/^Verbs, each/ { on = 1; next } on && !/^  [a-z]/ { exit }
            on && !/\)$/ { print $1 }'); do example "$tool" "$verb"; done
    done
}

[ $# -gt 0 ] || set -- README.md docs/*.md docs/*/*.md tools/*/README.md python/README.md help
: >"$work/skips"
for page; do
    if [ "$page" = help ]; then examples; continue; fi
    awk -v skips="$work/skips" -f tests/docs/commands.awk "$page" | put "$page"
done
xargs -d '\n' -n 1 -P "$(nproc)" bash -c 'run "$0"' <"$work/names"
cat "$work/skips" "$work"/pages/*/report 2>/dev/null
[ -z "$times" ] || awk -f tests/times.awk "$work"/pages/*.times | sort -rn
n=$(cat "$work"/pages/*/at | wc -l) failed=$(cat "$work"/pages/*/code | grep -vcx 0)
echo "$((n - failed)) passed, $failed failed, $(wc -l <"$work/skips") skipped"
[ "$failed" = 0 ]
