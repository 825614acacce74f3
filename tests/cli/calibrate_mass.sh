# --mass is a share of text that was not ranked: where there is little of it the list grows beyond
# the tokens seen, and the tool says what it rests on.
. "$CLI_TESTS/lib.bash"
NARRATES=1
run() { vocabtrim-calibrate --tokenizer "$TOKENIZER" "$@"; }
field() { grep -o "\"$1\":[^,}]*" ../out | head -n 1 | cut -d : -f 2; }
above() { awk -v x="$1" -v y="$2" 'BEGIN { exit !(x >= y) }'; }

# Words of their own in every text: half of the tokens of one were never seen in others.
awk 'BEGIN {
    srand(7)
    for (i = 0; i < 60; i++) {
        printf "{\"text\": \"The list"
        for (j = 0; j < 30; j++) printf " of the %c%c%c%c", 97 + rand() * 26, 97 + rand() * 26,
            97 + rand() * 26, 97 + rand() * 26
        print " ends.\"}"
    }
}' >a.jsonl
accepts run --corpus a.jsonl --mass 0.9 --json -o a.specb
above "$(field coverage_holdout)" 0.9 || fail "hold-out coverage $(field coverage_holdout)"
seen=$(field n_distinct)
accepts run --corpus a.jsonl --mass 0.9 --json --threads 3 -o b.specb
same a.specb b.specb

# A list that is only known by heart says so.
accepts run --corpus a.jsonl --size "$seen" --holdout 0.2 -o c.specb
warns '*warning: the list covers *% of the text that was ranked, *% of held-out text (95% inter*'
warns '*: *% of further tokens will be ids not seen here (* were seen): give more text, or let *'
[ "$(wc -l <../err)" = 1 ] || fail "more than one line: $(cat ../err)"

# Too little held-out text, or none.
accepts run --corpus a.jsonl --mass 0.9999 -o d.specb
warns '*warning: --mass 0.9999: * held-out tokens cannot show it*give more text'
accepts run --corpus a.jsonl --mass 0.9 --holdout 0 --json -o e.specb
warns '*warning: --mass 0.9: 0 held-out tokens cannot show it*some of it held out (--holdout 0.1)'
above "$(field coverage_calibration)" 0.91 || fail "what was not seen does not count"

# Held-out text with an id that no list may hold.
ids a.bin 5 5 5 3 3 9
accepts vocabtrim-calibrate --tokenizer none --id-bytes 2 --n-vocab 12 --keep 1 --corpus a.bin \
    --holdout 0.5 --counts-out one
awk -F '\t' -v OFS='\t' '/^#reserved/ { $2 = 9 } /^#end/ { $3 = 173 }
    /^9/ { $0 = "9\t1\t90" } /^5/ { $0 = "5\t3\t60" } /^3/ { $0 = "3\t2" } { print }' one >two
accepts vocabtrim-calibrate --merge two --mass 0.9 -o f.specb
warns '*: --mass 0.9: cannot be reached: all 11 ids * cover 41.67% of held-out text'

# Bars are of held-out text where there is some: 63 of its 156 tokens are id 5, in either's list.
accepts vocabtrim-calibrate --merge two --size 2 -o g.specb
prints '*calibration   hold-out      95% interval  40% *>        2      40.385%    40.385% *'
