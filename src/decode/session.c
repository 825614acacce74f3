/* session.c : owns a sequence and its cycles: what is drafted, verified and learned. Refuses tokens, trees
 * and paths that no cycle can have. */
#include "decode/session.h"
#include "core/base.h"
#include "core/head.h"
#include "core/shortlist.h"
#include "core/pool.h"
#include "sources/source.h"
#include "decode/tree.h"

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
    specrt__pool_sync(s->pool);
    if (s->n_fixed > 0) s->segments[n] = s->policy->fixed, s->segments[n++].n_rows = s->n_fixed;
    if (s->pool->n_rows > 0) specrt__pool_segment(s->pool, &s->segments[n++]);
    s->shortlist.n_segments = s->n_kept = n;
    s->shortlist.n_rows = s->n_fixed + s->pool->n_rows;
    s->n_routed_rows = 0;
    s->level = 0;
    memset(s->sampled, 0xff, sizeof s->sampled); /* -1: a level may come to none */
    if (s->routed) SPECRT__CLEAR(s->routed->levels, s->pool->n_ids);
}

/* Rows of the routed segments that a row of the level scores, mean. */
static int64_t specrt__session_scored(const specrt__source_routed *routed, int32_t n) {
    int64_t n_products = 0;
    for (int32_t i = 0; i < routed->n_segments; i++)
        for (int32_t h = 0; h < n; h++)
            if (specrt__shortlist_scored(&routed->segments[i], h))
                n_products += routed->segments[i].n_rows;
    return n_products / n;
}

SPECRT__INTERNAL void specrt__session_count_read(specrt_session *s, int64_t n_read,
                                                 int64_t n_rows) {
    const specrt_head *head = s->pool->head;
    specrt_dtype dtype =
        s->policy->info.is_full ? head->desc.dtype : specrt__head_packed_dtype(head);
    size_t row = specrt_row_bytes(dtype, head->desc.n_cols);
    s->stats.n_bytes += n_read + n_rows * (int64_t)row;
}

SPECRT__INTERNAL specrt__source_level specrt__session_level(int32_t at, const specrt_beam *beam,
                                                            const float *draft_hidden,
                                                            const float *draft_input) {
    specrt__source_level level;
    SPECRT__CLEAR(&level, 1);
    level.level = at;
    level.n = beam->n;
    level.tokens = beam->tokens;
    level.logprobs = beam->logprobs;
    level.draft_input = draft_input;
    level.draft_hidden = draft_hidden;
    return level;
}

SPECRT__INTERNAL void specrt__session_list_routed(specrt_session *s) {
    const specrt__source_routed *routed = s->routed;
    memcpy(s->segments + s->n_kept, routed->segments,
           (size_t)routed->n_segments * sizeof *s->segments);
    s->shortlist.n_segments = s->n_kept + routed->n_segments;
    s->shortlist.n_rows = s->n_fixed + s->pool->n_rows + routed->n_rows;
}

SPECRT__INTERNAL const specrt_shortlist *specrt__session_route_by(specrt_session *s,
                                                                  specrt__source_level level) {
    specrt__source_routed *routed = s->routed;
    s->stats.n_passes++;
    s->level++;
    if (!routed) return specrt__session_count_read(s, 0, s->shortlist.n_rows), &s->shortlist;
    routed->level = level.level;
    routed->n_segments = routed->n_rows = routed->n_masked = 0;
    routed->n_read = 0;
    for (int i = 0; i < s->policy->n_sources; i++)
        if (s->policy->sources[i].source->route)
            s->policy->sources[i].source->route(s->states[i], &level, routed);
    specrt__session_list_routed(s);
    s->n_routed_rows += specrt__session_scored(routed, level.n);
    specrt__session_count_read(s, routed->n_read, s->shortlist.n_rows);
    return &s->shortlist;
}

/* Whether a pass of your own may come now. */
static specrt_status specrt__session_check_pass(specrt_session *s, int32_t at,
                                                const specrt_beam *beam) {
    SPECRT__TRY(specrt__session_order(s, SPECRT__AT_DRAFT, "route"));
    if (at != s->level)
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ORDER,
                                "route: level: expected %d, the next of this cycle, found %d",
                                (int)s->level, (int)at);
    if (at >= SPECRT_TREE_MAX_STEPS || beam->n < 1 || beam->n > s->topk)
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                                "route: expected at most %d levels of 1 to %d rows, found level %d "
                                "of %d rows",
                                SPECRT_TREE_MAX_STEPS, (int)s->topk, (int)at, (int)beam->n);
    return SPECRT_STATUS_OK;
}

