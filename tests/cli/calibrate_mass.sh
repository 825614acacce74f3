# --mass is a share of text that was not ranked: where there is little of it the list grows beyond
# the tokens seen, and the tool says what it rests on.
. "$CLI_TESTS/lib.bash"
run() { vocabtrim-calibrate --tokenizer "$TOKENIZER" "$@"; }
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
has coverage_holdout=0.9002 coverage_calibration=0.9359 unseen_estimate=0.0316 n_distinct=776 \
    'sweep[size=4096].coverage_holdout=0.9795' 'sweep[size=32758].coverage_holdout_low=0.9994'
warns "*covers 93.6% of the text that was ranked, 90.0% of held-out text (95% interval 89.3% to \
90.7%): 3.2% of further tokens will be ids not seen here (782 were seen): give more text"
seen=$(json ../out n_distinct)
accepts run --corpus a.jsonl --mass 0.9 --json --threads 3 -o b.specb
same a.specb b.specb

# A list that is only known by heart says so.
accepts run --corpus a.jsonl --size "$seen" --holdout 0.2 -o c.specb
warns '*warning: the list covers 99.9% of the text that was ranked, 95.6% of held-out text (95% *'
warns \
    '*: 3.2% of further tokens will be *(782 were seen): give more text, or let --mass choose the size'
prints '*>      776      99.934%    95.630%   94.88 to  96.28 *'
[ "$(wc -l <../err)" = 1 ] || fail "more than one line: $(cat ../err)"

# Too little held-out text, or none.
accepts run --corpus a.jsonl --mass 0.9999 -o d.specb
warns "*warning: --mass 0.9999: 9,107 held-out tokens cannot show it, so the list errs to the long \
side (3.2% of further text may be any of the ids not seen); give more text"
prints '*>   32,657     100.000%   100.000%   99.94 to 100.00 *'
accepts run --corpus a.jsonl --mass 0.9 --holdout 0 --json -o e.specb
warns '*warning: --mass 0.9: 0 held-out *give more text, some of it held out (--holdout 0.1)'
above "$(json ../out coverage_calibration)" 0.91 || fail "what was not seen does not count"

# Held-out text with an id that no list may hold.
ids a.bin 5 5 5 3 3 9
accepts vocabtrim-calibrate --tokenizer none --id-bytes 2 --n-vocab 12 --keep 1 --corpus a.bin \
    --holdout 0.5 --counts-out one
awk -F '\t' -v OFS='\t' '/^#reserved/ { $2 = 9 } /^#end/ { $3 = 173 }
    /^9/ { $0 = "9\t1\t90" } /^5/ { $0 = "5\t3\t60" } /^3/ { $0 = "3\t2" } { print }' one >two
accepts vocabtrim-calibrate --merge two --mass 0.9 -o f.specb
warns \
    '*: --mass 0.9: cannot be reached: all 11 ids that a list may hold cover 41.67% of held-out text'
prints '*>       11      41.667%    41.667%   10.49 to  81.32 *'

# Bars are of held-out text where there is some: 63 of its 156 tokens are id 5, in either's list.
accepts vocabtrim-calibrate --merge two --size 2 -o g.specb
prints '*calibration   hold-out      95% interval  40% *>        2      40.385%    40.385% *'
