/* retrieve.c : owns EvoSpec's retrieval (docs/methods/retrieve.md): when the target emits a
 * token that could not have been drafted, that token, what the target thought likely there, what lies
 * near and what often follows those come into a small adaptive cache. Refuses an index of another head;
 * tokens that may not be proposed are passed over.
 *
 * A cycle becomes a record, records are worked off in order, and what they change is taken over by the
 * session between cycles. Who works them off, the session at once or a task on another thread, changes
 * nothing but when: the cache depends on the records alone. */
#include "sources/retrieve.h"
#include "core/base.h"
#include "core/os.h"
#include "core/bundle.h"
#include "core/head.h"
#include "core/pool.h"
#include "sources/source.h"
#include "sources/arc.h"

static const specrt__source_option specrt__retrieve_options[] = {
    {"sem", "logits hnsw_h hnsw_w", 0, 0, 0},
    {"graph", "off on", 0, 0, 1},
    {"keep", "off on", 0, 0, 0},
    {"mode", "sync async", 0, 0, 0},
    {"prompt", "off tokens best", 0, 0, 0},
};
SPECRT__SOURCE_FITS(specrt__retrieve_options, SPECRT__RETRIEVE_OPTIONS);

/* --- what a policy's sessions share --- */

/* The head that was indexed, or NULL where that is not at hand: the drafter's is another. */
static specrt_status specrt__retrieve_target(const specrt_bundle *bundle, const specrt_head *head,
                                             const specrt_head *target, const specrt_head **out,
                                             specrt_error *err) {
    const specrt_ident *ident = specrt_bundle_ident(bundle);
    *out = target;
    if (target && target->row_of)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "target: expected row i to be token i, found rows with ids");
    if (target) return specrt__head_check(bundle, &target->desc, err);
    bool same = ident && ident->head_rows > 0 && !head->row_of &&
                specrt__head_check(bundle, &head->desc, NULL) == SPECRT_STATUS_OK;
    if (same) *out = head;
    return SPECRT_STATUS_OK;
}

static specrt_status specrt__retrieve_resolve_index(const specrt_bundle *bundle,
                                                    const specrt_head *head,
                                                    const specrt_head *target, int32_t sem,
                                                    specrt_hnsw *out, specrt_error *err) {
    if (!bundle)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_SECTION_MISSING,
                                "retrieve: needs a bundle with section 'hnsw', or @sem=logits; "
                                "hnsw-build builds it");
    SPECRT__TRY(specrt__retrieve_target(bundle, head, target, &target, err));
    if (sem == SPECRT__RETRIEVE_HNSW_W && !target)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "retrieve: sem=hnsw_w searches with rows of the target's "
                                "head: expected it in specrt_policy_desc.target, found NULL");
    return specrt_bundle_hnsw(bundle, target, out, err);
}

static specrt_status specrt__retrieve_resolve(const specrt__source_request *request,
                                              specrt__retrieve_params *out, specrt_error *err) {
    const specrt_bundle *bundle = request->bundle;
    const int32_t *options = request->options;
    out->size = request->size;
    out->sem = options[SPECRT__RETRIEVE_SEM];
    out->prompt = options[SPECRT__RETRIEVE_PROMPT];
    out->keep = options[SPECRT__RETRIEVE_KEEP] != 0;
    out->async = options[SPECRT__RETRIEVE_MODE] != 0;
    if (out->sem != SPECRT__RETRIEVE_LOGITS)
        SPECRT__TRY(specrt__retrieve_resolve_index(bundle, request->head, request->desc->target,
                                                   out->sem, &out->index, err));
    if (!options[SPECRT__RETRIEVE_GRAPH]) return SPECRT_STATUS_OK;
    if (!bundle)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_SECTION_MISSING,
                                "retrieve: needs a bundle with section 'cograph', or @graph=off; "
                                "cograph-build builds it");
    return specrt_bundle_cograph(bundle, &out->graph, err);
}

