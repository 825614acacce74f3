# make MPI=1 under mpirun: three ranks give the bytes of one process, alone and with count
# files, and fail with one message.
. "$CLI_TESTS/lib.bash"
left_to_all
require mpicc
require mpirun
made=build/test-mpi/bin
env -u SAN flock "$root/build" make -s -C "$root" MPI=1 BUILD=build/test-mpi OPT=-O0 \
    $made/vocabtrim-calibrate $made/cograph-build \
    >../make.log 2>&1 || { cat ../make.log; fail "make MPI=1"; } # at -O0: in a quarter of the time
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
mkdir corpus
for part in 1 2 3 4 5 6 7 8 9; do
    list=()
    for ((i = 0; i < 1000; i++)); do list+=($((i * i * part % 997))); done
    ids "corpus/$part.bin" "${list[@]}"
done
cat corpus/*.bin >more.bin
mpirun -n 3 true 2>../err || skip "mpirun does not run here: $(head -n 1 ../err)"

same_in_ranks() { # same_in_ranks TOOL OF-A-BUNDLE OF-COUNTS : options by what they are about
    local tool=$1 bundle=$2 flags="--tokenizer none --id-bytes 2 --n-vocab 1000 --threads 1 $3 $2"
    local run="--corpus corpus more.bin $flags"
    ranks() { mpirun -n 3 "$root/$made/$tool" "$@"; }
    accepts "$tool" $run -o one.specb --counts-out one -f
    accepts ranks $run -o three.specb --counts-out three -f
    same one.specb three.specb
    same one three
    accepts "$tool" $flags --corpus corpus/3.bin --counts-out extra -f
    accepts "$tool" $run --merge extra -o one.specb -f
    accepts ranks $run --merge extra -o three.specb -f
    same one.specb three.specb
    accepts ranks --merge one extra -o three.specb -f $bundle
    same one.specb three.specb
    ranks --corpus more.bin nowhere.bin $flags -o x.specb 2>../err &&
        fail "a missing file was accepted"
    [ "$(grep -c "^$tool: nowhere.bin: " ../err)" = 1 ] ||
        fail "expected one message: $(cat ../err)"
    [ ! -e x.specb ] || fail "a bundle was left"
}
same_in_ranks vocabtrim-calibrate "--size 100" "--keep 999 --holdout 0.3"
same_in_ranks cograph-build "" "--breaks 3"
