"""test_order.py : the calls of a session in every order and with arguments of every wrong width, from tables. Each raises and
leaves the session as it was, or gives the tokens of plain decoding; never anything else."""
import os
import unittest
import zlib

import numpy as np

import specrt
from test_specrt import Folder

N, WIDE, D = 20, 24, 8  # tokens, columns of the target's logits (the last are padding), states
TERMINATOR = 7
PROMPT = [3, 4]
EVERYWHERE = "created prompt read open draft drafted ended"
SAME = None  # the place stays

# Of each call the places where it comes in order, and where the session is after it.
ORDER = {
    "begin": (EVERYWHERE, "prompt"), "short": (EVERYWHERE, "prompt"), "turn": (EVERYWHERE, "prompt"),
    "prefill": ("prompt read", "read"), "first": ("read", "draft"), "draw": ("read open draft", SAME),
    "start": ("read open", "draft"), "beam": ("draft", SAME), "expand": ("draft", SAME), "batch": ("draft", SAME),
    "draft_block": ("draft", "drafted"), "block_topk": ("draft", SAME),
    "finish": ("draft", "drafted"), "verify": ("draft drafted", "drafted"), "accept": ("draft drafted", "draft"),
    "observe": ("drafted", "draft"), "observe_chain": ("draft drafted", "draft"), "wait": ("draft drafted", "open"),
    "save": ("created prompt read open draft ended", SAME), "load": (EVERYWHERE, "draft"), "shortlist": (EVERYWHERE, SAME),
    "stats": (EVERYWHERE, SAME), "member": (EVERYWHERE, SAME)}
METHODS = {"short": "begin", "wait": "observe_chain", "batch": "expand"}  # of calls that are none
# How to come to each place; what comes next there.
REACH = {"created": "", "prompt": "begin", "read": "begin prefill", "open": "begin prefill first wait",
         "draft": "begin prefill first", "grown": "begin prefill first expand", "full": "begin prefill first expand expand",
         "drafted": "begin prefill first expand finish", "verified": "begin prefill first expand finish verify",
         "alone": "begin prefill first verify", "ended": "short prefill first"}
NEXT = {"created": "begin", "prompt": "prefill", "read": "first", "open": "start", "draft": "expand", "drafted": "accept",
        "ended": "begin"}


