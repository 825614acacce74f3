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
    FOR_SPECRT, /* our runtime and tools */
    N_ENGINES
} prepare_engine;
extern const char *const prepare_engines[N_ENGINES]; /* as --for names them */

/* What an engine takes for a drafter. */
typedef enum prepare_way {
    WAY_NONE,  /* nothing that specrt makes */
    WAY_CUT,   /* the drafter with a shorter head */
    WAY_LIST,  /* a list of ids beside the drafter */
    WAY_BUNDLE /* the bundle: our runtime, specrt-llama or the vLLM plug-in reads it */
} prepare_way;

/* What --with may name: the first for every engine, all for ours. */
enum {
    N_SECTIONS = 6,
    N_PLAIN_SECTIONS = 3,
    PREPARE_WITH = 1024, /* bytes of --with */
    PREPARE_WEIGHT = 100 /* of a token of an answer, beside one of --fill */
};
extern const char *const prepare_sections[N_SECTIONS];

typedef struct prepare {
    const char *target, *drafter, *format, *engine_name, *with, *endpoint, *model;
    int64_t size;      /* 0: not given */
    double mass, loss; /* 0: not given */
    cli_list text, prompts, fill;
    bool dry_run, by_language, balance;
    /* Of our engine; 0 and NULL: not given. */
    int64_t limit, tokens;
    const char *policies; /* to compare */
    cli_common common;
    prepare_engine engine;
    prepare_way way;
    checkpoint_id id;     /* of the drafter */
    checkpoint_kind kind; /* MODEL for a whole model with MTP layers, too */
    bool cut_is_gguf;
    bool found, uncut; /* the check found something; the cut left the head as it was */
    bool asks;         /* the target answers prompts: text to count */
    bool drafts_itself, runs, has_head; /* the target, in our engine */
    bool traced, compared;              /* steps of our engine */
    unsigned built;                     /* bits by prepare_sections */
    /* outputs; cut: the drafter or the list */
    char answers[TOOL_PATH_BYTES], bundle[TOOL_PATH_BYTES], report[TOOL_PATH_BYTES],
        cut[TOOL_PATH_BYTES], trace[TOOL_PATH_BYTES], comparison[TOOL_PATH_BYTES],
        page[TOOL_PATH_BYTES];
    char weights[TOOL_PATH_BYTES + 16], settings[2 * PREPARE_WITH]; /* words of a step */
    char size_text[24], mass_text[24], loss_text[24], seed_text[24], threads_text[24],
        tokens_text[24];
    steps steps;
} prepare;

typedef struct prepare_step {
    bool wanted, decodes;  /* decodes: is left out unless the target runs in our engine */
    int (*run)(prepare *); /* @return the exit code */
} prepare_step;

/* prepare_each() : the steps [n] that are wanted, until one fails. @return the exit code. */
int prepare_each(prepare *p, const prepare_step *all, int n);

/* Steps that both files of steps run.
 * prepare_add() : complete and run a step that writes a section, named as the section is, to the bundle.
 * prepare_has() : whether the bundle has a section, by these steps. */
int prepare_ranks(prepare *p);
int prepare_graph(prepare *p);
int prepare_clusters(prepare *p);
int prepare_sketch(prepare *p);
int prepare_add(prepare *p, step *s);
bool prepare_has(const prepare *p, const char *section);

/* prepare_run() : all steps. @return the exit code; findings of the check and a head that was not cut are in
 * `found` and `uncut`, and no failure. */
int prepare_run(prepare *p);

/* prepare_start() : the command that starts the engine, as sh reads it, owned; NULL: no memory. Paths are
 * absolute, so the folder of outputs must be there. */
char *prepare_start(const prepare *p);

/* prepare_n_drafts() : tokens of a draft: of a block drafter as many as a block has. */
int64_t prepare_n_drafts(const prepare *p);

/* prepare_head() : the model whose head drafts: the drafter, or the target. */
const char *prepare_head(const prepare *p);
bool prepare_wants(const prepare *p, const char *section); /* of --with */

/* prepare_takes_rows() : whether the cut gives the drafter rows of the target's head, for want of its own. */
bool prepare_takes_rows(const prepare *p);

/* Of --for specrt: what the engine may find in the target's file; prepare_run(). */
void prepare_own_find(prepare *p);
int prepare_own_run(prepare *p);

#endif
