/* tool.h : what the files of specrt-llama share. Codes, flags and output are as in our other tools, but for
 * names that llama.cpp has for the same thing. */
#ifndef LLAMA_TOOL_H
#define LLAMA_TOOL_H

#include <stdbool.h>
#include <stdio.h>
#include "specrt_llama.h"

enum { EXIT_IO = 1, EXIT_USAGE = 2, EXIT_INVALID = 3 };

#define TRY(call)                                                                                  \
    do {                                                                                           \
        specrt_status try_status = (call);                                                         \
        if (try_status != SPECRT_STATUS_OK) return try_status;                                     \
    } while (0)

/* ---- options.c ---- */

enum { MAX_POLICIES = 32 };

/* Where prompts come from, in the order of the command line. */
typedef enum source_kind { SOURCE_TEXT, SOURCE_FILE, SOURCE_LINES } source_kind;
typedef struct source {
    source_kind kind;
    const char *value;
} source;

typedef struct options {
    const char *target, *draft, *bundle, *system;
    const char *policies[MAX_POLICIES];
    int n_policies;
    source *sources; /* [n_sources], owned */
    int n_sources;
    int n_predict, n_context, n_threads, n_gpu_layers, n_gpu_layers_draft; /* -1: llama.cpp's own */
    int num_steps, topk, num_draft_tokens, rounds;
    double temperature, top_p, min_p;
    int top_k, seed;
    bool conversation, bench, json, quiet, verbose;
} options;

/* options_parse() : handles -h itself.
 * @return -1 to go on, else the exit code */
int options_parse(int argc, char **argv, options *out);
void options_free(options *o);

/* ---- models.c ---- */

typedef struct models {
    struct llama_model *target, *draft;
    const struct llama_vocab *vocab; /* the target's */
    specrt_llama_head rows;
    specrt_llama *pair;
    specrt_head *head;
    specrt_bundle *bundle;
    specrt_worker *worker;
    int32_t n_vocab; /* columns of the target's logits */
} models;

specrt_status models_open(const options *o, models *out, specrt_error *err);
void models_close(models *m);

/* models_session() : a policy, by its text (NULL: the default), and a session of it; both owned. */
specrt_status models_session(const models *m, const options *o, const char *text,
                             specrt_policy **policy, specrt_session **session, specrt_error *err);

/* models_error() : a call's error; where a model failed (HOST), what the pair says of it. */
specrt_status models_error(const models *m, specrt_status status, specrt_error *err);

/* ---- prompts.c ---- */

typedef struct prompt {
    int32_t *ids; /* [n], owned */
    int32_t n;
} prompt;
typedef struct prompts {
    prompt *items; /* [n], owned */
    int n;
} prompts;

/* prompts_read() : what the options name, in the model's chat template if asked for, as tokens. */
specrt_status prompts_read(const options *o, const models *m, prompts *out, specrt_error *err);
void prompts_free(prompts *p);

/* ---- answer.c, bench.c ---- */

/* answer_all() : answers every prompt with one policy; text streams to stdout, or one JSON object. */
specrt_status answer_all(const options *o, models *m, const prompts *p, specrt_error *err);

/* bench_all() : plain decoding, llama.cpp's full head, `full` and the policies in turns. */
specrt_status bench_all(const options *o, models *m, const prompts *p, specrt_error *err);

/* ---- json.c ---- */

/* json_string() : bytes [n] in quotes; controls are escaped, what is not UTF-8 becomes U+FFFD. */
void json_string(FILE *f, const char *bytes, size_t n);

#endif
