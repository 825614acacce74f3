# Existing files are refused before the corpus is read; -f replaces them.
. "$CLI_TESTS/lib.bash"
ids a.bin 5 5 5 3 3 9
run() { vocabtrim-calibrate --tokenizer none --id-bytes 2 --n-vocab 12 --keep 7 --corpus "${corpus:-a.bin}" -q --holdout 0 "$@"; }
accepts run -o a.specb --counts-out c --report r.html --export text=t --size 3
corpus=/nonexistent # never opened
refuses 2 "*a.specb: holds section ranks; use -f to replace it" run -o a.specb
refuses 2 "*: c: exists; use -f to replace it" run --counts-out c
refuses 2 "*: r.html: exists; use -f to replace it" run --report r.html
refuses 2 "*: t: exists; use -f to replace it" run --export text=t
refuses 3 "*: a.bin: *" run -o a.bin
corpus=a.bin
accepts run -o a.specb --counts-out c --report r.html --export text=t --size 4 -f
[ "$(wc -l <t)" = 4 ] || fail "the list was not replaced"
accepts run -o a.bin.specb --size 4
same a.specb a.bin.specb

# A bundle for another tokenizer is refused.
echo "Hello world." >a.txt
accepts vocabtrim-calibrate --tokenizer "$TOKENIZER" --corpus a.txt --holdout 0 --counts-out c -o t.specb -f
sed 's/^#tokenizer\t....../#tokenizer\t000000/' c >other
refuses 3 "*t.specb: tokenizer: *write to another file" vocabtrim-calibrate --merge other -o t.specb -f
