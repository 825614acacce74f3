# shellcheck shell=bash disable=SC2034
# pair.sh : what reproduce.sh, benchmarks.sh and replay.sh share; source it behind settings.bash.
# `pair NAME` sets
#     target draft small      the models; small is an independent drafter, or empty
#     head n_vocab n_cols     the model whose head drafts; its rows and columns
#     sections                what to build beside ranks; empty: all
#     n_target n_layer        parameters of the target; of the drafter without embedding and head
#     small_layer small_cols  the same of `small`, and the columns of its head
#     bundle                  build/bench-NAME/model.specb, by specrt prepare unless it is there
#     trained_on              the prompt sets of which the pair was trained: what it accepts there
#                             says little of text that it has not seen
# With no_bundle set none is made. One thread is steadier beside other programs. Prompts are those
# of build/prompts, which bench/prompts.py writes where SPECRT_DATA is there, else data/prompts.
set -eu
build=${build:-build} threads=${threads:-1}
data=${SPECRT_DATA:-../shared/data}
prompts=$build/prompts

if [ ! -d "$prompts" ] && [ -e "$data/prompts/spec_bench/question.jsonl" ]; then
    python3 bench/prompts.py "$data" "$prompts"
fi
[ -d "$prompts" ] || prompts=data/prompts

pair() {
    bundle=$build/bench-$1/model.specb small='' n_layer=918016 trained_on='' head='' sections=
    n_cols=256 small_layer=203232 small_cols=96
    case $1 in
    sample)
        target=data/sample/target.gguf draft=data/sample/draft.safetensors
        trained_on="humaneval gsm8k legal medical"
        small=data/sample/draft-small.gguf n_vocab=32768 n_target=13110528
        ;;
    128k)
        target=$data/weights/pair128k/target.gguf
        draft=$data/weights/pair128k/draft.safetensors
        n_vocab=128256 n_target=37555456
        trained_on="gsm8k legal medical function_calling"
        ;;
    smollm2) # its drafter is ours: data/README.md
        target=$build/models/smollm2.gguf draft=data/smollm2/draft.safetensors
        n_vocab=49152 n_cols=576 n_target=134515008 n_layer=4203648
        sections="graph,clusters,dynaspec,coral"
        ;;
    smollm2-self) # a drafter as good as can be: every row that a policy leaves out shows
        target=$build/models/smollm2.gguf draft=$target
        n_vocab=49152 n_cols=576 n_target=134515008 n_layer=106203456
        sections="graph,clusters,dynaspec,coral"
        ;;
    gemma-self) # a head of 262,144 rows; a base model, which continues prompts
        target=$build/models/gemma-270m.gguf draft=$target
        n_vocab=262144 n_cols=640 n_target=268098176 n_layer=100326016
        sections=graph
        ;;
    qwen)
        target=$build/models/qwen-1.5b.gguf draft=$build/models/qwen-0.5b.gguf head=$draft
        n_vocab=151936 n_cols=896 n_target=1543714304 n_layer=357898112
        sections="graph,clusters,coral"
        ;;
    *)
        say "expected the pair sample, 128k, smollm2, smollm2-self, gemma-self or qwen, found $1"
        exit 2
        ;;
    esac
    head=${head:-$target}
    for file in "$target" "$draft"; do
        [ -e "$file" ] || { say "skipped: no $file ($(source_of "$file"))"; exit 77; }
    done
    [ -e "$bundle" ] || [ -n "${no_bundle:-}" ] || make_bundle
}

