/* replay.c : one pass over traces. Sequences are read in batches of bounded size; then each policy visits
 * each of them, on all cores. */
#include "impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/progress.h"

enum { BATCH_BYTES = 8 << 20, BLOCK_BYTES = 1 << 20 };

/* ---- a batch of sequences in memory ---- */

struct block {
    struct block *next;
    size_t n, capacity;
};

static block *batch_block(replay_batch *b, size_t n) {
    block *found = b->spare;
    if (found && found->capacity >= n) return b->spare = found->next, found;
    size_t capacity = n > BLOCK_BYTES ? n : BLOCK_BYTES;
    found = (block *)malloc(sizeof *found + 16 + capacity);
    if (found) found->capacity = capacity;
    return found;
}

void *replay_take(replay_batch *b, size_t n) {
    n = (n + 15) & ~(size_t)15;
    if (!b->blocks || b->blocks->capacity - b->blocks->n < n) {
        block *fresh = batch_block(b, n);
        if (!fresh) return b->failed = true, NULL;
        fresh->next = b->blocks;
        fresh->n = 0;
        b->blocks = fresh;
    }
    void *p = (char *)(b->blocks + 1) + b->blocks->n;
    b->blocks->n += n;
    b->n_bytes += n;
    return p;
}

static void *batch_copy(replay_batch *b, const void *array, int64_t n, size_t bytes) {
    size_t size = (size_t)n * bytes;
    void *p = array ? replay_take(b, size) : NULL;
    if (p) memcpy(p, array, size);
    return p;
}

static void batch_clear(replay_batch *b) {
    for (block *next; b->blocks; b->blocks = next) {
        next = b->blocks->next;
        b->blocks->next = b->spare;
        b->spare = b->blocks;
    }
    for (int64_t i = 0; i < b->n; i++) free(b->sequences[i].cycles);
    b->n = 0;
    b->n_bytes = 0;
}

static void batch_free(replay_batch *b) {
    batch_clear(b);
    for (block *next; b->spare; b->spare = next) {
        next = b->spare->next;
        free(b->spare);
    }
    free(b->sequences);
}

/* ---- reading ---- */

