/* replay.c : recorded cycles through the sessions of any number of policies. Sequences are read in batches
 * of bounded size; then each policy sees each sequence as a decoder would have shown it: prompt, first
 * token, then cycle by cycle the tree, what was emitted and the target's best tokens. Its lists are
 * looked at before it learns. */
#include "replay_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "cli.h"
#include "io.h"
#include "parallel.h"
#include "progress.h"

enum {
    BATCH_BYTES = 64 << 20,
    BLOCK_BYTES = 1 << 20,
    SOURCES_READ = 16, /* best tokens that a source reads at most */
    DRAFT_BEST = 10
};

static const int64_t edges[REPLAY_SPANS] = {0,   32,  64,
                                            128, 256, 512}; /* tokens since the topic began */

static specrt_status no_memory(specrt_error *err) {
    return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "no memory to replay");
}

static bool grow(void **array, int64_t n, int64_t *capacity, size_t bytes) {
    if (n < *capacity) return true;
    int64_t wanted = 2 * n + 64;
    void *grown = realloc(*array, (size_t)wanted * bytes);
    if (!grown) return false;
    *array = grown;
    *capacity = wanted;
    return true;
}

/* ---- a batch of sequences in memory ---- */

typedef struct block {
    struct block *next;
    size_t n, capacity;
} block;

typedef struct batch {
    block *blocks;
    size_t n_bytes;
    replay_sequence *sequences;
    int64_t n, capacity;
    bool failed; /* out of memory */
} batch;

static void *batch_take(batch *b, size_t n) {
    n = (n + 15) & ~(size_t)15;
    if (!b->blocks || b->blocks->capacity - b->blocks->n < n) {
        size_t capacity = n > BLOCK_BYTES ? n : BLOCK_BYTES;
        block *fresh = (block *)malloc(sizeof *fresh + 16 + capacity);
        if (!fresh) return b->failed = true, NULL;
        *fresh = (block){b->blocks, 0, capacity};
        b->blocks = fresh;
    }
    void *p = (char *)(b->blocks + 1) + b->blocks->n;
    b->blocks->n += n;
    b->n_bytes += n;
    return p;
}

static void *batch_copy(batch *b, const void *array, int64_t n, size_t bytes) {
    size_t size = (size_t)n * bytes;
    void *p = array ? batch_take(b, size) : NULL;
    if (p) memcpy(p, array, size);
    return p;
}

static void batch_clear(batch *b) {
    for (block *next; b->blocks; b->blocks = next) {
        next = b->blocks->next;
        free(b->blocks);
    }
    for (int64_t i = 0; i < b->n; i++) free(b->sequences[i].cycles);
    b->n = 0;
    b->n_bytes = 0;
}

/* ---- reading ---- */

static specrt_trace_record copy_record(batch *b, const specrt_trace_info *info,
                                       const specrt_trace_record *r, bool hidden) {
    specrt_trace_record c = *r;
    int64_t n = r->n, top = n * info->n_top, draft_top = n * info->n_draft_top;
    c.tokens = batch_copy(b, r->tokens, n, 4);
    c.nodes = batch_copy(b, r->nodes, n, 4);
    c.tree_tokens = batch_copy(b, r->tree_tokens, r->n_nodes, 4);
    c.tree_parents = batch_copy(b, r->tree_parents, r->n_nodes, 4);
    c.tree_logprobs = batch_copy(b, r->tree_logprobs, r->n_nodes, 4);
    c.top_ids = batch_copy(b, r->top_ids, top, 4);
    c.top_logits = batch_copy(b, r->top_logits, top, 4);
    c.top_logsumexp = batch_copy(b, r->top_logsumexp, n, 4);
    c.draft_ids = batch_copy(b, r->draft_ids, draft_top, 4);
    c.draft_logits = batch_copy(b, r->draft_logits, draft_top, 4);
    c.draft_logsumexp = batch_copy(b, r->draft_logsumexp, n, 4);
    c.tree_top_ids = NULL; /* becomes part of `best` */
    c.target_hidden = hidden ? batch_copy(b, r->target_hidden, n * info->d_target, 2) : NULL;
    c.draft_hidden = hidden ? batch_copy(b, r->draft_hidden, n * info->d_draft, 2) : NULL;
    return c;
}

static int32_t best_width(const specrt_trace_info *info) {
    int32_t k = info->n_top > info->n_tree_top ? info->n_top : info->n_tree_top;
    return k < SOURCES_READ ? k : SOURCES_READ;
}

