# shellcheck shell=bash disable=SC2154
# evospec.bash : EvoSpec, second version (arXiv 2605.27390). Lists of the paper's size, and a cache
# whose misses ask an index of the paper's kind; its whole method learns by lora-paper, too.

# evo N B : evospec-paper with another list and another cache.
evo() { echo "static:$1+retrieve:$2@sem=hnsw_h"; }

# published_index : the paper's in place of the bundle's, with 32 links and augmented norms.
published_index() {
    cp "$bundle" "$work/evospec.specb"
    bundle=$work/evospec.specb
    "$build/bin/hnsw-build" -q --model "$target" --metric augmented-l2 --m 32 --allow-below -f \
        -o "$bundle"
}

# learn FLAGS... : the JSON of a comparison with drafters that learn beside the one that stays, one
# domain after the other.
learn() {
    "$build/bin/specrt-eval" compare --target "$target" --draft "$draft" --threads "$threads" \
        $chain --policy "${learners:-full}" --prompts "${asked[@]}" --limit "$limit" \
        --max-tokens "$tokens" --context 1024 --stream --json "$@"
}

# independent : from now on the pair's independent drafter, in chains of the paper's horizon.
independent() {
    chain="--topk 1 --num-steps 6"
    [ -z "$small" ] || draft=$small
    case $draft in
    *.gguf) ;;
    *) echo "(this pair has no independent drafter: its EAGLE head instead)"; echo ;;
    esac
}

item evospec-table1 "EvoSpec, Table 1" 3 "EAGLE-2 instead of EAGLE-3; small lists are ours"
evospec_table1() {
    heading "accept length over Spec-Bench with 256 to 1,024 retrieved tokens"
    files $spec_bench
    published_index
    base=$(share 32000 151936) list=
    for size in $base 512; do
        list=$list,static:$size
        for dynamic in 256 512 1024; do list=$list,$(evo "$size" $dynamic); done
    done
    beside full 3.78 "static:$base" 3.54 "$(evo "$base" 256)" 3.60 "$(evo "$base" 512)" 3.64 \
        "$(evo "$base" 1024)" 3.65
    ask $tree --policy "${list#,}" >"$work/rows"
    table <"$work/rows"
    echo
    by_task 3 <"$work/rows"
}

item evospec-table2 "EvoSpec, Table 2" 2 \
    "EAGLE-2 instead of EAGLE-3; its CORAL is another paper's method than ours, and is left out"
evospec_table2() {
    heading "speed in special domains"
    files $special
    published_index
    base=static:$(share 32000 151936) whole=$(evo "$(share 32000 151936)" 256)
    ask $chain --policy "$base,$whole" --align lora-paper >"$work/rows"
    beside full "152.67 tokens/s" "$base" "152.69, x full 1.00" \
        "$whole (lora-paper)" "172.65, x full 1.13"
    table <"$work/rows"
    echo
    echo "tokens/s"
    by_task_beside full "136.95 160.66 160.41" "$base" "137.06 160.46 160.56" \
        "$whole (lora-paper)" "154.39 181.32 182.24"
    by_task 8 %8.1f <"$work/rows"
}

item evospec-table3 "EvoSpec, Table 3" 1 \
    "8B drafting for 70B on five GPUs cannot be had; Table 8 has what learning adds"
evospec_table3() {
    independent
    heading "an independent drafter for a larger target; Llama-3.1-8B for 70B"
    files $special
    published_index
    base=$(share 32000 128256)
    beside full "37.32 tokens/s, 3.08" "static:$base" "37.94, 2.96" \
        "$(evo "$base" 256)" "40.73, 3.04" "$(evo "$base" 512)" "40.39, 3.06"
    ask $chain --policy "static:$base,$(evo "$base" 256),$(evo "$base" 512)" | table
}

item evospec-table4 "EvoSpec, Table 4" 1 "a CPU's memory; one process for target and drafter"
evospec_table4() {
    limit=${limit:-10}
    heading "memory of LoRA on Wq and Wv beside all parameters (OSD)"
    files mt_bench
    learn --align lora-paper,lora,osd >"$work/run"
    python3 bench/align.py memory <"$work/run"
    echo
    echo "greatest resident memory of the process, MiB, target and text included"
    for kind in off lora-paper osd; do
        printf '%-11s' $kind
        python3 bench/align.py peak "$build/bin/specrt-eval" compare --target "$target" \
            --draft "$draft" --threads "$threads" $chain --policy full --align $kind \
            --prompts "${asked[@]}" --limit "$limit" --max-tokens "$tokens" \
            --context 1024 --json -q
    done
    note <<'END'
The paper: 9,013 MiB against OSD's 12,325, 26.9% less, whole processes on a GPU.
END
}

