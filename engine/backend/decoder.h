/* decoder.h : text decoded over a sequence: by a session, plainly, or with the engine's own drafts. What an
 * application that embeds specrt.h looks like. */
#ifndef BACKEND_DECODER_H
#define BACKEND_DECODER_H

#include "engine/backend/backend.h"
#include "specrt_adapt.h"

/* Seconds since decoder_begin, by phase of a cycle. */
typedef struct decoder_times {
    double prefill;
    double draft;  /* passes of the drafter that draft */
    double head;   /* products with the shortlist, their ranking, the tree */
    double target; /* the target's pass over the tree */
    double verify; /* drawing, descending, caches */
    double update; /* sources learning, rows packed */
    double align;  /* of a drafter that learns: rows kept, steps in line, weights taken over */
    double watch;  /* of decoder_watch(), no part of a cycle */
} decoder_times;

typedef enum decoder_kind {
    DECODER_PLAIN,  /* the target alone */
    DECODER_OWN,    /* chains of the engine's own best tokens, params.tree.num_steps long */
    DECODER_SESSION /* a session of `policy` */
} decoder_kind;

typedef struct decoder_desc {
    decoder_kind kind;
    sequence *sequence; /* borrowed; decoders that share it decode one text after the other */
    const specrt_policy *policy;  /* of a session, borrowed */
    specrt_session_params params; /* trees and sampling; n_logits is filled in */
    int32_t n_vocab; /* tokens are in [0, n_vocab); 0: all columns of the target's logits */
    /* NULL: none. Cycles are timed for a clock that begins as this one, and params.auto_draft follows it.
     * Borrowed for the call */
    const specrt_clock *clock;
    bool reads_late; /* as of sequences, where the drafter can wait: a session may never draft */
} decoder_desc;

typedef struct decoder decoder;

/* decoder_create() : @return OK, NO_MEMORY, BAD_ARG; UNSUPPORTED: the engine has no drafts of its own. */
specrt_status decoder_create(const decoder_desc *desc, decoder **out, specrt_error *err);
void decoder_free(decoder *d);

/* decoder_host() : the sequence's callbacks, timed; borrowed, for the decoder's own session. Reset before
 * each text. */
const specrt_host *decoder_host(const decoder *d);
void decoder_reset(decoder *d);

/* decoder_watch() : called in each cycle, verified but not learnt from yet, while the session's lists are
 * those it was drafted from.
 *   logits : f32 [draft->n, n_logits] of the target */
void decoder_watch(decoder *d,
                   void (*watch)(void *user, const specrt_draft *draft,
                                 const specrt_verdict *verdict, const float *logits),
                   void *user);

/* decoder_begin() : Reads a prompt, i32 [n], n >= 1: all of the conversation so far.
 *   request : as for specrt_host_begin(), at position 0; NULL: a new sequence. The other kinds take its
 *       sampling and max_tokens too, and their draws have a session's keys
 * @return OK; BAD_ARG when the prompt is empty, has ids outside the vocabulary or fills the context;
 * BAD_INPUT when a model answers with NaN; HOST with what the engine says. */
specrt_status decoder_begin(decoder *d, const specrt_request *request, const int32_t *prompt,
                            int32_t n, specrt_error *err);

/* decoder_next() : Emits the next tokens, at first the one that came with the prompt.
 *   out : borrowed until the next call; as from specrt_host_cycle(). Without a session there are no
 *       terminators
 * @return OK, and the statuses of specrt_host_cycle(). */
specrt_status decoder_next(decoder *d, const specrt_verdict **out, specrt_error *err);

const decoder_times *decoder_get_times(const decoder *d);
specrt_session *decoder_session(const decoder *d);   /* borrowed; NULL of the other kinds */
const specrt_clock *decoder_clock(const decoder *d); /* as it is now, borrowed; NULL: none */

/* A cycle as the target verified it. */
typedef struct decoder_cycle {
    int32_t n;
    int32_t tokens[SPECRT_TREE_MAX_NODES], parents[SPECRT_TREE_MAX_NODES];
    int32_t depths[SPECRT_TREE_MAX_NODES];
    uint64_t masks[SPECRT_TREE_MAX_NODES];
} decoder_cycle;

/* decoder_cycle_draft() : a cycle as target_verify takes it; arrays are borrowed from it. */
specrt_draft decoder_cycle_draft(const decoder_cycle *c);

/* decoder_cycles() : all of the text since decoder_begin, where info.is_exact is false; else none.
 *   out : borrowed until the decoder's next text
 * @return how many */
int32_t decoder_cycles(const decoder *d, const decoder_cycle **out);

#endif
