/* session_make.c : owns the making of a session: what it allocates, and what of its policy and parameters
 * do not fit. */
#include "decode/session.h"
#include "core/base.h"
#include "core/head.h"
#include "core/pool.h"
#include "sources/source.h"
#include "adapt/auto.h"
#include "decode/policy.h"
#include "decode/stock.h"

/* Marks that hold for every sequence. */
SPECRT__INTERNAL void specrt__session_mark(specrt__pool *pool, const specrt_policy *policy) {
    for (int32_t i = 0; i < pool->n_ids; i++)
        if (i >= policy->n_vocab || specrt__head_row_of(policy->head, i) < 0)
            specrt__pool_mark(pool, i, SPECRT__POOL_INVALID);
    for (int32_t i = 0; i < policy->n_invalid; i++)
        if (policy->invalid[i] < pool->n_ids)
            specrt__pool_mark(pool, policy->invalid[i], SPECRT__POOL_INVALID);
    for (int32_t i = 0; i < policy->fixed.n_rows; i++)
        specrt__pool_mark(pool, policy->fixed.ids[i], SPECRT__POOL_FIXED);
}

static bool specrt__session_make_routed(specrt_session *s) {
    const specrt_policy *policy = s->policy;
    size_t n_ids = (size_t)s->pool->n_ids;
    size_t n_rows = (size_t)(policy->routed_bound + s->bound - policy->info.bound);
    if (policy->routed_bound == 0) return true;
    uint8_t *at = (uint8_t *)specrt__base_alloc(
        &s->env, sizeof *s->routed + n_ids * sizeof(uint32_t) + n_rows * sizeof(int32_t));
    if (!at) return false;
    s->routed = SPECRT__CARVE(specrt__source_routed, &at, 1);
    SPECRT__CLEAR(s->routed, 1);
    s->routed->pool = s->pool;
    s->routed->levels = SPECRT__CARVE(uint32_t, &at, n_ids);
    s->routed->masked = SPECRT__CARVE(int32_t, &at, n_rows);
    s->routed->max_rows = (int32_t)n_rows;
    return true;
}

static bool specrt__session_open_sources(specrt_session *s, const specrt_session_params *params,
                                         int32_t n_logits) {
    int32_t n_block = params->n_block > 1 ? params->n_block : 1;
    const specrt__source_session with = {s->pool,
                                         s->topk,
                                         n_block,
                                         s->topk > n_block ? s->topk : n_block,
                                         n_logits,
                                         s->policy->bound,
                                         &s->env,
                                         params->submit,
                                         params->submit_user};
    for (; s->n_open < s->policy->n_sources; s->n_open++) {
        const specrt__source *source = s->policy->sources[s->n_open].source;
        void *shared = s->policy->sources[s->n_open].shared.data;
        void *state = source->open ? source->open(shared, &with) : shared;
        if (!state) return false;
        s->states[s->n_open] = state;
    }
    return true;
}

static bool specrt__session_make_scratch(specrt_session *s) {
    uint64_t k = (uint64_t)s->topk, n = k * (uint64_t)s->bound;
    uint8_t *at = (uint8_t *)specrt__base_alloc(&s->env, (n + 2 * k * k) * sizeof(float));
    if (!at) return false;
    s->logits = SPECRT__CARVE(float, &at, n);
    s->logprobs = SPECRT__CARVE(float, &at, k *k);
    s->ids = SPECRT__CARVE(int32_t, &at, k * k);
    return true;
}

/* The tree that a draft of this kind has, or why there is none. */
SPECRT__INTERNAL specrt_status specrt__session_shape(const specrt_session_params *params,
                                                     specrt_tree_params *tree, specrt_error *err) {
    float temperature = params->draft_temperature;
    *tree = params->tree;
    if (params->draft != SPECRT_DRAFT_TOP_K && params->draft != SPECRT_DRAFT_SAMPLED)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "session: draft: expected top-k (0) or sampled (1), found %d",
                                (int)params->draft);
    if (params->draft == SPECRT_DRAFT_TOP_K)
        return temperature == 0 ? SPECRT_STATUS_OK
                                : specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                                   "session: draft_temperature: expected 0, since "
                                                   "top-k drafts are not sampled, found %g",
                                                   (double)temperature);
    if (params->sampling.temperature == 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "session: sampled drafts: expected a temperature above 0, found a "
                                "greedy target; use top-k drafts");
    if (!(temperature >= 0 && temperature <= 100))
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "session: draft_temperature: expected 0 to 100, found %g",
                                (double)temperature);
    if (tree->topk > 1)
        return specrt_error_set(
            err, SPECRT_STATUS_BAD_ARG,
            "session: sampled drafts: expected topk 1, a chain, found %d; trees "
            "take top-k drafts",
            (int)tree->topk);
    tree->topk = 1;
    if (tree->num_steps == 0) tree->num_steps = 6;
    if (tree->num_draft_tokens == 0) tree->num_draft_tokens = tree->num_steps + 1;
    return SPECRT_STATUS_OK;
}

