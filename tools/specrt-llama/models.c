/* models.c : what the options name, opened and checked against each other. */
#include "specrt_tools.h"
#include "tool.h"

#include <string.h>
#include "ggml-backend.h"
#include "formats/bundle_open.h"

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

/* Without -md the target drafts with MTP layers of its own. */
static specrt_status load_drafter(const options *o, models *m, specrt_error *err) {
    if (o->draft) {
        TRY(load(o->draft, o->n_gpu_layers_draft, true, &m->draft, err));
        return specrt_llama_head_open(o->draft, &m->rows, err);
    }
    m->draft = m->target;
    TRY(specrt_llama_head_open(o->target, &m->rows, err));
    if (m->rows.n_mtp > 0) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                            "%s: it has no MTP layers to draft with; expected -md FILE, a drafter",
                            o->target);
}

static specrt_status open_bundle(const options *o, models *m, specrt_error *err) {
    uint8_t sha256[32];
    specrt_llama_fingerprint(m->vocab, sha256);
    return sl_bundle_open_for(o->bundle, sha256, &m->bundle, err);
}

static specrt_status check_context(const options *o, const models *m, specrt_error *err) {
    int32_t most = llama_model_n_ctx_train(m->target);
    if (o->n_context <= most) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                            "-c: expected at most the %d positions of %s, found %lld", (int)most,
                            o->target, (long long)o->n_context);
}

static specrt_status open_pair(const options *o, models *m, specrt_error *err) {
    const specrt_llama_params p = {
        .tree = {.num_steps = (int32_t)o->num_steps,
                 .topk = (int32_t)o->topk,
                 .num_draft_tokens = (int32_t)o->num_draft_tokens},
        .n_context = (int32_t)o->n_context,
        .n_threads = (int32_t)o->n_threads,
        .keeps_states = o->record != NULL,
    };
    TRY(load_drafter(o, m, err));
    TRY(specrt_llama_create(m->target, m->draft, &m->rows, &p, &m->pair, err));
    TRY(specrt_worker_create(NULL, &m->worker, err));
    return specrt_head_bind(NULL, &m->rows.desc, NULL, &m->head, err);
}

/* Whether an answer without drafts is one too: who names no policy, or auto, leaves the choice to us. Of the
 * target's own faults nothing is made. */
static bool is_optional(const options *o, const specrt_error *err) {
    bool chosen = o->policies.n > 0 && !auto_is_named(o->policies.items[0]);
    return !chosen && !o->bench && !o->record && !o->costs && !o->auto_costs &&
           strncmp(err->msg, "target: ", 8) != 0 && err->status != SPECRT_STATUS_NO_MEMORY;
}

static specrt_status go_without(models *m, const specrt_error *why) {
    snprintf(m->no_drafts, sizeof m->no_drafts, "drafting off: %s; plain decoding", why->msg);
    specrt_llama_free(m->pair);
    m->pair = NULL;
    return SPECRT_STATUS_OK;
}

static specrt_status open_all(const options *o, models *m, specrt_error *err) {
    TRY(load(o->target, o->n_gpu_layers, !o->draft, &m->target, err));
    m->vocab = llama_model_get_vocab(m->target);
    m->n_vocab = llama_vocab_n_tokens(m->vocab);
    TRY(check_context(o, m, err));
    TRY(open_bundle(o, m, err));
    specrt_status status = open_pair(o, m, err);
    return status == SPECRT_STATUS_OK || !is_optional(o, err) ? status : go_without(m, err);
}

specrt_status models_open(const options *o, models *m, specrt_error *err) {
    memset(m, 0, sizeof *m);
    is_verbose = o->common.verbose;
    llama_log_set(on_log, NULL);
    ggml_backend_load_all();
    llama_backend_init();
    specrt_status status = open_all(o, m, err);
    if (status != SPECRT_STATUS_OK) models_close(m);
    return status;
}

void models_close(models *m) {
    for (int i = 0; i < m->n_autos; i++) specrt_auto_close(m->autos[i]);
    auto_close_all(m);
    specrt_head_close(m->head);
    specrt_worker_close(m->worker);
    specrt_llama_free(m->pair);
    specrt_llama_head_close(&m->rows);
    specrt_bundle_close(m->bundle);
    if (m->draft && m->draft != m->target) llama_model_free(m->draft);
    if (m->target) llama_model_free(m->target);
    memset(m, 0, sizeof *m);
}

static specrt_status add_auto(models *m, const specrt_costs *costs, const specrt_policy *policy,
                              specrt_session_params *params, specrt_error *err) {
    if (m->n_autos == MOST_AUTOS)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "--policy: expected at most %d of auto and auto+SPEC, found more",
                                MOST_AUTOS);
    TRY(auto_create(costs, &params->tree, policy, &params->auto_draft, err));
    m->autos[m->n_autos++] = params->auto_draft;
    return SPECRT_STATUS_OK;
}

specrt_sampling models_sampling(const options *o) {
    return (specrt_sampling){.temperature = (float)o->temperature,
                             .top_k = (int32_t)o->top_k,
                             .top_p = (float)o->top_p,
                             .min_p = (float)o->min_p,
                             .seed = (uint64_t)o->common.seed,
                             .session = 1};
}

specrt_session_params models_params(const models *m, const options *o, specrt_policy_desc *desc) {
    specrt_session_params params = {
        .sampling = models_sampling(o), .submit = specrt_worker_submit, .submit_user = m->worker};
    specrt_llama_describe(m->pair, desc, &params);
    return params;
}

specrt_status models_session(models *m, const options *o, const char *text, specrt_policy **policy,
                             specrt_session **session, specrt_error *err) {
    specrt_costs costs = {.error = 0};
    if (auto_is_named(text) && !o->auto_costs)
        return auto_session(m, o, text, policy, session, err);
    if (auto_is_named(text)) TRY(auto_costs_read(o->auto_costs, &costs, err));
    specrt_policy_desc desc = {.text = auto_policy(text, &costs)};
    specrt_session_params params = models_params(m, o, &desc);
    TRY(auto_policy_opened(specrt_policy_create(m->bundle, m->head, &desc, policy, err),
                           auto_policy_file(text, &costs, o->auto_costs), err));
    if (auto_is_named(text)) TRY(add_auto(m, &costs, *policy, &params, err));
    return specrt_session_create(*policy, &params, NULL, session, err);
}

specrt_host models_host(const models *m, const options *o, const specrt_session *session) {
    specrt_host host = specrt_llama_host(m->pair);
    host.p_min = (float)o->p_min;
    return auto_host(m, session, host);
}

specrt_status models_called(const specrt_session *session, specrt_status status,
                            specrt_error *err) {
    if (status != SPECRT_STATUS_OK) *err = *specrt_session_last_error(session);
    return status;
}

bool models_ends(const models *m, int32_t token) {
    return llama_vocab_is_eog(m->vocab, token) || sl_bundle_ends(m->bundle, token);
}

specrt_status models_error(const models *m, specrt_status status, specrt_error *err) {
    if (status != SPECRT_STATUS_HOST) return status;
    return specrt_error_set(err, status, "%s", specrt_llama_fault(m->pair));
}
