/* controller.c : what the drafter read, cycle by cycle; what of it is learnt from; and the hand-over of
 * steps between the decoder's thread and the worker's. */
#include "engine/train/controller.h"

#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/memory.h"
#include "base/measure.h"
#include "engine/train/controller_impl.h"

/* ---- rows ---------------------------------------------------------------------------------------- */

bool kept_rows_reserve(kept_rows *r, int32_t n, int32_t width) {
    if (r->n + n <= r->capacity) return true;
    int32_t capacity = r->n + n + r->n / 2 + 64;
    float *inputs = (float *)realloc(r->inputs, sizeof(float) * (size_t)capacity * (size_t)width);
    if (inputs) r->inputs = inputs;
    int32_t *positions = (int32_t *)realloc(r->positions, sizeof(int32_t) * (size_t)capacity);
    if (positions) r->positions = positions;
    if (!inputs || !positions) return false;
    r->capacity = capacity;
    return true;
}

static bool append_rows(kept_rows *r, const float *inputs, int32_t n, int32_t position,
                        int32_t width) {
    if (!kept_rows_reserve(r, n, width)) return false;
    memcpy(r->inputs + (int64_t)r->n * width, inputs, sizeof(float) * (size_t)n * (size_t)width);
    for (int32_t end = r->n + n; r->n < end; r->n++) r->positions[r->n] = position++;
    return true;
}

void kept_rows_free(kept_rows *r) {
    free(r->inputs);
    free(r->positions);
}

static kept_batch *filling_batch(engine_controller *c) {
    return &c->batches[c->filling];
}

static void empty_batch(kept_batch *b) {
    b->past.n = b->drafted.n = b->n = b->n_sequences = 0;
    b->targets = NULL;
}

/* Nothing of what waits can be gone through again. */
static void forget(engine_controller *c) {
    kept_batch *b = filling_batch(c);
    c->stats.n_dropped += b->n;
    empty_batch(b);
    if (c->gate) specrt_align_clear(c->gate);
}

/* The rows of the sequence that goes on join the batch, as many as its positions see. A position that the
 * drafter had not read up to when the sequence ended is left out. */
static void settle_sequence(engine_controller *c) {
    kept_batch *b = filling_batch(c);
    int32_t first = b->past.n, n = 0;
    while (b->n > 0 && b->places[b->n - 1].first < 0 && b->places[b->n - 1].n > c->current.n)
        b->n--;
    for (int32_t i = 0; i < b->n; i++)
        if (b->places[i].first < 0 && b->places[i].n > n) n = b->places[i].n;
    if (n == 0) return;
    if (first + n > c->max_rows || !append_rows(&b->past, c->current.inputs, n, 0, c->width)) {
        forget(c);
        return;
    }
    for (int32_t i = 0; i < b->n; i++)
        if (b->places[i].first < 0) b->places[i].first = first;
}

/* ---- steps --------------------------------------------------------------------------------------- */

static void run_task(specrt_task *task) {
    engine_controller *c =
        (engine_controller *)(void *)((char *)task - offsetof(engine_controller, task));
    controller_step(c);
    pthread_mutex_lock(&c->lock);
    c->done = true;
    pthread_cond_signal(&c->ready);
    pthread_mutex_unlock(&c->lock);
}

/* Drafts go on with what the step made, unless a guard looks at it first. */
static void take_over(engine_controller *c) {
    c->out = c->done = false;
    c->stats.seconds += c->step_seconds;
    if (c->step_made) {
        c->stats.n_steps++;
        c->stats.n_learnt += c->step_n;
        c->stats.loss += c->step_loss;
        c->version = ++c->last_version;
        if (c->params.guard == 0) engine_align_swap(c->align);
    } else {
        c->stats.n_bad_steps++;
    }
    if (c->training->targets) specrt_align_release(c->gate, c->training->targets);
    empty_batch(c->training);
}

void controller_settle(engine_controller *c, bool wait) {
    if (!c->out) return;
    pthread_mutex_lock(&c->lock);
    while (wait && !c->done) pthread_cond_wait(&c->ready, &c->lock);
    bool done = c->done;
    pthread_mutex_unlock(&c->lock);
    if (done) take_over(c);
}

