#!/usr/bin/env python3
"""Plain greedy decoding by llama.cpp (PyPI's llama-cpp-python) beside ours, same files, in turns.

usage: peers_decode.py BUILD MODEL.gguf...
Every one of five rounds runs both with one thread and with two; a run is a process of its own, and opening and the
prompt are left out: ours by the difference of two runs, llama.cpp's by its own clocks. Medians over the
rounds of CPU time and of wall time a token, in ms: where other programs run, CPU time of one thread is
what to compare. The floor is reading the bytes of a token's weights, by numpy, on one thread."""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROUNDS, TOKENS, THREADS = 5, 64, (1, 2)
PROMPT = "A heap is a tree in which every parent is no greater than its children. It is kept in an array, and"


def peer(path, threads):
    """In a process of its own: decode and print seconds of CPU and wall."""
    import llama_cpp
    import numpy as np
    model = llama_cpp.Llama(path, n_ctx=512, n_threads=threads, n_threads_batch=threads, verbose=False)
    model.eval(model.tokenize(PROMPT.encode(), add_bos=True))

    def best():
        logits = llama_cpp.llama_get_logits_ith(model.ctx, -1)
        return int(np.ctypeslib.as_array(logits, (model.n_vocab(),)).argmax())

    token = best()
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(TOKENS):
        model.eval([token])
        token = best()
    print(time.process_time() - cpu, time.perf_counter() - wall)


def their_time(path, threads):
    out = subprocess.run([sys.executable, __file__, "--peer", path, str(threads)], check=True,
                         capture_output=True, text=True).stdout
    return [float(x) / TOKENS for x in out.split()[-2:]]


def run_ours(build, path, threads, n, prompts):
    """Seconds of CPU and wall of one run, and the tokens that it wrote."""
    command = [f"{build}/bin/specrt-eval", "generate", "--target", path, "--prompts", prompts, "--chat-template",
               "none", "--max-tokens", str(n), "--threads", str(threads), "--ids", "-q", "-o", "-"]
    begin = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.PIPE)
    out = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    wall = time.perf_counter() - begin
    child.returncode = status
    if status:
        raise RuntimeError(" ".join(command))
    return usage.ru_utime + usage.ru_stime, wall, len(json.loads(out)["ids"])


def our_time(build, path, threads, prompts):
    one = run_ours(build, path, threads, 1, prompts)
    all_ = run_ours(build, path, threads, 1 + TOKENS, prompts)
    return [(all_[i] - one[i]) / (all_[2] - one[2]) for i in (0, 1)]


def weight_bytes(path):
    """Bytes that a token reads: every tensor, but of an embedding that is no head only a row."""
    import gguf
    tensors = {t.name: t for t in gguf.GGUFReader(path).tensors}
    whole = sum(t.n_bytes for t in tensors.values())
    return whole - (tensors["token_embd.weight"].n_bytes if "output.weight" in tensors else 0)


def read_time(n_bytes):
    import numpy as np
    data = np.ones(n_bytes // 8, np.int64)
    times = []
    for _ in range(9):
        begin = time.process_time()
        data.sum()
        times.append(time.process_time() - begin)
    return min(times)


def measure(build, path, prompts):
    times = {}
    for _ in range(ROUNDS):
        for threads in THREADS:
            times.setdefault(("llama.cpp", threads), []).append(their_time(path, threads))
            times.setdefault(("ours", threads), []).append(our_time(build, path, threads, prompts))
    n_bytes = weight_bytes(path)
    floor = read_time(n_bytes)
    print(f"{pathlib.Path(path).stem}: {n_bytes / 1e6:.0f} MB a token, floor {1e3 * floor:.2f} ms "
          f"({n_bytes / floor * 1e-9:.1f} GB/s)")
    for (who, threads), runs in times.items():
        cpu, wall = (1e3 * statistics.median(run[i] for run in runs) for i in (0, 1))
        print(f"  {who:10s} {threads} thread{'s' * (threads > 1)}: CPU {cpu:7.2f} ms a token, "
              f"{cpu / (1e3 * floor):5.2f} floors; wall {wall:7.2f} ms, {1e3 / wall:6.1f} tokens/s; CPU by round "
              + " ".join(f"{1e3 * run[0]:.1f}" for run in runs))
    for threads in THREADS:
        ours, theirs = (statistics.median(run[0] for run in times[who, threads]) for who in ("ours", "llama.cpp"))
        print(f"  CPU time with {threads}: ours {ours / theirs:.2f} of llama.cpp's", flush=True)


def main():
    if sys.argv[1] == "--peer":
        peer(sys.argv[2], int(sys.argv[3]))
        return 0
    build, *models = sys.argv[1:]
    try:
        import gguf
        import llama_cpp
        import numpy
    except ImportError as missing:
        print(f"skipped: {missing}; pip install llama-cpp-python gguf numpy")
        return 77
    print(f"llama-cpp-python {llama_cpp.__version__}; {TOKENS} tokens, {ROUNDS} rounds, medians")
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as prompts:
        prompts.write(json.dumps({"prompt": PROMPT}) + "\n")
        prompts.flush()
        for path in models:
            if os.path.exists(path):
                measure(build, path, prompts.name)
            else:
                print(f"{path}: skipped, not there (make models)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