static specrt_trace_record copy_record(replay_batch *b, const specrt_trace_info *info,
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

/* The target's best tokens at every node, as far as they were recorded. */
static void join_best(const specrt_trace_info *info, const specrt_trace_record *r,
                      replay_cycle *c) {
    int32_t k = replay_best_width(info), n_top = info->n_top < k ? info->n_top : k;
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

static void add_cycle(replay *r, replay_batch *b, replay_sequence *s,
                      const specrt_trace_record *record, bool hidden) {
    const specrt_trace_info *info = s->info;
    int64_t nodes = record->n_nodes;
    replay_cycle *c = (replay_cycle *)sl_more(&s->cycles, (size_t)s->n_cycles, sizeof *c);
    b->failed |= !c;
    if (b->failed) return;
    *c = (replay_cycle){.r = copy_record(b, info, record, hidden)};
    c->depths = replay_take(b, (size_t)nodes * sizeof *c->depths);
    c->masks = replay_take(b, (size_t)nodes * sizeof *c->masks);
    c->best = replay_take(b, (size_t)(nodes * replay_best_width(info)) * sizeof *c->best);
    c->rows = replay_take(b, (size_t)record->n * sizeof *c->rows);
    float *room = replay_take(b, (size_t)(record->n * r->n_trees) * sizeof *room);
    if (record->top_ids && record->top_logits && record->top_logsumexp)
        c->probs = replay_take(b, (size_t)((int64_t)record->n * info->n_top) * sizeof(float));
    if (b->failed) return;
    for (int32_t i = 0; i < record->n; i++) c->rows[i].room = room + (int64_t)i * r->n_trees;
    join_best(info, record, c);
    add_shape(c);
    if (c->probs) add_probs(info, c);
    estimate_rows(r->trees, r->n_trees, info, c, r->levels);
    s->n_cycles++;
}

static int domain_of(replay *r, const char *name) {
    for (int i = 0; i < r->n_domains; i++)
        if (strcmp(r->domains[i], name) == 0) return i;
    char(*domain)[32] = sl_more(&r->domains, (size_t)r->n_domains, sizeof *domain);
    if (!domain) return -1;
    snprintf(*domain, sizeof *domain, "%s", name);
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
        sum->wanted[2] += there && j < REPLAY_DRAFT_BEST;
        sum->wanted[3] += there;
    }
}

/* The shared sums of a sequence that is whole; in a stream its topic may go on. */
static bool finish_sequence(replay *r, replay_batch *b, replay_sequence *s) {
    if (!replay_rescore(r, b, s)) return false;
    replay_shared *sum = (replay_shared *)sl_more(&r->shared, (size_t)r->n_sequences, sizeof *sum);
    if (!sum) return false;
    *sum = (replay_shared){
        .info = s->info, .domain = s->domain, .n_cycles = s->n_cycles, .n_prompt = s->prompt.n};
    for (int32_t k = 0; k < s->n_cycles; k++) {
        const replay_cycle *c = &s->cycles[k];
        const specrt_trace_info *info = s->info;
        sum->n_tokens += c->r.n;
        for (int64_t i = 0; c->probs && i < (int64_t)c->r.n * info->n_top; i++)
            sum->mass += (double)c->probs[i];
        for (int32_t i = 0; i < c->r.n; i++) count_wanted(sum, info, c, i);
    }
    s->topic = r->params.stream && s->domain == r->topic ? r->topic_tokens : 0;
    r->topic_tokens = s->topic + sum->n_tokens;
    r->topic = s->domain;
    s->number = (int32_t)r->n_sequences++;
    return true;
}

static replay_sequence *begin_sequence(replay *r, replay_batch *b, const specrt_trace_info *info,
                                       const specrt_trace_record *record) {
    b->failed |= !sl_reserve(&b->sequences, &b->capacity, (size_t)b->n + 1, sizeof *b->sequences);
    if (b->failed) return NULL;
    replay_sequence *s = &b->sequences[b->n++];
    *s = (replay_sequence){.info = info, .prompt = copy_record(b, info, record, false)};
    s->prompt.prompt_hidden = batch_copy(b, record->prompt_hidden, info->d_target, 2);
    r->untold |= !s->prompt.prompt_hidden;
    s->domain = domain_of(r, record->domain);
    b->failed |= s->domain < 0;
    return s;
}

/* ---- all policies over a batch ---- */

/* A worker keeps the session of the policy that it is at. */
typedef struct worker {
    int way; /* whose session it is; -1: none */
    specrt_session *session;
    float *scratch;
} worker;

typedef struct job {
    replay *r;
    const replay_batch *b;
    worker *workers;  /* [threads] */
    int failed;       /* the first of the policies that no session could be made of; -1: none */
    specrt_error err; /* its */
} job;

static void run_now(void *user, specrt_task *task) {
    (void)user;
    task->run(task);
}

static specrt_status open_session(const replay *r, const replay_way *e, specrt_session **out,
                                  specrt_error *err) {
    specrt_session_params params = {
        .tree = r->trees[0], .n_logits = r->infos[0]->n_vocab, .submit = run_now};
    *out = NULL;
    return e->policy ? specrt_session_create(e->policy, &params, NULL, out, err) : SPECRT_STATUS_OK;
}

/* The same policy's is told whatever the threads. */
static void note_failure(job *j, int way, const specrt_error *err) {
    pthread_mutex_lock(&j->r->lock);
    if (j->failed < 0 || way < j->failed) {
        j->failed = way;
        j->err = *err;
    }
    pthread_mutex_unlock(&j->r->lock);
}

static specrt_session *session_of(job *j, worker *w, int way) {
    replay_way *e = &j->r->ways[way];
    specrt_error err;
    if (e->serial) return e->session;
    if (w->way == way) return w->session;
    specrt_session_close(w->session);
    w->way = way;
    if (open_session(j->r, e, &w->session, &err) != SPECRT_STATUS_OK) note_failure(j, way, &err);
    return w->session;
}

static void run_visit(job *j, worker *w, int way, int64_t which) {
    replay_way *e = &j->r->ways[way];
    specrt_session *session = session_of(j, w, way);
    specrt_error err;
    if (!session && e->policy) return;
    replay_sequence seen = j->b->sequences[which], *s = &seen;
    if (e->head) seen.cycles = seen.rescored[e->head - j->r->heads];
    if (visit_sequence(j->r, e, s, session, w->scratch) == SPECRT_STATUS_OK) return;
    (void)specrt_error_set(&err, SPECRT_STATUS_BAD_INPUT,
                           "policy '%.60s': sequence %d: expected cycles that follow one another, "
                           "found one that a session refuses: %.300s",
                           e->text, s->number + 1, specrt_session_last_error(session)->msg);
    note_failure(j, way, &err);
}

/* One policy and sequence a block, policies one after another; one whose sessions remember takes all of its
 * sequences in the first. */
static void run_block(void *arg, int64_t at, int number) {
    job *j = (job *)arg;
    int way = (int)(at / j->b->n);
    int64_t which = at % j->b->n;
    bool serial = j->r->ways[way].serial;
    for (int64_t i = 0; serial && which == 0 && i < j->b->n; i++)
        run_visit(j, &j->workers[number], way, i);
    if (!serial) run_visit(j, &j->workers[number], way, which);
}

static specrt_status reserve_sums(replay *r, specrt_error *err) {
    size_t n = (size_t)r->n_sequences;
    for (int i = 0; i < r->n_ways; i++) {
        replay_way *e = &r->ways[i];
        replay_sums *sums = (replay_sums *)realloc(e->sums, n * sizeof *sums);
        if (sums) e->sums = sums;
        size_t bytes = n * (size_t)r->n_trees * sizeof(replay_walked);
        replay_walked *walked = (replay_walked *)realloc(e->walked, bytes);
        if (walked) e->walked = walked;
        if (!sums || !walked) return sl_error_no_memory_for(err, "a replay");
    }
    return SPECRT_STATUS_OK;
}

static specrt_status open_workers(job *j, int n, specrt_error *err) {
    j->workers = (worker *)calloc((size_t)n, sizeof *j->workers);
    if (!j->workers) return sl_error_no_memory_for(err, "a replay");
    for (int i = 0; i < n; i++) j->workers[i].way = -1;
    for (int i = 0; i < n; i++) TRY(replay_scratch(j->r, &j->workers[i].scratch, err));
    return SPECRT_STATUS_OK;
}

static void close_workers(job *j, int n) {
    for (int i = 0; j->workers && i < n; i++) {
        specrt_session_close(j->workers[i].session);
        free(j->workers[i].scratch);
    }
    free(j->workers);
}

specrt_status replay_run_batch(replay *r, replay_batch *b, specrt_error *err) {
    int threads = r->params.threads > 0 ? r->params.threads : 1;
    if (b->n == 0) return SPECRT_STATUS_OK;
    if (b->failed) return sl_error_no_memory_for(err, "a replay");
    TRY(reserve_sums(r, err));
    job j = {.r = r, .b = b, .failed = -1};
    specrt_status status = open_workers(&j, threads, err);
    if (status == SPECRT_STATUS_OK) sl_parallel_for(threads, r->n_ways * b->n, run_block, &j);
    close_workers(&j, threads);
    batch_clear(b);
    return j.failed < 0 ? status : specrt_error_set(err, j.err.status, "%s", j.err.msg);
}

/* ---- a pass over the traces ---- */

static specrt_status add_record(replay *r, replay_batch *b, const specrt_trace_info *info,
                                const specrt_trace_record *record, const char *name,
                                specrt_error *err) {
    bool begins = record->kind != SPECRT_TRACE_CYCLE;
    if (begins && r->open) {
        r->open = false;
        if (!finish_sequence(r, b, &b->sequences[b->n - 1]))
            return sl_error_no_memory_for(err, "a replay");
        if (b->n_bytes >= BATCH_BYTES) TRY(replay_run_batch(r, b, err));
    }
    if (record->kind == SPECRT_TRACE_SEQUENCE)
        r->open = begin_sequence(r, b, info, record) != NULL;
    else if (record->kind == SPECRT_TRACE_CYCLE && !r->open)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: expected a sequence before its first cycle, found a cycle",
                                name);
    else if (record->kind == SPECRT_TRACE_CYCLE && record->n > r->trees[0].num_steps + 1)
        return specrt_error_set(
            err, SPECRT_STATUS_BAD_INPUT,
            "%s: expected cycles of at most num_steps + 1 = %d tokens, found one of %d", name,
            (int)r->trees[0].num_steps + 1, (int)record->n);
    else if (record->kind == SPECRT_TRACE_CYCLE)
        add_cycle(r, b, &b->sequences[b->n - 1], record, r->keeps_hidden);
    return b->failed ? sl_error_no_memory_for(err, "a replay") : SPECRT_STATUS_OK;
}

