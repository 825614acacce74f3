# Count files of shards add up, in any order and packing, to the bytes of
# one run; so does the bundle.
. "$CLI_TESTS/lib.bash"
mkdir corpus
for part in 1 2 3; do
    list=()
    for ((i = 0; i < 3000; i++)); do list+=($((i * i * part % 997))); done
    ids "corpus/$part.bin" "${list[@]}"
done
cat corpus/1.bin corpus/2.bin corpus/3.bin corpus/1.bin >more.bin
count() { vocabtrim-calibrate --tokenizer none --id-bytes 2 --n-vocab 1000 --keep 999 \
    --corpus corpus more.bin --holdout 0.3 "$@"; }
accepts count --counts-out whole
warns "vocabtrim-calibrate: 21,000 tokens, domains: 2"
awk '/^[0-9]/ { n++; for (i = 1; i <= NF; i++) sum += $i }
    /^#end/ { exit $2 != n || $3 != sum }' whole ||
    fail "#end is not the number of rows and the sum of what they hold"
accepts count --size 100 -o whole.specb
prints "ids: 21,000 tokens in 4 documents; 1,000 ids, 1 of them forced
*>      100      14.333%    10.467%    7.72 to  14.04 *
     1,000     100.000%   100.000%   99.24 to 100.00 *
  corpus               9,000       1      13.378%    10.322%    6.39 to  16.26
  more.bin            12,000       1      15.050%    10.575%                 -
*"
warns "*covers 14.3% of the text that was ranked, 10.5% of held-out text (95% interval 7.7% to \
14.0%): records have words of their own: *"
for shard in 0 1 2; do
    accepts count --shard $shard/3 --counts-out part$shard
    warns "vocabtrim-calibrate: $([ $shard = 0 ] && echo 15,000 || echo 3,000) tokens, domains: 2"
done
for order in "0 1 2" "2 0 1" "1 2 0"; do
    set -- $order
    accepts vocabtrim-calibrate --merge part$1 part$2 part$3 --counts-out merged -f
    same whole merged
    accepts vocabtrim-calibrate --merge part$1 part$2 --counts-out pair -f
    accepts vocabtrim-calibrate --merge part$3 pair --counts-out merged -f
    same whole merged
    accepts vocabtrim-calibrate --merge part$1 part$2 part$3 --size 100 -o merged.specb -f
    same whole.specb merged.specb
done

# Concatenated, packed, through pipes, into itself; the scheduler's rank is the default shard.
cat part2 part0 part1 | vocabtrim-calibrate --merge - --counts-out - -q >merged || fail "pipe"
same whole merged
gzip -c part0 >part0.gz
zstd -qc part1 >part1.zst
accepts vocabtrim-calibrate --merge part0.gz part1.zst part2 --counts-out merged -f
same whole merged
accepts vocabtrim-calibrate --merge part0 part1 --counts-out part1 -f
accepts vocabtrim-calibrate --merge part1 part2 --counts-out merged -f
same whole merged
export SLURM_ARRAY_TASK_MIN=5 SLURM_ARRAY_TASK_STEP=2
for task in 0 1 2; do
    SLURM_ARRAY_TASK_ID=$((5 + 2 * task)) SLURM_ARRAY_TASK_COUNT=3 accepts count \
        --counts-out slurm$task
    warns "*counting shard $task of 3 (SLURM_ARRAY_TASK_ID); --shard 0/1 counts all*"
    OMPI_COMM_WORLD_RANK=$task OMPI_COMM_WORLD_SIZE=3 accepts count --counts-out ompi$task
    warns "*counting shard $task of 3 (OMPI_COMM_WORLD_RANK)*"
    same slurm$task ompi$task
done
accepts vocabtrim-calibrate --merge slurm0 slurm1 slurm2 --counts-out merged -f
same whole merged

# Counting and merging at once.
accepts vocabtrim-calibrate --tokenizer none --id-bytes 2 --n-vocab 1000 --keep 999 \
    --corpus corpus --holdout 0.3 --counts-out half
accepts vocabtrim-calibrate --tokenizer none --id-bytes 2 --n-vocab 1000 --keep 999 \
    --corpus more.bin --holdout 0.3 --merge half --counts-out merged -f
same whole merged