SPECRT_API const specrt_shortlist *specrt_session_route(specrt_session *s, int32_t at,
                                                        const specrt_beam *beam,
                                                        const float *draft_hidden,
                                                        const float *draft_input) {
    if (!s || !beam || !draft_hidden || !beam->tokens || !beam->logprobs) {
        (void)specrt__base_refuse_null(s ? &s->error : NULL, "route",
                                       "beam, its tokens or logprobs, or draft_hidden");
        return NULL;
    }
    if (specrt__session_check_pass(s, at, beam) != SPECRT_STATUS_OK) return NULL;
    return specrt__session_route_by(s, specrt__session_level(at, beam, draft_hidden, draft_input));
}

static specrt_status specrt__session_check_tokens(specrt_session *s, const char *call,
                                                  const int32_t *tokens, int32_t n) {
    for (int32_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= s->verifier->n_vocab)
            return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                                    "%s: token %d: expected 0 to %d, found %d", call, (int)i,
                                    (int)s->verifier->n_vocab - 1, (int)tokens[i]);
    return SPECRT_STATUS_OK;
}

SPECRT_API specrt_status specrt_session_prefill(specrt_session *s, const int32_t *tokens, int32_t n,
                                                const specrt_target_rows *rows) {
    SPECRT__SESSION_NEEDS(s, s, "prefill");
    if (n > 0) SPECRT__SESSION_NEEDS(s, tokens, "prefill");
    SPECRT__TRY(specrt__session_order(s, SPECRT__AT_PROMPT | SPECRT__AT_READ, "prefill"));
    if (n < 0)
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                                "prefill: n: expected 0 or more tokens, found %d", (int)n);
    SPECRT__TRY(specrt__session_check_tokens(s, "prefill", tokens, n));
    for (int i = s->policy->n_sources; i-- > 0;)
        if (s->policy->sources[i].source->prefill)
            s->policy->sources[i].source->prefill(s->states[i], tokens, n, rows);
    s->position += n;
    if (n > 0) s->at = SPECRT__AT_READ;
    return SPECRT_STATUS_OK;
}

static specrt_status specrt__session_refuse_logits(specrt_session *s, const char *call) {
    return specrt_error_set(&s->error, SPECRT_STATUS_BAD_INPUT,
                            "%s: logits: expected numbers, one of them above -inf, found NaN or "
                            "-inf alone",
                            call);
}

SPECRT_API specrt_status specrt_session_draw(specrt_session *s, const float *logits,
                                             int32_t *token) {
    SPECRT__SESSION_NEEDS(s, token, "draw");
    *token = 0;
    SPECRT__SESSION_NEEDS(s, logits, "draw");
    SPECRT__TRY(
        specrt__session_order(s, SPECRT__AT_READ | SPECRT__AT_OPEN | SPECRT__AT_DRAFT, "draw"));
    int32_t drawn = specrt_verifier_draw(
        s->verifier, logits, s->position + (s->at & SPECRT__AT_OPEN ? s->open.n_accepted : 0));
    if (drawn < 0) return specrt__session_refuse_logits(s, "draw");
    *token = drawn;
    return SPECRT_STATUS_OK;
}

static specrt_status specrt__session_observe_chain(specrt_session *s, specrt_draft *chain,
                                                   int32_t n_accepted, int32_t last,
                                                   const specrt_target_rows *rows);

/* The cycle that waited for its last token. */
static specrt_status specrt__session_end_open(specrt_session *s, int32_t last) {
    specrt__session_open *open = &s->open;
    specrt_target_rows rows;
    specrt_draft chain;
    SPECRT__CLEAR(&rows, 1);
    SPECRT__CLEAR(&chain, 1);
    rows.ids = open->ids;
    rows.k = SPECRT_LOGITS_MAX_K;
    chain.n = open->n;
    chain.tokens = open->tokens;
    open->n = 0;
    return specrt__session_observe_chain(s, &chain, open->n_accepted, last,
                                         open->told ? &rows : NULL);
}

