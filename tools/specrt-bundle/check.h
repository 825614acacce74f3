/* check.h : a drafter or a list under examination, and what every kind of it is asked. */
#ifndef SPECRT_BUNDLE_CHECK_H
#define SPECRT_BUNDLE_CHECK_H

#include "model/checkpoint.h"
#include "tokenizer/tokenizer.h"
#include "verbs.h"

typedef struct check_request {
    const char *drafter, *target, *engine, *keep;
    const cli_common *common;
} check_request;

/* What the target's folder or file says; 0 and NULL where it says nothing. */
typedef struct check_target {
    int64_t n_vocab, width;
    tokenizer *tok;
    id_list ends; /* ids that end a text; ids owned */
} check_target;

/* A drafter under examination. */
typedef struct exam {
    const check_request *q;
    checkpoint c;
    check_target t;
    token_map map;   /* the ids of its rows; n = 0: rows are ids, or the list cannot be read */
    int32_t *sorted; /* [map.n] the same ascending; owned */
    json_object *findings; /* {code, engines, what, fix} */
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

/* exam_folder() : a drafter in safetensors; fills the list. */
specrt_status exam_folder(exam *e, specrt_error *err);

#endif
