/* block.c : owns drafts of a block: which rows its positions score, what a Markov head adds, and which tokens
 * are chosen, left to right. Refuses blocks that the session has no room for. The tree, verification and
 * learning are those of every draft. */
#include "decode/session.h"
#include "core/base.h"
#include "core/head.h"
#include "core/shortlist.h"
#include "decode/block.h"

/* --- making --- */

/* Rows of a shortlist at most: a position beyond the first may add what it would have alone. */
static int64_t specrt__block_bound(const specrt_policy *policy, int32_t n) {
    int64_t bound = policy->info.bound, most = policy->head->desc.n_rows;
    for (int i = 0; i < policy->n_sources && n > 1; i++) {
        int64_t more = (int64_t)(n - 1) * policy->sources[i].shared.more;
        bound += more < most ? more : most;
    }
    return bound;
}

SPECRT__INTERNAL specrt_status specrt__block_check_params(specrt_session *s,
                                                          const specrt_session_params *params,
                                                          specrt_error *err) {
    int32_t n = params->n_block, most = specrt_tree_get_params(s->tree)->num_steps;
    if (n < 0 || n > most)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "session: n_block: expected 0 to the %d levels of the tree "
                                "(num_steps), found %d",
                                (int)most, (int)n);
    int64_t bound = specrt__block_bound(s->policy, n);
    if (bound > INT32_MAX)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "session: n_block: expected fewer rows of policy '%s', found %lld",
                                s->policy->text, (long long)bound);
    s->bound = (int32_t)bound;
    return SPECRT_STATUS_OK;
}

SPECRT__INTERNAL bool specrt__block_make(specrt_session *s, int32_t n) {
    const specrt_head_desc *head = &s->policy->head->desc;
    uint64_t k = (uint64_t)s->topk, bound = (uint64_t)s->bound, n_positions = (uint64_t)n * bound;
    uint64_t n_states = n > 0 && k > 1 ? 2 * k * (uint64_t)head->n_cols : 0;
    uint64_t n_from = head->markov ? k * (uint64_t)head->markov->from.n_cols : 0;
    uint64_t n_bias = head->markov ? k * bound : 0, n_places = head->markov ? bound : 0;
    uint64_t n_words = n_positions + n_states + n_from + n_bias + n_places;
    if (n_words == 0) return true;
    uint8_t *at = (uint8_t *)specrt__base_alloc(&s->env, 4 * n_words);
    if (!at) return false;
    s->block.n = n;
    s->block.positions = SPECRT__CARVE(float, &at, n_positions);
    s->block.states = SPECRT__CARVE(float, &at, n_states);
    s->block.from = SPECRT__CARVE(float, &at, n_from);
    s->block.bias = SPECRT__CARVE(float, &at, n_bias);
    s->block.places = SPECRT__CARVE(int32_t, &at, n_places);
    return true;
}

/* --- a Markov head --- */

/* Rows of w1, for each token of a beam. One that has none adds nothing. */
static void specrt__block_read_from(specrt_session *s, const specrt_beam *beam) {
    const specrt_head_desc *from = &s->policy->head->markov.from;
    for (int32_t i = 0; i < beam->n; i++) {
        float *out = s->block.from + i * from->n_cols;
        if (beam->tokens[i] < from->n_rows)
            specrt_row_decode(from->dtype, specrt__head_row(from, beam->tokens[i]), from->n_cols,
                              out);
        else
            SPECRT__CLEAR(out, from->n_cols);
    }
}