lacks evospec-table5 "EvoSpec, Table 5" "figures: settings, which the presets have"

item evospec-table6 "EvoSpec, Table 6" 3 \
    "the paper does not say of what its recall is a share: ours is of all best tokens"
evospec_table6() {
    heading "mass and best tokens of the target in the list"
    files $special
    published_index
    base=$(share 32000 151936)
    whole=$(evo "$base" 256)
    beside "static:$base" "mass 91.8" "$whole@graph=off" "94.6, best 90.5 84.9 81.6" \
        "$whole" "96.0, best 92.8 87.6 84.7" "$whole (lora-paper)" "96.3, best 93.1 88.0 85.2"
    list=
    for size in $base 512; do
        list=$list,static:$size,$(evo "$size" 256)@graph=off,$(evo "$size" 256)
    done
    {
        ask $tree --lists --policy "${list#,}"
        part=aligned
        ask $tree --lists --policy "$whole,$(evo 512 256)" --align lora-paper | grep '(lora'
    } | rows_of '
        BEGIN {
            heading("policy", sprintf(" %6s %7s %7s %7s %7s",
                "accept", "mass", "best 10", "50", "100"))
        }
        $2 == "all" && $1 != "plain" {
            printf "%-45s %6.2f %6.1f%% %6.1f%% %6.1f%% %6.1f%%%s\n",
                $1, $3, 100 * $13, 100 * $14, 100 * $15, 100 * $16, paper($1)
        }'
}

item evospec-table7 "EvoSpec, Table 7" 20 \
    "107 conversations of ShareGPT for LMSYS's 144, short questions; needs make models"
evospec_table7() {
    tokens=${tokens:-16}
    heading "over 50 turns: what is learnt is forgotten, or kept"
    [ -e "$build/models/sharegpt.json" ] || { say "skipped: make models NAME=sharegpt"; exit 77; }
    published_index
    python3 bench/conversations.py "$build/models/sharegpt.json" >"$work/long.jsonl"
    asked=("$work/long.jsonl")
    base=$(share 32000 151936)
    list=static:$base,$(evo "$base" 256),static:512,$(evo 512 256)
    beside "static:$base" "3.41 (deviation 0.05), FR-Spec" \
        "$(evo "$base" 256) (lora-paper)" "3.67 (0.04), kept"
    for part in off conversation; do
        echo "memory: $part"
        ask $chain --policy $list --align lora-paper --context 2048 --memory $part | table
        echo
    done
    cat <<'END'
Questions are cut to 60 characters. A conversation ends where a context of 2,048 tokens does not
hold the next turn. Intervals are over conversations.
END
}

