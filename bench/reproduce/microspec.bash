# shellcheck shell=bash disable=SC2154
# microspec.bash : MicroSpec, first version (arXiv 2605.26444).
published=@mode=stream@kpre=3@positions=last@emitted=off@min=0 # a window by its rules

# microspec_methods : the methods that its tables compare, each as published, to $work/rows.
microspec_methods() {
    files $papers_tasks
    frspec=static:$(share 32768 128256)
    ask_both --policy "$frspec,dynaspec-paper,coral-paper,microspec-paper" >"$work/rows"
}

item microspec-table1 "MicroSpec, Table 1" 3 "small models; CORAL's drafter is not trained by CSRA"
microspec_table1() {
    heading "rows, speed and accept length of the methods"
    microspec_methods
    beside full "337 tokens/s, 3.80" "$frspec" "370, 3.62, FR-Spec" dynaspec-paper "378, 3.78" \
        coral-paper "360, 3.92" microspec-paper "393, 3.59"
    table <"$work/rows"
}

item microspec-table2 "MicroSpec, Table 2" 3 "as Table 1; one pair a run instead of two models"
microspec_table2() {
    heading "end-to-end speed by task, and accept length; Llama-3-8B-Instruct"
    microspec_methods
    echo "tokens/s, the prompt's time included"
    by_task_beside plain "175.7 178.5 165.0 178.2 174.2 174.3 162.3" \
        full "311.2 380.2 300.2 403.2 316.4 315.0 332.0" \
        coral-paper "329.9 403.0 318.2 427.4 335.4 333.9 371.8" \
        "$frspec" "338.4 419.3 330.2 456.5 351.0 356.0 336.3" \
        dynaspec-paper "344.2 429.7 333.0 453.2 350.2 353.3 382.9" \
        microspec-paper "349.5 440.2 352.1 480.0 361.3 385.1 381.1"
    by_task 9 %8.1f <"$work/rows"
    echo
    beside plain "172.6 tokens/s, 1.00" full "336.9, 3.80" coral-paper "359.9, 3.92" \
        "$frspec" "369.7, 3.62" dynaspec-paper "378.1, 3.78" microspec-paper "392.7, 3.59"
    table <"$work/rows"
}

item microspec-table3 "MicroSpec, Table 3" 2 "a CPU copies rows in line; heads of 256 columns"
microspec_table3() {
    heading "tokens of the prompt, of the answer, or both; packed or indexed"
    files $spec_bench
    window=window:3072$published
    indexed=$window@rows=indexed
    beside $window@only=ctx "313 tokens/s" $window@only=ext 351 $window 395 $indexed 364
    ask_both --policy $window@only=ctx,$window@only=ext,$window,$indexed | table
    note <<'END'
Reading 'Ext. only' literally, the last cycle's candidates alone, leaves a few dozen tokens:
docs/methods/window.md, M6.
END
}

item microspec-table4 "MicroSpec, Table 4" 3 \
    "Qwen2-7B and its head are too large; the pair qwen has as many tokens, and takes hours"
microspec_table4() {
    heading "accept length by task with 152k tokens; Qwen-2-7B-Instruct"
    files $papers_tasks
    frspec=static:$(share 32768 151936)
    ask $tree --policy "$frspec,dynaspec-paper,coral-paper,microspec-paper" >"$work/rows"
    by_task_beside full "3.03 3.86 3.70 4.31 3.06 3.43 4.19" \
        "$frspec" "2.94 3.60 3.58 4.14 3.00 3.31 3.52" \
        dynaspec-paper "2.86 3.72 3.32 4.18 2.97 3.24 3.96" \
        microspec-paper "2.69 3.70 3.64 4.14 2.86 3.37 3.98"
    by_task 3 <"$work/rows"
    echo
    beside full 3.65 "$frspec" 3.44 dynaspec-paper 3.46 coral-paper 3.62 microspec-paper 3.48
    table <"$work/rows"
}

item microspec-fig1 "MicroSpec, Fig. 1" 4 "(a) over all tasks instead of conversation alone"
microspec_fig1() {
    heading "oracle against actual speed over static sizes; coverage by task"
    files $papers_tasks
    list=
    for size in 512 1024 2048 4096 8192 16384 32768; do
        [ "$size" -ge "$n_vocab" ] || list=$list,static:$size
    done
    beside static:2048 "the oracle gains down to here" static:16384 "diminishing returns below" \
        static:32768 "best of FR-Spec" microspec-paper "covers 73 to 97% by task"
    ask_both --policy "${list#,},microspec-paper" >"$work/rows"
    table <"$work/rows"
    echo
    echo "(a) x plain: what the list gives, beside an oracle that loses nothing in the same cycles"
    awk -F '\t' '
        $2 != "all" || $1 == "plain" { next }
        $1 == "full" { full = $3 }
        {
            printf "%-45s oracle %5.2f   actual %5.2f   accept length lost %3.0f%%\n",
                $1, $10 * full / $3, $10, 100 * (1 - $3 / full)
        }' "$work/chains"
    echo
    echo "(b) covered, %, by task"
    by_task 6 %8.1f 100 <"$work/rows"
}

lacks microspec-fig2 "MicroSpec, Fig. 2" "figures: a drawing"

item microspec-fig3 "MicroSpec, Fig. 3" 3 "as Table 1; the paper prints no figures beside Table 2's"
microspec_fig3() {
    heading "end-to-end speed, decoding speed and accept length by task; Llama-3-8B-Instruct"
    microspec_methods
    echo "(a) tokens/s, the prompt's time included"
    by_task 9 %8.1f <"$work/rows"
    echo
    echo "(b) tokens/s of decoding"
    by_task 8 %8.1f <"$work/rows"
    echo
    echo "(c) accept length"
    by_task 3 <"$work/rows"
}

item microspec-fig4 "MicroSpec, Fig. 4" 2 "trees, since drafting does not verify; a CPU's times"
microspec_fig4() {
    heading "time of drafting by task"
    files $papers_tasks
    frspec=static:$(share 32768 128256)
    ask $tree --policy "$frspec,microspec-paper" >"$work/rows"
    echo "ms a cycle: the drafter's layer, its head, and choosing rows"
    by_task 20 %8.2f <"$work/rows"
    awk -F '\t' -v frspec="$frspec" '
        $2 == "all" { all[$1] = $20 }
        END {
            own = all["microspec-paper"]
            printf "\nmicrospec-paper takes %.1f%% less than full (the paper: 51.6%%), ",
                100 * (1 - own / all["full"])
            printf "%.1f%% less than %s (20.3%%)\n", 100 * (1 - own / all[frspec]), frspec
        }' "$work/rows"
}

item microspec-fig5 "MicroSpec, Fig. 5" 3 "answers are shorter, and W bounds only long streams"
microspec_fig5() {
    heading "the window from 1k to 8k"
    files $spec_bench
    list=
    for size in 1024 2048 3072 4096 6144 8192; do list=$list,window:$size$published; done
    beside window:1024$published "accept length lower" \
        window:2048$published "fastest, accept length levels off" \
        window:3072$published fastest window:4096$published fastest
    ask_both --policy "${list#,}" | table
}
