# shellcheck shell=bash disable=SC2154
# vocabtrim.bash : VocabTrim (arXiv 2506.22694). BE, block efficiency, is the accept length; MBSU is
# computed from the BE that was decoded (docs/methods/vocabtrim.md), not from an estimate.
trim_tree="--topk 8 --num-steps 4 --num-draft-tokens 32" levels=4

# count NAME CORPUS... : its tokens, to $work/NAME.counts.
count() {
    "$build/bin/vocabtrim-calibrate" --tokenizer "$target" --holdout 0 --domain "$1" -q -f \
        --corpus "${@:2}" --counts-out "$work/$1.counts"
}

# count_answers NAME MODEL : of what it answers to the prompts of $to_answer.
to_answer=(--prompts data/prompts/*.jsonl --limit 16 --max-tokens 48)
count_answers() {
    "$build/bin/specrt-eval" generate -q -f --target "$2" "${to_answer[@]}" -o "$work/$1.jsonl"
    count "$1" "$work/$1.jsonl"
}

# count_guesses NAME : an EAGLE head cannot write without its target, so what it thought likeliest
# at each place of the target's answers. The head of the file is that of raw.counts.
count_guesses() {
    "$build/bin/specrt-eval" record -q -f --target "$target" --draft "$draft" --policy full \
        --topk 1 --num-steps 8 "${to_answer[@]}" -o "$work/trace"
    "$build/tests/trace" "$work/trace" | grep '^c' | sed 's/.*://' | tr ' ' '\n' | sort -n |
        uniq -c | awk -v name="$1" -v head="$work/raw.counts" -v OFS='\t' '
        BEGIN {
            while ((getline line <head) > 0 && line !~ /^#domain/) {
                print line
                if (split(line, part, "\t") && part[1] == "#tokenizer") n_normal = part[4]
            }
            print "#domain", "draft", 1, 0, 0, "0000000000000000", name
        }
        NF == 2 && $2 >= 0 && $2 < n_normal { print $2, $1; n++; sum += $1 + $2 }
        END { print "#end", n, sum }' >"$work/$1.counts"
}

# count_draft : the drafter's own words.
count_draft() {
    if [ "$draft" = "$small" ]; then count_answers draft "$draft"; else count_guesses draft; fi
}

# list_of raw|target|draft [SIZE] : the bundle with this list. Raw text follows where the counted
# answers end.
list_of() {
    bundle=$work/$1.specb
    merged=("$work/raw.counts")
    [ "$1" = raw ] || merged+=("$work/$1.counts" --weights "$1:100")
    "$build/bin/vocabtrim-calibrate" -q -f --merge "${merged[@]}" -o "$bundle"
}

# trimmed SIZE "FIGURES" ... : lists of SIZE, and of 512 tokens, of the words named before each of
# the paper's figures. The first figures are those of the whole head.
trimmed() {
    size=$1 whole=$2
    shift 2
    list=static:$size
    [ "$size" -le 512 ] || list=static:512,$list
    while [ $# -gt 0 ]; do
        part=$1
        list_of "$1"
        rm -f "$work/beside"
        beside full "$whole" "static:$size" "$2"
        echo "list of: $1"
        ask $trim_tree --policy "$list" | with_mbsu $levels
        echo
        shift 2
    done
    part=
}
# The same with the pair's independent drafter.
trimmed_independent() {
    if [ -z "$small" ]; then
        echo "(this pair has no independent drafter)"
        return
    fi
    echo "== independent drafter"
    draft=$small n_layer=$small_layer n_cols=$small_cols
    count_draft
    trimmed "$@"
}

item vocabtrim-table1 "VocabTrim, Table 1" 5 \
    "means over tasks; an EAGLE head's own words are its likeliest along the target's answers"
vocabtrim_table1() {
    heading "lists from raw text, the target's and the drafter's words"
    files $spec_bench $(unseen humaneval)
    count raw $(general_text)
    count_answers target "$target"
    count_draft
    size=$(share 32000 128256)
    echo "== EAGLE head; the paper: Llama-3.2-3B-Instruct, BE and MBSU, means of its nine tasks"
    trimmed "$size" "3.322, 1.560" raw "3.169, 1.795" target "3.235, 1.832" draft "3.203, 1.815"
    trimmed_independent "$size" "4.054, 2.914" raw "3.786, 2.982" target "3.955, 3.115" \
        draft "3.852, 3.004"
}

# calls_split : function-calling prompts: every fifth is asked, the others are what is counted.
calls_split() {
    mapfile -t asked < <(tasks function_calling)
    [ -e "${asked[0]}" ] && [ ${#asked[@]} = 1 ] ||
        { say "skipped: no prompts with functions (SPECRT_DATA)"; exit 77; }
    awk 'NR % 5 == 1' "${asked[0]}" >"$work/calls-asked.jsonl"
    awk 'NR % 5 != 1' "${asked[0]}" >"$work/calls.jsonl"
    cp "$work/calls.jsonl" "$work/calls.txt"
    asked=("$work/calls-asked.jsonl")
    to_answer=(--prompts "$work/calls.jsonl" --limit 16 --max-tokens 48)
}

item vocabtrim-table2 "VocabTrim, Table 2" 4 "MT-Bench for Dolly's creative writing, BFCL for xLAM"
vocabtrim_table2() {
    limit=${limit:-8}
    heading "open-ended text, and function calls with a list of their own"
    eagle=$draft eagle_layer=$n_layer eagle_cols=$n_cols
    for what in text calls; do
        draft=$eagle n_layer=$eagle_layer n_cols=$eagle_cols
        if [ $what = text ]; then
            files mt_bench
            count raw $(general_text)
            size=$(share 32000 128256)
            set -- "3.237, 1.520" raw "3.091, 1.751" target "3.193, 1.809" draft "3.173, 1.797"
            independent=("3.675, 2.642" raw "3.483, 2.744" target "3.629, 2.858"
                draft "3.589, 2.827")
        else
            calls_split
            echo "function calls: $(basename "${asked[0]}")"
            count raw "$work/calls.txt"
            size=$(share 5000 128256)
            set -- "2.937, 1.379" raw "2.397, 1.445" target "2.860, 1.725" draft "2.777, 1.674"
            independent=("2.364, 1.700" raw "2.075, 1.681" target "2.344, 1.900"
                draft "2.314, 1.875")
        fi
        count_answers target "$target"
        count_draft
        trimmed "$size" "$@"
        trimmed_independent "$size" "${independent[@]}"
    done
}

item vocabtrim-table3 "VocabTrim, Table 3" 3 \
    "a target larger than Table 1's is pair smollm2 (make models; 10 minutes)"
vocabtrim_table3() {
    heading "the same with a larger target; Llama-3.1-8B-Instruct, means of its nine tasks"
    files $spec_bench
    count raw $(general_text)
    count_answers target "$target"
    trimmed "$(share 32000 128256)" "3.153, 1.921" raw "2.999, 2.074" target "3.092, 2.137"
}

item vocabtrim-table4 "VocabTrim, Table 4" 4 "MT-Bench for Dolly"
vocabtrim_table4() {
    heading "tree depths 5, 6 and 7 with 60 nodes"
    files mt_bench
    count raw $(general_text)
    count_answers target "$target"
    list_of target
    list=static:512,static:$(share 32000 128256)
    for row in "5 3.551,1.318 3.504,1.631" "6 3.578,1.202 3.510,1.500" "7 3.567,1.094 3.510,1.387"
    do
        set -- $row
        levels=$(($1 + 1)) part=$1
        rm -f "$work/beside"
        beside full "${2/,/, }" "${list#*,}" "${3/,/, }"
        echo "depth $1: $levels levels"
        ask --topk 10 --num-steps $levels --num-draft-tokens 60 --policy "$list" |
            with_mbsu $levels
        echo
    done
    part=
}

lacks vocabtrim-table5 "VocabTrim, Table 5" "figures: the shape of a drafter"

item vocabtrim-fig1 "VocabTrim, Fig. 1" 1 "BFCL for xLAM; few answers, so shares instead of counts"
vocabtrim_fig1() {
    limit=${limit:-100}
    heading "how often the target writes which token in function calls"
    calls_split
    to_answer=(--prompts "$work/calls.jsonl" --limit "$limit" --max-tokens "$tokens")
    count_answers target "$target"
    grep -v '^#' "$work/target.counts" | sort -k2,2nr | awk -v n_vocab="$n_vocab" '
        { count[NR] = $2; all += $2 }
        END {
            for (i = 1; i <= NR; i++) {
                sum += count[i]
                for (p = 50; p <= 99; p += p < 90 ? 40 : 9)
                    if (!(p in reached) && sum >= all * p / 100) reached[p] = i
            }
            printf "%d tokens written; %d of %d tokens occur\n", all, NR, n_vocab
            printf "half of the text is %d tokens, 90%% %d, 99%% %d\n",
                reached[50], reached[90], reached[99]
        }'
    note <<'END'
The paper: 15 tokens more than 10,000 times each, 140 between 1,000 and 10,000 times, and more than
120,000 of 128,256 rarely or never.
END
}

lacks vocabtrim-fig2 "VocabTrim, Fig. 2" "figures: a drawing"

# vocabtrim_sizes POLICY FIGURES : from few rows to the whole head.
vocabtrim_sizes() {
    limit=${limit:-8}
    heading "BE and MBSU over sizes of the trimmed head"
    files mt_bench
    count raw $(general_text)
    count_answers target "$target"
    list_of target
    beside "$@"
    list=
    for size in $(printf '%d\n' 256 512 1024 2048 4096 8192 16384 32768 "${1#static:}" | sort -n)
    do
        [ "$size" -ge "$n_vocab" ] || list=$list,static:$size
    done
    ask $trim_tree --policy "${list#,}" | with_mbsu $levels
}

item vocabtrim-fig3 "VocabTrim, Fig. 3" 3 "MT-Bench for Dolly"
vocabtrim_fig3() {
    best=$(share 23000 128256)
    vocabtrim_sizes "static:$best" "best MBSU at 23k: +19.7%, BE lost 3%"
}

item vocabtrim-fig4 "VocabTrim, Fig. 4" 3 "as Fig. 3; a larger target: pair smollm2"
vocabtrim_fig4() {
    best=$(share 35000 128256)
    vocabtrim_sizes "static:$best" "best MBSU at 35k: +11.6%, BE lost 1.2%"
}
