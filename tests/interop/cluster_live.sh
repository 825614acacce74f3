#!/usr/bin/env bash
# cluster_live.sh : the recipes of docs/integrations/clusters.md, each read from that page and
# run on this machine over data/corpus: Slurm (its own munged, slurmctld and slurmd, four tasks,
# then the merge), Open MPI (four ranks), Spark (spark-submit, two threads), and Hadoop streaming's
# contract, since Debian has no Hadoop: mappers over splits, lines as it writes them, and sorted
# where there is a reducer. Each must give the bytes of one process. `run.sh cluster_live` calls it,
# and `cluster_live.sh spark` tries one; what is missing is skipped with a line.
set -u
root=$PWD docs=$PWD/docs/integrations/clusters.md
corpus=$root/data/corpus tokenizer=$root/data/tokenizer.json
work=$(mktemp -d) daemons=() passed=0 failed=0 skipped=0
export PATH=$root/build/bin:$PATH
unset SLURM_ARRAY_TASK_ID SLURM_ARRAY_TASK_COUNT OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE
cleanup() {
    [ ${#daemons[@]} = 0 ] || { kill "${daemons[@]}"; wait "${daemons[@]}"; } 2>/dev/null
    rm -rf "$work"
}
trap cleanup EXIT

# block SECTION N : the N-th block of code of a section of the page, for this machine.
block() {
    awk -v name="## $1" -v n="$2" '/^## / { on = $0 == name }
        on && /^```/ { open = !open; count += open; next }
        on && open && count == n' "$docs" |
        sed "s,/data/corpus,$corpus,; s,\(--tokenizer \)tokenizer.json,\1$tokenizer,; s,32768,8192,
            s,0-63 --cpus-per-task=4,0-3,; s,--threads 4,--threads 1,; s,-n 64,-n 4,
            s,build/mpi,$root/build/mpi,; s,s3://bucket/corpus/\*.jsonl.gz,corpus/*,
            s,s3://bucket/,,"
}

say() { echo "$1: $2"; }
skip() { skipped=$((skipped + 1)); echo "skipped: $1"; }
# equal NAME FILE ONE : the same bytes, else what the recipe said.
equal() {
    if cmp "$2" "$3" >>"$work/log" 2>&1; then
        passed=$((passed + 1)); echo "ok $1: $(stat -c %s "$2") bytes, those of one process"
    else
        failed=$((failed + 1)); echo "FAIL $1: not the bytes of one process"; tail -n 20 "$work/log"
    fi
}
step() { mkdir "$work/$1"; cd "$work/$1" || exit 1; : >"$work/log"; }
missing() {
    local program
    for program; do command -v "$program" >/dev/null || { echo "$program"; return; }; done
}

# ---- Slurm ----

# A free port of this machine's own network.
port() { "${PYTHON:-python3}" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])'; }

slurm_conf() {
    cat <<CONF
ClusterName=interop
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthInfo=socket=$work/slurm/munge.socket
SlurmctldPort=$(port)
SlurmdPort=$(port)
StateSaveLocation=$work/slurm/state
SlurmdSpoolDir=$work/slurm/spool
SlurmctldPidFile=$work/slurm/ctld.pid
SlurmdPidFile=$work/slurm/d.pid
SlurmctldLogFile=$work/slurm/ctld.log
SlurmdLogFile=$work/slurm/d.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MailProg=/bin/true
SchedulerParameters=sched_interval=1
NodeName=$(hostname -s) NodeAddr=127.0.0.1 CPUs=4
PartitionName=all Nodes=ALL Default=YES State=UP
CONF
}

slurm_start() {
    export SLURM_CONF=$work/slurm/slurm.conf
    mkdir state spool
    slurm_conf >slurm.conf
    head -c 128 /dev/urandom >key && chmod 400 key
    munged --foreground --force --key-file="$PWD/key" --socket="$PWD/munge.socket" \
        --pid-file="$PWD/munge.pid" --log-file="$PWD/munge.log" --seed-file="$PWD/munge.seed" \
        >>"$work/log" 2>&1 &
    daemons+=($!)
    for _ in $(seq 50); do [ -S munge.socket ] && break; sleep 0.1; done
    slurmctld -D -i >>"$work/log" 2>&1 &
    daemons+=($!)
    slurmd -D >>"$work/log" 2>&1 &
    daemons+=($!)
    for _ in $(seq 60); do
        sinfo -h -o %t 2>/dev/null | grep -qx idle && return
        sleep 0.5
    done
    echo "no idle node: $(sinfo -h -o '%t %E' 2>&1)" >>"$work/log"
    return 1
}

try_slurm() {
    local lacks
    lacks=$(missing munged slurmctld slurmd sbatch srun)
    [ -z "$lacks" ] || { skip "Slurm: no $lacks (apt-get install -y slurm-wlm)"; return; }
    say Slurm "$(slurmctld -V)"
    step slurm
    slurm_start || { equal "Slurm" model.specb "$work/one.specb"; return; }
    block Slurm 1 >count.sh
    block Slurm 2 | sed 's,sbatch --dependency,sbatch --wait --dependency,' >submit.sh
    timeout 120 bash -eu submit.sh >>"$work/log" 2>&1
    cat slurm-*.out >>"$work/log" 2>/dev/null
    equal "Slurm, $(ls counts | wc -l) tasks of an array and the merge" model.specb \
        "$work/one.specb"
}

# ---- MPI ----

try_mpi() {
    local lacks
    lacks=$(missing mpicc mpirun)
    if [ -n "$lacks" ]; then
        skip "MPI: no $lacks (apt-get install -y openmpi-bin libopenmpi-dev)"
        return
    fi
    say MPI "$(mpirun --version | head -n 1)"
    step mpi
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export OMPI_MCA_rmaps_base_oversubscribe=1
    env -u MAKEFLAGS make -s -C "$root" MPI=1 build/mpi/bin/vocabtrim-calibrate \
        >>"$work/log" 2>&1 &&
        block MPI 1 | grep -v '^make ' >run.sh && bash -eu run.sh >>"$work/log" 2>&1
    equal "MPI, 4 ranks" model.specb "$work/one.specb"
}

# ---- Hadoop streaming and Spark, over JSON Lines ----

# What Hadoop writes of a program's line: key, tab, value, where a line without a tab is a key.
as_hadoop() { awk '{ print index($0, "\t") ? $0 : $0 "\t" }'; }

# The programs and the tokenizer lie in a task's folder.
deliver() { ln -s "$root/build/bin/vocabtrim-calibrate" "$tokenizer" .; }

try_hadoop() {
    local mapper merge part
    step hadoop
    deliver
    split -n l/5 "$work/all.jsonl" split.
    mapper=$(block "Hadoop streaming" 1 | sed -n 's/.*-mapper "\(.*\)".*/\1/p')
    merge=$(block "Hadoop streaming" 1 | sed -n 's/^hdfs dfs -cat .* | //p')
    for part in split.*; do
        $mapper <"$part" 2>>"$work/log" | as_hadoop >"part-${part#split.}"
    done
    cat part-* | bash -euc "$merge" >>"$work/log" 2>&1
    equal "Hadoop streaming's contract, 5 mappers" model.specb "$work/records.specb"

    step hadoop-reduce
    deliver
    block "Hadoop streaming" 2 >mapper.sh
    block "Hadoop streaming" 3 >reducer.sh
    for part in ../hadoop/split.*; do bash mapper.sh <"$part" | as_hadoop; done 2>>"$work/log" |
        sort | bash reducer.sh 2>>"$work/log" | as_hadoop |
        bash -euc "$merge" >>"$work/log" 2>&1
    equal "Hadoop streaming's contract, 5 mappers, sort, 1 reducer" model.specb \
        "$work/records.specb"
}

try_spark() {
    local python=${PYTHON:-python3} bin lacks=
    "$python" -c 'import pyspark' 2>/dev/null || lacks="pyspark (pip install pyspark)"
    [ -z "$(missing java)" ] || lacks="java (apt-get install -y default-jre-headless)"
    [ -z "$lacks" ] || { skip "Spark: no $lacks"; return; }
    bin=$(dirname "$("$python" -c 'import sys; print(sys.executable)')")
    say Spark "$("$python" -c 'import pyspark; print(pyspark.__version__)')"
    say Java "$(java --version | head -n 1)"
    step spark
    deliver
    mkdir corpus
    split -n l/5 "$work/all.jsonl" corpus/split.
    gzip corpus/split.a[abc]
    block Spark 1 >count.py
    block Spark 2 >submit.sh
    PYSPARK_PYTHON=$python PATH=$bin:$PATH MASTER="local[2]" SPARK_LOCAL_IP=127.0.0.1 \
        bash -eu submit.sh >>"$work/log" 2>&1
    block Spark 3 >merge.sh
    bash -eu merge.sh >>"$work/log" 2>&1
    equal "Spark, $(ls counts 2>/dev/null | grep -c '^part-') partitions" model.specb \
        "$work/records.specb"
}

# ---- one process ----

one_process() {
    vocabtrim-calibrate --tokenizer "$tokenizer" --threads 1 --size 8192 -q "$@" || exit 1
}
one_process --corpus "$corpus" -o "$work/one.specb" 2>/dev/null
cat "$corpus"/*/*.jsonl >"$work/all.jsonl"
one_process --corpus "$work/all.jsonl" --domain chat -o "$work/records.specb" 2>/dev/null
for recipe in ${*:-slurm mpi hadoop spark}; do try_$recipe; done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
