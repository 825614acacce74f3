# What specrt.TraceWriter and examples/trace_writer.py write is what the header reads, array by
# array.
. "$CLI_TESTS/lib.bash"
needs_python_library
trace() { "$CLI_BIN/../tests/trace" "$@"; }
cat >write.py <<'PYTHON'
import sys
import numpy as np
from specrt import SpecrtError, trace as trace_writer
V, D, E, TOP, DRAFT, NODES = 5000, 24, 16, 10, 64, 30
rng = np.random.default_rng(7)
info = dict(n_vocab=V, d_target=D, d_draft=E, n_top=TOP, n_draft_top=DRAFT, n_tree_top=3)
said = dict(tree=(4, 3, NODES), temperature=0.5, n_ids=4990, terminators=(7, 9), policy="full")
ids = lambda *shape: rng.integers(0, said["n_ids"], shape)
last = 0
class Tensor:  # as torch has them: numpy does not take one from a device
    def __init__(self, x): self.x = x
    def __len__(self): return len(self.x)
    def detach(self): return self
    def double(self): return Tensor(np.asarray(self.x, "f8"))
    def cpu(self): return self.x
def best(logits, k):
    order = np.argsort(-logits, kind="stable")[:, :k]
    return order, np.take_along_axis(logits, order, -1), np.log(np.exp(logits.astype("f8")).sum(-1))
def show(first, arrays):
    columns = [[row[0] for row in arrays.get(name, [])] for name in ("top_ids", "draft_ids")]
    print(first + " :".join("".join(f" {x}" for x in c) for c in [arrays["tokens"]] + columns))
    for name, dtype, *_ in trace_writer.FIELDS:
        if name in arrays and not ("hidden" in name and sys.argv[1] == "no"):
            x = np.frombuffer(np.asarray(arrays[name], dtype).tobytes(), "u1").astype("u8")
            print(f" {name}={int((x * np.arange(1, x.size + 1, dtype='u8')).sum()):x}", end="")
    print()
print("h", *info.values(), ":", *said["tree"], ": 0.5 : 4990 : 7 9 : full")
with trace_writer.TraceWriter("written.trace", **info, **said) as trace:
    for i in range(int(sys.argv[2])):
        n = int(rng.integers(1, 6))
        top, values, total = best(rng.standard_normal((n, V)), TOP)
        arrays = dict(tokens=ids(n), top_ids=top, top_logits=values, top_logsumexp=total)
        if i % 5 == 0:
            if i % 2:
                arrays.update(prompt_hidden=rng.standard_normal(D))
            trace.sequence(domain=f"domain {i}", **arrays)
            show(f"s domain {i}:", arrays)
            continue
        order, scores, sums = best(rng.standard_normal((n, V)), DRAFT)
        tree, root = ids(NODES), arrays["tokens"][-1]  # the next cycle's: the last emitted token
        tree[0], tree[1:n] = last, arrays["tokens"][:-1]
        last = root
        arrays.update(nodes=np.arange(n), tree_tokens=tree, tree_parents=np.arange(NODES) - 1,
                      tree_logprobs=-np.arange(NODES) / 7, draft_ids=order, draft_logits=scores,
                      draft_logsumexp=sums, target_hidden=rng.standard_normal((n, D)))
        if i % 2:
            arrays.update(draft_hidden=rng.standard_normal((n, E)), tree_top_ids=ids(NODES, 3))
        trace.cycle(**{name: Tensor(x) if i % 3 else x for name, x in arrays.items()})
        show("c", arrays)
    wrong = dict(tokens=[1], nodes=[0], tree_tokens=[1], tree_parents=[-1])
    for more in dict(top_ids=[2]), dict(top_id=[2]):
        try:
            trace.cycle(**wrong, **more)
        except SpecrtError as error:
            print(error, file=sys.stderr)
print("whole")
PYTHON
for hidden in yes no; do
    accepts "$python" write.py $hidden $(most 700 700 200)
    warns "top_ids: expected 10 numbers, found 1
top_id: expected one of tokens, nodes, *"
    sed 's/ *$//' ../out >expected.txt
    accepts trace --hashes $([ $hidden = yes ] || echo --no-hidden) written.trace
    sed 's/ *$//' ../out >found.txt
    cmp expected.txt found.txt || { diff expected.txt found.txt | head -n 6;
        fail "not what was written"; }
done
n=$(($(stat -c %s written.trace) - 200)) # in the last block of what is no hidden state
{ head -c $n written.trace; printf 'XXXX'; tail -c +$((n + 5)) written.trace; } >damaged.trace
refuses 3 "*damaged.trace: block *: checksum: expected the stored one, found another" \
    specrt-eval replay --trace damaged.trace --policy full
accepts specrt-eval replay --trace written.trace --policy full,window:300 --json
has 'rows[policy=full][domain=all].estimated=false'
if ! is_quick; then # of few blocks nothing is left
    head -c $(($(stat -c %s written.trace) * 9 / 10)) written.trace >cut.trace
    accepts specrt-eval replay --trace cut.trace --policy full,window:300
    prints '*up to where a trace was cut*'
fi

# A log of any engine's, a record a line.
cat >log.jsonl <<'JSON'
{"domain": "code", "tokens": [1, 5, 9]}
{"tokens": [7, 3], "nodes": [0, 1], "tree_tokens": [9, 7], "tree_parents": [-1, 0], "top_ids": [[7, 8], [3, 2]]}
JSON
convert() { "$python" "$CLI_TESTS/../../examples/trace_writer.py" "$@"; }
accepts convert log.jsonl log.trace --n-vocab 10 --n-top 2 --policy full
accepts trace log.trace
prints "*s code: 1 5 9*c 7 3 : 7 3*"
echo '{"tokens": [1], "nodes": [0], "top": 3}' >>log.jsonl
refuses 1 "trace_writer: log.jsonl:3: top: expected one of tokens, *" convert log.jsonl log.trace \
    --n-vocab 10 --n-top 2
