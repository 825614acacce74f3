/* bench_event.c : what one of EvoSpec's events costs at [128256, 4096], by phase, on one core: the scan of
 * the target's logits, the search of the index, graph and cache, taking over and packing. Medians.
 *
 * Rows and states lie in 64 dimensions: 1,000 centres and as much around them, log-normal lengths. Each of
 * the 4,096 columns is one of the 64 with a sign, divided by 8, so products are those of the 64, and the
 * graph built over these is the one that a build over all columns would give. */
#define SPECRT_STATIC
#define SPECRT_IMPLEMENTATION
#include "specrt.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../tests/fixture.h"
#include "base/curve.h"
#include "base/measure.h"
#include "base/parallel.h"

#include "tools/hnsw-build/index.h"

enum { V = 128256, D = 4096, RANK = 64, CENTRES = 1000, DEGREE = 64, EVENTS = 200, STATIC = 32000 };
enum { LISTED = 3 }; /* first of the fixture's ranks */
enum { SCAN, SEARCH, ADMIT, PACK, WHOLE, PHASES };

static uint64_t state = 11;

static int32_t below(int32_t n) {
    return fixture_below(&state, n);
}

static void *need(void *memory) {
    if (!memory) fprintf(stderr, "bench_event: out of memory\n"), exit(1);
    return memory;
}

static void need_ok(specrt_status status, const specrt_error *err) {
    if (status) fprintf(stderr, "bench_event: %s\n", err->msg), exit(1);
}

/* --- the head, in few dimensions and in all --- */

static float sign_of(int32_t column) {
    return (uint32_t)column * 2654435761u >> 31 ? -1.0f : 1.0f;
}

static void draw(const float *centres, float *x) {
    const float *centre = centres + (size_t)below(CENTRES) * RANK;
    for (int j = 0; j < RANK; j++) x[j] = centre[j] + fixture_normal(&state);
}

/* Rows [V, RANK], states [EVENTS, RANK]. */
static void make_points(float *rows, float *states) {
    float *centres = (float *)need(malloc(CENTRES * RANK * sizeof *centres));
    for (int i = 0; i < CENTRES * RANK; i++) centres[i] = fixture_normal(&state);
    for (size_t i = 0; i < V; i++) {
        float length = expf(0.3f * fixture_normal(&state));
        draw(centres, rows + i * RANK);
        for (size_t j = 0; j < RANK; j++) rows[i * RANK + j] *= length;
    }
    for (size_t i = 0; i < EVENTS; i++) draw(centres, states + i * RANK);
    free(centres);
}

static void lift(const float *x, float *out) {
    for (int32_t j = 0; j < D; j++) out[j] = x[j % RANK] * sign_of(j) / 8;
}

static uint16_t *lift_rows(const float *rows) {
    uint16_t *out = (uint16_t *)need(malloc((size_t)V * D * sizeof *out));
    float row[D];
    for (size_t i = 0; i < V; i++) {
        lift(rows + i * RANK, row);
        specrt_to_f16(row, D, out + i * D);
    }
    return out;
}

/* The index of the few columns as that of all: the codes of a row repeat, its scale shrinks. */
static void lift_index(hnsw_index *index) {
    size_t n = (size_t)index->header.n_nodes;
    int8_t *codes = (int8_t *)need(malloc(n * D));
    for (size_t i = 0; i < n; i++)
        for (int32_t j = 0; j < D; j++)
            codes[i * D + (size_t)j] =
                (int8_t)(index->codes[i * (size_t)index->n_cols + (size_t)(j % RANK)] *
                         (int)sign_of(j));
    free(index->codes);
    index->codes = codes;
    for (size_t i = 0; i < n; i++) index->scales[i] /= 8;
    index->n_cols = D;
    index->header.dim = D;
}

/* --- the bundle --- */

static uint8_t *make_graph(size_t *n) {
    specrt_cograph_header h = {.n_vocab = V, .n_edges = (uint64_t)V * DEGREE, .max_degree = DEGREE};
    *n = sizeof h + (size_t)V * 16 + 4 + (size_t)V * DEGREE * 8;
    uint8_t *bytes = (uint8_t *)need(malloc(*n));
    specrt_cograph_header *header = (specrt_cograph_header *)(void *)bytes;
    uint64_t *totals = (uint64_t *)(void *)(header + 1);
    uint32_t *offsets = (uint32_t *)(void *)(totals + V), *n_rule = offsets + V + 1;
    int32_t *ids = (int32_t *)(void *)(n_rule + V);
    float *counts = (float *)(void *)(ids + (size_t)V * DEGREE);
    *header = h;
    offsets[0] = 0;
    for (int32_t u = 0; u < V; u++) {
        totals[u] = 10000;
        offsets[u + 1] = offsets[u] + DEGREE;
        n_rule[u] = DEGREE;
        for (uint32_t i = 0; i < DEGREE; i++) {
            ids[offsets[u] + i] = below(V);
            counts[offsets[u] + i] = (float)(100 - i);
        }
    }
    return bytes;
}

