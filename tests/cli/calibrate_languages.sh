# --by-language: domains by script, the same from threads, shards and merges; shares; warnings.
. "$CLI_TESTS/lib.bash"
# Real text: the sample corpus is English, and each line of these has a language of its own.
english=$CLI_TESTS/../../data/corpus/qa
repeat() { # N TEXT : a record for each, numbered so that they differ
    for ((i = 0; i < $1; i++)); do printf '{"text": "%s %d"}\n' "$2" "$i"; done
}
{
    repeat 120 "Съешь ещё этих булок, да выпей чаю."
    repeat 40 "敏捷的棕色狐狸跳过了懒狗，用 printf 打印出来。"
    repeat 20 "いろはにほへと ちりぬるを、我が世誰ぞ常ならむ。"
    repeat 40 "The quick brown fox jumps over the lazy dog."
    repeat 2 "12 + 30 ="
} >mixed.jsonl
run() { vocabtrim-calibrate --tokenizer "$TOKENIZER" --by-language --holdout 0 \
    --size 2000 -f "$@"; }
count() { run --corpus mixed.jsonl "$english" --counts-out "$@"; }

accepts count c
warns "vocabtrim-calibrate: 83,864 tokens, domains: 8"
names=$(grep '^#domain' c | cut -f 7 | tr '\n' ' ')
expected="mixed.jsonl mixed.jsonl/Cyrillic mixed.jsonl/Han mixed.jsonl/Japanese "
expected="${expected}mixed.jsonl/Latin mixed.jsonl/none qa qa/Latin "
[ "$names" = "$expected" ] || fail "$names"
grep -q '^#options	messages=assistant folds=1 seed=[0-9]* by=language$' c ||
    fail "$(grep '#opt' c)"
documents=$(grep '^#domain	raw' c | awk -F '\t' '$7 ~ /^mixed.*[/]/ { printf "%s ", $3 }')
[ "$documents" = "120 40 20 40 2 " ] || fail "documents: $documents"

# What was counted does not depend on who counted it.
accepts count one --threads 1
same c one
for i in 0 1 2; do accepts count part$i --shard $i/3; done
accepts vocabtrim-calibrate --merge part{0,1,2} --counts-out merged
same c merged
accepts vocabtrim-calibrate --tokenizer "$TOKENIZER" --corpus mixed.jsonl --holdout 0 \
    --counts-out plain
refuses 3 "*plain: *by=language*" \
    vocabtrim-calibrate --merge c plain -o x.specb
# The languages of a text add up to the text.
accepts run --corpus mixed.jsonl --json
has n_tokens=12054 'domains[].language=null Cyrillic Han Japanese Latin none' \
    'domains[].n_documents=0 120 40 20 40 2' 'domains[].n_tokens=0 7680 2440 1440 480 14' \
    'domains[].n_bytes=0 7810 2710 1450 1870 22' 'domains[].weight=1 1 1 1 1 1'
accepts vocabtrim-calibrate --merge plain --json --size 2000
has n_tokens=12054 'domains[].name=mixed.jsonl' 'options=messages=assistant folds=1 seed=1'

# --balance: each language has the tokens of the largest, over both arguments.
accepts run --corpus mixed.jsonl "$english" --balance --json
has 'domains[name=mixed.jsonl/Han].language=Han' 'domains[name=mixed.jsonl].language=null' \
    'domains[language=none].weight=1' 'domains[language=Latin].weight=1 1' \
    'domains[language=Han].weight=29.627' 'sweep[size=2000].coverage_calibration=0.9523'
latin=$(json ../out 'domains[language=Latin].n_tokens' | tr ' ' +)
for language in Cyrillic Han Japanese; do
    json ../out "domains[language=$language].n_tokens" "domains[language=$language].weight" | \
        xargs |
        awk -v all=$((latin)) '{ exit !(($1 * $2 / all - 1) ^ 2 < 1e-8) }' ||
        fail "$language: $(cat ../out)"
done
warns "*covers 95.2% of all tokens, but 80.8% of qa/Latin; drafts in such text are shorter: \
--balance gives each language the same share, a larger --size helps all"
# Weights multiply the shares; a file's name means all its languages.
accepts run --corpus mixed.jsonl "$english" --balance --weights "$english:3,mixed.jsonl:2" --json
has 'domains[language=Latin].weight=2 3' 'domains[language=Cyrillic].weight=18.8255' \
    'sweep[size=2000].coverage_calibration=0.9313'