SPECRT__INTERNAL void specrt__block_add_markov(specrt_session *s, int32_t n) {
    const specrt_head *head = s->policy->head;
    const specrt_head_desc *to = &head->markov.to;
    int32_t n_rows = s->shortlist.n_rows;
    specrt_segment rows;
    specrt_beam beam = specrt__session_beam(s);
    if (!head->desc.markov || n_rows == 0) return;
    specrt__shortlist_ids(&s->shortlist, s->block.places);
    for (int32_t i = 0; i < n_rows; i++)
        s->block.places[i] = specrt__head_row_of(head, s->block.places[i]);
    SPECRT__CLEAR(&rows, 1);
    rows.rows = to->rows;
    rows.row_stride = to->row_stride;
    rows.dtype = to->dtype;
    rows.n_rows = n_rows;
    rows.places = s->block.places;
    specrt_shortlist product = {&head->compute, &rows, 1, n_rows, to->n_cols, NULL};
    specrt__block_read_from(s, &beam);
    specrt_shortlist_logits(&product, s->block.from, n, s->block.bias);
    for (int64_t i = 0; i < (int64_t)n * n_rows; i++) s->logits[i] += s->block.bias[i];
    s->stats.n_bytes += (int64_t)specrt_row_bytes(to->dtype, to->n_cols) * n_rows;
}

/* --- the rows of a block --- */

enum { SPECRT__BLOCK_CANDIDATES = 8 }; /* tokens of a position that sources of tokens follow */

/* What follows the best tokens of the positions, for those behind them. Logits that are there move up, since
 * a row of them becomes longer. */
static void specrt__block_follow(specrt_session *s, const float *hidden, int32_t n) {
    float *positions = s->block.positions, logprobs[SPECRT__BLOCK_CANDIDATES];
    int32_t ids[SPECRT__BLOCK_CANDIDATES], n_before = s->shortlist.n_rows;
    int32_t first = s->shortlist.n_segments, k = SPECRT__BLOCK_CANDIDATES;
    if (k > s->block.n) k = s->block.n; /* for so many tokens, sources have room */
    if (k > n_before) k = n_before;
    for (int32_t i = 0; i + 1 < n && k > 0; i++) {
        specrt_beam best = {k, ids, NULL, logprobs};
        specrt__source_level level = specrt__session_level(0, &best, NULL, NULL);
        level.again = true;
        specrt_shortlist_topk(&s->shortlist, positions + (int64_t)i * n_before, 1, k, ids,
                              logprobs);
        for (int j = 0; j < s->policy->n_sources; j++)
            if (s->policy->sources[j].shared.reads_tokens)
                s->policy->sources[j].source->route(s->states[j], &level, s->routed);
    }
    specrt__session_list_routed(s);
    int32_t n_after = s->shortlist.n_rows;
    if (n_after == n_before) return;
    for (int32_t i = n; i-- > 1;)
        memmove(positions + (int64_t)i * n_after, positions + (int64_t)i * n_before,
                (size_t)n_before * sizeof *positions);
    specrt__shortlist_complete(&s->shortlist, first, hidden, n, positions);
    s->n_routed_rows += n_after - n_before;
    specrt__session_count_read(s, 0, n_after - n_before);
}

/* One union of rows, and the logits of all positions. */
static void specrt__block_unite(specrt_session *s, const float *hidden, const float *input,
                                int32_t n) {
    static const float no_path[SPECRT_TREE_MAX_STEPS] = {0};
    int32_t roots[SPECRT_TREE_MAX_STEPS];
    bool follows = false;
    for (int32_t i = 0; i < n; i++) roots[i] = s->tree->root;
    specrt_beam all = {n, roots, NULL, no_path};
    specrt__source_level level = specrt__session_level(0, &all, hidden, input);
    level.each = true;
    specrt__session_route_by(s, level);
    if (s->shortlist.n_rows > 0)
        specrt_shortlist_logits(&s->shortlist, hidden, n, s->block.positions);
    for (int i = 0; i < s->policy->n_sources; i++)
        follows |= s->policy->sources[i].shared.reads_tokens;
    if (follows) specrt__block_follow(s, hidden, n);
}

/* A state for each row of a beam. */
static const float *specrt__block_repeat(const float *state, int64_t n_cols, int32_t n,
                                         float *out) {
    if (n == 1 || !state) return state;
    for (int32_t i = 0; i < n; i++) memcpy(out + i * n_cols, state, (size_t)n_cols * sizeof *out);
    return out;
}

/* The rows of one position, by the tokens before it, and its logits for every row of the beam: of the rows
 * that all positions have, they are there. */
