/* bench_successor.c : the successor source at [128256, 4096], f16, on one core: finding a level's list, and
 * its product three ways: where the rows lie (what it does), packed first, and packed beforehand. Rows come
 * from memory each time. Medians in ms. */
#define SPECRT_STATIC
#define SPECRT_IMPLEMENTATION
#include "specrt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../tests/fixture.h"
#include "base/measure.h"
#include "base/order.h"

enum { V = 128256, D = 4096, DEGREE = 1024, ROUNDS = 60, BEAM = 10, PACKS = 8 };
enum { FIND, INDEXED, PACK, PACKED, AHEAD, COLUMNS };

static uint64_t state = 13;

static int32_t below(int32_t n) {
    return fixture_below(&state, n);
}

static void *need(void *memory) {
    if (!memory) fprintf(stderr, "bench_successor: out of memory\n"), exit(1);
    return memory;
}

static void need_ok(specrt_status status, const specrt_error *err) {
    if (status) fprintf(stderr, "bench_successor: %s\n", err->msg), exit(1);
}

/* Every token has as many successors, spread evenly from a place of its own; counts fall as 1 / rank. */
static uint8_t *make_graph(size_t *n) {
    specrt_cograph_header h = {.n_vocab = V, .n_edges = (uint64_t)V * DEGREE, .max_degree = DEGREE};
    *n = sizeof h + (size_t)V * 16 + 4 + (size_t)V * DEGREE * 8;
    uint8_t *bytes = (uint8_t *)need(malloc(*n));
    memcpy(bytes, &h, sizeof h);
    uint64_t *totals = (uint64_t *)(void *)(bytes + sizeof h);
    uint32_t *offsets = (uint32_t *)(void *)(totals + V), *n_rule = offsets + V + 1;
    int32_t *ids = (int32_t *)(void *)(n_rule + V);
    float *counts = (float *)(void *)(ids + (size_t)V * DEGREE);
    for (int32_t u = 0; u < V; u++) {
        int32_t first = below(V);
        totals[u] = 100000;
        n_rule[u] = 64;
        offsets[u] = (uint32_t)u * DEGREE;
        for (int32_t i = 0; i < DEGREE; i++) {
            ids[(size_t)u * DEGREE + (size_t)i] = (first + i * 7919) % V;
            counts[(size_t)u * DEGREE + (size_t)i] = 10000.0f / (float)(i + 1);
        }
    }
    offsets[V] = (uint32_t)V * DEGREE;
    return bytes;
}

typedef struct scene {
    specrt_bundle *bundle;
    specrt_head *head;
    uint8_t *packs[PACKS]; /* [DEGREE, D] f16 */
    float *hidden, *logits;
} scene;

static void make_scene(scene *s) {
    size_t n_graph, n_ranks, n, n_weights = (size_t)V * D;
    specrt_error err;
    uint8_t *graph = make_graph(&n_graph), *ranks = fixture_ranks(V, 1, 512, &n_ranks);
    fixture_section sections[] = {{"cograph", 1, 0, graph, n_graph, n_graph},
                                  {"ranks", 1, 0, ranks, n_ranks, n_ranks}};
    uint8_t *bytes = fixture_bundle(sections, 2, &n);
    uint16_t *weights = (uint16_t *)need(malloc(n_weights * sizeof *weights));
    for (size_t i = 0; i < n_weights; i++)
        weights[i] = (uint16_t)(0x2c00 + (i * 2654435761u >> 22) % 1024);
    specrt_head_desc desc = {.rows = weights, .dtype = SPECRT_DTYPE_F16, .n_rows = V, .n_cols = D};
    need_ok(specrt_bundle_open_memory(bytes, n, "b", NULL, &s->bundle, &err), &err);
    need_ok(specrt_head_bind(NULL, &desc, NULL, &s->head, &err), &err);
    for (int i = 0; i < PACKS; i++) s->packs[i] = (uint8_t *)need(calloc(DEGREE, 2 * D));
    s->hidden = (float *)need(malloc(BEAM * D * sizeof *s->hidden));
    s->logits = (float *)need(malloc(BEAM * DEGREE * sizeof *s->logits));
    for (int i = 0; i < BEAM * D; i++) s->hidden[i] = fixture_normal(&state);
    free(graph);
    free(ranks);
}