accepts run --corpus mixed.jsonl --weights mixed.jsonl/Han:5 --json
has 'domains[language=Han].weight=5' 'domains[language=Latin].weight=1'
refuses 2 "*mixed.jsonl/Thai*" run --corpus mixed.jsonl --weights mixed.jsonl/Thai:5 --json
# Without languages each domain has its share.
accepts vocabtrim-calibrate --tokenizer "$TOKENIZER" --corpus mixed.jsonl "$english" \
    --balance --json \
    --size 2000
has 'domains[name=qa].weight=1' 'domains[name=qa].language=null' \
    'sweep[size=4096].coverage_holdout=0.9181' 'sweep[size=4096].coverage_holdout_low=0.9072'

# A list that is short for one of its languages: it is named, the worst first, and balance mends it.
accepts run --corpus mixed.jsonl "$english" --size 400 --weights mixed.jsonl:0.001 -o short.specb
warns "*the list covers *% of all tokens, but *% of mixed.jsonl/Han, *: --balance gives each *"
prints "*At 400 ids, by domain, the worst first:
*
  mixed.jsonl/Japanese           1,440   0.001       3.403%          -
  mixed.jsonl/Han                2,440   0.001       3.648%          -
  mixed.jsonl/Cyrillic           7,680   0.001      14.193%          -
  mixed.jsonl/Latin                480   0.001      43.542%          -
  qa/Latin                      71,810       1      62.171%          -
  mixed.jsonl/none                  14   0.001      71.429%          -
*"
for language in Japanese Han Cyrillic; do
    share=$(sed -n "s|^  mixed.jsonl/$language .* \([0-9.]*\)% .*|\1|p" ../out)
    warns "*$(printf %.1f "$share")% of mixed.jsonl/$language*"
done
! grep -q Latin ../err || fail "less than 1,000 tokens are named: $(cat ../err)"
accepts run --corpus mixed.jsonl "$english" --size 400 --balance -o balanced.specb
! grep "but .* of mixed.jsonl" ../err || fail "$(cat ../err)"
prints "*>      400      89.654% *
  qa/Latin                      71,810       1      59.333%          -
  mixed.jsonl/Cyrillic           7,680  9.4128      98.971%          -
*"

# The text that a list was made from has not drifted, whatever weights its parts had.
accepts specrt-bundle drift balanced.specb --counts c --json
json ../out drop | awk '{ exit !($1 ^ 2 < 1e-12) }' || fail "$(cat ../out)"
has size=400 coverage=0.6508 coverage_calibrated=0.6508 'missing[0].id=2760' 'missing[].#=8' \
    'domains[].coverage=null 0.9897 1 1 1 1 null 0.5933'

# drift: an English list meets other languages.
accepts vocabtrim-calibrate --tokenizer "$TOKENIZER" --corpus "$english" --holdout 0 \
    --size 400 -o en.specb
accepts specrt-bundle drift en.specb --counts c --max-drop 1
warns "*: mixed.jsonl/Cyrillic: 9.2% of this text, of which the list covers 14.2% (62.2% *): *
*: mixed.jsonl/Han: 2.9% of this text, of which the list covers 3.6% (62.2% *): *
*: mixed.jsonl/Japanese: 1.7% of this text, of which the list covers 3.4% (62.2% *): *"
accepts specrt-bundle drift en.specb --counts c --max-drop 1 --json
has n_tokens=83864 coverage=0.5496 coverage_calibrated=0.6217 drop=0.0721 \
    'domains[name=mixed.jsonl/Cyrillic].language=Cyrillic' \
    'domains[].n_tokens=0 7680 2440 1440 480 14 0 71810' \
    'missing[].n=1800 1440 420 360 300 300 260 260' 'missing[].id=140 141 159 113 108 224 162 233'
accepts vocabtrim-calibrate --tokenizer "$TOKENIZER" --corpus "$english" --by-language \
    --counts-out en
accepts specrt-bundle drift en.specb --counts en --max-drop 1
[ ! -s ../err ] || fail "$(cat ../err)"

refuses 2 "*--by-language needs text: expected a --tokenizer, found none" vocabtrim-calibrate \
    --tokenizer none --n-vocab 10 --id-bytes 2 --corpus x.bin --by-language -o x.specb
refuses 2 "*--by-language*" \
    vocabtrim-calibrate --merge c --by-language -o x.specb