static specrt_status specrt__retrieve_share(const specrt__source_request *request,
                                            specrt__source_shared *out, specrt_error *err) {
    const specrt_env *env = &request->head->compute.env;
    specrt__retrieve_params params;
    memset(&params, 0, sizeof params);
    SPECRT__TRY(specrt__retrieve_resolve(request, &params, err));
    specrt__retrieve_shared *s =
        (specrt__retrieve_shared *)specrt__base_alloc(env, sizeof(specrt__retrieve_shared));
    if (!s) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "retrieve: out of memory");
    s->env = *env;
    s->params = params;
    out->data = s;
    out->bound = params.size;
    out->reads_prompt = params.prompt == SPECRT__RETRIEVE_PROMPT_BEST;
    out->hidden_width = specrt__retrieve_width(&params);
    out->submits = params.async;
    out->keeps = params.keep;
    return SPECRT_STATUS_OK;
}

static void specrt__retrieve_unshare(void *shared) {
    specrt_env env = ((specrt__retrieve_shared *)shared)->env;
    specrt__base_free(&env, shared);
}

/* --- a session's --- */

/* Tokens that may not be proposed, or always are. The pool's marks are made before. */
SPECRT__INTERNAL void specrt__retrieve_bar(specrt__retrieve *r) {
    for (int32_t i = 0; i < r->pool->n_ids; i++) {
        int32_t marks = SPECRT__POOL_INVALID | SPECRT__POOL_FIXED;
        r->offered[i] = r->pool->wants[i] & marks ? SPECRT__RETRIEVE_NEVER : 0;
    }
}

SPECRT__INTERNAL specrt__retrieve *specrt__retrieve_create(specrt__pool *pool,
                                                           const specrt__retrieve_params *params,
                                                           int32_t n_logits,
                                                           const specrt_env *env) {
    const specrt_hnsw *index = params->index.header ? &params->index : NULL;
    size_t n_ids = (size_t)pool->n_ids, n_records = params->async ? SPECRT__RETRIEVE_RECORDS : 1;
    size_t at_queries = (size_t)specrt__base_align(
        sizeof(specrt__retrieve) + n_records * sizeof(specrt__retrieve_record) +
            n_ids * sizeof(int32_t) + specrt__arc_bytes(pool->n_ids),
        64);
    size_t n_queries = index ? n_records * (size_t)index->header->dim : 0;
    size_t at_scratch = (size_t)specrt__base_align(at_queries + n_queries * sizeof(float), 64);
    int32_t ef = index && index->header->ef > SPECRT__RETRIEVE_TOP ? 0 : SPECRT__RETRIEVE_TOP;
    size_t bytes = at_scratch + (index ? specrt_hnsw_scratch_bytes(index, ef) : 0);
    specrt__retrieve *r = (specrt__retrieve *)specrt__base_alloc(env, bytes + 64);
    if (!r) return NULL;
    memset(r, 0, bytes + 64);
    r->env = *env;
    r->params = *params;
    r->pool = pool;
    r->bit = specrt__pool_register(pool);
    r->n_logits = n_logits;
    r->n_records = (uint32_t)n_records;
    r->records = (specrt__retrieve_record *)(void *)(r + 1);
    r->offered = (int32_t *)(void *)(r->records + n_records);
    specrt__arc_init(&r->arc, pool->n_ids, params->size, r->offered + n_ids);
    specrt__arc_reset(&r->arc, params->size / 2.0);
    specrt__retrieve_bar(r);
    uint8_t *base = (uint8_t *)(uintptr_t)specrt__base_align((uintptr_t)r, 64);
    if (index) r->queries = (float *)(void *)(base + at_queries);
    if (index) r->scratch = base + at_scratch;
    return r;
}

static void *specrt__retrieve_open(void *shared, const specrt__source_session *with) {
    const specrt__retrieve_shared *s = (const specrt__retrieve_shared *)shared;
    specrt__retrieve *r =
        specrt__retrieve_create(with->pool, &s->params, with->n_logits, with->env);
    if (!r) return NULL;
    r->submit = with->submit;
    r->submit_user = with->submit_user;
    return r;
}

SPECRT__INTERNAL void specrt__retrieve_close(void *state) {
    specrt__retrieve *r = (specrt__retrieve *)state;
    specrt_env env = r->env;
    specrt__retrieve_settle(r);
    specrt__base_free(&env, r);
}

/* --- working off --- */

