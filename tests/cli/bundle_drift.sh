# How much of today's text a list covers: by hand on ids, and by calibrate's own figure on text.
. "$CLI_TESTS/lib.bash"
count() { # FILE ID... : of ids of a vocabulary of 10
    local file=$1; shift
    ids $file.bin "$@"
    accepts vocabtrim-calibrate --tokenizer none --n-vocab 10 --id-bytes 2 --corpus $file.bin \
        --domain $file --holdout 0 --counts-out $file.counts
}
ids then.bin 1 1 1 1 2 2 2 3 3 4
accepts vocabtrim-calibrate --tokenizer none --n-vocab 10 --id-bytes 2 --corpus then.bin \
    --holdout 0 --size 2 -o a.specb
count same 1 1 1 1 2 2 2 3 3 4
count other 1 5 5 5 6 6 7 2 4 4
accepts specrt-bundle drift a.specb --counts same.counts --json
has size=2 n_tokens=10 coverage=0.7 coverage_low=null coverage_calibrated=0.7 \
    coverage_calibrated_low=null drop=0 drop_low=null 'missing[].id=3 4' 'missing[].n=2 1' \
    'domains[].name=same' 'domains[].coverage=0.7' 'domains[].n_tokens=10' 'domains[].language=null'

# Another text: 2 of its 10 tokens; of both files together 9 of 20.
specrt-bundle drift a.specb --counts other.counts --json >../out 2>../err
[ $? = 4 ] || fail "$(cat ../out ../err)"
has coverage=0.2 drop=0.5 'missing[].id=5 4 6 7' 'missing[].n=3 2 2 1'
warns '*coverage fell by 50.00 points since calibration, more than 2.00; calibrate again*'
accepts specrt-bundle drift a.specb --counts other.counts same.counts --max-drop 0.3
prints '20 tokens, a list of 2

  at calibration    70.00%
  in this text      45.00%
     20.00%  other
     70.00%  same

most frequent ids outside the list: 4 (3) 5 (3) 3 (2) 6 (2) 7 (1)'
# As much as may be lost is no finding.
count half 1 1 1 2 5 5 5 5
ids quarters.bin 1 1 2 2 3 3 4 4
accepts vocabtrim-calibrate --tokenizer none --n-vocab 10 --id-bytes 2 --corpus quarters.bin \
    --holdout 0 --size 3 -o quarters.specb
accepts specrt-bundle drift quarters.specb --counts half.counts --max-drop 0.25
prints '*at calibration    75.00%
  in this text      50.00%*outside the list: 5 (4)'
specrt-bundle drift quarters.specb --counts half.counts --max-drop 0.249 >../out 2>../err
[ $? = 4 ] || fail "$(cat ../out ../err)"
# Of another size no coverage is recorded, so none can have fallen.
accepts specrt-bundle drift a.specb --counts other.counts --size 4 --json
has size=4 coverage=0.4 coverage_calibrated=null drop=null drop_low=null 'missing[].id=5 6 7'

# Judged by intervals. Half of a text by the list of the other half: a fall of 2 points is chance.
faq=$CLI_TESTS/../../data/corpus/qa/faq.jsonl
awk 'NR % 2' "$faq" >odd.jsonl
awk 'NR % 2 == 0' "$faq" >even.jsonl
# Where the interval is narrow less than 2 points are more than chance: two new words in a tenth of
# the records.
for ((i = 0; i < 400; i++)); do
    echo "{\"text\": \"The list number $((i % 7)) and $((i % 11)) of $((i % 13)) quick brown foxes \
that jump over the lazy dogs, again and again, all day long.\"}"
done >words.jsonl
awk 'NR % 10 == 0 { sub("dogs", "zyzzyva zyzzyva") } { print }' words.jsonl >new.jsonl
for name in odd words; do
    accepts vocabtrim-calibrate --tokenizer "$TOKENIZER" --corpus $name.jsonl -o $name.specb \
        --size $([ $name = words ] && echo 300 || echo 2000)
done
for name in even new; do
    accepts vocabtrim-calibrate --tokenizer "$TOKENIZER" --corpus $name.jsonl \
        --counts-out $name.counts
done
accepts specrt-bundle drift odd.specb --counts even.counts
prints '16,819 tokens, a list of 2,000

  at calibration    79.54%  (95% interval 77.42% to 81.50%)
  in this text      79.06%  (95% interval 77.58% to 80.46%)

*outside the list: 12550 (28) 18458 (28) 3940 (21) *'
specrt-bundle drift words.specb --counts new.counts >../out 2>../err
[ $? = 4 ] || fail "$(cat ../out ../err)"
warns '*coverage fell by 1.94 points since*(95% interval 1.63 to 2.31); calibrate again*'
accepts specrt-bundle drift words.specb --counts new.counts --max-drop 0.02 --json
has coverage=0.9806 coverage_low=0.9769 coverage_high=0.9837 coverage_calibrated=1 \
    coverage_calibrated_low=0.9996 drop=0.0194 drop_low=0.0163 drop_high=0.0231 \
    'missing[].id=1686 14559 16445' 'missing[].n=80 80 80'
# A text of one record has no interval, and so has its drop: 2 points count.
head -n 1 new.jsonl >one.json
accepts vocabtrim-calibrate --tokenizer "$TOKENIZER" --corpus one.json --counts-out one.counts
accepts specrt-bundle drift words.specb --counts one.counts --json
has n_tokens=30 coverage=1 coverage_low=null drop=0 drop_low=null drop_high=null missing=
accepts specrt-bundle info odd.specb
prints '*ranks      2,000 of 32,758 valid ids by default; 6 forced, 2 of them terminators; *
           17,166 tokens counted
*coverage   0.9189 of the calibration text, 0.7954 of held-out text (95% interval 0.7742 to 0.8150)
*'
accepts specrt-bundle info odd.specb --json
has ranks.coverage_holdout=0.7954 ranks.coverage_holdout_low=0.7742 \
    ranks.coverage_holdout_high=0.815

# As calibrate counts it.
code=$CLI_TESTS/../../data/corpus/code
accepts vocabtrim-calibrate --tokenizer "$TOKENIZER" --corpus "$code/c.txt" --size 500 \
    --holdout 0 -o c.specb --json
figure=$(json ../out coverage_calibration)
accepts vocabtrim-calibrate --tokenizer "$TOKENIZER" --corpus "$code/c.txt" --counts-out c.counts
accepts specrt-bundle drift c.specb --counts c.counts --json
has coverage=$figure n_tokens=24842

refuses 2 '*expected --counts FILE' specrt-bundle drift a.specb
refuses 3 \
    '*c.counts: expected counts by the tokenizer of a.specb, found those of * with 32768 ids' \
    specrt-bundle drift a.specb --counts c.counts
refuses 2 '*--size 11: expected at most 10, the ids of a.specb*' \
    specrt-bundle drift a.specb --counts same.counts --size 11
refuses 1 '*: gone: *' specrt-bundle drift a.specb --counts gone
refuses 3 '*: a.specb:1: *' specrt-bundle drift a.specb --counts a.specb
