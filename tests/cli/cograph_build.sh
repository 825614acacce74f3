# cograph-build: its help; the same bytes for any threads, shards and memory; what it
# refuses; what it leaves behind.
. "$CLI_TESTS/lib.bash"
helps cograph-build
mkdir corpus
for part in 1 2 3; do
    list=()
    for ((i = 0; i < 4000; i++)); do list+=($((i * i * part % 97))); done
    ids "corpus/$part.bin" "${list[@]}"
done
count() { cograph-build --tokenizer none --id-bytes 2 --n-vocab 1000 --breaks 96 --corpus corpus \
    "$@"; }
accepts count --threads 1 -o one.specb --counts-out whole
prints "ids: 11,753 tokens in 3 documents
273 edges of 48 tokens, 273 *successors*share of pairs
           8         5.7         100.000%*
       1,024         5.7         100.000%"
accepts count --threads 3 --memory 32 -o three.specb
same one.specb three.specb
for shard in 0 1 2; do
    accepts count --shard $shard/3 --counts-out part$shard
    [ ! -s ../err ] || fail "warned: $(cat ../err)"
done
accepts count --shard 0/3 -o shard.specb
prints "ids: 3,917 tokens in 1 documents
93 edges of 48 tokens*"
warns '*the graph will contain shard 0/3 of the corpus only*'
accepts cograph-build --merge part2 part0 part1 --counts-out merged -o merged.specb
same whole merged
same one.specb merged.specb
gzip -c part0 >part0.gz
cat part2 part1 | cograph-build --merge - part0.gz --counts-out - -q >piped || fail "pipe"
same whole piped
accepts specrt-bundle verify one.specb
accepts count --json -o json.specb
has 'tool=cograph-build *' tokenizer.name=ids tokenizer.n_vocab=1000 options=messages=assistant \
    n_tokens=11753 n_documents=3 n_bytes=48000 digest=af87547c9d0b6ca3 n_pairs=11504 n_sources=48 \
    n_edges=273 n_edges_rule=273 successors=1000 successor_count=1 max_degree=64 min_count=5 \
    tau=0.0001 bytes_read=24000 n_bad_records=0 'peak_bytes=*' 'shares[].successors=8 64 256 1024' \
    'shares[].rows_mean=5.7343 5.7343 5.7343 5.7343' 'shares[].share_of_pairs=1 1 1 1'
json ../out n_tokens tokens_per_second seconds | xargs | awk '{ exit !($2 * $3 > 0.99 * $1) }' ||
    fail "counting took longer than all: $(cat ../out)"

# Figures counted by hand: 1 2 twice, 2 1 twice, 1 3, 3 4, and behind the break 5 2.
ids hand.bin 1 2 1 2 1 3 4 0 5 2
hand() { accepts cograph-build --tokenizer none --id-bytes 2 --n-vocab 12 --breaks 0 \
    --corpus hand.bin -o hand.specb -f "$@"; }
shows() { diff - ../out || fail "another table"; }
hand --min-count 2
shows <<'END'
ids: 9 tokens in 1 documents
5 edges of 4 tokens, 2 of them by EvoSpec's rule

  successors   mean rows   share of pairs
           8         1.4         100.000%
          64         1.4         100.000%
END
hand --successors 1
shows <<'END'
ids: 9 tokens in 1 documents
4 edges of 4 tokens, 0 of them by EvoSpec's rule

  successors   mean rows   share of pairs
           8         1.0          85.714%
END
accepts cograph-build --tokenizer none --id-bytes 2 --n-vocab 5000 --successors 5000 \
    --corpus hand.bin -o wide.specb
[ "$(awk '$3 == "100.000%" { print $1 }' ../out | xargs)" = "8 64 256 1,024 4,096" ] ||
    fail "other steps: $(cat ../out)"
hand --successors 1 --min-count 1 --successor-count 2 --tau 0.9 --json
has n_tokens=9 n_documents=1 n_bytes=40 bytes_read=20 n_pairs=7 n_sources=2 n_edges=2 \
    n_edges_rule=1 successors=1 successor_count=2 min_count=1 tau=0.9 'shares[].successors=8' \
    'shares[].rows_mean=0.7143' 'shares[].share_of_pairs=0.5714'

# Beside other sections, and not twice without force.
accepts vocabtrim-calibrate --tokenizer none --id-bytes 2 --n-vocab 1000 --keep 999 \
    --corpus corpus --holdout 0 --size 50 -o both.specb
accepts count -o both.specb
refuses 2 "*: both.specb: *cograph*" count -o both.specb
refuses 2 "*: whole: *" count --counts-out whole

# Text through a tokenizer, and a graph for another one.
echo "Hello world, hello world. Hello world, hello world." >a.txt
accepts cograph-build --tokenizer "$TOKENIZER" --corpus a.txt -o text.specb
warns "*no edge satisfies EvoSpec's rule*"
accepts cograph-build --tokenizer "$TOKENIZER" --corpus a.txt --counts-out text
printf '{"text": "Hello world, number %d."}\n' 1 2 3 >three.jsonl
accepts vocabtrim-calibrate --tokenizer "$TOKENIZER" --corpus three.jsonl --size 900 --json
expected=$(json ../out n_tokens)
accepts cograph-build --tokenizer "$TOKENIZER" --corpus three.jsonl --json
has n_tokens=$expected n_pairs=18 n_sources=8 n_edges=10 n_edges_rule=0 successors=1024 \
    digest=5cb65f2e0f54c548 bytes_read=105
refuses 3 "*: part0: *pairs of another tokenizer; expected *, found ids with 1000" cograph-build \
    --merge text part0 --counts-out x
refuses 3 "*: text: pairs of another tokenizer; expected ids with 7 ids, found *" cograph-build \
    --tokenizer none --n-vocab 7 --merge text --counts-out x

# Bad input.
ids few.bin 1 2 3 4
few() { cograph-build --tokenizer none --id-bytes 2 --n-vocab 12 --corpus few.bin "$@"; }
refuses 3 "*expected an edge, found that none of 3 pairs occurs 2 times; give more text*" few \
    --successor-count 2 -o x.specb
accepts few -o few.specb
ids one.bin 1
refuses 3 "*expected at least two adjacent tokens*" cograph-build --tokenizer none --id-bytes 2 \
    --n-vocab 12 --corpus one.bin -o x.specb
head -c 500 whole >cut
refuses 3 "*: cut: offset 500: the file is cut" cograph-build --merge cut -o x.specb
refuses 3 "*: few.bin: offset *: not a count file of pairs*" cograph-build --merge few.bin \
    -o x.specb
refuses 1 "*/nonexistent/corpus*" cograph-build --tokenizer none --id-bytes 2 --n-vocab 12 \
    --corpus /nonexistent/corpus -o x.specb
refuses 2 "*expected -o FILE, *" few
for flag in "--n-vocab 12" "--breaks 3"; do
    refuses 2 "*--n-vocab and --breaks: expected --tokenizer none with them" cograph-build \
        --tokenizer "$TOKENIZER" --corpus few.bin $flag -o x.specb
done
refuses 2 "*--corpus: expected --tokenizer*" cograph-build --corpus few.bin -o x.specb
if [ -c /dev/full ]; then
    refuses 1 "*: /dev/full: *" count --counts-out /dev/full -o x.specb
    refuses 1 "*: /dev/full: *" count -q --counts-out new -o /dev/full
fi
refuses 1 "*--temp: nowhere: No such file or directory" cograph-build --tokenizer "$TOKENIZER" \
    --corpus "$CLI_TESTS/lib.bash" --temp nowhere -o x.specb
