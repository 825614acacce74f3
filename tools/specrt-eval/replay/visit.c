/* visit.c : one policy over one sequence. Its session sees what a decoder would have shown it: prompt,
 * first token, then cycle by cycle the tree, what was emitted and the target's best tokens.
 *
 * The text is the same under every policy, since decoding is lossless: only where cycles end differs. Where
 * another policy drafted the recording, cycles end where this one's list would have ended them:
 *
 *     recorded cycles    | t0  t1  t2 | t3 | t4  t5 |     a row is an emitted token
 *     this policy's      | t0  t1 | t2  t3  t4 | t5 ..    first: where the one at hand begins
 *
 * Token by token (look_at_token):
 *
 *     1. At the first of a cycle, sources that route choose the cycle's lists, by the recorded tree from
 *        that token's node on.
 *     2. Is the token in the list of its level? Which of the models' best tokens are?
 *     3. Would a draft have had it? For every tree: yes; no; unknown, as the drafter made no pass there;
 *        never, since the list lacks it. By that each tree's walk goes on, or ends its cycle (walk_step).
 *     4. Where the first walk, the recorded tree's, ends its cycle, the session learns: from the recorded
 *        cycle if this policy recorded it; else from a replica, which is the path and what the list held of
 *        the recorded trees.
 *
 * Lists are looked at before they learn, so no token is counted by what it taught. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "impl.h"
#include "base/error.h"

static const int64_t edges[REPLAY_SPANS] = {0,   32,  64,
                                            128, 256, 512}; /* tokens since the topic began */

/* Where a token was drawn. */
typedef struct place {
    int32_t cycle, row;
} place;

typedef struct visit {
    replay *r;
    replay_way *e;
    const replay_sequence *s;
    specrt_session *session; /* NULL: the oracle */
    float *scratch;          /* replay_scratch() */
    replay_sums sums;
    replay_walk walks[REPLAY_TREES]; /* by the first the session learns */
    replay_levels levels[REPLAY_TREES];
    replay_span spans[REPLAY_SPANS];
    place first;          /* of the session's cycle at hand */
    int64_t since;        /* tokens of the topic so far */
    bool recorded;        /* with this policy */
    float slack;          /* slack_of() the recorded cycle at hand; NaN: not asked for yet */
    specrt_status status; /* the first of the session's that is not OK */
} visit;

static int span_of(int64_t since) {
    int span = REPLAY_SPANS - 1;
    while (span > 0 && since < edges[span]) span--;
    return span;
}

static bool holds(const visit *v, int32_t token, int32_t level) {
    if (!v->session) return token >= 0;
    return specrt_session_member(v->session, token, level) != SPECRT_MEMBER_NO;
}

static void check(visit *v, specrt_status status) {
    if (v->status == SPECRT_STATUS_OK) v->status = status;
}

/* ---- what lists hold ---- */

/* Of what both models thought best.
 * @return the token's place among the drafter's best that the list holds. */
static int32_t look_at_best(visit *v, const replay_cycle *c, int32_t i) {
    const specrt_trace_info *info = v->s->info;
    int32_t n_top = info->n_top, n_draft = info->n_draft_top, n_held = 0, at_place = 0;
    int32_t level = v->walks[0].level;
    for (int32_t j = 0; c->r.top_ids && j < n_top; j++) {
        int64_t at = (int64_t)i * n_top + j;
        if (!holds(v, c->r.top_ids[at], level)) continue;
        if (c->probs) v->sums.mass += (double)c->probs[at];
        v->sums.held[0] += j == 0;
        v->sums.held[1]++;
    }
    for (int32_t j = 0; c->rows[i].known && j < n_draft; j++) {
        if (j == c->rows[i].place) at_place = n_held;
        n_held += holds(v, c->r.draft_ids[(int64_t)i * n_draft + j], level);
        if (j + 1 == REPLAY_DRAFT_BEST || (j + 1 == n_draft && j < REPLAY_DRAFT_BEST))
            v->sums.held[2] += n_held;
    }
    v->sums.held[3] += n_held;
    return c->rows[i].place < n_draft ? at_place : n_draft;
}