# evospec_bases : every base with every cache, beside the figures that `beside` was given.
evospec_bases() {
    independent
    files $special
    published_index
    whole=static:$(share 32000 "$1") learner=$(evo "$(share 32000 "$1")" 256) list=
    for base in 8000 16000 32000; do
        for dynamic in 256 512 1024; do list=$list,$(evo "$(share $base "$1")" $dynamic); done
    done
    shift
    beside "$whole" "x full $1"
    for policy in ${list//,/ }; do
        shift
        beside "$policy" "$1"
    done
    ask $chain --policy "$whole$list" >"$work/rows"
    part=aligned # the paper's EvoSpec learns, too
    ask $chain --policy "$learner" --align lora-paper | grep '(lora' >>"$work/rows"
    part=
    table <"$work/rows"
    echo
    echo "x full by task"
    by_task 11 <"$work/rows"
}

item evospec-table8 "EvoSpec, Table 8" 2 \
    "0.5B for 1.5B is the nearest (pair qwen, an hour); it learns in one row"
evospec_table8() {
    heading "an independent drafter: base by budget; Qwen3-1.7B for 4B"
    evospec_bases 151936 1.02 0.94 0.98 0.97 1.05 1.04 1.04 1.07 1.05 1.06
}

item evospec-table9 "EvoSpec, Table 9" 2 "as Table 8"
evospec_table9() {
    heading "an independent drafter: base by budget; Llama-3.2-1B for 3B"
    evospec_bases 128256 1.03 0.93 0.95 0.97 1.05 1.08 1.11 1.16 1.16 1.16
}

item evospec-table10 "EvoSpec, Table 10" 5 "as Table 2; accept lengths of trees alone, three seeds"
evospec_table10() {
    heading "temperatures 0.7 and 1.0"
    files $special
    published_index
    base=static:$(share 32000 151936) whole=$(evo "$(share 32000 151936)" 256)
    for t in "0.7 2.91 3.06" "1.0 2.49 2.63"; do
        set -- $t
        beside "$base" "$2" "$whole (lora-paper)" "$3"
        part=$1
        echo "temperature $1"
        for seed in 1 2 3; do
            ask $tree --temperature "$1" --seed $seed --policy "$base,$whole" --align lora-paper
        done | over_seeds
        echo
    done
    part=
}

lacks evospec-fig1 "EvoSpec, Fig. 1" "figures: a drawing"

item evospec-fig2 "EvoSpec, Fig. 2" 5 \
    "MT-Bench and translation for code and law, which the sample pair has seen (TASKS)"
evospec_fig2() {
    limit=${limit:-40}
    heading "accept length over a stream of requests that changes its domain once"
    files ${tasks:-mt_bench translation}
    learn --align "${align:-lora-paper,lora,lora@rate=1e-3,osd}" >"$work/run"
    python3 bench/align.py stream 20 -o "$pages.svg" <"$work/run"
    note <<'END'
The paper: 100 requests of HumanEval, then law and medicine; the drafter that learns overtakes the
one that stays within some 20 requests of the change. Steps run in line, with the weights of the
last one.
END
}

item evospec-fig3 "EvoSpec, Fig. 3" 4 \
    "accept length of one stream, not tokens/s; a list so short that it loses something"
evospec_fig3() {
    limit=${limit:-8}
    heading "a list, retrieval, alignment and both, over nine domains"
    files $spec_bench $special
    published_index
    learners=static:2048,$(evo 2048 256)
    learn --bundle "$bundle" --align "${align:-lora-paper,lora,osd}" |
        python3 bench/align.py domains
    note <<'END'
The paper plots tokens/s: retrieval gains most in code, law and medicine, alignment in general
text (as much as OSD), and both together most everywhere.
END
}

item evospec-fig4 "EvoSpec, Fig. 4" 1 "one CPU: what the paper runs beside a GPU runs in line here"
evospec_fig4() {
    heading "time of a retrieval beside the drafter's"
    files $special
    published_index
    whole=$(evo "$(share 32000 151936)" 256)
    ask $chain --policy "$whole,$(evo 512 256)" | rows_of '
        BEGIN {
            heading("policy", sprintf(" %12s %13s %9s %9s", "events a 100", "retrieval ms",
                "layers ms", "head ms"))
        }
        $2 == "all" && $22 > 0 {
            printf "%-45s %12.1f %13.3f %9.3f %9.3f\n", $1, 100 * $22, $23, $21, $12
        }'
    note <<'END'
ms a cycle with an event, of layers and head a cycle; events of 100 cycles. The paper, Qwen3-4B on
an RTX 4090: retrieval 2.07 ms beside 3.754 of the layers and 0.561 of the head, so it is hidden.
END
}

item evospec-fig5 "EvoSpec, Fig. 5" 3 "divergence of drafted positions, beside the weighted loss"
evospec_fig5() {
    limit=${limit:-40} chain="--topk 1 --num-steps 6"
    heading "the curriculum's beta, over a horizon of six"
    files mt_bench
    list=lora-paper@beta=0,lora-paper,lora-paper@beta=0.7
    for beta in 0 0.1 0.3 0.5 0.7; do list=$list,lora@beta=$beta; done
    learn --align "$list" >"$work/run"
    python3 bench/align.py beta <"$work/run"
    note <<'END'
The paper plots the training loss: 0 does not converge, 0.3 is lowest, 0.5 and 0.7 are higher. A
weighted loss is smaller for a larger beta whatever is learnt, so the divergence of all positions
that were drafted stands beside it.
END
}

item evospec-fig6 "EvoSpec, Fig. 6" 1 "one case of the paper's; ours are counted, and one is shown"
evospec_fig6() {
    limit=${limit:-16} tokens=${tokens:-64}
    heading "what an event brings, and what is drafted of it later"
    files $special
    published_index
    "$build/bin/specrt-bundle" export "$bundle" --format vllm-json --size 512 -f \
        -o "$work/list.json"
    "$build/bin/specrt-eval" record -q --target "$target" --draft "$draft" --bundle "$bundle" \
        $chain --policy "$(evo 512 256)" --prompts "${asked[@]}" --limit "$limit" \
        --max-tokens "$tokens" -o "$work/trace"
    "$build/tests/trace" --tops "$work/trace" | python3 bench/event.py "$work/list.json" "$target"
    note <<'END'
The paper's case: "nomograms" is missed, and brings "biochemical", "recurrence" and "PCS"; the
drafter then drafts "biochemical recurrence".
END
}
