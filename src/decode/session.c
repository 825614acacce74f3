/* session.c */
#include "decode/session.h"
#include "core/base.h"
#include "core/head.h"
#include "core/shortlist.h"
#include "core/pool.h"
#include "sources/source.h"
#include "decode/tree.h"
#include "decode/stock.h"

/* --- a sequence --- */

/* Of the cycle to come. */
static void specrt__session_choose(specrt_session *s) {
    if (!s->auto_draft) return;
    specrt_auto_choose(s->auto_draft, &s->choice);
    if (s->fixed_at) s->n_fixed = s->auto_draft->rows[s->choice.list];
}

/* Packs what the sources want now and lists the segments. */
SPECRT__INTERNAL void specrt__session_pack(specrt_session *s) {
    int32_t n = 0;
    specrt__session_choose(s);
    specrt__shortlist_sync(s->pool);
    if (s->n_fixed > 0) s->segments[n] = s->policy->fixed, s->segments[n++].n_rows = s->n_fixed;
    if (s->pool->n_rows > 0) specrt__shortlist_segment(s->pool, &s->segments[n++]);
    s->shortlist.n_segments = s->n_kept = n;
    s->shortlist.n_rows = s->n_fixed + s->pool->n_rows;
    s->n_routed_rows = 0;
    s->n_levels = 0;
    if (s->routed) SPECRT__CLEAR(s->routed->levels, s->pool->n_ids);
}

/* Rows of the routed segments that a row of the level scores, mean. */
static int64_t specrt__session_scored(const specrt__shortlist_routed *routed, int32_t n) {
    int64_t n_products = 0;
    for (int32_t i = 0; i < routed->n_segments; i++)
        for (int32_t h = 0; h < n; h++)
            if (specrt__shortlist_scored(&routed->segments[i], h))
                n_products += routed->segments[i].n_rows;
    return n_products / n;
}

/* The shortlist of a level for which sources read so many bytes. */
static const specrt_shortlist *specrt__session_count_read(specrt_session *s, int64_t n_read) {
    const specrt_head *head = s->pool->head;
    size_t row = specrt_row_bytes(specrt__head_packed_dtype(head), head->desc.n_cols);
    s->stats.n_bytes += n_read + s->shortlist.n_rows * (int64_t)row;
    return &s->shortlist;
}

/* What sources route a pass by. */
static specrt__shortlist_level specrt__session_level(int32_t at, const specrt_beam *beam,
                                                     const float *draft_hidden,
                                                     const float *draft_input) {
    specrt__shortlist_level level;
    level.level = at;
    level.n = beam->n;
    level.tokens = beam->tokens;
    level.logprobs = beam->logprobs;
    level.draft_input = draft_input;
    level.draft_hidden = draft_hidden;
    return level;
}

/* The last level's routed segments make way for those of this one. */
static const specrt_shortlist *specrt__session_route_by(specrt_session *s,
                                                        specrt__shortlist_level level) {
    specrt__shortlist_routed *routed = s->routed;
    s->stats.n_passes++;
    if (!routed) return specrt__session_count_read(s, 0);
    routed->level = level.level;
    routed->n_segments = routed->n_rows = routed->n_masked = 0;
    routed->n_read = 0;
    for (int i = 0; i < s->policy->n_sources; i++)
        if (s->policy->sources[i].source->route)
            s->policy->sources[i].source->route(s->states[i], &level, routed);
    memcpy(s->segments + s->n_kept, routed->segments,
           (size_t)routed->n_segments * sizeof *s->segments);
    s->shortlist.n_segments = s->n_kept + routed->n_segments;
    s->shortlist.n_rows = s->n_fixed + s->pool->n_rows + routed->n_rows;
    s->n_routed_rows += specrt__session_scored(routed, level.n);
    s->n_levels++;
    return specrt__session_count_read(s, routed->n_read);
}

SPECRT_API const specrt_shortlist *specrt_session_route(specrt_session *s, int32_t at,
                                                        const specrt_beam *beam,
                                                        const float *draft_hidden,
                                                        const float *draft_input) {
    if (at < 0 || at >= SPECRT_TREE_MAX_STEPS || beam->n < 1 || beam->n > s->topk) return NULL;
    return specrt__session_route_by(s, specrt__session_level(at, beam, draft_hidden, draft_input));
}

/* The draws to come are another generation's, unless there were none yet; an open cycle is forgotten. */
static void specrt__session_count(specrt_session *s) {
    if (s->position > 0 && !s->sequence_named) s->sequence++;
    s->open.n = 0;
    s->sequence_named = false;
    specrt_verifier_set_sequence(s->verifier, s->sequence);
    specrt_tree_begin(s->tree, s->tree->root); /* a draft that was left is forgotten */
}

