/* controller_guard.c : which weights draft. After a sequence the drafter as it was, the last good weights
 * and those that learning had come to before it are run over its text, which tells how many cycles a chain of
 * each takes for the same tokens. Weights draft only once they were found better than those before, on text
 * they had not learnt from, and only as long as they take clearly fewer cycles than the drafter as it was. */
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/measure.h"
#include "base/memory.h"
#include "engine/train/controller_impl.h"
#include "model/token_pick.h"

#define GUARD_MEMORY 0.9 /* of the moving sums, from look to look */
#define GUARD_GAIN   0.98 /* of the frozen drafter's cycles: the best of many trials is partly luck */
enum { GUARD_PATIENCE = 8 /* looks that learning may be behind what drafts */ };

/* ---- one set of weights -------------------------------------------------------------------------- */

/* Cycles of a chain that proposes token i rightly where right[i]; each ends with a token of the target's. */
static double count_cycles(const bool *right, int32_t n, int32_t n_levels) {
    int32_t n_cycles = 0;
    for (int32_t at = 0; at < n; at++, n_cycles++)
        for (int32_t level = 0; level < n_levels && at < n && right[at]; level++) at++;
    return n_cycles;
}

/* Which tokens of the answer these hidden states propose before all rivals. */
static void mark_right(engine_controller *c, const float *hidden, int32_t n, bool *right) {
    const kept_answer *w = &c->answer;
    engine_matrix rivals = c->align->m->head;
    rivals.segment.places = w->rows;
    rivals.segment.n_rows = w->n_rivals;
    for (int32_t at = 0; at < n; at += CONTROLLER_CHUNK) {
        int32_t k = n - at < CONTROLLER_CHUNK ? n - at : CONTROLLER_CHUNK;
        align_product(c->align, &rivals, hidden + (int64_t)at * c->d_model, k, w->logits);
        for (int32_t i = 0; i < k; i++) {
            int32_t best = 0;
            specrt_logits_topk(w->logits + (int64_t)i * w->n_rivals, w->n_rivals, 1, &best);
            right[at + i] = w->rivals[best] == w->tokens[at + i];
        }
    }
}

/* Cycles that these weights take for the n tokens of the answer; -1: no memory. */
static double cycles_of(engine_controller *c, float *values, int32_t n) {
    bool right[GUARD_ANSWER];
    const float *hidden;
    engine_align_state state = {values, NULL, NULL, 0};
    engine_align_rows rows = {.n = c->answer.first_row + n,
                              .n_queries = n,
                              .inputs = c->current.inputs,
                              .positions = c->current.positions,
                              .queries = c->queries,
                              .all = c->all};
    for (int32_t i = 0; i < n; i++)
        c->queries[i] =
            (engine_align_query){c->answer.first_row + i, 0, c->answer.first_row + i + 1, 0, 0};
    engine_align_exchange(c->align, &state);
    specrt_status status = engine_align_forward(c->align, &rows, &hidden);
    engine_align_exchange(c->align, &state);
    if (status != SPECRT_STATUS_OK) return -1;
    mark_right(c, hidden, n, right);
    return count_cycles(right, n, c->answer.n_levels);
}

/* ---- what is looked at --------------------------------------------------------------------------- */

specrt_status guard_create(engine_controller *c, specrt_error *err) {
    const engine_drafter *d = c->align->d;
    kept_answer *w = &c->answer;
    size_t n = (size_t)c->n_logits;
    TRY(sl_new(&w->rivals, GUARD_RIVALS, sizeof *w->rivals, ALIGNMENT, err));
    TRY(sl_new(&w->rows, GUARD_RIVALS, sizeof *w->rows, ALIGNMENT, err));
    TRY(sl_new(&w->is_rival, n, 1, ALIGNMENT, err));
    TRY(sl_new(&w->logits, CONTROLLER_CHUNK, GUARD_RIVALS * sizeof *w->logits, ALIGNMENT, err));
    int32_t n_rows = c->align->m->head.segment.n_rows;
    if (!d->d2t && n_rows >= c->n_logits) return SPECRT_STATUS_OK;
    return sl_token_rows(d->d2t, n_rows, c->n_logits, ALIGNMENT, &w->row_of, err);
}

void guard_free(engine_controller *c) {
    kept_answer *w = &c->answer;
    free(w->rivals);
    free(w->rows);
    free(w->row_of);
    free(w->is_rival);
    free(w->logits);
}

static void forget_answer(kept_answer *w) {
    for (int32_t i = 0; i < w->n_rivals; i++) w->is_rival[w->rivals[i]] = 0;
    w->n = w->n_rivals = 0;
}

static void add_rival(kept_answer *w, int32_t token) {
    int32_t row = w->row_of ? w->row_of[token] : token;
    if (row < 0 || w->is_rival[token] || w->n_rivals == GUARD_RIVALS) return;
    w->is_rival[token] = 1;
    w->rivals[w->n_rivals] = token;
    w->rows[w->n_rivals++] = row;
}