/* The batch that is full becomes a step, and the other one fills. */
static void begin_step(engine_controller *c) {
    kept_batch *b = filling_batch(c);
    if (c->out) return;
    if (c->gate) {
        const specrt_align_batch *targets = specrt_align_acquire(c->gate);
        if (!targets) return;
        settle_sequence(c);
        b->targets = targets;
        if (b->n == 0) { /* its rows were more than there is room for */
            specrt_align_release(c->gate, targets);
            b->targets = NULL;
            return;
        }
    }
    c->training = b;
    c->filling = 1 - c->filling;
    c->out = true;
    if (c->worker) {
        specrt_worker_submit(c->worker, &c->task);
        return;
    }
    controller_step(c);
    take_over(c);
}

enum { MOST_ROWS = 1 << 24 }; /* kept, whatever the context */

/* ---- life ---------------------------------------------------------------------------------------- */

static specrt_status create_step(engine_controller *c, engine_drafter *drafter, specrt_error *err) {
    c->task.run = run_task;
    if (c->params.async) {
        int threads = c->params.threads > 0 ? c->params.threads : 1;
        c->pool = sl_parallel_pool_create(threads);
        if (!c->pool) return sl_error_no_memory_for(err, ALIGNMENT);
        TRY(specrt_worker_create(NULL, &c->worker, err));
    }
    return engine_align_create(drafter, &c->params.align, c->pool, &c->align, err);
}

static specrt_status check(const engine_controller_params *p, specrt_error *err) {
    const struct {
        const char *name;
        int32_t value, least, most;
    } counts[] = {{"interval", p->interval, 1, INT32_MAX}, {"guard", p->guard, 0, INT32_MAX}};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        if (counts[i].value < counts[i].least || counts[i].value > counts[i].most)
            return specrt_error_set(
                err, SPECRT_STATUS_BAD_ARG, "alignment: %s: expected %d to %d, found %d",
                counts[i].name, (int)counts[i].least, (int)counts[i].most, (int)counts[i].value);
    return SPECRT_STATUS_OK;
}

/* What a guard goes back to, and its sets of weights. */
static specrt_status keep_start(engine_controller *c, specrt_error *err) {
    int64_t n;
    const float *masters = engine_align_masters(c->align, &n);
    if (c->params.guard == 0) return SPECRT_STATUS_OK;
    TRY(sl_new(&c->start, (size_t)n, sizeof *c->start, ALIGNMENT, err));
    memcpy(c->start, masters, (size_t)n * sizeof *c->start);
    c->guard.values[GUARD_START] = c->start;
    for (int set = GUARD_GOOD; set < GUARD_SETS; set++) {
        TRY(sl_new(&c->guard.values[set], (size_t)n, sizeof(float), ALIGNMENT, err));
        memcpy(c->guard.values[set], masters, (size_t)n * sizeof(float));
    }
    return SPECRT_STATUS_OK;
}

static specrt_status create_scratch(engine_controller *c, specrt_error *err) {
    size_t row = ENGINE_MAX_BATCH * sizeof(float);
    size_t n_vocab = (size_t)c->align->m->head.segment.n_rows;
    TRY(sl_new(&c->captured, (size_t)c->width, row, ALIGNMENT, err));
    for (int i = 0; i < CONTROLLER_LEVELS; i++) {
        TRY(sl_new(&c->levels[i].hidden, (size_t)c->d_model, row, ALIGNMENT, err));
        TRY(sl_new(&c->levels[i].inputs, (size_t)c->width, row, ALIGNMENT, err));
    }
    if (c->params.align.mode == ENGINE_ALIGN_FULL)
        TRY(sl_new(&c->logits, 2 * CONTROLLER_CHUNK * n_vocab, sizeof(float), ALIGNMENT, err));
    return c->params.guard ? guard_create(c, err) : SPECRT_STATUS_OK;
}