SPECRT_API specrt_status specrt_session_start(specrt_session *s, int32_t token) {
    SPECRT__SESSION_NEEDS(s, s, "start");
    SPECRT__TRY(specrt__session_order(s, SPECRT__AT_READ | SPECRT__AT_OPEN, "start"));
    SPECRT__TRY(specrt__session_check_tokens(s, "start", &token, 1));
    if (s->open.n > 0) return specrt__session_end_open(s, token);
    if (s->auto_draft) {
        specrt_auto_begin(s->auto_draft);
        specrt_auto_unread(s->auto_draft, s->n_late, s->n_left);
    }
    for (int i = s->policy->n_sources; i-- > 0;)
        if (s->policy->sources[i].source->start)
            s->policy->sources[i].source->start(s->states[i], token);
    specrt__session_pack(s);
    s->position++;
    s->n_left--;
    s->cycle++;
    s->stamp++;
    s->at = SPECRT__AT_DRAFT;
    specrt_tree_begin(s->tree, token);
    return SPECRT_STATUS_OK;
}

SPECRT__INTERNAL void specrt__session_cut(const specrt_session *s, specrt_verdict *v) {
    int64_t left = s->n_left > 0 ? s->n_left : 0;
    if (v->n >= left) v->end = SPECRT_END_LENGTH, v->n = left > 1 ? (int32_t)left : 1;
    for (int32_t i = 0; i < v->n; i++)
        if (specrt_policy_ends(s->policy, v->tokens[i]))
            v->end = SPECRT_END_TERMINATOR, v->n = i + 1;
}

SPECRT_API specrt_status specrt_session_first(specrt_session *s, const float *logits,
                                              specrt_verdict *out) {
    specrt_verdict first;
    SPECRT__SESSION_NEEDS(s, out, "first");
    SPECRT__CLEAR(out, 1);
    SPECRT__CLEAR(&first, 1);
    SPECRT__SESSION_NEEDS(s, logits, "first");
    SPECRT__TRY(specrt__session_order(s, SPECRT__AT_READ, "first"));
    SPECRT__TRY(specrt_session_draw(s, logits, &first.tokens[0]));
    first.n = 1;
    first.cycle = s->stamp;
    specrt__session_cut(s, &first);
    SPECRT__TRY(specrt_session_start(s, first.tokens[0]));
    if (first.end != SPECRT_END_NONE) s->at = SPECRT__AT_ENDED;
    *out = first;
    return SPECRT_STATUS_OK;
}

/* --- a cycle --- */

SPECRT_API const specrt_shortlist *specrt_session_shortlist(const specrt_session *session) {
    return session ? &session->shortlist : NULL;
}

/* No beam where another level would not pay. */
static void specrt__session_stop(specrt_session *s, specrt_beam *beam) {
    if (s->auto_draft && beam->n > 0 &&
        !specrt_auto_should_continue(s->auto_draft, s->tree->level,
                                     s->topk == 1 ? beam->logprobs[0] : NAN))
        beam->n = 0;
}

SPECRT__INTERNAL specrt_status specrt__session_propose(specrt_session *s, int32_t n, int32_t k,
                                                       specrt_beam *beam) {
    SPECRT__TRY(specrt_tree_expand(s->tree, s->ids, s->logprobs, n, k, beam));
    specrt__session_stop(s, beam);
    return SPECRT_STATUS_OK;
}

SPECRT__INTERNAL specrt_status specrt__session_sample(specrt_session *s, const int32_t *ids,
                                                      const float *logits, int32_t n,
                                                      specrt_beam *beam) {
    int32_t level = s->tree->level;
    size_t at = (size_t)level * (size_t)s->bound;
    int32_t *kept = s->distribution_ids + at;
    float *probs = s->distribution_probs + at, logprob = -INFINITY;
    if (ids)
        memcpy(kept, ids, (size_t)n * sizeof *kept);
    else
        specrt__shortlist_ids(&s->shortlist, kept);
    float temperature =
        s->draft_temperature > 0 ? s->draft_temperature : s->verifier->sampling.temperature;
    int32_t i =
        specrt_verifier_propose(s->verifier, logits, n, temperature, s->cycle, level, probs);
    s->sampled[level] = i < 0 ? -1 : kept[i];
    if (i >= 0) logprob = logf(probs[i]);
    s->distributions[level].n = n;
    s->distributions[level].ids = kept;
    s->distributions[level].probs = probs;
    SPECRT__TRY(specrt_tree_expand(s->tree, &kept[i < 0 ? 0 : i], &logprob, 1, 1, beam));
    specrt__session_stop(s, beam);
    return SPECRT_STATUS_OK;
}

