"""test_specrt.py : the package specrt: that it says what the tools and the header say, over the caller's memory."""
import ctypes as C
import gc
import html
import os
import re
import shutil
import subprocess
import sys
import tempfile
import types
import unittest
from unittest import mock

import numpy as np

import specrt
from specrt import _lib, device, _tool

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
GOLDEN = os.path.join(ROOT, "tests", "golden", "bundles", "v1.0-zstd.specb")
SAMPLE = os.path.join(ROOT, "data", "sample")


def torch_or_skip():
    """PyTorch of the oldest version that the package supports, Debian 12's, or a later one."""
    try:
        import torch
    except ImportError:
        raise unittest.SkipTest("expected torch 1.13 or later, found none") from None
    if [int(n) for n in re.findall(r"\d+", torch.__version__)[:2]] < [1, 13]:
        raise unittest.SkipTest(f"expected torch 1.13 or later, found {torch.__version__}")
    return torch


def header_fields(struct):
    """The names of a struct's fields, in the order of the header."""
    with open(os.path.join(ROOT, "include", "specrt.h")) as file:
        text = re.sub(r"/\*.*?\*/", " ", file.read(), flags=re.S)
    body = re.search(r"struct " + struct + r" \{([^}]*)\}", text).group(1)
    body = re.sub(r"\(\*(\w+)\)\((?:[^()]|\([^()]*\))*\)", r" \1", body)  # functions
    declarators = [part.strip() for line in body.split(";") for part in line.split(",") if part.strip()]
    return [re.search(r"(\w+)\s*(?:\[.*\])?$", d, re.S).group(1) for d in declarators]


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def says(self, text, call, *args, **more):
        with self.assertRaises(specrt.SpecrtError) as caught:
            call(*args, **more)
        self.assertIn(text, str(caught.exception))
        self.assertNotIn("\n", str(caught.exception))


class Structs(Folder):
    def check(self, structs):
        """Every struct has the header's fields, sizes and places: its last field ends where the header's does."""
        checks = []
        for name, struct in structs.items():
            last = struct._fields_[-1][0]
            checks.append(f'printf("%zu ", sizeof({name}));')
            checks += [f'printf("%zu ", offsetof({name}, {field[0]}));' for field in struct._fields_]
            checks.append(f'printf("%zu ", sizeof((({name} *)0)->{last}));')
        with open(self.path("layout.c"), "w") as file:
            file.write('#include <stddef.h>\n#include <stdio.h>\n#include "specrt.h"\nint main(void) {\n' +
                       "\n".join(checks) + "\nreturn 0; }\n")
        program = self.path("layout")
        subprocess.run(["cc", "-I", os.path.join(ROOT, "include"), self.path("layout.c"), "-o", program], check=True)
        expected = list(map(int, subprocess.run([program], capture_output=True, text=True).stdout.split()))
        found = []
        for struct in structs.values():
            found += [C.sizeof(struct)] + [getattr(struct, field[0]).offset for field in struct._fields_]
            found.append(getattr(struct, struct._fields_[-1][0]).size)
        self.assertEqual(found, expected)
        for name, struct in structs.items():
            self.assertEqual([field[0] for field in struct._fields_], header_fields(name), name)

    def test_package(self):
        self.check(_lib.STRUCTS)

    def test_device(self):
        self.check({"specrt_cuda_policy_desc": device.CCudaPolicyDesc,
                    "specrt_cuda_session_params": device.CCudaSessionParams, "specrt_cuda_view": device.CCudaView})

    def test_dtypes(self):
        names = [_lib.library().lib.specrt_dtype_name]
        names[0].restype = C.c_char_p
        self.assertEqual([names[0](n) for n in _lib.DTYPES.values()], [b"f32", b"f16", b"bf16"])


class Readme(Folder):
    def test_python(self):
        """The README's lines of Python, over a bundle of the committed corpus and made-up weights."""
        with open(os.path.join(ROOT, "README.md")) as file:
            lines = re.search(r"^```python\n(.*?)^```", file.read(), re.S | re.M).group(1)
        text = [os.path.join(ROOT, "data", "corpus", "code", "c.txt")]
        specrt.calibrate(os.path.join(ROOT, "data", "tokenizer.json"), text, self.path("model.specb"), size=300)
        before = os.getcwd()
        os.chdir(self.folder.name)
        try:
            exec(lines, {"weights": np.ones((32768, 8), np.float16)})
        finally:
            os.chdir(before)
        self.assertEqual(len(specrt.read_map(self.path("draft_vocab.json"), "absolute")), 8192)