static void specrt__block_route(specrt_session *s, const specrt_block *block, int32_t position,
                                const specrt_beam *beam) {
    int64_t n_cols = s->shortlist.n_cols;
    int32_t n_kept = s->n_fixed + s->pool->n_rows;
    const float *hidden =
        specrt__block_repeat(block->hidden + position * n_cols, n_cols, beam->n, s->block.states);
    const float *input =
        specrt__block_repeat(block->input ? block->input + position * n_cols : NULL, n_cols,
                             beam->n, s->block.states + s->topk * n_cols);
    specrt__session_route_by(s, specrt__session_level(position, beam, hidden, input));
    if (position > 0) specrt__session_count_read(s, 0, -n_kept);
    for (int32_t i = 0; i < beam->n; i++)
        memcpy(s->logits + (int64_t)i * s->shortlist.n_rows,
               s->block.positions + (int64_t)position * n_kept, (size_t)n_kept * sizeof *s->logits);
    specrt__shortlist_complete(&s->shortlist, s->n_kept, hidden, beam->n, s->logits);
}

/* What the positions score in common, before a token is chosen. @return whether that is all. */
static bool specrt__block_score(specrt_session *s, const specrt_block *block, int32_t n) {
    specrt_shortlist kept = s->shortlist;
    if (!block->by_position || !s->routed) {
        specrt__block_unite(s, block->hidden, block->input, n);
        return true;
    }
    kept.n_segments = s->n_kept;
    kept.n_rows = s->n_fixed + s->pool->n_rows;
    if (kept.n_rows > 0) specrt_shortlist_logits(&kept, block->hidden, n, s->block.positions);
    return false;
}

/* --- the tokens of a position --- */

/* Whether the paths of a beam go on: each has a confidence of its own. @return whether any does. */
static bool specrt__block_trusts(specrt_session *s, const specrt_block *block, int32_t position,
                                 const specrt_beam *beam, bool *trusted) {
    const specrt_head *head = s->policy->head;
    int64_t n_cols = head->desc.n_cols, rank = head->desc.markov ? head->markov.from.n_cols : 0;
    const float *state = block->hidden + position * n_cols, *weights = block->confidence;
    double sum = (double)block->confidence_bias;
    bool any = false;
    for (int32_t i = 0; i < beam->n; i++) trusted[i] = true;
    if (!(block->p_min > 0)) return true;
    if (!weights) return beam->logprobs[0] >= logf(block->p_min);
    for (int64_t j = 0; j < n_cols; j++) sum += (double)weights[j] * (double)state[j];
    if (rank > 0) specrt__block_read_from(s, beam);
    for (int32_t i = 0; i < beam->n; i++) {
        double x = sum;
        for (int64_t j = 0; j < rank; j++)
            x += (double)weights[n_cols + j] * (double)s->block.from[i * rank + j];
        trusted[i] = 1 / (1 + exp(-x)) >= (double)block->p_min;
        any |= trusted[i];
    }
    return any;
}

/* The best of a row of logits, as the application's function judges them.
 *   ids, logits : [k], written
 * @return how many are left; below 0: it failed. */
static int32_t specrt__block_select(specrt_session *s, const specrt_block *block, int32_t position,
                                    int32_t previous, const float *row, int32_t *ids,
                                    float *logits) {
    int32_t k = block->k < s->shortlist.n_rows ? block->k : s->shortlist.n_rows, n = 0;
    (void)specrt__shortlist_rank(&s->shortlist, row, 1, k, ids, NULL, logits);
    while (n < k && logits[n] > -INFINITY) n++;
    if (n == 0) return 0;
    int code = block->select(block->user, position, previous, ids, n, logits);
    if (code != 0) {
        s->at = SPECRT__AT_ENDED;
        (void)specrt_error_set(&s->error, SPECRT_STATUS_HOST, "draft_block: select: returned %d",
                               code);
        return -1;
    }
    k = n, n = 0;
    for (int32_t i = 0; i < k; i++)
        if (logits[i] > -INFINITY) ids[n] = ids[i], logits[n++] = logits[i];
    return n;
}