class Talk:
    """A session, and what its calls must give: a target whose logits follow from the whole text before them."""

    def __init__(self, rows, policy):
        self.rows = rows
        self.session = specrt.Session(policy, WIDE, specrt.Tree(2, 2, 5), n_block=1)
        self.place, self.text, self.saved = "created", [], b""
        self.left = self.most = 1 << 60  # tokens that the answer may still have
        self.clear()

    def clear(self):
        """No draft is under way."""
        self.grown, self.paths, self.draft, self.verdict = 0, [[]], None, None

    # --- models ---

    def state(self, text):
        return np.random.default_rng(zlib.crc32(bytes(text))).standard_normal(D).astype(np.float32)

    def logits(self, text):
        """float32 [WIDE] behind a text; padding has the largest."""
        return np.concatenate([self.rows @ self.state(text), np.full(WIDE - N, 99, np.float32)])

    def best(self, text):
        return int(self.logits(text)[:N].argmax())

    def target(self, draft):
        """Logits at the nodes of a draft, whose root is the last token of the text."""
        texts = []
        for token, parent in zip(draft.tokens, draft.parents):
            texts.append(self.text if parent < 0 else texts[parent] + [int(token)])
        return np.array([self.logits(text) for text in texts])

    def drafter(self):
        """States of the beam: the target's, and so often right."""
        return np.array([self.state(self.text + path) for path in self.paths])

    def own(self):
        """The draft under way, or the last token alone."""
        root = specrt.Draft((self.text or [1])[-1:], [-1], [0], np.ones(1, np.uint64), np.zeros(1, np.float32))
        return self.draft or root

    # --- calls ---

    def arguments(self, call):
        """What is right for a call that comes in order."""
        last, draft, best = (self.text or [1])[-1:], self.own(), self.best(self.text)
        logits = self.logits(self.text)
        return {"short": (0, 1), "turn": (0,), "prefill": (PROMPT, np.zeros((2, WIDE), np.float32)), "first": (logits,),
                "draw": (logits,), "start": (best,), "expand": (self.drafter(),), "batch": (self.drafter(),),
                "draft_block": (self.drafter()[:1],), "block_topk": (self.drafter()[:1],),
                "verify": (draft, self.target(draft)), "accept": (draft, self.target(draft)),
                "observe": (draft, self.verdict or specrt.Verdict([best], [0]), self.target(draft)),
                "observe_chain": (last, 0, best, logits[None]), "wait": (last, 0, -1, logits[None]), "load": (self.saved,),
                "member": (1,)}.get(call, ())

    def function(self, call):
        if call == "batch":
            return lambda *args: specrt.expand_batch([self.session], *args)[0]
        return getattr(self.session, METHODS.get(call, call))

    def in_order(self, call):
        """Whether a call may come now."""
        least = {"save": 1, "expand": 2, "batch": 2, "draft_block": 1, "block_topk": 1}  # passes, of which it is too late
        if self.place == "draft" and self.grown >= least.get(call, 9):
            return False
        return self.place in ORDER[call][0].split()

    def make(self, call):
        """A call that is refused if it comes out of order, and else gives what it must."""
        if not self.in_order(call):
            try:
                self.function(call)(*self.arguments(call))
            except specrt.OrderError as error:
                assert ": expected " in str(error) and "\n" not in str(error), error
                return
            raise AssertionError(f"{call} at {self.place}: expected OrderError")
        out = self.function(call)(*self.arguments(call))
        self.place = ORDER[call][1] or self.place
        self.most = 1 if call == "short" else 1 << 60
        getattr(self, "after_" + METHODS.get(call, call), lambda out: None)(out)

    def emit(self, tokens):
        """These tokens were emitted: they must be those of plain decoding."""
        for token in tokens:
            assert token == self.best(self.text), (token, self.text)
            self.text = self.text + [int(token)]
        self.left -= len(tokens)
        self.clear()

    def after_begin(self, _):
        self.text, self.left = [], self.most
        self.clear()

    def after_turn(self, _):
        self.after_begin(_)

    def after_prefill(self, _):
        self.text = self.text + PROMPT

    def after_draw(self, token):
        assert token == self.best(self.text)

    def after_start(self, _):
        self.emit([self.best(self.text)])

    def after_first(self, verdict):
        self.emit(verdict.tokens)
        end = "TERMINATOR" if TERMINATOR == verdict.tokens[-1] else "LENGTH" if self.left <= 0 else "NONE"
        assert verdict.end.name == end and TERMINATOR not in verdict.tokens[:-1], (verdict, self.left)
        if verdict.end:
            self.place = "ended"

    def after_accept(self, verdict):
        self.after_first(verdict)

    def after_beam(self, beam):
        assert len(beam.tokens) == (0 if self.grown == 2 else len(self.paths))

    def after_expand(self, beam):
        self.paths = [self.paths[p] + [int(t)] for p, t in zip(beam.parents, beam.tokens)] or [[]]
        self.grown += 1

    def after_block_topk(self, out):
        assert out[0].shape == out[1].shape == (1, 16) and out[0].max() < N
        self.grown = 3  # no pass may follow

    def after_draft_block(self, draft):
        self.after_finish(draft)

    def after_finish(self, draft):
        assert draft.tokens[0] == self.text[-1] and draft.tokens.max() < N
        self.draft = draft

    def after_verify(self, verdict):
        self.draft, text = self.own(), self.text
        for token in verdict.tokens:
            assert token == self.best(text)
            text = text + [int(token)]
        self.verdict = verdict

    def after_observe(self, _):
        self.emit(self.verdict.tokens if self.verdict else [self.best(self.text)])

    def after_observe_chain(self, _):
        self.clear()
        if self.place == "draft":
            self.emit([self.best(self.text)])

    def after_save(self, saved):
        self.saved, self.at = saved, (self.place, self.text)

    def after_load(self, _):
        (self.place, self.text), self.left = self.at, 1 << 60
        self.clear()

    def go_on(self, n):
        """So many calls in order."""
        for _ in range(n):
            self.make("finish" if self.grown >= 2 and self.place == "draft" else NEXT[self.place])


def wrong_arrays(x):
    """An array of another width, height, type, place in memory, or kind."""
    yield np.concatenate([x, x[..., :1]], -1)
    yield np.ascontiguousarray(x[..., :-1])
    if x.ndim == 2:
        yield np.concatenate([x, x[:1]])
        yield x[:-1]
    yield x.astype(np.float64)
    yield np.repeat(x, 2, -1)[..., ::2]
    yield x[None]
    yield x.tolist()


def wrong_drafts(d):
    """A draft with another root, tokens that are none, or parents that come later."""
    n = len(d.tokens)
    for name, values in (("tokens", [(int(d.tokens[0]) + 1) % N]), ("tokens", [N]), ("tokens", [-1]), ("tokens", [1 << 40]),
                         ("parents", [-1, 1]), ("parents", [-1, -1]), ("parents", [-1, n]), ("depths", [-1])):
        if len(values) <= n:
            yield d._replace(**{name: values + list(getattr(d, name)[len(values):])})
    yield specrt.Draft([], [], [], np.empty(0, np.uint64), np.empty(0, np.float32))
    yield d._replace(parents=d.parents[1:])
    yield d._replace(masks=d.masks.astype(np.int64))
    yield d._replace(logprobs=np.zeros(n + 1, np.float32))


def wrong_verdicts(v):
    for values in [], [N], [-1], list(range(6)):
        yield v._replace(tokens=values)
    for nodes in [1, *v.nodes[1:]], [0, *([9] * len(v.nodes[1:])), 9]:
        yield v._replace(nodes=nodes)
    yield specrt.Verdict([1, *v.tokens], [0, 0, *v.nodes[1:]])


