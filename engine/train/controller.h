/* controller.h : EvoSpec's online alignment controller beside a decoder: keeps what the drafter read, gathers
 * the positions to learn from, trains between cycles or on a worker, and hands the drafter what it learnt.
 * With all parameters in place of LoRA it is the baseline, OSD. A guard may choose which weights draft.
 * docs/methods/align.md says what is whose.
 *
 * A controller serves the decoders of one drafter, one at a time; what the drafter learnt outlives their
 * sequences. The calls under "the sequence's" are engine/backend/own.c's. */
#ifndef TRAIN_CONTROLLER_H
#define TRAIN_CONTROLLER_H

#include "engine/train/align.h"
#include "specrt_tools.h"

typedef struct engine_controller_params {
    engine_align_params align; /* LoRA: EvoSpec; all parameters: OSD */
    specrt_align_params gate;  /* EvoSpec's */
    int32_t interval;          /* OSD's: sequences between steps, 1 or more */
    bool async;                /* steps on a thread of their own, taken over when they are ready */
    int threads;               /* of those, 1 or more; else the drafter's serve */
    int32_t guard;             /* sequences from one look of the guard to the next; 0: none */
} engine_controller_params;

#define ENGINE_CONTROLLER_DEFAULTS                                                                 \
    { .align = ENGINE_ALIGN_DEFAULTS, .gate = SPECRT_ALIGN_DEFAULTS, .interval = 8, .threads = 1 }

/* Sums since create. */
typedef struct engine_controller_stats {
    int64_t n_positions; /* where the drafter had a distribution */
    int64_t n_missing;   /* path A: the token could not have been drafted */
    int64_t n_rejected;  /* of the others: refused */
    int64_t n_kept;      /* path B: to learn from */
    int64_t n_dropped;   /* past the gate, but no room: a step was under way, or rows were gone */
    int64_t n_invalid;   /* not finite */
    int64_t n_steps;     /* of the optimiser */
    int64_t n_bad_steps; /* dropped, since a gradient was not finite */
    int64_t n_learnt;    /* positions, in those steps */
    double loss;         /* sum over them: w T^2 KL(p || q); OSD: the cross-entropy */
    double divergence;   /* sum of KL(p || q) over positions looked at; OSD: 0 */
    double seconds;      /* of steps, wherever they ran */
    double waited;       /* of the decoder: its part of the steps, of keeping rows and of swaps */
    int64_t n_looks;     /* of the guard: sequences that the frozen drafter went through as well */
    int64_t n_taken;     /* looks after which drafts went on with newer weights */
    int64_t n_returns;   /* looks after which they went back to the frozen drafter's */
    int64_t n_restarts;  /* looks after which learning began again from what drafts */
    double look_seconds; /* of looks, in `waited` too */
} engine_controller_stats;

typedef struct engine_controller engine_controller;

/* engine_controller_create() : begins as the drafter is.
 *   drafter : borrowed; aligned until engine_controller_free()
 *   head    : the drafter's, bound; borrowed
 *   n_logits, n_context : of the target
 * @return as engine_align_create() and specrt_align_create(). */
specrt_status engine_controller_create(engine_drafter *drafter, const specrt_head *head,
                                       int32_t n_logits, int32_t n_context,
                                       const engine_controller_params *params,
                                       engine_controller **out, specrt_error *err);
void engine_controller_free(engine_controller *c); /* after its decoders */

/* engine_controller_pause() : whether it looks on without learning. */
void engine_controller_pause(engine_controller *c, bool paused);

/* engine_controller_finish() : waits for a step that is under way and takes it over. */
void engine_controller_finish(engine_controller *c);

/* engine_controller_save(), _load() : see engine_align_save(). Saved is what was learnt, with a guard what
 * drafts; loaded is what learning goes on with. */
specrt_status engine_controller_save(engine_controller *c, const char *path, bool force,
                                     specrt_error *err);
specrt_status engine_controller_load(engine_controller *c, const char *path, specrt_error *err);

void engine_controller_get_stats(const engine_controller *c, engine_controller_stats *out);

/* engine_controller_get_bytes() : activations hold kept rows and buffers, too. */
engine_align_bytes engine_controller_get_bytes(const engine_controller *c);

/* ---- the sequence's ------------------------------------------------------------------------------- */

/* A new sequence, drafted through this cache. */
void engine_controller_begin(engine_controller *c, engine_cache *cache);
/* Its first rows have gone through the target, and nothing through the drafter. */
void engine_controller_prompt(engine_controller *c);
/* The last pass fed n rows that stay. */
void engine_controller_draft_input(engine_controller *c, int32_t n);
/* A pass drafted: the beam's rows and what the head multiplied, f32 [beam->n, d_model]. */
void engine_controller_drafted(engine_controller *c, int32_t level, const specrt_beam *beam,
                               const float *hidden);
/* A cycle was verified, not observed yet.
 *   hidden, logits : f32 [draft->n, d_target], [draft->n, n_logits] the target's; sampled : the draft was */
void engine_controller_verified(engine_controller *c, const specrt_session *session, bool sampled,
                                const specrt_draft *draft, const specrt_verdict *verdict,
                                const float *hidden, const float *logits);

#endif
