#!/usr/bin/env python3
"""Building and searching by PyPI's hnswlib and faiss-cpu beside ours, same vectors, m,
ef_construction and ef, by inner product, one run.

usage: peers_hnsw.py BUILD [ROWS COLS]
Builds take two threads, searches one; the best of three. hnswlib wants to be compiled here, for
this machine's vectors: pip install --no-binary hnswlib hnswlib. Peers that are not installed are
left out."""
import os, subprocess, sys, tempfile, time

import numpy as np

M, EF_CONSTRUCTION, K, THREADS = 32, 200, 10, 2
EFS = (16, 32, 64, 128, 256, 512)


def best_rows(rows, queries):
    truth = []
    for i in range(0, len(queries), 50):
        scores = queries[i:i + 50] @ rows.T
        best = np.argpartition(-scores, K, axis=1)[:, :K]
        truth += [set(ids) for ids in best]
    return truth


def recall(found, truth):
    return sum(len(set(ids) & best) for ids, best in zip(found, truth)) / (K * len(truth))


def report(name, search, set_ef, queries, truth):
    for ef in EFS:
        set_ef(ef)
        seconds = []
        for _ in range(3):
            begin = time.perf_counter()
            found = search(queries)
            seconds.append(time.perf_counter() - begin)
        print(f"{name:6s} ef {ef:4d}   recall@10 {recall(found, truth):.4f}   "
              f"{len(queries) / min(seconds):8.0f} queries/s", flush=True)


def run_hnswlib(rows, queries, truth):
    import hnswlib
    index = hnswlib.Index("ip", rows.shape[1])
    index.init_index(len(rows), M=M, ef_construction=EF_CONSTRUCTION)
    index.set_num_threads(THREADS)
    begin = time.perf_counter()
    index.add_items(rows)
    print(f"hnswlib: built in {time.perf_counter() - begin:.1f} s on {THREADS} threads", flush=True)
    index.set_num_threads(1)
    report("hnswlib", lambda q: index.knn_query(q, K)[0], index.set_ef, queries, truth)


def run_faiss(rows, queries, truth):
    import faiss
    faiss.omp_set_num_threads(THREADS)
    index = faiss.IndexHNSWFlat(rows.shape[1], M, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = EF_CONSTRUCTION
    begin = time.perf_counter()
    index.add(rows)
    print(f"faiss {faiss.__version__}: built in {time.perf_counter() - begin:.1f} s on {THREADS} threads", flush=True)
    faiss.omp_set_num_threads(1)
    report("faiss", lambda q: index.search(q, K)[1], lambda ef: setattr(index.hnsw, "efSearch", ef), queries, truth)


def main():
    build, *shape = sys.argv[1:]
    n_rows, n_cols = shape or ("65536", "256")
    with tempfile.TemporaryDirectory() as folder:
        files = [os.path.join(folder, name) for name in ("rows.f32", "queries.f32")]
        subprocess.run([f"{build}/bench/bench_hnsw", n_rows, n_cols, *files], check=True)
        rows, queries = (np.fromfile(name, np.float32).reshape(-1, int(n_cols)) for name in files)
    truth = best_rows(rows, queries)
    for run in (run_hnswlib, run_faiss):
        try:
            run(rows, queries, truth)
        except ImportError as missing:
            print(missing)


main()