class Bundles(Folder):
    def test_lists(self):
        with specrt.Bundle(GOLDEN) as bundle:
            ids = bundle.ids()
            said = _tool.run("export", GOLDEN, "--format", "text", "-o", "-", "-q")
            self.assertEqual(ids.tolist(), list(map(int, said.split())))
            self.assertEqual(ids.dtype, np.int32)
            self.assertEqual(bundle.ids(19)[:len(ids)].tolist(), ids.tolist())
            self.assertEqual((bundle.d2t() + np.arange(len(ids))).tolist(), sorted(ids.tolist()))
            self.assertEqual(np.flatnonzero(bundle.t2d(5)).tolist(), sorted(bundle.ids(5).tolist()))
            self.assertEqual((bundle.n_vocab, bundle.n_default, len(bundle.t2d())), (20, 8, 20))
            self.assertEqual(len(bundle.counts(6)), 6)
            self.says("size 20: expected at least 2 (the forced ids) and at most 19", bundle.ids, 20)

    def test_report(self):
        bundle = specrt.Bundle(GOLDEN)
        said = _tool.report("info", GOLDEN)
        report = bundle.report()
        self.assertEqual(report["sections"], [s["tag"] for s in said["sections"]])
        self.assertEqual(report["provenance"], said["provenance"] or {})
        self.assertEqual(report["tokenizer"]["sha256"], said["tokenizer"]["sha256"])
        self.assertEqual(report["head"], said["head"])

    def test_tokenizer(self):
        bundle = specrt.Bundle(GOLDEN)
        bundle.check_tokenizer(bytes.fromhex(bundle.report()["tokenizer"]["sha256"]))
        self.says("found another", bundle.check_tokenizer, bytes(31) + b"x")
        self.says("v1.0-zstd.specb", bundle.check_tokenizer, os.path.join(ROOT, "data", "tokenizer.json"))

    def test_refuses(self):
        self.says("absent.specb: No such file", specrt.Bundle, self.path("absent.specb"))
        self.says("LICENSE", specrt.Bundle, os.path.join(ROOT, "LICENSE"))


class Maps(Folder):
    def test_round_trips(self):
        ids = np.array([499, 7, 300, 5, 2, 255], np.int32)
        for format in specrt.FORMATS:
            path = self.path(format)
            specrt.write_map(ids, path, format, n_vocab=500)
            read = os.path.join(path, "d2t-6.npy") if format == "speculators" else path
            expected = ids.tolist() if format in ("sglang-pt", "text", "mtplx") else sorted(ids.tolist())
            values = "offset" if format == "speculators" else None  # whose mask is another file
            self.assertEqual(specrt.read_map(read, values, n_vocab=500).tolist(), expected, format)
        self.assertEqual(np.load(self.path("npy/d2t.npy")).tolist(), [2, 4, 5, 252, 296, 494])

    def test_golden(self):
        maps = os.path.join(ROOT, "tests", "golden", "maps")
        self.assertEqual(specrt.read_map(os.path.join(maps, "list.pt"), "absolute").tolist(), [128000, 5, 70000, 300, 0])
        self.assertEqual(specrt.read_map(os.path.join(maps, "vocab_mapping.pt")).tolist(), [2, 3, 7, 11])

    def test_refuses(self):
        self.says("expected one of sglang-pt", specrt.write_map, [1], self.path("x"), "csv")
        self.says("expected each id once", specrt.write_map, [7, 7], self.path("x"), "text")
        specrt.write_map([3, 5], self.path("both"), "text")
        self.says("--values absolute or --values offset", specrt.read_map, self.path("both"))
        self.assertEqual(specrt.read_map(self.path("both"), values="offset").tolist(), [3, 6])
        self.says("exists; use -f", specrt.write_map, [1], self.path("both"), "text")
        specrt.write_map([1], self.path("both"), "text", force=True)

    def test_dash(self):
        """No path is an option of the tool, nor its standard input or output."""
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder.name)
        self.says("--help: cannot open", specrt.read_map, "--help")
        self.says("./-.txt: cannot open", specrt.calibrate, os.path.join(ROOT, "data", "tokenizer.json"),
                  [os.path.join(ROOT, "LICENSE"), "-.txt"], "--version")
        for name in "-", "-f":
            specrt.write_map([3, 5], name, "text")
            self.assertEqual(specrt.read_map(name, "absolute").tolist(), [3, 5])


