# All builders into one bundle: the tables that people read, as they were approved, and the figures
# of their JSON. `ACCEPT=1 tests/cli/run.sh BIN build_tables` approves other tables.
. "$CLI_TESTS/lib.bash"
left_to_all
corpus=$CLI_TESTS/../../data/corpus
model=(--model "$sample/target.gguf") tokenizer=(--tokenizer "$sample/target.gguf")
calibrate=(vocabtrim-calibrate -f -o a.specb "${tokenizer[@]}")
tells "${calibrate[@]}" --corpus "$corpus/code" "$corpus/qa" "$corpus/prose" --by-language \
    --weights qa:2 --size 2000 "${model[@]}" --accept-rate 1,0.7,0.6 --keep bytes
warns "*covers 76.8% of the text that was ranked, 73.3% of held-out text (95% interval 71.8% to \
74.6%): most of the difference is in code/Latin: *"
accepts "${calibrate[@]}" --corpus "$corpus/math" "$corpus/qa" --mass 0.7 --json --balance
has selection.rule=mass selection.value=0.7 n_tokens=126538 n_selected=491 n_forced=6 \
    n_valid=32758 coverage_calibration=0.71 coverage_holdout=0.7002 coverage_holdout_low=0.6894 \
    coverage_holdout_high=0.7108 n_distinct=11122 unseen_estimate=0.0347 bytes_read=485726 \
    n_files=3 n_skipped_files=0 n_records=1484 n_bad_records=0 n_replaced=0 best_size=null \
    'domains[].name=math qa' 'domains[].weight=1.3121 1' 'domains[].n_documents=684 800' \
    'domains[].n_bytes=172730 304878' 'domains[].digest=2ad51fc9403bd91e 9e5f9d878f7fb1c8' \
    'domains[].n_tokens=54728 71810' 'domains[].n_tokens_holdout=54728 71810' \
    'domains[].n_completions=684 800' 'domains[].coverage_calibration=0.8159 0.6031' \
    'domains[].coverage_holdout=0.803 0.5937' 'domains[].coverage_holdout_low=0.7966 0.5866' \
    'domains[].coverage_holdout_high=0.8092 0.6008' \
    'sweep[].size=491 512 1024 2048 4096 8192 16384 32758' \
    'sweep[].coverage_calibration=0.71 0.7142 0.7866 0.8586 0.926 0.9795 1 1' \
    'sweep[].coverage_holdout=0.7002 0.7046 0.7671 0.8272 0.8809 0.929 0.9653 1' \
    'sweep[].coverage_holdout_low=0.6894 0.6938 0.7565 0.8188 0.8745 0.9243 0.963 1' \
    'sweep[].coverage_holdout_high=0.7108 0.7152 0.7775 0.8353 0.887 0.9335 0.9675 1'

tells cograph-build "${tokenizer[@]}" --corpus "$corpus/qa" --min-count 2 -o a.specb
accepts cograph-build "${tokenizer[@]}" --corpus "$corpus/qa" -f -o a.specb --json
has n_tokens=71810 n_documents=800 n_bytes=304878 bytes_read=387231 digest=9e5f9d878f7fb1c8 \
    n_pairs=71010 n_sources=9592 n_edges=41031 n_edges_rule=1227 successors=1024 min_count=5 \
    'shares[].successors=8 64 256 1024' 'shares[].rows_mean=6.4441 31.5211 82.6579 154.0859' \
    'shares[].share_of_pairs=0.6787 0.8718 0.9518 1'

hnsw=(hnsw-build "${model[@]}" --m 4 --ef-construction 16 --min-recall 0.3 -f -o a.specb)
tells "${hnsw[@]}"
accepts "${hnsw[@]}" --metric augmented-l2 --json
has ef=256 n_queries=512 recall_at_10=0.3383 n_repaired=2789 n_nodes=32758 n_reserved=10 \
    'sweep[].recall_at_10=0.052 0.0953 0.1545 0.2363 0.3383 0.4479'
accepts specrt-eval record --target "$sample/target.gguf" --draft "$sample/draft.safetensors" -q \
    --prompts "$sample/../prompts/qa.jsonl" --limit 20 --max-tokens 40 --num-steps 2 --topk 2 \
    -o a.trace
accepts hnsw-build "${model[@]}" --m 4 --ef-construction 16 --min-recall 0 --trace a.trace --json
has queries=trace n_queries=512 recall_at_10=0.5656 n_repaired=7013 sample_recall_ip=0.9127 \
    sample_recall_augmented_l2=0.6654 \
    'sweep[].recall_at_10=0.5656 0.7191 0.8395 0.9012 0.9455 0.967'

accepts cluster-build "${model[@]}" --clusters 40 -f -o a.specb
prints "*in 40 clusters of 818 to 819
*0.5103 after 25 iterations (0.5297 before *)
*"
accepts cluster-build "${model[@]}" --router none --clusters 50 --largest 1.5 -f -o a.specb --json
has size_least=277 size_mean=655.16 size_most=982 objective_before_balancing=17627.6362 \
    objective_final=17546.2684 'schedule=26 26 4 3 2 2 1 1' router.rows_mean=6879.18 \
    'objective=12306.9053 16607.5281 * 17622.9946 17625.8301'