# Where a model comes from.
source_of() {
    case $1 in
    "$build"/models/*) echo "make models" ;;
    "$data"/*) echo "of the shared data: SPECRT_DATA=FOLDER names it, ../shared/data if unset" ;;
    *) echo "a file of this repository" ;;
    esac
}

# Chat: ShareGPT for published models, answers of models with the same tokenizer for the 128k pair;
# where that is not at hand, prose, questions and manuals.
general_text() {
    chat=$data/generations/llama3/Meta-Llama-3
    case $target in
    "$build"/models/*)
        [ ! -e "$build/models/sharegpt.json" ] || { echo "$build/models/sharegpt.json"; return; }
        ;;
    esac
    if [ "$n_vocab" = 128256 ] && [ -e "$chat-8B-Instruct.json" ]; then
        echo "$chat-8B-Instruct.json" "$chat-70B-Instruct.json"
    else
        echo data/corpus/prose data/corpus/qa data/corpus/technical
    fi
}

# As `make calibrate`, but ranks and graph from general text, as in the papers. Routers, sketch and
# index see the target itself.
make_bundle() {
    say "making $bundle (its log is beside its folder)"
    folder=${bundle%/*}
    # shellcheck disable=SC2046
    "$build/bin/specrt" prepare --for specrt --target "$target" --drafter "$draft" \
        --text $(general_text) --prompts data/prompts/*.jsonl --limit 6 \
        ${sections:+--with "$sections"} --policy none -o "$folder" >"$folder.log" 2>&1 ||
        { tail -n 5 "$folder.log" >&2; exit 1; }
    case $target in "$build"/models/*) make_sketch >>"$folder.log" 2>&1 ;; esac
}

# A sketch by states of users' questions that no list is counted from: a basis of few states, or of
# other questions, finds less.
make_sketch() {
    asked=$build/models/prompts.jsonl states=${bundle%.specb}.trace
    [ -e "$asked" ] || { say "no sketch: no $asked (make models)"; return; }
    "$build/bin/specrt-eval" record -q --target "$target" --draft "$draft" --prompts "$asked" \
        --limit 64 --max-tokens 32 --topk 1 --num-steps 4 --draft-top 0 -f -o "$states"
    "$build/bin/sketch-build" --model "$head" --trace "$states" --states 500 --allow-below \
        -f -o "$bundle"
}

# unseen NAME... and seen NAME... : those of these tasks that the pair was not trained on, and those
# that it was. data/prompts, which stands in where there are no others, is unseen.
unseen() { for task; do is_seen "$task" || echo "$task"; done; }
seen() { for task; do ! is_seen "$task" || echo "$task"; done; }
is_seen() {
    [ "$prompts" != data/prompts ] || return 1
    case " $trained_on " in *" $1 "*) ;; *) return 1 ;; esac
}

# tasks NAME... : prompt files of these tasks; of data/prompts all, which has other ones. Those that
# the pair was trained on get domains whose names begin with "seen-", for tables to show it.
tasks() {
    if [ "$prompts" = data/prompts ]; then
        printf '%s\n' data/prompts/*.jsonl
        return
    fi
    for task; do
        file=$prompts/$task.jsonl
        if is_seen "$task"; then
            mkdir -p "$build/seen"
            sed 's/\(.*"domain": "\)/\1seen-/' "$file" >"$build/seen/$task.jsonl"
            file=$build/seen/$task.jsonl
        fi
        echo "$file"
    done
}
spec_bench="mt_bench translation summarization qa math_reasoning rag"
special="humaneval legal medical"

# rows FLAGS... : a comparison as lines of
#     policy domain accept low high covered rows tokens/s with-prompt x-plain x-full head_ms mass
#     r10 r50 r100 loops bytes-a-pass accept-x-full drafting_ms draft_ms events event_ms
#     x-full-low x-full-high
# with tabs between; - where a figure does not exist. drafting_ms is a cycle's time in the drafter's
# layers, in its head and in choosing rows; event_ms what a cycle that retrieves spends on choosing;
# x-full-low and -high: the interval of accept-x-full, over the same prompts in pairs.
rows() {
    "$build/bin/specrt-eval" compare --target "$target" --draft "$draft" --bundle "$bundle" \
        --threads "$threads" --json "$@" | sed 's/{"policy"/\n&/g' | awk -v OFS='\t' '
        function field(key,   s) {
            if (!match($0, "\"" key "\":[^,}]*")) return "-"
            s = substr($0, RSTART, RLENGTH)
            sub(/^"[^"]*":\[?/, "", s)
            gsub(/[]"]/, "", s)
            return s == "null" || s == "" ? "-" : s
        }
        function bound(key, i,   s, part) {
            if (!match($0, "\"ci95\":[{][^}]*\"" key "\":\\[[^]]*")) return "-"
            s = substr($0, RSTART, RLENGTH)
            sub(/.*\[/, "", s)
            split(s, part, ",")
            return part[i] == "null" ? "-" : part[i]
        }
        /^\{"policy"/ && !/"prompt":/ {
            print field("policy"), field("domain"), field("accept_length"),
                bound("accept_length", 1), bound("accept_length", 2), field("coverage"),
                field("shortlist_rows"), field("tokens_per_second"),
                field("tokens_per_second_prompt"), field("speedup_plain"), field("speedup_full"),
                field("head_ms"), field("mass"), field("10"), field("50"), field("100"),
                field("loop_share"), field("bytes_pass"), field("accept_full"),
                field("draft_ms") + field("head_ms") + field("update_ms"), field("draft_ms"),
                field("events_per_cycle"), field("update_event_ms"), bound("accept_full", 1),
                bound("accept_full", 2)
        }'
}
