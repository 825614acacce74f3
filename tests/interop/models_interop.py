#!/usr/bin/env python3
"""Model files between us and PyPI's gguf and safetensors, both ways. Opt-in: run from the project's
root; needs the packages gguf, safetensors and numpy, and says so when they are missing."""
import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import gguf
    from gguf import GGMLQuantizationType as Type
    from gguf.quants import dequantize
    from safetensors import safe_open
    from safetensors.numpy import load_file, save_file
except ImportError as missing:
    print(f"skipped: {missing}; pip install gguf safetensors numpy")
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(0)

QUANTISED = [Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.Q8_0,
             Type.Q4_K, Type.Q5_K, Type.Q6_K, Type.IQ4_NL]
HALVES = {Type.Q4_K: [0, 2], Type.Q5_K: [0, 2], Type.Q6_K: [208], Type.IQ4_NL: [0]}
rng = np.random.default_rng(2)
PEER = "build/tests/interop/models_peer"
folder = tempfile.TemporaryDirectory()
work = pathlib.Path(folder.name)


def build_peer():
    subprocess.run(["make", "-s", f"{PEER}.o", "build/libcommon.a"], check=True)
    packages = ["libzstd", "zlib", "json-c", "libpcre2-8", "libutf8proc"]
    libs = subprocess.check_output(["pkg-config", "--libs", *packages], text=True).split()
    subprocess.run(["cc", f"{PEER}.o", "build/libcommon.a", *libs, "-lm", "-lpthread", "-o", PEER],
                   check=True)


