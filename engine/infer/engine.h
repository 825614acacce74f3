/* engine.h : a small CPU engine for Llama-family, Qwen and Gemma 3 targets from GGUF files.
 *
 * Two nouns: a model (weights, immutable, shared by threads) and a cache (one sequence's keys and
 * values, one thread at a time). A forward pass takes a batch of tokens after the cached ones, a
 * chain or a tree; engine_keep() then decides which of them stay.
 *
 * A token's hidden state and logits are bitwise the same whether it is computed alone, in a chain or
 * in a tree, with any number of threads: products have one reduction order per row, and attention
 * sums over keys in order of position, wherever they lie in memory. */
#ifndef INFER_ENGINE_H
#define INFER_ENGINE_H

#include <stdbool.h>
#include <stdint.h>
#include "specrt_block.h"

typedef struct engine_config {
    int32_t n_layers, d_model, n_heads, n_kv_heads, d_head, d_ffn, n_vocab;
    int32_t n_context; /* positions the model was made for */
    float rms_epsilon, rope_base;
    bool tied; /* the head is the embedding */
    /* Where Gemma 3 differs (Gemma Team 2025, arXiv 2503.19786); in the others as engine_llama_layer(). */
    float embedding_scale, score_scale; /* of a token's row, and of queries by keys */
    float rope_scale; /* global layers divide positions by it ("linear" scaling) */
    float softcap;    /* c: logits are c tanh(x / c); 0: as they are */
    int32_t window;   /* positions that local layers see, their own included; 0: no local layers */
    int32_t window_period;  /* every such layer is global, the others are local */
    float window_rope_base; /* of local layers */
    bool gelu;              /* gates by GELU's tanh form instead of SiLU */
} engine_config;

typedef struct engine_model engine_model;

/* engine_open() : load a GGUF target. Matrices of any format are used where they lie in the mapped file.
 *   threads : of every later forward pass
 * @return IO, NO_MEMORY, BAD_INPUT naming tensor and expected shape, UNSUPPORTED architecture. */
specrt_status engine_open(const char *path, int threads, engine_model **out, specrt_error *err);
void engine_close(engine_model *m);

const engine_config *engine_get_config(const engine_model *m);

/* engine_head(), engine_embedding() : [n_vocab, d_model], borrowed from the model. */
void engine_head(const engine_model *m, specrt_head_desc *out);
void engine_embedding(const engine_model *m, specrt_head_desc *out);

/* engine_lend() : the model's threads, for head products between its passes; borrowed from the model. With
 * threads of their own the two would wait in each other's way. */
void engine_lend(const engine_model *m, specrt_env *out);

typedef struct engine_cache engine_cache;

#define ENGINE_MAX_BATCH     64        /* tokens of one pass */
#define ENGINE_MAX_OPEN      256       /* nodes computed but not committed */
#define ENGINE_LEAST_CONTEXT 2         /* positions: of a prompt and of what follows it */
#define ENGINE_MOST_CONTEXT  (1 << 24) /* of any model */

/* engine_cache_create() : room for n_context positions (0: the model's) and the open nodes. */
specrt_status engine_cache_create(const engine_model *m, int32_t n_context, engine_cache **out,
                                  specrt_error *err);
void engine_cache_close(engine_cache *c);

int32_t engine_cache_length(const engine_cache *c); /* committed tokens */

/* engine_cache_truncate() : forget open nodes and all committed tokens after the first n. */
void engine_cache_truncate(engine_cache *c, int32_t n_tokens);

/* engine_forward() : run tokens [n] as new open nodes; commits nothing. Open nodes are numbered from
 * 0 since the last engine_keep or engine_cache_truncate.
 *   parents : i32 [n], the open node each follows, -1: the committed tokens. NULL: each follows the
 *             one before it. A node's position is length + depth.
 *   hidden  : f32 [n, d_model] after the final norm; may be NULL
 *   logits  : f32 [n, n_vocab]; may be NULL
 * @return OK; BAD_ARG for n outside [1, ENGINE_MAX_BATCH], a token outside the vocabulary, a parent
 * that is no earlier node, or nodes beyond the context or ENGINE_MAX_OPEN. Never allocates. */
specrt_status engine_forward(engine_cache *c, const int32_t *tokens, int32_t n,
                             const int32_t *parents, float *hidden, float *logits);

#define ENGINE_MAX_TAPS 8
/* engine_tap() : also keep the residual stream before the given layers (features of EAGLE-3 and of blocks);
 * before the layer after the last: what the final norm reads.
 *   layers : [n_layers <= ENGINE_MAX_TAPS] in any order
 *   out : f32 [ENGINE_MAX_BATCH, n_layers * d_model], borrowed by the cache until the next engine_tap; NULL
 *         ends it */
void engine_tap(engine_cache *c, const int32_t *layers, int32_t n_layers, float *out);

/* engine_capture() : also keep what a drafter's layers read in each pass, to go through them again.
 *   pairs : true: embedding and feature side by side, before fc and norms, [2 d_model], or of EAGLE-3,
 *           where the feature is the target's three, [4 d_model] (no independent drafter); false: the
 *           first layer's input: [d_model], of an independent drafter the embedding, or of EAGLE-3 the pair
 *           it attends with and the residual, [3 d_model]
 *   out   : f32 [ENGINE_MAX_BATCH, that], borrowed by the cache; NULL ends it */
void engine_capture(engine_cache *c, bool pairs, float *out);

/* engine_score() : the target head on hidden states, f32 [n, d_model] -> [n, n_vocab]. */
void engine_score(const engine_model *m, const float *hidden, int32_t n, float *logits);

