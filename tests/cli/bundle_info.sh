# What is inside, for people and for programs; damaged files are named.
. "$CLI_TESTS/lib.bash"
golden=$CLI_TESTS/../golden/bundles/v1.0-raw.specb
cp "$golden" a.specb
accepts specrt-bundle info a.specb
prints "a.specb: bundle, 3 sections, 1,808 bytes
*section *raw bytes *
  ident *
  prov *
  ranks          1            272            272   1.00  ????????????????  tokenizer (raw)
*tokenizer  golden: 20 ids, 18 normal
*head       golden head [[]20, 64]
*ranks      8 of 19 valid ids by default; 2 forced, 1 of them terminators; 20 ranked
           171,000 tokens counted
forced     3 10
top        *
*provenance of sections (all of it: --json)
*"
accepts specrt-bundle info a.specb --json
prints \
    '{"file":"a.specb","bytes":1808,"sections":[[]{"tag":"ident",*"tokenizer":{"name":"golden",*"ranks":{"n_default":8,*"forced":[[]3,10],*"provenance":{*}}'
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
ids corpus.bin 5 6 5 6 7 5 6
accepts cograph-build --tokenizer none --id-bytes 2 --n-vocab 300 --corpus corpus.bin \
    --successor-count 1 -o b.specb
accepts cluster-build --model model.safetensors --router centroid --clusters 12 -o b.specb
accepts sketch-build --model model.safetensors --codes int8 --rank 4 --min-recall 0 -o b.specb
accepts hnsw-build --model model.safetensors --m 4 --ef-construction 16 --min-recall 0 -o b.specb
accepts specrt-bundle info b.specb
prints "*centroid * rows in 12 clusters *cograph *4 successors of 3 of 300 tokens, at most *
*obey EvoSpec's rule*7 tokens counted*hnsw * of 300 rows of 8 columns; m 4, *\
metric ip, vectors int8; recall *
sketch *rank 4 *
provenance of sections (all of it: --json)
centroid   made by cluster-build *model model.safetensors,*
cograph    made by cograph-build *
hnsw       made by hnsw-build *recall_at_10 *
sketch     made by sketch-build *recall (*"
[ "$(grep -A 99 '^provenance' ../out | wc -l)" -lt 30 ] || fail "provenance is no summary"
[ "$(awk 'f && length > 100; /^provenance/ { f = 1 }' ../out)" = "" ] || fail "$(cat ../out)"
accepts specrt-bundle info b.specb --json
prints \
    '{*"centroid":{*"cograph":{"n_vocab":300,*"hnsw":{"n_rows":300,*"recall_at_10":*"sketch":{*"rank":4,*}*'
accepts specrt-bundle verify b.specb --model model.safetensors
