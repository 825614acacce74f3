"""test_misuse.py : every public method called where it must not be: closed, with wrong arguments, from several threads,
after fork(), and let go in any order. Each gives one line that says why, and none ends the process. test_order.py has the
calls of a session in every order."""
import copy
import gc
import inspect
import itertools
import os
import pickle
import tempfile
import threading
import unittest

import numpy as np

import specrt
from test_specrt import GOLDEN, Folder

N, D = 20, 8
LOGITS = np.zeros((1, N), np.float32)
STATES = np.ones((1, D), np.float32)
ROOT = specrt.Draft([1], [-1], [0], np.ones(1, np.uint64), np.zeros(1, np.float32))  # a draft of the last token alone
VERDICT = specrt.Verdict([2], [0])

# Arguments with which each public method of an open object is called; the value of a property is read.
CALLS = {
    "Bundle": {"ids": (), "counts": (), "d2t": (), "t2d": (), "sections": (), "report": (), "n_vocab": None,
               "n_default": None, "check_tokenizer": (bytes(32),)},
    "Head": {},
    "Policy": {"needs_prompt_logits": None, "needs_draft_input": None, "static_ids": None, "hidden_width": None,
               "bound": None, "ends": (1,)},
    "Stock": {"stats": ()},
    "Session": {"begin": (), "turn": (0,), "save": (), "load": (b"",), "prefill": ([1],), "first": (LOGITS[0],),
                "draw": (LOGITS[0],), "start": (1,), "beam": (), "shortlist": (), "expand": (STATES,), "draft_block": (STATES,), "block_topk": (STATES,), "finish": (),
                "accept": (ROOT, LOGITS), "verify": (ROOT, LOGITS), "observe": (ROOT, VERDICT, LOGITS),
                "observe_chain": ([1], 0, 2), "member": (1,), "stats": ()},
    "TraceWriter": {"sequence": ([1],), "cycle": ([1],)},
}
# Arguments that a method refuses, each with the error and a part of its message.
WRONG = {
    "Bundle": [("ids", ("x",), TypeError, "n: expected int, found str"), ("ids", (1.5,), TypeError, "n: "),
               ("ids", (-1,), specrt.SpecrtError, "size -1"), ("ids", (1 << 40,), specrt.SpecrtError, "32 bits"),
               ("counts", (None,), TypeError, "n: "), ("d2t", ("x",), TypeError, "n: "), ("t2d", ([],), TypeError, "n: "),
               ("check_tokenizer", (7,), TypeError, "tokenizer: ")],
    "Policy": [("ends", ("a",), TypeError, "token: expected int, found str"), ("ends", (None,), TypeError, "token: ")],
    "Session": [
        ("begin", ("a",), TypeError, "position: "), ("begin", (-1,), specrt.SpecrtError, "position: expected 0 to"),
        ("begin", (0, -1), specrt.SpecrtError, "max_tokens: "), ("begin", (0, 0, 5), TypeError, "sampling: "),
        ("begin", (0, 0, (1.0,)), specrt.SpecrtError, "session: expected a number of 1 or more"),
        ("begin", (0, 0, ("x",)), TypeError, "sampling: temperature: expected a number, found str"),
        ("begin", (0, 0, (1.0, 0, 0, 0, 1 << 64)), specrt.SpecrtError, "seed: expected an integer of 64 bits"),
        ("begin", (0, 0, (1.0, 0, 0, 0, -1)), specrt.SpecrtError, "seed: expected an integer of 64 bits"),
        ("begin", (0, 0, (float("nan"), 0, 0, 0, 0, 1)), specrt.SpecrtError, "temperature"),
        ("turn", ("a",), TypeError, "position: "), ("turn", (-1,), specrt.SpecrtError, "position: expected 0 to 1"),
        ("turn", (2,), specrt.SpecrtError, "position: expected 0 to 1, the tokens that the target has read"),
        ("turn", (1 << 63,), specrt.SpecrtError, "position: expected an integer of 64 bits"),
        ("load", ("text",), TypeError, "saved: expected bytes, found str"),
        ("load", (b"short",), specrt.SpecrtError, "session"),
        ("prefill", ("text",), TypeError, "tokens: "), ("prefill", ([1.5],), TypeError, "tokens: "),
        ("prefill", ([3, N],), specrt.SpecrtError, f"prefill: token 1: expected 0 to {N - 1}, found {N}"),
        ("prefill", ([-1],), specrt.SpecrtError, "found -1 at 0"),
        ("prefill", ([1 << 40],), specrt.SpecrtError, f"found {1 << 40} at 0"),
        ("prefill", ([[1]],), specrt.SpecrtError, "tokens: expected token ids [n], found [1, 1]"),
        ("prefill", ([1], "x"), TypeError, "logits: "), ("prefill", ([1], None, [1]), TypeError, "ids: "),
        ("draw", (None,), specrt.SpecrtError, "logits: expected a pointer, found NULL"), ("draw", ("x",), TypeError, "logits: "),
        ("draw", (LOGITS[0].tolist(),), TypeError, "logits: expected an array of numpy, PyTorch or DLPack, found list"),
        ("first", (None,), specrt.SpecrtError, "logits: expected a pointer, found NULL"), ("first", ("x",), TypeError, "logits: "),
        ("start", ("a",), TypeError, "token: expected int, found str"),
        ("start", (N,), specrt.SpecrtError, f"token 0: expected 0 to {N - 1}, found {N}"),
        ("start", (1 << 32,), specrt.SpecrtError, "32 bits"),
        ("expand", (None,), specrt.SpecrtError, "draft_hidden: expected a pointer, found NULL"),
        ("draft_block", (None,), specrt.SpecrtError, "hidden: expected a pointer, found NULL"),
        ("draft_block", (STATES, None, 2), TypeError, "by_position: "), ("block_topk", ("x",), TypeError, "hidden: "),
        ("block_topk", (STATES, None, "a"), TypeError, "k: "),
        ("expand", (5,), TypeError, "draft_hidden: "), ("expand", ("x",), TypeError, "draft_hidden: "),
        ("accept", (5, LOGITS), TypeError, "draft: expected Draft"), ("accept", (ROOT, None), specrt.SpecrtError, "rows: "),
        ("accept", (ROOT._replace(depths=[0, 1]), LOGITS), specrt.SpecrtError, "draft.depths: expected 1 numbers"),
        ("verify", (ROOT, None), specrt.SpecrtError, "logits: "), ("verify", (None, LOGITS), TypeError, "draft: "),
        ("verify", (ROOT._replace(tokens=["a"]), LOGITS), TypeError, "draft.tokens: "),
        ("observe", (ROOT, 5), TypeError, "verdict: expected Verdict"),
        ("observe", (ROOT, VERDICT._replace(nodes=[0, 1])), specrt.SpecrtError, "verdict: expected as many nodes as tokens"),
        ("observe", (ROOT, specrt.Verdict(range(65), range(65))), specrt.SpecrtError, "verdict: expected"),
        ("observe_chain", ([1], 0, "a"), TypeError, "last: "), ("observe_chain", ("a", 0, 1), TypeError, "tokens: "),
        ("member", ("a",), TypeError, "token: "), ("member", (1, "a"), TypeError, "level: "),
    ],
    "TraceWriter": [("sequence", (["a"],), TypeError, "tokens: "), ("sequence", ([1], 5), TypeError, "domain: "),
                    ("cycle", ([],), specrt.SpecrtError, "tokens: ")],
}
def public(cls):
    """Methods and properties that the class adds, but for close() and __init__."""
    return {name for name, member in inspect.getmembers(cls)
            if not name.startswith("_") and name not in ("close", "handle")
            and (inspect.isfunction(member) or isinstance(member, property))}