class Drafters(Folder):
    def setUp(self):
        super().setUp()
        bundle, rows = specrt.Bundle(GOLDEN), np.arange(20 * 4, dtype=np.float16).reshape(20, 4)
        self.rows, self.drafter = rows, self.path("drafter")
        os.mkdir(self.drafter)
        with open(os.path.join(self.drafter, "config.json"), "w") as file:
            file.write('{"architectures": ["LlamaForCausalLMEagle3"], "vocab_size": 20, "draft_vocab_size": 12}')
        self.write(bundle.d2t(12), rows[np.sort(bundle.ids(12))], bundle.t2d(12))

    def write(self, d2t, head, t2d):
        """A safetensors file of three tensors."""
        tensors = {"d2t": ("I64", d2t), "lm_head.weight": ("F16", head), "t2d": ("BOOL", t2d)}
        at, parts, data = 0, [], b""
        for name, (dtype, x) in tensors.items():
            parts.append(f'"{name}":{{"dtype":"{dtype}","shape":{list(x.shape)},'
                         f'"data_offsets":[{at},{at + x.nbytes}]}}')
            at, data = at + x.nbytes, data + x.tobytes()
        header = "{" + ",".join(parts) + "}"
        with open(os.path.join(self.drafter, "model.safetensors"), "wb") as file:
            file.write(len(header).to_bytes(8, "little") + header.encode() + data)

    def test_recut(self):
        bundle = specrt.Bundle(GOLDEN)
        report = specrt.recut(self.drafter, bundle, 5, self.path("five"))
        self.assertEqual((report["n_rows"], report["n_rows_before"], report["cut"], report["same_weights"]),
                         (5, 12, True, False))
        with open(self.path("five/model.safetensors"), "rb") as file:
            body = file.read()[-(5 * 8 + 5 * 8 + 20):]
        self.assertEqual(np.frombuffer(body[:40], np.int64).tolist(), bundle.d2t(5).tolist())
        self.assertEqual(body[40:80], self.rows[np.sort(bundle.ids(5))].tobytes())
        self.assertEqual(body[80:], bundle.t2d(5).tobytes())
        self.assertTrue(specrt.recut(self.drafter, GOLDEN, 12, self.path("same"))["same_weights"])
        self.says("expected at most 12", specrt.recut, self.drafter, bundle, 15, self.path("x"))
        self.says("expected one of vllm", specrt.recut, self.drafter, bundle, 5, self.path("x"), "x")

    def test_prepare(self):
        tokenizer = os.path.join(ROOT, "data", "tokenizer.json")
        text = [os.path.join(ROOT, "data", "corpus", "code", name) for name in ("c.txt", "python.txt")]
        target, drafter = self.path("target"), self.path("eagle")
        for folder, more in ((target, ""), (drafter, "Eagle")):
            os.mkdir(folder)
            with open(os.path.join(folder, "config.json"), "w") as file:
                file.write(f'{{"architectures": ["LlamaForCausalLM{more}"], "vocab_size": 32768}}')
        shutil.copy(tokenizer, target)
        header = b'{"fc.weight":{"dtype":"F16","shape":[1,2],"data_offsets":[0,4]}}'
        with open(os.path.join(drafter, "model.safetensors"), "wb") as file:
            file.write(len(header).to_bytes(8, "little") + header + bytes(4))
        lines = []
        report = specrt.prepare(target, drafter, "sglang", self.path("out"), text=text, size=300, progress=lines.append)
        steps = [line.split()[2] for line in lines if line.startswith("specrt: [")]
        self.assertEqual(steps, ["drafter:", "ranks:", "graph:", "cut:", "check:"])
        self.assertFalse([line for line in lines if not line or "\n" in line or "\033" in line])
        self.assertEqual(report["n_selected"], 300)
        self.assertIn("--speculative-token-map", report["command"])
        ids = specrt.read_map(os.path.join(report["drafter"], "token_map.pt"), "absolute").tolist()
        said = specrt.calibrate(tokenizer, text, self.path("alone.specb"), size=300)
        self.assertEqual(said["coverage_holdout"], report["coverage"])
        for page in said, report:  # a frame that holds the tool's page, unchanged and without scripts
            frame = re.fullmatch('<iframe srcdoc="([^"]*)" sandbox style="[^"]*"></iframe>', page._repr_html_())
            self.assertEqual(html.unescape(frame.group(1)), page.html)
            self.assertIn("<svg", page.html)
            self.assertNotIn("<script", page.html)
        with specrt.Bundle(self.path("alone.specb")) as bundle:
            self.assertEqual(ids, bundle.ids().tolist())
        self.says("expected vllm, sglang, llama.cpp, text or specrt", specrt.prepare, target, drafter, "tgi", self.path("x"), text)
        self.says("no such.txt: cannot open", specrt.prepare, target, drafter, "sglang", self.path("x"), ["no such.txt"],
                  progress=lines.append)
        self.assertFalse(os.path.exists(self.path("x")))
        self.says("use -f to replace it", specrt.calibrate, tokenizer, text, self.path("alone.specb"))

    def test_check(self):
        self.assertEqual(specrt.check(self.drafter), [])
        bundle = specrt.Bundle(GOLDEN)
        self.write(np.sort(bundle.ids(12)).astype(np.int64), self.rows[:12], bundle.t2d(12))
        found = specrt.check(self.drafter)
        self.assertEqual([f.code for f in found], ["d2t-absolute"])
        self.assertEqual(found[0].engines, ())
        self.assertIn("export", found[0].fix)
        self.says("none", specrt.check, self.path("none"))

    def test_lists(self):
        """What MTPLX takes, and what check() says of it beside the bundle."""
        bundle, path = specrt.Bundle(GOLDEN), self.path("list.json")
        header = b'{"mtp.fc.weight":{"dtype":"F16","shape":[1,2],"data_offsets":[0,4]}}'
        with open(os.path.join(self.drafter, "config.json"), "w") as file:
            file.write('{"architectures": ["Qwen3NextMTP"]}')
        with open(os.path.join(self.drafter, "model.safetensors"), "wb") as file:
            file.write(len(header).to_bytes(8, "little") + header + bytes(4))
        self.assertEqual(specrt.recut(self.drafter, bundle, 5, path, engine="mtplx")["n_ids"], 5)
        self.assertEqual(specrt.read_map(path).tolist(), bundle.ids(5).tolist())
        self.assertEqual(specrt.check(path, engine="mtplx", bundle=bundle), [])
        specrt.write_map(bundle.ids(6)[1:], path, "mtplx", force=True)
        self.assertEqual([f.code for f in specrt.check(path, bundle=GOLDEN)], ["mapping"])


