/* check.h : a drafter or a list under examination, and what every kind of it is asked. */
#ifndef SPECRT_BUNDLE_CHECK_H
#define SPECRT_BUNDLE_CHECK_H

#include "model/checkpoint.h"
#include "tokenizer/tokenizer.h"
#include "verbs.h"

typedef struct check_request {
    const char *drafter, *target, *engine, *keep, *bundle;
    const cli_common *common;
} check_request;

/* What the target's folder or file says; 0 and NULL where it says nothing. */
typedef struct check_target {
    int64_t n_vocab, width, n_layers;
    int64_t n_mtp; /* MTP layers */
    bool tied;     /* its head is the embedding */
    tokenizer *tok;
    id_list ends; /* ids that end a text; ids owned */
} check_target;

/* A drafter or list under examination. */
typedef struct exam {
    const check_request *q;
    const char *kind; /* "an EAGLE-3 drafter", static */
    checkpoint c;     /* of a folder */
    check_target t;
    token_map map;   /* the ids of its rows; n = 0: rows are ids, or the list cannot be read */
    int32_t *sorted; /* [map.n] the same ascending; owned */
    json_object *findings; /* {code, engines, what, fix} */
    json_object *block;    /* what a block drafter says of itself; NULL: is none */
    json_object *ordered;  /* what an ordered head holds; NULL: none, or a faulty one */
} exam;

/* exam_find() : a finding that concerns these engines ("vllm sglang"; NULL: all), with its fix. */
__attribute__((format(printf, 5, 6))) void exam_find(exam *e, const char *code, const char *engines,
                                                     const char *fix, const char *format, ...);

/* exam_open_target() : what --target says, if it is given. */
specrt_status exam_open_target(exam *e, specrt_error *err);
void exam_close_target(exam *e);

/* exam_tokenizer() : that the drafter's own tokenizer, where it has one that is read, is the target's. */
specrt_status exam_tokenizer(exam *e, specrt_error *err);

/* exam_tokens() : that the list, if there is one, has what texts need of the target's tokens. */
specrt_status exam_tokens(exam *e, specrt_error *err);

/* exam_bundle() : that the list, if there is one, is that of --bundle, if given; after exam_tokens(). */
specrt_status exam_bundle(exam *e, specrt_error *err);

/* exam_rows() : that rows of a head which the target's head has, too, are those of the list's tokens. */
specrt_status exam_rows(exam *e, const model *m, const char *head, specrt_error *err);

/* exam_block() : that a block drafter's tables by token have `n_vocab` rows (0: not said) or the head's, and
 * that it reads layers that the target has. */
void exam_block(exam *e, const model *m, const block_drafter *b, int64_t n_vocab);

/* exam_ordered() : a drafter's ordered head, where there is one: that engines load it, and for how many
 * sequences it pays. */
specrt_status exam_ordered(exam *e, specrt_error *err);

/* exam_folder(), exam_gguf(), exam_list() : a drafter in safetensors, one in a GGUF, or a list of its own;
 * each fills the list. */
specrt_status exam_folder(exam *e, specrt_error *err);
specrt_status exam_gguf(exam *e, specrt_error *err);
specrt_status exam_list(exam *e, specrt_error *err);

#endif
