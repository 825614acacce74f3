#!/usr/bin/env bash
# benchmarks.sh [NAME...] [SETTING=VALUE...] : what `make benchmarks` does. Runs the programs behind
# docs/BENCHMARKS.md, all or those named. What they print becomes the section NAME of a file in
# bench/results/raw/MACHINE, with machine, commit and command; `standing` also renews the table in
# bench/results/standing.md, `readme` that in README.
#
# Names: one of bench_NAME.c (head, sketch, verify...); standing, standing-loops, readme, verdicts,
# mtp, dspark, plan, compare, published, speeds, replay; a table of bench/reproduce.sh; decode;
# peers; csra; size.
# Those that lack data or a peer are skipped with a word. Settings are those of settings.bash; PAIRS
# is sample 128k, of published models smollm2 smollm2-self gemma-self qwen. PYTHON has what the
# peers need (python3).
. "$(dirname "$0")/settings.bash"
. "$(dirname "$0")/pair.sh"
machine=${machine:-here} python=${PYTHON:-python3}
results=bench/results

cpu() {
    model=$(grep -m 1 'model name' /proc/cpuinfo | cut -d: -f2- | sed 's/^ *//')
    vectors=$(grep -m 1 flags /proc/cpuinfo | tr ' ' '\n' |
        grep -xE 'avx2|avx512f|avx512_vnni|avx512_bf16|amx_tile' | paste -sd ' ')
    echo "machine: $model, $vectors, $(nproc) of $(nproc --all) cores"
}
commit() {
    changed=
    sources="include src lib engine tools adapters bench :!bench/results"
    [ -z "$(git status --porcelain -- $sources 2>/dev/null)" ] || changed=', with changes'
    echo "commit: $(git rev-parse --short HEAD 2>/dev/null || echo unknown)$changed"
}

# keep FILE SECTION COMMAND... : what it prints becomes the last section of that file, in place of
# the section of that name, unless it fails or is skipped.
keep() {
    file=$results/raw/$machine/$1.txt section=$2
    shift 2
    command=$*
    [ "$(type -t "$1")" != function ] || command="make benchmarks NAMES=$1 ${given[*]}"
    say "$section: $*"
    { echo "## $section"; cpu; commit; echo "command: $command"; echo; } >"$work/result"
    code=0
    "$@" >>"$work/result" || code=$?
    case $code in
    0)
        mkdir -p "${file%/*}" && touch "$file"
        others=$(awk -v own="## $section" '/^## / { inside = $0 == own } !inside' "$file")
        printf '%s\n' ${others:+"$others" ""} "$(cat "$work/result")" >"$file"
        ;;
    77) say "$section is skipped" ;;
    *) say "$section failed with code $code"; failed=1 ;;
    esac
}

# into NAME PAGE : $work/table, between the page's marks of that name.
into() {
    awk -v table="$work/table" -v begin="<!-- $1 table:" -v end="<!-- end of the $1 table -->" '
        index($0, begin) {
            print $0 "\n"
            while ((getline line <table) > 0) print line
            print ""
            inside = 1
        }
        index($0, end) { inside = 0 }
        !inside' "$2" >"$work/page"
    cat "$work/page" >"$2"
}

# README's speeds in llama.cpp, prompts included: hours on an idle machine.
readme() {
    env "${given[@]}" \
        bench/readme.sh ${pairs:-qwen qwen-q8_0 qwen-bf16 smollm2-bf16} >"$work/readme" || return
    cat "$work/readme"
    sed '/^$/q' "$work/readme" | sed '$d' >"$work/table"
    into readme README.md
}

# What three commands say of one pair; PAIRS are cells of verdicts.sh.
verdicts() { env "${given[@]}" bench/verdicts.sh $pairs; }

