/* backend.h : an engine with a target and its drafter. The tools know no other way to a model. Two engines
 * are behind it: ours (own.c, over engine/infer) and llama.cpp (tools/specrt-llama/backend.c).
 *
 *     backend   models, read-only
 *     sequence  caches of both models for one text, as a specrt_host; one thread at a time
 *     decoder   (decoder.h) a session, or plain decoding, over a sequence */
#ifndef BACKEND_H
#define BACKEND_H

#include <stdbool.h>
#include <stdint.h>
#include "specrt_adapt.h"
#include "specrt_block.h"

typedef struct backend_desc {
    const char *target; /* a GGUF */
    const char *draft;  /* NULL or "none": no drafter */
    int threads;        /* of all passes that run at the same time */
    int n_sequences;    /* that the tool would run at the same time; 0: one */
    int64_t
        n_context; /* positions of a sequence; 0, or more than the model's: the engine's choice */
    /* The greatest draft that any sequence will hold; zeros: the runtime's defaults */
    specrt_tree_params tree;
    bool keeps_states; /* hosts have target_hidden */
    bool verbose;      /* the engine's own log goes to stderr */
} backend_desc;

typedef struct backend_info {
    const char *engine;    /* static: "specrt" or "llama.cpp" with its version */
    int32_t n_logits;      /* columns of the target's logits */
    int32_t n_context;     /* positions of a sequence */
    int32_t d_target;      /* width of target_hidden */
    int32_t n_threads;     /* sequences that may run at the same time */
    specrt_head_desc head; /* the drafter's, borrowed; rows NULL: there is no drafter */
    specrt_head_desc target_head, embedding; /* the target's, borrowed; rows NULL: not known */
    specrt_env env;                          /* for products with the head, borrowed */
    bool is_model;     /* the drafter has a head of its own, which a bundle's `head` is not */
    bool has_vocab;    /* the drafter's file may have a tokenizer, which must be the target's */
    bool feeds_state;  /* a draft's first pass reads the target's state */
    bool keeps_chains; /* as in specrt_auto_desc */
    bool is_exact;     /* a token's logits are the same bits alone, in a chain and in a tree */
    bool can_wait;     /* the drafter can read a prompt when it first drafts: sequence.reads_late */
    int32_t n_block;   /* tokens that the drafter drafts in one pass; 0: one */
    bool has_own;      /* the engine drafts with its whole head by itself: sequence_use_own() */
} backend_info;

typedef struct backend backend;
typedef struct sequence sequence;

/* What an engine implements. Statuses and errors are as the functions below document them. */
typedef struct backend_ops {
    void (*close)(backend *b);
    specrt_status (*sequence_create)(backend *b, sequence **out, specrt_error *err);
    void (*sequence_free)(sequence *s);
    void (*reset)(sequence *s);
    const float *(*own_logits)(sequence *s); /* NULL function: has_own is false */
    void (*use_own)(sequence *s, bool use);
    const char *(*fault)(const sequence *s);
    /* What costs depend on, for specrt_costs_path(). NULL function: autos do not follow the clock */
    void (*key)(const backend *b, char out[SPECRT_COSTS_KEY]);
} backend_ops;

/* An engine's own struct begins with it. */
struct backend {
    const backend_ops *ops;
    backend_info info;
};

/* The same. */
struct sequence {
    backend *of;
    /* Callbacks, valid for the sequence's life; n_context and max_batch are set. A callback that fails
     * returns BAD_INPUT where a model's file is at fault, else another value; sequence_fault() says why. */
    specrt_host host;
    /* The next two are set between reset and prompt. reads_late: the drafter reads the prompt when it first
     * drafts, not beside the target, for texts that may never need a draft; without effect on drafters that
     * read the target's states. is_plain: the text needs no draft, so no drafter need read it. */
    bool reads_late, is_plain;
    bool by_position; /* as in specrt_block; kept over resets */
    double learning;  /* seconds of commit() for a drafter that learns, since the last reset */
};

/* backend_close() : after its sequences; NULL is allowed. */
void backend_close(backend *b);

/* sequence_create() : room for one text.
 * @return OK; NO_MEMORY; BAD_ARG, UNSUPPORTED naming what the engine does not take. */
specrt_status sequence_create(backend *b, sequence **out, specrt_error *err);
void sequence_free(sequence *s); /* NULL is allowed */

/* sequence_reset() : forgets the text. Before every prompt. */
void sequence_reset(sequence *s);

/* sequence_fault() : why a callback failed since the last reset: "target: ..." or "drafter: ..."; else empty.
 * Borrowed. */
const char *sequence_fault(const sequence *s);

/* sequence_use_own() : whether draft_step or draft_block computes the engine's own logits instead of states
 * for ours; sequence_own_logits() : f32 [beam->n, n_logits] of the last draft_step, or [block->n, n_logits]
 * of the last block, behind the engine's own greedy choices; borrowed until the next. Where
 * backend_info.has_own. */
void sequence_use_own(sequence *s, bool use);
const float *sequence_own_logits(sequence *s);

#endif