static specrt_bundle *make_bundle(const float *rows) {
    specrt_head_desc few = {.rows = rows, .dtype = SPECRT_DTYPE_F32, .n_rows = V, .n_cols = RANK};
    index_params params = {
        .m = 32, .ef_construction = 100, .seed = 1, .threads = sl_parallel_cores()};
    int32_t *ids, n_ids, n_left_out[3];
    size_t n_index, n_graph, n_ranks, n;
    hnsw_index built;
    specrt_bundle *bundle;
    specrt_error err;
    need_ok(index_rows(&few, NULL, &ids, &n_ids, n_left_out, &err), &err);
    double start = sl_measure_seconds();
    need_ok(index_build(&few, ids, n_ids, &params, &built, &err), &err);
    printf("graph of %d rows built in %.1f s\n", (int)n_ids, sl_measure_seconds() - start);
    lift_index(&built);
    built.header.vectors = SPECRT_HNSW_INT8;
    built.header.ef = 64;
    uint8_t *index = (uint8_t *)need(index_bytes(&built, NULL, &n_index));
    uint8_t *graph = make_graph(&n_graph), *ranks = fixture_ranks(V, 1, STATIC, &n_ranks);
    index_free(&built);
    free(ids);
    fixture_section sections[] = {{"cograph", 1, 0, graph, n_graph, n_graph},
                                  {"hnsw", 1, 0, index, n_index, n_index},
                                  {"ranks", 1, 0, ranks, n_ranks, n_ranks}};
    uint8_t *bytes = fixture_bundle(sections, 3, &n);
    free(graph);
    free(index);
    free(ranks);
    need_ok(specrt_bundle_open_memory(bytes, n, "b", NULL, &bundle, &err), &err);
    return bundle;
}

/* --- events --- */

typedef struct scene {
    specrt_bundle *bundle;
    specrt_head *head;
    float *states, *lifted; /* [EVENTS, RANK], [EVENTS, D] */
    float *logits;          /* [EVENTS, V] */
} scene;

/* The target's logits, by the few columns. */
static void make_logits(scene *s, const float *rows) {
    s->logits = (float *)need(malloc((size_t)EVENTS * V * sizeof *s->logits));
    s->lifted = (float *)need(malloc((size_t)EVENTS * D * sizeof *s->lifted));
    for (size_t e = 0; e < EVENTS; e++) {
        const float *h = s->states + e * RANK;
        lift(h, s->lifted + e * D);
        for (size_t i = 0; i < V; i++) {
            float sum = 0;
            for (size_t j = 0; j < RANK; j++) sum += rows[i * RANK + j] * h[j];
            s->logits[e * V + i] = sum;
        }
    }
}

/* An event at a token that could not be drafted, step by step. @return how many of the target's ten best
 * the index has found. */
static int event(scene *s, specrt_session *session, size_t e, double *seconds) {
    specrt__retrieve *r =
        (specrt__retrieve *)specrt__session_state(session, SPECRT__POLICY_RETRIEVE);
    specrt_target_rows rows = {
        .logits = s->logits + e * V, .hidden = s->lifted + e * D, .d_hidden = D};
    specrt_verdict verdict = {.n = 1};
    int32_t seeds[2 * SPECRT__RETRIEVE_TOP + 1], best;
    do verdict.tokens[0] = below(V);
    while (specrt__active_member(session->pool, verdict.tokens[0]));
    specrt_logits_topk(rows.logits, V, 1, &best); /* verification has just read this row */
    double start = sl_measure_seconds(), since = start;
    r->n_cycles++;
    specrt__retrieve_write(r, &verdict, &rows, true);
    seconds[SCAN] = sl_measure_tick(&since);
    specrt__retrieve_record *record = &r->records[0];
    int32_t n_seeds = specrt__retrieve_seeds(r, record, verdict.tokens[0], seeds);
    seconds[SEARCH] = sl_measure_tick(&since);
    record->n_changes = 0;
    specrt__retrieve_admit(r, record, verdict.tokens[0], seeds, n_seeds);
    r->limit = ++r->done;
    seconds[ADMIT] = sl_measure_tick(&since);
    specrt__retrieve_take(r);
    specrt__active_sync(session->pool);
    seconds[PACK] = sl_measure_tick(&since);
    seconds[WHOLE] = since - start;
    return 2 * SPECRT__RETRIEVE_TOP + 1 - n_seeds;
}

/* Threads that this one starts from now on inherit it. */
static void stay_on(size_t core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    sched_setaffinity(0, sizeof set, &set); /* where there is but one, all stay there */
}

typedef struct turn {
    specrt_policy *policy;
    specrt_session *session;
    specrt_worker *worker;
} turn;

static void turn_make(turn *t, scene *s, const char *text, int32_t ef) {
    specrt_error err;
    specrt_policy_desc desc = {.text = text, .target = s->head};
    need_ok(specrt_worker_create(NULL, &t->worker, &err), &err);
    specrt_session_params params = {.submit = specrt_worker_submit, .submit_user = t->worker};
    need_ok(specrt_policy_create(s->bundle, s->head, &desc, &t->policy, &err), &err);
    /* The section lies in memory of ours. */
    if (ef)
        ((specrt_hnsw_header *)(uintptr_t)((const specrt__retrieve_shared *)specrt__policy_shared(
                                               t->policy, SPECRT__POLICY_RETRIEVE))
             ->params.index.header)
            ->ef = ef;
    need_ok(specrt_session_create(t->policy, &params, NULL, &t->session, &err), &err);
    specrt_session_start(t->session, 1);
}