/* Rivals are the target's best tokens anywhere in the answer, and all that was drafted: a scan of the whole
 * head for each row would cost more than decoding did. */
void guard_keep(engine_controller *c, const specrt_draft *draft, const specrt_verdict *verdict,
                const float *logits) {
    kept_answer *w = &c->answer;
    int32_t best[SPECRT_LOGITS_MAX_K];
    if (w->n == 0) w->first_row = c->current.n - 1;
    if (c->passes.n > w->n_levels) w->n_levels = c->passes.n;
    for (int32_t i = 1; i < draft->n; i++) add_rival(w, draft->tokens[i]);
    for (int32_t i = 0; i < verdict->n && w->n < GUARD_ANSWER; i++) {
        const float *row = logits + (int64_t)verdict->nodes[i] * c->n_logits;
        int32_t n = specrt_logits_topk(row, c->n_logits, SPECRT_LOGITS_MAX_K, best);
        for (int32_t k = 0; k < n; k++) add_rival(w, best[k]);
        add_rival(w, verdict->tokens[i]);
        w->tokens[w->n++] = verdict->tokens[i];
    }
}

/* ---- the choice ---------------------------------------------------------------------------------- */

static void copy_set(engine_controller *c, guard_set to, guard_set from) {
    kept_guard *g = &c->guard;
    int64_t n;
    engine_align_masters(c->align, &n);
    memcpy(g->values[to], g->values[from], (size_t)n * sizeof(float));
    g->version[to] = g->version[from];
    g->cycles[to] = g->cycles[from];
}

/* Learning that stays behind what drafts begins again from there. */
static void restart_learning(engine_controller *c) {
    kept_guard *g = &c->guard;
    if (g->drafts == GUARD_START) copy_set(c, GUARD_GOOD, GUARD_START);
    engine_align_restart(c->align, g->values[g->drafts]);
    c->version = g->version[g->drafts];
    g->cycles[GUARD_TRIAL] = g->cycles[g->drafts];
    g->n_behind = 0;
    c->stats.n_restarts++;
}

static void choose(engine_controller *c) {
    kept_guard *g = &c->guard;
    guard_set before = g->drafts;
    int64_t drafted = g->version[before];
    if (g->cycles[GUARD_TRIAL] < g->cycles[GUARD_GOOD]) copy_set(c, GUARD_GOOD, GUARD_TRIAL);
    g->drafts =
        g->cycles[GUARD_GOOD] <= GUARD_GAIN * g->cycles[GUARD_START] ? GUARD_GOOD : GUARD_START;
    if (g->drafts == GUARD_START && before == GUARD_GOOD && drafted != g->version[GUARD_START])
        c->stats.n_returns++;
    else if (g->version[g->drafts] != drafted)
        c->stats.n_taken++;
    g->n_behind = g->cycles[GUARD_TRIAL] > g->cycles[g->drafts] ? g->n_behind + 1 : 0;
    if (g->n_behind >= GUARD_PATIENCE) restart_learning(c);
    engine_align_draft(c->align, g->values[g->drafts]);
}

/* ---- the controller's ---------------------------------------------------------------------------- */

void guard_begin(engine_controller *c) {
    int64_t n;
    const float *masters = engine_align_masters(c->align, &n);
    if (c->params.guard == 0 || c->n_sequences % c->params.guard != 0) return;
    controller_settle(c, true);
    forget_answer(&c->answer);
    memcpy(c->guard.values[GUARD_TRIAL], masters, (size_t)n * sizeof *masters);
    c->guard.version[GUARD_TRIAL] = c->version;
    c->looked_at = true;
}

void guard_look(engine_controller *c) {
    double began = sl_measure_seconds(), cycles[GUARD_SETS];
    kept_guard *g = &c->guard;
    int32_t n = c->current.n - c->answer.first_row;
    if (n > c->answer.n) n = c->answer.n;
    if (n < 1 || c->answer.n_rivals == 0 || !controller_reserve(c, n) ||
        !controller_list_all(c, c->current.positions, c->answer.first_row + n, NULL))
        return;
    for (int set = 0; set < GUARD_SETS; set++) {
        int same = 0;
        while (same < set && g->version[same] != g->version[set]) same++;
        cycles[set] = same < set ? cycles[same] : cycles_of(c, g->values[set], n);
        if (cycles[set] < 0) return;
    }
    for (int set = 0; set < GUARD_SETS; set++)
        g->cycles[set] = GUARD_MEMORY * g->cycles[set] + cycles[set];
    c->stats.n_looks++;
    choose(c);
    c->stats.look_seconds += sl_measure_seconds() - began;
}

void guard_loaded(engine_controller *c) {
    int64_t n;
    const float *masters = engine_align_masters(c->align, &n);
    memcpy(c->guard.values[GUARD_GOOD], masters, (size_t)n * sizeof *masters);
    c->guard.version[GUARD_GOOD] = c->version;
    c->guard.drafts = GUARD_GOOD;
}
