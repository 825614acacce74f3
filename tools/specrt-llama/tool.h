/* tool.h : what the files of specrt-llama share. */
#ifndef SPECRT_LLAMA_TOOL_H
#define SPECRT_LLAMA_TOOL_H

#include <stdbool.h>
#include <stdio.h>
#include "base/cli.h"
#include "base/io.h"
#include "corpus/prompts.h"
#include "engine/infer/auto.h"
#include "specrt_adapt.h"
#include "llama/specrt_llama.h"

/* ---- options.c ---- */

/* Names are llama.cpp's where it has one. */
typedef struct options {
    cli_common common;
    const char *target, *draft, *bundle, *system, *record, *costs, *auto_costs;
    cli_list policies, texts, files, prompts; /* -p, -f, --prompts */
    int64_t limit;                            /* prompts of each --prompts; 0: all */
    int64_t n_predict;                        /* -1: until an answer ends */
    int64_t n_context, n_threads;             /* 0: llama.cpp's own */
    int64_t n_gpu_layers, n_gpu_layers_draft; /* -1: llama.cpp's own */
    int64_t num_steps, topk, num_draft_tokens, rounds;
    int64_t top_k;
    double temperature, top_p, min_p, p_min; /* p_min: of drafts */
    bool conversation, bench;
} options;

/* options_parse() : @return -1 to go on, else the exit code, and nothing is kept. */
int options_parse(int argc, char **argv, options *out);
void options_free(options *o);

/* ---- models.c ---- */

enum { MOST_AUTOS = 32 };

typedef struct models {
    struct llama_model *target, *draft;
    const struct llama_vocab *vocab; /* the target's */
    specrt_llama_head rows;
    specrt_llama *pair;
    specrt_head *head;
    specrt_bundle *bundle;
    specrt_worker *worker;
    int32_t n_vocab;                /* columns of the target's logits */
    specrt_auto *autos[MOST_AUTOS]; /* of sessions of auto, owned */
    int n_autos;
    struct auto_clock *clock;          /* of autos by measured costs; NULL: none, owned */
    char no_drafts[SPECRT_COSTS_LINE]; /* why this program decodes plainly; empty: it drafts */
} models;

specrt_status models_open(const options *o, models *out, specrt_error *err);
void models_close(models *m);

/* models_session() : a policy, by its text (NULL: the default), and a session of it; both owned. */
specrt_status models_session(models *m, const options *o, const char *text, specrt_policy **policy,
                             specrt_session **session, specrt_error *err);

/* models_params() : what a session of the pair is created with, beside its policy; of that what the pair
 * tells. models_sampling() : as the options say. One session answers all prompts, each with the next
 * generation number. */
specrt_session_params models_params(const models *m, const options *o, specrt_policy_desc *policy);
specrt_sampling models_sampling(const options *o);

/* models_host() : the pair as callbacks for a session, drafting as deep as the options say. */
specrt_host models_host(const models *m, const options *o, const specrt_session *session);

/* models_error() : a call's error; where a model failed (HOST), what the pair says of it. models_called() :
 * of a call on a session, which keeps its error. */
specrt_status models_error(const models *m, specrt_status status, specrt_error *err);
specrt_status models_called(const specrt_session *session, specrt_status status, specrt_error *err);

/* models_ends() : whether a token ends answers: the target's, or the bundle's. */
bool models_ends(const models *m, int32_t token);

/* ---- auto.c ---- */

/* auto_session() : a session of auto by measured costs, its policy by the text. Where drafts cannot be
 * faster, m->no_drafts says so. Costs are measured, or read from their file, when first asked for. */
specrt_status auto_session(models *m, const options *o, const char *text, specrt_policy **policy,
                           specrt_session **session, specrt_error *err);

/* auto_host() : a host whose cycles are timed for such a session; any other's is as it was. Before another
 * sequence that does not begin with a prompt, it is asked for again. */
specrt_host auto_host(const models *m, const specrt_session *session, specrt_host host);

/* auto_explain() : what decided and what came of it. @return whether the session is one of auto_session() */
bool auto_explain(const models *m, const specrt_session *session, specrt_auto_stats *stats,
                  char line[SPECRT_COSTS_TEXT]);
void auto_close_all(models *m);

/* ---- plain.c ---- */