def wrong(args):
    """The arguments of a call with one of them wrong."""
    kinds = (np.ndarray, wrong_arrays), (specrt.Draft, wrong_drafts), (specrt.Verdict, wrong_verdicts)
    for i, argument in enumerate(args):
        for kind, make in kinds:
            if isinstance(argument, kind):
                yield from ((*args[:i], other, *args[i + 1:]) for other in make(argument))


class Order(Folder):
    def setUp(self):
        super().setUp()
        self.rows = np.random.default_rng(1).standard_normal((N, D)).astype(np.float32)
        self.policy = specrt.Policy("static:8+window:6@min=0", specrt.Head(self.rows), n_vocab=N, terminators=[TERMINATOR],
                                    ids=range(N))

    def talk(self, place="created"):
        talk = Talk(self.rows, self.policy)
        for call in "begin prefill first save".split() + REACH[place].split():
            talk.make(call)
        if place == "created":
            saved, at = talk.saved, talk.at
            talk = Talk(self.rows, self.policy)
            talk.saved, talk.at = saved, at
        return talk

    def test_table(self):
        """The table has every method of a session."""
        methods = {name for name, member in vars(specrt.Session).items() if callable(member) and not name.startswith("_")}
        self.assertEqual({METHODS.get(call, call) for call in ORDER}, methods)

    def test_order(self):
        """Every call at every place, and an answer after it."""
        for place in REACH:
            for call in ORDER:
                with self.subTest(place=place, call=call):
                    talk = self.talk(place)
                    self.assertIn(talk.place, (place, "draft", "drafted"))
                    talk.make(call)
                    talk.go_on(12)

    def test_any(self):
        """Calls at random, most of them out of order."""
        random, calls = np.random.default_rng(4), list(ORDER)
        for _ in range(10 if os.environ.get("TEST_QUICK") else 40):
            talk = self.talk()
            for call in random.integers(len(calls), size=120):
                talk.make(calls[call])
                if random.integers(2):
                    talk.go_on(1)

    def test_widths(self):
        """Every argument wrong in every way, where the call comes in order; then the right one."""
        n = 0
        for place in REACH:
            for call in ORDER:
                talk = self.talk(place)
                if not talk.in_order(call):
                    continue
                for args in wrong(talk.arguments(call)):
                    with self.subTest(place=place, call=call, args=args), self.assertRaises((specrt.SpecrtError, TypeError)) as e:
                        talk.function(call)(*args)
                    self.assertNotIsInstance(e.exception, specrt.OrderError, (place, call, args))
                    n += 1
                talk.make(call)
                talk.go_on(12)
        self.assertGreater(n, 300)

    def test_tokens(self):
        """Padding, and what is no token at all, is refused wherever a token is passed."""
        for place, call in ("prompt", "prefill"), ("read", "start"), ("draft", "observe_chain"):
            talk = self.talk(place)
            for token in N, WIDE - 1, WIDE, -2, 1 << 31, 1 << 40:
                args = ([token],) if call == "prefill" else (token,) if call == "start" else (talk.text[-1:], 0, token)
                with self.assertRaises(specrt.SpecrtError):
                    talk.function(call)(*args)
            talk.make(call)
            talk.go_on(12)
        talk = self.talk("draft")
        for args in (([(talk.text[-1] + 1) % N], 0, 1), (talk.text[-1:], 1, 1), (talk.text[-1:], -1, 1), ([], 0, 1)):
            self.assertRaises(specrt.SpecrtError, talk.session.observe_chain, *args)
        talk.go_on(12)

    def test_stale(self):
        """A draft or a verdict of an older cycle is refused, also where the root is the same token."""
        talk = self.talk("verified")
        draft, verdict = talk.draft, talk.verdict
        talk.make("observe")
        draft = draft._replace(tokens=[talk.text[-1], *draft.tokens[1:]])
        rows = np.zeros((len(draft.tokens), WIDE), np.float32)
        self.says("verify: draft: expected that of this cycle", talk.session.verify, draft, rows)
        self.says("verify: draft: expected that of this cycle", talk.session.accept, draft, rows)
        talk.make("finish")
        self.says("observe: verdict: expected that of this cycle", talk.session.observe, talk.draft, verdict)
        talk.go_on(12)

    def test_nan(self):
        """Logits that are no numbers give no token."""
        for place, call in ("read", "first"), ("read", "draw"), ("drafted", "verify"), ("drafted", "accept"):
            for bad in np.nan, -np.inf:
                talk = self.talk(place)
                *args, logits = talk.arguments(call)
                self.says(f"{'draw' if call == 'first' else 'verify' if call == 'accept' else call}: logits: expected numbers",
                          talk.function(call), *args, np.full_like(logits, bad))
                talk.make(call)
                talk.go_on(12)


if __name__ == "__main__":
    unittest.main()