/* A candidate of an event, once: residents count as used. */
static void specrt__retrieve_offer(specrt__retrieve *r, specrt__retrieve_record *record, int32_t id,
                                   int32_t *n_inserted) {
    int32_t victim;
    bool adapts = r->n_events > SPECRT__RETRIEVE_WARM_UP;
    if (id < 0 || id >= r->arc.n_ids || r->offered[id] >= r->n_events) return;
    r->offered[id] = r->n_events;
    if (specrt__arc_resident(&r->arc, id)) {
        specrt__arc_touch(&r->arc, id);
        return;
    }
    if (*n_inserted == SPECRT__RETRIEVE_INSERTIONS) return;
    if (!specrt__arc_insert(&r->arc, id, record->now, adapts, &victim)) {
        r->n_blocked++;
        return;
    }
    if (victim >= 0) record->changes[record->n_changes++] = ~victim;
    record->changes[record->n_changes++] = id;
    ++*n_inserted;
}

/* What the index finds. @return how many, none where the target told no hidden state. */
static int32_t specrt__retrieve_near(specrt__retrieve *r, const specrt__retrieve_record *record,
                                     int32_t token, int32_t *ids) {
    const specrt_hnsw *index = &r->params.index;
    float scores[SPECRT__RETRIEVE_TOP];
    if (r->params.sem == SPECRT__RETRIEVE_LOGITS) return 0;
    float *query = r->queries + (size_t)(record - r->records) * (size_t)index->header->dim;
    if (r->params.sem == SPECRT__RETRIEVE_HNSW_W) {
        if (token >= index->header->n_rows) return 0;
        const specrt_head_desc *rows = &index->head->desc;
        specrt_row_decode(rows->dtype, specrt__head_row(rows, token), rows->n_cols, query);
    } else if (!record->told) {
        return 0;
    }
    return specrt_hnsw_search(index, query, SPECRT__RETRIEVE_TOP, 0, ids, scores, r->scratch);
}

/* The target's best, what is near, and the token. One that stands there twice is offered once.
 * @return how many. */
static int32_t specrt__retrieve_seeds(specrt__retrieve *r, const specrt__retrieve_record *record,
                                      int32_t token, int32_t *seeds) {
    int32_t n = record->n_best;
    memcpy(seeds, record->best, (size_t)n * sizeof *seeds);
    n += specrt__retrieve_near(r, record, token, seeds + n);
    seeds[n++] = token;
    return n;
}

/* Token first, then the seeds by rank, then their successors, the likeliest of each seed first. */
static void specrt__retrieve_admit(specrt__retrieve *r, specrt__retrieve_record *record,
                                   int32_t token, const int32_t *seeds, int32_t n_seeds) {
    const int32_t *ids;
    const float *counts;
    int32_t n_inserted = 0;
    const specrt_cograph *graph = &r->params.graph;
    r->n_events++;
    specrt__retrieve_offer(r, record, token, &n_inserted);
    for (int32_t i = 0; i < n_seeds; i++) specrt__retrieve_offer(r, record, seeds[i], &n_inserted);
    if (!graph->header) return;
    for (int32_t k = 0; k < SPECRT__RETRIEVE_SUCCESSORS; k++)
        for (int32_t i = 0; i < n_seeds; i++) {
            bool listed = specrt_cograph_successors(graph, seeds[i], &ids, &counts) > 0 &&
                          (uint32_t)k < graph->n_rule[seeds[i]];
            if (listed) specrt__retrieve_offer(r, record, ids[k], &n_inserted);
        }
}

static void specrt__retrieve_event(specrt__retrieve *r, specrt__retrieve_record *record) {
    int32_t seeds[SPECRT__RETRIEVE_SEEDS];
    int32_t token = record->tokens[record->n_tokens - 1];
    int32_t n_seeds = specrt__retrieve_seeds(r, record, token, seeds);
    specrt__retrieve_admit(r, record, token, seeds, n_seeds);
}

SPECRT__INTERNAL void specrt__retrieve_work(specrt__retrieve *r, uint32_t number) {
    specrt__retrieve_record *record = &r->records[number % r->n_records];
    record->n_changes = 0;
    for (int32_t i = 0; i < record->n_tokens; i++)
        if (record->tokens[i] < r->arc.n_ids) specrt__arc_touch(&r->arc, record->tokens[i]);
    if (record->event) specrt__retrieve_event(r, record);
    specrt__os_store(&r->done, number + 1);
}

