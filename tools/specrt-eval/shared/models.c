/* models.c : what the options name, opened and checked against each other. */
#include "eval.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/io.h"
#include "formats/bundle_open.h"

void models_close(eval_models *m) {
    specrt_head_close(m->head);
    specrt_head_close(m->target_head);
    specrt_worker_close(m->worker);
    specrt_bundle_close(m->bundle);
    engine_drafter_close(m->drafter);
    engine_close(m->target);
    sl_tokenizer_close(m->tok);
    *m = (eval_models){0};
}

static specrt_status check_vocabulary(const eval_options *o, const eval_models *m,
                                      specrt_error *err) {
    int32_t rows = engine_get_config(m->target)->n_vocab, ids = sl_tokenizer_n_vocab(m->tok);
    if (ids <= rows) return SPECRT_STATUS_OK;
    return specrt_error_set(
        err, SPECRT_STATUS_BAD_INPUT,
        "%s: its tokenizer has %d ids; expected at most the %d rows of its head", o->target,
        (int)ids, (int)rows);
}

static specrt_status open_bundle(const eval_options *o, eval_models *m, specrt_error *err) {
    uint8_t sha256[32];
    sl_tokenizer_fingerprint(m->tok, sha256);
    return sl_bundle_open_for(o->bundle, sha256, &m->bundle, err);
}

/* An MTP module may come without one. */
static specrt_status check_same_tokenizer(const eval_options *o, const eval_models *m, bool needed,
                                          specrt_error *err) {
    tokenizer *draft;
    uint8_t ours[32], theirs[32];
    TRY((needed ? sl_tokenizer_open : sl_tokenizer_of_model)(o->draft, &draft, err));
    if (!draft) return SPECRT_STATUS_OK;
    sl_tokenizer_fingerprint(m->tok, ours);
    sl_tokenizer_fingerprint(draft, theirs);
    specrt_status status = SPECRT_STATUS_OK;
    if (memcmp(ours, theirs, sizeof ours) != 0)
        status = specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                  "%s: tokenizer %s of %d ids: expected that of %s, %s of %d ids; "
                                  "a drafter must have the target's",
                                  o->draft, sl_tokenizer_name(draft),
                                  (int)sl_tokenizer_n_vocab(draft), o->target,
                                  sl_tokenizer_name(m->tok), (int)sl_tokenizer_n_vocab(m->tok));
    sl_tokenizer_close(draft);
    return status;
}

/* Policies that search it check it against the bundle. */
static specrt_status open_target_head(eval_models *m, specrt_error *err) {
    specrt_head_desc head;
    engine_head(m->target, &head);
    return specrt_head_bind(NULL, &head, &m->env, &m->target_head, err);
}

/* The bundle's head is the target's: that of an independent drafter is another, and the ranks, which
 * depend on the tokenizer alone, serve it as well. */
static specrt_status open_drafter(const eval_options *o, eval_models *m, specrt_error *err) {
    specrt_head_desc head;
    TRY(engine_drafter_open(o->draft, m->target, &m->drafter, err));
    engine_drafter_head(m->drafter, &head);
    bool independent = engine_drafter_is_model(m->drafter);
    if (engine_drafter_is_gguf(m->drafter)) TRY(check_same_tokenizer(o, m, independent, err));
    TRY(specrt_worker_create(NULL, &m->worker, err));
    TRY(open_target_head(m, err));
    return specrt_head_bind(independent ? NULL : m->bundle, &head, &m->env, &m->head, err);
}

specrt_status each_policy(const cli_list *lists, policy_taker *take, void *user,
                          specrt_error *err) {
    specrt_status status = SPECRT_STATUS_OK;
    for (int i = 0; status == SPECRT_STATUS_OK && i < lists->n; i++) {
        char *copy = strdup(lists->items[i]), *rest = copy;
        if (!copy) return sl_error_no_memory_for(err, "policies");
        for (char *text; status == SPECRT_STATUS_OK && (text = strsep(&rest, ",")) != NULL;)
            status = take(user, text, err);
        free(copy);
    }
    return status;
}

static specrt_status check_policy(void *user, const char *text, specrt_error *err) {
    const eval_options *o = (const eval_options *)user;
    if (auto_is_named(text) && !o->takes_auto)
        return specrt_error_set(
            err, SPECRT_STATUS_BAD_ARG,
            "--policy %s: expected a fixed policy; compare and replay take auto", text);
    return specrt_policy_check(auto_policy(text, NULL), err);
}