static void specrt__session_forget(specrt_session *s) {
    specrt__shortlist_pool_reset(s->pool);
    for (int i = s->policy->n_sources; i-- > 0;)
        if (s->policy->sources[i].source->begin) s->policy->sources[i].source->begin(s->states[i]);
    for (int32_t i = 0; i < s->policy->n_terminators; i++)
        specrt__shortlist_want(s->pool, s->policy->terminators[i], SPECRT__SHORTLIST_PINNED);
    s->n_copied_before = s->pool->n_copied;
    s->cycle = 0;
    SPECRT__CLEAR(&s->stats, 1);
    specrt__session_pack(s);
}

SPECRT_API specrt_status specrt_session_begin(specrt_session *s, specrt_begin kind,
                                              int64_t position) {
    if (position < 0 || (kind != SPECRT_BEGIN_NEW && kind != SPECRT_BEGIN_TURN))
        return SPECRT_STATUS_BAD_ARG;
    specrt__session_count(s);
    s->position = position;
    if (kind == SPECRT_BEGIN_NEW) specrt__session_forget(s);
    return SPECRT_STATUS_OK;
}

SPECRT_API void specrt_session_set_sequence(specrt_session *session, uint64_t sequence) {
    session->sequence = sequence;
    session->sequence_named = true;
}

static bool specrt__session_tokens_ok(const specrt_session *s, const int32_t *tokens, int32_t n) {
    for (int32_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= s->verifier->n_vocab) return false;
    return true;
}

SPECRT_API specrt_status specrt_session_prefill(specrt_session *s, const int32_t *tokens, int32_t n,
                                                const specrt_target_rows *rows) {
    if (n < 0 || !specrt__session_tokens_ok(s, tokens, n)) return SPECRT_STATUS_BAD_ARG;
    for (int i = s->policy->n_sources; i-- > 0;)
        if (s->policy->sources[i].source->prefill)
            s->policy->sources[i].source->prefill(s->states[i], tokens, n, rows);
    s->position += n;
    return SPECRT_STATUS_OK;
}

SPECRT_API int32_t specrt_session_draw(specrt_session *s, const float *logits) {
    return specrt_verifier_draw(s->verifier, logits, s->position);
}

/* The cycle that waited for its last token. */
static specrt_status specrt__session_end_open(specrt_session *s, int32_t last) {
    specrt__session_open *open = &s->open;
    specrt_target_rows rows;
    int32_t n = open->n;
    SPECRT__CLEAR(&rows, 1);
    rows.ids = open->ids;
    rows.k = SPECRT_LOGITS_MAX_K;
    open->n = 0;
    return specrt_session_observe_chain(s, open->tokens, n, open->n_accepted, last,
                                        open->told ? &rows : NULL);
}

SPECRT_API specrt_status specrt_session_start(specrt_session *s, int32_t token) {
    if (!specrt__session_tokens_ok(s, &token, 1)) return SPECRT_STATUS_BAD_ARG;
    if (s->open.n > 0) return specrt__session_end_open(s, token);
    if (s->auto_draft) specrt_auto_begin(s->auto_draft);
    for (int i = s->policy->n_sources; i-- > 0;)
        if (s->policy->sources[i].source->start)
            s->policy->sources[i].source->start(s->states[i], token);
    specrt__session_pack(s);
    s->position++;
    s->cycle++;
    specrt_tree_begin(s->tree, token);
    return SPECRT_STATUS_OK;
}

/* --- a cycle --- */

SPECRT_API const specrt_shortlist *specrt_session_shortlist(const specrt_session *session) {
    return &session->shortlist;
}

/* One token, sampled from the distribution that verification will be shown. */
static specrt_status specrt__session_sample(specrt_session *s, specrt_beam *beam) {
    int32_t level = s->tree->level, n = 0;
    size_t at = (size_t)level * (size_t)s->policy->info.bound;
    int32_t *ids = s->distribution_ids + at;
    float *probs = s->distribution_probs + at, logprob = -INFINITY;
    for (int32_t i = 0; i < s->shortlist.n_segments; n += s->segments[i++].n_rows)
        memcpy(ids + n, s->segments[i].ids, (size_t)s->segments[i].n_rows * sizeof *ids);
    int32_t i = specrt_verifier_propose(s->verifier, s->logits, n, s->draft_temperature, s->cycle,
                                        level, probs);
    if (i >= 0) logprob = logf(probs[i]);
    s->distributions[level].n = n;
    s->distributions[level].ids = ids;
    s->distributions[level].probs = probs;
    return specrt_tree_expand(s->tree, &ids[i < 0 ? 0 : i], &logprob, 1, 1, beam);
}