/* Nothing is read after the last record is done: the session may be closed then. */
static void specrt__retrieve_run(specrt_task *task) {
    specrt__retrieve *r = (specrt__retrieve *)(void *)task;
    uint32_t limit = r->limit;
    for (uint32_t i = r->done; i != limit; i++) specrt__retrieve_work(r, i);
}

/* --- between cycles --- */

/* Membership becomes what the records that are done have made of it. */
SPECRT__INTERNAL void specrt__retrieve_take(specrt__retrieve *r) {
    uint32_t done = specrt__os_load(&r->done);
    for (; r->taken != done; r->taken++) {
        const specrt__retrieve_record *record = &r->records[r->taken % r->n_records];
        for (int32_t i = 0; i < record->n_changes; i++) {
            int32_t id = record->changes[i];
            if (id >= 0)
                specrt__pool_want(r->pool, id, r->bit);
            else
                specrt__pool_drop(r->pool, ~id, r->bit);
        }
    }
}

/* Everything posted is worked off and taken over. */
static void specrt__retrieve_catch_up(void *state) {
    specrt__retrieve *r = (specrt__retrieve *)state;
    specrt__retrieve_settle(r);
    specrt__retrieve_finish(r);
    specrt__retrieve_take(r);
}

SPECRT__INTERNAL void specrt__retrieve_begin(void *state) {
    specrt__retrieve *r = (specrt__retrieve *)state;
    specrt__retrieve_settle(r);
    if (!r->params.keep) {
        specrt__arc_reset(&r->arc, r->params.size / 2.0);
        specrt__retrieve_bar(r);
        r->n_cycles = r->n_events = r->n_blocked = 0;
        r->posted = r->limit = r->taken = r->done = 0;
        r->due = false;
        return;
    }
    specrt__retrieve_finish(r);
    r->taken = r->done; /* membership is made anew */
    for (int list = SPECRT__ARC_T1; list <= SPECRT__ARC_T2; list++)
        for (int32_t id = specrt__arc_oldest(&r->arc, list); id < r->arc.n_ids;
             id = r->arc.newer[id])
            specrt__pool_want(r->pool, id, r->bit);
}

/* A token of the prompt, or one that the target thought likely there: it may give way at once.
 * @return whether it came in, and in *victim what left for it, or -1. */
static bool specrt__retrieve_warm(specrt__retrieve *r, int32_t id, int32_t *victim) {
    if (id < 0 || id >= r->arc.n_ids || r->offered[id] == SPECRT__RETRIEVE_NEVER) return false;
    if (specrt__arc_resident(&r->arc, id)) {
        specrt__arc_touch(&r->arc, id);
        return false;
    }
    if (!specrt__arc_insert(&r->arc, id, r->n_cycles, false, victim)) return false;
    r->arc.births[id] = r->n_cycles - SPECRT__ARC_RESIDENCY;
    return true;
}

/* A prompt token, then the target's best there, the best of all last.
 *   pool : whose members these become; NULL: the caller sees to it */
SPECRT__INTERNAL void specrt__retrieve_read(specrt__retrieve *r, int32_t token, const int32_t *best,
                                            int32_t n_best, specrt__pool *pool) {
    int32_t victim;
    for (int32_t i = n_best; i >= 0; i--) {
        int32_t id = i == n_best ? token : best[i];
        if (!specrt__retrieve_warm(r, id, &victim) || !pool) continue;
        if (victim >= 0) specrt__pool_drop(pool, victim, r->bit);
        specrt__pool_want(pool, id, r->bit);
    }
}

/* What comes before the first cycle, or the next turn. */
SPECRT__INTERNAL void specrt__retrieve_prefill(void *state, const int32_t *tokens, int32_t n,
                                               const specrt_target_rows *rows) {
    specrt__retrieve *r = (specrt__retrieve *)state;
    int32_t best[SPECRT__RETRIEVE_TOP];
    if (r->params.prompt == SPECRT__RETRIEVE_PROMPT_OFF) return;
    specrt__retrieve_catch_up(r);
    for (int32_t i = 0; i < n; i++) {
        int32_t n_best = 0;
        if (r->params.prompt == SPECRT__RETRIEVE_PROMPT_BEST)
            n_best =
                specrt__shortlist_target_best(rows, i, r->n_logits, SPECRT__RETRIEVE_TOP, best);
        specrt__retrieve_read(r, tokens[i], best, n_best, r->pool);
    }
}

