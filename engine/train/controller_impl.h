/* controller_impl.h : the inside of a controller, for engine/controller*.c. */
#ifndef TRAIN_CONTROLLER_IMPL_H
#define TRAIN_CONTROLLER_IMPL_H

#include <pthread.h>
#include "engine/train/align_impl.h"
#include "engine/train/controller.h"
#include "engine/infer/passes.h"

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
    float *wanted;       /* OSD: [capacity, d_model] the target's hidden state at each place */
    int32_t n_sequences; /* OSD: that are whole */
    const specrt_align_batch *targets; /* EvoSpec's, once it is out */
} kept_batch;

/* What a guard chooses among: the drafter as it was, the last good weights, those on trial. */
typedef enum guard_set { GUARD_START, GUARD_GOOD, GUARD_TRIAL, GUARD_SETS } guard_set;

typedef struct kept_guard {
    float *values[GUARD_SETS]; /* [n_values]; START is the controller's own */
    int64_t version[GUARD_SETS];
    double cycles[GUARD_SETS]; /* moving sums of the cycles that each takes for the same tokens */
    int32_t n_behind;          /* looks since the trial was as good as what drafts */
    guard_set drafts;          /* START or GOOD */
} kept_guard;

/* A sequence's text, as far as a guard looks at it. */
enum { GUARD_ANSWER = 128, GUARD_RIVALS = 4096 };
typedef struct kept_answer {
    int32_t tokens[GUARD_ANSWER], n; /* token i follows row first_row + i of the sequence */
    int32_t first_row;
    int32_t n_levels;  /* of the deepest draft so far */
    int32_t *rivals;   /* [n_rivals] among which a drafter's first choice is sought */
    int32_t *rows;     /* [n_rivals] of the head */
    int32_t *row_of;   /* [n_logits] of each token, -1: none; NULL: its id */
    uint8_t *is_rival; /* [n_logits] */
    float *logits;     /* [CONTROLLER_CHUNK, GUARD_RIVALS] */
    int32_t n_rivals;
} kept_answer;

enum {
    CONTROLLER_LEVELS = SPECRT_TREE_MAX_STEPS,
    CONTROLLER_CHUNK = 8 /* rows of logits at a time */
};

typedef struct drafted_level {
    float *hidden; /* [ENGINE_MAX_BATCH, d_model] */
    float *inputs; /* [ENGINE_MAX_BATCH, width] */
} drafted_level;

struct engine_controller {
    engine_controller_params params;
    const specrt_head *head;
    engine_align *align;
    parallel_pool *pool;
    int32_t d_model, width, n_logits, max_rows;
    bool paused;
    float *captured;   /* [ENGINE_MAX_BATCH, width] of the last pass */
    kept_rows current; /* of the sequence that goes on */
    drafted_level levels[CONTROLLER_LEVELS];
    draft_passes passes;
    specrt_align *gate; /* EvoSpec's; NULL: OSD */
    kept_batch batches[2];
    int filling;
    kept_guard guard;
    float *start; /* values before anything was learnt; NULL: no guard */
    int64_t n_sequences;
    int64_t version; /* of the masters */
    int64_t last_version;
    bool prompted, looked_at; /* of the sequence: it is counted; the guard looks at it */
    kept_answer answer;
    engine_controller_stats stats;
    /* A step beside the cycles. */
    specrt_worker *worker; /* NULL: in line */
    specrt_task task;
    pthread_mutex_t lock;
    pthread_cond_t ready;
    bool out, done; /* a step was handed over; it is ready */
    /* The step's own. */
    kept_batch *training;
    engine_align_query *queries, *all; /* all: of every row, where passes need them */
    int32_t n_queries, n_all;          /* that fit */
    float *dh, *logits;                /* logits: OSD's, of both models */
    bool step_made;
    int32_t step_n; /* positions */
    double step_seconds, step_loss;
};

/* controller_reserve() : room for n queries and their gradients. @return false: no memory. */
bool controller_reserve(engine_controller *c, int32_t n);

/* controller_list_all() : c->all for the committed rows at these positions, which begin sequences at 0, and
 * behind them the drafted rows of a batch; NULL: none. Nothing where passes do not need them.
 * @return false: no memory. */
bool controller_list_all(engine_controller *c, const int32_t *positions, int32_t n,
                         const kept_batch *b);

/* controller_settle() : a step that is ready is taken over; with `wait` one under way is waited for. */
void controller_settle(engine_controller *c, bool wait);

/* guard_create() : what a guard keeps of a sequence. @return OK, NO_MEMORY.
 * guard_begin() : puts the masters on trial, if this sequence is to be looked at.
 * guard_keep() : a cycle of it.
 * guard_look() : after it, and before the next one's masters; chooses what drafts.
 * guard_loaded() : the masters are taken for good. */
specrt_status guard_create(engine_controller *c, specrt_error *err);
void guard_free(engine_controller *c);
void guard_begin(engine_controller *c);
void guard_keep(engine_controller *c, const specrt_draft *draft, const specrt_verdict *verdict,
                const float *logits);
void guard_look(engine_controller *c);
void guard_loaded(engine_controller *c);

/* Room for n more rows. @return false: no memory. */
bool kept_rows_reserve(kept_rows *r, int32_t n, int32_t width);
void kept_rows_free(kept_rows *r);

/* controller_step() : the step on c->training, on whatever thread. */
void controller_step(engine_controller *c);

#endif