for router in dynaspec coral; do
    train=(cluster-build "${model[@]}" --trace a.trace --router $router --clusters 16 --hidden 32)
    tells "${train[@]}" --epochs 2 -f -o a.specb
    accepts "${train[@]}" --epochs 2 --schedule flat --json
    has 'schedule=4 4 4 4 4 4 4 4' objective_before_balancing=15793.6613 router.kind=$router \
        router.all.n=58 'router.levels[].n=34 24' router.recall=1 router.recall_oracle=1 \
        router.recall_static=null router.all.mass_oracle=0.7418 router.all.mass_static=null \
        'router.levels[].mass_oracle=0.7158 0.7788' router.n_examples=571 router.n_holdout=58 \
        router.rate=0.001 router.decay=0.01 router.shuffled=false router.traces=a.trace
    case $router in
    dynaspec)
        has router.loss=multi-hot balanced=false largest=4 size_least=563 size_most=5515 \
            objective_final=15793.6613 router.n_hidden=32 router.best_epoch=2 \
            router.rows_mean=6003.4138 router.all.mass=0.7392 router.all.rows=6003.4138 \
            'router.levels[].rows=5828.9706 6250.5417' 'router.levels[].mass=0.7118 0.778' \
            'router.loss_training=3.2114 2.6476' 'router.loss_holdout=2.1917 2.1002' ;;
    coral)
        has router.loss=argmax balanced=true largest=1 size_least=2047 size_most=2048 \
            objective_final=15271.3173 router.n_hidden=256 router.best_epoch=1 \
            router.rows_mean=8188 router.all.mass=0.7393 'router.levels[].mass=0.7127 0.777' \
            'router.loss_training=0.7719 0.4181' 'router.loss_holdout=0.548 0.5518' ;;
    esac
done

tells specrt-bundle info a.specb -v
accepts specrt-bundle info a.specb --json
p=provenance
has 'sections[].tag=centroid cluster cograph group hnsw ident prov ranks' \
    'sections[tag=cluster].depends=head drafter' 'sections[tag=cograph].depends=tokenizer' \
    'sections[optional=true].tag=prov' 'sections[tag=hnsw].raw_bytes=10001688' \
    'sections[tag=centroid].raw_bytes=151836' 'sections[tag=group].raw_bytes=270988' \
    tokenizer.n_vocab=32768 tokenizer.n_normal=32752 head.rows=32768 head.cols=256 sketch=null \
    ranks.n_default=491 ranks.n_forced=6 ranks.n_terminators=2 ranks.n_valid=32758 \
    ranks.n_ranked=32768 ranks.n_tokens=143520 'ranks.forced=32753 32761 32752 32756 32758 32759' \
    'ranks.top=220 13 264 11 * 324 491' ranks.coverage_holdout_low=0.6894 \
    cluster.size_least=563 cluster.size_most=5515 cluster.router=dynaspec cluster.n_members=32758 \
    group.size_least=2047 group.router=coral 'group.schedule=4 4 4 4 4 4 4 4' \
    centroid.n_clusters=40 centroid.router=centroid cograph.n_sources=9592 cograph.n_edges=41031 \
    cograph.n_rule_edges=1227 cograph.n_pairs=71010 cograph.max_degree=1024 cograph.min_count=1 \
    hnsw.n_levels=8 hnsw.dim=256 hnsw.m=4 hnsw.ef=256 hnsw.recall_at_10=0.3383 hnsw.vectors=int8 \
    $p.cluster.router.all.mass=0.7406 $p.cluster.router.all.mass_static=0.7418 \
    "$p.cluster.router.levels[].rows=15552.7647 15715.25" $p.cluster.router.recall_static=1 \
    "$p.group.router.levels[].mass_static=0.7143 0.7783" $p.hnsw.n_repaired=2789 \
    "$p.ranks.domains[].weight=1.3121 1" $p.ranks.selection.rule=mass $p.cograph.tau=0.0001 \
    "$p.centroid.examples[].cluster=0 3 6 10 13 16 20 23 26 30 33 36"
accepts specrt-bundle verify a.specb
yes 'Это текст на другом языке.' | head -n 100 >other.txt
accepts vocabtrim-calibrate "${tokenizer[@]}" --corpus other.txt "$corpus/qa" --by-language \
    --counts-out a.counts -q
tells specrt-bundle drift a.specb --counts a.counts --max-drop 1
warns "*: other.txt/Cyrillic: 6.1% of this text, of which the list covers 10.6% (68.4% of *): *
*: qa/Latin: 93.9% of this text, of which the list covers 60.3% (68.4% of *): *"
accepts specrt-bundle drift a.specb --counts a.counts --max-drop 1 --json --size 4096
has size=4096 n_tokens=76510 coverage=0.8285 coverage_low=0.7153 coverage_high=0.9029 \
    coverage_calibrated=null drop=null 'domains[].name=other.txt other.txt/Cyrillic qa qa/Latin' \
    'domains[].language=null Cyrillic null Latin' 'domains[].n_tokens=0 4700 0 71810' \
    'domains[].coverage=null 0.1064 null 0.8758' 'missing[].n=1300 800 300 200 200 200 100 100' \
    'missing[].id=140 141 224 113 118 122 108 111'
