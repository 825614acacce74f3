# All that the builders of a bundle say but times, as it was approved: any other figure, word or
# column shows here. `ACCEPT=1 tests/cli/run.sh BIN build_tables` approves what is new.
. "$CLI_TESTS/lib.bash"
is_brief && skip "other tests reach the same code under a sanitizer"
sample=$CLI_TESTS/../../data/sample corpus=$CLI_TESTS/../../data/corpus
model=(--model "$sample/target.gguf") tokenizer=(--tokenizer "$sample/target.gguf")
calibrate=(vocabtrim-calibrate -f -o a.specb "${tokenizer[@]}")
tells "${calibrate[@]}" --corpus "$corpus/code" "$corpus/qa" "$corpus/prose" --by-language \
    --weights qa:2 --size 2000 "${model[@]}" --accept-rate 1,0.7,0.6 --keep bytes
cat ../err
tells "${calibrate[@]}" --corpus "$corpus/math" "$corpus/qa" --mass 0.7 --json --balance \
    --report page.html | timeless
sed 's/></>\n</g' page.html | sed '1,/<\/style>/d'
tells cograph-build "${tokenizer[@]}" --corpus "$corpus/qa" --min-count 2 -o a.specb
tells cograph-build "${tokenizer[@]}" --corpus "$corpus/qa" -f -o a.specb --json | timeless
hnsw=(hnsw-build "${model[@]}" --m 4 --ef-construction 16 --min-recall 0.3 -f -o a.specb)
tells "${hnsw[@]}"
tells "${hnsw[@]}" --metric augmented-l2 --json | timeless
accepts specrt-eval record --target "$sample/target.gguf" --draft "$sample/draft.safetensors" -q \
    --prompts "$sample/../prompts/qa.jsonl" --limit 20 --max-tokens 40 --num-steps 2 --topk 2 \
    -o a.trace
tells hnsw-build "${model[@]}" --m 4 --ef-construction 16 --min-recall 0 --trace a.trace --json |
    timeless
tells cluster-build "${model[@]}" --clusters 40 -f -o a.specb
tells cluster-build "${model[@]}" --router none --clusters 50 --largest 1.5 -f -o a.specb \
    --json | timeless
for router in dynaspec coral; do
    train=(cluster-build "${model[@]}" --trace a.trace --router $router --clusters 16 --hidden 32)
    tells "${train[@]}" --epochs 2 -f -o a.specb
    tells "${train[@]}" --epochs 2 --schedule flat --json | timeless
done
tells specrt-bundle info a.specb -v
tells specrt-bundle info a.specb --json | timeless
accepts specrt-bundle verify a.specb
yes 'Это текст на другом языке.' | head -n 100 >other.txt
accepts vocabtrim-calibrate "${tokenizer[@]}" --corpus other.txt "$corpus/qa" --by-language \
    --counts-out a.counts -q
tells specrt-bundle drift a.specb --counts a.counts --max-drop 1
cat ../err
tells specrt-bundle drift a.specb --counts a.counts --max-drop 1 --json --size 4096
for tool in vocabtrim-calibrate cograph-build hnsw-build cluster-build sketch-build; do
    accepts $tool -h
    prints "*Usage: $tool *"
done
