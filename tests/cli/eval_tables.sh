# All that replay, plan, compare and decode say of a few prompts but times, as it was approved: any
# other figure, word or column shows here. `ACCEPT=1 tests/cli/run.sh BIN eval_tables` approves what
# is new.
. "$CLI_TESTS/lib.bash"
is_brief && skip "other tests reach the same code under a sanitizer"
sample=$CLI_TESTS/../../data/sample prompts=$CLI_TESTS/../../data/prompts
pair=(--target "$sample/target.gguf" --draft "$sample/draft.safetensors" -q)
texts=(--prompts "$prompts/qa.jsonl" "$prompts/code.jsonl" "$prompts/math.jsonl" --limit 3)
costs_with "target 1 3e-3" "target 60 4e-3" | sealed given.costs
policies=full,window:200,window:64@min=8,microspec
record=(specrt-eval record "${pair[@]}" "${texts[@]}")
accepts "${record[@]}" --max-tokens 40 -o tree.trace
accepts "${record[@]}" --max-tokens 40 --topk 1 --num-steps 5 -o chain.trace
accepts specrt-eval record "${pair[@]}" --prompts "$prompts/qa.jsonl" --limit 2 --max-tokens 12 \
    --topk 1 --num-steps 2 -o small.trace
for trace in "tree.trace --tree 3/1/4 --tree 4/4/20" "chain.trace --tree 2/1/3"; do
    replay="specrt-eval replay -q --costs given.costs --policy auto+window:64@min=8"
    tells $replay,$policies --trace $trace
    tells $replay,window:200 --trace $trace --stream
done
tells $replay --trace small.trace --json
plan=(specrt-eval plan "${pair[@]}" --costs given.costs --threads 1)
for trace in tree.trace "chain.trace --topk 1"; do
    tells "${plan[@]}" --trace $trace --policy $policies
done
tells "${plan[@]}" --trace small.trace --topk 1 --num-steps 2 --policy window:200 --json |
    sed 's/"seconds":[^,]*,"costs"/"costs"/'
compare=(specrt-eval compare "${pair[@]}" "${texts[@]}" --limit 2 --max-tokens 12 --num-steps 3)
retrieve=window:9@min=9+retrieve:50@graph=off
table() { # FLAGS... : without times; of the tables of times names, tokens, rows and events are left
    tells "${compare[@]}" "$@" |
        awk '/^ *accept .*draft/ { next } /^policy .*length/ { left = 5 } /^events/ { left = 2 }
            !NF { left = 0 } left { for (i = 1; i <= left; i++) printf "%s ", $i
                print (left == 5 && NF > 16 ? $6 " " $17 " " $18 " " $19 : ""); next }
            !/^(Draft with|Decode plainly|Its accept|As fast|Beside drafts)| rows a pass .* keeps /'
}
table --topk 3 --policy $policies --lists
table --topk 1 --policy $retrieve --stream
tells "${compare[@]}" --topk 1 --policy window:200 --json | timeless
tells "${compare[@]}" --topk 1 --policy $retrieve --align lora@batch=4 \
    --json | timeless
for tree in "--topk 2 --num-steps 3" "--topk 1 --temperature 0.7 --sampled-drafts"; do
    tells specrt-eval decode "${pair[@]}" "${texts[@]}" --max-tokens 20 $tree --json | timeless
done
tells specrt-eval decode "${pair[@]}" --prompt "Repeat: naïve, 日本, 🙂" --max-tokens 40
tells specrt-eval generate --target "$sample/target.gguf" "${texts[@]}" --limit 1 -q \
    --max-tokens 24 --temperature 0.9 --seed 3 --ids -o -
tells specrt-eval plan "${pair[@]}" "${texts[@]}" --measure 0.1 --max-tokens 16 --topk 1 \
    --policy full,window:200 | awk '/^(full|window)/ { print $1, $(NF - 1), $NF }' | sort
