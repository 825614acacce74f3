/* session_batch.c : owns one pass of several sequences, whose common rows are read once. Refuses a batch
 * before any of its trees has changed. */
#include "decode/session.h"
#include "core/base.h"
#include "core/shortlist.h"
#include "core/pool.h"
#include "decode/stock.h"

/* What sequences multiply together: as many as one product takes the states of. */
typedef struct specrt__session_group {
    specrt_session *const *sessions;
    int32_t n, n_states;
    const float *hidden; /* f32 [n_states, n_cols] */
} specrt__session_group;

/* Whether these sessions can take a pass of so many rows together; if not, the first says why. */
static specrt_status specrt__session_check_batch(specrt_session *const *sessions, int32_t n,
                                                 int32_t n_hidden) {
    specrt_session *first = sessions[0];
    specrt_status status = SPECRT_STATUS_OK;
    int64_t n_rows = 0;
    int32_t n_seen = 0;
    for (; n_seen < n && status == SPECRT_STATUS_OK; n_seen++) {
        specrt_session *s = sessions[n_seen];
        bool fits = s && !s->in_batch && s->policy == first->policy;
        if (!fits)
            status = specrt_error_set(&first->error, SPECRT_STATUS_BAD_ARG,
                                      "expand_batch: session %d: expected another session of the "
                                      "same policy, found NULL, one twice, or another policy",
                                      (int)n_seen);
        else if ((status = specrt__session_check_expand(s, s->tree->n_beam)) != SPECRT_STATUS_OK)
            first->error = s->error;
        if (!fits) break;
        s->in_batch = true;
        n_rows += s->tree->n_beam;
    }
    for (int32_t i = 0; i < n_seen; i++) sessions[i]->in_batch = false;
    if (status != SPECRT_STATUS_OK || n_rows == n_hidden) return status;
    return specrt_error_set(&first->error, SPECRT_STATUS_BAD_ARG,
                            "expand_batch: n_hidden: expected the %lld rows of the beams, found %d",
                            (long long)n_rows, (int)n_hidden);
}

/* The first of n sequences, by their states. A pass has SPECRT_TREE_MAX_TOPK at most. */
static specrt__session_group specrt__session_group_of(specrt_session *const *sessions, int32_t n,
                                                      const float *draft_hidden) {
    specrt__session_group g = {sessions, 0, 0, draft_hidden};
    while (g.n < n && g.n_states + sessions[g.n]->tree->n_beam <= SPECRT__SHORTLIST_SHARED)
        g.n_states += sessions[g.n++]->tree->n_beam;
    return g;
}

/* The logits of the rows that all have. */
static void specrt__session_share(const specrt__session_group *g) {
    float *logits[SPECRT__SHORTLIST_SHARED];
    specrt__shortlist_shared product = {&g->sessions[0]->shortlist, g->hidden, 0, logits};
    for (int32_t i = 0; i < g->n; i++) {
        specrt_session *s = g->sessions[i];
        for (int32_t row = 0; row < s->tree->n_beam; row++)
            logits[product.n++] = s->logits + (size_t)row * (size_t)s->shortlist.n_rows;
    }
    specrt__shortlist_share(&product);
}

/* The logits of the rows that all hold of one stock. @return false: shared products do not pay, or there is
 * none. */
static bool specrt__session_join(const specrt__session_group *g) {
    specrt__stock_member members[SPECRT__SHORTLIST_SHARED];
    specrt_stock *stock = g->sessions[0]->pool->stock;
    const float *draft_hidden = g->hidden;
    int64_t n_blocks = 0;
    int32_t first = 0;
    if (!stock || g->n < 2) return false;
    for (int32_t i = 0; i < g->n; i++) {
        specrt_session *s = g->sessions[i];
        specrt__stock_member *m = &members[i];
        if (s->pool->stock != stock || s->pool->n_rows == 0) return false;
        m->shortlist = &s->shortlist;
        m->segment = &s->segments[s->n_kept - 1];
        m->hidden = draft_hidden;
        m->logits = s->logits + s->n_fixed;
        m->n = s->tree->n_beam;
        m->first = first;
        m->block = n_blocks;
        n_blocks += specrt__shortlist_blocks(m->segment->n_rows);
        draft_hidden += m->n * s->shortlist.n_cols;
        first += m->n;
    }
    return specrt__stock_multiply(stock, members, g->n, g->hidden, g->n_states);
}

/* Scores a pass of each of the group and grows the trees.
 *   alike : the fixed rows, if any, are the same of all */
static specrt_status specrt__session_expand_group(const specrt__session_group *g, bool alike,
                                                  specrt_beam *beams) {
    const float *draft_hidden = g->hidden;
    int32_t n_done = 0;
    if (alike && g->sessions[0]->n_fixed > 0) specrt__session_share(g), n_done++;
    if (alike && specrt__session_join(g)) n_done++;
    for (int32_t i = 0; i < g->n; i++) {
        specrt_session *s = g->sessions[i];
        int32_t n_rows = s->tree->n_beam;
        specrt__shortlist_complete(&s->shortlist, n_done, draft_hidden, n_rows, s->logits);
        SPECRT__CLEAR(&beams[i], 1);
        SPECRT__TRY(specrt__session_grow(s, n_rows, &beams[i]));
        draft_hidden += n_rows * s->shortlist.n_cols;
    }
    return SPECRT_STATUS_OK;
}

SPECRT_API specrt_status specrt_session_expand_batch(specrt_session *const *sessions, int32_t n,
                                                     const float *draft_hidden,
                                                     const float *draft_input, int32_t n_hidden,
                                                     specrt_beam *beams) {
    const float *at = draft_hidden;
    bool alike = true; /* each may have chosen another list */
    if (n < 1 || n > SPECRT_SESSION_MAX_BATCH || !sessions || !sessions[0])
        return SPECRT_STATUS_BAD_ARG;
    SPECRT__SESSION_NEEDS(sessions[0], beams, "expand_batch");
    SPECRT__SESSION_NEEDS(sessions[0], draft_hidden, "expand_batch");
    SPECRT__TRY(specrt__session_check_batch(sessions, n, n_hidden));
    int64_t n_cols = sessions[0]->shortlist.n_cols;
    for (int32_t i = 0; i < n; i++) {
        alike &= sessions[i]->n_fixed == sessions[0]->n_fixed;
        specrt__session_route_pass(sessions[i], at,
                                   draft_input ? draft_input + (at - draft_hidden) : NULL);
        at += sessions[i]->tree->n_beam * n_cols;
    }
    for (int32_t i = 0; i < n;) {
        specrt__session_group g = specrt__session_group_of(sessions + i, n - i, draft_hidden);
        SPECRT__TRY(specrt__session_expand_group(&g, alike, beams + i));
        draft_hidden += g.n_states * n_cols;
        i += g.n;
    }
    return SPECRT_STATUS_OK;
}
