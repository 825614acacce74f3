# shellcheck shell=bash disable=SC2154
# frspec.bash : FR-Spec (arXiv 2502.14856), by third-party notes of its Tables 1 to 4; the text is
# not at hand.

frspec_sizes() { # to $list
    list=
    for size in 65536 32768 16384 8192; do list=$list,static:$(share $size 128256); done
    list=${list#,}
}

item frspec-table1 "FR-Spec, Table 1" 3 "general text of ours for SlimPajama"
frspec_table1() {
    heading "accept length by task and size of the list; Llama-3-8B-Instruct"
    files $papers_tasks
    frspec_sizes
    ask $tree --policy "$list" >"$work/rows"
    IFS=, read -r a b c d <<<"$list"
    by_task_beside full "3.66 4.12 4.05 4.29 3.49 3.68 3.92" \
        "$a" "3.59 4.07 3.98 4.26 3.42 3.65 3.62" "$b" "3.39 3.89 3.85 4.15 3.34 3.51 3.29" \
        "$c" "3.20 3.63 3.56 3.84 3.19 3.28 3.10" "$d" "2.98 3.33 3.25 3.52 2.97 2.98 2.86"
    by_task 3 <"$work/rows"
    echo
    beside full 3.89 "$a" "3.80, 97.7%" "$b" "3.63, 93.3%" "$c" "3.40, 87.4%" "$d" "3.13, 80.5%"
    table <"$work/rows"
}

item frspec-table2 "FR-Spec, Table 2" 1 "chains, on a CPU"
frspec_table2() {
    heading "decoding speed by size of the list"
    files $papers_tasks
    frspec_sizes
    IFS=, read -r a b c d <<<"$list"
    beside plain "89.11 tokens/s" full "180.99, 2.03x" "$a" 196.86 "$b" "201.87, 2.27x" \
        "$c" 196.69 "$d" 185.98
    ask $chain --policy "$list" | table
}

item frspec-table3 "FR-Spec, Table 3" 1 "chains, on a CPU; greedy drafts"
frspec_table3() {
    heading "decoding speed at temperature 1"
    files $papers_tasks
    frspec=static:$(share 32768 128256)
    beside plain "88.69 tokens/s" full "172.74, 1.95x" "$frspec" "195.17, 2.20x"
    ask $chain --temperature 1 --policy "$frspec" | table
}

lacks frspec-table4 "FR-Spec, Table 4" \
    "figures that can differ: scores of answers, and compare checks that no token does"
lacks frspec-others "FR-Spec, others" "the paper's text, which we do not have"