def peer(*args):
    run = subprocess.run([PEER, *map(str, args)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout


def k_blocks(kind, rows, cols):
    """Random blocks whose scales are ordinary numbers; the package does not quantise to k types."""
    elems, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (rows * cols // elems, size), dtype=np.uint8)
    for at in HALVES[kind]:
        scales = rng.uniform(0.001, 0.1, len(blocks)).astype(np.float16)
        blocks[:, at:at + 2] = scales.view(np.uint8).reshape(-1, 2)
    return blocks.reshape(rows, -1)


def gguf_tensors():
    matrix = rng.standard_normal((6, 512)).astype(np.float32)
    tensors = {"f32": (matrix, Type.F32), "f16": (matrix.astype(np.float16), Type.F16),
               "bf16": (gguf.quants.quantize(matrix, Type.BF16), Type.BF16),
               "ids": (np.arange(5, dtype=np.int64), Type.I64)}
    for kind in QUANTISED:
        data = k_blocks(kind, 6, 512) if kind in HALVES else gguf.quants.quantize(matrix, kind)
        tensors[kind.name.lower()] = (data, kind)
    return tensors


def write_gguf(path, tensors, **options):
    writer = gguf.GGUFWriter(path, "llama", **options)
    writer.add_uint8("u8", 200)
    writer.add_int8("i8", -100)
    writer.add_uint16("u16", 60000)
    writer.add_int16("i16", -30000)
    writer.add_uint32("u32", 4000000000)
    writer.add_int32("i32", -2000000000)
    writer.add_uint64("u64", 2**62)
    writer.add_int64("i64", -2**62)
    writer.add_float32("f32", 0.5)
    writer.add_float64("f64", 1e-300)
    writer.add_bool("bool", True)
    writer.add_string("text", "h\u00e9llo \U0001f600")
    writer.add_token_list(["a", "", "\u0120b", "<|end|>"])
    writer.add_token_types([1, 1, 1, 3])
    for name, (data, kind) in tensors.items():
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def check_kvs(found):
    expected = {"u8": 200, "i8": -100, "u16": 60000, "i16": -30000, "u32": 4000000000,
                "i32": -2000000000, "u64": 2**62, "i64": -2**62, "f32": 0.5, "f64": 1e-300,
                "bool": 1, "text": "h\u00e9llo \U0001f600", "general.architecture": "llama",
                "tokenizer.ggml.tokens": ["a", "", "\u0120b", "<|end|>"],
                "tokenizer.ggml.token_type": [1, 1, 1, 3]}
    for key, value in expected.items():
        assert found[key] == value, (key, found[key], value)


def check_decoding(path, tensors):
    for name, (data, kind) in tensors.items():
        if name == "ids":
            continue
        peer("decode", path, name, work / "rows")
        found = np.fromfile(work / "rows", np.float32)
        expected = dequantize(data, kind).astype(np.float32).reshape(-1)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7, err_msg=name)


def check_reader(path, tensors):
    """The package reads the file and finds the bytes we started from."""
    reader = gguf.GGUFReader(path)
    assert [t.name for t in reader.tensors] == list(tensors)
    for t in reader.tensors:
        data, kind = tensors[t.name]
        assert t.tensor_type == kind and t.data.tobytes() == data.tobytes(), t.name
    assert reader.fields["text"].contents() == "h\u00e9llo \U0001f600"
    assert reader.fields["tokenizer.ggml.tokens"].contents() == ["a", "", "\u0120b", "<|end|>"]
    assert "split.count" not in reader.fields


def test_gguf():
    tensors, path, copy = gguf_tensors(), work / "model.gguf", work / "copy.gguf"
    write_gguf(path, tensors)
    dump = json.loads(peer("dump", path))
    check_kvs(dump["kvs"])
    assert list(dump["tensors"]) == list(tensors)
    check_decoding(path, tensors)
    peer("copy", path, copy)
    check_reader(copy, tensors)


def test_gguf_split():
    tensors, copy = gguf_tensors(), work / "whole.gguf"
    write_gguf(work / "split.gguf", tensors, split_max_tensors=5)
    parts = sorted(work.glob("split-*.gguf"))
    assert len(parts) == 3, parts
    check_kvs(json.loads(peer("dump", parts[0]))["kvs"])
    check_decoding(parts[0], tensors)
    peer("copy", parts[0], copy)
    check_reader(copy, tensors)


def st_tensors():
    kinds = [np.float64, np.float32, np.float16, np.int64, np.int32, np.int16, np.int8, np.uint8,
             np.uint16, np.uint32, np.uint64, np.bool_]
    tensors = {f"{np.dtype(kind).name} / \"\u00e9\"": rng.integers(0, 2, (3, 5)).astype(kind)
               for kind in kinds}
    tensors["scalar"] = np.array(7, np.int64)
    tensors["empty"] = np.zeros((0, 4), np.float32)
    return tensors


def same_arrays(found, expected):
    assert set(found) == set(expected)
    for name, value in expected.items():
        assert found[name].dtype == value.dtype and found[name].shape == value.shape, name
        assert found[name].tobytes() == value.tobytes(), name


def test_safetensors():
    tensors, path, copy = st_tensors(), work / "model.safetensors", work / "copy.safetensors"
    save_file(tensors, path, metadata={"a": "b", "quote": "\"\\/"})
    dump = json.loads(peer("dump", path))["tensors"]
    assert {name: t["dims"] for name, t in dump.items()} == \
        {name: list(t.shape) for name, t in tensors.items()}
    peer("copy", path, copy)
    same_arrays(load_file(copy), tensors)
    with safe_open(copy, "np") as written:
        assert written.metadata() == {"format": "pt"}


def test_safetensors_sharded():
    tensors, copy = st_tensors(), work / "whole.safetensors"
    sharded = work / "sharded"
    sharded.mkdir()
    names, where = list(tensors), {}
    for i in range(2):
        part = f"model-{i + 1:05}-of-00002.safetensors"
        save_file({name: tensors[name] for name in names[i::2]}, sharded / part)
        where |= {name: part for name in names[i::2]}
    index = {"metadata": {"total_size": 1}, "weight_map": where}
    (sharded / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))
    peer("copy", sharded, copy)
    same_arrays(load_file(copy), tensors)


def main():
    build_peer()
    passed = failed = 0
    for name, test in list(globals().items()):
        if not name.startswith("test_"):
            continue
        try:
            test()
            passed += 1
        except Exception as error:  # one broken direction must not hide the others
            failed += 1
            print(f"FAIL {name}: {error}")
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


sys.exit(main())