# The policies of bench/results/standing.md, on the prompts that calibration left out.
standing_rows() { # PROMPTS...
    list=full,sketch:128,static,evospec,dynaspec,static:2048,coral,centroid
    list=$list,microspec,static:2048+retrieve,static:512+window+successor:256
    list=$list,microspec-paper,evospec-paper,dynaspec-paper,coral-paper
    rows --policy "$list" --topk 1 --num-steps 3 --max-tokens 128 --prompts "$@"
}
left_out=(data/prompts/*.jsonl --every 5)
calibrated() {
    no_bundle=1 pair sample
    bundle=$build/sample/model.specb
    [ -e "$bundle" ] || make -s calibrate >/dev/null
}
standing() {
    calibrated
    standing_rows "${left_out[@]}" | standing_table >"$work/table"
    cat "$work/table"
    into standing bench/results/standing.md
}
standing_table() {
    awk -F '\t' '
        BEGIN {
            print "| policy | accept length | 95% | rows of the head " \
                "| x plain | x full vocabulary |"
            print "|---|--:|--:|--:|--:|--:|"
        }
        function thousands(n) {
            n = sprintf("%.0f", n)
            return length(n) > 3 ? substr(n, 1, length(n) - 3) "," substr(n, length(n) - 2) : n
        }
        $2 == "all" && $1 != "plain" {
            printf "| `%s` | %.2f | %.2f-%.2f | %s | %.2f | %.2f |\n",
                $1, $3, $4, $5, thousands($7), $10, $11
        }
        $2 == "all" && $1 == "plain" { loops = $17 }
        END {
            printf "\n%.0f%% of these tokens repeat a loop of at most 64 tokens. ", 100 * loops
            print "Any drafter predicts such tokens, so all accept lengths here are too high."
        }'
}

# Accept lengths on those prompts, and on the few that the target answers without a loop.
standing-loops() {
    calibrated
    "$build/bin/specrt-eval" generate -q --ids --target "$target" --max-tokens 128 \
        --prompts "${left_out[@]}" -o "$work/answers.jsonl"
    grep '"n_loop":0}' "$work/answers.jsonl" >"$work/steady.jsonl"
    echo "prompts: $(wc -l <"$work/answers.jsonl")"
    echo "prompts that the target answers without a loop: $(wc -l <"$work/steady.jsonl")"
    sed 's/.*"n_tokens":\([0-9]*\).*/\1/' "$work/steady.jsonl" |
        awk '{ n += $1 } END { print "their tokens: " n }'
    standing_rows "${left_out[@]}" >"$work/all"
    standing_rows "$work/steady.jsonl" >"$work/steady"
    printf '\n| policy | all prompts | 95%% | prompts without loops | 95%% |\n'
    echo "|---|--:|--:|--:|--:|"
    awk -F '\t' '
        $2 != "all" || $1 == "plain" { next }
        FNR == NR { all[$1] = sprintf("%.2f | %.2f-%.2f", $3, $4, $5); next }
        { printf "| `%s` | %s | %.2f | %.2f-%.2f |\n", $1, all[$1], $3, $4, $5 }' \
        "$work/all" "$work/steady"
}

# bundle_for DRAFT : $bundle with ranks and graph of the target's answers, and a sketch of the
# drafter's own states.
bundle_for() {
    draft=$1 bundle=$work/drafter/model.specb
    "$build/bin/specrt" prepare --for specrt --target "$target" --drafter "$draft" \
        --prompts data/prompts/*.jsonl --fill data/corpus/*/ --limit 20 --with graph,sketch \
        --policy none -o "$work/drafter" >"$work/log" 2>&1 ||
        { tail -n 5 "$work/log" >&2; return 1; }
}

# kept ARGUMENTS... : what policies keep of the accept length on prompts that chose nothing.
kept() {
    echo "| policy | accept length | 95% | of full | worst domain | | rows | bytes a pass |"
    echo "|---|--:|--:|--:|--:|---|--:|--:|"
    rows "$@" --max-tokens 64 --prompts "${left_out[@]}" | awk -F '\t' '
        $1 == "plain" { next }
        $2 == "all" {
            name[++n] = $1
            line[n] = sprintf("%.3f | %.2f-%.2f | %.1f%%", $3, $4, $5, 100 * $19)
            loops = $17
            cost[n] = sprintf("%.0f | %.0f", $7, $18)
            worst[n] = 9
            next
        }
        $19 < worst[n] { worst[n] = $19; where[n] = $2 }
        END {
            for (i = 1; i <= n; i++)
                printf "| `%s` | %s | %.1f%% | %s | %s |\n", name[i], line[i], 100 * worst[i],
                    where[i], cost[i]
            printf "\ntokens in loops: %.1f%%\n", 100 * loops
        }'
}

