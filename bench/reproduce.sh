#!/usr/bin/env bash
# reproduce.sh NAME [PAIR] : one table or figure of the papers, on one of our pairs (sample; 128k;
# of alignment smollm2 too). Without a NAME, the list. In the environment also LIMIT (prompts of a
# task) and TOKENS (of an
# answer): more take longer and narrow the intervals.
#
# What differs from the papers in all of them: the models are small, the machine is a CPU. There
# each node of a tree costs the target a third of a pass, so speeds are those of chains; trees as
# wide as EAGLE-2's are used where only accept length is looked at. Sizes are the papers'
# shares of a vocabulary of 151,936 (EvoSpec) or 128,256.
name=${1:-} pair=${2:-sample}
. "$(dirname "$0")/pair.sh"
. "$(dirname "$0")/tables.sh"
limit=${LIMIT:-2} tokens=${TOKENS:-32}
chain="--topk 1 --num-steps 4"

# share A : of our vocabulary as many rows as A of EvoSpec's.
share() { awk -v v="$n_vocab" -v a="$1" 'BEGIN { printf "%d", v * a / 151936 }'; }
# files TASK... : their prompts are asked; a word on those that the pair was trained on.
files() {
    mapfile -t asked < <(tasks "$@")
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
heading() {
    echo "$1: $2"
    echo "pair $pair, $threads thread(s), $limit prompts a task, $tokens tokens an answer"
    echo
}
# note : what the paper has, and why ours differs.
note() { echo && cat; }

microspec_fig1() {
    heading "MicroSpec, Fig. 1" "oracle against actual speed over static sizes; coverage by task"
    files $spec_bench
    list=
    for size in 512 1024 2048 4096 8192 16384 32768; do
        [ "$size" -ge "$n_vocab" ] || list=$list,static:$size
    done
    beside static:2048 "fastest if nothing were lost" \
        static:16384 "loses below, fastest about here" window:3072@kpre=3 "covers 73 to 97% by task"
    ask $chain --policy "${list#,},window:3072@kpre=3,microspec" >"$work/rows"
    table <"$work/rows"
    echo
    echo "(a) x plain: what the list gives, beside an oracle that loses nothing in the same cycles"
    awk -F '\t' '
        $2 != "all" || $1 == "plain" { next }
        $1 == "full" { full = $3 }
        {
            printf "%-45s oracle %5.2f   actual %5.2f   accept length lost %3.0f%%\n",
                $1, $10 * full / $3, $10, 100 * (1 - $3 / full)
        }' "$work/rows"
    echo
    echo "(b) covered, %, by task"
    by_task 6 %8.1f 100 <"$work/rows"
    note <<'END'
Ours are the same curves at smaller sizes: such small models use fewer words, and where the
paper's static lists need 16k to 32k rows for 85%, ours need 1k to 2k on average.
END
}

microspec_fig5() {
    heading "MicroSpec, Fig. 5" "the window from 1k to 8k"
    files $spec_bench
    list=
    for size in 1024 2048 3072 4096 6144 8192; do
        list=$list,window:$size@kpre=3,window:$size@kver=8@positions=tree@min=$size
    done
    beside window:1024@kpre=3 "accept length lower" \
        window:2048@kpre=3 "fastest, accept length levels off" \
        window:3072@kpre=3 fastest window:4096@kpre=3 fastest
    ask $chain --policy "${list#,}" | table
    note <<'END'
By the paper's rules 3 candidates a position fill a window slowly: after short prompts it holds a
few hundred rows (see rows), so W does nothing. The second of each pair is kept full, as the
preset microspec is; its speed falls with W as the paper's does, and its accept length is flat
because what these models write is in the first thousand rows.
END
}

microspec_table3() {
    tokens=${TOKENS:-128}
    heading "MicroSpec, Table 3" "tokens of the prompt, of the answer, or both; packed or indexed"
    files $spec_bench
    window=window:3072@kpre=3
    beside $window@only=ctx "313 tokens/s" $window@only=ext 351 $window 395 "$window, indexed" 364
    ask $chain --policy $window@only=ctx,$window@only=ext,$window,microspec >"$work/rows"
    indexed=${INDEXED:-1.41}
    awk -F '\t' -v OFS='\t' -v slower="$indexed" '
        $2 == "all" && $1 == "plain" { plain = $8; whole = $9 }
        $2 == "all" && $1 == "full" { full = $8 }
        { print }
        $2 == "all" && $1 == "window:3072@kpre=3" {
            more = (slower - 1) * $12 / 1e3 / $3 # seconds a token
            $1 = $1 ", indexed"
            $8 = 1 / (1 / $8 + more)
            $9 = 1 / (1 / $9 + more)
            $10 = $8 / plain
            $11 = $8 / full
            print
        }' "$work/rows" | table
    note <<END
tokens/s leave the prompt's time out, +prompt counts it: a window asks for the logits of the
prompt, and the shorter the answer, the more that weighs (the papers write 1,024 tokens). An
indexed window is no policy of ours: its row is computed from the packed one, with the head
$indexed times as slow, as bench_head measures rows in place (INDEXED=; 1.41 for 3,072 x 256 in
q8_0, as the pairs' heads are). So few rows of 256 columns cost next to nothing either way.
Reading only=ext literally, the last cycle's candidates alone, leaves a few dozen tokens:
docs/methods/window.md, M6.
END
}

evospec_table1() {
    heading "EvoSpec, Table 1" "accept length over Spec-Bench with 256 to 1,024 retrieved tokens"
    files $spec_bench
    base=$(share 32000) list=
    for size in $base 2048 512; do
        list=$list,static:$size
        for dynamic in 256 512 1024; do list=$list,static:$size+retrieve:$dynamic; done
    done
    beside full 3.78 "static:$base" 3.54 "static:$base+retrieve:256" 3.60 \
        "static:$base+retrieve:512" 3.64 "static:$base+retrieve:1024" 3.65
    ask $chain --policy "${list#,}" >"$work/rows"
    table <"$work/rows"
    echo
    by_task 3 <"$work/rows"
    note <<'END'
A model this small writes fewer words, so that a list of the paper's share loses little; the
shorter ones show what retrieval does. Budgets above 256 add nothing: so short answers miss fewer
tokens. The paper's tree is 6/10/60, ours a chain of 4, so accept lengths are lower throughout.
END
}

evospec_table6() {
    heading "EvoSpec, Table 6" "mass and best tokens of the target in the list; code, law, medicine"
    files $special
    base=$(share 32000)
    base_learns=static:$base+retrieve:256,static:2048+retrieve:256
    beside "static:$base" "mass 91.8" \
        "static:$base+retrieve:256@graph=off" "94.6, best 90.5 84.9 81.6" \
        "static:$base+retrieve:256" "96.0, best 92.8 87.6 84.7"
    list=
    for size in $base 2048; do
        list=$list,static:$size
        list=$list,static:$size+retrieve:256@graph=off,static:$size+retrieve:256
    done
    { # the paper's last row: alignment too
        ask $chain --lists --policy "${list#,}"
        part=aligned
        ask $chain --lists --policy "$base_learns" --align lora | grep '(lora)'
    } | rows_of '
        BEGIN {
            heading("policy", sprintf(" %6s %7s %7s %7s %7s",
                "accept", "mass", "best 10", "50", "100"))
        }
        $2 == "all" && $1 != "plain" {
            printf "%-45s %6.2f %6.1f%% %6.1f%% %6.1f%% %6.1f%%%s\n",
                $1, $3, 100 * $13, 100 * $14, 100 * $15, 100 * $16, paper($1)
        }'
    note <<'END'
The paper does not say of what its recall is a share, and gives none for the static list; ours is
of all best tokens (docs/methods/retrieve.md). Retrieval adds mass in both; the graph adds next to
nothing here, since little text leaves few successors by EvoSpec's rule (five pairs).
END
}

evospec_table8() {
    heading "EvoSpec, Tables 8 and 9" "an independent drafter: static base by dynamic budget"
    files $special
    if [ -n "$small" ]; then
        draft=$small
    else
        echo "(this pair has no independent drafter: its EAGLE head instead)"
    fi
    whole=static:$(share 32000) list=
    for base in 8000 16000 32000; do
        for dynamic in 256 512 1024; do list=$list,static:$(share $base)+retrieve:$dynamic; done
    done
    beside "$whole" "x full 1.02, 1.03" "static:$(share 8000)+retrieve:256" "0.94, 0.93" \
        "static:$(share 16000)+retrieve:256" 1.05 "$whole+retrieve:256" "1.07, 1.16"
    ask $chain --policy "$whole$list" >"$work/rows"
    table <"$work/rows"
    echo
    echo "x full by task"
    by_task 11 <"$work/rows"
    note <<'END'
The paper's drafters have 1 to 1.7 billion parameters, of which the head is a small part; ours are
nearly all head, so pruning gains far more and a short base wins, where the paper's loses.
END
}

evospec_temperature() {
    heading "EvoSpec, Table 10" "temperatures 0.7 and 1.0; code, law, medicine"
    files $special
    base=static:$(share 32000)
    list=$base,$base+retrieve:256,static:2048,static:2048+retrieve:256,coral,microspec
    for t in "0.7 2.91 2.99 3.06" "1.0 2.49 2.57 2.63"; do
        set -- $t
        beside "$base" "$2" coral "$3" "$base+retrieve:256" "$4, with alignment"
        part=$1
        echo "temperature $1"
        ask $chain --temperature "$1" --policy "$list" | table
        echo
    done
    echo "The shape is the paper's where the list is short enough to lose something, 2,048 rows."
}

evospec_turns() {
    heading "EvoSpec, two turns" "MT-Bench: what is learnt is forgotten after each turn, or kept"
    files mt_bench
    limit=$((limit * 4))
    list=static:2048,static:2048+retrieve:256,window:3072@kpre=3,microspec
    part=forgotten
    echo $part
    ask $chain --policy $list | table
    echo
    part=kept
    echo "$part, from prompt to prompt too"
    ask $chain --policy $list --stream | table
    note <<'END'
The paper keeps it: 3.67, alignment included, beside FR-Spec's 3.41 (its Table 7) over
conversations of more than 50 turns: evospec-table7.
END
}

# Of conversations as long as the paper's: what later turns keep of the earlier ones.
evospec_table7() {
    tokens=${TOKENS:-16}
    heading "EvoSpec, Table 7" "over 50 turns: what is learnt is forgotten, or kept"
    [ -e "$build/models/sharegpt.json" ] || { say "skipped: make models NAME=sharegpt"; exit 77; }
    python3 bench/conversations.py "$build/models/sharegpt.json" >"$work/long.jsonl"
    asked=("$work/long.jsonl")
    list=static:512,static:512+retrieve:256,static:2048,static:2048+retrieve:256
    beside static:2048 "3.41, FR-Spec" static:2048+retrieve:256 "3.67, kept, with alignment"
    for part in off conversation; do
        echo "memory: $part"
        ask $chain --policy $list --context 2048 --memory $part | table
        echo
    done
    cat <<'END'
The paper's are 144 conversations of LMSYS-Chat-1M with Qwen3-4B. Ours are ShareGPT's (107), their
first 51 questions, each cut to 60 characters, so that a context of 2,048 tokens holds all turns;
a conversation ends where it does not. Intervals are over conversations.
END
}

# aligned FLAGS... : drafters that learn beside the one that stays, one domain after the other.
aligned() {
    "$build/bin/specrt-eval" compare --target "$target" --draft "$draft" --threads "$threads" \
        $chain --policy "${learners:-full}" --prompts "${asked[@]}" --limit "$limit" \
        --max-tokens "$tokens" --context "${CONTEXT:-1024}" --stream --json "$@"
}

evospec_fig2() {
    limit=${LIMIT:-40}
    heading "EvoSpec, Fig. 2" "accept length over a stream of requests that changes its domain once"
    files ${DOMAINS:-mt_bench translation}
    aligned --align "${ALIGN:-lora@rate=1e-4,lora,lora@rate=1e-3,osd}" >"$work/run"
    python3 bench/align.py stream "${WINDOW:-20}" -o "$pages.svg" <"$work/run"
    note <<'END'
The paper: 100 requests of HumanEval, then law and medicine; the drafter that learns overtakes the
one that stays within some 20 requests of the change. Bars of ours: 1.08 x over the last 50
requests, never under 0.99 x over any 25. Steps run in line, with the weights of the last one.
END
}

evospec_fig3() {
    limit=${LIMIT:-8}
    heading "EvoSpec, Fig. 3" "a list, retrieval, alignment and both, over nine domains"
    files ${DOMAINS:-$spec_bench $special}
    learners=static:2048,static:2048+retrieve:256
    aligned --bundle "$bundle" --align "${ALIGN:-lora,osd}" | python3 bench/align.py domains
    note <<'END'
The paper plots tokens/s: retrieval gains most in code, law and medicine, alignment in general
text (as much as OSD), and both together most everywhere. Ours is accept length, of one stream
through all domains in this order; the list is as short as it must be to lose something here.
END
}

evospec_fig5() {
    limit=${LIMIT:-40} chain="--topk 1 --num-steps 6"
    heading "EvoSpec, Fig. 5" "the curriculum's beta, over a horizon of six"
    files ${DOMAINS:-mt_bench}
    list=
    for beta in 0 0.1 0.3 0.5 0.7; do list=$list,lora@beta=$beta; done
    aligned --align "${list#,}" >"$work/run"
    python3 bench/align.py beta <"$work/run"
    note <<'END'
The paper plots the training loss: 0 does not converge, 0.3 is lowest, 0.5 and 0.7 are higher. A
weighted loss is smaller for a larger beta whatever is learnt, so the divergence of all positions
that were drafted stands beside it.
END
}

evospec_table4() {
    limit=${LIMIT:-10}
    heading "EvoSpec, Table 4" "memory of LoRA on Wq and Wv beside all parameters (OSD)"
    files ${DOMAINS:-mt_bench}
    aligned --align lora,osd >"$work/run"
    python3 bench/align.py memory <"$work/run"
    echo
    echo "greatest resident memory of the process, MiB, target and text included"
    for part in off lora osd; do
        printf '%-6s' $part
        python3 bench/align.py peak "$build/bin/specrt-eval" compare --target "$target" \
            --draft "$draft" --threads "$threads" $chain --policy full --align $part \
            --prompts "${asked[@]}" --limit "$limit" --max-tokens "$tokens" \
            --context "${CONTEXT:-1024}" --json -q
    done
    part=
    note <<'END'
The paper: 9,013 MiB against OSD's 12,325, 26.9% less, whole processes on a GPU. Where the target
is most of a process, so much less cannot be: the drafter's own part is the first table.
END
}

# As many rows on average over a chain of four: PA gives most to the first two levels.
dynaspec() {
    heading "DynaSpec" "flat and position-aware budgets of as many rows, routed and static"
    files $spec_bench $(unseen humaneval)
    list=
    for k in 8 16 32; do
        list=$list,cluster:$k@schedule=flat
        list=$list,cluster:$((2 * k))@schedule=harmonic
    done
    for n in 1024 2048 4096; do
        first=$((n * 7 / 4)) third=$((n * 29 / 100))
        list=$list,static:$n,static:$first/$first/$third/$((4 * n - 2 * first - third))
    done
    beside full 4.00 static:4096 "3.74 at 32k" cluster:32@schedule=harmonic "3.90 at 27.3k"
    ask $chain --policy "${list#,}" >"$work/rows"
    table <"$work/rows"
    echo
    by_task 3 <"$work/rows"
    note <<'END'
The paper's figures are those of a summary of its first version (docs/methods/README.md).
Its position-aware budgets beat flat ones at fewer rows (static: 3.81 at 31,739 beside 3.74 at
32,768), over six levels; ours have four. Routers of such small heads choose among few clusters,
and the published budget would be most of the sample's vocabulary, so budgets here are a tenth of
it and less. Schedule harmonic begins with twice the clusters; how many rows that makes
stands under rows.
END
}

# count NAME CORPUS... : its tokens, to $work/NAME.counts.
count() {
    "$build/bin/vocabtrim-calibrate" --tokenizer "$target" --holdout 0 --domain "$1" -q -f \
        --corpus "${@:2}" --counts-out "$work/$1.counts"
}

# count_answers NAME MODEL : of what it answers to data/prompts.
to_answer=(--prompts data/prompts/*.jsonl --limit 16 --max-tokens 48)
count_answers() {
    "$build/bin/specrt-eval" generate -q --target "$2" "${to_answer[@]}" -o "$work/$1.jsonl"
    count "$1" "$work/$1.jsonl"
}

# count_guesses NAME : an EAGLE head cannot write without its target, so what it thought likeliest
# at each place of the target's answers. The head of the file is that of raw.counts.
count_guesses() {
    "$build/bin/specrt-eval" record -q --target "$target" --draft "$draft" --policy full \
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

vocabtrim_calibration() {
    heading "VocabTrim, Table 1" "lists from raw text, the target's and the drafter's; tree 4/8/32"
    files $spec_bench $(unseen humaneval)
    count raw $(general_text)
    count_answers target "$target"
    if [ -n "$small" ]; then count_answers draft "$small"; else count_guesses draft; fi
    quarter=static:$((n_vocab / 4))
    for part in raw target draft; do
        case $part in
        raw) words="raw text" theirs="2.974, 1.685" ;;
        target) words="the target's answers, raw text below" theirs="3.081, 1.745" ;;
        draft) words="the drafter's words, raw text below" theirs="3.057, 1.732" ;;
        esac
        bundle=$work/$part.specb
        merged=("$work/raw.counts")
        [ $part = raw ] || merged+=("$work/$part.counts" --weights "$part:100")
        "$build/bin/vocabtrim-calibrate" -q --merge "${merged[@]}" -o "$bundle"
        beside full "3.141, 1.475" $quarter "$theirs"
        echo "from $words"
        ask --topk 8 --num-steps 4 --num-draft-tokens 32 --policy static:512,static:2048,$quarter |
            with_mbsu 4
        echo
    done
    cat <<'END'
The paper's are Llama-3.2-3B, EAGLE, Writing: BE, MBSU. Ours counts the drafter's embedding, and
the target's shared one once, as the paper does (docs/methods/vocabtrim.md).
Raw text is general chat for the 128k pair;
prose, questions and manuals for the sample. The prompts answered are data/prompts,
those decoded are others. An EAGLE head cannot write alone: its words are its likeliest at each
place of the target's answers. A quarter of the vocabulary holds nearly all that models so small
write, whatever was counted; the order of the three shows in shorter lists.
END
}

vocabtrim_depth() {
    limit=${LIMIT:-1}
    heading "VocabTrim, Table 4" "tree depths 5, 6 and 7 with 60 nodes"
    files $spec_bench
    for depth in 5 6 7; do
        levels=$((depth + 1)) part=$depth
        echo "depth $depth: $levels levels"
        ask --topk 10 --num-steps $levels --num-draft-tokens 60 \
            --policy "static:2048,static:$((n_vocab / 4))" | with_mbsu $levels
    done
    note <<'END'
The paper trims to a quarter (32k): MBSU gains about the same at every depth, BE loses 1 to 2%. A
quarter of ours holds nearly all that such small models write, so 2,048 rows are beside it.
END
}

names="microspec-fig1 microspec-fig5 microspec-table3
evospec-table1 evospec-table6 evospec-table8 evospec-temperature evospec-turns evospec-table7
evospec-fig2 evospec-fig3 evospec-fig5 evospec-table4
dynaspec vocabtrim-calibration vocabtrim-depth"
case " $(echo $names) " in
*" $name "*) ;;
*)
    say "usage: bench/reproduce.sh NAME [sample|128k|smollm2]; NAME is one of"
    say "$names"
    exit 2
    ;;
esac
# Drafters learn with any list.
case $name in
evospec-fig[25] | evospec-table4) no_bundle=1 ;;
esac
pair "$pair"
pages=$build/repro-$name-$pair part=
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${name//-/_}"
echo "Plots: $pages*.html"
