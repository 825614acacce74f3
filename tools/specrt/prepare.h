/* prepare.h : what the files of `specrt prepare` share. */
#ifndef SPECRT_PREPARE_H
#define SPECRT_PREPARE_H

#include "model/checkpoint.h"
#include "step.h"
#include "tool.h"

typedef enum prepare_engine {
    FOR_VLLM,
    FOR_SGLANG,
    FOR_LLAMA_CPP,
    FOR_TEXT,
    N_ENGINES
} prepare_engine;
extern const char *const prepare_engines[N_ENGINES]; /* as --for names them */

/* What an engine takes for a drafter. */
typedef enum prepare_way {
    WAY_NONE,  /* nothing that specrt makes */
    WAY_CUT,   /* the drafter with a shorter head */
    WAY_LIST,  /* a list of ids beside the drafter */
    WAY_BUNDLE /* the bundle: specrt-llama, or the vLLM plug-in, reads it */
} prepare_way;

typedef struct prepare {
    const char *target, *drafter, *format, *engine_name, *with, *endpoint, *model;
    int64_t size; /* 0: not given */
    double mass;  /* 0: not given */
    cli_list text, prompts;
    bool dry_run, by_language, balance;
    cli_common common;
    prepare_engine engine;
    prepare_way way;
    checkpoint_id id;     /* of the drafter */
    checkpoint_kind kind; /* MODEL for a whole model with MTP layers, too */
    bool cut_is_gguf;
    bool found, uncut; /* the check found something; the cut left the head as it was */
    char answers[TOOL_PATH_BYTES], bundle[TOOL_PATH_BYTES], report[TOOL_PATH_BYTES],
        cut[TOOL_PATH_BYTES]; /* outputs; cut: the drafter or the list */
    char size_text[24], mass_text[24], seed_text[24], threads_text[24];
    steps steps;
} prepare;

/* prepare_run() : all steps. @return the exit code; findings of the check and a head that was not cut are in
 * `found` and `uncut`, and no failure. */
int prepare_run(prepare *p);

/* prepare_start() : the command that starts the engine, as sh reads it, owned; NULL: no memory. Paths are
 * absolute, so the folder of outputs must be there. */
char *prepare_start(const prepare *p);

/* prepare_head() : the model whose head drafts: the drafter, or the target. */
const char *prepare_head(const prepare *p);
bool prepare_wants(const prepare *p, const char *section); /* of --with */

#endif
