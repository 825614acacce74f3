/* plan_cost.c : what calls cost on this machine. The CPU engine is one plan_machine; another device is
 * another three functions. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "io.h"
#include "plan.h"

const int32_t plan_widths[PLAN_WIDTHS] = {1, 4, 10};

enum { MOST_ROUNDS = 12, N_PROMPT = 64 };
static const double BUDGET = 8; /* seconds; a first round is always finished */

/* ---- measuring ---- */

typedef struct point {
    curve *of, *unseen;
    int kind;        /* 0: head, 1: draft, 2: target */
    int32_t x, n, k; /* size; hidden rows and best ones of a head product */
} point;

enum { MOST_POINTS = 128 };

typedef struct points {
    point items[MOST_POINTS];
    int n;
} points;

static void add_point(points *p, point x) {
    if (p->n < MOST_POINTS) p->items[p->n++] = x;
}

static void add_sizes(points *p, int kind, const int32_t *sizes, int n, int32_t most, curve *of,
                      curve *unseen, int32_t width) {
    for (int i = 0; i < n && sizes[i] <= most; i++)
        add_point(p, (point){of, unseen, kind, sizes[i], width, width});
}

/* Powers of two and all of it; held back, sizes between some of them. */
static void add_head(points *p, const plan_machine *m, int width, curve *of, curve *unseen) {
    int32_t sizes[CURVE_MOST], between[CURVE_MOST], n = 0, k = plan_widths[width];
    for (int32_t rows = 256; rows < m->n_rows && n + 1 < CURVE_MOST; rows *= 2) sizes[n++] = rows;
    sizes[n++] = m->n_rows;
    for (int i = 0; i + 1 < n; i++) between[i] = sizes[i] + (sizes[i + 1] - sizes[i]) / 2;
    add_sizes(p, 0, sizes, n, m->n_rows, of, NULL, k);
    for (int i = 0; i + 1 < n; i += 2) add_sizes(p, 0, &between[i], 1, m->n_rows, of, unseen, k);
}

static specrt_status call_point(const plan_machine *m, const point *p) {
    return p->kind == 0   ? m->head(m->user, p->x, p->n, p->k)
           : p->kind == 1 ? m->draft(m->user, p->x)
                          : m->target(m->user, p->x);
}

/* Not the first call, which finds the caches as another size left them, nor of a head's rows the second: a
 * last cache may keep only what came twice. */
static specrt_status time_point(const plan_machine *m, const point *p, double *seconds) {
    for (int warm = p->kind == 0 ? 2 : 1; warm > 0; warm--) TRY(call_point(m, p));
    double began = cli_seconds();
    specrt_status status = call_point(m, p);
    *seconds = cli_seconds() - began;
    return status;
}

static specrt_status measure_all(const plan_machine *m, const points *p, double began) {
    for (int round = 0; round < MOST_ROUNDS; round++)
        for (int i = 0; i < p->n; i++) {
            double seconds;
            if (round > 1 && cli_seconds() - began > BUDGET) return SPECRT_STATUS_OK;
            TRY(time_point(m, &p->items[i], &seconds));
            if (round) /* the first one warms up */
                curve_add(p->items[i].unseen ? p->items[i].unseen : p->items[i].of, p->items[i].x,
                          seconds);
        }
    return SPECRT_STATUS_OK;
}

enum { N_CURVES = PLAN_WIDTHS + 2 };

/* What the curves say of sizes that they have not seen; then these join them. */
static void judge(curve *const curves[N_CURVES], curve unseen[N_CURVES], plan_costs *out) {
    double errors[MOST_POINTS];
    int n = 0;
    for (int c = 0; c < N_CURVES; c++) {
        curve_make_monotone(curves[c]);
        for (int i = 0; i < unseen[c].n; i++) {
            double x = unseen[c].x[i], y = unseen[c].y[i];
            errors[n] = fabs(curve_at(curves[c], x) / y - 1);
            out->worst = fmax(out->worst, errors[n++]);
        }
    }
    for (int c = 0; c < N_CURVES; c++) {
        for (int i = 0; i < unseen[c].n; i++) curve_add(curves[c], unseen[c].x[i], unseen[c].y[i]);
        curve_make_monotone(curves[c]);
    }
    out->error = n ? median_of(errors, n) : 0;
}