SPECRT__INTERNAL specrt_status specrt__session_grow(specrt_session *s, int32_t n,
                                                    specrt_beam *beam) {
    int32_t n_rows = s->shortlist.n_rows, k = s->topk < n_rows ? s->topk : n_rows;
    if (k == 0) return specrt_tree_expand(s->tree, s->ids, s->logprobs, n, 0, beam);
    specrt__block_add_markov(s, n);
    if (s->distributions) return specrt__session_sample(s, NULL, s->logits, n_rows, beam);
    SPECRT__TRY(specrt_shortlist_topk(&s->shortlist, s->logits, n, k, s->ids, s->logprobs));
    return specrt__session_propose(s, n, k, beam);
}

SPECRT__INTERNAL specrt_beam specrt__session_beam(const specrt_session *s) {
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

SPECRT_API specrt_status specrt_session_get_beam(specrt_session *session, specrt_beam *beam) {
    SPECRT__SESSION_NEEDS(session, beam, "get_beam");
    SPECRT__CLEAR(beam, 1);
    SPECRT__TRY(specrt__session_order(session, SPECRT__AT_DRAFT, "get_beam"));
    *beam = specrt__session_beam(session);
    if (session->tree->level == session->tree->params.num_steps ||
        (session->auto_draft && session->choice.num_steps == 0))
        beam->n = 0;
    return SPECRT_STATUS_OK;
}

/* The rows of the pass to come, for the tree at hand. */
SPECRT__INTERNAL void specrt__session_route_pass(specrt_session *s, const float *draft_hidden,
                                                 const float *draft_input) {
    specrt_beam own = specrt__session_beam(s);
    specrt__source_level level =
        specrt__session_level(s->tree->level, &own, draft_hidden, draft_input);
    specrt__session_route_by(s, level);
}

/* Whether a pass of n rows may come now: the tree's next level, if no pass of your own came before. */
SPECRT__INTERNAL specrt_status specrt__session_check_expand(specrt_session *s, int32_t n) {
    SPECRT__TRY(specrt__session_order(s, SPECRT__AT_DRAFT, "expand"));
    if (s->level != s->tree->level)
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ORDER,
                                "expand: expected route() again, which scored level %d of this "
                                "cycle",
                                (int)s->level - 1);
    if (s->tree->level == s->tree->params.num_steps || s->tree->n_beam == 0)
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ORDER,
                                "expand: expected finish(): the tree has its last level");
    if (n == s->tree->n_beam) return SPECRT_STATUS_OK;
    return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                            "expand: n: expected the %d rows of the beam, found %d",
                            (int)s->tree->n_beam, (int)n);
}

SPECRT_API specrt_status specrt_session_expand(specrt_session *s, const float *draft_hidden,
                                               const float *draft_input, int32_t n,
                                               specrt_beam *beam) {
    SPECRT__SESSION_NEEDS(s, beam, "expand");
    SPECRT__CLEAR(beam, 1);
    SPECRT__SESSION_NEEDS(s, draft_hidden, "expand");
    SPECRT__TRY(specrt__session_check_expand(s, n));
    specrt__session_route_pass(s, draft_hidden, draft_input);
    SPECRT__TRY(specrt_shortlist_logits(&s->shortlist, draft_hidden, n, s->logits));
    return specrt__session_grow(s, n, beam);
}

SPECRT_API specrt_status specrt_session_finish(specrt_session *session, specrt_draft *draft) {
    SPECRT__SESSION_NEEDS(session, session, "finish");
    if (draft) SPECRT__CLEAR(draft, 1);
    SPECRT__TRY(specrt__session_order(session, SPECRT__AT_DRAFT, "finish"));
    if (draft) specrt_tree_finish(session->tree, draft), draft->cycle = session->stamp;
    session->at = SPECRT__AT_DRAFTED;
    return SPECRT_STATUS_OK;
}

