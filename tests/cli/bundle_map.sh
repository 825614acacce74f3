# A token map in every format from every other.
. "$CLI_TESTS/lib.bash"
printf '499\n7\n300\n5\n2\n255\n' >ranked.txt
sort -n ranked.txt >rising.txt
for format in sglang-pt vllm-json text npy eagle3-pt safetensors; do
    accepts specrt-bundle map ranked.txt --values absolute --format $format --n-vocab 500 \
        -o map.$format.x
    warns "specrt-bundle: map.$format.x: 6 ids of text list (absolute), format $format"
    accepts specrt-bundle map map.$format.x --n-vocab 500 --format text -o - -q
    case $format in sglang-pt | text) expected=ranked.txt ;; *) expected=rising.txt ;; esac
    cmp ../out $expected || fail "$format gives $(xargs <../out)"
done
accepts specrt-bundle map ranked.txt --format speculators --n-vocab 500 -o data --json
has file=data format=speculators 'kind=text list' values=absolute n_ids=6 n_dropped=0 n_vocab=500
same data/d2t-6.npy map.npy.x/d2t.npy
accepts specrt-bundle map /dev/stdin --values absolute --format text -o - -q < <(cat ranked.txt)
cmp ../out ranked.txt || fail "a pipe gives $(xargs <../out)"
# A list of JSON is of ids, also a short one whose values would do as offsets.
seq 3 4 1200 >spread.txt
accepts specrt-bundle map spread.txt --values absolute --format vllm-json -o spread.json
accepts specrt-bundle map spread.json --format text -o back.txt
warns "specrt-bundle: back.txt: 300 ids of JSON list (absolute), format text"
same back.txt spread.txt
# More entries than a vocabulary has are refused before they are read.
{ printf '\223NUMPY\1\0\166\0'; printf '%-117s\n' \
    "{'descr': '<i8', 'fortran_order': False, 'shape': (20000000,), }"; } >huge.npy
truncate -s 160000128 huge.npy
refuses 3 "*huge.npy: npy array of 20000000 entries; expected at most 16777216, of a vocabulary" \
    specrt-bundle map huge.npy --format text -o x
rm huge.npy
refuses 2 "*expected --format*" specrt-bundle map ranked.txt -o x
refuses 2 "*expected -o FILE" specrt-bundle map ranked.txt --format text
refuses 2 "*--values: *'x'" specrt-bundle map ranked.txt \
    --values x --format text -o x
refuses 2 "*token-freq: expected counts; the map has none" specrt-bundle map ranked.txt \
    --format token-freq -o x
refuses 2 "*expected at least one id and the size of the vocabulary" specrt-bundle map ranked.txt \
    --format npy -o x
refuses 3 "*ranked.txt: *entry 0 is 499; *[[]0, 100)" specrt-bundle map ranked.txt \
    --values absolute --n-vocab 100 --format text -o x
