/* align_impl.h : the inside of an aligned drafter, for engine/align*.c. */
#ifndef TRAIN_ALIGN_IMPL_H
#define TRAIN_ALIGN_IMPL_H

#include "engine/train/align.h"
#include "engine/infer/drafter.h"

#define ALIGNMENT "the drafter's alignment" /* there is no memory for it */

/* What may be trained, in the order of the masters; LoRA's blocks once per layer. */
enum {
    ALIGN_Q_A,
    ALIGN_Q_B,
    ALIGN_V_A,
    ALIGN_V_B,
    ALIGN_LORA_BLOCKS,
    ALIGN_Q = 0,
    ALIGN_K,
    ALIGN_V,
    ALIGN_O,
    ALIGN_GATE,
    ALIGN_UP,
    ALIGN_DOWN,
    ALIGN_NORM, /* before the FFN */
    ALIGN_FC,
    ALIGN_BIAS,  /* fc's */
    ALIGN_NORMS, /* of EAGLE-3: of the embedding, of the feature, before the head */
    ALIGN_FULL_BLOCKS = ALIGN_NORMS + 3
};

typedef struct align_block {
    const char *name; /* "self_attn.q_proj.lora_A"; the layer's prefix stands before it */
    bool of_layer;    /* else of the head as a whole: fc */
    int32_t n_rows, n_cols;
    int64_t at; /* in the masters */
} align_block;

/* Rows of every pass, grown as needed; n rows, m queries, d widths as in the drafter. What is between layers
 * is kept; what a layer computes inside is computed again on the way back. */
typedef struct align_rows {
    int32_t n_rows, n_queries, n_keys; /* that fit */
    void *block;
    size_t bytes;
    float *
        stream; /* [layers, n, d] the residual that each layer of an independent drafter reads; with all
                    * parameters what fc gives */
    float *dstream;       /* [n, d] of the layer at hand */
    float *x;             /* [n, d_in] what queries, keys and values are made of */
    float *k, *v;         /* [n, kv] */
    float *dk, *dv;       /* likewise */
    float *low_v;         /* [n, rank] a x */
    float *dlow;          /* [n, rank] */
    float *raw_q, *raw_k; /* [m, q], [n, kv] before norms of heads */
    float *dx;            /* [n, d_in], where gradients go on to what is below */
    float *xq, *dxq;      /* [m, d_in] of the queries' own rows */
    float *q, *dq;        /* [m, q] */
    float *low_q;         /* [m, rank] */
    float *weights;       /* [kv heads, keys] of attention, scratch */
    float *mixed;         /* [m, q] what attention gives */
    float *dmixed;        /* likewise */
    float *h1, *h2;       /* [m, d] after attention, after the FFN */
    float *out;           /* [m, d] what the head multiplies */
    float *dh;            /* [m, d] */
    float *normed;        /* [m, d] */
    float *dnormed;       /* [m, d] */
    float *gate, *up, *act, *dgate, *dup, *dact; /* [m, ffn] */
    float *moved; /* [max(n, m), widest] of a product that is added */
} align_rows;

struct engine_align {
    engine_drafter *d;
    engine_model
        *m; /* whose layers are trained: an independent drafter's own, or the head's body */
    int32_t n_layers, at; /* at: the layer that a pass goes through */
    engine_align_params params;
    parallel_pool *pool;
    specrt_head *compute; /* products on that pool */
    int32_t n_blocks;
    align_block *blocks;
    int64_t n_values;
    float *values, *gradients, *first, *second; /* [n_values]; moments of AdamW only */
    float *drafting;                            /* [n_values] */
    engine_layer layer;                         /* the one at hand: the file's, or the masters */
    engine_matrix fc;
    engine_layer kept_layer; /* the drafter's own, put back in the end */
    engine_matrix kept_fc;
    const float *norms[3], *kept_norms[3]; /* EAGLE-3's: of passes; the drafter's own; else NULL */
    engine_lora *lora;                     /* [n_layers, 2] of drafting, q and v */
    float scale;                           /* of LoRA */
    int64_t n_steps;
    align_rows rows;
};

/* align_lora_block() : one of LoRA's of the layer at hand. */
static inline int align_lora_block(const engine_align *a, int block) {
    return a->at * ALIGN_LORA_BLOCKS + block;
}

/* A block's own part of a row of all values. */
static inline float *align_part(const engine_align *a, float *values, int block) {
    return values + a->blocks[block].at;
}

/* y = W x, rows [n, n_cols] -> [n, n_rows]. */
void align_product(const engine_align *a, const engine_matrix *w, const float *x, int32_t n,
                   float *y);

/* dx += W^T dy, rows [n, n_rows] -> [n, n_cols]. */
void align_product_back(const engine_align *a, const engine_matrix *w, const float *dy, int32_t n,
                        float *dx);

/* dW += scale dy^T x, rows [n, n_rows], [n, n_cols] -> [n_rows, n_cols]. */
void align_outer(const engine_align *a, const float *dy, int32_t n_rows, const float *x,
                 int32_t n_cols, int32_t n, float scale, float *dw);

/* sum x y; y += a x: the same bits in vectors of any width. */
float align_dot(const float *x, const float *y, int32_t n);
void align_add(float scale, const float *x, int32_t n, float *y);

/* A matrix of f32 rows side by side. */
engine_matrix align_matrix(const float *rows, int32_t n_rows, int32_t n_cols);

#endif
