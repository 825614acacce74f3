/* costs.c : --costs. What head, drafter and target cost in llama.cpp on this machine, by rows, tokens and
 * nodes: the curves that specrt-eval plan measures of its own engine. */
#include "specrt_tools.h"
#include "tool.h"

#include <stdlib.h>
#include <string.h>
#include "base/curve.h"
#include "base/error.h"
#include "base/measure.h"

enum { N_ROUNDS = 9, MOST_SIZES = 32, MOST_PASSES = 256 };
static const int32_t drafted[] = {1, 2, 3, 4, 6, 8, 10};
static const int32_t verified[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 24, 32, 48, 60};

/* Times of one kind of call by its size. */
typedef struct timing {
    int n;
    int32_t sizes[MOST_SIZES];
    double seconds[MOST_SIZES][N_ROUNDS];
} timing;

typedef struct costs {
    const models *m;
    specrt_host host;
    int32_t vocabulary;
    timing head_first, head[SPECRT_COSTS_WIDTHS], draft, target;
    int32_t *ids;                  /* [rows of the head] */
    float *logits, *hidden, *best; /* [10, rows], [10, columns], [10, 10] */
    int32_t tokens[SPECRT_TREE_MAX_NODES], best_ids[100];
    input after; /* the prompt that stands before; ids borrowed */
    int32_t *after_ids;
    reading begun; /* of it */
} costs;

static void add_sizes(timing *t, const int32_t *sizes, int n) {
    for (int i = 0; i < n; i++) t->sizes[t->n++] = sizes[i];
}

/* Powers of two, and all of it. */
static void add_rows(timing *t, int32_t most) {
    for (int64_t rows = 256; rows < most && t->n < MOST_SIZES - 1; rows *= 2)
        t->sizes[t->n++] = (int32_t)rows;
    t->sizes[t->n++] = most;
}

/* The target's pass over a chain of n tokens, of which it keeps the first, and what a cycle makes of its
 * logits: the best token of each row, and those that sources learn from. */
static int run_target(costs *c, int32_t n, double *seconds) {
    int32_t parents[SPECRT_TREE_MAX_NODES], depths[SPECRT_TREE_MAX_NODES];
    uint64_t masks[SPECRT_TREE_MAX_NODES], path = 0;
    static const float none[SPECRT_TREE_MAX_NODES];
    const float *logits;
    for (int32_t i = 0; i < n; i++) {
        parents[i] = i - 1;
        depths[i] = i;
        masks[i] = path |= (uint64_t)1 << i;
    }
    const specrt_draft draft = {n, c->tokens, parents, depths, masks, none, NULL, 0};
    const specrt_verdict verdict = {.n = 1};
    double began = sl_measure_seconds();
    int code = c->host.target_verify(c->host.user, &draft, &logits);
    for (int32_t i = 0; code == 0 && i < n; i++, logits += c->m->n_vocab)
        specrt_logits_topk(logits, c->m->n_vocab, SPECRT_LOGITS_MAX_K, c->best_ids);
    if (code == 0) code = c->host.commit(c->host.user, &draft, &verdict);
    *seconds = sl_measure_seconds() - began;
    return code;
}

/* A pass of the drafter over n tokens that follow one. */
static int run_draft(costs *c, int32_t n, double *seconds) {
    static const int32_t root[SPECRT_TREE_MAX_TOPK];
    static const float zero[SPECRT_TREE_MAX_TOPK];
    const float *hidden, *draft_input = NULL;
    const specrt_beam first = {1, c->tokens, root, zero}, next = {n, c->tokens, root, zero};
    if (c->host.draft_step(c->host.user, 0, &first, &hidden, &draft_input)) return 1;
    double began = sl_measure_seconds();
    int code = c->host.draft_step(c->host.user, 1, &next, &hidden, &draft_input);
    *seconds = sl_measure_seconds() - began;
    if (code == 0) memcpy(c->hidden, hidden, (size_t)n * (size_t)c->m->rows.desc.n_cols * 4);
    return code;
}

/* The head's first rows where they lie: as fast as rows that were packed. */
static specrt_status run_head(costs *c, int32_t n_rows, int32_t n, double *seconds) {
    const specrt_head_desc *head = &c->m->rows.desc;
    const specrt_segment rows = {.rows = head->rows,
                                 .row_stride = specrt_row_bytes(head->dtype, head->n_cols),
                                 .ids = c->ids,
                                 .dtype = head->dtype,
                                 .n_rows = n_rows};
    const specrt_shortlist shortlist = {.compute = specrt_head_compute(c->m->head),
                                        .segments = &rows,
                                        .n_segments = 1,
                                        .n_rows = n_rows,
                                        .n_cols = head->n_cols,
                                        .head = c->m->head};
    double began = sl_measure_seconds();
    TRY(specrt_shortlist_logits(&shortlist, c->hidden, n, c->logits));
    specrt_status status = specrt_shortlist_topk(&shortlist, c->logits, n, n, c->best_ids, c->best);
    *seconds = sl_measure_seconds() - began;
    return status;
}

/* As cycles do: the first product after the target's pass, the next ones after the drafter's. */
static specrt_status time_head(costs *c, int round, int i) {
    double unused;
    int32_t rows = c->head_first.sizes[i];
    if (run_target(c, 1, &unused) || run_draft(c, 1, &unused)) return SPECRT_STATUS_HOST;
    TRY(run_head(c, rows, 1, &c->head_first.seconds[i][round]));
    for (int w = 0; w < SPECRT_COSTS_WIDTHS; w++) {
        if (run_draft(c, specrt_costs_width(w), &unused)) return SPECRT_STATUS_HOST;
        TRY(run_head(c, rows, specrt_costs_width(w), &c->head[w].seconds[i][round]));
    }
    double kept;
    return run_target(c, 1, &kept) ? SPECRT_STATUS_HOST : SPECRT_STATUS_OK;
}

