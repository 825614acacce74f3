# The report: one page without script or outside file, with tokens escaped; and a page as approved.
. "$CLI_TESTS/lib.bash"
for ((i = 0; i < 50; i++)); do printf '<script>alert("x&y")</script>\n'; done >evil.txt
mkdir '<b>'
printf 'Hello <i>world</i> & more\n' >'<b>/a.txt'
report() { # FLAGS... : a page whose tables have as many cells in each row as in their head
    accepts vocabtrim-calibrate --tokenizer "$TOKENIZER" --corpus evil.txt '<b>' --size 2000 \
        --report r.html -f "$@"
    awk '/<th>/ { n = gsub(/<th>/, "") } /<td/ && gsub(/<td/, "") != n { wrong = 1 }
        END { exit wrong || !n }' r.html || fail "tables: $(grep '<t[hd]' r.html)"
    [ "$(grep -c '<svg viewBox' r.html)" = "$(grep -c '</svg>' r.html)" ] ||
        fail "unbalanced svg"
    # The curves of coverage end at all ids and 100%, at the upper edge.
    sed -n '/aria-label="Coverage by size/,/<\/svg>/p' r.html |
        sed -n 's/^<path class="curve.* \([0-9.]*\)".*/\1/p' | sort -u >edges
    [ "$(cat edges)" = 18.0 ] || fail "curves end at $(cat edges)"
    ! grep -q 'nan\|inf[^o]' r.html || fail "the report holds a NaN"
}
report --holdout 0.5
[ "$(sed -n '/<h2>Domains/,/<\/table>/p' r.html | grep -c '<tr><td>')" = 2 ] || fail "other domains"
! grep -qE 'tau|MBSU|speed-up' r.html || fail "an estimate of speed without rates"
report --holdout 0.5 --accept-rate 0.8,0.7
grep -q '<th>tau</th></tr>' r.html || fail "no accept length of rates"
report --holdout 0 --accept-rate 0.8,0.7 --target-params 1e8 --draft-params 3e7 --d-draft 512
grep -q 'gamma = 2 drafter passes; drafter 30.0M, target 100.0M parameters (as given)' r.html ||
    fail "$(grep gamma r.html)"
prints '*gamma = 2 drafter passes; *a drafter of 30.0M and a target of 100.0M*(as given)*'
for bad in '<script' '<b>/' 'src=' 'href=' 'url(' '<link'; do
    ! grep -qF "$bad" r.html || fail "the report holds $bad"
done
for good in '&lt;b&gt;' '&lt;' 'Coverage by size' 'Count by rank' 'Estimated speed-up' 'best MBSU' \
    'prefers-color-scheme'; do
    grep -qF "$good" r.html || fail "the report lacks $good"
done

# The page that a person reads: without grids and curves of plots, and with every twentieth token.
corpus=$CLI_TESTS/../../data/corpus
accepts vocabtrim-calibrate --tokenizer "$CLI_TESTS/../../data/sample/target.gguf" \
    --corpus "$corpus/math" "$corpus/qa" --mass 0.7 --balance --report page.html -q
sed '1,/<\/style>/d' page.html |
    awk '/<h2>/ { n = 0 } /<li><span/ && n++ % 20 { next } !/class="(grid|axis|label|curve)/'
sed -n 's/.*class="curve[^>]* d="\(M[^L]*L[^L]*\).*\(L.*\)".*/\1 ... \2/p' page.html