# An MTP module and the EAGLE-2 head, whose text it read: chains of 4 drafts.
mtp() {
    no_bundle=1 pair sample
    for draft in data/sample/mtp.safetensors data/sample/draft.safetensors; do
        bundle_for $draft || return
        printf '\n%s, prompts that chose nothing\n\n' "$draft"
        kept --policy full,static:2048,microspec,sketch:128,hybrid,static:512+window+successor:256 \
            --topk 1 --num-steps 4
    done
}

# A block drafter of seven positions, by how its heads are used.
dspark() {
    no_bundle=1 pair sample
    bundle_for data/sample/block || return
    sum=static:512+window+successor:256
    few=full,static:1024,hybrid some=full,$sum,sketch:128,hybrid
    all=full,static:1024,window+successor:256,$sum,sketch:128,hybrid
    while read -r list way; do
        printf '\n%s, %s, prompts that chose nothing\n\n' "$draft" "$way"
        kept --policy "$list" --num-steps 7 $way </dev/null
    done <<END
$all --topk 1
$some --topk 1 --by-position
$few --topk 1 --no-markov
$some --topk 4 --num-draft-tokens 32
$few --topk 1 --temperature 0.7 --sampled-drafts
END
}

# each_pair FUNCTION : it, with every pair of PAIRS that is at hand.
each_pair() {
    for which in ${pairs:-sample 128k}; do
        (
            pair $which
            echo "== $which"
            "$1"
        ) || [ $? = 77 ]
    done
}

plan() { each_pair plan_pair; }
plan_pair() {
    mapfile -t asked < <(tasks $(unseen $spec_bench humaneval))
    "$build/bin/specrt-eval" plan --target "$target" --draft "$draft" --bundle "$bundle" \
        --threads "$threads" --prompts "${asked[@]}" --limit "${limit:-2}" --check 6
}