/* Before models are loaded, which takes its time. */
static specrt_status check_policies(const eval_options *o, specrt_error *err) {
    bool drafts = o->draft && strcmp(o->draft, "none") != 0;
    if (o->policies.n && !drafts)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "--policy: expected --draft FILE with it");
    return each_policy(&o->policies, check_policy, (void *)(uintptr_t)o, err);
}

static specrt_status check_context(const eval_options *o, const eval_models *m, specrt_error *err) {
    int64_t most = engine_get_config(m->target)->n_context;
    if (o->n_context <= most) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                            "--context: expected at most the %" PRId64 " positions of %s, found "
                            "%" PRId64,
                            most, o->target, o->n_context);
}

static specrt_status open_all(const eval_options *o, int threads, eval_models *m,
                              specrt_error *err) {
    if (!o->target)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG, "expected --target FILE, a GGUF");
    TRY(check_policies(o, err));
    TRY(engine_open(o->target, threads, &m->target, err));
    TRY(check_context(o, m, err));
    engine_lend(m->target, &m->env);
    TRY(sl_tokenizer_open(o->target, &m->tok, err));
    TRY(check_vocabulary(o, m, err));
    TRY(open_bundle(o, m, err));
    return o->draft && strcmp(o->draft, "none") != 0 ? open_drafter(o, m, err) : SPECRT_STATUS_OK;
}

specrt_status models_open(const eval_options *o, int threads, eval_models *out, specrt_error *err) {
    *out = (eval_models){0};
    specrt_status status = open_all(o, threads, out, err);
    if (status != SPECRT_STATUS_OK) models_close(out);
    return status;
}

specrt_status models_policy(const eval_models *m, const char *text, specrt_policy **out,
                            specrt_error *err) {
    specrt_head_desc embedding;
    specrt_policy_desc desc = {.text = text,
                               .n_vocab = sl_tokenizer_n_vocab(m->tok),
                               .embedding = &embedding,
                               .target = m->target_head};
    engine_embedding(m->target, &embedding);
    desc.terminators = sl_tokenizer_terminators(m->tok, &desc.n_terminators);
    return specrt_policy_create(m->bundle, m->head, &desc, out, err);
}

bool models_ends(const eval_models *m, int32_t token) {
    int32_t n;
    const int32_t *ends = sl_tokenizer_terminators(m->tok, &n);
    for (int32_t i = 0; i < n; i++)
        if (ends[i] == token) return true;
    return sl_bundle_ends(m->bundle, token);
}

specrt_sampling eval_sampling(const eval_options *o, int number, int turn) {
    return (specrt_sampling){.temperature = (float)o->temperature,
                             .top_k = (int32_t)o->top_k,
                             .top_p = (float)o->top_p,
                             .min_p = (float)o->min_p,
                             .seed = (uint64_t)o->common.seed,
                             .session = (uint64_t)number + 1,
                             .generation = (uint64_t)turn};
}

specrt_session_params models_session(const eval_models *m, const eval_options *o, int number) {
    specrt_session_params p = {
        .tree = {.num_steps = (int32_t)o->num_steps,
                 .topk = (int32_t)o->topk,
                 .num_draft_tokens = (int32_t)o->num_draft_tokens},
        .sampling = eval_sampling(o, number, 0),
        .n_logits = engine_get_config(m->target)->n_vocab,
        .draft = o->sampled_drafts ? SPECRT_DRAFT_SAMPLED : SPECRT_DRAFT_TOP_K,
        .draft_temperature = (float)o->draft_temperature,
        .submit = specrt_worker_submit,
        .submit_user = m->worker,
    };
    eval_tree(&p.tree, &p.tree, NULL);
    return p;
}

specrt_status models_decoder(const eval_models *m, const eval_options *o,
                             const engine_drafter *drafter, const specrt_policy *policy,
                             const specrt_session_params *params, engine_decoder **out,
                             specrt_error *err) {
    return engine_decoder_create(m->target, drafter, policy, params, sl_tokenizer_n_vocab(m->tok),
                                 (int32_t)o->n_context, out, err);
}
