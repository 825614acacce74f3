/* order.cuh : owns the order of calls on a batch: where each sequence is, and where the cycle of all is.
 * Refuses what comes too early, too late or twice, before anything starts. A graph's launches are no calls:
 * the order of calls that a graph may contain is not known. */
#ifndef CUDA_ORDER_CUH
#define CUDA_ORDER_CUH

#include "core/base.h"
#include "cuda/launch.cuh"
#include "cuda/side.cuh"

/* Where a sequence is. What is allowed in several places is a sum. */
enum {
    SPECRT__ORDER_CREATED = 1, /* begin has not come */
    SPECRT__ORDER_PROMPT = 2,  /* no token of the prompt has come */
    SPECRT__ORDER_READ = 4,    /* some have; the first token of the answer has not */
    SPECRT__ORDER_STARTED = 8  /* it takes part in cycles */
};

/* Where the cycle is; likewise. */
enum { SPECRT__ORDER_DRAFT = 1, SPECRT__ORDER_DRAFTED = 2, SPECRT__ORDER_VERIFIED = 4 };

/* Kinds of calls. */
enum { SPECRT__ORDER_PROMPTS, SPECRT__ORDER_CYCLES, SPECRT__ORDER_KINDS };

typedef struct specrt__order_cycle {
    int32_t level; /* passes so far */
    int stage;     /* SPECRT__ORDER_DRAFT... */
    bool
        learnt; /* observe() began it; else start(), and observe() may come, which learns nothing */
} specrt__order_cycle;

/* What the host knows of a batch's calls. */
typedef struct specrt__order {
    uint8_t at[SPECRT__CUDA_MAX_BATCH]; /* of each sequence: SPECRT__ORDER_CREATED... */
    int32_t n_batch, n_begun, n_started;
    specrt__order_cycle cycles[2];      /* of calls, and of the graph that is being captured */
    bool captured[SPECRT__ORDER_KINDS]; /* a graph has calls of this kind */
    specrt_error error;                 /* of the last call that was refused */
} specrt__order;

/* A call under way. */
typedef struct specrt__order_call {
    specrt__order *order;
    const char *name;
    int kind;
    specrt__order_cycle *cycle; /* that it is part of */
    bool captured, checks;      /* checks: its order is known */
} specrt__order_call;

static void specrt__order_create(specrt__order *o, int32_t n_batch) {
    SPECRT__CLEAR(o, 1);
    memset(o->at, SPECRT__ORDER_CREATED, sizeof o->at);
    o->n_batch = n_batch;
    o->cycles[0].stage = o->cycles[1].stage = SPECRT__ORDER_DRAFT;
}

/* --- what is refused --- */

static specrt_status specrt__order_refuse(specrt__order_call *c, const char *expected) {
    return specrt_error_set(&c->order->error, SPECRT_STATUS_BAD_ORDER, "%s: expected %s", c->name,
                            expected);
}

/* The call that starts now. */
static specrt_status specrt__order_call_begin(specrt__order *o, const char *name, int kind,
                                              void *stream, specrt__order_call *c) {
    c->order = o;
    c->name = name;
    c->kind = kind;
    SPECRT__TRY(specrt__side_captured(stream, &c->captured));
    c->checks = !c->captured && !o->captured[kind];
    c->cycle = &o->cycles[c->captured];
    return SPECRT_STATUS_OK;
}

/* What a sequence expects. */
static const char *specrt__order_expected(int at) {
    if (at == SPECRT__ORDER_CREATED) return "begin() before it";
    if (at == SPECRT__ORDER_PROMPT) return "prefill() before it, with tokens of the prompt";
    if (at == SPECRT__ORDER_READ) return "start() before it";
    return "begin() before it, since the sequence has started";
}

/* Whether the sequences that a call is about are where it may come. */
static specrt_status specrt__order_check_each(specrt__order_call *c, int32_t first, int32_t n,
                                              int allowed) {
    for (int32_t i = first; i < first + n && c->checks; i++)
        if (!(c->order->at[i] & allowed))
            return specrt_error_set(&c->order->error, SPECRT_STATUS_BAD_ORDER,
                                    "%s: sequence %d: expected %s", c->name, (int)i,
                                    specrt__order_expected(c->order->at[i]));
    return SPECRT_STATUS_OK;
}

