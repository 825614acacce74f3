# Existing files are refused before the corpus is read; -f replaces them.
. "$CLI_TESTS/lib.bash"
ids a.bin 5 5 5 3 3 9
run() { vocabtrim-calibrate --tokenizer none --id-bytes 2 --n-vocab 12 --keep 7 \
    --corpus "${corpus:-a.bin}" -q --holdout 0 "$@"; }
accepts run -o a.specb --counts-out c --report r.html --export text=t --size 3
corpus=/nonexistent # never opened
refuses 2 "*a.specb: has a section ranks already; use -f to replace it" run -o a.specb
refuses 2 "*: c: exists; use -f to replace it" run --counts-out c
refuses 2 "*: r.html: *" run --report r.html
refuses 2 "*: t: *" run --export text=t
refuses 3 "*: a.bin: *found other bytes" run -o a.bin
corpus=a.bin
accepts run -o a.specb --counts-out c --report r.html --export text=t --size 4 -f
[ "$(wc -l <t)" = 4 ] || fail "the list was not replaced"
accepts run -o a.bin.specb --size 4
same a.specb a.bin.specb

# A bundle for another tokenizer is refused.
echo "Hello world." >a.txt
accepts vocabtrim-calibrate --tokenizer "$TOKENIZER" --corpus a.txt --holdout 0 --counts-out c \
    -o t.specb -f
sed 's/^#tokenizer\t....../#tokenizer\t000000/' c >other
refuses 3 "*t.specb: tokenizer: *; write to another file" vocabtrim-calibrate --merge other \
    -o t.specb -f

# Two outputs never share a file.
refuses 2 "*: y: given for two outputs; expected a file for each" run -o y --report y
refuses 2 "*: y: *" run --export text=y --counts-out y
refuses 2 "*--output: expected FILE, found ''" run -o ""

# npy goes into a folder that is there, and replaces its files with -f only.
mkdir maps
accepts run --export npy=maps --size 4
refuses 2 "*: maps/d2t.npy: *" run --export npy=maps --size 4
accepts run --export npy=maps --size 3 -f
refuses 2 "*: a.bin: *npy*" run --export npy=a.bin

# The bundle that another run has put there meanwhile stays; what this one has made goes.
mkfifo pipe.bin
corpus=pipe.bin run -o late.specb --report late.html --export npy=late >../out 2>../err &
exec 3>pipe.bin # waits until the tool reads, its check of the outputs behind it
cp a.specb late.specb
cat a.bin >&3
exec 3>&-
wait $!
[ $? = 2 ] || fail "the other run's section was replaced"
warns "*: late.specb: has a section 'ranks' already; use -f to replace it"
same a.specb late.specb
[ ! -e late.html ] && [ ! -e late ] || fail "outputs of the failed run were left"

# What a link leads to is replaced, not the link.
mkdir far
mv a.specb far/b.specb
ln -s far/b.specb a.specb
accepts run -o a.specb --size 3 -f
[ -L a.specb ] && [ "$(ls far)" = b.specb ] || fail "the link was replaced"
cmp -s far/b.specb late.specb && fail "the file behind the link is the old one"
accepts specrt-bundle verify a.specb

# Where stdout and stderr are closed, no file takes their place and what is printed.
vocabtrim-calibrate --tokenizer none --id-bytes 2 --n-vocab 12 --keep 7 --corpus a.bin --holdout 0 \
    --counts-out closed --report closed.html >&- 2>&-
[ $? = 1 ] || fail "no error without stdout"
[ ! -e closed ] && [ ! -e closed.html ] || fail "outputs were left"