static bool specrt__session_make_distributions(specrt_session *s,
                                               const specrt_session_params *params) {
    uint64_t n_steps = (uint64_t)specrt_tree_get_params(s->tree)->num_steps;
    uint64_t n = n_steps * (uint64_t)s->bound;
    if (params->draft != SPECRT_DRAFT_SAMPLED) return true;
    uint8_t *at = (uint8_t *)specrt__base_alloc(&s->env, n_steps * sizeof *s->distributions +
                                                             n * (sizeof(int32_t) + sizeof(float)));
    if (!at) return false;
    s->distributions = SPECRT__CARVE(specrt_draft_distribution, &at, n_steps);
    s->distribution_ids = SPECRT__CARVE(int32_t, &at, n);
    s->distribution_probs = SPECRT__CARVE(float, &at, n);
    s->draft_temperature = params->draft_temperature;
    return true;
}

/* Columns of the target's logits, which the application must say: it alone knows what lies behind them. */
SPECRT__INTERNAL specrt_status specrt__session_check_columns(const specrt_policy *policy,
                                                             int32_t n_logits, specrt_error *err) {
    const specrt_head *head = policy->head;
    int32_t least = head->row_of ? head->n_ids : policy->n_vocab;
    if (n_logits >= least && n_logits <= SPECRT_MAX_VOCAB) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                            "session: n_logits: expected the columns of the target's logits, at "
                            "least %d, one for every token that may be proposed "
                            "(specrt_policy_desc.n_vocab), found %d",
                            (int)least, (int)n_logits);
}

static specrt_status specrt__session_refuse_auto(const specrt_session *s, const char *expected,
                                                 int32_t found, specrt_error *err) {
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                            "session: auto_draft: policy '%s': expected %s, found %d",
                            s->policy->text, expected, (int)found);
}

/* Lists are leading rows of `static`; what ends a generation is in all of them. */
static specrt_status specrt__session_make_lists(specrt_session *s, const specrt_auto *auto_draft,
                                                specrt_error *err) {
    const specrt_policy *policy = s->policy;
    int32_t n_fixed = policy->list ? policy->fixed.n_rows : 0, n_ids = s->pool->n_ids;
    int32_t least = auto_draft->rows[0], most = auto_draft->rows[auto_draft->n_lists - 1];
    if (most > n_fixed)
        return specrt__session_refuse_auto(s, "lists within the rows of static", most, err);
    if (least < s->topk)
        return specrt__session_refuse_auto(s, "lists of topk rows or more", least, err);
    for (int32_t i = least; i < n_fixed; i++)
        if (specrt_policy_ends(policy, policy->fixed.ids[i]))
            return specrt__session_refuse_auto(s, "lists that hold all terminators", least, err);
    s->fixed_at = (int32_t *)specrt__base_alloc(&s->env, (size_t)n_ids * sizeof(int32_t));
    if (!s->fixed_at)
        return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "session: out of memory for lists");
    for (int32_t i = 0; i < n_ids; i++) s->fixed_at[i] = -1;
    for (int32_t i = 0; i < n_fixed; i++) s->fixed_at[policy->fixed.ids[i]] = i;
    return SPECRT_STATUS_OK;
}

static specrt_status specrt__session_make_auto(specrt_session *s, specrt_auto *auto_draft,
                                               specrt_error *err) {
    int32_t most = specrt_tree_get_params(s->tree)->num_steps;
    s->n_fixed = s->policy->fixed.n_rows;
    if (!auto_draft) return SPECRT_STATUS_OK;
    if (auto_draft->num_steps > most)
        return specrt__session_refuse_auto(s, "at most the num_steps of its tree",
                                           auto_draft->num_steps, err);
    if (auto_draft->rows[0] > 0) SPECRT__TRY(specrt__session_make_lists(s, auto_draft, err));
    s->auto_draft = auto_draft;
    return SPECRT_STATUS_OK;
}

