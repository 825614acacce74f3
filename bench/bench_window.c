/* bench_window.c : what MicroSpec's update costs beside the head product it serves: pushing a cycle,
 * evicting, packing new rows; and the scan for the target's best, apart. Medians, taken in turns. */
#include "specrt.h"

#include <stdio.h>
#include <stdlib.h>
#include "../tests/fixture.h"
#include "cli.h"

enum { N_VOCAB = 128256, N_COLS = 4096, N_CYCLES = 300, N_DRAFT = 60, N_ACCEPTED = 4, K = 3 };

static uint64_t random_state = 7;
static int32_t random_token(void) {
    return (int32_t)((fixture_random(&random_state) >> 33) % N_VOCAB);
}

/* A cycle: its tree comes from the shortlist; one in three of the target's best may be any token.
 * @return the seconds that learning from it took. */
static double observe(specrt_session *s) {
    static int32_t tokens[N_DRAFT], parents[N_DRAFT], best[N_DRAFT * K];
    const specrt_segment *packed = &specrt_session_shortlist(s)->segments[0];
    specrt_draft draft = {N_DRAFT, tokens, parents, NULL, NULL, NULL};
    specrt_verdict verdict = {.n = N_ACCEPTED};
    specrt_rows rows = {.ids = best, .k = K};
    for (int i = 0; i < N_DRAFT; i++) tokens[i] = packed->ids[random_token() % packed->n_rows];
    for (int i = 0; i < N_DRAFT * K; i++)
        best[i] = random_token() % 3 == 0 ? random_token() : tokens[i % N_DRAFT];
    for (int i = 0; i < N_ACCEPTED; i++) {
        verdict.nodes[i] = i;
        verdict.tokens[i] = tokens[i];
    }
    double start = cli_seconds();
    specrt_session_observe(s, &draft, &verdict, &rows);
    return cli_seconds() - start;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *x) {
    qsort(x, N_CYCLES, sizeof *x, ascending);
    return x[N_CYCLES / 2];
}

static void run(const specrt_head *head, const char *text, const float *hidden, float *logits) {
    static double product[N_CYCLES], update[N_CYCLES];
    specrt_policy_desc desc = {.text = text};
    specrt_policy *policy;
    specrt_session *s;
    specrt_session_stats stats;
    specrt_error err;
    if (specrt_policy_create(NULL, head, &desc, &policy, &err) != SPECRT_STATUS_OK ||
        specrt_session_create(policy, NULL, NULL, &s, &err) != SPECRT_STATUS_OK)
        fprintf(stderr, "%s\n", err.msg), exit(1);
    for (int i = 0; i < 3 * N_COLS; i++) { /* a long prompt: the window is full */
        int32_t token = random_token();
        specrt_session_prefill(s, &token, 1, NULL);
    }
    specrt_session_start(s, 1);
    specrt_session_get_stats(s, &stats);
    int64_t n_before = stats.n_copied;
    for (int i = 0; i < N_CYCLES; i++) {
        double start = cli_seconds();
        specrt_active_logits(specrt_session_shortlist(s), hidden, 1, logits);
        product[i] = cli_seconds() - start;
        update[i] = observe(s);
    }
    specrt_session_get_stats(s, &stats);
    double a = median(product), b = median(update);
    printf("%s: %.0f rows, %.1f new in a cycle: product %.3f ms, update %.4f ms (%.1f%%)\n", text,
           (double)stats.n_rows / N_CYCLES, (double)(stats.n_copied - n_before) / N_CYCLES, 1e3 * a,
           1e3 * b, 100 * b / a);
    specrt_session_close(s);
    specrt_policy_close(policy);
}

static void run_scan(void) {
    static double seconds[N_CYCLES];
    enum { N_ROWS = 64 };
    float *rows = (float *)malloc((size_t)N_ROWS * N_VOCAB * sizeof *rows);
    int32_t ids[K];
    for (size_t i = 0; i < (size_t)N_ROWS * N_VOCAB; i++) rows[i] = fixture_normal(&random_state);
    for (int i = 0; i < N_CYCLES; i++) {
        double start = cli_seconds();
        specrt_logits_topk(rows + (size_t)(i % N_ROWS) * N_VOCAB, N_VOCAB, K, ids);
        seconds[i] = cli_seconds() - start;
    }
    double time = median(seconds);
    printf("scan of %d logits for the best %d: %.4f ms (%.1f GB/s)\n", N_VOCAB, K, 1e3 * time,
           4e-9 * N_VOCAB / time);
    free(rows);
}

int main(void) {
    size_t n = (size_t)N_VOCAB * N_COLS;
    uint16_t *weights = (uint16_t *)malloc(n * sizeof *weights);
    float *hidden = (float *)malloc(N_COLS * sizeof *hidden);
    float *logits = (float *)malloc(N_VOCAB * sizeof *logits);
    if (!weights || !hidden || !logits) return fprintf(stderr, "out of memory\n"), 1;
    for (size_t i = 0; i < n; i++) weights[i] = (uint16_t)(0x2c00 + (i * 2654435761u >> 22) % 1024);
    for (int i = 0; i < N_COLS; i++) hidden[i] = fixture_normal(&random_state);
    specrt_head_desc desc = {
        .rows = weights, .dtype = SPECRT_DTYPE_F16, .n_rows = N_VOCAB, .n_cols = N_COLS};
    specrt_head *head;
    if (specrt_head_bind(NULL, &desc, NULL, &head, NULL) != SPECRT_STATUS_OK) return 1;
    printf("f16 head [%d, %d], one thread\n", N_VOCAB, N_COLS);
    run(head, "window:3072", hidden, logits);
    run(head, "window:3072@mode=stream", hidden, logits);
    run(head, "window:3072@rows=tree", hidden, logits);
    run_scan();
    specrt_head_close(head);
    free(weights);
    free(hidden);
    free(logits);
}
