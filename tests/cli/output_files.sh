# Outputs whose writer is killed, whose size is limited, or whose name is a link that leads nowhere.
. "$CLI_TESTS/lib.bash"
ids a.bin 5 5 5 3 3 9
run() { vocabtrim-calibrate --tokenizer none --id-bytes 2 --n-vocab 12 --keep 7 --corpus a.bin \
    -q --holdout 0 --size 4 "$@"; }

# Beyond `ulimit -f` (in KiB): one line, and nothing is left.
ids big.bin $(seq 3 3000)
limited() { (ulimit -f 1 && "$@" 2>&1 | cat >&2; exit "${PIPESTATUS[0]}"); }
big() { vocabtrim-calibrate --tokenizer none --id-bytes 2 --n-vocab 4000 --keep 7 --corpus big.bin \
    -q --holdout 0 "$@"; }
refuses 1 "vocabtrim-calibrate: c: cannot write: File too large" limited big --counts-out c
refuses 1 "vocabtrim-calibrate: x.specb: cannot write: File too large" limited big -o x.specb
refuses 1 "vocabtrim-calibrate: r.html: cannot write: File too large" limited big --report r.html

# A link that leads nowhere or in a circle is no free name, with -f or without.
ln -s nowhere.specb link.specb
ln -s circle.specb circle.specb
for force in "" -f; do
    refuses 1 "*: link.specb: expected a file, found a link to a file that does not exist; remove \
the link, or create the file that it names" run -o link.specb $force
    refuses 1 "*: link.specb: *a link to a file that *" run --report link.specb $force
    refuses 1 "*: circle.specb: expected a file, found a link in a circle of links; remove the \
link, or *" run -o circle.specb $force
    refuses 1 "*: link.specb: *a link to a file that *" \
        run --export npy=link.specb $force
done
[ -L link.specb ] && [ -L circle.specb ] && [ ! -e nowhere.specb ] || fail "a link was followed"
accepts run -o real.specb
ln -s real.specb nowhere.specb
refuses 1 "*: circle.specb: *found a link *" specrt-bundle pack real.specb -o circle.specb -f
accepts run -o link.specb -f # it leads somewhere now
[ -L link.specb ] && [ -L nowhere.specb ] || fail "a link was replaced"
rm ./*.specb

# A killed writer's file goes with the next run; that of one at work stays.
case $(stat -f -c %T .) in
ext2/ext3 | xfs | btrfs | tmpfs | ramfs | overlayfs | f2fs | zfs | bcachefs) ;;
*) skip "locks on this file system may not reach every writer" ;;
esac
record() {
    exec specrt-eval record --target "$sample/target.gguf" --draft "$sample/draft.safetensors" \
        --prompts "$CLI_TESTS/../../data/prompts/code.jsonl" --limit 1 -q -o run.trace "$@"
}
temps() { find . -name 'run.trace.specrt-tmp-*' | wc -l; }
wait_for_temps() { # N PID : the process has made its own, and locked it
    until [ "$(temps)" = "$1" ] && ! flock -n run.trace.specrt-tmp-* true; do
        kill -0 "$2" || fail "ended early: $(cat ../err)"
    done
}
for signal in KILL STOP; do
    (record --max-tokens $(most 100 30)) 2>../err &
    writer=$!
    wait_for_temps 1 $writer
    kill -$signal $writer
    [ $signal = STOP ] || wait $writer
    (record --max-tokens 4) || fail "the second writer"
    [ -s run.trace ] || fail "no trace"
    [ $signal = KILL ] && [ "$(temps)" != 0 ] && fail "the killed writer's file is still there"
    [ $signal = STOP ] || rm run.trace
done
[ "$(temps)" = 1 ] || fail "the file of a writer at work was removed"
few=$(wc -c <run.trace)
kill -CONT $writer
wait $writer || fail "a writer at work was disturbed: $(cat ../err)"
[ "$(wc -c <run.trace)" -gt "$few" ] && [ "$(temps)" = 0 ] || fail "$(ls)"