static bool specrt__session_submits(const specrt_policy *policy) {
    for (int i = 0; i < policy->n_sources; i++)
        if (policy->sources[i].shared.submits) return true;
    return false;
}

static specrt_status specrt__session_make(specrt_session *s, const specrt_session_params *params,
                                          specrt_error *err) {
    const specrt_policy *policy = s->policy;
    int32_t n_ids = policy->head->n_ids, n_logits = params->n_logits;
    int32_t n_vocab = policy->n_vocab < n_logits ? policy->n_vocab : n_logits;
    int32_t capacity = policy->info.n_packed;
    specrt_tree_params tree;
    SPECRT__TRY(specrt__session_check_columns(policy, n_logits, err));
    SPECRT__TRY(specrt__session_shape(params, &tree, err));
    SPECRT__TRY(specrt_tree_create(&tree, &s->env, &s->tree, err));
    SPECRT__TRY(
        specrt_verifier_create(n_logits, n_vocab, &params->sampling, &s->env, &s->verifier, err));
    s->topk = specrt_tree_get_params(s->tree)->topk;
    if (s->topk > policy->info.bound)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "session: topk: expected at most the %d rows of policy '%s', found "
                                "%d",
                                (int)policy->info.bound, policy->text, (int)s->topk);
    SPECRT__TRY(specrt__block_check_params(s, params, err));
    if (specrt__session_submits(policy) && !params->submit)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "session: policy '%s': expected params.submit, which runs what "
                                "mode=async leaves to another thread, found NULL",
                                policy->text);
    if (params->stock && policy->in_head)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "session: policy '%s': expected rows=packed with params.stock, "
                                "which shares packed rows, found rows=indexed",
                                policy->text);
    if (params->stock)
        SPECRT__TRY(specrt__stock_check_room(params->stock, policy->head, capacity, err));
    s->pool =
        specrt__pool_make(policy->head, n_ids, capacity, params->stock, policy->in_head, &s->env);
    if (s->pool) specrt__session_mark(s->pool, policy);
    if (!s->pool || !specrt__session_open_sources(s, params, n_logits) ||
        !specrt__session_make_routed(s) || !specrt__session_make_scratch(s) ||
        !specrt__session_make_distributions(s, params) || !specrt__block_make(s, params->n_block))
        return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY,
                                "session: out of memory for policy '%s'", policy->text);
    SPECRT__TRY(specrt__session_make_auto(s, params->auto_draft, err));
    s->shortlist.compute = &policy->head->compute;
    s->shortlist.segments = s->segments;
    s->shortlist.n_cols = policy->head->desc.n_cols;
    s->shortlist.head = policy->head;
    s->n_logits = n_logits;
    s->stamp = 1;
    s->generation = params->sampling.generation;
    specrt__session_reset(s);
    return SPECRT_STATUS_OK;
}

SPECRT_API specrt_status specrt_session_create(const specrt_policy *policy,
                                               const specrt_session_params *params,
                                               const specrt_env *env, specrt_session **out,
                                               specrt_error *err) {
    specrt_session_params defaults;
    if (out) *out = NULL;
    if (!policy || !out)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "session: policy, out: expected pointers, found NULL");
    specrt_env own = env ? *env : policy->env;
    SPECRT__CLEAR(&defaults, 1);
    specrt_session *s = (specrt_session *)specrt__base_alloc(&own, sizeof(specrt_session));
    if (!s)
        return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY,
                                "session: out of memory for policy '%s'", policy->text);
    SPECRT__CLEAR(s, 1);
    s->env = own;
    s->policy = policy;
    specrt_status status = specrt__session_make(s, params ? params : &defaults, err);
    if (status == SPECRT_STATUS_OK)
        *out = s;
    else
        specrt_session_close(s);
    return status;
}

SPECRT_API void specrt_session_close(specrt_session *session) {
    if (!session) return;
    specrt_env env = session->env;
    for (int i = 0; i < session->n_open; i++)
        if (session->policy->sources[i].source->close)
            session->policy->sources[i].source->close(session->states[i]);
    specrt__base_free(&env, session->routed);
    specrt__pool_free(session->pool);
    specrt_tree_close(session->tree);
    specrt_verifier_close(session->verifier);
    specrt__base_free(&env, session->fixed_at);
    specrt__base_free(&env, session->distributions);
    specrt__base_free(&env, session->logits);
    specrt__base_free(&env, session->block.positions);
    specrt__base_free(&env, session);
}
