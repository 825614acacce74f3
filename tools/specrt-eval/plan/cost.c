/* cost.c : what calls cost on this machine. The CPU engine is one plan_machine; another device is
 * another three functions. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/io.h"
#include "base/error.h"
#include "base/measure.h"
#include "base/memory.h"
#include "engine/backend/own.h"
#include "plan.h"

enum { N_PROMPT = 64 };

/* ---- measuring ---- */

enum { HEAD, DRAFT, TARGET, N_KINDS };
enum { N_HEADS = 1 + SPECRT_COSTS_WIDTHS, MOST_SITES = 128, MOST_ROUNDS = 12, MOST_TIMES = 40 };

/* A size of one kind of call. */
typedef struct site {
    int kind;
    int32_t x;
    bool held, asked; /* unseen by the curves; to be timed now */
    int n;
    double times[N_HEADS][MOST_TIMES]; /* [n] of a head by level and width, of others the first */
} site;

typedef struct survey {
    const plan_machine *machine;
    specrt_costs *costs;
    double began;
    int n;
    site sites[MOST_SITES];
    int n_errors;
    double errors[MOST_SITES * N_HEADS];
} survey;

static specrt_curve *curve_of(specrt_costs *c, int kind, int i) {
    if (kind != HEAD) return kind == DRAFT ? &c->draft : &c->target;
    return i == 0 ? &c->head_first : &c->head_next[i - 1];
}

static int curves_of(int kind) {
    return kind == HEAD ? N_HEADS : 1;
}

static bool add_site(survey *v, int kind, int32_t x, bool held) {
    if (v->n == MOST_SITES) return false;
    v->sites[v->n++] = (site){.kind = kind, .x = x, .held = held, .asked = true};
    return true;
}

static void add_sizes(survey *v, int kind, const int32_t *sizes, int n, bool held) {
    for (int i = 0; i < n && sizes[i] <= v->machine->max_rows; i++)
        add_site(v, kind, sizes[i], held);
}

/* Powers of two and all of it; held back, the sizes between them. */
static void add_head(survey *v) {
    int32_t most = v->machine->n_rows;
    for (int64_t rows = 256; rows < most; rows *= 2) {
        int64_t next = 2 * rows < most ? 2 * rows : most;
        add_site(v, HEAD, (int32_t)rows, false);
        if (next > rows + 1) add_site(v, HEAD, (int32_t)(rows + (next - rows) / 2), true);
    }
    add_site(v, HEAD, most, false);
}

static specrt_status time_head(const plan_machine *m, int32_t rows, int32_t n, double *seconds) {
    TRY(m->draft(m->user, n));
    double began = sl_measure_seconds();
    specrt_status status = m->head(m->user, rows, n, n);
    *seconds = sl_measure_seconds() - began;
    return status;
}

/* Products as a cycle makes them: the first finds its rows where the target's pass left them, which may be
 * nowhere near, the next where the one before did. */
static specrt_status time_levels(const plan_machine *m, site *s) {
    TRY(m->head(m->user, s->x, 1, 1)); /* of the cycle before */
    TRY(m->target(m->user, 1));
    TRY(time_head(m, s->x, 1, &s->times[0][s->n]));
    for (int w = 0; w < SPECRT_COSTS_WIDTHS; w++)
        TRY(time_head(m, s->x, specrt_costs_width(w), &s->times[1 + w][s->n]));
    return SPECRT_STATUS_OK;
}

static specrt_status time_site(const plan_machine *m, site *s) {
    specrt_status (*call)(void *, int32_t) = s->kind == DRAFT ? m->draft : m->target;
    if (s->kind == HEAD) return time_levels(m, s);
    if (s->kind == DRAFT) TRY(call(m->user, s->x)); /* its weights are soon back */
    double began = sl_measure_seconds();
    specrt_status status = call(m->user, s->x);
    s->times[0][s->n] = sl_measure_seconds() - began;
    return status;
}

/* Every site that is asked, in turns, so that what disturbs the machine for a while hits all alike. */
static specrt_status time_rounds(survey *v, double auto_draft) {
    for (int round = 0; round < MOST_ROUNDS; round++)
        for (int i = 0; i < v->n; i++) {
            site *s = &v->sites[i];
            if (round && sl_measure_seconds() - v->began > auto_draft) return SPECRT_STATUS_OK;
            if (!s->asked || s->n == MOST_TIMES) continue;
            TRY(time_site(v->machine, s));
            s->n++;
        }
    return SPECRT_STATUS_OK;
}