static void product(const scene *s, const specrt_segment *segment, int32_t n) {
    specrt_active active = {specrt_head_compute(s->head), segment, 1, segment->n_rows, D, NULL};
    specrt_active_logits(&active, s->hidden, n, s->logits);
}

/* A level of n tokens that are drawn anew. @return the rows that were added. */
static int32_t level(scene *s, specrt_session *session, int32_t n, size_t round, double *seconds) {
    int32_t tokens[BEAM];
    float logprobs[BEAM];
    specrt_beam beam = {n, tokens, NULL, logprobs};
    for (int32_t i = 0; i < n; i++) {
        tokens[i] = below(V);
        logprobs[i] = -0.5f * (float)i;
    }
    specrt_session_start(session, tokens[0]);
    double since = sl_measure_seconds();
    const specrt_active *active = specrt_session_route(session, 0, &beam, s->hidden, NULL);
    seconds[FIND] = sl_measure_tick(&since);
    const specrt_segment *found = &active->segments[active->n_segments - 1];
    product(s, found, n);
    seconds[INDEXED] = sl_measure_tick(&since);
    specrt_segment packed = *found;
    specrt__active_packing packing = {.head = s->head,
                                      .ids = found->ids,
                                      .n = found->n_rows,
                                      .rows = s->packs[round % PACKS],
                                      .row_stride = 2 * D};
    packed.rows = packing.rows;
    packed.row_stride = packing.row_stride;
    packed.places = NULL;
    specrt__active_pack(&packing);
    seconds[PACK] = sl_measure_tick(&since);
    product(s, &packed, n);
    seconds[PACKED] = sl_measure_tick(&since);
    packed.rows = s->packs[(round + 1) % PACKS]; /* of seven levels ago */
    sl_measure_tick(&since);
    product(s, &packed, n);
    seconds[AHEAD] = sl_measure_tick(&since);
    return found->n_rows;
}

static void run(scene *s, int32_t k, int32_t n) {
    static double seconds[COLUMNS][ROUNDS];
    char text[64];
    specrt_policy_desc desc = {.text = text};
    specrt_policy *policy;
    specrt_session *session;
    specrt_error err;
    int64_t n_rows = 0;
    snprintf(text, sizeof text, "static:512+successor:%d", (int)k);
    need_ok(specrt_policy_create(s->bundle, s->head, &desc, &policy, &err), &err);
    need_ok(specrt_session_create(policy, NULL, NULL, &session, &err), &err);
    for (size_t round = 0; round < ROUNDS; round++) {
        double columns[COLUMNS];
        n_rows += level(s, session, n, round, columns);
        for (int c = 0; c < COLUMNS; c++) seconds[c][round] = columns[c];
    }
    printf("%4d rows for %2d states", (int)(n_rows / ROUNDS), (int)n);
    for (int c = 0; c < COLUMNS; c++) {
        qsort(seconds[c], ROUNDS, sizeof(double), sl_order_real);
        printf(" %9.3f", 1e3 * seconds[c][ROUNDS / 2]);
    }
    printf("\n");
    specrt_session_close(session);
    specrt_policy_close(policy);
}

int main(void) {
    scene s;
    make_scene(&s);
    printf("%23s %9s %9s %9s %9s %9s\n", "", "find", "indexed", "pack", "+ product", "ahead");
    for (int32_t k = 256; k <= 1024; k *= 4) {
        run(&s, k, 1);
        run(&s, k, BEAM);
    }
    return 0;
}