compare() { each_pair compare_pair; }
# Accept length against bytes, on prompts that chose nothing (bench/held_out.py writes them).
frontier() { pairs=${pairs:-qwen} each_pair frontier_pair; }
frontier_pair() {
    [ -d "$build/held-out" ] || { say "no $build/held-out (bench/held_out.py)"; return 77; }
    "$python" bench/frontier.py "$build" $which-held "$target" "$draft" "$bundle" "$head" \
        "$build"/held-out/*.jsonl "${given[@]}"
}
# Text that the pair was trained on has a table of its own: no mean mixes the two.
compare_pair() {
    every="$spec_bench humaneval gsm8k legal medical function_calling"
    compare_tasks "$which" $(unseen $every)
    trained=$(seen $every)
    [ -n "$trained" ] || return 0
    echo "== $which, seen: the pair was trained on $(echo $trained)"
    compare_tasks "$which-seen" $trained
}
compare_tasks() {
    page=$build/compare-$1.html
    mapfile -t asked < <(tasks "${@:2}")
    list=static:2048,static,microspec,evospec,dynaspec,coral,centroid,sketch:128
    list=$list,microspec-paper,evospec-paper,dynaspec-paper,coral-paper,full@head=q4_0
    "$build/bin/specrt-eval" compare --target "$target" --draft "$draft" --bundle "$bundle" \
        --threads "$threads" --policy $list,static:512+window+successor:256 --topk 1 --num-steps 4 \
        --prompts "${asked[@]}" --limit "${limit:-3}" --max-tokens "${tokens:-40}" \
        --report "$page" -f
    echo "the page: $page"
}

# Policies on models that others trained; what was recorded of a pair is kept beside them.
published() { pairs=${pairs:-smollm2 qwen} each_pair published_pair; }
published_pair() {
    mapfile -t asked < <(tasks ${tasks:-$spec_bench humaneval})
    "$python" bench/published.py "$build" $which "$target" "$draft" "$bundle" "$head" "${asked[@]}" \
        "${given[@]}"
}

# How fast the harness decodes published pairs under policies: on an idle machine, THREADS=2.
speeds() { pairs=${pairs:-smollm2 qwen} each_pair speeds_pair; }
speeds_pair() {
    mapfile -t asked < <(tasks ${tasks:-$spec_bench humaneval})
    "$build/bin/specrt-eval" compare --target "$target" --draft "$draft" --bundle "$bundle" \
        --threads "$threads" --topk 1 --num-steps 3 --prompts "${asked[@]}" \
        --policy static:2048,static:32768,microspec,static:512+window+successor:256,sketch:128 \
        --limit "${limit:-1}" --max-tokens "${tokens:-64}"
}

replay() { each_pair replay_pair; }
replay_pair() { bench/replay.sh $which "${given[@]}"; }

# Rows, columns, signs, rows named, places refined, format: heads of Qwen2.5, Llama 3, 128k.
sketch() {
    for shape in "151936 896 96 256 9496 q8_0" "151936 896 96 256 9496 q4_0" \
        "151936 896 96 256 9496 iq4_nl" "128256 4096 96 256 8016 f16" \
        "128256 256 96 128 8016 f16"; do
        # shellcheck disable=SC2086
        "$build/bench/bench_sketch" $shape
    done
}

# Published models that are at hand.
decode() {
    missing=$("$python" -c 'import gguf, llama_cpp' 2>&1 | tail -n 1)
    published=()
    for name in smollm2 qwen-0.5b gemma-270m qwen-1.5b; do
        [ ! -e "$build/models/$name.gguf" ] || published+=("$build/models/$name.gguf")
    done
    if [ -n "$missing" ] || [ ${#published[@]} = 0 ]; then
        say "${missing:-no $build/models: make models} (pip install llama-cpp-python gguf)"
        return 77
    fi
    "$python" bench/peers_decode.py "$build" "${published[@]}"
}

peers() {
    missing=$("$python" -c 'import faiss, hnswlib, tiktoken, tokenizers' 2>&1 | tail -n 1)
    if [ -n "$missing" ]; then
        say "$missing (pip install faiss-cpu hnswlib tiktoken tokenizers)"
        return 77
    fi
    echo "== OpenBLAS beside our products"
    "$build/bench/bench_head"
    echo "== tiktoken and tokenizers"
    ranks=$data/tokenizers/llama3/tokenizer.model
    if [ -e "$ranks" ]; then
        "$python" -c 'import json, sys
for path in sys.argv[1:]:
    for record in json.load(open(path)): print(record["output"])
' "$data"/generations/llama3/Meta-Llama-3*.json >"$work/answers.md"
        "$python" bench/peers_tokenizer.py "$build" "$ranks" data/tokenizer.json "$work/answers.md"
    fi
    echo "== faiss: k-means"
    "$python" bench/peers_kmeans.py "$build" --rows 32768 --cols 256 --threads 1
    echo "== hnswlib and faiss: search"
    "$python" bench/peers_hnsw.py "$build" 16384 256
    echo "== lists by FR-Spec's and vLLM's rules"
    "$python" bench/peers_lists.py "$build"
}

run() {
    case $1 in
    standing | standing-loops) keep standing "$1" "$1" ;;
    plan | replay | verdicts) keep plan "$1" "$1" ;;
    published | speeds) keep published "$1" "$1" ;;
    frontier) keep held-out "$1" "$1" ;;
    dspark) keep block "$1" "$1" ;;
    decode) keep engine "$1" "$1" ;;
    peers) keep parts "$1" "$1" ;;
    sketch | readme | mtp | compare) keep "$1" "$1" "$1" ;;
    size) keep size size bench/size.sh ;;
    csra) keep repro-sample csra "$python" bench/csra.py ;;
    *)
        if [ -e "bench/bench_$1.c" ]; then
            keep parts "$1" "$build/bench/bench_$1"
        else
            for which in ${pairs:-sample 128k}; do
                keep "repro-$which" "$1" bench/reproduce.sh "$1" $which "${given[@]}"
            done
        fi
        ;;
    esac
}

reproductions=$(bench/reproduce.sh --list | awk 'NR > 1 && $2 != "-" { print $1 }')
programs=$(for f in bench/bench_*.c; do f=${f#bench/bench_}; echo "${f%.c}"; done)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
set -- "${words[@]}"
[ $# -gt 0 ] ||
    set -- $programs standing standing-loops plan compare published replay $reproductions \
        decode peers size
for one; do run "$one"; done
exit $failed
