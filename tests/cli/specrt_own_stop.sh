# A signal to specrt prepare --for specrt, or to make calibrate, at random moments: no process goes
# on, no file is cut, and another run ends the work.
. "$CLI_TESTS/lib.bash"
is_quick && left_to_all
env --default-signal true 2>/dev/null || skip "env has no --default-signal (coreutils 8.31)"
[ -e /proc/self/cwd ] || skip "no /proc"
root=$(cd "$CLI_TESTS/../.." && pwd)
export MARK=$PWD
mkdir build
ln -s "$CLI_BIN" build/bin
args="--tokens 8 --limit $(most 5 2) --with graph,clusters"
own=("$CLI_BIN/specrt" prepare --for specrt --target "$root/data/sample/target.gguf"
    --drafter "$root/data/sample/draft.safetensors" --prompts "$root"/data/prompts/*.jsonl
    --fill "$root"/data/corpus/*/ $args -o "$PWD/build/sample")
make=(make -s -C "$root" -o tools BUILD="$PWD/build" ARGS="$args" calibrate)

# A background job of a shell ignores SIGINT, which a script cannot undo.
begin() { (exec env --default-signal "$@" >/dev/null 2>../err) & }
running() { # processes with our mark, but this one
    local process
    for process in /proc/[0-9]*; do
        tr '\0' '\n' <"$process/environ" 2>/dev/null | grep -qxF "MARK=$MARK" || continue
        case ${process#/proc/} in $$ | $BASHPID) continue ;; esac
        tr '\0' ' ' <"$process/cmdline"
    done 2>/dev/null
}

RANDOM=54 cut=0
for n in $(seq $(most 12 4)); do
    case $((n % 4)) in
    0) begin "${make[@]}"; signal=TERM ;;
    1) begin "${own[@]}"; signal=TERM ;;
    2) begin "${own[@]}"; signal=INT ;;
    3) begin "${own[@]}"; signal=HUP ;;
    esac
    sleep $((RANDOM % 3)).$((RANDOM % 10))
    kill -$signal $! 2>/dev/null
    wait $!
    code=$?
    running=$(running)
    [ -z "$running" ] || fail "after SIG$signal: $running"
    case $code in
    130) cut=$((cut + 1)) ;;
    0) ;;
    129 | 143) ;; # before the handler is there
    *) [ $((n % 4)) = 0 ] || fail "after SIG$signal: exit $code: $(cat ../err)" ;;
    esac
    for file in $(find build -type f); do
        case ${file#build/} in
        sample/specrt-steps/*) ;;
        sample/model.specb) specrt-bundle verify -q $file || fail "$file after SIG$signal" ;;
        sample/*.html) grep -q '</html>' $file || fail "$file is cut" ;;
        sample/*.json | sample/*.jsonl) [ -z "$(tail -c 1 $file)" ] || fail "$file is cut" ;;
        sample/states.trace | sample/start.sh) ;;
        *) fail "after SIG$signal: $file" ;;
        esac
    done
    [ $((RANDOM % 3)) != 0 ] || rm -rf build/sample
done
[ $cut -gt 0 ] || fail "no run was stopped"
accepts "${own[@]}"
specrt-bundle verify -q build/sample/model.specb || fail "no whole bundle"
prints "*all equal*Next:*"
