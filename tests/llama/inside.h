/* inside.h : what programs that run inside llama.cpp share. */
#ifndef TESTS_LLAMA_INSIDE_H
#define TESTS_LLAMA_INSIDE_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "llama.h"

/* Of llama.cpp's own header for engines inside its tree, which is C++. */
void set_nextn(struct llama_context *ctx, bool value,
               bool masked) __asm__("_Z26llama_set_embeddings_nextnP13llama_contextbb");
float *
get_all_nextn(struct llama_context *ctx) __asm__("_Z26llama_get_embeddings_nextnP13llama_context");
float *get_nextn(struct llama_context *ctx,
                 int32_t i) __asm__("_Z30llama_get_embeddings_nextn_ithP13llama_contexti");

/* @return the exit code */
static inline int fail(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    return 1;
}

/* For llama_log_set(). */
static inline void quiet(enum ggml_log_level level, const char *text, void *user) {
    (void)user;
    if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

/* open_context() : of few tokens. other: the target's; NULL: none */
static inline struct llama_context *open_context(struct llama_model *model,
                                                 struct llama_context *other) {
    struct llama_context_params p = llama_context_default_params();
    p.n_ctx = 64;
    p.n_threads = p.n_threads_batch = 1;
#ifdef SPECRT_LLAMA_STATES
    p.ctx_other = other;
#else
    (void)other;
#endif
    return model ? llama_init_from_model(model, p) : NULL;
}

#endif
