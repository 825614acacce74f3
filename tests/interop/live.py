"""What NAME_live.py scripts share: checks that are counted, our tools, a bundle of the sample corpus, prompts."""
import importlib.metadata
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

TARGET, SMALL, TOKENIZER = "data/sample/target.gguf", "data/sample/draft-small.gguf", "data/tokenizer.json"
N_VOCAB = 32768
TEMPLATE = ("<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n{}<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n")
work = pathlib.Path(tempfile.mkdtemp(prefix="specrt-live-"))
_counts = {True: 0, False: 0}


def check(good, text):
    _counts[bool(good)] += 1
    print(f"{'ok  ' if good else 'FAIL'} {text}", flush=True)


def tool(name, *args):
    run = subprocess.run(["build/bin/" + name, *map(str, args)], capture_output=True, text=True)
    if run.returncode:
        raise RuntimeError(f"{name}: {run.stderr.strip()}")
    return run.stdout


def bundle():
    """A ranking of the sample corpus."""
    path = work / "sample.specb"
    if not path.exists():
        tool("vocabtrim-calibrate", "--tokenizer", TOKENIZER, "--corpus", "data/corpus", "--size", 8192, "-q",
             "-o", path)
    return path


def export(format, size, name):
    """The path of a token map."""
    path = work / name
    tool("specrt-bundle", "export", bundle(), "--format", format, "--size", size, "-q", "-o", path)
    return path


def random_eagle3(engine, size, width=256, keep=(32753, 32761)):
    """An EAGLE-3 drafter of random weights, and what `specrt prepare` makes of it for an engine. @return both folders."""
    target, drafter, out = work / "random-target", work / "random-eagle3", work / f"prepared-{engine}"
    subprocess.run([sys.executable, "tests/interop/random_eagle3.py", target, drafter, "--vocab", str(N_VOCAB), "--width",
                    str(width), "--draft-vocab", "16384", "--keep", *map(str, keep), "--aux", "1", "3", "5"], check=True)
    shutil.copy(TOKENIZER, target / "tokenizer.json")
    tool("specrt", "prepare", "--target", target, "--drafter", drafter, "--text", "data/corpus", "--for", engine, "--size",
         size, "-q", "-o", out)
    return drafter, out / "drafter"


def ranked(size):
    """The ids of a list by rank, by the plainest of the formats."""
    return [int(line) for line in export("text", size, f"ids-{size}.txt").read_text().split()]


def prompts(n):
    """Texts of data/prompts, from each domain in turn."""
    files = sorted(pathlib.Path("data/prompts").glob("*.jsonl"))
    lines = [[json.loads(line)["prompt"] for line in path.read_text().splitlines()] for path in files]
    return [text for row in zip(*lines) for text in row][:n]


def target_folder():
    """The sample target as a Hugging Face folder, weights in f32."""
    import hf_folder
    if not (work / "target").exists():
        hf_folder.write(TARGET, work / "target", TOKENIZER)
    return work / "target"


def dflash_folder():
    """The sample's block drafter as a DFlash in z-lab's form: no Markov head, and no position of its own for the last token. It
    was not trained so, and its drafts are seldom accepted."""
    from safetensors.torch import load_file, save_file
    out, config = work / "dflash", json.loads(pathlib.Path("data/sample/block/config.json").read_text())
    if not out.exists():
        out.mkdir()
        save_file({name: weight for name, weight in load_file("data/sample/block/model.safetensors").items()
                   if not name.startswith(("markov_head", "confidence_head"))}, out / "model.safetensors")
        own = {key: config.pop(key) for key in ("mask_token_id", "target_layer_ids")}
        for key in [*filter(lambda key: key.startswith(("markov", "enable", "confidence", "sample")), config)]:
            del config[key]
        config |= {"architectures": ["DFlashDraftModel"], "max_position_embeddings": 2048, "dflash_config": own}
        (out / "config.json").write_text(json.dumps(config))
    return out


def documented(names):
    """The command of the vLLM plug-in's page, with paths in place of some of its words."""
    page = pathlib.Path("docs/integrations/vllm.md").read_text()
    command = re.search(r"^SPECRT_TOKEN_MAP=.*?(?=^```)", page, re.M | re.S)[0]
    return re.sub("|".join(map(re.escape, names)), lambda word: str(names[word[0]]), command)


def words(command):
    """A command of sh: its variables, and its words from "vllm" on."""
    found = shlex.split(command.replace("\\\n", " "))
    first = found.index("vllm")
    return dict(word.split("=", 1) for word in found[:first] if "=" in word), found[first:]


def run(main, *packages):
    """Say the versions, run main() and close with the line that run.sh counts."""
    try:
        print(", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages))
        main()
        print(f"{_counts[True]} passed, {_counts[False]} failed, 0 skipped")
    except (ImportError, importlib.metadata.PackageNotFoundError) as missing:
        if _counts[True] + _counts[False]:
            raise
        print(f"skipped: {missing}")
        print("0 passed, 0 failed, 1 skipped")
    finally:
        shutil.rmtree(work, ignore_errors=True)
    sys.exit(_counts[False] > 0)
