/* align.h : a drafter that learns, an EAGLE head or an independent drafter: what of it is trained, its layers
 * forward and backward over rows that were kept, and the optimiser's step. What to learn from is for others
 * to say.
 *
 * EvoSpec (Zhang et al. 2026) trains LoRA matrices on the queries and values of every layer; OSD (Liu et al.
 * 2024) all of an EAGLE head's own parameters but its LM head. The masters are f32 and apart from the weights
 * that draft, which take them over in engine_align_swap() only. Results do not depend on how many threads
 * there are. */
#ifndef TRAIN_ALIGN_H
#define TRAIN_ALIGN_H

#include "base/parallel.h"
#include "engine/infer/engine.h"

typedef enum engine_align_mode { ENGINE_ALIGN_LORA, ENGINE_ALIGN_FULL } engine_align_mode;
typedef enum engine_optimiser { ENGINE_ADAMW, ENGINE_SGD } engine_optimiser;

typedef struct engine_align_params {
    engine_align_mode mode;
    engine_optimiser optimiser; /* AdamW without decay, (0.9, 0.999, 1e-8); or plain descent */
    int32_t rank;               /* LoRA's, 1 to 256 and at most d_ffn */
    float alpha;                /* LoRA's: scale is alpha / rank */
    float rate;                 /* eta, 0 or more */
    float clip;                 /* of the gradient's length; 0: never */
    uint64_t seed;              /* of LoRA's a */
} engine_align_params;

/* EvoSpec's Table 5; optimiser, rate and clip are ours (docs/methods/align.md). */
#define ENGINE_ALIGN_DEFAULTS                                                                      \
    { .mode = ENGINE_ALIGN_LORA, .rank = 32, .alpha = 32, .rate = 3e-4f, .clip = 1 }

/* A row whose output is wanted, and the keys that it sees. */
typedef struct engine_align_query {
    int32_t row;
    int32_t first, n;     /* committed rows [first, first + n); such a row is the last of them */
    int32_t path, n_path; /* drafted rows [path, path + n_path); such a row is the last of them */
} engine_align_query;

/* Rows of any number of sequences. */
typedef struct engine_align_rows {
    int32_t n, n_queries;
    const float *inputs;      /* [n, engine_align_width()] as engine_capture() kept them */
    const int32_t *positions; /* [n] */
    const engine_align_query *queries;
    const engine_align_query
        *all; /* [n] every row as a query, which layers below the last go through; NULL:
                                    * an EAGLE head, which has one layer */
} engine_align_rows;

typedef struct engine_align_bytes {
    size_t parameters, gradients, moments; /* f32 masters, and of the optimiser */
    size_t drafting;                       /* copies that draft */
    size_t activations;                    /* of passes, the most so far */
} engine_align_bytes;

typedef struct engine_align engine_align;

/* What an optimiser moves, to be put aside for another that learns something else. */
typedef struct engine_align_state {
    float *values;         /* as engine_align_masters() counts them */
    float *first, *second; /* AdamW's moments, likewise; NULL: for a forward pass alone */
    int64_t n_steps;
} engine_align_state;

/* engine_align_create() : begins as the drafter is.
 *   drafter : borrowed; it drafts with what is learnt until engine_align_free()
 *   pool    : threads of the passes, borrowed; NULL: the drafter's, between its passes only
 * @return OK, NO_MEMORY, BAD_ARG naming the field, UNSUPPORTED for MTP modules and Gemma's layers, and for
 * all parameters of an independent drafter. */
specrt_status engine_align_create(engine_drafter *drafter, const engine_align_params *params,
                                  parallel_pool *pool, engine_align **out, specrt_error *err);
void engine_align_free(engine_align *a);

int32_t engine_align_width(const engine_align *a);  /* of inputs */
bool engine_align_needs_all(const engine_align *a); /* rows of passes need `all` */
bool engine_align_pairs(const engine_align *a);     /* whether they are pairs: engine_capture() */

/* engine_align_forward() : the layers over rows, with the masters.
 *   hidden : f32 [n_queries, d_model] what the head multiplies, borrowed until the next call
 * @return OK, NO_MEMORY. */
specrt_status engine_align_forward(engine_align *a, const engine_align_rows *rows,
                                   const float **hidden);

/* engine_align_backward() : adds to the gradient, after forward over the same rows.
 *   dh : f32 [n_queries, d_model] with respect to `hidden` */
void engine_align_backward(engine_align *a, const engine_align_rows *rows, const float *dh);

/* engine_align_step() : the optimiser's, times `scale` of the gradient, which is zero then.
 * @return whether it was made; not when a value is not finite: masters and moments stay. */
bool engine_align_step(engine_align *a, float scale);

/* engine_align_swap() : drafts go on with the masters; between passes of the drafter.
 * engine_align_draft() : with other values, copied. */
void engine_align_swap(engine_align *a);
void engine_align_draft(engine_align *a, const float *values);

/* engine_align_exchange() : goes on with another state, and gives the one it had in its place.
 * engine_align_restart() : masters become a copy of these values, moments of no steps. */
void engine_align_exchange(engine_align *a, engine_align_state *state);
void engine_align_restart(engine_align *a, const float *values);

/* engine_align_state_create() : these values, copied, and no steps. @return OK, NO_MEMORY: all NULL then. */
specrt_status engine_align_state_create(const engine_align *a, const float *values,
                                        engine_align_state *out, specrt_error *err);
void engine_align_state_free(engine_align_state *state);

engine_align_bytes engine_align_get_bytes(const engine_align *a);
float *engine_align_masters(engine_align *a, int64_t *n);   /* all, in one row */
const float *engine_align_gradients(const engine_align *a); /* of them, before a step */

/* engine_align_save() : LoRA's matrices in PEFT's names, as loaders of adapters expect them, with
 * adapter_config.json beside; or the whole head in EAGLE's. Moments are not kept.
 * engine_align_load() : a snapshot of the same drafter, rank and scale; drafts take it at the next swap.
 * @return IO, BAD_INPUT naming what does not fit; masters are as before then. */
specrt_status engine_align_save(const engine_align *a, const char *path, bool force,
                                specrt_error *err);
specrt_status engine_align_load(engine_align *a, const char *path, specrt_error *err);

#endif
