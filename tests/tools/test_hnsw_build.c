/* test_hnsw_build.c : the queries that hnsw-build measures an index with. tests/specrt/test_hnsw.c tests the
 * index itself. */
#include "states_trace.h"
#include "folder.h"
#include "opened.h"

#include "tools/hnsw-build/recall.h"

TEST(hits, "rows found of those there are") {
    static const int32_t truth[RECALL_K] = {5, 6, 7, -1, 9}, found[] = {9, 7, 5, 6};
    int32_t n_true = 1;
    CHECK_INT(hnsw_recall_hits(truth, found, 3, &n_true), 2);
    CHECK_INT(n_true, 1 + 3);
}

/* Three rows of one length, drawn from four along the axes, and noise of deviation sqrt(3). */
TEST(synthetic, "mixtures of rows and noise") {
    enum { N = 600, DIM = 64 };
    static const int32_t ids[] = {1, 2, 4, 5};
    float *rows = (float *)calloc(6 * DIM, sizeof *rows);
    for (int i = 0; i < 6; i++) rows[i * DIM + i] = (float)(1 + 3 * i);
    const specrt_head_desc desc = f32_rows(rows, 6, DIM);
    hnsw_recall_set a, b;
    REQUIRE(!hnsw_recall_synthetic(&desc, ids, 4, N, 1, &a, NULL));
    REQUIRE(!hnsw_recall_synthetic(&desc, ids, 4, N, 2, &b, NULL));
    CHECK(memcmp(a.queries, b.queries, sizeof(float) * N * DIM) != 0);
    double squares = 0;
    for (int j = 0; j < DIM; j++) {
        double sum = 0;
        for (int q = 0; q < N; q++) {
            double x = (double)a.queries[q * DIM + j];
            sum += x;
            squares += j >= 6 ? x * x : 0;
        }
        CHECK_NEAR(sum / N, j == 1 || j == 2 || j == 4 || j == 5 ? 3.0 / 4 * sqrt(DIM) : 0, 1);
    }
    CHECK_NEAR(squares / (N * (DIM - 6)), 3, 0.1);
    hnsw_recall_free(&a);
    hnsw_recall_free(&b);
    free(rows);
}

/* Fewer states than asked for are all taken; of more, each with the same chance and none twice. */
TEST(from_trace, "recorded states, spread over the trace") {
    const char *path = in_folder("trace");
    hnsw_recall_set set;
    specrt_error err;
    states_trace_write(path, 30, 1);
    REQUIRE(!hnsw_recall_from_trace(path, 4, 100, &set, NULL));
    CHECK_INT(set.n, 30);
    for (int i = 0; i < 30; i++) CHECK_NEAR(set.queries[4 * i], i, 0);
    hnsw_recall_free(&set);
    states_trace_write(path, 900, 1);
    REQUIRE(!hnsw_recall_from_trace(path, 4, 300, &set, NULL));
    CHECK_INT(set.n, 300);
    int n_of[900] = {0}, n_thirds[3] = {0};
    for (int i = 0; i < 300; i++) {
        int from = (int)set.queries[4 * i];
        CHECK_INT(n_of[from]++, 0);
        n_thirds[from / 300]++;
    }
    for (int i = 0; i < 3; i++) CHECK_NEAR(n_thirds[i], 100, 25); /* three deviations */
    hnsw_recall_free(&set);
    states_trace_write(path, 0, 1);
    CHECK_INT(hnsw_recall_from_trace(path, 4, 9, &set, &err), SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, ": holds no hidden states of the target; record one with specrt-eval");
    hnsw_recall_free(&set);
    clear_folder();
}
