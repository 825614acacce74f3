/* backend.c : llama.cpp as an engine of the evaluator. The adapter has the passes; here are the files. */
#include "specrt_tools.h"
#include "backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/cli.h"
#include "base/error.h"
#include "ggml-backend.h"

typedef struct llama_engine {
    backend base;
    struct llama_model *target, *draft;
    specrt_llama_head rows;
    specrt_llama *pair;
    sequence text; /* the one */
    char name[64];
    bool is_lent;
} llama_engine;

static int64_t n_layers[2] = {-1, -1}; /* target, drafter */

void llama_set_layers(int64_t target, int64_t draft) {
    n_layers[0] = target;
    n_layers[1] = draft;
}

/* ---- the text ------------------------------------------------------------------------------------- */

static llama_engine *engine_of(const sequence *s) {
    return (llama_engine *)s->of;
}

static specrt_status lend(backend *b, sequence **out, specrt_error *err) {
    llama_engine *e = (llama_engine *)b;
    *out = NULL;
    if (e->is_lent)
        return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                                "llama.cpp: expected one text at a time, found two");
    e->is_lent = true;
    e->text = (sequence){.of = b, .host = specrt_llama_host(e->pair)};
    *out = &e->text;
    return SPECRT_STATUS_OK;
}

static void give_back(sequence *s) {
    engine_of(s)->is_lent = false;
}

static void reset(sequence *s) {
    specrt_llama_reset(engine_of(s)->pair);
}

static void use_own(sequence *s, bool use) {
    specrt_llama_use_head(engine_of(s)->pair, use);
}

static const float *own_logits(sequence *s) {
    return specrt_llama_draft_logits(engine_of(s)->pair);
}

static const char *fault(const sequence *s) {
    return specrt_llama_fault(engine_of(s)->pair);
}

static void key(const backend *b, char out[SPECRT_COSTS_KEY]) {
    specrt_llama_pair_key(((const llama_engine *)b)->pair, out);
}

/* ---- models --------------------------------------------------------------------------------------- */

/* The first line in which llama.cpp said what is wrong. It has one log for all. */
static char complaint[256];
static bool is_verbose;

static void on_log(enum ggml_log_level level, const char *text, void *user) {
    (void)user;
    if (is_verbose) fputs(text, stderr);
    if (level != GGML_LOG_LEVEL_ERROR || complaint[0]) return;
    snprintf(complaint, sizeof complaint, "%s", text);
    complaint[strcspn(complaint, "\n")] = '\0';
}

/* drafts : its MTP layers, where it has such, are loaded */
static specrt_status load(const char *path, int64_t n_gpu_layers, bool drafts,
                          struct llama_model **out, specrt_error *err) {
    struct llama_model_params p = llama_model_default_params();
#ifdef SPECRT_LLAMA_STATES
    p.load_mtp = drafts;
#endif
    (void)drafts;
    FILE *f = fopen(path, "rb");
    if (!f) return specrt_error_set(err, SPECRT_STATUS_IO, "%s: cannot be opened", path);
    fclose(f);
    if (n_gpu_layers >= 0) p.n_gpu_layers = (int32_t)n_gpu_layers;
    complaint[0] = '\0';
    *out = llama_model_load_from_file(path, p);
    if (*out) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT, "%s: llama.cpp does not load it: %s",
                            path, complaint[0] ? complaint : "see -v");
}

static bool drafts_itself(const backend_desc *desc) {
    return desc->draft && strcmp(desc->draft, desc->target) == 0;
}

static specrt_status load_drafter(llama_engine *e, const backend_desc *desc, specrt_error *err) {
    if (!drafts_itself(desc)) {
        TRY(load(desc->draft, n_layers[1], true, &e->draft, err));
        TRY(specrt_llama_head_open(desc->draft, &e->rows, err));
        return e->rows.desc.rows ? SPECRT_STATUS_OK
                                 : specrt_llama_head_share(&e->rows, desc->target, err);
    }
    e->draft = e->target;
    TRY(specrt_llama_head_open(desc->target, &e->rows, err));
    if (e->rows.n_mtp > 0) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                            "%s: it has no MTP layers to draft with; expected a drafter",
                            desc->target);
}