/* The tree's next level, from the logits of a pass of n rows. */
static specrt_status specrt__session_grow(specrt_session *s, int32_t n, specrt_beam *beam) {
    int32_t k = s->topk < s->shortlist.n_rows ? s->topk : s->shortlist.n_rows;
    if (k == 0) return specrt_tree_expand(s->tree, s->ids, s->logprobs, n, 0, beam);
    if (!s->distributions)
        SPECRT__TRY(specrt_shortlist_topk(&s->shortlist, s->logits, n, k, s->ids, s->logprobs));
    SPECRT__TRY(s->distributions ? specrt__session_sample(s, beam)
                                 : specrt_tree_expand(s->tree, s->ids, s->logprobs, n, k, beam));
    if (s->auto_draft && beam->n > 0 &&
        !specrt_auto_should_continue(s->auto_draft, s->tree->level,
                                     s->topk == 1 ? beam->logprobs[0] : NAN))
        beam->n = 0;
    return SPECRT_STATUS_OK;
}

/* The rows of the pass to come. */
static specrt_beam specrt__session_beam(const specrt_session *s) {
    static const float no_path = 0;
    static const int32_t no_parent = 0;
    const specrt_tree *t = s->tree;
    specrt_beam beam;
    beam.n = t->n_beam;
    beam.tokens = t->level ? t->beam_tokens : &t->root;
    beam.parents = t->level ? t->beam_parents : &no_parent;
    beam.logprobs = t->level ? t->beam_logprobs : &no_path;
    return beam;
}

SPECRT_API void specrt_session_get_beam(const specrt_session *session, specrt_beam *beam) {
    *beam = specrt__session_beam(session);
    if (session->tree->level == session->tree->params.num_steps ||
        (session->auto_draft && session->choice.num_steps == 0))
        beam->n = 0;
}

/* The rows of the pass to come, for the tree at hand. */
static void specrt__session_route_pass(specrt_session *s, const float *draft_hidden,
                                       const float *draft_input) {
    specrt_beam own = specrt__session_beam(s);
    specrt__shortlist_level level =
        specrt__session_level(s->tree->level, &own, draft_hidden, draft_input);
    specrt__session_route_by(s, level);
}

SPECRT_API specrt_status specrt_session_expand(specrt_session *s, const float *draft_hidden,
                                               const float *draft_input, int32_t n,
                                               specrt_beam *beam) {
    SPECRT__CLEAR(beam, 1);
    if (n < 1 || n != s->tree->n_beam || s->tree->level == s->tree->params.num_steps)
        return SPECRT_STATUS_BAD_ARG;
    specrt__session_route_pass(s, draft_hidden, draft_input);
    SPECRT__TRY(specrt_shortlist_logits(&s->shortlist, draft_hidden, n, s->logits));
    return specrt__session_grow(s, n, beam);
}