/* Every size in turn, so that what disturbs the machine for a while hits all alike. */
static specrt_status time_round(costs *c, int round, specrt_error *err) {
    double unused;
    TRY(reading_resume(&c->begun, c->m, err));
    for (int i = 0; i < c->draft.n; i++)
        if (run_draft(c, c->draft.sizes[i], &c->draft.seconds[i][round]) ||
            run_target(c, 1, &unused))
            return SPECRT_STATUS_HOST;
    for (int i = 0; i < c->target.n; i++)
        if (run_target(c, c->target.sizes[i], &c->target.seconds[i][round]))
            return SPECRT_STATUS_HOST;
    for (int i = 0; i < c->head_first.n; i++) TRY(time_head(c, round, i));
    return SPECRT_STATUS_OK;
}

/* The mean of the middle half: runs to come will share the machine as these rounds did. The first round
 * warms up. */
static void add_timing(timing *t, specrt_curve *out) {
    for (int i = 0; i < t->n; i++)
        specrt_curve_add(out, t->sizes[i], sl_midmean_of(t->seconds[i] + 1, N_ROUNDS - 1));
}

static specrt_status write_costs(costs *c, const options *o, specrt_error *err) {
    specrt_costs found = {.keeps_chains = specrt_llama_keeps_chains(c->m->pair)};
    add_timing(&c->head_first, &found.head_first);
    for (int w = 0; w < SPECRT_COSTS_WIDTHS; w++) add_timing(&c->head[w], &found.head_next[w]);
    add_timing(&c->draft, &found.draft);
    add_timing(&c->target, &found.target);
    specrt_costs_machine(found.machine);
    specrt_llama_pair_key(c->m->pair, found.key);
    return auto_costs_write(&found, o->costs, o->common.force, err);
}

static specrt_status prepare(costs *c, specrt_error *err) {
    const specrt_head_desc *head = &c->m->rows.desc;
    size_t rows = (size_t)head->n_rows, most = SPECRT_TREE_MAX_TOPK;
    c->ids = (int32_t *)malloc(rows * sizeof *c->ids);
    c->logits = (float *)malloc(most * rows * sizeof *c->logits);
    c->hidden = (float *)malloc(most * (size_t)head->n_cols * sizeof *c->hidden);
    c->best = (float *)malloc(most * most * sizeof *c->best);
    if (!c->ids || !c->logits || !c->hidden || !c->best)
        return sl_error_no_memory_for(err, "costs");
    for (int32_t i = 0; i < (int32_t)rows; i++) c->ids[i] = i;
    for (int32_t i = 0; i < SPECRT_TREE_MAX_NODES; i++) /* any tokens */
        c->tokens[i] = (i * 977 + 11) % c->m->n_vocab;
    add_sizes(&c->draft, drafted, sizeof drafted / sizeof *drafted);
    add_sizes(&c->target, verified, sizeof verified / sizeof *verified);
    add_rows(&c->head_first, (int32_t)rows);
    for (int w = 0; w < SPECRT_COSTS_WIDTHS; w++) add_rows(&c->head[w], (int32_t)rows);
    return SPECRT_STATUS_OK;
}

/* As many tokens as prompts and half their answers have on average, of the longest, which begins again where
 * it is too short. ids: [of `after`], owned by the costs */
static specrt_status take_typical(costs *c, const options *o, const inputs *in, specrt_error *err) {
    input longest = in->items[0];
    int64_t n = 0, most = c->host.n_context - MOST_PASSES;
    for (int i = 0; i < in->n; i++) {
        n += in->items[i].n;
        if (in->items[i].n > longest.n) longest = in->items[i];
    }
    n = n / in->n + (o->n_predict > 0 ? o->n_predict / 2 : 0);
    if (n > most) n = most > longest.n ? most : longest.n;
    c->after_ids = (int32_t *)malloc((size_t)n * sizeof *c->after_ids);
    if (!c->after_ids) return sl_error_no_memory_for(err, "costs");
    for (int64_t i = 0; i < n; i++) c->after_ids[i] = longest.ids[i % longest.n];
    c->after = (input){.ids = c->after_ids, .n = (int32_t)n};
    return SPECRT_STATUS_OK;
}

static specrt_status measure(costs *c, const options *o, const inputs *in, specrt_error *err) {
    TRY(prepare(c, err));
    c->after = (input){.ids = c->tokens, .n = SPECRT_TREE_MAX_NODES};
    if (in->n) TRY(take_typical(c, o, in, err));
    TRY(reading_take(&c->after, c->m, &c->begun, err));
    for (int round = 0; round < N_ROUNDS; round++) {
        sl_cli_info("costs: round %d of %d", round + 1, N_ROUNDS);
        specrt_status status = time_round(c, round, err);
        if (status == SPECRT_STATUS_HOST) return models_error(c->m, status, err);
        if (status != SPECRT_STATUS_OK)
            return specrt_error_set(err, status, "a product could not be timed");
    }
    return write_costs(c, o, err);
}

specrt_status costs_measure(const options *o, const models *m, const inputs *in,
                            specrt_error *err) {
    costs *c = (costs *)calloc(1, sizeof *c);
    if (!c) return sl_error_no_memory_for(err, "costs");
    c->m = m;
    c->host = specrt_llama_host(m->pair);
    specrt_status status = measure(c, o, in, err);
    reading_free(&c->begun);
    free(c->after_ids);
    free(c->ids), free(c->logits), free(c->hidden), free(c->best);
    free(c);
    return status;
}