/* Decoding without a drafter. Zero-initialise it. */
typedef struct plain_decoder {
    struct llama_context *context;
    specrt_verifier *verifier;
    int32_t n_context;
    uint64_t n_answers;
} plain_decoder;

/* plain_generate() : an answer by the target alone, with the draws of a session of models_sampling().
 *   request : max_tokens is read */
specrt_status plain_generate(plain_decoder *p, const options *o, const models *m,
                             const specrt_request *request, const int32_t *ids, int32_t n,
                             specrt_generation *g, specrt_error *err);
void plain_close(plain_decoder *p);

/* ---- prompts.c ---- */

/* A prompt's first turn, as tokens. */
typedef struct input {
    int32_t *ids; /* [n], owned */
    int32_t n;
    const char *domain; /* of its prompt */
} input;
typedef struct inputs {
    prompt_list prompts;
    input *items; /* [n] of the prompts */
    int n;
} inputs;

/* inputs_read() : what the options name, in the model's chat template if asked for. */
specrt_status inputs_read(const options *o, const models *m, inputs *out, specrt_error *err);
void inputs_free(inputs *in);

/* inputs_unanswered() : an error or a warning where the first token of n prompts' answers ends them, with
 * what to try. */
enum { UNANSWERED_MOST = 256 };
void inputs_unanswered(const options *o, const models *m, const inputs *in, int n,
                       char out[UNANSWERED_MOST]);

/* ---- template.c ---- */

/* template_write() : a user's message as the target's template writes it. @return owned; NULL: llama.cpp's C
 * API does not know the template, or there is none */
char *template_write(const models *m, const char *system, const char *text);

/* template_name() : as llama.cpp names it; NULL: not known, or there is none. */
const char *template_name(const models *m);

/* template_announce() : on stderr, that the target has a template and prompts are not written in it. */
void template_announce(const options *o, const models *m);

/* template_suggest() : what to try where an answer ends at once. */
enum { TEMPLATE_HINT = 128 };
void template_suggest(const options *o, const models *m, char out[TEMPLATE_HINT]);

/* ---- reading.c ---- */

/* A prompt that both models have read. Zero-initialise it. */
typedef struct reading {
    specrt_llama_state state;
    const input *of;
    float *logits; /* f32 [n_vocab] of its last token, owned */
    int32_t *best; /* i32 [n, SPECRT_LOGITS_MAX_K] the target's best tokens at each, owned */
} reading;

/* reading_take() : both models read a prompt, from nothing; the pair's sequence goes on from it. */
specrt_status reading_take(const input *p, const models *m, reading *out, specrt_error *err);

/* reading_resume() : the sequence is the prompt again, and nobody reads it. */
specrt_status reading_resume(const reading *r, const models *m, specrt_error *err);

/* reading_begin() : the same, and a session begins as specrt_host_begin() does, from what the target said. */
specrt_status reading_begin(const reading *r, const models *m, specrt_session *session,
                            specrt_verdict *first, specrt_error *err);
void reading_free(reading *r);

/* ---- record.c ---- */

/* A trace that is being written, and the drafter's own ranking of all rows for it. Zero-initialise. */
typedef struct record_file {
    struct recorder *recorder;
    specrt_policy *full;
} record_file;

/* record_open() : the trace that the options name, of a policy; its host is the recorder's. */
specrt_status record_open(const options *o, models *m, const specrt_policy *policy,
                          record_file *out, specrt_error *err);
void record_close(record_file *r);

/* ---- costs.c ---- */

/* auto_meter() : (auto.c) the pair's passes behind so many tokens, to close.
 *   head : NULL: products are not timed */
specrt_status auto_meter(const models *m, const options *o, const specrt_head *head,
                         int32_t n_before, specrt_meter *out, specrt_error *err);

/* costs_measure() : what calls cost, by size, to the file that the options name; after as
 * many tokens as prompts and half their answers have on average, for attention costs by them; without prompts
 * after 64. */
specrt_status costs_measure(const options *o, const models *m, const inputs *in, specrt_error *err);

/* ---- answer.c, bench.c ---- */

/* answer_all() : answers every prompt with one policy; text streams to stdout, or one JSON object. */
specrt_status answer_all(const options *o, models *m, const inputs *in, specrt_error *err);

/* bench_all() : plain decoding, llama.cpp's full head, `full` and the policies in turns. */
specrt_status bench_all(const options *o, models *m, const inputs *in, specrt_error *err);

#endif