/* A row's k proposals of n candidates; where there are fewer, none. */
static void specrt__block_rank(specrt_session *s, int32_t row, int32_t k, const int32_t *ids,
                               const float *logits, int32_t n) {
    int32_t *best = s->ids + row * k;
    float *logprobs = s->logprobs + row * k;
    specrt_segment segment;
    SPECRT__CLEAR(&segment, 1);
    segment.ids = ids;
    segment.n_rows = n;
    specrt_shortlist candidates = {s->shortlist.compute, &segment, 1, n, 0, NULL};
    for (int32_t i = 0; i < k; i++) best[i] = s->tree->root, logprobs[i] = -INFINITY;
    if (n > 0) specrt_shortlist_topk(&candidates, logits, 1, n < k ? n : k, best, logprobs);
}

/* The level of a position, its candidates judged by the application. */
static specrt_status specrt__block_choose(specrt_session *s, const specrt_block *block,
                                          int32_t position, const specrt_beam *beam,
                                          const bool *trusted, specrt_beam *next) {
    int32_t ids[SPECRT_BLOCK_MAX_K], k = s->topk;
    float logits[SPECRT_BLOCK_MAX_K];
    for (int32_t i = 0; i < beam->n; i++) {
        int32_t n = 0;
        if (trusted[i])
            n = specrt__block_select(s, block, position, beam->tokens[i],
                                     s->logits + (int64_t)i * s->shortlist.n_rows, ids, logits);
        if (n < 0) return SPECRT_STATUS_HOST;
        if (s->distributions && n > 0) return specrt__session_sample(s, ids, logits, n, next);
        specrt__block_rank(s, i, k, ids, logits, n);
    }
    return specrt__session_propose(s, beam->n, k, next);
}

/* The level of a position. Where nothing tells the rows of a beam apart, the first is ranked for all. */
static specrt_status specrt__block_extend(specrt_session *s, const specrt_block *block,
                                          int32_t position, const specrt_beam *beam,
                                          const bool *trusted, specrt_beam *next) {
    int32_t n_rows = s->shortlist.n_rows, k = s->topk < n_rows ? s->topk : n_rows;
    bool alike = !s->policy->head->desc.markov && !block->select && !block->by_position;
    int32_t n = alike ? 1 : beam->n;
    if (n_rows == 0) return specrt_tree_expand(s->tree, s->ids, s->logprobs, beam->n, 0, next);
    specrt__block_add_markov(s, n);
    if (block->select) return specrt__block_choose(s, block, position, beam, trusted, next);
    if (s->distributions) return specrt__session_sample(s, NULL, s->logits, n_rows, next);
    SPECRT__TRY(specrt_shortlist_topk(&s->shortlist, s->logits, n, k, s->ids, s->logprobs));
    for (int32_t i = n; i < beam->n; i++) {
        memcpy(s->ids + i * k, s->ids, (size_t)k * sizeof *s->ids);
        memcpy(s->logprobs + i * k, s->logprobs, (size_t)k * sizeof *s->logprobs);
    }
    for (int32_t i = 0; i < beam->n * k; i++)
        if (!trusted[i / k]) s->logprobs[i] = -INFINITY;
    return specrt__session_propose(s, beam->n, k, next);
}

/* --- calls --- */

/* Whether a block may come now, as the only pass of its cycle. */
static specrt_status specrt__block_check(specrt_session *s, const char *call, int32_t n) {
    SPECRT__TRY(specrt__session_order(s, SPECRT__AT_DRAFT, call));
    if (s->level > 0 || s->tree->level > 0)
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ORDER,
                                "%s: expected the first pass of a cycle, found one after another",
                                call);
    if (n >= 1 && n <= s->block.n) return SPECRT_STATUS_OK;
    return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                            "%s: n: expected 1 to %d positions (specrt_session_params.n_block), "
                            "found %d",
                            call, (int)s->block.n, (int)n);
}

