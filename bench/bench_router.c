/* bench_router.c : what routing a level costs beside the product with the full head that it spares, d =
 * 4,096, weights by chance. Best of several, taken in turns, on one core. */
#define SPECRT_STATIC
#define SPECRT_IMPLEMENTATION
#include "specrt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../tests/fixture.h"
#include "base/measure.h"
#include "machine.h"

enum { N_VOCAB = 128256, N_COLS = 4096, TOPK = 10, REPEATS = 12 };

typedef struct router {
    const char *name, *tag;
    specrt_clusters_header header;
    uint8_t *bytes;
    specrt_bundle *bundle;
    specrt_head *head;
    specrt_policy *policy;
    specrt_session *session;
    double best[2]; /* seconds: of a level of one row, of TOPK rows */
} router;

/* Half floats of modest size that are no pattern; the values do not matter. */
static uint16_t *halves(size_t n) {
    uint64_t state = 7;
    uint16_t *x = malloc(n * sizeof *x);
    if (!x) exit(1);
    for (size_t i = 0; i < n; i++) x[i] = (uint16_t)(0x2000 | (fixture_random(&state) & 0x8fff));
    return x;
}

/* A head of no more rows than the clusters need: a router's time does not depend on them. */
static void open_router(router *r, const uint16_t *rows) {
    size_t n_section, n;
    specrt_error err;
    specrt_head_desc head = {
        .rows = rows, .dtype = SPECRT_DTYPE_F16, .n_rows = r->header.n_rows, .n_cols = N_COLS};
    specrt_policy_desc desc = {.text = r->tag, .n_vocab = r->header.n_rows, .embedding = &head};
    specrt_session_params params = {.tree = {.num_steps = 6, .topk = TOPK, .num_draft_tokens = 60}};
    uint8_t *section = fixture_clusters(r->header, NULL, 7, &n_section);
    fixture_section part = {r->tag, 1, 32, section, n_section, n_section};
    r->bytes = fixture_bundle(&part, 1, &n);
    free(section);
    if (specrt_bundle_open_memory(r->bytes, n, "b", NULL, &r->bundle, &err) ||
        specrt_head_bind(r->bundle, &head, NULL, &r->head, &err) ||
        specrt_policy_create(r->bundle, r->head, &desc, &r->policy, &err) ||
        specrt_session_create(r->policy, &params, NULL, &r->session, &err)) {
        puts(err.msg);
        exit(1);
    }
    r->best[0] = r->best[1] = 1e9;
}

static void close_router(router *r) {
    specrt_session_close(r->session);
    specrt_policy_close(r->policy);
    specrt_head_close(r->head);
    specrt_bundle_close(r->bundle);
    free(r->bytes);
}

/* The whole of a route: reading, the layers, the choice. */
static void time_route(router *r, const float *states, int32_t n, double *best) {
    static const int32_t tokens[TOPK] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    static const float logprobs[TOPK] = {0};
    specrt__active_level level = {0, n, tokens, logprobs, states, states};
    specrt__active_routed *out = r->session->routed;
    memset(out->levels, 0, (size_t)r->header.n_rows * sizeof *out->levels);
    out->level = 0;
    out->n_segments = out->n_rows = out->n_masked = 0;
    double start = sl_measure_seconds();
    r->policy->sources[0].source->route(r->session->states[0], &level, out);
    keep_least(best, start);
}

int main(void) {
    specrt_clusters_header base = {
        .n_rows = 4096, .n_cols = N_COLS, .n_state = N_COLS, .n_schedule = 6};
    router routers[] = {{.name = "dynaspec, 256 clusters", .tag = "cluster", .header = base},
                        {.name = "coral, 16 groups", .tag = "group", .header = base},
                        {.name = "centroid, 2,048 clusters", .tag = "centroid", .header = base}};
    static const int32_t kinds[] = {SPECRT_ROUTER_DYNASPEC, SPECRT_ROUTER_CORAL,
                                    SPECRT_ROUTER_CENTROID};
    static const int32_t n_clusters[] = {256, 16, 2048}, n_hidden[] = {512, N_COLS, 0};
    uint16_t *rows = halves((size_t)N_VOCAB * N_COLS);
    float *states = malloc(TOPK * N_COLS * sizeof *states);
    float *logits = malloc((size_t)TOPK * N_VOCAB * sizeof *logits);
    if (!states || !logits) return 1;
    double full[2] = {1e9, 1e9};
    specrt_segment all = {
        .rows = rows, .row_stride = 2 * N_COLS, .dtype = SPECRT_DTYPE_F16, .n_rows = N_VOCAB};
    uint64_t state = 9;
    for (int i = 0; i < TOPK * N_COLS; i++) states[i] = fixture_normal(&state);
    for (int i = 0; i < 3; i++) {
        routers[i].header.router = kinds[i];
        routers[i].header.n_clusters = n_clusters[i];
        routers[i].header.n_hidden = n_hidden[i];
        routers[i].header.n_embed = i == 0 ? N_COLS : 0;
        routers[i].header.softmax = i > 0;
        open_router(&routers[i], rows);
    }
    specrt_active product = {&routers[0].head->compute, &all, 1, N_VOCAB, N_COLS, NULL};
    for (int repeat = 0; repeat < REPEATS; repeat++)
        for (int many = 0; many < 2; many++) {
            int32_t n = many ? TOPK : 1;
            double start = sl_measure_seconds();
            specrt_active_logits(&product, states, n, logits);
            keep_least(&full[many], start);
            for (int i = 0; i < 3; i++) time_route(&routers[i], states, n, &routers[i].best[many]);
        }
    printf("full head %d x %d, f16: 1 row %.2f ms, %d rows %.2f ms\n", N_VOCAB, N_COLS,
           1e3 * full[0], TOPK, 1e3 * full[1]);
    for (int i = 0; i < 3; i++) {
        printf("%-26s", routers[i].name);
        for (int many = 0; many < 2; many++)
            printf("  %2d rows %.3f ms, %.2f%%", many ? TOPK : 1, 1e3 * routers[i].best[many],
                   100 * routers[i].best[many] / full[many]);
        putchar('\n');
    }
    for (int i = 0; i < 3; i++) close_router(&routers[i]);
    free(rows);
    free(states);
    free(logits);
    return 0;
}
