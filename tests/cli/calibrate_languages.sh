# --by-language: domains by script, the same from threads, shards and merges; shares; warnings.
. "$CLI_TESTS/lib.bash"
NARRATES=1
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
field() { # DOMAIN KEY : of the last --json
    python3 -c 'import json, sys
for d in json.load(open("../out"))["domains"]:
    if d["name"] == sys.argv[1]: print(d[sys.argv[2]])' "$1" "$2"
}

accepts count c
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
refuses 3 "*plain: counted with other options; expected '*by=language', found '*'" \
    vocabtrim-calibrate --merge c plain -o x.specb
# The languages of a text add up to the text.
accepts run --corpus mixed.jsonl --json
by_language=$(grep -o '"n_tokens":[0-9]*' ../out | head -n 1)
accepts vocabtrim-calibrate --merge plain --json --size 2000
[ "$by_language" = "$(grep -o '"n_tokens":[0-9]*' ../out | head -n 1)" ] || fail "$by_language"

# --balance: each language has the tokens of the largest, over both arguments.
accepts run --corpus mixed.jsonl "$english" --balance --json
[ "$(field mixed.jsonl/Han language)" = Han ] && [ "$(field mixed.jsonl language)" = None ] ||
    fail "$(cat ../out)"
python3 - <<'END' || fail "$(cat ../out)"
import json
shares = {}
for d in json.load(open("../out"))["domains"]:
    if d["language"] not in (None, "none"):
        share = d["n_tokens"] * d["weight"]
        shares[d["language"]] = shares.get(d["language"], 0) + share
assert len(shares) == 4 and max(shares.values()) < 1.0001 * min(shares.values()), shares
END
[ "$(field mixed.jsonl/none weight)" = 1 ] || fail "$(cat ../out)"
latin=$(field qa/Latin weight)
[ "$latin" = "$(field mixed.jsonl/Latin weight)" ] || fail "Latin: $latin"
# Weights multiply the shares; a file's name means all its languages.
accepts run --corpus mixed.jsonl "$english" --balance --weights "$english:3,mixed.jsonl:2" --json
[ "$(field qa/Latin weight) $(field mixed.jsonl/Latin weight)" = "3 2" ] || fail "$(cat ../out)"
accepts run --corpus mixed.jsonl --weights mixed.jsonl/Han:5 --json
found="$(field mixed.jsonl/Han weight) $(field mixed.jsonl/Latin weight)"
[ "$found" = "5 1" ] || fail "$(cat ../out)"
refuses 2 "*'mixed.jsonl/Thai' is no --corpus argument and no domain" \
    run --corpus mixed.jsonl --weights mixed.jsonl/Thai:5 --json
# Without languages each domain has its share.
accepts vocabtrim-calibrate --tokenizer "$TOKENIZER" --corpus mixed.jsonl "$english" \
    --balance --json \
    --size 2000
[ "$(field qa weight)" = 1 ] && [ "$(field qa language)" = None ] || fail "$(cat ../out)"

# A list that is short for one of its languages: it is named, the worst first, and balance mends it.
accepts run --corpus mixed.jsonl "$english" --size 400 --weights mixed.jsonl:0.001 -o short.specb
warns "*the list covers *% of all tokens, but *% of mixed.jsonl/Han, *: --balance gives each *"
prints "*At 400 ids, by domain, the worst first:*mixed.jsonl/*qa/Latin*"
for language in Japanese Han Cyrillic; do
    share=$(sed -n "s|^  mixed.jsonl/$language .* \([0-9.]*\)% .*|\1|p" ../out)
    warns "*$(printf %.1f "$share")% of mixed.jsonl/$language*"
done
! grep -q Latin ../err || fail "less than 1,000 tokens are named: $(cat ../err)"
accepts run --corpus mixed.jsonl "$english" --size 400 --balance -o balanced.specb
! grep "but .* of mixed.jsonl" ../err || fail "$(cat ../err)"

# The text that a list was made from has not drifted, whatever weights its parts had.
accepts specrt-bundle drift balanced.specb --counts c --json
python3 - <<'END' || fail "$(cat ../out)"
import json
assert abs(json.load(open("../out"))["drop"]) < 1e-6
END

# drift: an English list meets other languages.
accepts vocabtrim-calibrate --tokenizer "$TOKENIZER" --corpus "$english" --holdout 0 \
    --size 400 -o en.specb
accepts specrt-bundle drift en.specb --counts c --max-drop 1
warns "*mixed.jsonl/Cyrillic: *% of this text, of which the list covers *other languages; *"
accepts specrt-bundle drift en.specb --counts c --max-drop 1 --json
prints '*"name":"mixed.jsonl/Cyrillic","language":"Cyrillic","n_tokens":*'
accepts vocabtrim-calibrate --tokenizer "$TOKENIZER" --corpus "$english" --by-language \
    --counts-out en
accepts specrt-bundle drift en.specb --counts en --max-drop 1
[ ! -s ../err ] || fail "$(cat ../err)"

refuses 2 "*--by-language needs text: expected a --tokenizer, found none" vocabtrim-calibrate \
    --tokenizer none --n-vocab 10 --id-bytes 2 --corpus x.bin --by-language -o x.specb
refuses 2 "*--by-language and --holdout are fixed in count files*" \
    vocabtrim-calibrate --merge c --by-language -o x.specb