static specrt_status create(engine_controller *c, engine_drafter *drafter, specrt_error *err) {
    TRY(check(&c->params, err));
    TRY(create_step(c, drafter, err));
    TRY(keep_start(c, err));
    c->width = engine_align_width(c->align);
    c->d_model = c->align->m->config.d_model;
    if (c->params.align.mode == ENGINE_ALIGN_LORA)
        TRY(specrt_align_create(c->head, c->n_logits, &c->params.gate, NULL, &c->gate, err));
    return create_scratch(c, err);
}

specrt_status engine_controller_create(engine_drafter *drafter, const specrt_head *head,
                                       int32_t n_logits, int32_t n_context,
                                       const engine_controller_params *params,
                                       engine_controller **out, specrt_error *err) {
    engine_controller *c;
    *out = NULL;
    TRY(sl_new(&c, 1, sizeof *c, ALIGNMENT, err));
    c->params = *params;
    c->n_logits = n_logits;
    int64_t sequences = params->align.mode == ENGINE_ALIGN_FULL ? params->interval : 2;
    c->max_rows = (int32_t)(sequences * n_context < MOST_ROWS ? sequences * n_context : MOST_ROWS);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->ready, NULL);
    c->head = head;
    specrt_status status = create(c, drafter, err);
    if (status == SPECRT_STATUS_OK)
        *out = c;
    else
        engine_controller_free(c);
    return status;
}

