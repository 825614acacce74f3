# What is inside, for people and for programs; damaged files are named.
. "$CLI_TESTS/lib.bash"
golden=$CLI_TESTS/../golden/bundles/v1.0-raw.specb
cp "$golden" a.specb
accepts specrt-bundle info a.specb
prints "a.specb: bundle, 3 sections, 1,808 bytes

tokenizer  golden: 20 ids, 18 normal
*head       golden head [[]20, 64]
ranks      8 of 19 valid ids by default; 2 forced, 1 of them terminators; 20 ranked
           171,000 tokens counted
forced     3 10
top        *
section   stored bytes  depends on    content
ident *tokenizer and head
prov *
ranks              272  tokenizer     token ids by rank
*provenance of sections (more: -v, all of it: --json)
*"
accepts specrt-bundle info a.specb -v
prints "*section *raw bytes *version*
ranks              272           272   1.00        1  ???????????????? (raw)
*provenance of sections (all of it: --json)
*"
accepts specrt-bundle info a.specb --json
has file=a.specb bytes=1808 'sections[].tag=ident prov ranks' tokenizer.name=golden \
    tokenizer.n_vocab=20 tokenizer.n_normal=18 'head.name=golden head' ranks.n_default=8 \
    'ranks.forced=3 10' ranks.n_ranked=20 ranks.n_tokens=171000 'provenance=?*' cluster=null
[ "$(wc -l <../out)" = 1 ] || fail "more than one line of JSON"

refuses 1 "specrt-bundle: none.specb: *" specrt-bundle info none.specb
refuses 1 "specrt-bundle: .: *" specrt-bundle info .
: >empty
refuses 3 "specrt-bundle: empty: *" specrt-bundle info empty
echo hello >text
refuses 3 "specrt-bundle: text: *" specrt-bundle info text
head -c 1000 a.specb >cut.specb
refuses 3 "specrt-bundle: cut.specb: *" specrt-bundle info cut.specb
{ head -c 1600 a.specb; printf 'X'; tail -c +1602 a.specb; } >flipped.specb
refuses 3 "specrt-bundle: flipped.specb: section 'ranks': checksum*" specrt-bundle info \
    flipped.specb
refuses 2 "*expected one bundle, found 0 arguments" specrt-bundle info
refuses 2 "*expected one bundle, found 2 arguments" specrt-bundle info a.specb a.specb
if specrt-bundle info a.specb >/dev/full 2>../err; then fail "a full disk was not noticed"; fi
[ "$(cat ../err)" = "specrt-bundle: stdout: cannot write: No space left on device" ] ||
    fail "$(cat ../err)"

# What routes and searches.
head_file model.safetensors 300
accepts cluster-build --model model.safetensors --router none --clusters 12 -o head.specb
accepts specrt-bundle info head.specb
prints '*
tokenizer  not recorded
head *'
accepts specrt-bundle info head.specb --json
has tokenizer=null head.rows=300
ids corpus.bin 5 6 5 6 7 5 6
accepts cograph-build --tokenizer none --id-bytes 2 --n-vocab 300 --corpus corpus.bin \
    --successor-count 1 -o b.specb
accepts cluster-build --model model.safetensors --router centroid --clusters 12 -o b.specb
accepts sketch-build --model model.safetensors --signs 32 --min-recall 0 -o b.specb
accepts hnsw-build --model model.safetensors --m 4 --ef-construction 16 --min-recall 0 -o b.specb
ids frequent.bin $(seq 256 299)
accepts vocabtrim-calibrate --tokenizer none --id-bytes 2 --n-vocab 300 --keep 299 --holdout 0 \
    --corpus frequent.bin --size 40 -q -o b.specb
for vectors in f16 none; do
    accepts hnsw-build --model model.safetensors --m 4 --ef-construction 16 --min-recall 0 \
        --vectors $vectors -o h.specb -f
    accepts specrt-bundle info h.specb -v
    prints "*, vectors $vectors
*"
done
is_narrow() { [ "$(LC_ALL=C.UTF-8 awk 'length > 100' ../out)" = "" ] || fail "$(cat ../out)"; }
# A screen.
accepts specrt-bundle info b.specb
prints "*
forced     299
top *
*
centroid * head          300 rows in 12 clusters of 25 to 25; router centroid
cograph * 4 successors of 3 of 300 tokens
hnsw * of 300 rows; recall of the ten best * at ef *
sketch *300 rows of 8 columns: signs in 32 directions, two bits in 240
*provenance of sections (more: -v, all of it: --json)
centroid   made by cluster-build *, model model.safetensors
cograph    made by cograph-build *
hnsw       made by hnsw-build *, model model.safetensors, queries synthetic
ranks      made by vocabtrim-calibrate *, domains frequent.bin,
           options messages=assistant folds=1 seed=1
sketch     made by sketch-build *"
! grep -q recall_at_10 ../out || fail "figures of sections without -v: $(cat ../out)"
[ "$(wc -l <../out)" -le 40 ] || fail "$(wc -l <../out) lines are no screen"
is_narrow
# All that people read.
accepts specrt-bundle info b.specb -v
prints "*
centroid  clusters by level *
cograph   at most * successors each, * 7 tokens counted, *
 *obey EvoSpec's rule*
hnsw      8 columns; m 4, *metric ip, vectors int8
*provenance of sections (all of it: --json)
centroid   made by cluster-build *model model.safetensors,*
cograph    made by cograph-build *
hnsw       made by hnsw-build *recall_at_10 *
sketch     made by sketch-build *recall (*"
[ "$(grep -A 99 '^provenance' ../out | wc -l)" -lt 40 ] || fail "provenance is no summary"
is_narrow
verbose=$(cat ../out)
accepts specrt-bundle info b.specb --json
levels=$(json ../out hnsw.n_levels)
case $verbose in
    *"m 4, ef-construction 16, $levels levels; metric ip"*) ;;
    *) fail "expected $levels levels: $verbose" ;;
esac
has centroid.n_clusters=12 cograph.n_vocab=300 hnsw.n_rows=300 'hnsw.recall_at_10=*' sketch.rank=240
accepts specrt-bundle verify b.specb --model model.safetensors