/* The lower quartile: other programs add to a time, rows that happened to lie in a cache take from it. */
static double time_of(site *s, int i) {
    return sl_quartile_of(s->times[i], s->n);
}

static void make_curves(survey *v) {
    memset(v->costs, 0, sizeof *v->costs);
    for (int k = 0; k < v->n; k++)
        for (int i = 0; !v->sites[k].held && i < curves_of(v->sites[k].kind); i++)
            specrt_curve_add(curve_of(v->costs, v->sites[k].kind, i), v->sites[k].x,
                             time_of(&v->sites[k], i));
    for (int kind = 0; kind < N_KINDS; kind++)
        for (int i = 0; i < curves_of(kind); i++)
            specrt_curve_make_monotone(curve_of(v->costs, kind, i));
}

/* By what shares the curves miss what they have not seen. @return the greatest. */
static double misses(survey *v, site *s, double out[N_HEADS]) {
    double worst = 0;
    for (int i = 0; i < curves_of(s->kind); i++) {
        out[i] = fabs(specrt_curve_at(curve_of(v->costs, s->kind, i), s->x) / time_of(s, i) - 1);
        worst = fmax(worst, out[i]);
    }
    return worst;
}

/* The nearest size that the curves know, above (side 1) or below (-1). */
static site *neighbour(survey *v, const site *of, int side) {
    site *found = NULL;
    for (int i = 0; i < v->n; i++) {
        site *s = &v->sites[i];
        if (s->kind != of->kind || s->held || (s->x - of->x) * side <= 0) continue;
        if (!found || (found->x - s->x) * side > 0) found = s;
    }
    return found;
}

/* Ask again of a gap, and of its two halves unless they are narrow. @return whether any is asked for. */
static bool split(survey *v, site *s) {
    bool any = false;
    for (int side = -1; side <= 1; side += 2) {
        site *other = neighbour(v, s, side);
        int32_t half = other ? side * (other->x - s->x) / 2 : 0;
        if (half == 0 || half < s->x / 16 || !add_site(v, s->kind, s->x + side * half, true))
            continue;
        s->asked = other->asked = any = true;
    }
    return any;
}

/* Held sites join the curves. Where these were far off, the next ones to be held are asked for, if there
 * is time; what they missed elsewhere stands. @return whether any are asked for. */
static bool judge(survey *v, bool refine) {
    bool any = false;
    double errors[N_HEADS];
    int n = v->n;
    make_curves(v);
    for (int k = 0; k < n; k++) v->sites[k].asked = false;
    for (int k = 0; k < n; k++) {
        site *s = &v->sites[k];
        if (!s->held) continue;
        bool splits = misses(v, s, errors) > PLAN_TOLERANCE && refine && split(v, s);
        any = any || splits;
        for (int i = 0; !splits && i < curves_of(s->kind); i++)
            v->errors[v->n_errors++] = errors[i];
    }
    for (int k = 0; k < n; k++) v->sites[k].held = false;
    return any;
}

static specrt_status take_survey(survey *v) {
    TRY(time_rounds(v, 0)); /* warms up */
    for (int i = 0; i < v->n; i++) v->sites[i].n = 0;
    TRY(time_rounds(v, v->machine->seconds));
    double most = 1.6 * v->machine->seconds; /* sizes between that curves missed are timed too */
    while (judge(v, sl_measure_seconds() - v->began < most)) TRY(time_rounds(v, most));
    make_curves(v);
    for (int i = 0; i < v->n_errors; i++) v->costs->worst = fmax(v->costs->worst, v->errors[i]);
    v->costs->error = v->n_errors ? sl_median_of(v->errors, v->n_errors) : 0;
    v->costs->seconds = sl_measure_seconds() - v->began;
    return SPECRT_STATUS_OK;
}

specrt_status plan_measure(const plan_machine *m, specrt_costs *out) {
    static const int32_t drafts[] = {1, 2, 3, 4, 6, 8, 10}, other_drafts[] = {5, 7, 9};
    /* as many nodes as plan_shapes() asks for */
    static const int32_t nodes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 24, 32, 48, 60};
    static const int32_t other_nodes[] = {10, 14, 20, 28, 40, 54};
    survey *v = (survey *)calloc(1, sizeof *v);
    if (!v) return SPECRT_STATUS_NO_MEMORY;
    v->machine = m;
    v->costs = out;
    v->began = sl_measure_seconds();
    add_head(v);
    add_sizes(v, DRAFT, drafts, 7, false);
    add_sizes(v, DRAFT, other_drafts, 3, true);
    add_sizes(v, TARGET, nodes, 15, false);
    add_sizes(v, TARGET, other_nodes, 6, true);
    specrt_status status = take_survey(v);
    free(v);
    return status;
}

