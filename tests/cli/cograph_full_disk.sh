# A disk that fills while pairs are spilled: one line, exit code 1, no output and no temporary file.
. "$CLI_TESTS/lib.bash"
is_quick && left_to_all
head -c 9000000 /dev/urandom >ids.bin
count() { cograph-build --tokenizer none --id-bytes 2 --n-vocab 65536 --corpus ids.bin --memory 32 \
    --threads 2 -q "$@"; }
# A file may not grow beyond 4 MiB, which the memory given makes the spilled pairs do.
limited() (
    trap '' XFSZ
    ulimit -f 4096
    "$@"
)
mkdir spilled
refuses 1 "cograph-build: spilled: cannot spill pairs: File too large" limited count \
    --temp spilled -o x.specb
refuses 1 "cograph-build: .: cannot spill pairs: File too large" limited count --counts-out x
refuses 1 "cograph-build: --temp: ./no: No such file or directory" count --temp ./no -o x.specb
accepts count --temp spilled -o spilled.specb
accepts count --memory 1024 -o one.specb
same one.specb spilled.specb
[ -z "$(ls spilled)" ] || fail "a temporary file was left"
