# make MPI=1 under mpirun: three ranks give the bytes of one process, alone and with count
# files, and fail with one message.
. "$CLI_TESTS/lib.bash"
require mpicc
require mpirun
root=$CLI_TESTS/../..
made=build/test-mpi/bin/vocabtrim-calibrate # at -O0: in a quarter of the time
env -u SAN flock "$root/build" make -s -C "$root" MPI=1 BUILD=build/test-mpi OPT=-O0 $made \
    >../make.log 2>&1 || { cat ../make.log; fail "make MPI=1"; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
ranks() { mpirun -n 3 "$root/$made" "$@"; }
mkdir corpus
for part in 1 2 3 4 5 6 7 8 9; do
    list=()
    for ((i = 0; i < 1000; i++)); do list+=($((i * i * part % 997))); done
    ids "corpus/$part.bin" "${list[@]}"
done
cat corpus/*.bin >more.bin
flags="--tokenizer none --id-bytes 2 --n-vocab 1000 --keep 999 --holdout 0.3 --size 100 --threads 1"
run="--corpus corpus more.bin $flags"
mpirun -n 3 true 2>../err || skip "mpirun does not run here: $(head -n 1 ../err)"
accepts vocabtrim-calibrate $run -o one.specb --counts-out one
accepts ranks $run -o three.specb --counts-out three
same one.specb three.specb
same one three
accepts vocabtrim-calibrate $flags --corpus corpus/3.bin --counts-out extra
accepts vocabtrim-calibrate $run --merge extra -o one.specb -f
accepts ranks $run --merge extra -o three.specb -f
same one.specb three.specb
accepts ranks --merge one extra -o three.specb -f --size 100
same one.specb three.specb
ranks --corpus more.bin nowhere.bin $flags -o x.specb 2>../err && fail "a missing file was accepted"
[ "$(grep -c '^vocabtrim-calibrate: nowhere.bin: ' ../err)" = 1 ] ||
    fail "expected one message: $(cat ../err)"
[ ! -e x.specb ] || fail "a bundle was left"
