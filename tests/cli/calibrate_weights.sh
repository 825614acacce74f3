# Weights scale domains; a weight of 0 leaves one out of the ranking.
. "$CLI_TESTS/lib.bash"
mkdir x y
ids x/a.bin 1 1 1 1 2
ids y/a.bin 2 2 3 3 3
run() { vocabtrim-calibrate --tokenizer none --id-bytes 2 --n-vocab 9 --keep 8 --corpus x/a.bin \
    y/a.bin --holdout 0 -f -q --size 4 --export text=list "$@"; }
list() { tr '\n' ' ' <list; }
accepts run
[ "$(list)" = "8 1 2 3 " ] || fail "plain: $(list)"
accepts run --weights y/a.bin:4
[ "$(list)" = "8 3 2 1 " ] || fail "weighted: $(list)"
accepts run --weights x/a.bin:0.25,y/a.bin:1
[ "$(list)" = "8 3 2 1 " ] || fail "fractions: $(list)"
accepts run --weights x/a.bin:0
[ "$(list)" = "8 3 2 0 " ] || fail "zero: $(list)"
# Count files carry the domains, named by what tells their paths apart.
accepts run --counts-out c
grep -q "	x/a.bin$" c || fail "no domain x/a.bin: $(cat c)"
accepts vocabtrim-calibrate --merge c --weights y/a.bin:4 -q -f --size 4 --export text=list
[ "$(list)" = "8 3 2 1 " ] || fail "merged: $(list)"