specrt_status plan_measure(const plan_machine *m, plan_costs *out) {
    static const int32_t drafts[] = {1, 2, 3, 4, 6, 8, 10}, other_drafts[] = {5, 7, 9};
    /* as many nodes as plan_shapes() asks for */
    static const int32_t nodes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 24, 32, 48, 60};
    static const int32_t other_nodes[] = {10, 14, 20, 28, 40, 54};
    curve *const curves[N_CURVES] = {&out->head[0], &out->head[1], &out->head[2], &out->draft,
                                     &out->target};
    curve unseen[N_CURVES] = {{0}};
    points p = {.n = 0};
    double began = cli_seconds();
    *out = (plan_costs){.error = 0};
    for (int w = 0; w < PLAN_WIDTHS; w++) add_head(&p, m, w, curves[w], &unseen[w]);
    curve *draft = &unseen[PLAN_WIDTHS], *target = draft + 1;
    add_sizes(&p, 1, drafts, 7, m->max_rows, &out->draft, NULL, 0);
    add_sizes(&p, 1, other_drafts, 3, m->max_rows, &out->draft, draft, 0);
    add_sizes(&p, 2, nodes, 15, m->max_rows, &out->target, NULL, 0);
    add_sizes(&p, 2, other_nodes, 6, m->max_rows, &out->target, target, 0);
    TRY(measure_all(m, &p, began));
    judge(curves, unseen, out);
    out->seconds = cli_seconds() - began;
    return SPECRT_STATUS_OK;
}

/* ---- the CPU engine ---- */

typedef struct cpu {
    const eval_models *models;
    engine_cache *cache, *draft_cache;
    specrt_head_desc head;
    int32_t *ids;          /* [n_rows] of the head */
    float *hidden, *query; /* [ENGINE_MAX_BATCH, d] */
    float *logits, *best;  /* [ENGINE_MAX_BATCH, n_vocab]; [ENGINE_MAX_BATCH, 64] */
    int32_t *best_ids;
    int32_t tokens[ENGINE_MAX_BATCH];
} cpu;

/* The first rows where they lie: as fast as rows that were packed. */
static specrt_status cpu_head(void *user, int32_t n_rows, int32_t n, int32_t k) {
    cpu *c = (cpu *)user;
    const specrt_segment rows = {
        .rows = c->head.rows,
        .row_stride = c->head.row_stride ? c->head.row_stride
                                         : specrt_row_bytes(c->head.dtype, c->head.n_cols),
        .ids = c->ids,
        .bias = c->head.bias,
        .dtype = c->head.dtype,
        .n_rows = n_rows};
    const specrt_active active = {.compute = specrt_head_compute(c->models->head),
                                  .segments = &rows,
                                  .n_segments = 1,
                                  .n_rows = n_rows,
                                  .n_cols = c->head.n_cols};
    TRY(specrt_active_logits(&active, c->hidden, n, c->logits));
    return specrt_active_topk(&active, c->logits, n, k, c->best_ids, c->best);
}

static specrt_status cpu_draft(void *user, int32_t n) {
    cpu *c = (cpu *)user;
    int32_t parents[ENGINE_MAX_BATCH];
    for (int32_t i = 0; i < n; i++) parents[i] = -1;
    specrt_status status = engine_draft(c->models->drafter, c->draft_cache, c->tokens, c->hidden,
                                        (int32_t)c->head.n_cols, n, parents, c->hidden, c->query);
    engine_cache_truncate(c->draft_cache, engine_cache_length(c->draft_cache));
    return status;
}

static specrt_status cpu_target(void *user, int32_t n) {
    cpu *c = (cpu *)user;
    specrt_status status = engine_forward(c->cache, c->tokens, n, NULL, c->query, c->logits);
    engine_cache_truncate(c->cache, engine_cache_length(c->cache));
    return status;
}

