# The report is one page without script or outside file, and shows tokens escaped.
. "$CLI_TESTS/lib.bash"
for ((i = 0; i < 50; i++)); do printf '<script>alert("x&y")</script>\n'; done >evil.txt
mkdir '<b>'
printf 'Hello <i>world</i> & more\n' >'<b>/a.txt'
accepts vocabtrim-calibrate --tokenizer "$TOKENIZER" --corpus evil.txt '<b>' --holdout 0 \
    --size 2000 --report r.html --accept-rate 0.8,0.7 --target-params 1e8 --draft-params 3e7 \
    --d-draft 512
for bad in '<script' '<b>/' 'src=' 'href=' 'url(' '<link'; do
    ! grep -qF "$bad" r.html || fail "the report holds $bad"
done
for good in '&lt;b&gt;' '&lt;' 'Coverage by size' 'Count by rank' 'Estimated speed-up' 'best MBSU' \
    'prefers-color-scheme'; do
    grep -qF "$good" r.html || fail "the report lacks $good"
done
[ "$(grep -c '<svg viewBox' r.html)" = "$(grep -c '</svg>' r.html)" ] || fail "unbalanced svg"
grep -q 'nan\|inf[^o]' r.html && fail "the report holds a NaN"
true
