# Domains: named by what tells the arguments apart, one when there are very many, or as asked for.
. "$CLI_TESTS/lib.bash"
run() { accepts vocabtrim-calibrate --tokenizer none --id-bytes 2 --n-vocab 12 --keep 7 \
    --holdout 0 --counts-out c -f "$@"; }
names() { grep '^#domain' c | cut -f 7 | tr '\n' '|'; }
mkdir -p a/x b/x
ids a/x/1.bin 1 2 3
ids b/x/1.bin 2 3 4
ids 2.bin 3 4 5
run --corpus a/x/1.bin b/x/1.bin 2.bin
warns "vocabtrim-calibrate: 9 tokens, domains: 3"
[ "$(names)" = "2.bin|a/x/1.bin|b/x/1.bin|" ] || fail "names: $(names)"
run --corpus "$PWD/a/" ./b//
[ "$(names)" = "a|b|" ] || fail "names: $(names)"
run --corpus 2.bin 2.bin # twice the same is one domain, counted twice
[ "$(names)" = "2.bin|" ] && grep -q "^3	2$" c || fail "twice: $(cat c)"
run --corpus a b --domain "my text"
[ "$(names)" = "my text|" ] || fail "names: $(names)"
odd=$'tab\there.bin'
cp 2.bin "$odd"
run --corpus "$odd"
[ "$(names)" = "tab?here.bin|" ] || fail "names: $(names)"
accepts vocabtrim-calibrate --merge c --size 3 --json
has 'domains[].name=tab[?]here.bin' n_tokens=3 'sweep[].size=3 12' \
    'sweep[].coverage_calibration=0.6667 1' coverage_holdout=null n_selected=3

# Columns stand under each other whatever the names are made of.
cp 2.bin 日本語.bin
cp 2.bin $'caf\351.bin'
cp 2.bin a_very_long_name_of_a_file_that_does_not_fit_its_column_éé.bin
accepts vocabtrim-calibrate --tokenizer none --id-bytes 2 --n-vocab 12 --keep 7 --holdout 0 \
    --corpus ./*.bin -o t.specb --size 3
[ "$(LC_ALL=C.UTF-8 grep -c '^  日本語.bin  *3   *1 ' ../out)" = 1 ] || fail "$(cat ../out)"
prints "ids: 15 tokens in 5 documents; 12 ids, 1 of them forced
*At 3 ids, by domain, the worst first:
*  a_very_long_name_of_a_file_that_does_not_fit_its               3       1      66.667% *
  caf[?].bin  *
  tab[?]here.bin  *"
rows=$(sed -n '/by domain/,/^$/p' ../out | LC_ALL=C.UTF-8 sed 's/日本語/______/')
[ "$(LC_ALL=C.UTF-8 awk 'NR > 2 && NF { print length($0) }' <<<"$rows" | sort -u | wc -l)" = 1 ] ||
    fail "$rows"
rm 日本語.bin $'caf\351.bin' a_very*

for ((i = 0; i < 70; i++)); do cp 2.bin "many$i.bin"; done
run --corpus many{0..63}.bin --weights many1.bin:2 --size 3 --json # as many as are told apart
[ "$(names | tr '|' '\n' | wc -l)" = 64 ] || fail "names: $(names)"
has n_tokens=192 'domains[].#=64' 'domains[weight=2].name=many1.bin' \
    'domains[name=many63.bin].coverage_calibration=0.6667' \
    'domains[name=many63.bin].digest=5eded7d1d467c50b' 'domains[n_bytes=12].#=64'
run --corpus many*.bin
warns "*70 corpus arguments are counted as one domain; give folders or --domain to tell them apart*"
[ "$(names)" = "corpus|" ] || fail "names: $(names)"
refuses 2 "*--weights with more than 64 --corpus arguments; give folders" vocabtrim-calibrate \
    --tokenizer none --id-bytes 2 --n-vocab 12 --keep 7 --corpus many*.bin --weights many1.bin:2 \
    -o x.specb

# One text cannot be of two origins.
run --corpus 2.bin --provenance target
accepts vocabtrim-calibrate --tokenizer none --id-bytes 2 --n-vocab 12 --keep 7 --holdout 0 \
    --corpus 2.bin --counts-out raw
refuses 3 "*: raw: domain '2.bin': expected provenance target, as in the counts before, found raw" \
    vocabtrim-calibrate --merge c raw -o x.specb
