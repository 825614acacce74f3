#!/usr/bin/env bash
# reproduce.sh NAME [PAIR] [SETTING=VALUE...] : one table or figure of the papers, on one of our
# pairs (sample; others of bench/pair.sh). reproduce.sh --list : every table and figure of
# the papers, a line each. Larger LIMIT and TOKENS take longer and narrow the intervals. ALIGN
# replaces the learners of EvoSpec's Figs. 2 and 3, TASKS the prompts of its Fig. 2.
#
# What differs from the papers in all of them: the models are small, the machine is a CPU. There
# each node of a tree costs the target a third of a pass. So accept lengths are those of the
# papers' trees, and times those of chains. Methods run by the papers' rules, as the presets
# NAME-paper do. A vocabulary of less than 100,000 tokens has lists of the papers' shares of
# their vocabularies, since the published sizes would be all of it.
. "$(dirname "$0")/settings.bash"
name=${words[0]:-} pair=${words[1]:-sample}
# What FR-Spec, DynaSpec and MicroSpec ask, in the order of their tables.
papers_tasks="translation mt_bench rag math_reasoning qa summarization humaneval"
chain="--topk 1 --num-steps 4" tree="--topk 10 --num-steps 6 --num-draft-tokens 60"

# item NAME "PAPER, ITEM" MINUTES "what differs here, and why" : stands above the function that
# NAME names, with _ for -. Minutes are estimates for the sample pair with the default settings, on
# an idle core. lacks NAME "PAPER, ITEM" "what" : one that cannot be run here.
items=()
item() { items+=("$1"$'\t'"$3"$'\t'"$2"$'\t'"$4"); }
lacks() { item "$1" "$2" - "lacks $3"; }
for file in "$(dirname "$0")"/reproduce/*.bash; do . "$file"; done
list() {
    local head=$'bench/reproduce.sh\tmin\tpaper, item\twhat differs here, and why'
    printf '%s\n' "$head" "${items[@]}" |
        awk -F '\t' '{ printf "%-20s %3s  %-21s %s\n", $1, $2, $3, $4 }'
}

[ "$name" != --list ] || { list; exit; }
for line in "${items[@]}"; do
    IFS=$'\t' read -r one minutes paper_item differs <<<"$line"
    [ "$one" != "$name" ] || break
done
if [ "$one" != "$name" ]; then
    say "bench/reproduce.sh: expected NAME [PAIR], found '${words[*]}'; --list has the names"
    exit 2
fi
[ "$minutes" != - ] || { say "skipped: $paper_item $differs"; exit 77; }
. "$(dirname "$0")/pair.sh"
. "$(dirname "$0")/tables.sh"

# share ROWS OF : as many rows, or of a small vocabulary as many as ROWS of OF.
share() {
    awk -v v="$n_vocab" -v rows="$1" -v of="$2" \
        'BEGIN { printf "%d", v < 100000 ? v * rows / of : rows }'
}

heading() { # WHAT
    limit=${limit:-2} tokens=${tokens:-32}
    echo "$paper_item: $1"
    echo "pair $pair, $threads thread(s), $limit prompts a task, $tokens tokens an answer"
    echo "differs: $differs"
    echo
}
# files TASK... : their prompts are asked; a word on those that the pair was trained on.
files() {
    mapfile -t asked < <(tasks "$@")
    echo "prompts: $(for file in "${asked[@]}"; do basename "$file" .jsonl; done | xargs)"
    echo
    trained=$(echo $(seen "$@"))
    [ -n "$trained" ] || return 0
    echo "seen: the pair was trained on $trained; means over all prompts are of seen text, in part"
    echo "or whole"
    echo
}
# ask FLAGS... : rows of a comparison; its page with plots is $pages.html, or of several
# $pages-$part.html.
ask() {
    rows --prompts "${asked[@]}" --limit "$limit" --max-tokens "$tokens" \
        --report "$pages${part:+-$part}.html" -f "$@"
}
# ask_both FLAGS... : rows with the accept lengths, coverage and sizes of the papers' trees, and
# the times of chains.
ask_both() {
    part=trees
    ask $tree "$@" >"$work/trees"
    part=chains
    ask $chain "$@" >"$work/chains"
    part=
    awk -F '\t' -v OFS='\t' '
        BEGIN { n = split("3 4 5 6 7 19 24 25", of_trees, " ") }
        FNR == NR { for (i = 1; i <= n; i++) figure[$1, $2, i] = $of_trees[i]; next }
        ($1, $2, 1) in figure { for (i = 1; i <= n; i++) $of_trees[i] = figure[$1, $2, i] }
        { print }' "$work/trees" "$work/chains"
}
# note : more of what differs.
note() { echo && cat; }

# Drafters learn with any list; VocabTrim's are made here.
case $name in evospec-fig[25] | evospec-table4 | vocabtrim-*) no_bundle=1 ;; esac
pair "$pair"
pages=$build/repro-$name-$pair part=
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${name//-/_}"
echo "Plots: $pages*.html"
