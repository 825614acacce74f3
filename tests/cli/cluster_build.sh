# cluster-build: its help, the same bytes for any threads, what bundles hold of it, what it
# refuses, what it leaves behind.
. "$CLI_TESTS/lib.bash"
helps cluster-build
head_file model.safetensors 300
build() { cluster-build --model ./model.safetensors "$@"; }
accepts build --router none --clusters 12 --threads 1 -o one.specb
prints "300 rows of 8 columns in 12 clusters of 19 to 32
*0.6849 after 8 iterations
router none, clusters by level 5 5 1 1 1 1 1 1: about 58 rows *"
warns "*warning: ./model.safetensors: expected a tokenizer inside, found none; give --tokenizer*"
accepts build --router none --clusters 12 --threads 3 -o three.specb
same one.specb three.specb
accepts build --router none --clusters 12 --seed 2 -o other.specb
cmp -s one.specb other.specb && fail "the seed does not matter"
accepts build --router none --clusters 7 --balanced --json -o balanced.specb
has 'tool=cluster-build *' model=model.safetensors tensor=lm_head.weight seed=1 n_rows=300 \
    n_cols=8 n_reserved=0 n_zero=0 n_duplicate=0 n_clusters=7 balanced=true largest=1 \
    size_least=42 size_mean=42.8571 size_most=43 'objective=160.5893 168.1636 * 179.7683 179.802' \
    objective_final=179.3328 objective_before_balancing=179.802 'schedule=2 2 1 1 1 1 1 1' \
    router.kind=none router.rows_mean=57.1429 'seconds_kmeans=*' 'peak_bytes=???????*'
accepts build --router none --clusters 12 --largest 1.5 --json -f -o one.specb
has balanced=false largest=1.5 size_least=19 size_mean=25 size_most=32 \
    'objective=176.6036 * 205.4741' objective_final=205.4741 objective_before_balancing=205.4741 \
    router.rows_mean=58.3333
accepts build --clusters 20 --mean-rows 45 -o one.specb
prints "300 rows of 8 columns in 20 clusters of 15 to 15
*0.7473 after 12 iterations (0.7620 before *)
router centroid, clusters by level 3 3 3 3 3 3 3 3: about 45 rows *"
accepts build --clusters 20 --schedule 9,4,1 -o one.specb -f
accepts specrt-bundle info one.specb -v
prints "*centroid *300 rows in 20 clusters of 15 to 15; router centroid*clusters by level 9 4 1*"
accepts specrt-bundle info one.specb --json
has group=null cluster.n_clusters=12 cluster.n_members=300 cluster.size_least=19 \
    cluster.size_most=32 cluster.router=none 'cluster.schedule=5 5 1 1 1 1 1 1' \
    centroid.n_clusters=20 centroid.router=centroid 'centroid.schedule=9 4 1' \
    'sections[tag=centroid].raw_bytes=1704' 'sections[tag=cluster].raw_bytes=1332' \
    'sections[tag=cluster].depends=head' 'head.name=lm_head.weight' head.rows=300 head.cols=8 \
    'provenance.centroid.tool=cluster-build *' provenance.centroid.objective_final=224.1956 \
    'provenance.centroid.objective=202.8808 * 228.5903' provenance.centroid.examples=null \
    provenance.cluster.largest=1.5 provenance.cluster.size_mean=25
accepts specrt-bundle verify one.specb
refuses 2 "*one.specb: has a section centroid already; *" build --clusters 20 -o one.specb

# Bad input.
refuses 2 "*expected 1 to 300, the rows there are to cluster, found 301" build --clusters 301 \
    -o x.specb
refuses 2 "*--largest: expected 0 or at least 1, found 0.5*" build --largest 0.5 -o x.specb
refuses 2 "*--mean-rows: expected room for one of the 20 clusters*" build --clusters 20 \
    --mean-rows 14 -o x.specb
refuses 2 \
    "*--schedule: expected harmonic, flat or 1 to 8 numbers from 1 to the 20 clusters, found '21'" \
    build --clusters 20 --schedule 21 -o x.specb
refuses 2 "*--router: expected *, found 'best'" build --router best -o x.specb
refuses 2 "*expected -o FILE or --json" build
refuses 2 "*expected --model FILE" cluster-build -o x.specb
refuses 1 "*: nowhere.gguf: *" cluster-build --model nowhere.gguf -o x.specb
refuses 3 "*model.safetensors: \"lm_head.weight\": expected a row for each of the tokenizer's *" \
    build --tokenizer "$TOKENIZER" -o x.specb
head -c 1024 /dev/zero >zeros && head_file zero.safetensors 64 00 &&
    head -c -1024 zero.safetensors >cut && cat cut zeros >zero.safetensors
refuses 3 "*: zero.safetensors: expected rows to cluster, found only zero*" cluster-build \
    --model zero.safetensors --clusters 2 -o x.specb
rm cut zeros zero.safetensors
head_file small.safetensors 40
refuses 3 "*one.specb: head: expected *" cluster-build --model small.safetensors \
    --router none --clusters 2 -o one.specb -f
[ ! -c /dev/full ] || refuses 1 "*: /dev/full: *" build --clusters 3 -o /dev/full

# A tokenizer that is not the model's own; a report that is there; neither waits for the clusters.
refuses 3 "*target.gguf: *tokenizer*" cluster-build --model "$target" \
    --tokenizer "$CLI_TESTS/../golden/tokenizers/spm.json" -o x.specb
# Tokens of some clusters, for those who ask for detail.
accepts cluster-build --model "$target" --router none --clusters 4 -o sample.specb
prints "32,758 rows of 256 columns in 4 clusters of 4,298 to 13,523
*0.4037 after 24 iterations
*left out: 10 reserved rows, 0 of zeros, 0 equal to others
*about 8,190 rows *"
accepts specrt-bundle info sample.specb
prints "*rows in 4 clusters of *"
! grep '^ *[0-3] *[0-9]* rows' ../out || fail "samples of clusters without -v"
accepts specrt-bundle info sample.specb -v
[ "$(grep -c '^ *[0-3] *[0-9]* rows  [^ ]' ../out)" = 4 ] || fail "$(cat ../out)"
accepts specrt-bundle info sample.specb --json
has 'provenance.cluster.examples[].size=4298 9302 13523 5635' \
    'provenance.cluster.examples[0].tokens=␣target ␣data ␣file ␣value ␣item ␣type'