/* Whether these sessions can take a pass of so many rows together. */
static bool specrt__session_batch_ok(specrt_session *const *sessions, int32_t n, int32_t n_hidden) {
    int64_t n_rows = 0;
    int32_t n_seen = 0;
    bool ok = n >= 1 && n <= SPECRT_SESSION_MAX_BATCH;
    while (ok && n_seen < n) {
        specrt_session *s = sessions[n_seen];
        ok = !s->in_batch && s->policy == sessions[0]->policy && s->tree->n_beam >= 1 &&
             s->tree->level != s->tree->params.num_steps;
        s->in_batch = true;
        n_rows += s->tree->n_beam;
        n_seen++;
    }
    for (int32_t i = 0; i < n_seen; i++) sessions[i]->in_batch = false;
    return ok && n_rows == n_hidden;
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
    if (!sessions || !draft_hidden || !beams || !specrt__session_batch_ok(sessions, n, n_hidden))
        return SPECRT_STATUS_BAD_ARG;
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

SPECRT_API void specrt_session_finish(specrt_session *session, specrt_draft *draft) {
    specrt_tree_finish(session->tree, draft);
}

SPECRT_API specrt_status specrt_session_verify(specrt_session *s, const specrt_draft *draft,
                                               const float *logits, specrt_verdict *out) {
    if (!s->distributions) return specrt_verify_tree(s->verifier, draft, logits, s->position, out);
    SPECRT__CLEAR(out, 1);
    if (draft->n < 1 || draft->n > s->tree->level + 1) return SPECRT_STATUS_BAD_ARG;
    for (int32_t i = 1; i < draft->n; i++)
        if (draft->parents[i] != i - 1) return SPECRT_STATUS_BAD_ARG;
    return specrt_verify_chain(s->verifier, draft->tokens + 1, s->distributions, draft->n - 1,
                               logits, s->cycle, out);
}

static bool specrt__session_cycle_ok(const specrt_session *s, const specrt_draft *draft,
                                     const specrt_verdict *verdict) {
    if (draft->n < 1 || draft->n > SPECRT_TREE_MAX_NODES || verdict->n < 1 ||
        verdict->n > SPECRT_TREE_MAX_NODES)
        return false;
    for (int32_t i = 0; i < verdict->n; i++)
        if (verdict->nodes[i] < 0 || verdict->nodes[i] >= draft->n) return false;
    return specrt__session_tokens_ok(s, draft->tokens, draft->n) &&
           specrt__session_tokens_ok(s, verdict->tokens, verdict->n);
}

/* Whether the level that would have drafted a token could; beyond the last that drafted, that one. */
SPECRT_API specrt_member specrt_session_member(const specrt_session *s, int32_t token,
                                               int32_t level) {
    if (token < 0 || token >= s->pool->n_ids || level < 0) return SPECRT_MEMBER_NO;
    if (s->fixed_at && s->fixed_at[token] >= s->n_fixed) return SPECRT_MEMBER_NO;
    if (s->pool->wants[token] & SPECRT__SHORTLIST_FIXED) return SPECRT_MEMBER_FIXED;
    if (specrt__shortlist_member(s->pool, token)) return SPECRT_MEMBER_NOW;
    if (s->n_levels == 0) return SPECRT_MEMBER_NO;
    if (level >= s->n_levels) level = (int32_t)s->n_levels - 1;
    return s->routed->levels[token] >> level & 1 ? SPECRT_MEMBER_NOW : SPECRT_MEMBER_NO;
}

/* The first of the lists that holds a token. */
static int32_t specrt__session_list_of(const specrt_session *s, int32_t token) {
    int32_t list = 0, at = token < s->pool->n_ids ? s->fixed_at[token] : -1;
    if (at < 0) return specrt_session_member(s, token, 0) ? 0 : s->auto_draft->n_lists;
    while (list < s->auto_draft->n_lists && at >= s->auto_draft->rows[list]) list++;
    return list;
}

/* What the target's 16 best leave out is little wherever its probability is large enough to matter. */
SPECRT__INTERNAL float specrt__session_certainty(const float *logits, int32_t n, int32_t token) {
    int32_t best[SPECRT_LOGITS_MAX_K] = {0};
    int32_t k = specrt_logits_topk(logits, n, SPECRT_LOGITS_MAX_K, best);
    float sum = 0;
    for (int32_t i = 0; i < k; i++) sum += expf(logits[best[i]] - logits[best[0]]);
    return logits[token] - logits[best[0]] - logf(sum);
}

/* Probabilities are told of a chain that is the session's own. */
static void specrt__session_spend(specrt_session *s, const specrt_draft *draft,
                                  const specrt_verdict *verdict, const float *logits) {
    specrt_auto_cycle cycle;
    int32_t lists[SPECRT_TREE_MAX_NODES], n_vocab = s->verifier->n_vocab;
    float certain[SPECRT_TREE_MAX_NODES];
    SPECRT__CLEAR(&cycle, 1);
    if (!s->auto_draft) return;
    if (s->topk > 1) cycle.n_passes = s->tree->level; /* its last ones may be in no node */
    for (int32_t i = 0; i < draft->n; i++)
        if (draft->depths[i] > cycle.n_passes) cycle.n_passes = draft->depths[i];
    if (cycle.n_passes > s->auto_draft->num_steps) cycle.n_passes = s->auto_draft->num_steps;
    cycle.n_accepted = verdict->n - 1 < cycle.n_passes ? verdict->n - 1 : cycle.n_passes;
    if (s->topk == 1 && draft->logprobs == s->tree->logprobs) cycle.logprobs = draft->logprobs + 1;
    for (int32_t i = 0; s->fixed_at && i <= cycle.n_accepted; i++)
        lists[i] = specrt__session_list_of(s, verdict->tokens[i]);
    if (s->fixed_at) cycle.lists = lists;
    for (int32_t i = 0; logits && i <= cycle.n_accepted; i++)
        certain[i] = specrt__session_certainty(logits + (int64_t)verdict->nodes[i] * n_vocab,
                                               n_vocab, verdict->tokens[i]);
    if (logits) cycle.target_logprobs = certain;
    (void)specrt_auto_observe(s->auto_draft, &cycle);
}

static void specrt__session_learn(specrt_session *s, const specrt_draft *draft,
                                  const specrt_verdict *verdict, const specrt_target_rows *rows) {
    const specrt__source_cycle cycle = {draft, verdict, rows, &s->stats};
    for (int i = s->policy->n_sources; i-- > 0;)
        if (s->policy->sources[i].source->observe)
            s->policy->sources[i].source->observe(s->states[i], &cycle);
}

SPECRT_API specrt_status specrt_session_observe(specrt_session *s, const specrt_draft *draft,
                                                const specrt_verdict *verdict,
                                                const specrt_target_rows *rows) {
    if (s->open.n > 0 || !specrt__session_cycle_ok(s, draft, verdict)) return SPECRT_STATUS_BAD_ARG;
    int32_t width = s->policy->info.hidden_width;
    if (width > 0 && rows && rows->hidden && rows->d_hidden != width) return SPECRT_STATUS_BAD_ARG;
    s->stats.n_cycles++;
    s->stats.n_emitted += verdict->n;
    s->stats.n_drafted += draft->n - 1;
    s->stats.n_rows += s->n_fixed + s->pool->n_rows;
    if (s->n_levels) s->stats.n_rows += s->n_routed_rows / s->n_levels;
    s->stats.n_by_length[verdict->n]++;
    for (int32_t i = 0; i < verdict->n; i++)
        s->stats.n_covered += specrt_session_member(s, verdict->tokens[i], i) != SPECRT_MEMBER_NO;
    int32_t root = verdict->tokens[verdict->n - 1]; /* the tree may hold the draft: read it first */
    specrt__session_spend(s, draft, verdict, rows ? rows->logits : NULL);
    specrt__session_learn(s, draft, verdict, rows);
    specrt__session_pack(s);
    s->position += verdict->n;
    s->cycle++;
    specrt_tree_begin(s->tree, root);
    return SPECRT_STATUS_OK;
}

/* Keeps a chain until its last token is known. */
static specrt_status specrt__session_leave_open(specrt_session *s, const int32_t *tokens, int32_t n,
                                                int32_t n_accepted,
                                                const specrt_target_rows *rows) {
    specrt__session_open *open = &s->open;
    if (open->n > 0 || !specrt__session_tokens_ok(s, tokens, n)) return SPECRT_STATUS_BAD_ARG;
    open->n = n;
    open->n_accepted = n_accepted;
    open->told = rows && (rows->logits || (rows->ids && rows->k > 0));
    memcpy(open->tokens, tokens, (size_t)n * sizeof *tokens);
    memset(open->ids, 0xff, sizeof open->ids); /* -1: none */
    for (int32_t i = 0; i < n; i++)
        specrt__shortlist_target_best(rows, i, s->verifier->n_vocab, SPECRT_LOGITS_MAX_K,
                                      open->ids + i * SPECRT_LOGITS_MAX_K);
    return SPECRT_STATUS_OK;
}

SPECRT_API specrt_status specrt_session_observe_chain(specrt_session *s, const int32_t *tokens,
                                                      int32_t n, int32_t n_accepted, int32_t last,
                                                      const specrt_target_rows *rows) {
    static const float none[SPECRT_TREE_MAX_NODES] = {0};
    specrt_draft draft;
    specrt_verdict verdict;
    if (n > SPECRT_TREE_MAX_NODES || n_accepted < 0 || n_accepted >= n)
        return SPECRT_STATUS_BAD_ARG;
    if (last == -1) return specrt__session_leave_open(s, tokens, n, n_accepted, rows);
    SPECRT__CLEAR(&draft, 1);
    SPECRT__CLEAR(&verdict, 1);
    for (int32_t i = 0; i < n; i++) verdict.nodes[i] = i; /* in a chain they are depths, too */
    draft.n = n;
    draft.tokens = tokens;
    draft.depths = verdict.nodes;
    draft.logprobs = none;
    verdict.n = n_accepted + 1;
    for (int32_t i = 0; i < verdict.n; i++)
        verdict.tokens[i] = i < n_accepted ? tokens[i + 1] : last;
    return specrt_session_observe(s, &draft, &verdict, rows);
}

SPECRT_API void specrt_session_get_stats(const specrt_session *session, specrt_session_stats *out) {
    *out = session->stats;
    out->n_copied = session->pool->n_copied - session->n_copied_before;
}