/* engine_keep() : commit open nodes [n], a path in order (each the parent of the next, the first
 * following the committed tokens), and forget the others. */
void engine_keep(engine_cache *c, const int32_t *nodes, int32_t n);

/* engine_prefill() : run and commit tokens [n] in chunks.
 *   hidden, logits : of the last token, [d_model], [n_vocab]; may be NULL
 *   each : called after every chunk with the hidden states of its rows [k, d_model]; may be NULL */
specrt_status engine_prefill(engine_cache *c, const int32_t *tokens, int32_t n, float *hidden,
                             float *logits, void (*each)(void *user, const float *rows, int32_t k),
                             void *user);

/* ---- drafters ----------------------------------------------------------------------------------
 * An EAGLE head is one decoder layer that extrapolates the target's hidden states (EAGLE-1/2: Li et al.
 * 2024; EAGLE-3: Li et al. 2025). Its input at position i is the pair (embedding of token i + 1,
 * feature of position i); the feature is the target's where it is known, else the drafter's own
 * output. An MTP module (DeepSeek-AI 2024) has the same inputs, each through a norm of its own, and a whole
 * layer of the target's kind; of several modules in a file the first drafts every step. An independent
 * drafter is a small model with the target's tokenizer; it reads tokens alone, from the first one on.
 *
 * A block drafter (DFlash, arXiv 2602.06036; DSpark) gives the states of several tokens in one pass: its rows
 * are the text's last token and masks behind it, which attend to each other in both directions and to the
 * context. The context is no text of its own: every layer's keys and values are projections of the target's
 * features, norm(fc [features]). */

typedef struct engine_drafter engine_drafter;

/* engine_drafter_open() : by content: an EAGLE head, safetensors with config.json beside it in Hugging Face
 * names; an MTP module, the same with DeepSeek's names or Qwen's, or a GGUF with nextn tensors, alone or
 * behind a whole model of the target's width; a DFlash or DSpark drafter, safetensors with a config.json that
 * says so; or another GGUF, an independent drafter. That a GGUF's tokenizer is the target's is for the caller
 * to check.
 *   target : borrowed; gives threads, and a head its embedding and LM head where it has none of its own
 * @return BAD_INPUT naming what does not fit the target. */
specrt_status engine_drafter_open(const char *path, const engine_model *target,
                                  engine_drafter **out, specrt_error *err);
void engine_drafter_close(engine_drafter *d);
bool engine_drafter_is_model(const engine_drafter *d); /* independent */
bool engine_drafter_is_gguf(const engine_drafter *d);  /* whose file may bring a tokenizer */

/* engine_drafter_features() : the layers to tap for features (EAGLE-3: three; a block drafter's; EAGLE-1/2:
 * none, the feature is the hidden state). @return how many. */
int32_t engine_drafter_features(const engine_drafter *d, int32_t layers[ENGINE_MAX_TAPS]);

/* engine_drafter_head() : what its logits come from: its own head, with ids where that has a vocabulary
 * of its own (d2t), or the target's; with its Markov head; borrowed. */
void engine_drafter_head(const engine_drafter *d, specrt_head_desc *out);

specrt_status engine_drafter_cache(const engine_drafter *d, int32_t n_context, engine_cache **out,
                                   specrt_error *err);

/* engine_draft() : one drafter pass over a batch; commits nothing (engine_keep does).
 *   tokens   : i32 [n], parents as in engine_forward
 *   features : f32 [n, width], width d_model, or 3 d_model for EAGLE-3's tapped features; an
 *              independent drafter ignores them
 *   hidden   : f32 [n, d_draft], the features of the next level
 *   head_input    : f32 [n, d_draft], what the head multiplies; differs from hidden for EAGLE-3 and
 *                   DeepSeek's MTP */
specrt_status engine_draft(const engine_drafter *d, engine_cache *c, const int32_t *tokens,
                           const float *features, int32_t width, int32_t n, const int32_t *parents,
                           float *hidden, float *head_input);

/* What a block drafter says of itself. Arrays are borrowed from it. */
typedef struct engine_block {
    int32_t size;              /* positions of a block; 0: another kind of drafter */
    int32_t first;             /* that drafts: 0, DSpark's; 1, DFlash's, behind the last token */
    int32_t mask;              /* the token at the positions behind the first */
    specrt_markov_desc markov; /* of its head; rows NULL: none */
    const float
        *confidence; /* f32 [d_model + rank] over a state and a row of markov.from; NULL: none */
    float confidence_bias;
} engine_block;
engine_block engine_drafter_block(const engine_drafter *d);

/* engine_block_read() : the context grows by n tokens of the target.
 *   features : f32 [n, n_taps d_model], the target's at these tokens
 * @return OK; BAD_ARG for another kind of drafter, n outside [1, ENGINE_MAX_BATCH], or beyond the context. */
specrt_status engine_block_read(const engine_drafter *d, engine_cache *c, const float *features,
                                int32_t n);

/* engine_block_draft() : one pass behind a context; commits nothing.
 *   token : the text's last, whose features are not in the context
 *   n : positions that draft, 1 to size - first, and first fewer than the positions left of the context
 *   states : f32 [n, d_model], what the head multiplies: row i of the i-th token behind `token`
 * @return OK; BAD_ARG as above, or for a token outside the vocabulary. */
specrt_status engine_block_draft(const engine_drafter *d, engine_cache *c, int32_t token, int32_t n,
                                 float *states);

#endif