static specrt_status open_pair(llama_engine *e, const backend_desc *desc, specrt_error *err) {
    const specrt_tree_params one_token = {.num_steps = 1, .topk = 1, .num_draft_tokens = 2};
    const int32_t most = llama_model_n_ctx_train(e->target);
    const specrt_llama_params p = {.tree = e->draft ? desc->tree : one_token,
                                   .n_context =
                                       desc->n_context < most ? (int32_t)desc->n_context : most,
                                   .n_threads = desc->threads,
                                   .keeps_states = desc->keeps_states,
                                   .reads_late = &e->text.reads_late,
                                   .is_plain = &e->text.is_plain,
                                   .by_position = &e->text.by_position};
    TRY(specrt_llama_create(e->target, e->draft, &e->rows, &p, &e->pair, err));
    if (e->draft)
        sl_cli_info("drafter's %lld rows of %s times its state are llama.cpp's logits (relative "
                    "rms %.2g); no pass computes its head",
                    (long long)e->rows.desc.n_rows, specrt_dtype_name(e->rows.desc.dtype),
                    specrt_llama_relative_rms(e->pair));
    return SPECRT_STATUS_OK;
}

static specrt_status open_all(llama_engine *e, const backend_desc *desc, specrt_error *err) {
    TRY(load(desc->target, n_layers[0], drafts_itself(desc), &e->target, err));
    if (desc->draft && strcmp(desc->draft, "none") != 0) TRY(load_drafter(e, desc, err));
    return open_pair(e, desc, err);
}

static void close_all(backend *b) {
    llama_engine *e = (llama_engine *)b;
    specrt_llama_free(e->pair);
    specrt_llama_head_close(&e->rows);
    if (e->draft && e->draft != e->target) llama_model_free(e->draft);
    if (e->target) llama_model_free(e->target);
    free(e);
}

static void describe(llama_engine *e) {
    specrt_policy_desc policy = {0};
    specrt_session_params session = {0};
    specrt_llama_describe(e->pair, &policy, &session);
    snprintf(e->name, sizeof e->name, "llama.cpp %s", llama_version());
    e->base.info =
        (backend_info){.engine = e->name,
                       .n_logits = session.n_logits,
                       .n_context = (int32_t)specrt_llama_host(e->pair).n_context,
                       .d_target = llama_model_n_embd(e->target),
                       .n_threads = 1,
                       .head = e->rows.desc,
                       .is_model = e->draft != NULL, /* no bundle records the head of its file */
                       .keeps_chains = specrt_llama_keeps_chains(e->pair),
                       .can_wait = specrt_llama_keeps_chains(e->pair), /* a model of its own */
                       .n_block = session.n_block,
                       .has_own = e->draft != NULL};
}

specrt_status llama_open(const backend_desc *desc, backend **out, specrt_error *err) {
    static const backend_ops ops = {.close = close_all,
                                    .sequence_create = lend,
                                    .sequence_free = give_back,
                                    .reset = reset,
                                    .own_logits = own_logits,
                                    .use_own = use_own,
                                    .fault = fault,
                                    .key = key};
    llama_engine *e = (llama_engine *)calloc(1, sizeof *e);
    *out = NULL;
    if (!e) return sl_error_no_memory_for(err, "models");
    e->base.ops = &ops;
    is_verbose = desc->verbose;
    llama_log_set(on_log, NULL);
    ggml_backend_load_all();
    llama_backend_init();
    specrt_status status = open_all(e, desc, err);
    if (status != SPECRT_STATUS_OK) return close_all(&e->base), status;
    describe(e);
    *out = &e->base;
    return status;
}