static void turn_free(turn *t) {
    specrt_session_close(t->session);
    specrt_policy_close(t->policy);
    specrt_worker_close(t->worker);
}

static void run(scene *s, const char *text, int32_t ef) {
    static double seconds[PHASES][EVENTS];
    turn t;
    int n_again = 0;
    turn_make(&t, s, text, ef);
    int64_t n_before = t.session->pool->n_copied;
    for (size_t e = 0; e < EVENTS; e++) {
        double phases[PHASES];
        n_again += event(s, t.session, e, phases);
        for (int p = 0; p < PHASES; p++) seconds[p][e] = phases[p];
    }
    printf("%-40s", text);
    if (strstr(text, "hnsw_h"))
        printf(" ef %4d %.3f ", (int)ef, n_again / (10.0 * EVENTS));
    else
        printf(" %14s", "");
    printf("%5.1f", (double)(t.session->pool->n_copied - n_before) / EVENTS);
    for (int p = 0; p < PHASES; p++) printf(" %8.4f", 1e3 * sl_median_of(seconds[p], EVENTS));
    printf("\n");
    turn_free(&t);
}

/* Observes one emitted token. @return the seconds that took. */
static double observe(specrt_session *session, int32_t token, const specrt_target_rows *rows) {
    specrt_draft draft;
    specrt_verdict verdict = {.n = 1, .tokens = {token}};
    specrt_session_finish(session, &draft);
    double start = sl_measure_seconds();
    specrt_session_observe(session, &draft, &verdict, rows);
    return sl_measure_seconds() - start;
}

/* On a worker on another core: what the event costs the cycle that it ends, when it is done, what the
 * next cycle pays. */
static void run_beside(scene *s, const char *text, int32_t ef) {
    static double first[EVENTS], done[EVENTS], next[EVENTS], quiet[EVENTS];
    turn t;
    stay_on(1);
    turn_make(&t, s, text, ef);
    stay_on(0);
    for (size_t e = 0; e < EVENTS; e++) {
        specrt_target_rows rows = {
            .logits = s->logits + e * V, .hidden = s->lifted + e * D, .d_hidden = D};
        const specrt__retrieve *r =
            (specrt__retrieve *)specrt__session_state(t.session, SPECRT__POLICY_RETRIEVE);
        int32_t token, best;
        do token = below(V);
        while (specrt__active_member(t.session->pool, token));
        specrt_logits_topk(rows.logits, V, 1, &best);
        double start = sl_measure_seconds();
        first[e] = observe(t.session, token, &rows);
        while (specrt__os_load(&r->done) != r->limit) sched_yield();
        done[e] = sl_measure_seconds() - start;
        next[e] = observe(t.session, LISTED, &rows);
        specrt__retrieve_settle(r);
        quiet[e] = observe(t.session, LISTED, &rows);
        specrt__retrieve_settle(r);
    }
    printf(
        "%s: the event adds %.4f ms to its cycle and is done after %.4f ms; the next cycle takes "
        "over and packs in %.4f ms; one without news takes %.4f ms\n",
        text, 1e3 * sl_median_of(first, EVENTS), 1e3 * sl_median_of(done, EVENTS),
        1e3 * sl_median_of(next, EVENTS), 1e3 * sl_median_of(quiet, EVENTS));
    turn_free(&t);
}

int main(void) {
    static const int32_t efs[] = {16, 32, 48, 64, 128};
    scene s;
    specrt_error err;
    float *rows = (float *)need(malloc((size_t)V * RANK * sizeof *rows));
    s.states = (float *)need(malloc(EVENTS * RANK * sizeof *s.states));
    make_points(rows, s.states);
    s.bundle = make_bundle(rows);
    make_logits(&s, rows);
    specrt_head_desc desc = {
        .rows = lift_rows(rows), .dtype = SPECRT_DTYPE_F16, .n_rows = V, .n_cols = D};
    free(rows);
    need_ok(specrt_head_bind(NULL, &desc, NULL, &s.head, &err), &err);
    printf("f16 head [%d, %d], int8 index, static:%d, median ms of %d events, one core\n"
           "%-40s %14s %4s %8s %8s %8s %8s %8s\n",
           V, D, STATIC, EVENTS, "policy", "recall@10", "rows", "scan", "search", "admit", "pack",
           "whole");
    run(&s, "static+retrieve:256", 0);
    run(&s, "static+retrieve:256@graph=off", 0);
    for (int i = 0; i < 5; i++) run(&s, "static+retrieve:256@sem=hnsw_h", efs[i]);
    run(&s, "static+retrieve:256@sem=hnsw_w", 48);
    run_beside(&s, "static+retrieve:256@mode=async", 0);
    run_beside(&s, "static+retrieve:256@sem=hnsw_h@mode=async", 48);
    return 0;
}
