# A tool whose reader has gone (`| head`) dies of SIGPIPE without a message, also where its parent
# ignores SIGPIPE.
. "$CLI_TESTS/lib.bash"
golden=$CLI_TESTS/../golden/bundles/v1.0-raw.specb
mkfifo pipe
exec 4<>pipe 3>pipe 4<&- # 3: a pipe without a reader

# stops COMMAND... : with its stdout closed.
stops() {
    local ignored code
    for ignored in "" PIPE; do
        ([ -z "$ignored" ] || trap "" PIPE; exec "$@") >&3 2>../err
        code=$?
        [ $code = 141 ] || fail "exit $code, expected 141, from: $*"
        [ ! -s ../err ] || fail "on stderr of $*: $(cat ../err)"
    done
}

for tool in "$CLI_TESTS"/../../tools/*/main.c; do
    tool=$(basename "$(dirname "$tool")")
    ! command -v "$tool" >/dev/null || stops "$tool" -h
done
stops specrt-bundle info "$golden"
stops specrt-bundle info "$golden" --json
stops specrt-bundle extract "$golden" ranks
ids a.bin 5 5 5 3 3 9
stops vocabtrim-calibrate --tokenizer none --id-bytes 2 --n-vocab 12 --keep 7 --corpus a.bin \
    --holdout 0 --size 4 -o x.specb -f