/* Whether it is a tree of tokens behind the last emitted one. */
static specrt_status specrt__session_check_draft(specrt_session *s, const char *call,
                                                 const specrt_draft *draft) {
    if (draft->cycle != 0 && draft->cycle != s->stamp)
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ORDER,
                                "%s: draft: expected that of this cycle, found an older one; call "
                                "specrt_session_finish() first",
                                call);
    if (draft->n < 1 || draft->n > SPECRT_TREE_MAX_NODES || !draft->tokens)
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                                "%s: draft: expected 1 to %d nodes with tokens, as "
                                "specrt_session_finish() gives them, found %d%s",
                                call, SPECRT_TREE_MAX_NODES, (int)draft->n,
                                draft->tokens ? "" : " without");
    SPECRT__TRY(specrt__session_check_tokens(s, call, draft->tokens, draft->n));
    if (draft->tokens[0] != s->tree->root)
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                                "%s: draft: root: expected %d, the last emitted token, found %d",
                                call, (int)s->tree->root, (int)draft->tokens[0]);
    int32_t stray = draft->parents ? specrt__verify_stray(draft) : 0;
    if (stray == 0) return SPECRT_STATUS_OK;
    return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                            "%s: draft: parent of node %d: expected 0 to %d, found %d", call,
                            (int)stray, (int)stray - 1, (int)draft->parents[stray]);
}

/* A sampled chain is judged by what its tokens were sampled from, so it must be of those tokens. */
static specrt_status specrt__session_check_sampled(specrt_session *s, const specrt_draft *draft) {
    bool own = draft->n <= s->tree->level + 1;
    for (int32_t i = 1; i < draft->n && own; i++)
        own = draft->parents[i] == i - 1 && draft->tokens[i] == s->sampled[i - 1];
    if (own) return SPECRT_STATUS_OK;
    return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                            "verify: draft: expected the chain that the session sampled, or its "
                            "beginning, found another; verify your own with specrt_verify_chain()");
}

SPECRT_API specrt_status specrt_session_verify(specrt_session *s, const specrt_draft *draft,
                                               const float *logits, specrt_verdict *out) {
    SPECRT__SESSION_NEEDS(s, out, "verify");
    SPECRT__CLEAR(out, 1);
    SPECRT__SESSION_NEEDS(s, draft, "verify");
    SPECRT__SESSION_NEEDS(s, logits, "verify");
    SPECRT__TRY(specrt__session_order(s, SPECRT__AT_DRAFT | SPECRT__AT_DRAFTED, "verify"));
    SPECRT__TRY(specrt__session_check_draft(s, "verify", draft));
    SPECRT__SESSION_NEEDS(s, draft->parents, "verify");
    if (s->distributions) SPECRT__TRY(specrt__session_check_sampled(s, draft));
    specrt_status status =
        s->distributions ? specrt_verify_chain(s->verifier, draft->tokens + 1, s->distributions,
                                               draft->n - 1, logits, s->cycle, out)
                         : specrt_verify_tree(s->verifier, draft, logits, s->position, out);
    if (status == SPECRT_STATUS_OK) s->at = SPECRT__AT_DRAFTED, out->cycle = s->stamp;
    return status == SPECRT_STATUS_BAD_INPUT ? specrt__session_refuse_logits(s, "verify") : status;
}

/* Whether a verdict names a path of the draft from its root, and tokens. */
static specrt_status specrt__session_check_verdict(specrt_session *s, const specrt_draft *draft,
                                                   const specrt_verdict *verdict) {
    if (verdict->cycle != 0 && verdict->cycle != s->stamp)
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ORDER,
                                "observe: verdict: expected that of this cycle, found an older "
                                "one; call specrt_session_verify() first");
    bool path = verdict->n >= 1 && verdict->n <= draft->n && verdict->nodes[0] == 0;
    for (int32_t i = 1; i < verdict->n && path; i++) {
        int32_t node = verdict->nodes[i];
        path = node > 0 && node < draft->n && draft->tokens[node] == verdict->tokens[i - 1] &&
               (!draft->parents || draft->parents[node] == verdict->nodes[i - 1]);
    }
    if (path) return specrt__session_check_tokens(s, "observe", verdict->tokens, verdict->n);
    return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                            "observe: verdict: expected a path of the draft from its root, and a "
                            "token after it, found %d nodes that are none",
                            (int)verdict->n);
}

