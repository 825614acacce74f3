/* recorder.h : a host that stands before another and writes down what passes: a trace (docs/FORMAT.md), on
 * which routers are trained and over which policies are replayed. Any engine's host will do. */
#ifndef INFER_RECORDER_H
#define INFER_RECORDER_H

#include <stdbool.h>
#include <stdint.h>
#include "specrt_block.h"
#include "specrt_tools.h"

typedef struct recorder recorder;

typedef struct recorder_params {
    /* The host, copied. Its target_hidden() tells of prompts, too: f32 [n, width] of its last call. */
    specrt_host host;
    /* All rows of the drafter's head: its own ranking. Borrowed. */
    const specrt_shortlist *whole;
    const specrt_markov_desc
        *markov; /* that adds to its logits, row by row; NULL: none. Borrowed */
    /* What the trace says of itself; d_draft follows from `whole`. */
    specrt_trace_info info;
    bool feeds_state; /* what drafter passes begin with is the target's state */
    const char *path; /* borrowed; NULL: prompts stay in memory, for recorder_detach() */
    bool force;       /* replace what is there */
} recorder_params;

/* recorder_create() : opens the trace. @return OK, NO_MEMORY, IO, BAD_ARG naming field or file. */
specrt_status recorder_create(const recorder_params *params, recorder **out, specrt_error *err);
void recorder_free(recorder *r); /* what was not committed is removed */

/* recorder_generate() : Answers a prompt, i32 [n], as specrt_generate() does, and records each cycle. The
 * host has forgotten the sequence before. A prompt that is refused (BAD_ARG) leaves nothing in the trace.
 *   request : as for specrt_generate(). max_tokens ends the answer but does not cut the trace's last cycle:
 *       its accept length is the verifier's, whatever the limit
 *   each : called with new tokens as they come; may be NULL */
specrt_status recorder_generate(recorder *r, specrt_session *session, const specrt_request *request,
                                const int32_t *prompt, int32_t n, const char *domain,
                                int (*each)(void *user, const int32_t *tokens, int32_t n),
                                void *user, specrt_error *err);

/* Of all that was recorded. */
typedef struct recorder_figures {
    int64_t n_prompts, n_tokens;
    specrt_session_stats stats; /* n_cycles, n_emitted, n_covered, n_rows */
} recorder_figures;
recorder_figures recorder_get_figures(const recorder *r);

/* A prompt on its way from a recorder in memory to one with a path, which may be another thread's. */
typedef struct recorder_part {
    char *trace; /* owned */
    size_t n_bytes;
    recorder_figures figures;
} recorder_part;

/* recorder_detach() : the prompt that was generated last, out of a recorder in memory. */
recorder_part recorder_detach(recorder *r);
void recorder_part_free(recorder_part *part);

/* recorder_append() : as if r had generated the part. @return OK, NO_MEMORY, IO. */
specrt_status recorder_append(recorder *r, const recorder_part *part, specrt_error *err);

/* recorder_commit() : the trace appears under its name. @return IO naming it. */
specrt_status recorder_commit(recorder *r, specrt_error *err);

#endif