void engine_controller_free(engine_controller *c) {
    if (!c) return;
    controller_settle(c, true);
    specrt_worker_close(c->worker);
    engine_align_free(c->align);
    specrt_align_close(c->gate);
    for (int set = GUARD_GOOD; set < GUARD_SETS; set++) free(c->guard.values[set]);
    for (int i = 0; i < 2; i++) {
        kept_rows_free(&c->batches[i].past);
        kept_rows_free(&c->batches[i].drafted);
        free(c->batches[i].places);
        free(c->batches[i].wanted);
    }
    sl_parallel_pool_free(c->pool);
    free(c->captured);
    kept_rows_free(&c->current);
    for (int i = 0; i < CONTROLLER_LEVELS; i++)
        free(c->levels[i].hidden), free(c->levels[i].inputs);
    free(c->queries);
    free(c->all);
    free(c->dh);
    free(c->logits);
    guard_free(c);
    free(c->start);
    pthread_cond_destroy(&c->ready);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

void engine_controller_pause(engine_controller *c, bool paused) {
    if (c->paused && !paused) c->current.n = 0; /* a sequence that it only looked on at */
    c->paused = paused;
}

void engine_controller_finish(engine_controller *c) {
    controller_settle(c, true);
}

specrt_status engine_controller_save(engine_controller *c, const char *path, bool force,
                                     specrt_error *err) {
    kept_guard *g = &c->guard;
    engine_align_state drafts = {g->values[g->drafts], NULL, NULL, 0};
    engine_controller_finish(c);
    if (c->params.guard) engine_align_exchange(c->align, &drafts);
    specrt_status status = engine_align_save(c->align, path, force, err);
    if (c->params.guard) engine_align_exchange(c->align, &drafts);
    return status;
}

specrt_status engine_controller_load(engine_controller *c, const char *path, specrt_error *err) {
    engine_controller_finish(c);
    TRY(engine_align_load(c->align, path, err));
    engine_align_swap(c->align);
    c->version = ++c->last_version;
    if (c->params.guard) guard_loaded(c);
    return SPECRT_STATUS_OK;
}

void engine_controller_get_stats(const engine_controller *c, engine_controller_stats *out) {
    *out = c->stats;
    if (!c->gate) return;
    specrt_align_stats gate;
    specrt_align_get_stats(c->gate, &gate);
    out->n_positions += gate.n_positions;
    out->n_missing += gate.n_missing;
    out->n_rejected += gate.n_rejected;
    out->n_kept += gate.n_kept;
    out->n_dropped += gate.n_dropped;
    out->n_invalid += gate.n_invalid;
    out->divergence += gate.divergence;
}

static size_t rows_bytes(const kept_rows *r, int32_t width) {
    return (size_t)r->capacity * (sizeof(int32_t) + sizeof(float) * (size_t)width);
}

/* What waits. */
static size_t waiting_bytes(const engine_controller *c) {
    specrt_align_stats stats = {0};
    if (c->gate) specrt_align_get_stats(c->gate, &stats);
    size_t bytes = (size_t)stats.n_bytes;
    for (int i = 0; i < 2; i++)
        bytes +=
            rows_bytes(&c->batches[i].past, c->width) +
            rows_bytes(&c->batches[i].drafted, c->width) +
            (size_t)c->batches[i].capacity *
                (sizeof *c->batches[i].places + (c->gate ? 0 : sizeof(float) * (size_t)c->d_model));
    return bytes;
}

engine_align_bytes engine_controller_get_bytes(const engine_controller *c) {
    engine_align_bytes b = engine_align_get_bytes(c->align);
    size_t row = sizeof(float) * (size_t)(c->d_model + c->width);
    b.parameters += b.parameters * (c->params.guard ? GUARD_SETS : 0);
    b.activations +=
        rows_bytes(&c->current, c->width) + sizeof *c +
        (size_t)CONTROLLER_LEVELS * ENGINE_MAX_BATCH * row +
        (size_t)c->n_queries * (sizeof *c->queries + sizeof(float) * (size_t)c->d_model) +
        (size_t)c->n_all * sizeof *c->all;
    b.activations += waiting_bytes(c);
    if (c->logits)
        b.activations +=
            2 * CONTROLLER_CHUNK * sizeof(float) * (size_t)c->align->m->head.segment.n_rows;
    return b;
}

/* ---- the decoder's ------------------------------------------------------------------------------- */

void engine_controller_begin(engine_controller *c, engine_cache *cache) {
    double began = sl_measure_seconds();
    kept_batch *b = filling_batch(c);
    controller_settle(c, c->looked_at);
    if (c->looked_at) guard_look(c);
    settle_sequence(c);
    if (!c->gate && c->current.n > 0 && !c->paused && ++b->n_sequences >= c->params.interval)
        begin_step(c);
    c->current.n = c->passes.n = 0;
    c->prompted = c->looked_at = false;
    engine_capture(cache, engine_align_pairs(c->align), c->captured);
    c->stats.waited += sl_measure_seconds() - began;
}

void engine_controller_prompt(engine_controller *c) {
    double began = sl_measure_seconds();
    if (c->prompted || c->paused) return;
    c->prompted = true;
    c->n_sequences++;
    guard_begin(c);
    c->stats.waited += sl_measure_seconds() - began;
}

void engine_controller_draft_input(engine_controller *c, int32_t n) {
    if (!append_rows(&c->current, c->captured, n, c->current.n, c->width)) c->paused = true;
}

void engine_controller_drafted(engine_controller *c, int32_t level, const specrt_beam *beam,
                               const float *hidden) {
    drafted_level *l = &c->levels[level];
    size_t n = (size_t)beam->n;
    draft_passes_add(&c->passes, level, beam);
    memcpy(l->hidden, hidden, n * (size_t)c->d_model * sizeof(float));
    if (level > 0) memcpy(l->inputs, c->captured, n * (size_t)c->width * sizeof(float));
}

static int32_t child_of(const specrt_draft *draft, int32_t node) {
    for (int32_t i = node + 1; i < draft->n; i++)
        if (draft->parents[i] == node) return i;
    return -1;
}

/* Whether the target's last token refused what was drafted there. Where the answer's end cut a path, it is a
 * drafted token itself. */
static bool refuses(const specrt_draft *draft, const specrt_verdict *verdict) {
    int32_t node = verdict->nodes[verdict->n - 1], token = verdict->tokens[verdict->n - 1];
    for (int32_t i = node + 1; i < draft->n; i++)
        if (draft->parents[i] == node && draft->tokens[i] == token) return false;
    return child_of(draft, node) >= 0;
}

static bool reserve_places(const engine_controller *c, kept_batch *b, int32_t n) {
    if (b->n + n <= b->capacity) return true;
    int32_t capacity = 2 * b->n + n + 64;
    kept_place *grown = (kept_place *)realloc(b->places, (size_t)capacity * sizeof *grown);
    if (!grown) return false;
    b->places = grown;
    size_t row = c->gate ? 0 : sizeof(float) * (size_t)c->d_model;
    float *wanted = row ? (float *)realloc(b->wanted, (size_t)capacity * row) : NULL;
    if (row && !wanted) return false;
    b->wanted = wanted;
    b->capacity = capacity;
    return true;
}

/* The positions of a cycle where the drafter had a distribution, and their places. @return how many. */
static int32_t list_positions(engine_controller *c, const specrt_session *session, bool sampled,
                              const specrt_draft *draft, const specrt_verdict *verdict,
                              const float *logits, specrt_align_position *out) {
    kept_batch *b = filling_batch(c);
    int32_t most = c->params.gate.n_steps < verdict->n ? c->params.gate.n_steps : verdict->n;
    int32_t row = 0, n = 0, path = b->drafted.n;
    for (; n < most && n < c->passes.n; n++) {
        const drafted_level *l = &c->levels[n];
        int32_t node = verdict->nodes[n], child = child_of(draft, node);
        if (n > 0) row = draft_passes_row(&c->passes, n, row, draft->tokens[node]);
        if (row < 0) break;
        if (n > 0 && !append_rows(&b->drafted, l->inputs + (int64_t)row * c->width, 1,
                                  c->current.n + n - 1, c->width))
            break;
        b->places[b->n + n] = (kept_place){-1, c->current.n, path, n};
        out[n] = (specrt_align_position){
            .context = (uint64_t)(b->n + n),
            .step = n + 1,
            .token = verdict->tokens[n],
            .covered = specrt_session_member(session, verdict->tokens[n], n) != SPECRT_MEMBER_NO,
            .rejected = n + 1 == verdict->n && refuses(draft, verdict),
            .logits = logits + (int64_t)node * c->n_logits,
            .hidden = l->hidden + (int64_t)row * c->d_model,
            .drafted = child < 0 || sampled ? -1 : draft->tokens[child],
            .drafted_logprob = child < 0 ? 0 : draft->logprobs[child] - draft->logprobs[node]};
    }
    return n;
}

static void gather_positions(engine_controller *c, const specrt_session *session, bool sampled,
                             const specrt_draft *draft, const specrt_verdict *verdict,
                             const float *logits) {
    specrt_align_position positions[SPECRT_TREE_MAX_NODES];
    kept_batch *b = filling_batch(c);
    int32_t n_drafted = b->drafted.n;
    if (!reserve_places(c, b, SPECRT_TREE_MAX_NODES)) return;
    int32_t n = list_positions(c, session, sampled, draft, verdict, logits, positions);
    if (specrt_align_observe(c->gate, positions, n) > 0)
        b->n += n;
    else
        b->drafted.n = n_drafted;
}

/* OSD keeps where the target refused what was drafted. */
static void gather_refused(engine_controller *c, const specrt_session *session,
                           const specrt_draft *draft, const specrt_verdict *verdict,
                           const float *hidden) {
    kept_batch *b = filling_batch(c);
    int32_t last = verdict->n - 1;
    int64_t d = c->d_model;
    c->stats.n_positions += verdict->n;
    if (specrt_session_member(session, verdict->tokens[last], last) == SPECRT_MEMBER_NO)
        c->stats.n_missing++;
    if (!refuses(draft, verdict) || !reserve_places(c, b, 1)) return;
    memcpy(b->wanted + b->n * d, hidden + verdict->nodes[last] * d, (size_t)d * sizeof *hidden);
    c->stats.n_rejected++;
    c->stats.n_kept++;
    b->places[b->n++] = (kept_place){-1, c->current.n + last, 0, 0};
}

void engine_controller_verified(engine_controller *c, const specrt_session *session, bool sampled,
                                const specrt_draft *draft, const specrt_verdict *verdict,
                                const float *hidden, const float *logits) {
    double began = sl_measure_seconds();
    controller_settle(c, false);
    if (!c->paused && c->passes.n > 0) {
        if (c->looked_at) guard_keep(c, draft, verdict, logits);
        if (c->gate)
            gather_positions(c, session, sampled, draft, verdict, logits);
        else
            gather_refused(c, session, draft, verdict, hidden);
        if (c->gate) begin_step(c);
    }
    c->passes.n = 0;
    c->stats.waited += sl_measure_seconds() - began;
}
