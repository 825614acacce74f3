# A signal to `make calibrate` by its process id, at random moments: no process goes on, no file is
# cut, and another run is whole.
. "$CLI_TESTS/lib.bash"
env --default-signal true 2>/dev/null || skip "env has no --default-signal (coreutils 8.31)"
[ -e /proc/self/cwd ] || skip "no /proc"
root=$(cd "$CLI_TESTS/../.." && pwd)
export TOKENS=8 PROMPTS=$(most 5 2) SECTIONS="cograph centroid" TMPDIR=$PWD/tmp
mkdir build tmp run
ln -s "$CLI_BIN" build/bin
script=("$root/tools/calibrate.sh" ../build/bin "" "" "" "" "")
make=(make -s -C "$root" -o tools BUILD="$PWD/build" calibrate)

# A background job of a shell ignores SIGINT, which a script cannot undo.
begin() { (cd run && exec env --default-signal "$@" >/dev/null 2>../../err) & }
running() { # processes whose folder is ours, but this one
    local process
    for process in /proc/[0-9]*; do
        tr '\0' '\n' <"$process/environ" 2>/dev/null | grep -qxF "TMPDIR=$TMPDIR" || continue
        case ${process#/proc/} in $$ | $BASHPID) continue ;; esac
        tr '\0' ' ' <"$process/cmdline"
    done 2>/dev/null
}

RANDOM=54 cut=0
for n in $(seq $(most 12 4)); do
    case $((n % 4)) in
    0) begin "${make[@]}"; signal=TERM ;;
    1) begin "${script[@]}"; signal=TERM ;;
    2) begin "${script[@]}"; signal=INT ;;
    3) begin "${script[@]}"; signal=HUP ;;
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
    *) [ $((n % 4)) = 0 ] || fail "after SIG$signal: exit $code: $(cat ../err)" ;;
    esac
    left=$(find tmp run -mindepth 1)
    [ -z "$left" ] || fail "after SIG$signal: $left"
    for file in $(find build -type f); do
        case ${file#build/} in
        sample.specb) specrt-bundle verify -q $file || fail "$file after SIG$signal" ;;
        sample.html | sample-compare.html) grep -q '</html>' $file || fail "$file is cut" ;;
        sample-answers.jsonl) [ -z "$(tail -c 1 $file)" ] || fail "$file is cut" ;;
        *) fail "after SIG$signal: $file" ;;
        esac
    done
done
[ $cut -gt 0 ] || fail "no run was stopped"
(cd run && accepts "${script[@]}") || fail "another run: $(cat ../err)"
specrt-bundle verify -q build/sample.specb || fail "no whole bundle"
