/* engine_impl.h : the inside of a model and a cache, for engine/ only. */
#ifndef INFER_ENGINE_IMPL_H
#define INFER_ENGINE_IMPL_H

#include "engine/infer/engine.h"
#include "base/parallel.h"

/* A weight matrix y = W x, rows of any computed format. */
typedef struct engine_matrix {
    specrt_segment segment; /* rows, dtype, n_rows */
    int32_t n_cols;
    void *owned; /* rows of a caller of its own; NULL: borrowed from the mapping */
} engine_matrix;

/* LoRA (Hu et al. 2022): y += scale b (a x), while the drafter is aligned. */
enum { ENGINE_MAX_RANK = 256 };
typedef struct engine_lora {
    engine_matrix a, b; /* f32 [rank, n_cols], [n_rows, rank] */
    float scale;
} engine_lora;

typedef struct engine_layer {
    const float *attn_norm, *ffn_norm; /* [d_model] */
    const float *attn_post_norm,
        *ffn_post_norm;           /* [d_model] of what is added, Gemma 3; else NULL */
    const float *q_norm, *k_norm; /* [d_head], Qwen3 and Gemma 3; else NULL */
    engine_matrix q, k, v, o;     /* [heads * d_head, d_model]; o: [d_model, heads * d_head] */
    engine_matrix gate, up, down; /* [d_ffn, d_model]; down: [d_model, d_ffn] */
    const engine_lora *q_lora, *v_lora; /* borrowed; NULL: none */
} engine_layer;

struct engine_model {
    engine_config config;
    struct engine_weights *file; /* freed with the model */
    parallel_pool *pool;
    bool borrows_pool;          /* a drafter: the target's */
    specrt_head *compute_owner; /* whose specrt_compute every product uses */
    specrt_head *serial_owner;  /* the same on the calling thread alone, inside tasks */
    bool rope_adjacent;         /* rotate (x0, x1) as GGUF's llama, else (x_i, x_{i + d/2}) */
    int32_t d_input;            /* width of a drafter's layer input; 0 for targets */
    engine_matrix embedding, head;
    const float *output_norm; /* [d_model] */
    float *rope_frequency;    /* [d_head / 2] radians per position, owned */
    float *window_frequency;  /* the same of local layers; NULL: there are none */
    engine_layer *layers;     /* [n_layers] */
};

struct engine_cache {
    const engine_model *m;
    int32_t n_context, length, n_slots; /* slots: n_context + ENGINE_MAX_OPEN */
    float *keys, *values;               /* [n_layers, n_kv_heads, n_slots, d_head] */
    int32_t n_open, n_batch;            /* the batch is the last n_batch of the open nodes */
    bool both_ways; /* the open nodes are a block, which sees itself in both directions */
    int32_t depth[ENGINE_MAX_OPEN];
    uint8_t path[ENGINE_MAX_OPEN][ENGINE_MAX_OPEN]; /* ancestors of a node, itself last */
    /* Scratch, rows of the batch. */
    float *x, *normed, *q, *k, *v, *attended, *gate, *up;
    float *input;       /* [ENGINE_MAX_BATCH, m->d_input] of drafters */
    float *rope;        /* [ENGINE_MAX_BATCH, d_head] cos and sin interleaved */
    float *window_rope; /* the same of local layers */
    float *scores;      /* [n_attend, engine_attend_floats()] of attention's tasks */
    int32_t n_attend;
    float *low;      /* [ENGINE_MAX_BATCH, ENGINE_MAX_RANK] LoRA's inner products */
    float *captured; /* engine_capture()'s; NULL: nobody asks */
    bool capture_pairs;
    const int32_t *tap_layers;
    int32_t n_tap;
    float *tap;
};

/* engine_open() with another model's threads. */
specrt_status engine_open_beside(const char *path, const engine_model *other, engine_model **out,
                                 specrt_error *err);

/* engine_load_tail() : one layer of a GGUF, an MTP module's, as the only one of `body`, whose layers have
 * room for it; with the configuration and the rotations, and no embedding or head. Weights stay in `file`. */
specrt_status engine_load_tail(const char *path, struct engine_weights *file, int32_t layer,
                               engine_model *body, specrt_error *err);

/* What a Llama layer of this d_head has where Gemma 3 differs: no windows, no scales. */
void engine_llama_layer(engine_config *k);

/* cos and sin of every position follow from these: base^(-2 i / d_head) / scale, divided by factors
 * [d_head / 2] where the model has them (Llama-3). @return [d_head / 2], owned; NULL: no memory. */
float *engine_rope_frequencies(int32_t d_head, float base, float scale, const float *factors);

/* A matrix as the runtime has it; borrowed. */
void engine_matrix_desc(const engine_matrix *w, specrt_head_desc *out);

/* y = W x for rows of a batch: f32 [n, n_cols] -> [n, n_rows]. */
void engine_product(const engine_model *m, const engine_matrix *w, const float *x, int32_t n,
                    float *out);

bool engine_tokens_valid(const engine_model *m, const int32_t *tokens, int32_t n);

/* Rows of the input embedding, scaled: i32 [n] -> f32 [n, d_model]. */
void engine_embed(const engine_model *m, const int32_t *tokens, int32_t n, float *out);

/* RMSNorm of rows [n, width]; in place is fine. */
void engine_norm(const float *x, const float *weight, int32_t n, int32_t width, float epsilon,
                 float *out);

/* Scratch of one task of attention: queries of ENGINE_ATTEND_ROWS rows that share keys, their scores. */
enum { ENGINE_ATTEND_ROWS = 4 };
size_t engine_attend_floats(const engine_model *m, int32_t n_slots);

/* Open a batch (engine_forward's n and parents): depths, paths, rotations. */
specrt_status engine_begin(engine_cache *c, int32_t n, const int32_t *parents);

/* The same of a block: the only open nodes, side by side behind the committed tokens; each sees all. */
specrt_status engine_begin_block(engine_cache *c, int32_t n);

/* The keys and values of a layer alone, of `input` [n, n_cols of k]. */
void engine_layer_inject(engine_cache *c, int32_t layer, const float *input);

/* One decoder layer on c->x. `input` is what attention reads, [n, n_cols of q]; NULL: the layer's own
 * norm of c->x. */
void engine_layer_forward(engine_cache *c, int32_t layer, const float *input);

#endif