/* The target's best tokens at every node, as far as they were recorded. */
static void join_best(const specrt_trace_info *info, const specrt_trace_record *r,
                      replay_cycle *c) {
    int32_t k = best_width(info), n_top = info->n_top < k ? info->n_top : k;
    memset(c->best, 0xff, (size_t)(r->n_nodes * k) * sizeof *c->best);
    for (int32_t i = 0; r->tree_top_ids && i < r->n_nodes; i++)
        memcpy(c->best + (int64_t)i * k, r->tree_top_ids + (int64_t)i * info->n_tree_top,
               (size_t)(info->n_tree_top < k ? info->n_tree_top : k) * sizeof(int32_t));
    for (int32_t i = 0; r->top_ids && i < r->n; i++)
        memcpy(c->best + (int64_t)r->nodes[i] * k, r->top_ids + (int64_t)i * info->n_top,
               (size_t)n_top * sizeof(int32_t));
}

static void add_shape(replay_cycle *c) {
    for (int32_t i = 0; i < c->r.n_nodes; i++) {
        int32_t parent = c->r.tree_parents[i];
        c->depths[i] = parent < 0 ? 0 : c->depths[parent] + 1;
        c->masks[i] = (parent < 0 ? 0 : c->masks[parent]) | (uint64_t)1 << i;
    }
}

static void add_probs(const specrt_trace_info *info, replay_cycle *c) {
    const specrt_trace_record *r = &c->r;
    for (int32_t i = 0; i < r->n; i++)
        for (int32_t j = 0; j < info->n_top; j++) {
            int64_t at = (int64_t)i * info->n_top + j;
            c->probs[at] = r->top_ids[at] < 0 ? 0 : expf(r->top_logits[at] - r->top_logsumexp[i]);
        }
}

static void add_cycle(replay *r, batch *b, replay_sequence *s, const specrt_trace_record *record,
                      bool hidden) {
    const specrt_trace_info *info = s->info;
    int64_t capacity = s->capacity, nodes = record->n_nodes;
    b->failed |= !grow((void **)&s->cycles, s->n_cycles, &capacity, sizeof *s->cycles);
    s->capacity = (int32_t)capacity;
    if (b->failed) return;
    replay_cycle *c = &s->cycles[s->n_cycles];
    *c = (replay_cycle){.r = copy_record(b, info, record, hidden)};
    c->depths = batch_take(b, (size_t)nodes * sizeof *c->depths);
    c->masks = batch_take(b, (size_t)nodes * sizeof *c->masks);
    c->best = batch_take(b, (size_t)(nodes * best_width(info)) * sizeof *c->best);
    c->rows = batch_take(b, (size_t)record->n * sizeof *c->rows);
    if (record->top_ids && record->top_logits && record->top_logsumexp)
        c->probs = batch_take(b, (size_t)((int64_t)record->n * info->n_top) * sizeof(float));
    if (b->failed) return;
    join_best(info, record, c);
    add_shape(c);
    if (c->probs) add_probs(info, c);
    estimate_rows(r->trees, r->n_trees, info, c, r->levels);
    s->n_cycles++;
}

static int domain_of(replay *r, const char *name) {
    for (int i = 0; i < r->n_domains; i++)
        if (strcmp(r->domains[i], name) == 0) return i;
    char(*grown)[32] = realloc(r->domains, (size_t)(r->n_domains + 1) * sizeof *r->domains);
    if (!grown) return -1;
    r->domains = grown;
    snprintf(grown[r->n_domains], sizeof *grown, "%s", name);
    return r->n_domains++;
}

static void count_wanted(replay_shared *sum, const specrt_trace_info *info, const replay_cycle *c,
                         int32_t i) {
    for (int32_t j = 0; c->r.top_ids && j < info->n_top; j++) {
        bool there = c->r.top_ids[(int64_t)i * info->n_top + j] >= 0;
        sum->wanted[0] += there && j == 0;
        sum->wanted[1] += there;
    }
    for (int32_t j = 0; c->rows[i].known && j < info->n_draft_top; j++) {
        bool there = c->r.draft_ids[(int64_t)i * info->n_draft_top + j] >= 0;
        sum->wanted[2] += there && j < DRAFT_BEST;
        sum->wanted[3] += there;
    }
}