/* What a list drops from a tree makes room for others. The nodes above a probability are taken to be as many
 * as its inverse, so where a share of the recorded nodes stays, the rest of as large a tree lies deeper by
 * the share's logarithm. */
static float slack_of(visit *v, const replay_cycle *c) {
    const specrt_trace_record *r = &c->r;
    bool kept[REPLAY_NODES] = {true};
    int32_t n_kept = 1;
    if (!isnan(v->slack)) return v->slack;
    for (int32_t i = 1; i < r->n_nodes; i++) {
        kept[i] = kept[r->tree_parents[i]] && holds(v, r->tree_tokens[i], c->depths[i] - 1);
        n_kept += kept[i];
    }
    return v->slack = logf((float)r->n_nodes / (float)n_kept);
}

static replay_drafted drafted_by(visit *v, const replay_cycle *c, int32_t i, bool held,
                                 int32_t at_place, int tree) {
    const replay_row *row = &c->rows[i];
    if (tree == 0 && v->recorded) return i + 1 < c->r.n ? DRAFTED_YES : DRAFTED_NO;
    /* Without a pass there is no state either, of which the source would have known this token. */
    if (!held && (row->known || !v->e->reads_hidden)) return DRAFTED_NEVER;
    if (!row->known) return DRAFTED_UNKNOWN;
    if (at_place >= v->r->trees[tree].topk || row->room[tree] == -INFINITY) return DRAFTED_NO;
    bool fits = row->room[tree] >= 0 || row->room[tree] + slack_of(v, c) >= 0;
    return fits ? DRAFTED_YES : DRAFTED_NO;
}

/* ---- routed sources ---- */

/* f16 rows as f32: of row i at nodes[i], or one after another. */
static const float *widen(float *scratch, const uint16_t *half, const int32_t *nodes, int32_t n,
                          int32_t d) {
    for (int32_t i = 0; i < n; i++)
        specrt_row_decode(SPECRT_DTYPE_F16, half + (int64_t)i * d, d,
                          scratch + (int64_t)(nodes ? nodes[i] : i) * d);
    return scratch;
}

/* A row for every node, and one more for what the first pass was fed. */
specrt_status replay_scratch(const replay *r, float **out, specrt_error *err) {
    int32_t d_draft = r->infos[0]->d_draft, d_target = r->infos[0]->d_target;
    size_t d = (size_t)(d_draft > d_target ? d_draft : d_target);
    *out = (float *)malloc((r->keeps_hidden ? (REPLAY_NODES + 1) * d : 1) * sizeof(float));
    return *out ? SPECRT_STATUS_OK : sl_error_no_memory_for(err, "a replay");
}

/* The tokens that a level extends: the tree's nodes there. Sources that route by hidden states are given
 * the path alone, since the others' were not recorded. */
static int32_t beam_of(const visit *v, const replay_cycle *c, int32_t level, int32_t *tokens,
                       float *logprobs) {
    const specrt_trace_record *r = &c->r;
    int32_t n = 0, top = r->nodes[v->first.row], depth = c->depths[top] + level;
    for (int32_t i = 0; i < r->n_nodes && n < v->r->trees[0].topk; i++) {
        bool there = c->depths[i] == depth && (c->masks[i] >> top & 1);
        if (v->e->reads_hidden && there) there = depth < r->n && r->nodes[depth] == i;
        if (!there) continue;
        tokens[n] = r->tree_tokens[i];
        logprobs[n++] = r->tree_logprobs ? r->tree_logprobs[i] - r->tree_logprobs[top] : 0;
    }
    return n;
}

/* What an EAGLE drafter's first pass is fed: the target's state where its root was drawn. NULL: not known, or
 * another thing, and then nothing was recorded of it after the prompt either. */
static const uint16_t *draft_input_first(const visit *v) {
    const specrt_trace_info *info = v->s->info;
    const specrt_trace_record *r = &v->s->prompt;
    int32_t row = v->first.row - 1;
    if (info->d_target != info->d_draft || !r->prompt_hidden) return NULL;
    if (v->first.cycle == 0 && row < 0) return r->prompt_hidden;
    r = &v->s->cycles[row < 0 ? v->first.cycle - 1 : v->first.cycle].r;
    if (row < 0) row = r->n - 1;
    return r->target_hidden ? r->target_hidden + (int64_t)row * info->d_target : NULL;
}

