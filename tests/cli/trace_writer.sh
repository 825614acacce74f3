# What examples/trace_writer.py writes, with and without libzstd, is what the header reads, array by array.
. "$CLI_TESTS/lib.bash"
python=${PYTHON:-python3}
"$python" -c "import numpy" 2>/dev/null || skip "no python3 with numpy (apt-get install -y python3-numpy); PYTHON= names another"
trace() { "$CLI_BIN/../tests/trace" "$@"; }
cat >write.py <<'PYTHON'
import sys
import numpy as np
sys.path.insert(0, sys.argv[1])
import trace_writer
if sys.argv[2] == "raw":
    trace_writer.ZSTD = None
V, D, E, TOP, DRAFT, NODES = 5000, 24, 16, 10, 64, 30
rng = np.random.default_rng(7)
info = dict(n_vocab=V, d_target=D, d_draft=E, n_top=TOP, n_draft_top=DRAFT, n_tree_top=3)
said = dict(tree=(4, 3, NODES), temperature=0.5, n_ids=4990, terminators=(7, 9), policy="full")
ids = lambda *shape: rng.integers(0, V, shape)
def show(first, arrays):
    columns = [[row[0] for row in arrays.get(name, [])] for name in ("top_ids", "draft_ids")]
    print(first + " :".join("".join(f" {x}" for x in c) for c in [arrays["tokens"]] + columns))
    for name, kind, _, _ in trace_writer.FIELDS:
        if arrays.get(name) is not None:
            print(f" {name}={trace_writer.xxh64(np.asarray(arrays[name], kind).tobytes()):016x}", end="")
    print()
print("h", *info.values(), ":", *said["tree"], ": 0.5 : 4990 : 7 9 : full")
with trace_writer.TraceWriter("written.trace", **info, **said) as trace:
    for i in range(int(sys.argv[3])):
        n = int(rng.integers(1, 6))
        logits = rng.standard_normal((n, V)).astype("f4")
        top, values, total = trace_writer.best(logits, TOP)
        arrays = dict(tokens=ids(n), top_ids=top, top_logits=values, top_logsumexp=total)
        if i % 5 == 0:
            trace.sequence(domain=f"domain {i}", **arrays)
            show(f"s domain {i}:", arrays)
            continue
        best, scores, sums = trace_writer.best(rng.standard_normal((n, V)), DRAFT)
        arrays.update(nodes=np.arange(n), tree_tokens=ids(NODES), tree_parents=np.arange(NODES) - 1,
                      tree_logprobs=-np.arange(NODES) / 7, draft_ids=best, draft_logits=scores,
                      draft_logsumexp=sums, target_hidden=rng.standard_normal((n, D)))
        if i % 2:
            arrays.update(draft_hidden=rng.standard_normal((n, E)), tree_top_ids=ids(NODES, 3))
        trace.cycle(**arrays)
        show("c", arrays)
    try:
        trace.cycle(tokens=[1], nodes=[0], tree_tokens=[1], tree_parents=[-1], top_ids=[2])
    except ValueError as error:
        print(error, file=sys.stderr)
print("whole")
PYTHON
for kind in zstd raw; do
    accepts "$python" write.py "$CLI_TESTS/../../examples" $kind 700
    warns "top_ids: expected 10 numbers, found 1"
    sed 's/ *$//' ../out >expected.txt
    accepts trace --hashes written.trace
    sed 's/ *$//' ../out >found.txt
    cmp expected.txt found.txt || { diff expected.txt found.txt | head -n 6; fail "$kind: not what was written"; }
    [ $kind = raw ] || size=$(stat -c %s written.trace)
done
[ "$(stat -c %s written.trace)" -gt "$size" ] || fail "expected what is not compressed to be larger"
accepts specrt-eval replay --trace written.trace --policy full,window:300 --json
prints '*"policy":"full"*"estimated":false*'
head -c $(($(stat -c %s written.trace) * 9 / 10)) written.trace >cut.trace
accepts specrt-eval replay --trace cut.trace --policy full,window:300
prints '*up to where a trace was cut*'