/* The shared sums of a sequence that is whole; in a stream its topic may go on. */
static bool finish_sequence(replay *r, replay_sequence *s) {
    if (!grow((void **)&r->shared, r->n_sequences, &r->capacity, sizeof *r->shared)) return false;
    replay_shared *sum = &r->shared[r->n_sequences];
    *sum = (replay_shared){.domain = s->domain, .n_cycles = s->n_cycles};
    for (int32_t k = 0; k < s->n_cycles; k++) {
        const replay_cycle *c = &s->cycles[k];
        const specrt_trace_info *info = s->info;
        sum->n_tokens += c->r.n;
        for (int64_t i = 0; c->probs && i < (int64_t)c->r.n * info->n_top; i++)
            sum->mass += (double)c->probs[i];
        for (int32_t i = 0; i < c->r.n; i++) count_wanted(sum, info, c, i);
    }
    bool goes_on = r->params.stream && s->domain == r->topic;
    s->topic = goes_on ? r->topic_tokens : 0;
    r->topic_tokens = s->topic + sum->n_tokens;
    r->topic = s->domain;
    s->number = (int32_t)r->n_sequences++;
    return true;
}

static replay_sequence *begin_sequence(replay *r, batch *b, const specrt_trace_info *info,
                                       const specrt_trace_record *record) {
    b->failed |= !grow((void **)&b->sequences, b->n, &b->capacity, sizeof *b->sequences);
    if (b->failed) return NULL;
    replay_sequence *s = &b->sequences[b->n++];
    *s = (replay_sequence){.info = info, .prompt = copy_record(b, info, record, false)};
    s->domain = domain_of(r, record->domain);
    b->failed |= s->domain < 0;
    return s;
}

/* ---- a policy over a sequence ---- */

typedef struct worker {
    int entrant; /* whose session it is; -1: none */
    specrt_session *session;
    float *hidden; /* [nodes, d] of a cycle */
    size_t n_hidden;
} worker;