class Sessions(Folder):
    def setUp(self):
        super().setUp()
        rng = np.random.default_rng(3)
        self.n, self.d = 400, 32
        self.rows = rng.standard_normal((self.n, self.d)).astype(np.float32)
        self.states = rng.standard_normal((self.n, self.d)).astype(np.float32)

    def target(self, tokens):
        """A target whose next token follows from the last one."""
        return np.ascontiguousarray(self.states[tokens] @ self.rows.T)

    def decode(self, text, n=40, rows=None, wrap=lambda x: x, ids=None, n_vocab=0, **more):
        head = specrt.Head(wrap(self.rows if rows is None else rows), ids=ids)
        session = specrt.Session(specrt.Policy(text, head, n_vocab=n_vocab), self.n, specrt.Tree(3, 2, 6), **more)
        prompt = [5, 17, 3]
        session.begin(max_tokens=n)
        session.prefill(prompt, wrap(self.target(prompt)))
        verdict = session.first(wrap(self.target(prompt)[-1]))
        out, noise = verdict.tokens.tolist(), np.random.default_rng(1)
        while not verdict.end:
            beam = session.beam()
            self.assertEqual(beam.tokens.tolist(), out[-1:])
            while len(beam.tokens):
                wrong = noise.standard_normal((len(beam.tokens), self.d)).astype(np.float32)
                beam = session.expand(wrap(np.ascontiguousarray(self.states[beam.tokens] + 0.3 * wrong)))
            draft = session.finish()
            self.assertEqual(draft.tokens[0], out[-1])
            self.assertTrue(all(int(draft.masks[i]) >> i & 1 for i in range(len(draft.tokens))))
            verdict = session.accept(draft, wrap(self.target(draft.tokens)))
            self.assertEqual(verdict.nodes[0], 0)
            out += verdict.tokens.tolist()
        self.assertEqual(verdict.end, specrt.End.LENGTH)
        return out, session

    def plain(self, n=40):
        out = [int(self.target([3])[0].argmax())]
        while len(out) < n:
            out.append(int(self.target(out[-1:])[0].argmax()))
        return out

    def test_lossless(self):
        for text in "full", "window:64@min=0", "microspec":
            out, session = self.decode(text)
            self.assertEqual(out, self.plain(), text)
            stats = session.stats()
            self.assertGreater(stats.accept_length, 1.2)
            self.assertGreaterEqual(stats.n_emitted, 39)
        self.assertIn("window", str(session.policy))  # what microspec stands for

    def test_readme(self):
        """The loop of the package's README."""
        with open(os.path.join(ROOT, "python", "README.md")) as file:
            loop = re.search(r"^```python\n(session = .*?)^```", file.read(), re.S | re.M).group(1)
        names = {"specrt": specrt, "policy": specrt.Policy("microspec", specrt.Head(self.rows)), "prompt": [5, 17, 3],
                 "logits": self.target([5, 17, 3]), "target": lambda tokens, masks, depths: self.target(tokens),
                 "drafter": lambda tokens, parents: self.states[tokens]}
        exec(loop, names)
        self.assertEqual(names["answer"], self.plain(256))

    def test_rows(self):
        """The target scores its whole vocabulary, where an EAGLE-3 head has a part of the rows."""
        ids = np.sort(np.random.default_rng(2).permutation(self.n)[:150]).astype(np.int32)
        noisy = specrt.Sampling(temperature=1.0, seed=5, session=1)
        for text in "full", "window:64@min=0":
            for more in {}, {"n_vocab": self.n}, {"n_vocab": self.n, "sampling": noisy}:
                out, _ = self.decode(text, rows=self.rows[ids], ids=ids, **more)
                expected = self.decode("full", **more)[0] if "sampling" in more else self.plain()
                self.assertEqual(out, expected, (text, more))

    def test_width(self):
        """The width of logits is never guessed, and columns of padding are never emitted."""
        with self.assertRaisesRegex(TypeError, "n_logits"):
            specrt.Session(specrt.Policy("full", specrt.Head(self.rows)))
        padded = np.concatenate([self.rows, self.rows[:16]])  # of an engine that wants a multiple of 32
        policy = specrt.Policy("full", specrt.Head(padded), n_vocab=self.n)
        self.says("n_logits: expected", specrt.Session, policy, self.n - 1)
        for n_logits in self.n, self.n + 1, self.n + 16:
            session = specrt.Session(policy, n_logits, specrt.Tree(3, 2, 6))
            session.begin()
            session.prefill([3])
            logits = np.full(n_logits, 9, np.float32)
            logits[:self.n] = self.target([3])[0]
            self.says(f"logits: expected float32 [{n_logits}] in one piece, found float32 [{n_logits - 1}]", session.draw,
                      logits[:-1])
            self.assertEqual(session.draw(logits), self.plain()[0])
            session.first(logits)
            while len(session.expand(np.repeat(self.states[:1], len(session.beam().tokens), 0)).tokens):
                pass
            draft = session.finish()
            self.assertLess(draft.tokens.max(), self.n)
            rows = np.full((len(draft.tokens), n_logits), 9, np.float32)
            rows[:, :self.n] = self.target(draft.tokens)
            self.assertLess(session.accept(draft, rows).tokens.max(), self.n)

    def test_sampled(self):
        """A seed's answer does not depend on who drafts. Each number of the key gives other texts."""
        noisy = specrt.Sampling(temperature=1.0, seed=5, session=1)
        one, _ = self.decode("full", sampling=noisy)
        other, session = self.decode("window:64@min=0", sampling=noisy)
        self.assertEqual(one, other)
        self.assertLess(session.stats().shortlist_rows, self.n)
        for change in {"seed": 6}, {"session": 2}, {"generation": 1}:
            self.assertNotEqual(one, self.decode("full", sampling=noisy._replace(**change))[0], change)
        self.says("session: expected a number of 1 or more", self.decode, "full", sampling=specrt.Sampling(temperature=1.0))

    def test_requests(self):
        """Sampling and the length of an answer by begin(); generations are numbered on."""
        session = specrt.Session(specrt.Policy("full", specrt.Head(self.rows)), self.n, specrt.Tree(1, 1, 2))
        noisy = specrt.Sampling(temperature=2.0, seed=5, session=1)

        def first(**request):
            session.begin(**request)
            session.prefill([3])
            return int(session.first(self.target([3])[0]).tokens[0])
        self.assertEqual(first(), self.plain()[0])
        drawn = [first(sampling=noisy), *(first() for _ in range(7))]
        self.assertGreater(len(set(drawn)), 2)
        numbered = [first(sampling=noisy._replace(generation=i)) for i in range(8)]
        self.assertEqual(drawn, numbered)
        self.assertEqual(first(sampling=specrt.Sampling()), self.plain()[0])
        session.begin(max_tokens=1)
        session.prefill([3])
        self.assertEqual(session.first(self.target([3])[0]).end, specrt.End.LENGTH)
        self.says("max_tokens: expected 0 for no limit", session.begin, max_tokens=-1)
        self.says("top_p in [0, 1]", session.begin, sampling=noisy._replace(top_p=2.0))

    def test_terminator(self):
        """The answer ends behind a terminator, wherever in a cycle it is."""
        text = self.plain()
        head = specrt.Head(self.rows)
        session = specrt.Session(specrt.Policy("full", head, terminators=[text[9]]), self.n, specrt.Tree(3, 2, 6))
        session.begin()
        session.prefill([3])
        verdict = session.first(self.target([3])[0])
        out = verdict.tokens.tolist()
        while not verdict.end:
            beam = session.beam()
            while len(beam.tokens):
                beam = session.expand(self.states[beam.tokens])
            draft = session.finish()
            verdict = session.accept(draft, self.target(draft.tokens))
            out += verdict.tokens.tolist()
        self.assertEqual(verdict.end, specrt.End.TERMINATOR)
        self.assertEqual(out, text[:text.index(text[9]) + 1])

    def test_lists(self):
        head = specrt.Head(np.zeros((20, 8), np.float32))
        bundle = specrt.Bundle(GOLDEN)
        policy = specrt.Policy("static:8", head, bundle)
        session = specrt.Session(policy, 20, specrt.Tree(2, 2, 4))
        session.begin()
        self.assertEqual(sorted(session.shortlist().tolist()), sorted(bundle.ids(8).tolist()))
        self.assertTrue(policy.ends(3) and policy.bound == 8 and not policy.needs_prompt_logits)
        self.assertTrue(session.member(3) and not session.member(int(bundle.ids(19)[-1])))

    def test_own_list(self):
        """A list without a bundle; beside a bundle it is the caller's. A token without a row is skipped."""
        head, order = specrt.Head(self.rows), np.random.default_rng(4).permutation(self.n)
        for bundle in None, specrt.Bundle(GOLDEN):
            for text, n in ("static", 50), ("static:20", 20), ("static:20/20", 20):
                policy = specrt.Policy(text, head, bundle, n_vocab=self.n, ids=order[:50])
                session = specrt.Session(policy, self.n, specrt.Tree(2, 2, 4))
                terminators = set() if bundle is None else {i for i in range(20) if policy.ends(i)}
                self.assertEqual(set(session.shortlist().tolist()), set(order[:n].tolist()) | terminators)
                self.assertEqual(str(policy), f"static:{n}")
                self.assertEqual(policy.static_ids.tolist(), order[:n].tolist())
                self.assertFalse(policy.needs_draft_input)
        half = specrt.Head(self.rows[:200], ids=np.arange(0, 400, 2, dtype=np.int32))
        policy = specrt.Policy("static", half, n_vocab=self.n, ids=[9, 8, 7, 6])
        session = specrt.Session(policy, self.n, specrt.Tree(1, 1, 2))
        self.assertEqual(session.shortlist().tolist(), [8, 6])
        self.assertEqual(policy.static_ids.tolist(), [8, 6])
        self.assertEqual(len(specrt.Policy("full", head).static_ids), 0)
        for ids, says in (([5, 5], "found 5 at entries 0 and 1"), ([400], "entry 0: expected a token from 0 to 399"),
                          ([], "ids: expected n_ids tokens, or NULL and 0"), ([[1]], "ids: expected token ids [n]")):
            self.says(says, specrt.Policy, "static", head, ids=ids)
        self.says("ids: expected source static", specrt.Policy, "window", head, ids=[5])
        self.says("size: expected 1 (0 forced tokens) to 2", specrt.Policy, "static:3", head, ids=[5, 6])

    def test_chain(self):
        head = specrt.Head(self.rows)
        session = specrt.Session(specrt.Policy("window:64@min=0", head), self.n)
        session.begin()
        session.prefill([1])
        session.start(4)
        session.observe_chain([4, 9], 1, 11, ids=np.array([[9, 30], [11, 31]], np.int32))
        self.assertTrue({9, 11, 30, 31} <= set(session.shortlist().tolist()))

    def test_block(self):
        """Drafts of a block are those of numpy, with a Markov head and a selector; answers are plain decoding's."""
        rng, n = np.random.default_rng(9), 4
        w1, w2 = (rng.standard_normal((self.n, 8)).astype(np.float32) for _ in range(2))
        head = specrt.Head(self.rows, markov=(w1, w2))
        session = specrt.Session(specrt.Policy("full", head), self.n, specrt.Tree(n, 1, n + 1), n_block=n)
        confidence, hidden = np.zeros(self.d + 8, np.float32), self.states[:n]
        session.begin(max_tokens=40)
        session.prefill([3])
        out = session.first(self.target([3])[0]).tokens.tolist()

        def chosen(gains=np.zeros(self.n)):
            last, tokens = out[-1], []
            for state in hidden:
                last = int((self.rows @ state + w2 @ w1[last] + gains).argmax())
                tokens.append(last)
            return tokens

        def favour(position, previous, ids, logits):
            self.assertEqual((previous, len(ids)), (out[-1] if position == 0 else previous, 5))
            logits[:-1] = -np.inf  # the fifth best alone is left

        ids, logits = session.block_topk(hidden, k=3)
        truth = hidden @ self.rows.T
        self.assertEqual(ids.tolist(), np.argsort(-truth, 1)[:, :3].tolist())
        np.testing.assert_allclose(logits, np.take_along_axis(truth, ids, 1), rtol=1e-4)
        self.assertRaises(specrt.OrderError, session.draft_block, hidden)
        verdict = session.accept(session.finish(), self.target(out[-1:]))
        while not verdict.end:
            out += verdict.tokens.tolist()
            hidden = np.ascontiguousarray(self.states[[out[-1], *rng.integers(0, self.n, n - 1)]])
            draft = session.draft_block(hidden, by_position=len(out) % 2 == 0, p_min=0.5, confidence=confidence)
            self.assertEqual(draft.tokens.tolist(), [out[-1], *chosen()])
            verdict = session.accept(draft, self.target(draft.tokens))
        self.assertEqual(out + verdict.tokens.tolist(), self.plain())
        session.begin()
        session.prefill([3])
        session.start(out[-1])
        self.assertEqual(len(session.draft_block(hidden, select=favour, k=5).tokens), n + 1)
        kept = []
        session.observe_chain(out[-1:], 0, 5)
        session.draft_block(hidden, select=lambda _, __, ids, logits: kept.append((ids, logits)))
        for ids, logits in kept:  # each its own memory, and not that of a call that has returned
            np.testing.assert_array_equal(np.argsort(-logits, kind="stable"), np.arange(len(ids)))
            self.assertTrue(ids.flags.owndata and logits.flags.owndata)
        self.assertEqual(len(kept), n)
        session.observe_chain([5], 0, 5)
        self.assertRaises(ZeroDivisionError, session.draft_block, hidden, select=lambda *_: 1 / 0)
        self.says("session: n_block: expected 0 to the 3 levels", specrt.Session, session.policy, self.n,
                  specrt.Tree(3, 1, 4), n_block=4)
        self.says("markov: expected one rank", specrt.Head, self.rows, markov=(w1[:, :4].copy(), w2))

    def test_save(self):
        """Loaded elsewhere it has the same rows; bytes of another policy or origin are refused."""
        out, session = self.decode("window:64@min=0")
        saved = session.save()
        other = specrt.Session(session.policy, self.n, specrt.Tree(3, 2, 6))
        other.load(saved)
        self.assertEqual(other.shortlist().tolist(), session.shortlist().tolist())
        self.assertEqual(other.save(), saved)
        for one in session, other:
            one.turn(42)
            one.prefill(out[-1:])
            one.start(7)
        for a, b in zip(session.expand(self.states[7:8]), other.expand(self.states[7:8])):
            self.assertEqual(a.tolist(), b.tolist())
        another = specrt.Session(specrt.Policy("window:65@min=0", specrt.Head(self.rows)), self.n)
        self.says("expected 'window:65@min=0', found 'window:64@min=0'", another.load, saved)
        self.says("checksum", other.load, saved[:-1] + bytes([saved[-1] ^ 1]))

    def test_batch(self):
        """Sessions expand together as one by one, to the bit, each at its level."""
        bundle, rng = specrt.Bundle(GOLDEN), np.random.default_rng(5)
        rows = rng.standard_normal((20, 8)).astype(np.float32)
        policy = specrt.Policy("static:8+window:5@min=0", specrt.Head(rows), bundle)

        def make():
            out = [specrt.Session(policy, 20, specrt.Tree(3, 2, 6)) for _ in range(40)]
            for i, session in enumerate(out):
                session.begin()
                session.prefill([i % 20, (3 * i + 1) % 20])
                session.start(i % 19)
            return out
        together, alone = make(), make()
        first = rng.standard_normal((40, 1, 8)).astype(np.float32)
        sizes = [len(s.expand(first[i]).tokens) if i % 3 == 0 else 1 for i, s in enumerate(together)]
        for i in range(0, 40, 3):
            alone[i].expand(first[i])
        hidden = rng.standard_normal((sum(sizes), 8)).astype(np.float32)
        beams, at = specrt.expand_batch(together, hidden), 0
        for i, n in enumerate(sizes):
            for a, b in zip(beams[i], alone[i].expand(hidden[at:at + n])):
                self.assertEqual(a.tolist(), b.tolist())
            at += n
        self.assertEqual(specrt.expand_batch([], hidden[:0]), [])
        self.says("n_hidden: expected the 80 rows of the beams, found 3", specrt.expand_batch, together, hidden[:3])
        self.says("hidden: expected float32 [80, 8]", specrt.expand_batch, together, np.zeros((80, 9), np.float32))

    def cycles(self, policy, stock, n_sessions, n):
        """What sessions side by side draft and emit in so many cycles, to the bit, and the sessions."""
        noise, out = np.random.default_rng(7), []
        sessions = [specrt.Session(policy, self.n, specrt.Tree(3, 2, 6), stock=stock) for _ in range(n_sessions)]
        last = [i % self.n for i in range(n_sessions)]
        for token, session in zip(last, sessions):
            session.begin()
            session.prefill([2, token], self.target([2, token]))
            session.start(token)
        for _ in range(n):
            beams = specrt.expand_batch(sessions, self.states[last])
            while any(len(beam.tokens) for beam in beams):
                tokens = np.concatenate([beam.tokens for beam in beams])
                out += [x.tolist() for beam in beams for x in beam]
                hidden = self.states[tokens] + 0.3 * noise.standard_normal((len(tokens), self.d)).astype(np.float32)
                beams = specrt.expand_batch(sessions, hidden)
            for i, session in enumerate(sessions):
                draft = session.finish()
                logits = self.target(draft.tokens)
                verdict = session.verify(draft, logits)
                session.observe(draft, verdict, logits)
                last[i] = int(verdict.tokens[-1])
                out += [draft.tokens.tolist(), draft.logprobs.tolist(), verdict.tokens.tolist()]
        return out, sessions

    def test_stock(self):
        """Sessions of a stock draft what sessions with rows of their own draft, to the bit."""
        head = specrt.Head(self.rows)
        for text in "window:64@kpre=3@min=0", "window:200", "full":
            policy, stock = specrt.Policy(text, head), specrt.Stock(head)
            alone, _ = self.cycles(policy, None, 12, 6)
            together, sessions = self.cycles(policy, stock, 12, 6)
            self.assertEqual(together, alone, text)
            stats = stock.stats()
            self.assertEqual((stats.n_rows, stats.n_sessions), (self.n, 12))
            if text == "full":
                self.assertEqual(stats.n_holds, 0)  # nothing is packed
                continue
            self.assertLess(stats.n_held, stats.n_holds)
            self.assertGreater(stats.n_shared, 0)
            del sessions
            self.assertEqual(stock.stats()[1:5], (0, 0, stats.n_shared, 0))
        one = specrt.Stock(head, costs=[10.0 ** i for i in range(12)])  # shared products never pay
        together, _ = self.cycles(policy := specrt.Policy("window:64@min=0", head), one, 12, 6)
        self.assertEqual(together, self.cycles(policy, None, 12, 6)[0])
        self.assertEqual(one.stats().n_shared, 0)

    def test_stock_refused(self):
        head = specrt.Head(self.rows)
        policy, small = specrt.Policy("window:64@min=0", head), specrt.Stock(head, n_rows=100)
        first = specrt.Session(policy, self.n, stock=small)
        self.says("session: stock: expected room for the 64 rows", specrt.Session, policy, self.n, stock=small)
        del first
        self.assertEqual(small.stats().n_sessions, 0)
        specrt.Session(policy, self.n, stock=small)
        other = specrt.Stock(specrt.Head(self.rows))
        self.says("session: stock: expected one of the policy's head", specrt.Session, policy, self.n, stock=other)
        self.says("stock: n_rows", specrt.Stock, head, n_rows=-1)
        self.says("stock: costs", specrt.Stock, head, costs=[1.0, 0.0])

    def test_order(self):
        """What a session borrows closes after it, also where a circle of references lets all go at once."""
        lib, closed = _lib.library(), []
        names = "session_close", "stock_close", "policy_close", "head_close", "bundle_close"

        def recorder(name):
            close = getattr(lib.lib, "specrt_" + name)
            return lambda handle: (closed.append(name), close(handle))
        for name in names:
            setattr(lib, name, recorder(name))
            self.addCleanup(delattr, lib, name)
        bundle = specrt.Bundle(GOLDEN)
        head = specrt.Head(np.zeros((20, 8), np.float32))
        policy, stock = specrt.Policy("window:16@min=0", head, bundle), specrt.Stock(head)
        circle = [bundle, head, stock, policy, *(specrt.Session(policy, 20, stock=stock) for _ in range(2))]
        circle.append(circle)
        del bundle, head, stock, policy, circle
        self.assertEqual(closed, [])
        gc.collect()
        self.assertEqual(sorted(closed), sorted(names + names[:1]))
        self.assertEqual(closed[:2], ["session_close"] * 2)
        self.assertTrue(all(closed.index(name) < closed.index("head_close") for name in names[1:3]), closed)
        self.assertLess(closed.index("policy_close"), closed.index("bundle_close"))

    def test_memory(self):
        """Heads and states are read where they lie: a change is seen, rows may be apart, others are refused."""
        wide = np.zeros((self.n, self.d + 8), np.float32)
        wide[:, :self.d] = self.rows
        head = specrt.Head(wide[:, :self.d])
        self.assertEqual(head.desc.rows, wide.ctypes.data)
        self.assertEqual(head.desc.row_stride, 4 * (self.d + 8))
        self.assertEqual(self.decode("full", rows=wide[:, :self.d])[0], self.plain())
        session = specrt.Session(specrt.Policy("full", head), self.n, specrt.Tree(1, 1, 2))
        session.begin()
        session.prefill([2])
        self.says("start: token 0: expected 0 to 399, found 400", session.start, self.n)
        session.start(1)
        self.says("hidden: expected float32 [1, 32] in one piece, found float64 [1, 32]", session.expand,
                  np.zeros((1, self.d)))
        self.says("with gaps", session.expand, np.zeros((1, 2 * self.d), np.float32)[:, ::2])
        self.says("rows: expected [n_rows, d] of float32, float16, bfloat16", specrt.Head, np.zeros((4, 4), "i4"))
        self.says("policy 'nothing'", specrt.Policy, "nothing", head)
        with self.assertRaisesRegex(TypeError, "rows: expected an array of numpy, PyTorch or DLPack, found list"):
            specrt.Head(list(self.rows))  # whose copy nobody would keep

    def test_torch(self):
        torch = torch_or_skip()
        self.assertEqual(self.decode("window:64@min=0", wrap=torch.from_numpy)[0], self.plain())
        self.says("found negated float32", specrt.Head, torch._neg_view(torch.from_numpy(self.rows)))
        half = torch.from_numpy(self.rows).bfloat16()
        head = specrt.Head(half)
        self.assertEqual((head.desc.rows, head.desc.dtype), (half.data_ptr(), 30))

    def test_dlpack(self):
        class Other:  # what neither numpy nor torch made
            def __init__(self, x): self.x = x
            def __dlpack__(self, **more): return self.x.__dlpack__(**more)
            def __dlpack_device__(self): return self.x.__dlpack_device__()
        self.assertEqual(specrt.Head(Other(self.rows)).desc.rows, self.rows.ctypes.data)
        self.assertEqual(self.decode("full", wrap=Other)[0], self.plain())


