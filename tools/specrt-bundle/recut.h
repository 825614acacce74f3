/* recut.h : a drafter's folder with its head cut to the ids of a bundle, as an engine loads it. */
#ifndef SPECRT_BUNDLE_RECUT_H
#define SPECRT_BUNDLE_RECUT_H

#include "model/checkpoint.h"
#include "model/token_map.h"

typedef struct recut_request {
    const char *drafter, *output; /* folders; the drafter's safetensors will do */
    const char *engine;           /* of recut_engines() */
    const char *target;           /* whose rows a drafter without a head takes; NULL: none */
    specrt_ranks ranks;           /* ids by rank */
    int32_t size;                 /* how many; 0: the calibrated size, or fewer where rows are */
    int32_t n_vocab;              /* length of t2d; 0: as the drafter says */
    token_map_values values;      /* of the drafter's own d2t */
    bool force;
} recut_request;

typedef struct recut_report {
    int32_t n_rows;        /* that the written drafter scores, of n_rows_before */
    int32_t n_rows_before; /* of the drafter's head, or of the target's where it has none */
    double coverage;       /* of these rows, as of sl_token_coverage() */
    int32_t n_vocab;
    int32_t n_missing;     /* ids that rank higher than one taken, and have no row */
    int32_t n_terminators; /* of those */
    bool same_weights;     /* copied as they are */
    bool has_map;          /* token_map.pt is there, which the engine takes by a flag */
} recut_report;

const char *recut_engines(void); /* "vllm, sglang, ..." */
bool recut_is_engine(const char *name);

/* recut_refuses() : why an engine takes no such drafter, MTP layers or a block drafter, with a cut head,
 * static; NULL: it does, or is none of recut_engines(). */
const char *recut_refuses(const char *engine, const checkpoint *c);

/* recut_reads_config() : whether an engine reads this form of config.json, EAGLE's own or that of
 * speculators; true for what is none of recut_engines(). */
bool recut_reads_config(const char *engine, const checkpoint *c);

/* recut() : config.json, model.safetensors, the tokenizer's files if there are any.
 * @return UNSUPPORTED where the engine takes no shorter head of this kind of drafter; BAD_ARG for a size
 * that the drafter has no rows for; BAD_INPUT, IO, NO_MEMORY. Nothing is left behind then. */
specrt_status recut(const recut_request *r, recut_report *out, specrt_error *err);

#endif
