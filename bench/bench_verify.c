/* bench_verify.c : what verification costs beside reading the logits once: greedy over a tree's rows,
 * draws under every filter, and a sampled chain. Rows rotate through more memory than the last cache.
 * Medians, taken in turns. */
#include "specrt.h"

#include <stdio.h>
#include <stdlib.h>
#include "../tests/fixture.h"
#include "base/curve.h"
#include "base/measure.h"

enum { N_VOCAB = 128256, N_NODES = 60, N_LIST = 32768, N_STEPS = 5, N_ROUNDS = 31 };

typedef struct bench {
    float *rows; /* [N_NODES, N_VOCAB] */
    uint64_t sink;
} bench;

/* Like a language model's: a few tokens above a wide tail. */
static void fill(float *row, uint64_t *state) {
    for (int i = 0; i < N_VOCAB; i++) row[i] = 2.5f * fixture_normal(state);
    for (int i = 0; i < 40; i++)
        row[(fixture_random(state) >> 33) % N_VOCAB] = 16 - 0.2f * (float)i;
}

typedef uint64_t wide __attribute__((vector_size(64), aligned(4), may_alias));

/* Nothing but reading, in the widest loads there are. */
#if defined(__x86_64__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
static uint64_t
read_words(const float *x, size_t n) {
    const wide *p = (const wide *)(const void *)x;
    wide a = p[0], b = a, c = a, d = a;
    for (size_t i = 0; i + 4 <= n / 16; i += 4) {
        a |= p[i];
        b |= p[i + 1];
        c |= p[i + 2];
        d |= p[i + 3];
    }
    a |= b | c | d;
    return a[0];
}

static specrt_verifier *make(const specrt_sampling *sampling) {
    specrt_verifier *v;
    specrt_error err;
    if (specrt_verifier_create(N_VOCAB, N_VOCAB, sampling, NULL, &v, &err) != SPECRT_STATUS_OK)
        fprintf(stderr, "%s\n", err.msg), exit(1);
    return v;
}

static void run_greedy(bench *b) {
    static double floors[N_ROUNDS], greedy[N_ROUNDS];
    specrt_verifier *v = make(NULL);
    for (int k = 0; k < N_ROUNDS; k++) {
        double start = sl_measure_seconds();
        b->sink += read_words(b->rows, (size_t)N_NODES * N_VOCAB);
        double middle = sl_measure_seconds();
        for (int i = 0; i < N_NODES; i++)
            b->sink += (uint64_t)specrt_verifier_draw(v, b->rows + (size_t)i * N_VOCAB, i);
        floors[k] = middle - start;
        greedy[k] = sl_measure_seconds() - middle;
    }
    double a = sl_median_of(floors, N_ROUNDS), c = sl_median_of(greedy, N_ROUNDS),
           bytes = 4.0 * N_NODES * N_VOCAB;
    printf("reading %d rows: %.2f ms (%.1f GB/s); greedy: %.2f ms (%.1f GB/s, %.0f%% of it)\n",
           N_NODES, 1e3 * a, 1e-9 * bytes / a, 1e3 * c, 1e-9 * bytes / c, 100 * a / c);
    specrt_verifier_close(v);
}

static void run_draws(bench *b) {
    static const struct {
        const char *name;
        specrt_sampling sampling;
    } distributions[] = {
        {"greedy", {0, 0, 0, 0, 1, 1, 0}},
        {"temperature 1", {1, 0, 0, 0, 1, 1, 0}},
        {"min-p 0.05", {1, 0, 0, 0.05f, 1, 1, 0}},
        {"top-k 40", {1, 40, 0, 0, 1, 1, 0}},
        {"top-k 4000", {1, 4000, 0, 0, 1, 1, 0}},
        {"top-p 0.95", {1, 0, 0.95f, 0, 1, 1, 0}},
        {"top-p 0.95, temperature 3", {3, 0, 0.95f, 0, 1, 1, 0}},
        {"top-k 40, top-p 0.95, min-p 0.05", {0.7f, 40, 0.95f, 0.05f, 1, 1, 0}},
    };
    enum { N_DISTRIBUTIONS = sizeof distributions / sizeof *distributions };
    static double seconds[N_DISTRIBUTIONS][N_ROUNDS];
    specrt_verifier *v[N_DISTRIBUTIONS];
    for (int i = 0; i < N_DISTRIBUTIONS; i++) v[i] = make(&distributions[i].sampling);
    for (int k = 0; k < N_ROUNDS; k++)
        for (int i = 0; i < N_DISTRIBUTIONS; i++) {
            const float *row = b->rows + (size_t)((k * N_DISTRIBUTIONS + i) % N_NODES) * N_VOCAB;
            double start = sl_measure_seconds();
            b->sink += (uint64_t)specrt_verifier_draw(v[i], row, k);
            seconds[i][k] = sl_measure_seconds() - start;
        }
    for (int i = 0; i < N_DISTRIBUTIONS; i++) {
        printf("draw, %-34s %.3f ms\n", distributions[i].name,
               1e3 * sl_median_of(seconds[i], N_ROUNDS));
        specrt_verifier_close(v[i]);
    }
}

/* Drafts that the target takes: the cost of a whole cycle of a sampled chain. */
static void run_chain(bench *b) {
    static double propose[N_ROUNDS], verify[N_ROUNDS];
    static float probs[N_STEPS][N_LIST];
    static int32_t ids[N_LIST];
    const specrt_sampling sampling = {1, 0, 0, 0, 1, 1, 0};
    specrt_verifier *v = make(&sampling);
    int64_t n_emitted = 0;
    for (int i = 0; i < N_LIST; i++) ids[i] = i;
    for (int k = 0; k < N_ROUNDS; k++) {
        const float *rows = b->rows + (size_t)(k * 6 % (N_NODES - N_STEPS)) * N_VOCAB;
        int32_t tokens[N_STEPS];
        specrt_draft_distribution distributions[N_STEPS];
        specrt_verdict verdict;
        double start = sl_measure_seconds();
        for (int i = 0; i < N_STEPS; i++) {
            tokens[i] =
                specrt_verifier_propose(v, rows + (size_t)i * N_VOCAB, N_LIST, 1, k, i, probs[i]);
            distributions[i] = (specrt_draft_distribution){N_LIST, ids, probs[i]};
        }
        double middle = sl_measure_seconds();
        specrt_verify_chain(v, tokens, distributions, N_STEPS, rows, k, &verdict);
        propose[k] = (middle - start) / N_STEPS;
        verify[k] = (sl_measure_seconds() - middle) / verdict.n;
        n_emitted += verdict.n;
    }
    printf(
        "sampled chain, list of %d: %.3f ms a draft token, %.3f ms an emitted one (%.1f a cycle)\n",
        N_LIST, 1e3 * sl_median_of(propose, N_ROUNDS), 1e3 * sl_median_of(verify, N_ROUNDS),
        (double)n_emitted / N_ROUNDS);
    specrt_verifier_close(v);
}

int main(void) {
    bench b = {(float *)malloc(sizeof(float) * N_NODES * N_VOCAB), 0};
    uint64_t state = 11;
    if (!b.rows) return fprintf(stderr, "out of memory\n"), 1;
    for (int i = 0; i < N_NODES; i++) fill(b.rows + (size_t)i * N_VOCAB, &state);
    printf("%d f32 logits a row, one thread\n", N_VOCAB);
    run_greedy(&b);
    run_draws(&b);
    run_chain(&b);
    free(b.rows);
    return b.sink == 1;
}