static specrt_status read_trace(replay *r, replay_batch *b, int i, specrt_error *err) {
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
    replay_batch b = {0};
    progress bar;
    specrt_status status = SPECRT_STATUS_OK;
    sl_progress_begin(&bar, r->params.progress, "replay", "traces", (uint64_t)r->params.n_traces);
    for (int i = 0; status == SPECRT_STATUS_OK && i < r->params.n_traces; i++) {
        status = read_trace(r, &b, i, err);
        sl_progress_update(&bar, (uint64_t)i + 1);
    }
    if (status == SPECRT_STATUS_OK) status = replay_run_batch(r, &b, err);
    sl_progress_end(&bar);
    batch_free(&b);
    if (status == SPECRT_STATUS_OK && r->n_sequences == 0)
        return specrt_error_set(
            err, SPECRT_STATUS_BAD_INPUT,
            r->cut ? "%s: expected a sequence, found none before the trace is cut short"
                   : "%s: expected a sequence, found none; record prompts",
            r->params.traces[0]);
    return status;
}

specrt_status replay_run(const replay_params *params, replay **out, specrt_error *err) {
    replay *r = (replay *)calloc(1, sizeof *r);
    *out = NULL;
    if (!r) return sl_error_no_memory_for(err, "a replay");
    r->params = *params;
    r->topic = -1;
    pthread_mutex_init(&r->lock, NULL);
    specrt_status status = replay_open(r, err);
    for (int i = 0; status == SPECRT_STATUS_OK && i < r->n_ways; i++)
        if (r->ways[i].serial) status = open_session(r, &r->ways[i], &r->ways[i].session, err);
    if (status == SPECRT_STATUS_OK) status = read_all(r, err);
    if (status == SPECRT_STATUS_OK)
        *out = r;
    else
        replay_free(r);
    return status;
}