/* The drafter's hidden states of a cycle's rows, and behind them what its first pass was fed.
 * fed: NULL where that is not known */
static const float *hidden_of(visit *v, const specrt_trace_record *r, const float **draft_input) {
    const uint16_t *first = draft_input_first(v);
    int32_t d = v->s->info->d_draft;
    *draft_input = first ? widen(v->scratch, first, &r->n, 1, d) + (int64_t)r->n * d : NULL;
    return widen(v->scratch, r->draft_hidden, NULL, r->n, d);
}

/* The lists of a cycle that begins at v->first. Where the tree ends its last level goes on. */
static void route(visit *v, const replay_cycle *c) {
    const specrt_trace_record *r = &c->r;
    int32_t d = v->s->info->d_draft, last = v->first.row;
    int32_t n_levels = r->n_nodes > 1 ? v->r->trees[0].num_steps : 0;
    int32_t tokens[SPECRT_TREE_MAX_TOPK], parents[SPECRT_TREE_MAX_TOPK] = {0};
    float logprobs[SPECRT_TREE_MAX_TOPK];
    const float *hidden = NULL, *draft_input = NULL;
    specrt_beam beam = {0, tokens, parents, logprobs};
    if (v->e->reads_hidden && r->draft_hidden) hidden = hidden_of(v, r, &draft_input);
    if (v->e->reads_hidden && !hidden) return;
    for (int32_t level = 0; level < n_levels; level++) {
        int32_t n = beam_of(v, c, level, tokens, logprobs), i = v->first.row + level;
        if (n > 0) beam.n = n;
        if (i < r->n && c->rows[i].known) last = i;
        if (hidden && level > 0 && last > 0) draft_input = hidden + (int64_t)(last - 1) * d;
        if (!specrt_session_route(v->session, level, &beam,
                                  hidden ? hidden + (int64_t)last * d : v->scratch, draft_input))
            check(v, specrt_session_last_error(v->session)->status);
    }
}

/* ---- what a policy learns from ---- */

static void observe(visit *v, const specrt_draft *draft, const specrt_verdict *verdict,
                    specrt_target_rows *rows, const float *hidden) {
    rows->hidden = hidden;
    rows->d_hidden = hidden ? v->s->info->d_target : 0;
    check(v, specrt_session_finish(v->session, NULL));
    if (v->status == SPECRT_STATUS_OK)
        check(v, specrt_session_observe(v->session, draft, verdict, rows));
}

static bool wants_hidden(const visit *v, const specrt_trace_record *r) {
    return v->e->d_hidden > 0 && v->e->d_hidden == v->s->info->d_target && r->target_hidden;
}

/* A cycle as it was recorded. */
static void learn_recorded(visit *v, const replay_cycle *c) {
    const specrt_trace_record *r = &c->r;
    specrt_draft draft = {
        r->n_nodes, r->tree_tokens, r->tree_parents, c->depths, c->masks, r->tree_logprobs, NULL,
        0};
    specrt_verdict verdict;
    specrt_target_rows rows = {.ids = c->best, .k = replay_best_width(v->s->info)};
    const float *hidden = NULL;
    verdict.n = r->n;
    memcpy(verdict.tokens, r->tokens, (size_t)r->n * sizeof *verdict.tokens);
    memcpy(verdict.nodes, r->nodes, (size_t)r->n * sizeof *verdict.nodes);
    if (wants_hidden(v, r))
        hidden = widen(v->scratch, r->target_hidden, r->nodes, r->n, v->s->info->d_target);
    observe(v, &draft, &verdict, &rows, hidden);
}

/* A cycle as it might have been: first the path, then what the list held of the recorded trees beside it. */
typedef struct replica {
    int32_t n, k;
    int32_t tokens[REPLAY_NODES], parents[REPLAY_NODES], depths[REPLAY_NODES],
        best[REPLAY_NODES * REPLAY_BEST];
    uint64_t masks[REPLAY_NODES];
    float logprobs[REPLAY_NODES];
    specrt_verdict verdict;
} replica;

