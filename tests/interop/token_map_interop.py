#!/usr/bin/env python3
"""Token maps between specrt-bundle and torch, safetensors, gguf, numpy and MTPLX, both ways. Opt-in: run from
the project's root after `make tools`; each peer that is not installed is skipped. `--fixtures DIR` writes
the torch files of tests/golden/maps instead."""
import collections
import importlib
import json
import os
import pathlib
import pickle
import random
import subprocess
import sys
import tempfile

TOOL = "build/bin/specrt-bundle"
TOKENIZER = "data/tokenizer.json"
FORCED = 6  # terminators and other specials of that tokenizer
N_VOCAB = 32768
work = pathlib.Path(tempfile.mkdtemp())


def peer(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


torch, numpy, gguf = peer("torch"), peer("numpy"), peer("gguf")
safetensors = peer("safetensors.numpy") if numpy else None
mtplx = peer("mtplx.frspec_draft")  # pip install --no-deps mtplx: what reads lists needs none

random.seed(7)
RANKED = random.sample(range(N_VOCAB - 40), 2000)  # frequency order, no specials
RISING = sorted(RANKED)
OFFSETS = [v - i for i, v in enumerate(RISING)]
MASK = [i in set(RANKED) for i in range(N_VOCAB)]

# ---- our side -----------------------------------------------------------------------------------


def tool(*args):
    run = subprocess.run([TOOL, *map(str, args)], capture_output=True, text=True)
    return run.returncode, run.stdout, run.stderr


def bundle():
    """A bundle whose list is the forced ids and then RANKED."""
    path = work / "ours.specb"
    if not path.exists():
        text = work / "ranked.txt"
        text.write_text("\n".join(map(str, RANKED)))
        read(text, "--values", "absolute", keep=path)
    return path


def read(path, *flags, keep=None):
    """What import makes of a file: its ids behind the forced ones."""
    out = keep or work / "read.specb"
    code, _, err = tool("import", path, "--tokenizer", TOKENIZER, "-o", out, "-f", "--size", FORCED, *flags)
    assert code == 0, err
    _, text, _ = tool("info", out, "--json")
    n = json.loads(text)["ranks"]["n_valid"]
    _, text, _ = tool("export", out, "--format", "text", "--size", n, "-o", "-", "-q")
    return [int(line) for line in text.split()][FORCED:]


def refused(path, part, *flags):
    code, _, err = tool("import", path, "--tokenizer", TOKENIZER, "-o", work / "refused.specb", *flags)
    assert code == 3 and part in err, (code, err)
    assert not (work / "refused.specb").exists()


def write(format, name, *flags):
    path = work / name
    code, _, err = tool("export", bundle(), "--format", format, "--size", FORCED + len(RANKED), "-o", path, *flags)
    assert code == 0, err
    return path


def ours():
    """The list of the bundle, forced ids included, by rank."""
    return [int(line) for line in write("text", "ours.txt", "-f").read_text().split()]


# ---- torch --------------------------------------------------------------------------------------


def load(path):
    return torch.load(path, weights_only=True)


def torch_reads_list():
    ids = load(write("sglang-pt", "freq.pt"))
    assert type(ids) is list and ids == ours()
    assert torch.tensor(ids, dtype=torch.int64).tolist() == ids  # as SGLang uses it
    import zipfile
    with zipfile.ZipFile(work / "freq.pt") as z:
        assert z.testzip() is None
        assert z.read("archive/data.pkl") == pickle.dumps(ids, protocol=2)


def torch_reads_pair():
    pair = load(write("eagle3-pt", "mapping.pt"))
    d2t, t2d = pair["d2t"], pair["t2d"]
    assert d2t.dtype == torch.int64 and t2d.dtype == torch.bool and len(t2d) == N_VOCAB
    assert torch.equal(torch.nonzero(t2d).flatten(), d2t + torch.arange(len(d2t)))  # SpecForge's check
    assert (d2t + torch.arange(len(d2t))).tolist() == sorted(ours())


def torch_lists():
    for protocol in 2, 3, 4, 5:
        torch.save(RANKED, work / "list.pt", pickle_protocol=protocol)
        assert read(work / "list.pt") == RANKED
    torch.save(RANKED[:1], work / "one.pt")
    assert read(work / "one.pt") == RANKED[:1]


def torch_tensors():
    for dtype in torch.int64, torch.int32:
        torch.save(torch.tensor(RANKED, dtype=dtype), work / "tensor.pt")
        assert read(work / "tensor.pt") == RANKED
        unsorted = torch.tensor(RANKED, dtype=dtype) - torch.arange(len(RANKED), dtype=dtype)
        torch.save(unsorted, work / "d2t.pt")  # ModelOpt
        assert read(work / "d2t.pt") == RANKED
    torch.save(torch.tensor([0] + RANKED)[1:], work / "view.pt")
    assert read(work / "view.pt") == RANKED
    torch.save(torch.tensor(RANKED).reshape(2, -1), work / "matrix.pt")
    refused(work / "matrix.pt", "2 dimensions")
    torch.save(torch.tensor(RANKED + RANKED)[::2], work / "strided.pt")
    refused(work / "strided.pt", "does not lie in")
    torch.save(torch.tensor(RANKED).float(), work / "float.pt")
    refused(work / "float.pt", "no integer array")


def torch_dicts():
    pair = {"d2t": torch.tensor(OFFSETS), "t2d": torch.tensor(MASK)}
    torch.save(pair, work / "pair.pt")
    assert read(work / "pair.pt") == RISING
    state = collections.OrderedDict(pair, fc=torch.zeros(3, 4).half(), norm=torch.zeros(4).bfloat16())
    state._metadata = collections.OrderedDict({"": {"version": 1}})
    torch.save(state, work / "pytorch_model.bin")
    assert read(work / "pytorch_model.bin") == RISING
    torch.save({"t2d": torch.tensor(MASK)}, work / "t2d.pt")
    assert read(work / "t2d.pt") == RISING
    pair["t2d"] = ~pair["t2d"]
    torch.save(pair, work / "wrong.pt")
    refused(work / "wrong.pt", "d2t and t2d name different ids")


def torch_counts():
    counts = {v: len(RANKED) - i for i, v in enumerate(RANKED)}
    for kind in dict, collections.Counter:
        torch.save(kind(dict(sorted(counts.items()))), work / "token_freq.pt")
        assert read(work / "token_freq.pt") == RANKED


def torch_reads_counts():
    counts = load(write("token-freq", "counts.pt"))
    assert list(counts) == ours() and all(type(n) is int and n > 0 for n in counts.values())
    assert sorted(counts, key=lambda i: -counts[i])[:FORCED] == ours()[:FORCED]  # Python's sort keeps order


def torch_ambiguous():
    ids = [3, 5, 9]
    torch.save(torch.tensor(ids), work / "both.pt")
    refused(work / "both.pt", "--values absolute or --values offset")
    assert read(work / "both.pt", "--values", "absolute") == ids
    assert read(work / "both.pt", "--values", "offset") == [3, 6, 11]
    torch.save(RANKED + RANKED[:1], work / "twice.pt")  # FR-Spec: BOS a second time at the end
    refused(work / "twice.pt", "--dedupe")
    assert read(work / "twice.pt", "--dedupe") == RANKED


def torch_code():
    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {work}/ran",)
    torch.save([1, Evil()], work / "evil.pt")
    refused(work / "evil.pt", "no code is run")
    assert not (work / "ran").exists()


# ---- numpy, safetensors, gguf ---------------------------------------------------------------------


def numpy_reads():
    folder = write("npy", "npy")
    d2t, t2d = numpy.load(folder / "d2t.npy"), numpy.load(folder / "t2d.npy")
    assert d2t.dtype == numpy.int64 and t2d.dtype == bool and len(t2d) == N_VOCAB
    assert (d2t + numpy.arange(len(d2t))).tolist() == sorted(ours()) == numpy.flatnonzero(t2d).tolist()


def numpy_writes():
    for dtype in "<i4", "<i8", "<u4", "<u2":
        numpy.save(work / "ids.npy", numpy.array(RANKED, dtype=dtype))
        assert read(work / "ids.npy") == RANKED
    folder = work / "speculators"
    folder.mkdir(exist_ok=True)
    numpy.save(folder / "d2t.npy", numpy.array(OFFSETS))
    numpy.save(folder / "t2d.npy", numpy.array(MASK))
    assert read(folder) == read(folder / "d2t.npy") == read(folder / "t2d.npy") == RISING
    numpy.save(work / "big.npy", numpy.array(RANKED, dtype=">i8"))
    refused(work / "big.npy", "little-endian")


def safetensors_both_ways():
    both = safetensors.load_file(write("safetensors", "map.safetensors"))
    d2t = both["d2t"]
    assert d2t.dtype == numpy.int64 and both["t2d"].dtype == bool and len(both["t2d"]) == N_VOCAB
    assert (d2t + numpy.arange(len(d2t))).tolist() == sorted(ours()) == numpy.flatnonzero(both["t2d"]).tolist()
    for dtype in numpy.int64, numpy.int32:  # TensorRT-LLM stores i32
        tensors = {"d2t": numpy.array(OFFSETS, dtype=dtype), "t2d": numpy.array(MASK),
                   "fc.weight": numpy.zeros((4, 4), dtype=numpy.float16)}
        safetensors.save_file(tensors, work / "eagle3.safetensors")
        assert read(work / "eagle3.safetensors") == RISING
        safetensors.save_file({"d2t": tensors["d2t"]}, work / "d2t.safetensors")
        assert read(work / "d2t.safetensors") == RISING


def safetensors_head():
    head = numpy.random.default_rng(1).standard_normal((N_VOCAB, 8)).astype(numpy.float16)
    safetensors.save_file({"lm_head.weight": head}, work / "model.safetensors")
    path = write("safetensors", "with_head.safetensors", "--head", work / "model.safetensors")
    rows = safetensors.load_file(path)["lm_head.weight"]
    assert rows.dtype == numpy.float16 and numpy.array_equal(rows, head[sorted(ours())])


def safetensors_drafter():
    """A whole folder: byte for byte where nothing is cut, and as safetensors itself would write it where rows go."""
    rng, listed = numpy.random.default_rng(4), sorted(ours())
    folder = work / "eagle3"
    folder.mkdir(exist_ok=True)
    mask = numpy.zeros(N_VOCAB, dtype=bool)
    mask[listed] = True
    tensors = {"d2t": numpy.array(listed) - numpy.arange(len(listed)), "t2d": mask,
               "lm_head.weight": rng.standard_normal((len(listed), 16)).astype(numpy.float16),
               "fc.weight": rng.standard_normal((16, 48)).astype(numpy.float16),
               "midlayer.hidden_norm.weight": rng.standard_normal(16).astype(numpy.float32)}
    safetensors.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = {"architectures": ["LlamaForCausalLMEagle3"], "vocab_size": N_VOCAB, "draft_vocab_size": len(listed)}
    (folder / "config.json").write_text(json.dumps(config))
    for size, name in (len(listed), "whole"), (500, "cut"):
        code, _, err = tool("export", bundle(), "--drafter", folder, "--for", "vllm", "--size", size, "-o", work / name)
        assert code == 0, err
        code, said, err = tool("check", work / name, "--for", "vllm")
        assert code == 0, said + err
    for file in "model.safetensors", "config.json":
        assert (work / "whole" / file).read_bytes() == (folder / file).read_bytes(), file
    ids = sorted(ours()[:500])
    tensors["lm_head.weight"] = tensors["lm_head.weight"][numpy.searchsorted(listed, ids)]
    tensors["d2t"], tensors["t2d"] = numpy.array(ids) - numpy.arange(500), numpy.isin(numpy.arange(N_VOCAB), ids)
    safetensors.save_file(tensors, work / "expected.safetensors", metadata={"format": "pt"})
    assert (work / "cut" / "model.safetensors").read_bytes() == (work / "expected.safetensors").read_bytes()
    assert json.loads((work / "cut" / "config.json").read_text()) == {**config, "draft_vocab_size": 500}


def finish(w):
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def make_drafter(path, type):
    """An eagle3 drafter; @return its head as stored and everything else by name."""
    rng = numpy.random.default_rng(2)
    w = gguf.GGUFWriter(path, "eagle3")
    w.add_array("eagle3.target_layers", [1, 2, 3])
    w.add_uint32("eagle3.target_hidden_size", 64)
    w.add_token_list([f"t{i}" for i in range(N_VOCAB)])
    others = {"fc.weight": rng.standard_normal((64, 192)).astype(numpy.float32),
              "output_norm.weight": rng.standard_normal(64).astype(numpy.float32)}
    head = rng.standard_normal((N_VOCAB, 64)).astype(numpy.float32)
    stored = gguf.quants.quantize(head, type)
    w.add_tensor("fc.weight", others["fc.weight"])
    w.add_tensor("output.weight", stored, raw_dtype=type)
    w.add_tensor("output_norm.weight", others["output_norm.weight"])
    finish(w)
    return stored, others


def gguf_both_ways():
    for type in gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.Q4_0, gguf.GGMLQuantizationType.F16:
        stored, others = make_drafter(work / "drafter.gguf", type)
        path = write("gguf", "small.gguf", "--drafter", work / "drafter.gguf", "-f")
        before, after = gguf.GGUFReader(work / "drafter.gguf"), gguf.GGUFReader(path)
        tensors = {t.name: t for t in after.tensors}
        assert list(tensors) == ["fc.weight", "output.weight", "output_norm.weight", "d2t"]
        assert tensors["d2t"].tensor_type == gguf.GGMLQuantizationType.I64
        assert tensors["d2t"].data.tolist() == ours()  # absolute, in rank order
        rows = tensors["output.weight"]
        assert rows.tensor_type == type and rows.shape.tolist() == [64, len(ours())]
        assert numpy.array_equal(rows.data.reshape(len(ours()), -1), stored.reshape(N_VOCAB, -1)[ours()])
        for name, values in others.items():
            assert numpy.array_equal(tensors[name].data.reshape(values.shape), values)
        for name, field in before.fields.items():
            if not name.startswith("GGUF."):
                assert field.contents() == after.fields[name].contents(), name
        assert read(path) == RANKED  # the forced ids lead on both sides


def gguf_offsets():
    w = gguf.GGUFWriter(work / "offsets.gguf", "eagle3")
    w.add_tensor("d2t", numpy.array(OFFSETS))
    finish(w)
    refused(work / "offsets.gguf", "GGUF d2t read as absolute ids")
    assert read(work / "offsets.gguf", "--values", "offset") == RISING


def gguf_mtp():
    """Whole models with an MTP layer: its cut head is a tensor of its own, and the target's stays whole."""
    kinds = gguf.GGMLQuantizationType
    head = numpy.random.default_rng(3).standard_normal((N_VOCAB, 64)).astype(numpy.float32)
    for type in kinds.Q8_0, kinds.Q4_K, kinds.BF16:
        if type == kinds.Q4_K:  # the package writes none: any bytes will do, rows are 144 for 256 weights
            stored = numpy.random.default_rng(5).integers(0, 60, (N_VOCAB, 144), dtype=numpy.uint8)
        else:
            stored = gguf.quants.quantize(head, type)
        w = gguf.GGUFWriter(work / "mtp.gguf", "qwen35")
        w.add_block_count(3)
        w.add_uint32("qwen35.nextn_predict_layers", 1)
        w.add_token_list([f"t{i}" for i in range(N_VOCAB)])
        for name in "blk.0.attn_norm.weight", "blk.2.nextn.enorm.weight":
            w.add_tensor(name, numpy.ones(64, dtype=numpy.float32))
        w.add_tensor("output.weight", stored, raw_dtype=type)
        finish(w)
        path = work / "mtp-cut.gguf"
        code, _, err = tool("export", bundle(), "--drafter", work / "mtp.gguf", "--for", "llama.cpp", "--size", 700,
                            "-o", path, "-f")
        assert code == 0, err
        tensors = {t.name: t for t in gguf.GGUFReader(path).tensors}
        ids, own = ours()[:700], tensors["blk.2.nextn.shared_head_head.weight"]
        assert tensors["d2t"].data.tolist() == ids and own.tensor_type == type
        assert own.data.tobytes() == stored.view(numpy.uint8).reshape(N_VOCAB, -1)[ids].tobytes()
        assert tensors["output.weight"].data.tobytes() == stored.tobytes()
        whole, rows = (gguf.quants.dequantize(t.data, type) for t in (tensors["output.weight"], own))
        assert numpy.array_equal(whole[ids], rows)
        code, said, _ = tool("check", path, "--json")
        assert code == 0, said


def gguf_mtp_bad():
    """A whole model whose own head was cut, too, and one whose d2t is of another length."""
    for n, code in (700, "target-head"), (699, "d2t-length"):
        w = gguf.GGUFWriter(work / "bad.gguf", "qwen35")
        w.add_block_count(3)
        w.add_uint32("qwen35.nextn_predict_layers", 1)
        w.add_token_list([f"t{i}" for i in range(N_VOCAB)])
        w.add_tensor("blk.0.attn_norm.weight", numpy.ones(64, dtype=numpy.float32))
        w.add_tensor("output.weight", numpy.ones((n if n == 700 else N_VOCAB, 64), dtype=numpy.float32))
        w.add_tensor("blk.2.nextn.shared_head_head.weight", numpy.ones((700, 64), dtype=numpy.float32))
        w.add_tensor("d2t", numpy.arange(n))
        finish(w)
        _, said, _ = tool("check", work / "bad.gguf", "--json")
        assert [f["code"] for f in json.loads(said)["findings"]] == [code], said


def safetensors_mtp():
    """Whole folders of Qwen's and DeepSeek's names: the MTP layers with their cut head, as safetensors writes them."""
    rng, ids = numpy.random.default_rng(6), sorted(ours()[:600])
    for layer, own in ("mtp.", None), ("model.layers.2.", "model.layers.2.shared_head.head.weight"):
        head = rng.standard_normal((N_VOCAB, 8)).astype(numpy.float16)
        part = {layer + ("eh_proj.weight" if own else "fc.weight"): rng.standard_normal((8, 16)).astype(numpy.float16)}
        others = {"model.layers.0.x": numpy.ones(3, dtype=numpy.float32), "lm_head.weight": head + 1}
        folder, cut = work / "whole-mtp", work / f"cut-mtp-{bool(own)}"
        folder.mkdir(exist_ok=True)
        safetensors.save_file({**part, **others, own or "lm_head.weight": head}, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps({"vocab_size": N_VOCAB, "hidden_size": 8}))
        code, _, err = tool("export", bundle(), "--drafter", folder, "--for", "specrt", "--size", 600, "-o", cut)
        assert code == 0, err
        mask = numpy.isin(numpy.arange(N_VOCAB), ids)
        safetensors.save_file({**part, own or "lm_head.weight": head[ids], "t2d": mask,
                               "d2t": numpy.array(ids) - numpy.arange(600)}, work / "want", metadata={"format": "pt"})
        assert (cut / "model.safetensors").read_bytes() == (work / "want").read_bytes()


def mtplx_reads():
    os.environ["MTPLX_FRSPEC_VOCAB"] = str(write("mtplx", "mtplx.json"))
    assert mtplx.load_frspec_ids() == ours()
    assert read(work / "mtplx.json") == RANKED


def json_both_ways():
    ids = json.loads(write("vllm-json", "map.json").read_text())
    assert ids == sorted(ours())
    (work / "theirs.json").write_text(json.dumps(RANKED, indent=1))
    assert read(work / "theirs.json") == RANKED


# ---- running -------------------------------------------------------------------------------------

CHECKS = [(json_both_ways, True),
          (torch_reads_list, torch), (torch_reads_pair, torch), (torch_lists, torch), (torch_tensors, torch),
          (torch_dicts, torch), (torch_counts, torch), (torch_reads_counts, torch),
          (torch_ambiguous, torch), (torch_code, torch),
          (numpy_reads, numpy), (numpy_writes, numpy),
          (safetensors_both_ways, safetensors), (safetensors_head, safetensors), (safetensors_drafter, safetensors),
          (safetensors_mtp, safetensors),
          (gguf_both_ways, gguf), (gguf_offsets, gguf), (gguf_mtp, gguf), (gguf_mtp_bad, gguf), (mtplx_reads, mtplx)]


def fixtures(folder):
    ids = torch.tensor([2, 3, 7, 11])
    offsets = ids - torch.arange(4)
    t2d = torch.zeros(13, dtype=torch.bool)
    t2d[ids] = True
    torch.save([128000, 5, 70000, 300, 0], folder / "list.pt")
    torch.save({"d2t": offsets, "t2d": t2d}, folder / "vocab_mapping.pt")
    torch.save(torch.tensor([9, 2, 12, 0, 5]) - torch.arange(5), folder / "d2t.pt")
    torch.save({7: 3, 300: 10, 2: 3, 70000: 1, 5: 0}, folder / "token_freq.pt")
    state = collections.OrderedDict([("fc.weight", torch.zeros(2, 3).half()), ("d2t", offsets), ("t2d", t2d)])
    state._metadata = collections.OrderedDict([("", {"version": 1})])
    torch.save(state, folder / "pytorch_model.bin")
    torch.save([1, 2], folder / "legacy.pt", _use_new_zipfile_serialization=False)
    torch.save({"x": 1.5}, folder / "float.pt")
    (folder / "list.pkl").write_bytes(pickle.dumps([5, 4, 3], protocol=4))


def main():
    if sys.argv[1:2] == ["--fixtures"]:
        return fixtures(pathlib.Path(sys.argv[2]))
    passed = failed = skipped = 0
    for check, needed in CHECKS:
        if not needed:
            skipped += 1
            print(f"skipped {check.__name__}: its peer is not installed")
            continue
        try:
            check()
            passed += 1
        except Exception as error:
            failed += 1
            print(f"FAIL {check.__name__}: {type(error).__name__}: {error}")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    sys.exit(failed > 0)


main()