static specrt_status specrt__session_check_rows(specrt_session *s, const specrt_target_rows *rows) {
    int32_t width = s->policy->info.hidden_width;
    if (width == 0 || !rows || !rows->hidden || rows->d_hidden == width) return SPECRT_STATUS_OK;
    return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                            "observe: rows: d_hidden: expected %d, the policy's hidden_width, "
                            "found %d",
                            (int)width, (int)rows->d_hidden);
}

/* Whether the level that would have drafted a token could; beyond the last that drafted, that one. */
SPECRT_API specrt_member specrt_session_member(const specrt_session *s, int32_t token,
                                               int32_t level) {
    if (!s || token < 0 || token >= s->pool->n_ids || level < 0) return SPECRT_MEMBER_NO;
    if (s->fixed_at && s->fixed_at[token] >= s->n_fixed) return SPECRT_MEMBER_NO;
    if (s->pool->wants[token] & SPECRT__POOL_FIXED) return SPECRT_MEMBER_FIXED;
    if (specrt__pool_member(s->pool, token)) return SPECRT_MEMBER_NOW;
    if (!s->routed || s->level == 0) return SPECRT_MEMBER_NO;
    if (level >= s->level) level = s->level - 1;
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
    int32_t lists[SPECRT_TREE_MAX_NODES], n_logits = s->n_logits;
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
        certain[i] = specrt__session_certainty(logits + (int64_t)verdict->nodes[i] * n_logits,
                                               s->verifier->n_vocab, verdict->tokens[i]);
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

/* What came of a cycle that was checked. */
static void specrt__session_close_cycle(specrt_session *s, const specrt_draft *draft,
                                        const specrt_verdict *verdict,
                                        const specrt_target_rows *rows) {
    s->stats.n_cycles++;
    s->stats.n_emitted += verdict->n;
    s->stats.n_drafted += draft->n - 1;
    s->stats.n_rows += s->n_fixed + s->pool->n_rows;
    if (s->level > 0) s->stats.n_rows += s->n_routed_rows / s->level;
    s->stats.n_by_length[verdict->n]++;
    for (int32_t i = 0; i < verdict->n; i++)
        s->stats.n_covered += specrt_session_member(s, verdict->tokens[i], i) != SPECRT_MEMBER_NO;
    int32_t root = verdict->tokens[verdict->n - 1]; /* the tree may hold the draft: read it first */
    specrt__session_spend(s, draft, verdict, rows ? rows->logits : NULL);
    specrt__session_learn(s, draft, verdict, rows);
    specrt__session_pack(s);
    s->position += verdict->n;
    s->n_left -= verdict->n;
    s->cycle++;
    s->stamp++;
    s->at = SPECRT__AT_DRAFT;
    specrt_tree_begin(s->tree, root);
}

SPECRT_API specrt_status specrt_session_observe(specrt_session *s, const specrt_draft *draft,
                                                const specrt_verdict *verdict,
                                                const specrt_target_rows *rows) {
    SPECRT__SESSION_NEEDS(s, draft, "observe");
    SPECRT__SESSION_NEEDS(s, verdict, "observe");
    SPECRT__TRY(specrt__session_order(s, SPECRT__AT_DRAFTED, "observe"));
    SPECRT__SESSION_NEEDS(s, draft->parents, "observe");
    SPECRT__SESSION_NEEDS(s, draft->depths, "observe");
    SPECRT__SESSION_NEEDS(s, draft->logprobs, "observe");
    SPECRT__TRY(specrt__session_check_draft(s, "observe", draft));
    SPECRT__TRY(specrt__session_check_verdict(s, draft, verdict));
    SPECRT__TRY(specrt__session_check_rows(s, rows));
    specrt__session_close_cycle(s, draft, verdict, rows);
    return SPECRT_STATUS_OK;
}

SPECRT__INTERNAL specrt_status specrt__session_end(specrt_session *s, const specrt_draft *draft,
                                                   const specrt_target_rows *rows,
                                                   const specrt_verdict *cut) {
    SPECRT__TRY(specrt_session_observe(s, draft, cut, rows));
    if (cut->end != SPECRT_END_NONE) s->at = SPECRT__AT_ENDED;
    return SPECRT_STATUS_OK;
}

SPECRT_API specrt_status specrt_session_accept(specrt_session *s, const specrt_draft *draft,
                                               const specrt_target_rows *rows,
                                               specrt_verdict *out) {
    SPECRT__SESSION_NEEDS(s, out, "accept");
    SPECRT__CLEAR(out, 1);
    SPECRT__SESSION_NEEDS(s, rows, "accept");
    SPECRT__TRY(specrt__session_check_rows(s, rows));
    SPECRT__TRY(specrt_session_verify(s, draft, rows->logits, out));
    specrt__session_cut(s, out);
    specrt_status status = specrt__session_end(s, draft, rows, out);
    if (status != SPECRT_STATUS_OK) SPECRT__CLEAR(out, 1);
    return status;
}

/* Keeps a chain until its last token is known. */
static specrt_status specrt__session_leave_open(specrt_session *s, const specrt_draft *chain,
                                                int32_t n_accepted,
                                                const specrt_target_rows *rows) {
    specrt__session_open *open = &s->open;
    open->n = chain->n;
    open->n_accepted = n_accepted;
    open->told = rows && (rows->logits || (rows->ids && rows->k > 0));
    memcpy(open->tokens, chain->tokens, (size_t)chain->n * sizeof *chain->tokens);
    memset(open->ids, 0xff, sizeof open->ids); /* -1: none */
    for (int32_t i = 0; i < chain->n; i++)
        specrt__shortlist_target_best(rows, i, s->n_logits, SPECRT_LOGITS_MAX_K,
                                      open->ids + i * SPECRT_LOGITS_MAX_K);
    s->at = SPECRT__AT_OPEN;
    return SPECRT_STATUS_OK;
}

/* A chain that came in order, with its last token. */
static specrt_status specrt__session_observe_chain(specrt_session *s, specrt_draft *chain,
                                                   int32_t n_accepted, int32_t last,
                                                   const specrt_target_rows *rows) {
    static const float none[SPECRT_TREE_MAX_NODES] = {0};
    specrt_verdict verdict;
    SPECRT__CLEAR(&verdict, 1);
    for (int32_t i = 0; i < chain->n; i++) verdict.nodes[i] = i; /* they are depths, too */
    chain->depths = verdict.nodes;
    chain->logprobs = none;
    verdict.n = n_accepted + 1;
    for (int32_t i = 0; i < verdict.n; i++)
        verdict.tokens[i] = i < n_accepted ? chain->tokens[i + 1] : last;
    SPECRT__TRY(specrt__session_check_verdict(s, chain, &verdict));
    specrt__session_close_cycle(s, chain, &verdict, rows);
    return SPECRT_STATUS_OK;
}

SPECRT_API specrt_status specrt_session_observe_chain(specrt_session *s, const int32_t *tokens,
                                                      int32_t n, int32_t n_accepted, int32_t last,
                                                      const specrt_target_rows *rows) {
    specrt_draft chain;
    SPECRT__SESSION_NEEDS(s, tokens, "observe_chain");
    SPECRT__TRY(specrt__session_order(s, SPECRT__AT_DRAFT | SPECRT__AT_DRAFTED, "observe_chain"));
    if (n_accepted < 0 || n_accepted >= n)
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                                "observe_chain: n_accepted: expected 0 to %d, found %d", (int)n - 1,
                                (int)n_accepted);
    SPECRT__CLEAR(&chain, 1);
    chain.n = n;
    chain.tokens = tokens;
    SPECRT__TRY(specrt__session_check_draft(s, "observe_chain", &chain));
    SPECRT__TRY(specrt__session_check_rows(s, rows));
    if (last == -1) return specrt__session_leave_open(s, &chain, n_accepted, rows);
    return specrt__session_observe_chain(s, &chain, n_accepted, last, rows);
}

SPECRT_API void specrt_session_get_stats(const specrt_session *session, specrt_session_stats *out) {
    if (!out) return;
    SPECRT__CLEAR(out, 1);
    if (!session) return;
    *out = session->stats;
    out->n_copied = session->pool->n_copied - session->n_copied_before;
}