static int32_t add_node(replica *p, const replay_cycle *c, int32_t node, int32_t parent) {
    int32_t i = p->n++;
    p->tokens[i] = c->r.tree_tokens[node];
    p->parents[i] = parent;
    p->depths[i] = parent < 0 ? 0 : p->depths[parent] + 1;
    p->masks[i] = (parent < 0 ? 0 : p->masks[parent]) | (uint64_t)1 << i;
    p->logprobs[i] = 0;
    memcpy(p->best + (int64_t)i * p->k, c->best + (int64_t)node * p->k,
           (size_t)p->k * sizeof *p->best);
    return i;
}

/* The rows of a cycle from `first` to `last` as a path. @return false: it is longer than any tree's. */
static bool add_path(const visit *v, replica *p, place last) {
    place at = v->first;
    for (; at.cycle <= last.cycle; at.cycle++, at.row = 0) {
        const replay_cycle *c = &v->s->cycles[at.cycle];
        int32_t end = at.cycle == last.cycle ? last.row : c->r.n - 1;
        for (; at.row <= end; at.row++) {
            if (p->n == REPLAY_NODES) return false;
            int32_t i = add_node(p, c, c->r.nodes[at.row], p->n - 1);
            p->verdict.tokens[i] = c->r.tokens[at.row];
            p->verdict.nodes[i] = i;
        }
    }
    p->verdict.n = p->n;
    return true;
}

static void add_trees(const visit *v, replica *p, place last) {
    int32_t on_path = 0, most = v->r->trees[0].num_draft_tokens;
    place at = v->first;
    for (; at.cycle <= last.cycle; at.cycle++, at.row = 0) {
        const replay_cycle *c = &v->s->cycles[at.cycle];
        int32_t places[REPLAY_NODES], top = c->r.nodes[at.row];
        int32_t end = at.cycle == last.cycle ? last.row : c->r.n - 1;
        memset(places, 0xff, sizeof places);
        for (; at.row <= end; at.row++) places[c->r.nodes[at.row]] = on_path++;
        for (int32_t i = top + 1; i < c->r.n_nodes && p->n < most; i++) {
            int32_t parent = places[c->r.tree_parents[i]];
            if (places[i] >= 0 || parent < 0) continue;
            if (holds(v, c->r.tree_tokens[i], p->depths[parent]))
                places[i] = add_node(p, c, i, parent);
        }
    }
}

static void learn(visit *v, place last) {
    const replay_cycle *c = &v->s->cycles[last.cycle];
    v->sums.n_cycles++;
    if (v->recorded) {
        learn_recorded(v, c);
        return;
    }
    replica p;
    p.n = 0;
    p.k = replay_best_width(v->s->info);
    if (!add_path(v, &p, last)) return;
    add_trees(v, &p, last);
    specrt_draft draft = {p.n, p.tokens, p.parents, p.depths, p.masks, p.logprobs, NULL, 0};
    specrt_target_rows rows = {.ids = p.best, .k = p.k};
    const float *hidden = NULL;
    int32_t d = v->s->info->d_target, node = p.verdict.n - 1; /* events read the last one alone */
    if (wants_hidden(v, &c->r))
        hidden = widen(v->scratch, c->r.target_hidden + (int64_t)last.row * d, &node, 1, d);
    observe(v, &draft, &p.verdict, &rows, hidden);
}

/* ---- a sequence ---- */

static void walk_tree(visit *v, int32_t i, int t, replay_drafted drafted) {
    replay_walk *w = &v->walks[t];
    const replay_levels *levels = v->e->head ? v->e->head->levels : v->r->levels;
    int32_t level = w->level, n = walk_step(w, &v->r->trees[t], &levels[t], i, drafted);
    if (level < v->r->trees[t].num_steps) {
        v->levels[t].reached[level]++;
        v->levels[t].accepted[level] += n == 0;
    }
    if (n == 0) return;
    int64_t began = v->since + 1 - n;
    replay_span *span = &v->spans[span_of(began > 0 ? began : 0)];
    span->n_emitted[t] += n;
    span->n_cycles[t]++;
}