static void specrt__retrieve_start(void *state, int32_t token) {
    (void)token;
    specrt__retrieve_take((specrt__retrieve *)state);
}

static void specrt__retrieve_write(specrt__retrieve *r, const specrt_verdict *verdict,
                                   const specrt_target_rows *rows, bool event) {
    uint32_t slot = r->posted++ % r->n_records;
    specrt__retrieve_record *record = &r->records[slot];
    int32_t node = verdict->nodes[verdict->n - 1], width = specrt__retrieve_width(&r->params);
    record->now = r->n_cycles;
    record->n_tokens = verdict->n;
    memcpy(record->tokens, verdict->tokens, (size_t)verdict->n * sizeof *record->tokens);
    record->event = event;
    if (!event) return;
    r->due = true;
    record->n_best =
        specrt__shortlist_target_best(rows, node, r->n_logits, SPECRT__RETRIEVE_TOP, record->best);
    record->told = width > 0 && rows && rows->hidden;
    if (record->told)
        memcpy(r->queries + slot * (size_t)width, rows->hidden + (size_t)node * (size_t)width,
               (size_t)width * sizeof(float));
}

/* Records without an event change no membership: they wait for one, since waking a thread has its price. */
static bool specrt__retrieve_due(const specrt__retrieve *r) {
    return r->due || r->posted - r->limit >= r->n_records / 2;
}

/* Before any other source learns from the cycle, since what could have been drafted is asked here. Only
 * the last token can be an event: the others were drafted. */
SPECRT__INTERNAL void specrt__retrieve_observe(void *state, const specrt__source_cycle *cycle) {
    specrt__retrieve *r = (specrt__retrieve *)state;
    const specrt_verdict *verdict = cycle->verdict;
    int32_t token = verdict->tokens[verdict->n - 1];
    bool event = specrt__pool_valid(r->pool, token) && !specrt__pool_member(r->pool, token);
    r->n_cycles++;
    cycle->stats->n_events += event;
    specrt__retrieve_take(r);
    if (r->posted - r->taken < r->n_records)
        specrt__retrieve_write(r, verdict, cycle->rows, event);
    else
        cycle->stats->n_lost += event;
    if (!r->params.async) {
        specrt__retrieve_work(r, r->done);
        r->limit = r->done;
        specrt__retrieve_take(r);
    } else if (specrt__os_load(&r->done) == r->limit && specrt__retrieve_due(r)) {
        r->limit = r->posted;
        r->due = false;
        r->task.run = specrt__retrieve_run;
        r->submit(r->submit_user, &r->task);
    }
}

/* --- saved sessions --- */

/* The cache's lists by recency, and the ages of T1's tokens, then of T2's, in cycles since they came in. */
enum { SPECRT__RETRIEVE_SAVED_AGES = SPECRT__SAVED_RETRIEVAL - 1 };

static void specrt__retrieve_limits(const void *state, int32_t *most) {
    for (int i = 0; i <= (int)SPECRT__RETRIEVE_SAVED_AGES; i++)
        most[i] = ((const specrt__retrieve *)state)->arc.capacity;
}

/* Ages beyond the least residency, and events beyond the warm-up, are all alike. */
static void specrt__retrieve_save(const void *state, specrt__save *out) {
    const specrt__retrieve *r = (const specrt__retrieve *)state;
    const specrt__arc *a = &r->arc;
    int32_t n_events =
        r->n_events > SPECRT__RETRIEVE_WARM_UP ? SPECRT__RETRIEVE_WARM_UP + 1 : r->n_events;
    specrt__save_header(out, SPECRT__SAVED_P, &a->p, sizeof a->p);
    specrt__save_header(out, SPECRT__SAVED_EVENTS, &n_events, sizeof n_events);
    for (int list = SPECRT__ARC_T1; list <= SPECRT__ARC_B2; list++) {
        specrt__save_word(out, a->sizes[list]);
        for (int32_t id = specrt__arc_oldest(a, list); id < a->n_ids; id = a->newer[id])
            specrt__save_word(out, id);
    }
    specrt__save_word(out, a->sizes[SPECRT__ARC_T1] + a->sizes[SPECRT__ARC_T2]);
    for (int list = SPECRT__ARC_T1; list <= SPECRT__ARC_T2; list++)
        for (int32_t id = specrt__arc_oldest(a, list); id < a->n_ids; id = a->newer[id]) {
            int32_t age = r->n_cycles - a->births[id];
            specrt__save_word(out, age < SPECRT__ARC_RESIDENCY ? age : SPECRT__ARC_RESIDENCY);
        }
}