class Trimmed(Folder):
    def test_head(self):
        torch = torch_or_skip()
        linear = torch.nn.Linear(16, 100)
        ids = [7, 3, 99, 50]
        head, hidden = specrt.TrimmedHead(linear, ids), torch.randn(2, 5, 16)
        full, trimmed = linear(hidden), head(hidden)
        self.assertEqual(trimmed.shape, full.shape)
        self.assertTrue(torch.allclose(trimmed[..., ids], full[..., ids], atol=1e-6))
        others = [i for i in range(100) if i not in ids]
        self.assertTrue(bool((trimmed[..., others] == float("-inf")).all()))
        self.assertTrue(torch.equal(head.scores(hidden), trimmed[..., ids]))
        self.assertEqual(head.weight.shape, (4, 16))
        self.assertNotEqual(head.weight.data_ptr(), linear.weight.data_ptr())
        for bad, text in ([100], "[0, 100)"), ([], "[0, 100)"), ([1, 1], "each once"):
            self.says(text, specrt.TrimmedHead, linear, bad)


class Package(Folder):
    def test_import(self):
        """Loads no torch and no library before they are asked for, and is quick: beside numpy it costs little."""
        code = "import sys; import numpy; import specrt; print('torch' in sys.modules, specrt._lib._loaded)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        self.assertEqual(done.stdout.split(), ["False", "None"], done.stderr)

    def test_names(self):
        for name in specrt.__all__:
            self.assertTrue(hasattr(specrt, name), name)
        with self.assertRaises(AttributeError):
            specrt.nothing
        with open(os.path.join(ROOT, "include", "specrt.h")) as file:
            self.assertIn(f'SPECRT_VERSION_STRING "{specrt.__version__}"', file.read())

    def test_no_torch(self):
        code = "import sys; sys.modules['torch'] = None; from specrt import *; print(Session.__name__)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        self.assertEqual(done.stdout, "Session\n", done.stderr)

    def test_old_torch(self):
        with mock.patch.dict(sys.modules, torch=types.SimpleNamespace(__version__="1.9.0+cpu")), \
                self.assertRaisesRegex(unittest.SkipTest, "expected torch 1.13 or later, found 1.9.0"):
            torch_or_skip()

    def test_no_library(self):
        code = f"import specrt; specrt.Bundle({GOLDEN!r})"
        for path, said in (self.path("none.so"), "none.so: cannot be loaded"), ("libm.so.6", "found another library"):
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                                  env=dict(os.environ, SPECRT_LIBRARY=path))
            self.assertIn(said, done.stderr)


if __name__ == "__main__":
    result = unittest.TextTestRunner(stream=open(os.devnull, "w"), verbosity=0).run(
        unittest.defaultTestLoader.discover(os.path.dirname(os.path.abspath(__file__))))
    for test, why in result.failures + result.errors:
        print(f"FAIL {test}: {why}")
    for test, why in result.skipped:
        print(f"skipped {test}: {why}")
    failed, skipped = len(result.failures) + len(result.errors), len(result.skipped)
    print(f"python: {result.testsRun - failed - skipped} passed, {failed} failed, {skipped} skipped")
    sys.exit(failed > 0)