static void look_at_token(visit *v, place at) {
    const replay_cycle *c = &v->s->cycles[at.cycle];
    bool begins = v->walks[0].n == 0;
    if (begins) v->first = at;
    if (begins && v->e->routed) route(v, c);
    if (at.row == 0) v->slack = NAN;
    bool held = holds(v, c->r.tokens[at.row], v->walks[0].level);
    int32_t at_place = look_at_best(v, c, at.row);
    replay_span *span = &v->spans[span_of(v->since)];
    v->sums.n_covered += held;
    span->n_tokens++;
    span->n_covered += held;
    for (int t = 0; t < v->r->n_trees; t++)
        walk_tree(v, at.row, t, drafted_by(v, c, at.row, held, at_place, t));
    v->since++;
    if (v->session && v->walks[0].n == 0) learn(v, at);
}

static void begin(visit *v) {
    const specrt_trace_record *p = &v->s->prompt;
    specrt_target_rows rows = {.ids = p->top_ids, .k = v->s->info->n_top};
    bool should_continue = v->r->params.stream && v->s->number > 0;
    const specrt_request request = {.begin =
                                        should_continue ? SPECRT_BEGIN_TURN : SPECRT_BEGIN_NEW};
    check(v, specrt_session_begin(v->session, &request));
    if (v->status == SPECRT_STATUS_OK)
        check(v, specrt_session_prefill(v->session, p->tokens, p->n, p->top_ids ? &rows : NULL));
    if (v->s->n_cycles > 0 && v->status == SPECRT_STATUS_OK)
        check(v, specrt_session_start(v->session, v->s->cycles[0].r.tree_tokens[0]));
}

/* Sums over sequences are of whole numbers, so that it does not matter who comes first. */
static void merge(const visit *v) {
    replay *r = v->r;
    replay_way *e = v->e;
    e->sums[v->s->number] = v->sums;
    for (int t = 0; t < r->n_trees; t++)
        e->walked[(int64_t)v->s->number * r->n_trees + t] =
            (replay_walked){(int32_t)v->walks[t].n_emitted, (int32_t)v->walks[t].n_cycles};
    pthread_mutex_lock(&r->lock);
    for (int t = 0; t < r->n_trees; t++)
        for (int i = 0; i < REPLAY_POSITIONS; i++) {
            e->levels[t].reached[i] += v->levels[t].reached[i];
            e->levels[t].accepted[i] += v->levels[t].accepted[i];
        }
    for (int k = 0; k < REPLAY_SPANS; k++) {
        e->spans[k].n_tokens += v->spans[k].n_tokens;
        e->spans[k].n_covered += v->spans[k].n_covered;
        for (int t = 0; t < r->n_trees; t++) {
            e->spans[k].n_emitted[t] += v->spans[k].n_emitted[t];
            e->spans[k].n_cycles[t] += v->spans[k].n_cycles[t];
        }
    }
    pthread_mutex_unlock(&r->lock);
}

static int64_t rows_of(const visit *v) {
    specrt_session_stats stats;
    specrt_session_get_stats(v->session, &stats);
    return stats.n_rows;
}

specrt_status visit_sequence(replay *r, replay_way *e, const replay_sequence *s,
                             specrt_session *session, float *scratch) {
    visit v = {.r = r, .e = e, .s = s, .session = session, .scratch = scratch, .since = s->topic};
    v.recorded = s->info->policy && strcmp(s->info->policy, e->text) == 0;
    if (session) begin(&v);
    if (session) v.sums.n_rows = -rows_of(&v);
    for (place at = {0, 0}; at.cycle < s->n_cycles && v.status == SPECRT_STATUS_OK; at.cycle++)
        for (at.row = 0; at.row < s->cycles[at.cycle].r.n; at.row++) look_at_token(&v, at);
    if (session)
        v.sums.n_rows += rows_of(&v);
    else
        v.sums.n_rows = (v.sums.n_cycles = s->n_cycles) * (int64_t)s->info->n_vocab;
    merge(&v);
    return v.status;
}