static specrt_status specrt__block_check_choice(specrt_session *s, const specrt_block *block) {
    if (block->by_position != 0 && block->by_position != 1)
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                                "draft_block: by_position: expected 0 or 1, found %d",
                                (int)block->by_position);
    if (!(block->p_min >= 0 && block->p_min <= 1))
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                                "draft_block: p_min: expected 0 to 1, found %g",
                                (double)block->p_min);
    if (block->select && (block->k < s->topk || block->k > SPECRT_BLOCK_MAX_K))
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                                "draft_block: k: expected %d (topk) to %d candidates, found %d",
                                (int)s->topk, SPECRT_BLOCK_MAX_K, (int)block->k);
    return SPECRT_STATUS_OK;
}

SPECRT__INTERNAL specrt_status specrt__block_grow(specrt_session *s, const specrt_block *block) {
    bool trusted[SPECRT_TREE_MAX_TOPK];
    int32_t n = block->n;
    SPECRT__SESSION_NEEDS(s, block->hidden, "draft_block");
    SPECRT__TRY(specrt__block_check(s, "draft_block", n));
    SPECRT__TRY(specrt__block_check_choice(s, block));
    if (s->auto_draft && s->choice.num_steps < n) n = s->choice.num_steps;
    if (n > 0) specrt__auto_block(s->auto_draft, n);
    specrt_beam beam = specrt__session_beam(s);
    bool scored = n > 0 && specrt__block_score(s, block, n);
    for (int32_t i = 0; i < n && beam.n > 0; i++) {
        if (!specrt__block_trusts(s, block, i, &beam, trusted)) break;
        int32_t n_rows = s->shortlist.n_rows;
        for (int32_t j = 0; j < beam.n && scored; j++)
            memcpy(s->logits + (int64_t)j * n_rows, s->block.positions + (int64_t)i * n_rows,
                   (size_t)n_rows * sizeof *s->logits);
        if (!scored) specrt__block_route(s, block, i, &beam);
        SPECRT__TRY(specrt__block_extend(s, block, i, &beam, trusted, &beam));
    }
    if (scored) s->stats.n_passes += s->tree->level - 1;
    return SPECRT_STATUS_OK;
}

SPECRT_API specrt_status specrt_session_draft_block(specrt_session *s, const specrt_block *block,
                                                    specrt_draft *draft) {
    SPECRT__SESSION_NEEDS(s, draft, "draft_block");
    SPECRT__CLEAR(draft, 1);
    SPECRT__SESSION_NEEDS(s, block, "draft_block");
    SPECRT__TRY(specrt__block_grow(s, block));
    return specrt_session_finish(s, draft);
}

SPECRT_API specrt_status specrt_session_block_topk(specrt_session *s, const float *hidden,
                                                   const float *input, int32_t n, int32_t k,
                                                   int32_t *ids, float *logits) {
    SPECRT__SESSION_NEEDS(s, hidden, "block_topk");
    SPECRT__SESSION_NEEDS(s, ids, "block_topk");
    SPECRT__SESSION_NEEDS(s, logits, "block_topk");
    SPECRT__TRY(specrt__block_check(s, "block_topk", n));
    if (k < 1 || k > SPECRT_BLOCK_MAX_K)
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                                "block_topk: k: expected 1 to %d, found %d", SPECRT_BLOCK_MAX_K,
                                (int)k);
    specrt__block_unite(s, hidden, input, n);
    int32_t n_rows = s->shortlist.n_rows, n_best = k < n_rows ? k : n_rows;
    for (int32_t i = 0; i < n; i++) {
        int32_t *best = ids + (int64_t)i * k;
        float *scores = logits + (int64_t)i * k;
        if (n_best > 0)
            (void)specrt__shortlist_rank(&s->shortlist, s->block.positions + (int64_t)i * n_rows, 1,
                                         n_best, best, NULL, scores);
        for (int32_t j = 0; j < k; j++)
            if (j >= n_best || !(scores[j] > -INFINITY)) best[j] = -1, scores[j] = -INFINITY;
    }
    return SPECRT_STATUS_OK;
}