/* ---- the CPU engine ---- */

typedef struct cpu {
    const eval_models *models;
    engine_cache *cache, *draft_cache;
    specrt_head_desc head;
    int32_t *ids;               /* [n_rows] of the head */
    float *hidden, *head_input; /* [ENGINE_MAX_BATCH, d] */
    float *logits, *best;       /* [ENGINE_MAX_BATCH, n_vocab]; [ENGINE_MAX_BATCH, 64] */
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
    const specrt_shortlist shortlist = {.compute = specrt_head_compute(c->models->head),
                                        .segments = &rows,
                                        .n_segments = 1,
                                        .n_rows = n_rows,
                                        .n_cols = c->head.n_cols,
                                        .head = c->models->head};
    TRY(specrt_shortlist_logits(&shortlist, c->hidden, n, c->logits));
    return specrt_shortlist_topk(&shortlist, c->logits, n, k, c->best_ids, c->best);
}

static specrt_status cpu_draft(void *user, int32_t n) {
    cpu *c = (cpu *)user;
    int32_t parents[ENGINE_MAX_BATCH];
    for (int32_t i = 0; i < n; i++) parents[i] = -1;
    specrt_status status =
        engine_draft(own_drafter(c->models->engine), c->draft_cache, c->tokens, c->hidden,
                     (int32_t)c->head.n_cols, n, parents, c->hidden, c->head_input);
    engine_cache_truncate(c->draft_cache, engine_cache_length(c->draft_cache));
    return status;
}

static specrt_status cpu_target(void *user, int32_t n) {
    cpu *c = (cpu *)user;
    specrt_status status = engine_forward(c->cache, c->tokens, n, NULL, c->head_input, c->logits);
    engine_cache_truncate(c->cache, engine_cache_length(c->cache));
    return status;
}

static specrt_status cpu_allocate(cpu *c, specrt_error *err) {
    size_t n_vocab = (size_t)engine_get_config(own_target(c->models->engine))->n_vocab;
    size_t d = (size_t)engine_get_config(own_target(c->models->engine))->d_model;
    size_t n_rows = (size_t)c->head.n_rows, most = n_vocab, width = (size_t)c->head.n_cols;
    size_t n_best = (size_t)ENGINE_MAX_BATCH * SPECRT_TREE_MAX_TOPK;
    if (n_rows > most) most = n_rows;
    if (width > d) d = width;
    TRY(sl_new(&c->ids, n_rows, sizeof *c->ids, "measuring", err));
    TRY(sl_new(&c->hidden, ENGINE_MAX_BATCH * d, sizeof(float), "measuring", err));
    TRY(sl_new(&c->head_input, ENGINE_MAX_BATCH * d, sizeof(float), "measuring", err));
    TRY(sl_new(&c->logits, ENGINE_MAX_BATCH * most, sizeof(float), "measuring", err));
    TRY(sl_new(&c->best, n_best, sizeof(float), "measuring", err));
    TRY(sl_new(&c->best_ids, n_best, sizeof *c->best_ids, "measuring", err));
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
    TRY(engine_cache_create(own_target(c->models->engine), 2 * N_PROMPT + ENGINE_MAX_BATCH,
                            &c->cache, err));
    TRY(engine_drafter_cache(own_drafter(c->models->engine), 2 * N_PROMPT + ENGINE_MAX_BATCH,
                             &c->draft_cache, err));
    TRY(engine_forward(c->cache, c->tokens, N_PROMPT, NULL, NULL, NULL));
    keep_all(c->cache);
    TRY(engine_draft(own_drafter(c->models->engine), c->draft_cache, c->tokens, c->hidden,
                     (int32_t)c->head.n_cols, N_PROMPT, NULL, c->hidden, c->head_input));
    keep_all(c->draft_cache);
    return SPECRT_STATUS_OK;
}

specrt_status plan_cpu_create(const eval_models *m, plan_machine *out, specrt_error *err) {
    cpu *c = (cpu *)calloc(1, sizeof *c);
    if (!c) return sl_error_no_memory_for(err, "measuring");
    c->models = m;
    c->head = m->info->head;
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
    free(c->ids), free(c->hidden), free(c->head_input);
    free(c->logits), free(c->best), free(c->best_ids);
    free(c);
    *m = (plan_machine){0};
}