class Misuse(Folder):
    def setUp(self):
        super().setUp()
        self.rows = np.random.default_rng(1).standard_normal((N, D)).astype(np.float32)

    def objects(self, stock=False):
        """One open object of each class, in the order in which they must be closed."""
        out = {"Bundle": specrt.Bundle(GOLDEN), "Head": specrt.Head(self.rows)}
        out["Policy"] = specrt.Policy("static:8+window:5@min=0", out["Head"], out["Bundle"])
        out["Stock"] = specrt.Stock(out["Head"])
        out["Session"] = specrt.Session(out["Policy"], N, specrt.Tree(3, 2, 6), stock=out["Stock"] if stock else None)
        out["Session"].begin()
        out["TraceWriter"] = specrt.TraceWriter(self.path("a.trace"), n_vocab=N)
        return dict(reversed(out.items()))

    def raises(self, kind, text, function, *args, **more):
        with self.assertRaises(kind) as caught:
            function(*args, **more)
        self.assertIn(text, str(caught.exception))
        self.assertNotIn("\n", str(caught.exception))

    def test_tables(self):
        """A new class or method is missed here."""
        classes = {name: member for name in specrt.__all__ if name not in ("Library", "SpecrtError")
                   and inspect.isclass(member := getattr(specrt, name)) and hasattr(member, "close")}
        self.assertEqual(set(classes), set(CALLS))
        for name, cls in classes.items():
            self.assertEqual(public(cls), set(CALLS[name]), name)

    def test_closed(self):
        opened = self.objects()
        for name, object_ in opened.items():
            handle = object_.handle if isinstance(object_, specrt._lib.Owner) else None
            object_.close()
            object_.close()  # a second time does nothing
            self.assertFalse(handle, name)  # which a call of another thread may have taken already
            for method, args in CALLS[name].items():
                with self.subTest(name=name, method=method):
                    call = (lambda: getattr(object_, method)) if args is None else getattr(type(object_), method)
                    self.raises(specrt.SpecrtError, f"{name} is closed", call, *(() if args is None else (object_, *args)))
        for make in (lambda: specrt.Policy("full", opened["Head"]), lambda: specrt.Session(opened["Policy"], N),
                     lambda: specrt.Stock(opened["Head"]), lambda: specrt.Head(self.rows, bundle=opened["Bundle"]),
                     lambda: specrt.expand_batch([opened["Session"]], STATES)):
            self.raises(specrt.SpecrtError, "is closed", make)

    def test_borrowed(self):
        """What others use stays open and says who uses it."""
        opened = self.objects(stock=True)
        for name, users in (("Bundle", "1 open (Policy)"), ("Head", "2 open (Policy, Stock)"),
                            ("Policy", "1 open (Session)"), ("Stock", "1 open (Session)")):
            self.raises(specrt.SpecrtError, f"found {users}", opened[name].close)
        self.assertEqual(len(opened["Bundle"].ids(5)), 5)
        self.raises(specrt.SpecrtError, "kernel", specrt.Policy, "static:8@kernel=1", opened["Head"], opened["Bundle"])
        for object_ in opened.values():  # a policy that did not open holds nothing
            object_.close()

    def test_memory(self):
        """Numbers that lie in memory otherwise than C reads them are refused, or converted where they are copied."""
        session = self.objects()["Session"]
        shifted = np.frombuffer(b"x" + LOGITS.tobytes(), np.float32, N, 1)
        self.raises(specrt.SpecrtError, "multiples of 4", session.draw, shifted)
        self.raises(specrt.SpecrtError, "logits: expected float32 [20] in one piece, found >f4", session.draw,
                    LOGITS[0].astype(">f4"))
        self.raises(specrt.SpecrtError, "found >f4", specrt.Head, self.rows.astype(">f4"))
        session.begin()
        session.prefill(np.frombuffer(b"x" + np.array([1, 2], ">i4").tobytes(), ">i4", 2, 1))
        self.raises(specrt.SpecrtError, "token 1: expected 0 to 19, found 20", session.prefill, np.array([1, 20], ">i4"))

    def test_with(self):
        with specrt.Head(self.rows) as head, specrt.Policy("full", head) as policy, specrt.Session(policy, N) as session:
            session.begin()
        for object_ in head, policy, session:
            self.raises(specrt.SpecrtError, "is closed", lambda: object_.handle)

    def test_wrong(self):
        opened = self.objects()
        for name, rows in WRONG.items():
            for method, args, kind, text in rows:
                with self.subTest(name=name, method=method, args=args):
                    opened["Session"].begin()
                    opened["Session"].prefill([2])
                    self.raises(kind, text, getattr(opened[name], method), *args)

    def test_wrong_constructors(self):
        opened = self.objects()
        head, policy, stock = opened["Head"], opened["Policy"], opened["Stock"]
        gaps = np.zeros((N, 2 * D), np.float32)[:, ::2]
        for make, kind, text in (
                (lambda: specrt.Policy(head, "microspec"), TypeError, "text: expected str, found Head"),
                (lambda: specrt.Policy("full", policy), TypeError, "head: expected Head, found Policy"),
                (lambda: specrt.Policy("full", head, "b.specb"), TypeError, "bundle: "),
                (lambda: specrt.Policy("full", head, terminators="x"), TypeError, "terminators: "),
                (lambda: specrt.Policy("full", head, embedding="x"), TypeError, "embedding: "),
                (lambda: specrt.Head("x"), TypeError, "rows: "), (lambda: specrt.Head(None), TypeError, "rows: "),
                (lambda: specrt.Head(self.rows[0]), specrt.SpecrtError, "rows: expected [n_rows, d]"),
                (lambda: specrt.Head(gaps), specrt.SpecrtError, "each row in one piece"),
                (lambda: specrt.Head(self.rows, bias=[1.0]), TypeError, "bias: "),
                (lambda: specrt.Head(self.rows, bundle=head), TypeError, "bundle: "),
                (lambda: specrt.Head(self.rows, markov=(self.rows,)), specrt.SpecrtError, "expected two matrices"),
                (lambda: specrt.Head([[1.0] * D] * N), TypeError, "rows: expected an array of numpy, PyTorch or DLPack"),
                (lambda: specrt.Session(head, N), TypeError, "policy: expected Policy, found Head"),
                (lambda: specrt.Session(policy), TypeError, "n_logits"),
                (lambda: specrt.Session(policy, 0), specrt.SpecrtError, "n_logits"),
                (lambda: specrt.Session(policy, N - 1), specrt.SpecrtError, "n_logits"),
                (lambda: specrt.Session(policy, N, tree=5), TypeError, "tree: "),
                (lambda: specrt.Session(policy, N, (1 << 32, 1, 2)), specrt.SpecrtError, "tree: num_steps: expected an integer"),
                (lambda: specrt.Session(policy, N, (1.5, 1, 2)), TypeError, "tree: num_steps: expected an integer, found float"),
                (lambda: specrt.Session(policy, N, sampling="x"), TypeError, "sampling: "),
                (lambda: specrt.Session(policy, N, sampling=specrt.Sampling(1.0)), specrt.SpecrtError, "session: expected"),
                (lambda: specrt.Session(policy, N, sampled=True), specrt.SpecrtError, "session: "),
                (lambda: specrt.Session(policy, N, stock=head), TypeError, "stock: "),
                (lambda: specrt.Stock(policy), TypeError, "head: "), (lambda: specrt.Stock(head, "x"), TypeError, "n_rows"),
                (lambda: specrt.Bundle(5), TypeError, "path: "),
                (lambda: specrt.expand_batch([None], STATES), TypeError, "sessions: expected Session objects, found NoneType"),
                (lambda: specrt.expand_batch(stock, STATES), TypeError, "sessions: "),
                (lambda: specrt.expand_batch([opened["Session"]], STATES), specrt.OrderError, "expand: expected"),
                (lambda: specrt.TraceWriter(self.path("b"), n_vocab="x"), TypeError, "n_vocab: ")):
            with self.subTest(text=text):
                self.raises(kind, text, make)

    def test_copies(self):
        for name, object_ in self.objects(stock=True).items():
            for copied in copy.copy, copy.deepcopy, pickle.dumps:
                self.raises(TypeError, f"{name} cannot be copied or pickled; create another one", copied, object_)

    def test_nul(self):
        """C would read text up to the NUL: another file, or another policy."""
        opened = self.objects()
        for call in (lambda: specrt.Bundle(GOLDEN + "\0.txt"), lambda: specrt.Policy("full\0+window", opened["Head"]),
                     lambda: opened["TraceWriter"].sequence([1], "co\0de"),
                     lambda: specrt.TraceWriter(self.path("b\0c"), n_vocab=N),
                     lambda: specrt.TraceWriter(self.path("b"), n_vocab=N, policy="full\0"),
                     lambda: specrt.library("libspecrt.so\0"), lambda: specrt.read_map(GOLDEN + "\0"),
                     lambda: specrt.write_map([1], self.path("c\0"), "text"),
                     lambda: opened["Bundle"].check_tokenizer("a\0"),
                     lambda: specrt.recut(self.path("a"), GOLDEN + "\0", 5, self.path("d")),
                     lambda: specrt.check("a\0"), lambda: specrt.calibrate("a\0", [GOLDEN], self.path("d")),
                     lambda: specrt.prepare("a", "b", "vllm", self.path("d"), ["c\0"], progress=print)):
            with self.assertRaises(ValueError):
                call()

    def test_threads(self):
        """A session in use by one thread refuses another; a policy serves all."""
        opened, errors, done = self.objects(), set(), []
        session, policy = opened["Session"], opened["Policy"]

        def work():
            for _ in range(300):
                try:
                    session.prefill(list(range(N)) * 50)  # of one prompt
                    session.shortlist()
                    policy.ends(3)
                except specrt.SpecrtError as error:
                    errors.add(str(error))
            done.append(True)
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(done), 4)
        self.assertLessEqual(errors, {"Session is in use by another thread; expected one thread at a time"})
        with session._exclusive():  # whatever the timing above was
            self.raises(specrt.SpecrtError, "in use by another thread", session.stats)
            self.raises(specrt.SpecrtError, "in use by another thread", session.close)
        session.stats()

    def test_stock_threads(self):
        """A stock and its sessions are one thread's."""
        opened = self.objects(stock=True)
        with opened["Session"]._exclusive():
            self.raises(specrt.SpecrtError, "in use by another thread", opened["Stock"].stats)

    @unittest.skipUnless(hasattr(os, "fork"), "no fork()")
    def test_fork(self):
        """A child drafts what its parent drafts, and closes what it has, without a trace in the parent."""
        opened = self.objects()
        session = opened["Session"]
        session.prefill([2])
        session.start(1)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.write(write, session.expand(STATES).tokens.tobytes())
                for object_ in opened.values():
                    object_.close()
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        self.assertEqual(status, 0)
        self.assertEqual(os.read(read, 64), session.expand(STATES).tokens.tobytes())
        os.close(read), os.close(write)

    def test_garbage(self):
        """Let go in every order, alone or in a circle."""
        for order in itertools.permutations(range(5)):
            opened = [object_ for name, object_ in self.objects(stock=True).items() if name != "TraceWriter"]
            for i in order:
                opened[i] = None
            circle = self.objects(stock=True)
            circle["Bundle"].circle = circle["Session"]
            del circle
        gc.collect()
        self.assertEqual([x for x in gc.get_objects() if isinstance(x, specrt.Session) and x._handle], [])


if __name__ == "__main__":
    unittest.main()
