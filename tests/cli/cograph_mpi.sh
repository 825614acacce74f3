# make MPI=1 under mpirun: three ranks give the bytes of one process, alone and with count
# files, and fail with one message.
. "$CLI_TESTS/lib.bash"
require mpicc
require mpirun
root=$CLI_TESTS/../..
made=build/test-mpi/bin/cograph-build # at -O0: in a quarter of the time
env -u SAN flock "$root/build" make -s -C "$root" MPI=1 BUILD=build/test-mpi OPT=-O0 $made \
    >../make.log 2>&1 || { cat ../make.log; fail "make MPI=1"; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
ranks() { mpirun -n 3 "$root/$made" "$@"; }
mpirun -n 3 true 2>../err || skip "mpirun does not run here: $(head -n 1 ../err)"
mkdir corpus
for part in 1 2 3 4 5 6 7; do
    list=()
    for ((i = 0; i < 1000; i++)); do list+=($((i * i * part % 997))); done
    ids "corpus/$part.bin" "${list[@]}"
done
flags="--tokenizer none --id-bytes 2 --n-vocab 1000 --breaks 3 --threads 1"
accepts cograph-build --corpus corpus $flags -o one.specb --counts-out one
accepts ranks --corpus corpus $flags -o three.specb --counts-out three
same one.specb three.specb
same one three
accepts cograph-build --corpus corpus/3.bin $flags --counts-out extra
accepts cograph-build --corpus corpus $flags --merge extra -o one.specb -f
accepts ranks --corpus corpus $flags --merge extra -o three.specb -f
same one.specb three.specb
accepts ranks --merge one extra -o three.specb -f
same one.specb three.specb
ranks --corpus corpus nowhere.bin $flags -o x.specb 2>../err && fail "a missing file was accepted"
[ "$(grep -c '^cograph-build: nowhere.bin: ' ../err)" = 1 ] ||
    fail "expected one message: $(cat ../err)"
[ ! -e x.specb ] || fail "a bundle was left"
