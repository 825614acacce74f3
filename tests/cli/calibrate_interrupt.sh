# Ctrl-C in the middle of reading leaves nothing behind.
. "$CLI_TESTS/lib.bash"
mkfifo pipe.bin
ids ../part 5 5 3 9
# A shell's background job ignores SIGINT; the tool asks for it all the same.
vocabtrim-calibrate --tokenizer none --id-bytes 2 --n-vocab 12 --keep 7 --corpus pipe.bin \
    -o x.specb --counts-out c --report r.html >../out 2>../err &
tool=$!
exec 3>pipe.bin # waits until the tool reads
cat ../part >&3
kill -INT $tool
sleep 0.3
exec 3>&- # ThreadSanitizer holds a signal back from a thread that waits for the one that reads
wait $tool
code=$?
[ $code = 130 ] || fail "exit $code, expected 130"
[ "$(ls)" = pipe.bin ] || fail "files were left: $(ls)"

# What nohup asks for is heard.
nohup vocabtrim-calibrate --tokenizer none --id-bytes 2 --n-vocab 12 --keep 7 --corpus pipe.bin \
    --holdout 0 -q -o x.specb >../out 2>../err </dev/null &
tool=$!
exec 3>pipe.bin
kill -HUP $tool
cat ../part >&3
exec 3>&-
wait $tool || fail "SIGHUP ended what ran under nohup: exit $?"
[ -s x.specb ] || fail "no bundle"