typedef struct visit {
    replay *r;
    replay_entrant *e;
    const replay_sequence *s;
    specrt_session *session; /* NULL: the oracle */
    worker *w;
    replay_sums sums;
    replay_walk walks[REPLAY_TREES];
    replay_levels levels[REPLAY_TREES];
    replay_span spans[REPLAY_SPANS];
    int64_t since; /* tokens of the topic so far */
    bool recorded; /* with this policy */
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

/* What the list holds of what both models thought best. @return the token's place among the drafter's best
 * that the list holds. */
static int32_t look_at_best(visit *v, const replay_cycle *c, int32_t i) {
    const specrt_trace_info *info = v->s->info;
    int32_t n_top = info->n_top, n_draft = info->n_draft_top, n_held = 0, place = 0;
    for (int32_t j = 0; c->r.top_ids && j < n_top; j++) {
        int64_t at = (int64_t)i * n_top + j;
        if (!holds(v, c->r.top_ids[at], i)) continue;
        if (c->probs) v->sums.mass += (double)c->probs[at];
        v->sums.held[0] += j == 0;
        v->sums.held[1]++;
    }
    for (int32_t j = 0; c->rows[i].known && j < n_draft; j++) {
        if (j == c->rows[i].place) place = n_held;
        n_held += holds(v, c->r.draft_ids[(int64_t)i * n_draft + j], i);
        if (j + 1 == DRAFT_BEST || (j + 1 == n_draft && j < DRAFT_BEST)) v->sums.held[2] += n_held;
    }
    v->sums.held[3] += n_held;
    return c->rows[i].place < n_draft ? place : n_draft;
}

static replay_drafted drafted_by(const visit *v, const replay_row *row, bool held, int32_t place,
                                 int tree) {
    if (!held) return DRAFTED_NEVER;
    if (!row->known) return DRAFTED_UNKNOWN;
    bool fits = row->fits >> tree & 1;
    return fits && place < v->r->trees[tree].topk ? DRAFTED_YES : DRAFTED_NO;
}

static void walk_token(visit *v, const replay_cycle *c, int32_t i, bool held, int32_t place) {
    for (int t = 0; t < v->r->n_trees; t++) {
        replay_walk *w = &v->walks[t];
        replay_levels *levels = &v->levels[t];
        replay_drafted drafted = drafted_by(v, &c->rows[i], held, place, t);
        if (t == 0 && v->recorded) drafted = i + 1 < c->r.n ? DRAFTED_YES : DRAFTED_NO;
        int32_t level = w->level, n = walk_step(w, &v->r->trees[t], &v->r->levels[t], i, drafted);
        if (level < v->r->trees[t].num_steps) {
            levels->reached[level]++;
            levels->accepted[level] += n == 0;
        }
        if (n == 0) continue;
        int64_t first = v->since + 1 - n;
        replay_span *span = &v->spans[span_of(first > 0 ? first : 0)];
        span->n_emitted[t] += n;
        span->n_cycles[t]++;
    }
}

static void look_at_token(visit *v, const replay_cycle *c, int32_t i) {
    bool held = holds(v, c->r.tokens[i], i);
    int32_t place = look_at_best(v, c, i);
    replay_span *span = &v->spans[span_of(v->since)];
    v->sums.n_covered += held;
    span->n_tokens++;
    span->n_covered += held;
    walk_token(v, c, i, held, place);
    v->since++;
}

/* f16 rows of what was emitted, as f32 at their nodes, or one after another where there are no nodes. */
static const float *widen(worker *w, const uint16_t *half, const int32_t *nodes, int32_t n,
                          int32_t n_rows, int32_t d) {
    size_t size = (size_t)n_rows * (size_t)d;
    if (size > w->n_hidden) {
        free(w->hidden);
        w->hidden = (float *)malloc(size * sizeof(float));
        w->n_hidden = w->hidden ? size : 0;
    }
    if (!w->hidden) return NULL;
    for (int32_t i = 0; i < n; i++)
        specrt_row_decode(SPECRT_DTYPE_F16, half + (int64_t)i * d, d,
                          w->hidden + (size_t)(nodes ? nodes[i] : i) * (size_t)d);
    return w->hidden;
}

/* The tokens that a level extends: the tree's nodes there. Sources that route by hidden states are given
 * the path alone, since the others' were not recorded. */
static void route(visit *v, const replay_cycle *c) {
    const specrt_trace_record *r = &c->r;
    const specrt_trace_info *info = v->s->info;
    const float *hidden = NULL;
    int32_t n_levels = r->n_nodes > 1 ? v->r->trees[0].num_steps : 0, topk = v->r->trees[0].topk;
    if (v->e->reads_hidden && r->draft_hidden)
        hidden = widen(v->w, r->draft_hidden, NULL, r->n, r->n, info->d_draft);
    int32_t tokens[SPECRT_TREE_MAX_TOPK], parents[SPECRT_TREE_MAX_TOPK] = {0}, last = 0;
    float logprobs[SPECRT_TREE_MAX_TOPK];
    specrt_beam beam = {1, tokens, parents, logprobs};
    for (int32_t level = 0; level < n_levels; level++) {
        int32_t n = 0, i = level < r->n && c->rows[level].known ? level : last;
        for (int32_t node = 0; node < r->n_nodes && !v->e->reads_hidden && n < topk; node++)
            if (c->depths[node] == level) {
                tokens[n] = r->tree_tokens[node];
                logprobs[n++] = r->tree_logprobs ? r->tree_logprobs[node] : 0;
            }
        if (n == 0 && (v->e->reads_hidden || level == 0)) {
            tokens[0] = r->tree_tokens[r->nodes[i]];
            logprobs[0] = r->tree_logprobs ? r->tree_logprobs[r->nodes[i]] : 0;
            n = 1;
        }
        if (n > 0) beam.n = n;
        last = i;
        if (hidden && i > 0)
            specrt_session_feed(v->session, hidden + (int64_t)(i - 1) * info->d_draft);
        specrt_session_route(v->session, level, &beam,
                             hidden ? hidden + (int64_t)i * info->d_draft : NULL);
    }
}

static void learn(visit *v, const replay_cycle *c) {
    const specrt_trace_record *r = &c->r;
    const specrt_trace_info *info = v->s->info;
    specrt_draft draft = {r->n_nodes, r->tree_tokens, r->tree_parents,
                          c->depths,  c->masks,       r->tree_logprobs};
    specrt_verdict verdict;
    specrt_rows rows = {.ids = c->best, .k = best_width(info)};
    verdict.n = r->n;
    memcpy(verdict.tokens, r->tokens, (size_t)r->n * sizeof *verdict.tokens);
    memcpy(verdict.nodes, r->nodes, (size_t)r->n * sizeof *verdict.nodes);
    if (v->e->d_hidden && v->e->d_hidden == info->d_target && r->target_hidden) {
        rows.hidden = widen(v->w, r->target_hidden, r->nodes, r->n, r->n_nodes, info->d_target);
        rows.d_hidden = info->d_target;
    }
    specrt_session_observe(v->session, &draft, &verdict, &rows);
}

static void begin(visit *v) {
    const specrt_trace_record *p = &v->s->prompt;
    specrt_rows rows = {.ids = p->top_ids, .k = v->s->info->n_top};
    if (v->r->params.stream && v->s->number > 0)
        specrt_session_turn(v->session, 0);
    else
        specrt_session_begin(v->session);
    specrt_session_prefill(v->session, p->tokens, p->n, p->top_ids ? &rows : NULL);
    if (v->s->n_cycles > 0) specrt_session_start(v->session, v->s->cycles[0].r.tree_tokens[0]);
}

/* Sums over sequences are of whole numbers, so that it does not matter who comes first. */
static void merge(const visit *v) {
    replay *r = v->r;
    replay_entrant *e = v->e;
    e->sums[v->s->number] = v->sums;
    for (int t = 0; t < r->n_trees; t++)
        e->walked[(int64_t)v->s->number * r->n_trees + t] =
            (replay_walked){(int32_t)v->walks[t].n_emitted, (int32_t)v->walks[t].n_cycles};
    pthread_mutex_lock(&r->lock);
    for (int t = 0; t < r->n_trees; t++)
        for (int i = 0; i < REPLAY_STEPS; i++) {
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

static void visit_sequence(visit *v) {
    specrt_session_stats before = {0}, after = {0};
    const char *recorded = v->s->info->policy;
    v->since = v->s->topic;
    v->recorded = recorded && strcmp(recorded, v->e->text) == 0;
    if (v->session) begin(v);
    if (v->session) specrt_session_get_stats(v->session, &before);
    for (int32_t k = 0; k < v->s->n_cycles; k++) {
        const replay_cycle *c = &v->s->cycles[k];
        if (v->e->routed) route(v, c);
        for (int32_t i = 0; i < c->r.n; i++) look_at_token(v, c, i);
        if (v->session) learn(v, c);
    }
    if (v->session) specrt_session_get_stats(v->session, &after);
    v->sums.n_rows =
        v->session ? after.n_rows - before.n_rows : (int64_t)v->s->n_cycles * v->s->info->n_vocab;
    merge(v);
}

/* ---- all policies over a batch ---- */

typedef struct job {
    replay *r;
    const batch *b;
    worker *workers; /* [threads] */
    bool failed;
} job;

static void run_now(void *user, specrt_task *task) {
    (void)user;
    task->run(task);
}

static specrt_status open_session(const replay *r, const replay_entrant *e, specrt_session **out,
                                  specrt_error *err) {
    specrt_session_params params = {
        .tree = r->trees[0], .n_logits = r->infos[0]->n_vocab, .submit = run_now};
    *out = NULL;
    return e->policy ? specrt_session_create(e->policy, &params, NULL, out, err) : SPECRT_STATUS_OK;
}

/* A worker keeps the session of the policy that it is at. */
static specrt_session *session_of(job *j, worker *w, int entrant) {
    replay_entrant *e = &j->r->entrants[entrant];
    if (e->serial) return e->session;
    if (w->entrant == entrant) return w->session;
    specrt_session_close(w->session);
    w->entrant = entrant;
    if (open_session(j->r, e, &w->session, NULL) != SPECRT_STATUS_OK)
        w->entrant = -1, j->failed = true;
    return w->session;
}

static void run_visit(job *j, worker *w, int entrant, int64_t sequence) {
    visit v = {.r = j->r, .e = &j->r->entrants[entrant], .s = &j->b->sequences[sequence], .w = w};
    v.session = session_of(j, w, entrant);
    if (v.session || !v.e->policy) visit_sequence(&v);
}

/* One policy and sequence a block, policies one after another; one whose sessions remember takes all of its
 * sequences in the first. */
static void run_block(void *arg, int64_t at, int number) {
    job *j = (job *)arg;
    int entrant = (int)(at / j->b->n);
    int64_t sequence = at % j->b->n;
    bool serial = j->r->entrants[entrant].serial;
    for (int64_t i = 0; serial && sequence == 0 && i < j->b->n; i++)
        run_visit(j, &j->workers[number], entrant, i);
    if (!serial) run_visit(j, &j->workers[number], entrant, sequence);
}

static specrt_status reserve_sums(replay *r, specrt_error *err) {
    size_t n = (size_t)r->n_sequences;
    for (int i = 0; i < r->n_entrants; i++) {
        replay_entrant *e = &r->entrants[i];
        replay_sums *sums = (replay_sums *)realloc(e->sums, n * sizeof *sums);
        if (sums) e->sums = sums;
        size_t bytes = n * (size_t)r->n_trees * sizeof(replay_walked);
        replay_walked *walked = (replay_walked *)realloc(e->walked, bytes);
        if (walked) e->walked = walked;
        if (!sums || !walked) return no_memory(err);
    }
    return SPECRT_STATUS_OK;
}

static specrt_status run_batch(replay *r, batch *b, specrt_error *err) {
    int threads = r->params.threads > 0 ? r->params.threads : 1;
    if (b->n == 0) return SPECRT_STATUS_OK;
    if (b->failed) return no_memory(err);
    TRY(reserve_sums(r, err));
    job j = {.r = r, .b = b, .workers = (worker *)calloc((size_t)threads, sizeof *j.workers)};
    if (!j.workers) return no_memory(err);
    for (int i = 0; i < threads; i++) j.workers[i].entrant = -1;
    parallel_for(threads, r->n_entrants * b->n, run_block, &j);
    for (int i = 0; i < threads; i++) {
        specrt_session_close(j.workers[i].session);
        free(j.workers[i].hidden);
    }
    free(j.workers);
    batch_clear(b);
    return j.failed ? no_memory(err) : SPECRT_STATUS_OK;
}

/* ---- a pass over the traces ---- */

static specrt_status add_record(replay *r, batch *b, const specrt_trace_info *info,
                                const specrt_trace_record *record, const char *name,
                                specrt_error *err) {
    bool begins = record->kind != SPECRT_TRACE_CYCLE;
    if (begins && r->open) {
        r->open = false;
        if (!finish_sequence(r, &b->sequences[b->n - 1])) return no_memory(err);
        if (b->n_bytes >= BATCH_BYTES) TRY(run_batch(r, b, err));
    }
    if (record->kind == SPECRT_TRACE_SEQUENCE)
        r->open = begin_sequence(r, b, info, record) != NULL;
    else if (record->kind == SPECRT_TRACE_CYCLE && !r->open)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: expected a sequence before its first cycle, found a cycle",
                                name);
    else if (record->kind == SPECRT_TRACE_CYCLE)
        add_cycle(r, b, &b->sequences[b->n - 1], record, r->keeps_hidden);
    return b->failed ? no_memory(err) : SPECRT_STATUS_OK;
}

static specrt_status read_trace(replay *r, batch *b, int i, specrt_error *err) {
    specrt_trace_record record = {.kind = SPECRT_TRACE_SEQUENCE};
    const char *name = r->params.traces[i];
    while (record.kind != SPECRT_TRACE_END) {
        TRY(specrt_trace_read(r->readers[i], &record, err));
        TRY(add_record(r, b, r->infos[i], &record, name, err));
    }
    r->cut |= specrt_trace_is_cut(r->readers[i]) != 0;
    return SPECRT_STATUS_OK;
}

static specrt_status read_all(replay *r, specrt_error *err) {
    batch b = {0};
    progress bar;
    specrt_status status = SPECRT_STATUS_OK;
    progress_begin(&bar, r->params.progress, "replay", "traces", (uint64_t)r->params.n_traces);
    for (int i = 0; status == SPECRT_STATUS_OK && i < r->params.n_traces; i++) {
        status = read_trace(r, &b, i, err);
        progress_update(&bar, (uint64_t)i + 1);
    }
    if (status == SPECRT_STATUS_OK) status = run_batch(r, &b, err);
    progress_end(&bar);
    batch_clear(&b);
    free(b.sequences);
    if (status == SPECRT_STATUS_OK && r->n_sequences == 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT, "%s: no sequence is in it",
                                r->params.traces[0]);
    return status;
}

specrt_status replay_run(const replay_params *params, replay **out, specrt_error *err) {
    replay *r = (replay *)calloc(1, sizeof *r);
    *out = NULL;
    if (!r) return no_memory(err);
    r->params = *params;
    r->topic = -1;
    pthread_mutex_init(&r->lock, NULL);
    specrt_status status = replay_open(r, err);
    for (int i = 0; status == SPECRT_STATUS_OK && i < r->n_entrants; i++)
        if (r->entrants[i].serial)
            status = open_session(r, &r->entrants[i], &r->entrants[i].session, err);
    if (status == SPECRT_STATUS_OK) status = read_all(r, err);
    if (status == SPECRT_STATUS_OK)
        *out = r;
    else
        replay_free(r);
    return status;
}
