/* models.c : what the options name, opened and checked against each other. */
#include "eval.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/memory.h"
#include "formats/bundle_open.h"

void models_close(eval_models *m) {
    for (int i = 0; m->heads && i < EVAL_HEADS; i++) eval_head_close(&m->heads[i]);
    free(m->heads);
    specrt_head_close(m->head);
    specrt_head_close(m->target_head);
    specrt_worker_close(m->worker);
    specrt_bundle_close(m->bundle);
    for (int i = 0; i < m->n_sequences; i++) sequence_free(m->sequences[i]);
    free((void *)m->sequences);
    backend_close(m->engine);
    sl_tokenizer_close(m->tok);
    *m = (eval_models){0};
}

static specrt_status check_vocabulary(const eval_options *o, const eval_models *m,
                                      specrt_error *err) {
    int32_t rows = m->info->n_logits, ids = sl_tokenizer_n_vocab(m->tok);
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

static const specrt_bundle *bundle_of_head(const eval_models *m) {
    return m->info->is_model ? NULL : m->bundle;
}

/* The bundle's head is the target's: that of an independent drafter is another, and the ranks, which
 * depend on the tokenizer alone, serve it as well. Policies that search the target's head check that
 * against the bundle. */
static specrt_status open_heads(const eval_options *o, eval_models *m, specrt_error *err) {
    const backend_info *k = m->info;
    if (k->has_vocab) TRY(check_same_tokenizer(o, m, k->is_model, err));
    TRY(specrt_worker_create(NULL, &m->worker, err));
    if (k->target_head.rows)
        TRY(specrt_head_bind(NULL, &k->target_head, &k->env, &m->target_head, err));
    m->head_desc = k->head;
    if (o->no_markov) m->head_desc.markov = NULL;
    TRY(sl_new(&m->heads, EVAL_HEADS, sizeof *m->heads, "heads", err));
    for (int i = 0; i < EVAL_HEADS; i++) m->heads[i].type = EVAL_HEAD_STORED;
    return specrt_head_bind(bundle_of_head(m), &m->head_desc, &k->env, &m->head, err);
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

specrt_status eval_fixed_policy(const char *text, specrt_error *err) {
    if (!auto_is_named(text)) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                            "--policy %s: expected a fixed policy; compare and decode take auto",
                            text);
}

static specrt_status check_policy(void *user, const char *text, specrt_error *err) {
    const eval_options *o = (const eval_options *)user;
    char policy[EVAL_POLICY_TEXT];
    int type;
    if (!o->takes_auto) TRY(eval_fixed_policy(text, err));
    TRY(eval_split_head(text, policy, &type, err));
    if (type != EVAL_HEAD_STORED && !o->takes_heads)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "policy '%.60s': head: expected the drafter's head as stored; "
                                "compare, decode, plan and replay take another",
                                text);
    return specrt_policy_check(auto_policy(policy, NULL), err);
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
    if (o->n_context <= m->info->n_context) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                            "--context: expected at most the %d positions of %s, found "
                            "%" PRId64,
                            (int)m->info->n_context, o->target, o->n_context);
}

static specrt_status refuse_engine(const char *name, specrt_error *err) {
    return strcmp(name, "llama") == 0
               ? specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                  "--engine llama: expected specrt-llama in the folder of "
                                  "specrt-eval, found none; `make llama` in a checkout builds it")
               : specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                  "--engine: expected specrt or llama, found '%s'", name);
}

static specrt_status open_engine(const eval_options *o, int n_sequences, eval_models *m,
                                 specrt_error *err) {
    const backend_desc desc = {.target = o->target,
                               .draft = o->draft,
                               .threads = (int)o->common.threads,
                               .n_sequences = n_sequences,
                               .n_context = o->n_context,
                               .tree = o->auto_tree,
                               .keeps_states = o->keeps_states,
                               .verbose = o->common.verbose};
    const eval_engine *e = eval_engines;
    while (o->engine && e->name && strcmp(e->name, o->engine) != 0) e++;
    if (!e->name) return refuse_engine(o->engine, err);
    TRY(e->open(&desc, &m->engine, err));
    m->info = &m->engine->info;
    return check_context(o, m, err);
}

