/* bench_batch.c : a drafter pass of several sequences: specrt_session_expand() of one after another beside
 * specrt_session_expand_batch(), which reads the rows that all share once. Static rows of the sample pair's
 * and of Llama-3's widths, chains, f16; each sequence has a window of its own where the policy says so. One
 * thread, the best of rounds taken in turns. */
#include "specrt.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../tests/fixture.h"
#include "base/measure.h"

enum { N_VOCAB = 32768, N_STATIC = 8192, N_WINDOW = 1024, MAX_BATCH = 16, N_ROUNDS = 9 };

typedef struct bench {
    specrt_bundle *bundle;
    specrt_head *head;
    uint16_t *rows; /* f16 [N_VOCAB, n_cols] */
    float *hidden;  /* [MAX_BATCH, n_cols] */
    int32_t n_cols;
} bench;

static void need(specrt_status status, const specrt_error *err) {
    if (status == SPECRT_STATUS_OK) return;
    fprintf(stderr, "bench_batch: %s\n", err->msg);
    exit(1);
}

/* Of random sign and 2^-8 to 2^-7. */
static void open_head(bench *b) {
    size_t n = (size_t)N_VOCAB * (size_t)b->n_cols;
    uint64_t state = 3;
    specrt_error err;
    b->rows = (uint16_t *)malloc(n * sizeof *b->rows);
    b->hidden = (float *)malloc((size_t)MAX_BATCH * (size_t)b->n_cols * sizeof *b->hidden);
    if (!b->rows || !b->hidden) exit(1);
    for (size_t i = 0; i < n; i++)
        b->rows[i] = (uint16_t)((fixture_random(&state) >> 40 & 0x83ff) | 0x1c00);
    for (int32_t i = 0; i < MAX_BATCH * b->n_cols; i++) b->hidden[i] = fixture_normal(&state);
    specrt_head_desc desc = {
        .rows = b->rows, .dtype = SPECRT_DTYPE_F16, .n_rows = N_VOCAB, .n_cols = b->n_cols};
    need(specrt_head_bind(b->bundle, &desc, NULL, &b->head, &err), &err);
}

/* Sequences of unlike texts, so that their windows are full and differ. */
static void make_sessions(const specrt_policy *policy, specrt_session **sessions) {
    static int32_t text[4 * N_WINDOW];
    specrt_session_params params = {.tree = {1, 1, 2}};
    uint64_t state = 9;
    specrt_error err;
    for (int32_t i = 0; i < MAX_BATCH; i++) {
        for (int j = 0; j < 4 * N_WINDOW; j++)
            text[j] = (int32_t)(fixture_random(&state) >> 33) % N_VOCAB;
        need(specrt_session_create(policy, &params, NULL, &sessions[i], &err), &err);
        specrt_session_begin(sessions[i], SPECRT_BEGIN_NEW, 0);
        specrt_session_prefill(sessions[i], text, 4 * N_WINDOW, NULL);
    }
}

/* Seconds of a pass of n sequences, which start their cycles before. */
static double pass(const bench *b, specrt_session **sessions, int32_t n, bool together) {
    specrt_beam beams[MAX_BATCH];
    for (int32_t i = 0; i < n; i++) specrt_session_start(sessions[i], 100 + i);
    double start = sl_measure_seconds();
    if (together)
        specrt_session_expand_batch(sessions, n, b->hidden, NULL, n, beams);
    else
        for (int32_t i = 0; i < n; i++)
            specrt_session_expand(sessions[i], b->hidden + (int64_t)i * b->n_cols, NULL, 1,
                                  &beams[i]);
    return sl_measure_seconds() - start;
}

static void run_policy(const bench *b, const char *text) {
    specrt_session *sessions[MAX_BATCH];
    specrt_policy_desc desc = {.text = text};
    specrt_policy *policy;
    specrt_error err;
    need(specrt_policy_create(b->bundle, b->head, &desc, &policy, &err), &err);
    make_sessions(policy, sessions);
    for (int32_t n = 1; n <= MAX_BATCH; n *= 2) {
        double best[2] = {1e9, 1e9};
        for (int k = 0; k < N_ROUNDS; k++)
            for (int together = 0; together < 2; together++) {
                double seconds = pass(b, sessions, n, together);
                if (seconds < best[together]) best[together] = seconds;
            }
        printf("%5d columns, %-40s %2d sequences: %8.1f us one by one, %8.1f together, %.2f\n",
               b->n_cols, specrt_policy_get_info(policy)->text, n, 1e6 * best[0], 1e6 * best[1],
               best[0] / best[1]);
        fflush(stdout);
    }
    for (int32_t i = 0; i < MAX_BATCH; i++) specrt_session_close(sessions[i]);
    specrt_policy_close(policy);
}

int main(void) {
    const int32_t widths[] = {256, 4096};
    bench b;
    size_t n_bytes;
    specrt_error err;
    char mixed[64], fixed[64];
    uint8_t *bytes = fixture_ranks_bundle(N_VOCAB, 2, N_STATIC, &n_bytes);
    need(specrt_bundle_open_memory(bytes, n_bytes, "ranks", NULL, &b.bundle, &err), &err);
    snprintf(fixed, sizeof fixed, "static:%d", (int)N_STATIC);
    snprintf(mixed, sizeof mixed, "static:%d+window:%d@min=0", (int)N_STATIC, (int)N_WINDOW);
    for (int i = 0; i < 2; i++) {
        b.n_cols = widths[i];
        open_head(&b);
        run_policy(&b, fixed);
        run_policy(&b, mixed);
        specrt_head_close(b.head);
        free(b.rows);
        free(b.hidden);
    }
    specrt_bundle_close(b.bundle);
    free(bytes);
    return 0;
}