/* Whether any sequence is where a call for all may come. Others rest. */
static specrt_status specrt__order_check_any(specrt__order_call *c, int allowed) {
    for (int32_t i = 0; i < c->order->n_batch && c->checks; i++)
        if (c->order->at[i] & allowed) return SPECRT_STATUS_OK;
    return c->checks ? specrt__order_refuse(c, specrt__order_expected(c->order->at[0]))
                     : SPECRT_STATUS_OK;
}

/* A sequence that starts while others draft would take their next level for its first. */
static specrt_status specrt__order_check_start(specrt__order_call *c) {
    const specrt__order_cycle *cycle = c->cycle;
    if (!c->checks || c->order->n_started == 0 || cycle->stage != SPECRT__ORDER_DRAFT ||
        cycle->level == 0)
        return SPECRT_STATUS_OK;
    return specrt__order_refuse(c, "finish(), verify() and observe() before it, since other "
                                   "sequences are drafting");
}

/* Whether any sequence has ever begun. Those that have not started rest. */
static specrt_status specrt__order_check_begun(specrt__order_call *c) {
    if (!c->checks || c->order->n_begun > 0) return SPECRT_STATUS_OK;
    return specrt__order_refuse(c, specrt__order_expected(SPECRT__ORDER_CREATED));
}

static specrt_status specrt__order_refuse_stage(specrt__order_call *c) {
    int stage = c->cycle->stage;
    return specrt__order_refuse(c, stage == SPECRT__ORDER_DRAFT ? "expand() or finish() before it"
                                   : stage == SPECRT__ORDER_DRAFTED ? "verify() before it"
                                                                    : "observe() before it");
}

/* Whether the cycle is in one of these stages. */
static specrt_status specrt__order_check_stage(specrt__order_call *c, int allowed) {
    SPECRT__TRY(specrt__order_check_begun(c));
    if (!c->checks || c->cycle->stage & allowed) return SPECRT_STATUS_OK;
    return specrt__order_refuse_stage(c);
}

/* Whether a level may be drafted now. A graph has all levels of a cycle, or none. */
static specrt_status specrt__order_check_level(specrt__order_call *c, int32_t num_steps) {
    SPECRT__TRY(specrt__order_check_begun(c));
    if (c->cycle->stage != SPECRT__ORDER_DRAFT) return specrt__order_refuse_stage(c);
    if (c->cycle->level < num_steps) return SPECRT_STATUS_OK;
    return specrt__order_refuse(c, "finish() in its place: the trees have their last level");
}

/* Whether there may be something to learn, or nothing because the sequences have just started. */
static specrt_status specrt__order_check_observe(specrt__order_call *c) {
    const specrt__order_cycle *cycle = c->cycle;
    bool fresh = cycle->stage == SPECRT__ORDER_DRAFT && cycle->level == 0 && !cycle->learnt;
    return specrt__order_check_stage(c, fresh ? SPECRT__ORDER_DRAFT : SPECRT__ORDER_VERIFIED);
}

/* --- what came --- */

/* A call has started all that it is for. */
static void specrt__order_call_end(const specrt__order_call *c) {
    if (c->captured) c->order->captured[c->kind] = true;
}

/* A cycle begins. */
static void specrt__order_renew(const specrt__order_call *c, bool learnt) {
    c->cycle->level = 0;
    c->cycle->stage = SPECRT__ORDER_DRAFT;
    c->cycle->learnt = learnt;
    specrt__order_call_end(c);
}

/* Sequences are at another place. With the first to take part a cycle begins. */
static void specrt__order_move(const specrt__order_call *c, int32_t first, int32_t n, int at) {
    specrt__order *o = c->order;
    bool renews = o->n_started == 0 && at == SPECRT__ORDER_STARTED;
    memset(o->at + first, at, (size_t)n);
    o->n_begun = o->n_started = 0;
    for (int32_t i = 0; i < o->n_batch; i++) {
        o->n_begun += o->at[i] != SPECRT__ORDER_CREATED;
        o->n_started += o->at[i] == SPECRT__ORDER_STARTED;
    }
    if (renews) specrt__order_renew(c, false);
    specrt__order_call_end(c);
}

static void specrt__order_end_stage(const specrt__order_call *c, int stage) {
    c->cycle->stage = stage;
    specrt__order_call_end(c);
}

#endif
