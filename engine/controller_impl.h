/* controller_impl.h : the inside of a controller, for engine/controller*.c. */
#ifndef ENGINE_CONTROLLER_IMPL_H
#define ENGINE_CONTROLLER_IMPL_H

#include <pthread.h>
#include "engine/align_impl.h"
#include "engine/controller.h"
#include "engine/passes.h"

/* Rows of inputs, grown as needed. */
typedef struct kept_rows {
    float *inputs; /* [capacity, width] */
    int32_t *positions;
    int32_t n, capacity;
} kept_rows;

/* Where a position's input is. */
typedef struct kept_place {
    int32_t first;        /* of its sequence's rows in `past`; -1: the sequence goes on */
    int32_t n;            /* committed rows it sees */
    int32_t path, n_path; /* in `drafted` */
} kept_place;

/* What waits to be learnt from, and then is. */
typedef struct kept_batch {
    kept_rows past, drafted;
    kept_place *places; /* [capacity] */
    int32_t n, capacity;
    int32_t n_sequences;               /* OSD: that are whole */
    const specrt_align_batch *targets; /* EvoSpec's, once it is out */
} kept_batch;

enum {
    CONTROLLER_LEVELS = SPECRT_TREE_MAX_STEPS,
    CONTROLLER_CHUNK = 8 /* rows of OSD's logits at a time */
};
typedef struct drafted_level {
    float *hidden; /* [ENGINE_MAX_BATCH, d_model] */
    float *inputs; /* [ENGINE_MAX_BATCH, width] */
} drafted_level;

struct engine_controller {
    engine_controller_params params;
    engine_align *align;
    specrt_align *gate; /* EvoSpec's; NULL: OSD */
    parallel_pool *pool;
    int32_t d_model, width, n_logits, max_rows;
    bool paused;
    float *captured;   /* [ENGINE_MAX_BATCH, width] of the last pass */
    kept_rows current; /* of the sequence that goes on */
    drafted_level levels[CONTROLLER_LEVELS];
    draft_passes passes;
    kept_batch batches[2];
    int filling;
    engine_controller_stats stats;
    /* A step beside the cycles. */
    specrt_worker *worker; /* NULL: in line */
    specrt_task task;
    pthread_mutex_t lock;
    pthread_cond_t ready;
    bool out, done; /* a step was handed over; it is ready */
    /* The step's own. */
    kept_batch *training;
    engine_align_query *queries;
    int32_t n_queries;
    float *dh, *logits; /* logits: OSD's, of both models */
    bool step_made;
    int32_t step_n; /* positions */
    double step_seconds, step_loss;
};

/* Room for n more rows. @return false: no memory. */
bool kept_rows_reserve(kept_rows *r, int32_t n, int32_t width);

/* controller_step() : the step on c->training, on whatever thread. */
void controller_step(engine_controller *c);

#endif
