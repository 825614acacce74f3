# Files of token ids: exact counts, ties by lower id, forced ids first, exactly N.
. "$CLI_TESTS/lib.bash"
ids a.bin 5 5 5 3 3 9 9 2 7 5
run() { vocabtrim-calibrate --tokenizer none --id-bytes 2 --n-vocab 12 --corpus a.bin --holdout 0 \
    "$@"; }

# 7 is the terminator: first, and not counted as text. 3 and 9 tie.
accepts run --keep 7 --size 4 --export text=list.txt -o a.specb
prints "ids: 9 tokens in 1 documents; 12 ids, 1 of them forced*>        4 *88.889%*"
[ "$(tr '\n' ' ' <list.txt)" = "7 5 3 9 " ] || fail "the list is $(tr '\n' ' ' <list.txt)"
[ -s a.specb ] || fail "no bundle"

accepts run --keep 7 --size 12 --export text=all.txt
[ "$(tr '\n' ' ' <all.txt)" = "7 5 3 9 2 0 1 4 6 8 10 11 " ] || fail "all: $(cat all.txt)"

# Without --keep nobody knows what ends a text.
accepts run --size 3 --export text=none.txt
warns "*warning: no terminators are known, so the drafter may be unable to end a text; name them \
with --keep"
prints "ids: 10 tokens in 1 documents; 12 ids, 0 of them forced*
>        3      80.000% *"

accepts run --keep 7 --mass 0.5 --export text=mass.txt
prints "*>        3      66.667% *"
warns "*warning: --mass 0.5: 0 held-out tokens cannot show it*(11.1% of further text may be any*"
[ "$(tr '\n' ' ' <mass.txt)" = "7 5 3 " ] || fail "mass: $(cat mass.txt)"
accepts run --keep 7 --min-count 2 --export text=min.txt
[ "$(tr '\n' ' ' <min.txt)" = "7 5 3 9 " ] || fail "min-count: $(cat min.txt)"

# What ends a text is counted apart from its tokens.
accepts run --keep 7,2 --counts-out ends.counts
[ "$(tr '\t' ' ' <ends.counts | sed 's/ $//')" = "#specrt-counts 2
#tokenizer $(printf 0%.0s {1..64}) 12 12 ids
#terminators 2,7
#special
#reserved
#options messages=assistant folds=1 seed=1
#domain raw 1 40 2 c106b2ec3b68ab9e a.bin
3 2
5 4
9 2
#end 3 25" ] || fail "$(cat ends.counts)"
many=()
for i in $(seq 62); do many+=(--export "text=many-$i.txt"); done
refuses 2 "*--export: 61 at most*" run --keep 7 "${many[@]}"
accepts run --keep 7 "${many[@]:0:122}"
[ -s many-61.txt ] || fail "61 lists were asked for"

# --keep as ranges, and as a file.
printf '7\n8-9\n' >keep.txt
accepts run --keep keep.txt --size 5 --export text=k1.txt
prints "ids: 7 tokens in 1 documents; 12 ids, 3 of them forced*>        5      85.714% *"
accepts run --keep 9,7-8 --size 5 --export text=k2.txt
same k1.txt k2.txt
[ "$(tr '\n' ' ' <k1.txt)" = "7 8 9 5 3 " ] || fail "keep: $(cat k1.txt)"

# The default size gives way to a quarter of a small vocabulary, and says so.
accepts run --keep 7 -o default.specb
warns "*size 3 instead of the default 32768: the vocabulary has 12 valid ids, 1 of them forced"
