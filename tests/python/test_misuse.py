"""test_misuse.py : every public method called where it must not be: closed, out of order, with wrong arguments, from several
threads, after fork(), and let go in any order. Each gives one line that says why, and none ends the process."""
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

# Arguments with which each public method of an open object is called; the value of a property is read.
CALLS = {
    "Bundle": {"ids": (), "counts": (), "d2t": (), "t2d": (), "sections": (), "report": (), "n_vocab": None,
               "n_default": None, "check_tokenizer": (bytes(32),)},
    "Head": {},
    "Policy": {"needs_prompt_logits": None, "needs_draft_input": None, "static_ids": None, "hidden_width": None,
               "bound": None, "ends": (1,)},
    "Stock": {"stats": ()},
    "Session": {"begin": (), "turn": (0,), "save": (), "load": (b"",), "set_sequence": (1,), "prefill": ([1],),
                "draw": (LOGITS[0],), "start": (1,), "shortlist": (), "expand": (STATES,), "finish": (),
                "verify": (LOGITS,), "observe": (LOGITS,), "observe_chain": ([1], 0, 2), "member": (1,),
                "stats": ()},
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
        ("turn", ("a",), TypeError, "position: "), ("turn", (-1,), specrt.SpecrtError, "position at least 0"),
        ("load", ("text",), TypeError, "saved: expected bytes, found str"),
        ("load", (b"short",), specrt.SpecrtError, "session"),
        ("set_sequence", (1.5,), TypeError, "number: "),
        ("prefill", ("text",), TypeError, "tokens: "), ("prefill", ([1.5],), TypeError, "tokens: "),
        ("prefill", ([3, N],), specrt.SpecrtError, f"tokens: expected ids in [0, {N}), found {N} at 1"),
        ("prefill", ([-1],), specrt.SpecrtError, "found -1 at 0"),
        ("prefill", ([1 << 40],), specrt.SpecrtError, f"found {1 << 40} at 0"),
        ("prefill", ([[1]],), specrt.SpecrtError, "tokens: expected token ids [n], found [1, 1]"),
        ("prefill", ([1, 2], LOGITS), specrt.SpecrtError, f"logits: expected float32 [2, {N}]"),
        ("prefill", ([1], "x"), TypeError, "logits: "), ("prefill", ([1], None, [1]), specrt.SpecrtError, "ids: "),
        ("prefill", ([1], LOGITS.astype(np.float64)), specrt.SpecrtError, "found float64"),
        ("prefill", ([1, 2], np.zeros((4, N), np.float32)[::2]), specrt.SpecrtError, "with gaps"),
        ("draw", (LOGITS,), specrt.SpecrtError, f"logits: expected float32 [{N}]"), ("draw", (None,), TypeError, "logits"),
        ("draw", ("x",), TypeError, "logits: "),
        ("start", ("a",), TypeError, "token: expected int, found str"),
        ("start", (N,), specrt.SpecrtError, f"token in [0, {N}), found {N}"),
        ("start", (1 << 32,), specrt.SpecrtError, "32 bits"),
        ("expand", (None,), specrt.SpecrtError, "expected start()"), ("expand", (5,), specrt.SpecrtError, "matrix"),
        ("expand", ("x",), TypeError, "hidden: "),
        ("observe_chain", ([1], 1, 2), specrt.SpecrtError, "n_accepted below"),
        ("observe_chain", ([1], 0, "a"), TypeError, "last: "), ("observe_chain", ("a", 0, 1), TypeError, "tokens: "),
        ("observe_chain", ([1], 0, N), specrt.SpecrtError, "last in"),
        ("member", ("a",), TypeError, "token: "), ("member", (1, "a"), TypeError, "level: "),
    ],
    "TraceWriter": [("sequence", (["a"],), TypeError, "tokens: "), ("sequence", ([1], 5), TypeError, "domain: "),
                    ("cycle", ([],), specrt.SpecrtError, "tokens: ")],
}
# Calls of a session that has only begun, with what is missing.
EARLY = [("expand", (STATES,), "expected start()"), ("verify", (LOGITS,), "expected finish()"),
         ("observe", (LOGITS,), "expected verify()")]


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
        out["Session"] = specrt.Session(out["Policy"], tree=specrt.Tree(3, 2, 6), stock=out["Stock"] if stock else None)
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
            object_.close()
            object_.close()  # a second time does nothing
            for method, args in CALLS[name].items():
                with self.subTest(name=name, method=method):
                    call = (lambda: getattr(object_, method)) if args is None else getattr(type(object_), method)
                    self.raises(specrt.SpecrtError, f"{name} is closed", call, *(() if args is None else (object_, *args)))
        for make in (lambda: specrt.Policy("full", opened["Head"]), lambda: specrt.Session(opened["Policy"]),
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

    def test_with(self):
        with specrt.Head(self.rows) as head, specrt.Policy("full", head) as policy, specrt.Session(policy) as session:
            session.begin()
        for object_ in head, policy, session:
            self.raises(specrt.SpecrtError, "is closed", lambda: object_.handle)

    def test_wrong(self):
        opened = self.objects()
        for name, rows in WRONG.items():
            for method, args, kind, text in rows:
                with self.subTest(name=name, method=method, args=args):
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
                (lambda: specrt.Head(self.rows, bias=[1.0]), specrt.SpecrtError, "bias: "),
                (lambda: specrt.Head(self.rows, bundle=head), TypeError, "bundle: "),
                (lambda: specrt.Session(head), TypeError, "policy: expected Policy, found Head"),
                (lambda: specrt.Session(policy, tree=5), TypeError, "tree: "),
                (lambda: specrt.Session(policy, temperature="x"), TypeError, "temperature: "),
                (lambda: specrt.Session(policy, stock=head), TypeError, "stock: "),
                (lambda: specrt.Stock(policy), TypeError, "head: "), (lambda: specrt.Stock(head, "x"), TypeError, "n_rows"),
                (lambda: specrt.Bundle(5), TypeError, "path: "),
                (lambda: specrt.expand_batch([None], STATES), TypeError, "sessions: expected Session objects, found NoneType"),
                (lambda: specrt.expand_batch(stock, STATES), TypeError, "sessions: "),
                (lambda: specrt.expand_batch([opened["Session"]], STATES), specrt.SpecrtError, "sessions[0]: expected start()"),
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

    def test_order(self):
        session = self.objects()["Session"]
        for method, args, text in EARLY:
            self.raises(specrt.SpecrtError, text, getattr(session, method), *args)
        session.start(1)
        self.raises(specrt.SpecrtError, "expected 1 row, one", session.expand, np.ones((2, D), np.float32))
        self.raises(specrt.SpecrtError, f"[1, {D}]", session.expand, np.ones((1, D + 1), np.float32))
        beam = session.expand(STATES)
        self.raises(specrt.SpecrtError, "expected 2 rows", session.expand, STATES)
        self.assertEqual(len(beam.tokens), 2)
        draft = session.finish()
        self.raises(specrt.SpecrtError, "expected start()", session.expand, STATES)
        self.raises(specrt.SpecrtError, f"[{len(draft.tokens)}, {N}]", session.verify, LOGITS)
        session.verify(np.zeros((len(draft.tokens), N), np.float32))
        session.begin()
        self.raises(specrt.SpecrtError, "expected finish()", session.verify, LOGITS)

    def test_any_calls(self):
        """Sequences of calls at random: errors, and no crash."""
        rng, logits = np.random.default_rng(4), np.zeros((6, N), np.float32)
        calls = list(CALLS["Session"].items())
        for _ in range(60):
            session = self.objects()["Session"]
            for _ in range(40):
                method, args = calls[rng.integers(len(calls))]
                n = int(rng.integers(1, 4))
                args = tuple(np.repeat(x, n, 0) if x is STATES else logits[:n] if x is LOGITS else x for x in args)
                try:
                    getattr(session, method)(*args)
                except specrt.SpecrtError:
                    pass

    def test_threads(self):
        """A session in use by one thread refuses another; a policy serves all."""
        opened, errors, done = self.objects(), set(), []
        session, policy = opened["Session"], opened["Policy"]

        def work():
            for _ in range(300):
                try:
                    session.prefill(list(range(N)) * 50)
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