/* @return what is wrong with words on their own, or NULL. */
static const char *specrt__retrieve_saved_wrong(const specrt__retrieve *r, const specrt__saved *in,
                                                double p) {
    const specrt__saved_list *ages = &in->lists[SPECRT__RETRIEVE_SAVED_AGES];
    uint32_t n_events = specrt__base_load32(in->header + SPECRT__SAVED_EVENTS);
    for (int i = 0; i < (int)SPECRT__RETRIEVE_SAVED_AGES; i++)
        if (!specrt__saved_within(&in->lists[i], r->arc.n_ids)) return "tokens";
    if (!specrt__saved_within(ages, SPECRT__ARC_RESIDENCY + 1) ||
        ages->n != in->lists[0].n + in->lists[1].n)
        return "ages";
    if (n_events > SPECRT__RETRIEVE_WARM_UP + 1) return "events";
    return p >= 0 && p <= r->arc.capacity ? NULL : "cache";
}

static const char *specrt__retrieve_load(void *state, const specrt__saved *in) {
    specrt__retrieve *r = (specrt__retrieve *)state;
    const specrt__saved_list *ages = &in->lists[SPECRT__RETRIEVE_SAVED_AGES];
    specrt__arc *a = &r->arc;
    double p;
    memcpy(&p, in->header + SPECRT__SAVED_P, 8);
    const char *wrong = specrt__retrieve_saved_wrong(r, in, p);
    if (wrong) return wrong;
    for (int32_t id = 0; id < a->n_ids; id++) /* keep=on outlives begin */
        if (specrt__arc_resident(a, id)) specrt__pool_drop(r->pool, id, r->bit);
    specrt__arc_reset(a, p);
    specrt__retrieve_bar(r);
    r->n_cycles = SPECRT__ARC_RESIDENCY;
    r->n_events = (int32_t)specrt__base_load32(in->header + SPECRT__SAVED_EVENTS);
    r->n_blocked = 0;
    for (int list = SPECRT__ARC_T1, age = 0; list <= SPECRT__ARC_B2; list++) {
        const specrt__saved_list *ids = &in->lists[list - SPECRT__ARC_T1];
        for (int32_t i = 0; i < ids->n; i++) {
            int32_t id = specrt__saved_word(ids, i);
            if (a->lists[id] != SPECRT__ARC_NONE || r->offered[id] == SPECRT__RETRIEVE_NEVER)
                return "cache";
            specrt__arc_move(a, id, list);
            if (!specrt__arc_resident(a, id)) continue;
            a->births[id] = r->n_cycles - specrt__saved_word(ages, age++);
            specrt__pool_want(r->pool, id, r->bit);
        }
    }
    return NULL;
}

SPECRT__INTERNAL const specrt__source specrt__retrieve_source = {
    /* options = */ specrt__retrieve_options,
    /* n_options = */ SPECRT__RETRIEVE_OPTIONS,
    /* share = */ specrt__retrieve_share,
    /* unshare = */ specrt__retrieve_unshare,
    /* open = */ specrt__retrieve_open,
    /* close = */ specrt__retrieve_close,
    /* route = */ NULL,
    /* begin = */ specrt__retrieve_begin,
    /* prefill = */ specrt__retrieve_prefill,
    /* start = */ specrt__retrieve_start,
    /* observe = */ specrt__retrieve_observe,
    /* settle = */ specrt__retrieve_catch_up,
    /* n_lists = */ SPECRT__SAVED_RETRIEVAL,
    /* always_saved = */ true,
    /* limits = */ specrt__retrieve_limits,
    /* save = */ specrt__retrieve_save,
    /* load = */ specrt__retrieve_load,
};
