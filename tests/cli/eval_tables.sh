# The tables of replay, plan and compare that people read, without times, as they were approved, and
# the figures of their JSON. `ACCEPT=1 tests/cli/run.sh BIN eval_tables` approves other tables.
. "$CLI_TESTS/lib.bash"
left_to_all
pair=(--target "$sample/target.gguf" --draft "$sample/draft.safetensors" -q)
texts=(--prompts "$prompts/qa.jsonl" "$prompts/code.jsonl" "$prompts/math.jsonl" --limit 3)
costs_with "target 1 3e-3" "target 60 4e-3" | sealed given.costs
policies=full,window:200,window:64@min=8,microspec
record=(specrt-eval record "${pair[@]}" "${texts[@]}")
accepts "${record[@]}" --limit 2 --max-tokens 40 --num-draft-tokens 32 -o tree.trace
accepts "${record[@]}" --max-tokens 40 --topk 1 --num-steps 5 -o chain.trace
accepts specrt-eval record "${pair[@]}" --prompts "$prompts/qa.jsonl" --limit 2 --max-tokens 12 \
    --topk 1 --num-steps 2 -o small.trace
replay="specrt-eval replay -q --policy window:64@min=8"
tells $replay,$policies --trace tree.trace --tree 3/1/4 --tree 4/4/20
tells $replay,window:200 --trace chain.trace --tree 2/1/3 --stream
# figures FIELD PATTERN... : fields of all rows of the replay or comparison at hand
figures() { while [ $# -gt 0 ]; do has "rows[].$1=$2"; shift 2; done; }
accepts $replay,$policies --trace chain.trace --tree 2/1/3 --json
all="rows[domain=all]" window="rows[policy=window:200]"
has "$all[policy=full].accept_length=2.8846 2.193" \
    "$all[policy=window:64@min=8].accept_length=2.1186 1.8029" \
    "$all[policy=microspec].accept_length=2.8195 2.1676" \
    "$all[policy=microspec].coverage=0.9733 *" "$all[policy=full].mass=0.7325 *" \
    "$all[policy=window:64@min=8].mass=0.5136 *" "$window[domain=all].acceptance=0.4942 0.5294 0.6889 0.7097 0.9091 *" \
    "$window.coverage=0.776 0.7236 0.72 0.8819 *"
accepts $replay,window:200 --trace tree.trace --tree 3/1/4 --tree 4/4/20 --stream --json
has stream=true "$all[policy=oracle].accept_length=3.087 2.16 2.9857" \
    "$all[policy=window:64@min=8].accept_length=2.2527 1.8462 2.2581" \
    "$window[domain=all].accept_length=2.6447 1.9636 2.5926" \
    "$window[domain=all].shortlist_rows=200.4211 *" \
    "$window[domain=all].coverage_since.64-128=0.9143 *" \
    "$window[domain=all].accept_length_since.0-32=2.2222 1.7544 2.2889"
accepts $replay --trace small.trace --json
has cut=false estimate_error=0.06 stream=false
list=window:64@min=8
figures policy "oracle $list" domain "all all" \
    tree.num_steps "2 2" tree.topk "1 1" tree.num_draft_tokens "3 3" \
    n_sequences "2 2" n_cycles "10 10" n_tokens "23 23" \
    accept_length "2.3 1.2105" estimated "true true" \
    coverage "1 0.2174" coverage_estimated "false true" \
    shortlist_rows "32768 32.9474" \
    mass "0.6968 0.1663" recall.target_1 "1 0.2174" \
    recall.target_all "1 0.1304" recall.draft_10 "1 0.1235" recall.draft_all \
    "1 0.0597" acceptance "0.7 0.8571 0.1579 0.3333" \
    ci95.accept_length "1.0294 3 1 2.9704" ci95.mass "0.6641 0.7295 *" \
    coverage_since.0-32 "1 0.2174" coverage_since.32-64 "null *" \
    accept_length_since.0-32 "2.3 1.2105"
plan=(specrt-eval plan "${pair[@]}" --costs given.costs --threads 1)
tells "${plan[@]}" --trace tree.trace --policy $policies
accepts "${plan[@]}" --trace chain.trace --topk 1 --policy $policies --json
has "choices[].policy=microspec window:200 window:64@min=8 full plain" \
    "choices[].num_steps=5 5 5 3 0" "choices[].accept_length=2.8195 2.1802 2.1186 2.451 1" "choices[].cycle_ms=3.5086 3.3668 3.3589 4.125 3" \
    "choices[].ci95=650.5814 992.6244 520.5803 805.5435 * 687.8751 333.3333 333.3333" "choices[].worst_accept_full=0.9412 0.6667 0.6 1 null" outcome=faster \
    pruning_outcome=faster recommended_by=worst_domain "recommended.worst_domain=code"
accepts "${plan[@]}" --trace small.trace --topk 1 --num-steps 2 --policy window:200 --json
has target=target.gguf drafter=draft.safetensors threads=1 temperature=0 n_prompts=0 \
    chat_template=llama3 "chat_template_from=special tokens" system_prompt=null runs_skipped=0 \
    "costs.head_first[].rows=1024 32768" "costs.head_first[].seconds=1e-05 0.0003" \
    "costs.head[].topk=1 4 10" "costs.head[topk=4].points[].seconds=0.0007 0.0007" \
    "costs.draft[].tokens=1 10" "costs.target[].nodes=1 60" "costs.target[].seconds=0.003 0.004" \
    costs.prompt= costs.disturbed=false costs.error_worst=0 head_share=0.1598 small_head_rows=3454 \
    recommended.policy=full recommended.num_steps=2 recommended.num_draft_tokens=3 \
    recommended_policy.policy=full recommended_by=mean outcome=faster pruning_outcome=null \
    "choices[].policy=full window:200 plain" "choices[].num_draft_tokens=3 2 1" \
    "choices[].accept_length=2.3 1.2778 1" "choices[].accept_full=1 0.7778 null" \
    "choices[].cycle_ms=3.7556 3.0741 3" "choices[].tokens_per_second=612.4245 415.6658 333.3333" \
    "choices[].ci95=428.7499 874.7846 298.7598 578.3176 333.3333 333.3333" \
    "choices[].speedup_plain=1.8373 1.247 1" "choices[].measured_cycle_ms=null null null"
compare=(specrt-eval compare "${pair[@]}" "${texts[@]}" --limit 2 --max-tokens 12 --num-steps 3)
retrieve=window:9@min=9+retrieve:50@graph=off
table() { # FLAGS... : without times; of the tables of times names, tokens, rows and events are left
    tells "${compare[@]}" "$@" |
        awk '/^ *accept .*draft/ { next } /^policy .*length/ { left = 5 } /^events/ { left = 2 }
            !NF { left = 0 } left { for (i = 1; i <= left; i++) printf "%s ", $i
                print (left == 5 && NF > 16 ? $6 " " $17 " " $18 " " $19 : ""); next }
            !/^(Draft with|Decode plainly|Its accept|As fast|Beside drafts)| rows a pass .* keeps /'
}
table --topk 3 --num-draft-tokens 8 --policy $policies --lists
table --topk 1 --policy $retrieve --stream
accepts "${compare[@]}" --topk 1 --policy window:200 --json
has engine=specrt rounds=1 num_steps=3 max_tokens=12 n_unanswered=0 n_empty=0 splits= \
    "rows[policy=plain].acceptance=   " "rows[policy=plain].coverage=null null null null" \
    "rows[domain=all].n_same=0 6 6" "rows[worst_domain=qa].worst_accept_full=1 0.5739"
figures domain "all qa code math all qa code math all qa code math" \
    n_prompts "6 2 2 2 6 2 2 2 6 2 2 2" n_tokens "72 24 24 24 72 24 24 24 72 24 24 24" \
    accept_length "1 1 1 1 2.1818 2.5556 1.9231 2.1818 1.6047 1.4667 1.3333 2.3" \
    accept_full "0.4583 0.3913 0.52 0.4583 1 1 1 1 0.7355 0.5739 0.6933 1.0542" \
    acceptance "* 0.3721 0.4375 0.4286 0.2667 0.5 0.5 0.2778 0.2 0 0.7 0.5714 0.5" \
    coverage "* 1 1 1 1 0.5072 0.3182 0.5 0.6957" shortlist_rows "* 32768 200 200 200 200" \
    bytes_pass "* 8912896 54400 54400 54400 54400" rows_copied "* 0 2.9302 3.2667 2.5556 3.1" \
    bytes_extra "0 0 0 0 0 0 0 0 54944 54944 54944 54944" ci95.accept_length "1 1 *" \
    n_compared "0 0 0 0 72 24 24 24 72 24 24 24"
accepts "${compare[@]}" --topk 1 --policy $retrieve --align lora@batch=4 --json
adapted="rows[policy=$retrieve (lora@batch=4)][domain=all]"
has "rows[domain=all].policy=plain full $retrieve $retrieve (lora@batch=4)" "rows[].#=16" \
    "rows[domain=all].n_same=0 6 6 6" "$adapted.policy_text=$retrieve" "$adapted.accept_length=1.2963" \
    "$adapted.bytes_pass=10255.4074" "$adapted.rows_copied=7.5556" "$adapted.bytes_extra=16592" \
    "rows[domain=all].events_per_cycle=null 0 0.963 0.963" "$adapted.align.n_positions=70" \
    "$adapted.align.n_path_a=52" "$adapted.align.n_path_b=11" "$adapted.align.n_rejected=2" \
    "$adapted.align.n_steps=2" "$adapted.align.n_learnt=8" "$adapted.align.loss=0.3781" \
    "$adapted.align.divergence=0.069" "$adapted.align.bytes.parameters=114688" "requests[].#=18" \
    "requests[policy=full].n_cycles=4 5 7 6 4 7" "requests[policy=full].n_emitted=12 11 14 11 13 11" \
    "requests[policy=full].prompt=0 1 2 3 4 5" \
    "requests[policy=full].accept_length=3 2.2 2 1.8333 3.25 1.5714"
tree=(--topk 2 --num-steps 3)
accepts specrt-eval decode "${pair[@]}" "${texts[@]}" --max-tokens 20 "${tree[@]}" --json
has policy=window:3072@kver=8@positions=tree@min=3072 n_turns=9 n_tokens=180 n_cycles=68 \
    accept_length=2.6176 coverage=0.9438 shortlist_rows=3072 "answers[].#=9" "answers[0].text=\
\*\*repr\*\* (noun):
1. a person who is born or has a group of people." "answers[2].ids=324 3555 6466 324 326 669 * 2883"
tree=(--topk 1 --temperature 0.7 --sampled-drafts)
accepts specrt-eval decode "${pair[@]}" "${texts[@]}" --max-tokens 20 "${tree[@]}" --json
has n_cycles=84 accept_length=2.1905 coverage=0.8967 "answers[0].ids=324 1356 324 326 * 13 427" \
    "answers[8].text=He charges \$35 to exercise a total of \$35 + \$35 = \$70.
His family"
accepts specrt-eval decode "${pair[@]}" --prompt "Repeat: naïve, 日本, 🙂" --max-tokens 40
prints "Repeat: 1/2 \* 1/2 = 2/2 \* 2/2 = 2/2 \* 2/2 = 2/2 \* 2"
accepts specrt-eval generate --target "$sample/target.gguf" "${texts[@]}" --limit 1 \
    -q --max-tokens 24 --temperature 0.9 --seed 3 --ids -o -
has "[].domain=qa code math" "[].n_tokens=24 24 24" "[].n_loop=0 0 0" \
    "[0].prompt=What does the word \"ambiguous\" mean[?]" "[0].output=\*\*-commercial\*\* (adj*" \
    "[1].ids=728 16289 198 2607 512 277 331 311 288 2878 7 15 11 220 17 443 220 796 * 2878"
accepts specrt-eval plan "${pair[@]}" "${texts[@]}" --measure 0.1 --threads 1 --max-tokens 16 \
    --topk 1 --policy full,window:200
[ "$(awk '/^(full|window)/ { print $1, $(NF - 1), $NF }' ../out | sort | xargs)" = \
    "full 100.0 100.0 window:200 65.9 50.0" ] || fail "$(cat ../out)"