static specrt_status cpu_allocate(cpu *c, specrt_error *err) {
    size_t n_vocab = (size_t)engine_get_config(c->models->target)->n_vocab;
    size_t d = (size_t)engine_get_config(c->models->target)->d_model;
    size_t most = c->head.n_rows > (int64_t)n_vocab ? (size_t)c->head.n_rows : n_vocab;
    if ((size_t)c->head.n_cols > d) d = (size_t)c->head.n_cols;
    c->ids = (int32_t *)malloc((size_t)c->head.n_rows * sizeof *c->ids);
    c->hidden = (float *)calloc(ENGINE_MAX_BATCH * d, sizeof(float));
    c->query = (float *)malloc(ENGINE_MAX_BATCH * d * sizeof(float));
    c->logits = (float *)malloc(ENGINE_MAX_BATCH * most * sizeof(float));
    c->best = (float *)malloc((size_t)ENGINE_MAX_BATCH * SPECRT_TREE_MAX_TOPK * sizeof(float));
    c->best_ids =
        (int32_t *)malloc((size_t)ENGINE_MAX_BATCH * SPECRT_TREE_MAX_TOPK * sizeof *c->best_ids);
    if (!c->ids || !c->hidden || !c->query || !c->logits || !c->best || !c->best_ids)
        return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "no memory for measuring");
    for (int32_t i = 0; i < (int32_t)c->head.n_rows; i++)
        c->ids[i] = c->head.ids ? c->head.ids[i] : i;
    for (int32_t i = 0; i < ENGINE_MAX_BATCH; i++) /* any tokens */
        c->tokens[i] = (int32_t)((size_t)(i * 977 + 11) % n_vocab);
    return SPECRT_STATUS_OK;
}

static void keep_all(engine_cache *cache) {
    int32_t nodes[N_PROMPT];
    for (int32_t i = 0; i < N_PROMPT; i++) nodes[i] = i;
    engine_keep(cache, nodes, N_PROMPT);
}

/* Features of the prompt are zero: what they are costs nothing. */
static specrt_status cpu_begin(cpu *c, specrt_error *err) {
    TRY(cpu_allocate(c, err));
    TRY(engine_cache_create(c->models->target, 2 * N_PROMPT + ENGINE_MAX_BATCH, &c->cache, err));
    TRY(engine_drafter_cache(c->models->drafter, 2 * N_PROMPT + ENGINE_MAX_BATCH, &c->draft_cache,
                             err));
    TRY(engine_forward(c->cache, c->tokens, N_PROMPT, NULL, NULL, NULL));
    keep_all(c->cache);
    TRY(engine_draft(c->models->drafter, c->draft_cache, c->tokens, c->hidden,
                     (int32_t)c->head.n_cols, N_PROMPT, NULL, c->hidden, c->query));
    keep_all(c->draft_cache);
    return SPECRT_STATUS_OK;
}

specrt_status plan_cpu_create(const eval_models *m, plan_machine *out, specrt_error *err) {
    cpu *c = (cpu *)calloc(1, sizeof *c);
    if (!c) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "no memory for measuring");
    c->models = m;
    engine_drafter_head(m->drafter, &c->head);
    *out = (plan_machine){.user = c,
                          .n_rows = (int32_t)c->head.n_rows,
                          .max_rows = ENGINE_MAX_BATCH,
                          .head = cpu_head,
                          .draft = cpu_draft,
                          .target = cpu_target};
    specrt_status status = cpu_begin(c, err);
    if (status != SPECRT_STATUS_OK) plan_cpu_free(out);
    return status;
}

void plan_cpu_free(plan_machine *m) {
    cpu *c = (cpu *)m->user;
    if (!c) return;
    engine_cache_close(c->cache);
    engine_cache_close(c->draft_cache);
    free(c->ids), free(c->hidden), free(c->query);
    free(c->logits), free(c->best), free(c->best_ids);
    free(c);
    *m = (plan_machine){0};
}