static specrt_status create_sequences(const eval_options *o, eval_models *m, int n,
                                      specrt_error *err) {
    if (n > m->info->n_threads) n = m->info->n_threads;
    TRY(sl_new(&m->sequences, (size_t)n, sizeof *m->sequences, "sequences", err));
    for (; m->n_sequences < n; m->n_sequences++) {
        TRY(sequence_create(m->engine, &m->sequences[m->n_sequences], err));
        m->sequences[m->n_sequences]->host.p_min = (float)o->p_min;
        m->sequences[m->n_sequences]->by_position = o->by_position;
    }
    return SPECRT_STATUS_OK;
}

static specrt_status open_all(const eval_options *o, int n_sequences, eval_models *m,
                              specrt_error *err) {
    if (!o->target)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG, "expected --target FILE, a GGUF");
    TRY(check_policies(o, err));
    TRY(open_engine(o, n_sequences, m, err));
    TRY(sl_tokenizer_open(o->target, &m->tok, err));
    TRY(check_vocabulary(o, m, err));
    TRY(open_bundle(o, m, err));
    if (m->info->head.rows) TRY(open_heads(o, m, err));
    return create_sequences(o, m, n_sequences, err);
}

specrt_status models_open(const eval_options *o, int n_sequences, eval_models *out,
                          specrt_error *err) {
    *out = (eval_models){0};
    specrt_status status = open_all(o, n_sequences, out, err);
    if (status != SPECRT_STATUS_OK) models_close(out);
    return status;
}

void models_describe(const eval_models *m, specrt_policy_desc *out) {
    *out = (specrt_policy_desc){.n_vocab = sl_tokenizer_n_vocab(m->tok),
                                .embedding = m->info->embedding.rows ? &m->info->embedding : NULL,
                                .target = m->target_head};
    out->terminators = sl_tokenizer_terminators(m->tok, &out->n_terminators);
}

/* The head in a type, copied when it is first asked for. */
static specrt_status head_in(const eval_models *m, int type, const specrt_head **out,
                             specrt_error *err) {
    int i = 0;
    *out = m->head;
    if (type == EVAL_HEAD_STORED) return SPECRT_STATUS_OK;
    while (m->heads[i].type != type && m->heads[i].type != EVAL_HEAD_STORED) i++;
    if (m->heads[i].type != type)
        TRY(eval_head_bind(bundle_of_head(m), &m->head_desc, type, &m->info->env, &m->heads[i],
                           err));
    *out = m->heads[i].head;
    return SPECRT_STATUS_OK;
}

specrt_status models_policy(const eval_models *m, const char *text, specrt_policy **out,
                            specrt_error *err) {
    char policy[EVAL_POLICY_TEXT];
    specrt_policy_desc desc;
    const specrt_head *head;
    int type;
    TRY(eval_split_head(text, policy, &type, err));
    TRY(head_in(m, type, &head, err));
    models_describe(m, &desc);
    desc.text = policy;
    return specrt_policy_create(m->bundle, head, &desc, out, err);
}

size_t models_row_bytes(const eval_models *m, const char *text) {
    char policy[EVAL_POLICY_TEXT];
    int type;
    if (eval_split_head(text, policy, &type, NULL) || type == EVAL_HEAD_STORED)
        type = (int)m->head_desc.dtype;
    return specrt_row_bytes((specrt_dtype)type, m->head_desc.n_cols);
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
        .n_logits = m->info->n_logits,
        .draft = o->sampled_drafts ? SPECRT_DRAFT_SAMPLED : SPECRT_DRAFT_TOP_K,
        .draft_temperature = (float)o->draft_temperature,
        .submit = specrt_worker_submit,
        .submit_user = m->worker,
    };
    eval_tree(&p.tree, &p.tree, NULL);
    return p;
}

specrt_status models_decoder(const eval_models *m, sequence *over, const specrt_policy *policy,
                             const specrt_session_params *params, decoder **out,
                             specrt_error *err) {
    const decoder_desc desc = {.kind = policy ? DECODER_SESSION : DECODER_PLAIN,
                               .sequence = over,
                               .policy = policy,
                               .params = *params,
                               .n_vocab = sl_tokenizer_n_vocab(m->tok)};
    return decoder_create(&desc, out, err);
}
