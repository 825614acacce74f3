#!/usr/bin/env python3
"""K-means by PyPI's faiss-cpu beside ours: same rows, same initial centroids, 10 iterations, one
run.

usage: peers_kmeans.py BUILD [--head FILE.gguf] [--rows N] [--cols D] [--clusters K] [--threads N]
           [--repeats N] [--folder DIR] Rows are a GGUF's head, or drawn around 2,000 centres of
Zipfian weight. Both run in turns, the best of each counts. faiss gets rows of length 1 and no cap
on the points of a centroid; neither's seeding is timed. The objective is the rows' mean
similarity to the nearest of the final centroids, found here."""
import argparse, os, subprocess, tempfile, time

import faiss
import numpy as np


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--head")
    for name, value in (("rows", 128256), ("cols", 1024), ("clusters", 256), ("threads", 2), ("repeats", 3)):
        parser.add_argument("--" + name, type=int, default=value)
    parser.add_argument("--folder")
    return parser.parse_args()


def head_rows(path):
    import gguf
    tensors = {t.name: t for t in gguf.GGUFReader(path).tensors}
    tensor = tensors.get("output.weight", tensors.get("token_embd.weight"))
    return gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)


def drawn_rows(n, n_cols, n_centres=2000):
    random = np.random.default_rng(7)
    centres = random.standard_normal((n_centres, n_cols), dtype=np.float32)
    which = (n_centres ** random.random(n)).astype(np.int64) - 1
    rows = centres[which] + 1.2 * random.standard_normal((n, n_cols), dtype=np.float32)
    return rows * np.exp(0.3 * random.standard_normal((n, 1), dtype=np.float32))


def similarity(rows, centroids):
    blocks = (rows[i:i + 8192] @ centroids.T for i in range(0, len(rows), 8192))
    return sum(float(block.max(1).sum(dtype=np.float64)) for block in blocks) / len(rows)


def peer(rows, initial, threads):
    faiss.omp_set_num_threads(threads)
    kmeans = faiss.Kmeans(rows.shape[1], len(initial), niter=10, spherical=True, max_points_per_centroid=len(rows))
    begin = time.perf_counter()
    kmeans.train(rows, init_centroids=initial)
    return time.perf_counter() - begin, kmeans.centroids


def ours(build, folder, shape, n_clusters, threads):
    out = subprocess.run([f"{build}/bench/bench_kmeans", str(threads), *map(str, shape), f"{folder}/rows", str(n_clusters),
                          f"{folder}/initial", f"{folder}/out"], check=True, capture_output=True, text=True).stdout
    print(out, end="", flush=True)
    words = out.replace(",", "").split()
    seconds = float(words[words.index("iterations") + 1])
    return seconds, np.fromfile(f"{folder}/out", np.float32).reshape(n_clusters, shape[1])


def main():
    args = parse()
    rows = head_rows(args.head) if args.head else drawn_rows(args.rows, args.cols)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    rows = np.ascontiguousarray(rows[lengths[:, 0] > 0])
    units = rows / lengths[lengths[:, 0] > 0]
    initial = units[np.random.default_rng(1).choice(len(rows), args.clusters, replace=False)]
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        rows.tofile(os.path.join(folder, "rows"))
        initial.tofile(os.path.join(folder, "initial"))
        times = {"ours": [], "faiss": []}
        for _ in range(args.repeats):
            seconds, our_centroids = ours(args.build, folder, rows.shape, args.clusters, args.threads)
            times["ours"].append(seconds)
            seconds, their_centroids = peer(units, initial, args.threads)
            times["faiss"].append(seconds)
            print(f"faiss {faiss.__version__}: {seconds:.3f} s", flush=True)
    a, b = similarity(units, our_centroids), similarity(units, their_centroids)
    print(f"best: ours {min(times['ours']):.3f} s, faiss {min(times['faiss']):.3f} s, "
          f"ratio {min(times['faiss']) / min(times['ours']):.2f}; objective {a:.6f}, {b:.6f} ({100 * (a / b - 1):+.4f}%)")


main()
