# shellcheck shell=bash disable=SC2154
# dynaspec.bash : DynaSpec, by a summary of its first version, which does not number its tables.

# harmonic MEAN : the rows of six levels by the published schedule, of that mean.
harmonic() {
    awk -v n="$1" 'BEGIN {
        first = n * 6 / (2 + 1 / 6 + 1 / 8 + 1 / 10 + 1 / 12)
        for (t = 0; t < 6; t++)
            printf "%s%d", t ? "/" : "", t < 2 ? first : first / (2 * (t + 1))
    }'
}

item dynaspec-results "DynaSpec, results" 3 \
    "a summary of the paper; a router of few clusters, trained on few answers"
dynaspec_results() {
    heading "accept length by task: whole vocabulary, list, router"
    files $papers_tasks
    frspec=static:$(share 32768 128256)
    ask $tree --policy "$frspec,dynaspec-paper" >"$work/rows"
    by_task_beside full "3.66 4.11 4.03 4.31 3.45 3.68 4.77" \
        "$frspec" "3.38 3.87 3.85 4.16 3.32 3.51 4.11" \
        dynaspec-paper "3.51 4.05 3.91 4.21 3.40 3.51 4.71"
    by_task 3 <"$work/rows"
    echo
    beside full 4.00 "$frspec" "3.74 at 32k" dynaspec-paper "3.90 at 27.3k"
    table <"$work/rows"
}

item dynaspec-positions "DynaSpec, DynaSpec-PA" 4 \
    "the summary has no figures but the order: PA is ahead on all tasks with fewer rows"
dynaspec_positions() {
    heading "flat and position-aware budgets of as many clusters on average"
    files $papers_tasks
    list=
    for n in 10 25; do
        list=$list,cluster:$n%@schedule=flat@beam=per_row@always=0
        list=$list,cluster:$((n * 100 / 41))%@schedule=harmonic@beam=per_row@always=0
    done
    ask $tree --policy "${list#,}" >"$work/rows"
    table <"$work/rows"
    echo
    by_task 3 <"$work/rows"
    note <<'END'
A flat budget of N% of the clusters is printed before the position-aware one whose mean over six
levels is N%; `rows` are those that were scored.
END
}

item dynaspec-lists "DynaSpec, FR-Spec-PA" 4 "a summary of the paper"
dynaspec_lists() {
    heading "flat and position-aware lists of as many rows on average"
    files $papers_tasks
    whole=$(share 32768 128256) list=
    for n in 1024 2048 "$whole"; do list=$list,static:$n,static:$(harmonic "$n"); done
    beside "static:$whole" "3.74 at 32,768" "static:$(harmonic "$whole")" "3.81 at 31,739"
    ask $tree --policy "${list#,}" >"$work/rows"
    table <"$work/rows"
    echo
    by_task 3 <"$work/rows"
}

lacks dynaspec-others "DynaSpec, others" "the paper's text, of which we have a summary"
