/* decode.c : the loop. Hidden states travel like this (Li et al. 2024): the drafter's input at position
 * i is (token i + 1, feature i), so after a verdict the pairs of the kept nodes extend its cache with
 * the target's true features, and their last output drafts the first level of the next tree. An
 * independent drafter reads the same tokens without features, and the first token of the prompt too. */
#include "decode.h"

#include <stdlib.h>
#include <string.h>
#include "cli.h"
#include "io.h"

struct decoder {
    const engine_model *target;
    const engine_drafter *drafter;
    engine_cache *cache, *draft_cache;
    specrt_session *session;
    specrt_verifier *verifier;       /* of plain decoding */
    bool learns;                     /* the policy wants the prompt's logits */
    int32_t d_model, n_vocab, width; /* width: of a target feature */
    int32_t d_draft;                 /* of the drafter's hidden states */
    int32_t tap_layers[3];
    float *logits;   /* [ENGINE_MAX_BATCH, n_vocab] */
    float *features; /* [ENGINE_MAX_BATCH, width] of the target's last batch */
    float *pairs;    /* [ENGINE_MAX_BATCH, width] features that go with the verdict's tokens */
    float *hidden[2],
        *query; /* [ENGINE_MAX_BATCH, d_draft] of the drafter, this level and the last */
    int32_t n_context;
    int64_t position;       /* of the next token */
    bool begun;             /* the first token is out */
    specrt_verdict verdict; /* what the last call emitted */
    decode_times times;
};

/* ---- memory ---------------------------------------------------------------------------------- */

static float *rows(size_t width) {
    return (float *)malloc(ENGINE_MAX_BATCH * width * sizeof(float));
}

void decoder_free(decoder *d) {
    if (!d) return;
    free(d->logits);
    free(d->features);
    free(d->pairs);
    free(d->hidden[0]);
    free(d->hidden[1]);
    free(d->query);
    engine_cache_close(d->cache);
    engine_cache_close(d->draft_cache);
    specrt_session_close(d->session);
    specrt_verifier_free(d->verifier);
    free(d);
}

static specrt_status create_drafting(decoder *d, const specrt_policy *policy,
                                     const specrt_session_params *params, int32_t n_context,
                                     specrt_error *err) {
    specrt_head_desc head;
    const int32_t *d2t;
    engine_drafter_head(d->drafter, &head, &d2t);
    if (d2t)
        return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                                "drafter: has a vocabulary of its own (d2t); expected one that "
                                "scores the target's head");
    const specrt_tree_params *tree = &params->tree;
    int32_t topk = tree->topk ? tree->topk : 10, num_steps = tree->num_steps ? tree->num_steps : 6;
    if (topk > ENGINE_MAX_BATCH || topk * (num_steps - 1) > ENGINE_MAX_OPEN)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "tree: expected topk * (num_steps - 1) of at most %d, found %d",
                                ENGINE_MAX_OPEN, (int)(topk * (num_steps - 1)));
    int32_t n_taps = engine_drafter_features(d->drafter, d->tap_layers);
    if (n_taps) d->width = n_taps * d->d_model;
    specrt_session_params p = *params;
    p.n_logits = d->n_vocab;
    TRY(engine_drafter_cache(d->drafter, n_context, &d->draft_cache, err));
    TRY(specrt_session_create(policy, &p, NULL, &d->session, err));
    d->learns = specrt_policy_learns(policy);
    d->pairs = rows((size_t)d->width);
    d->d_draft = (int32_t)head.n_cols;
    d->hidden[0] = rows((size_t)d->d_draft);
    d->hidden[1] = rows((size_t)d->d_draft);
    d->query = rows((size_t)d->d_draft);
    return d->pairs && d->hidden[0] && d->hidden[1] && d->query ? SPECRT_STATUS_OK
                                                                : SPECRT_STATUS_NO_MEMORY;
}

static specrt_status create(decoder *d, const specrt_policy *policy,
                            const specrt_session_params *params, int32_t n_context,
                            specrt_error *err) {
    TRY(engine_cache_create(d->target, n_context, &d->cache, err));
    TRY(specrt_verifier_create(d->n_vocab, &params->sampling, NULL, &d->verifier, err));
    if (d->drafter) TRY(create_drafting(d, policy, params, n_context, err));
    d->logits = rows((size_t)d->n_vocab);
    d->features = rows((size_t)d->width);
    if (!d->logits || !d->features) return SPECRT_STATUS_NO_MEMORY;
    if (d->width != d->d_model) engine_tap(d->cache, d->tap_layers, 3, d->features);
    return SPECRT_STATUS_OK;
}

specrt_status decoder_create(const engine_model *target, const engine_drafter *drafter,
                             const specrt_policy *policy, const specrt_session_params *params,
                             int32_t n_context, decoder **out, specrt_error *err) {
    const engine_config *k = engine_get_config(target);
    decoder *d = (decoder *)calloc(1, sizeof *d);
    specrt_status status = d ? SPECRT_STATUS_OK : SPECRT_STATUS_NO_MEMORY;
    *out = NULL;
    if (d) {
        d->target = target;
        d->drafter = drafter;
        d->d_model = d->width = k->d_model;
        d->n_vocab = k->n_vocab;
        d->n_context = n_context ? n_context : k->n_context;
        status = create(d, policy, params, n_context, err);
    }
    if (status == SPECRT_STATUS_OK) {
        *out = d;
        return SPECRT_STATUS_OK;
    }
    decoder_free(d);
    if (status == SPECRT_STATUS_NO_MEMORY)
        specrt_error_set(err, status, "no memory for a sequence");
    return status;
}

/* ---- the two models -------------------------------------------------------------------------- */

static double tick(double *since) {
    double now = cli_seconds(), passed = now - *since;
    *since = now;
    return passed;
}

/* Features of a batch come from its taps or are its hidden states. */
static specrt_status run_target(decoder *d, const int32_t *tokens, int32_t n,
                                const int32_t *parents, bool score) {
    float *hidden = d->width == d->d_model ? d->features : NULL;
    return engine_forward(d->cache, tokens, n, parents, hidden, score ? d->logits : NULL);
}

static void keep_first(engine_cache *c, int32_t n) {
    int32_t nodes[ENGINE_MAX_BATCH];
    for (int32_t i = 0; i < n; i++) nodes[i] = i;
    engine_keep(c, nodes, n);
}

/* Extend the drafter's past by pairs (token, feature of the position before). */
static specrt_status feed_pairs(decoder *d, const int32_t *tokens, const float *features,
                                int32_t n) {
    engine_cache_truncate(d->draft_cache,
                          engine_cache_length(d->draft_cache)); /* drop the old tree */
    TRY(engine_draft(d->drafter, d->draft_cache, tokens, features, d->width, n, NULL, d->hidden[0],
                     d->query));
    keep_first(d->draft_cache, n);
    return SPECRT_STATUS_OK;
}

/* One level of the tree. Its rows follow nodes [before, ...) of the drafter's cache, or its past. */
static specrt_status draft_level(decoder *d, const specrt_beam *beam, int32_t before) {
    int32_t parents[ENGINE_MAX_BATCH];
    size_t width = (size_t)d->d_draft;
    for (int32_t i = 0; i < beam->n; i++) {
        memcpy(d->hidden[1] + (size_t)i * width, d->hidden[0] + (size_t)beam->parents[i] * width,
               width * sizeof(float));
        parents[i] = before < 0 ? -1 : before + beam->parents[i];
    }
    specrt_session_feed(d->session, d->hidden[1]);
    return engine_draft(d->drafter, d->draft_cache, beam->tokens, d->hidden[1], d->d_draft, beam->n,
                        parents, d->hidden[0], d->query);
}

/* The last of n fed pairs is the root's row; then level by level. */
static specrt_status draft_tree(decoder *d, int32_t n_pairs, double *since) {
    size_t last = (size_t)(n_pairs - 1) * (size_t)d->d_draft;
    size_t bytes = (size_t)d->d_draft * sizeof(float);
    memmove(d->hidden[0], d->hidden[0] + last, bytes);
    memmove(d->query, d->query + last, bytes);
    specrt_beam beam = {.n = 1};
    int32_t before = -1, n_open = 0;
    if (d->width == d->d_draft) /* EAGLE-3 fuses three features into what it reads */
        specrt_session_feed(d->session, d->pairs + (size_t)(n_pairs - 1) * (size_t)d->width);
    for (;;) {
        d->times.draft += tick(since);
        TRY(specrt_session_expand(d->session, d->query, beam.n, &beam));
        d->times.head += tick(since);
        if (beam.n == 0) return SPECRT_STATUS_OK;
        TRY(draft_level(d, &beam, before));
        before = n_open;
        n_open += beam.n;
    }
}

/* ---- the prompt ------------------------------------------------------------------------------ */

static specrt_status prefill_chunk(decoder *d, const int32_t *tokens, int32_t n, bool last) {
    bool score = last || d->learns;
    TRY(run_target(d, tokens, n, NULL, score));
    keep_first(d->cache, n);
    if (!d->session) return SPECRT_STATUS_OK;
    specrt_rows rows_of_chunk = {.logits = d->logits};
    TRY(specrt_session_prefill(d->session, tokens, n, d->learns ? &rows_of_chunk : NULL));
    if (engine_drafter_is_model(d->drafter)) return feed_pairs(d, tokens, d->features, n);
    int32_t n_pairs = last ? n - 1 : n; /* the last feature waits for the first token */
    return n_pairs ? feed_pairs(d, tokens + 1, d->features, n_pairs) : SPECRT_STATUS_OK;
}

specrt_status decoder_begin(decoder *d, const int32_t *prompt, int32_t n, specrt_error *err) {
    double since = cli_seconds();
    memset(&d->times, 0, sizeof d->times);
    engine_cache_truncate(d->cache, 0);
    if (d->session) engine_cache_truncate(d->draft_cache, 0), specrt_session_begin(d->session);
    if (n < 1 || n >= d->n_context)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "prompt: expected 1 to %d tokens, found %d", (int)d->n_context - 1,
                                (int)n);
    for (int32_t i = 0; i < n; i++)
        if (prompt[i] < 0 || prompt[i] >= d->n_vocab)
            return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                    "prompt: token %d: expected 0 to %d, found %d", (int)i,
                                    (int)d->n_vocab - 1, (int)prompt[i]);
    for (int32_t done = 0, k; done < n; done += k) {
        k = n - done < ENGINE_MAX_BATCH ? n - done : ENGINE_MAX_BATCH;
        TRY(prefill_chunk(d, prompt + done, k, done + k == n));
        if (done + k == n)
            memmove(d->logits, d->logits + (size_t)(k - 1) * (size_t)d->n_vocab,
                    (size_t)d->n_vocab * sizeof(float));
        if (done + k == n && d->session)
            memcpy(d->pairs, d->features + (size_t)(k - 1) * (size_t)d->width,
                   (size_t)d->width * sizeof(float));
    }
    d->position = n;
    d->begun = false;
    d->times.prefill = tick(&since);
    return SPECRT_STATUS_OK;
}

/* ---- decoding ------------------------------------------------------------------------------ */

/* One token from the logits at hand, as plain decoding draws it. */
static specrt_status first_token(decoder *d) {
    d->verdict.n = 1;
    d->verdict.tokens[0] = specrt_verifier_draw(d->verifier, d->logits, d->position++);
    d->begun = true;
    return d->session ? specrt_session_start(d->session, d->verdict.tokens[0]) : SPECRT_STATUS_OK;
}

static specrt_status plain_cycle(decoder *d, double *since) {
    TRY(run_target(d, d->verdict.tokens, 1, NULL, true));
    keep_first(d->cache, 1);
    d->times.target += tick(since);
    d->verdict.tokens[0] = specrt_verifier_draw(d->verifier, d->logits, d->position++);
    d->times.verify += tick(since);
    return SPECRT_STATUS_OK;
}

/* Features of the kept nodes, for the tokens that follow them. */
static void take_pairs(decoder *d) {
    size_t width = (size_t)d->width;
    for (int32_t i = 0; i < d->verdict.n; i++)
        memcpy(d->pairs + (size_t)i * width, d->features + (size_t)d->verdict.nodes[i] * width,
               width * sizeof(float));
}

static specrt_status speculative_cycle(decoder *d, bool room, double *since) {
    specrt_draft draft;
    TRY(feed_pairs(d, d->verdict.tokens, d->pairs, d->verdict.n));
    if (room) TRY(draft_tree(d, d->verdict.n, since));
    specrt_session_finish(d->session, &draft);
    d->times.head += tick(since);
    TRY(run_target(d, draft.tokens, draft.n, draft.parents, true));
    d->times.target += tick(since);
    TRY(specrt_session_verify(d->session, &draft, d->logits, &d->verdict));
    engine_keep(d->cache, d->verdict.nodes, d->verdict.n);
    take_pairs(d);
    d->times.verify += tick(since);
    specrt_rows said = {.logits = d->logits};
    TRY(specrt_session_observe(d->session, &draft, &d->verdict, &said));
    d->position += d->verdict.n;
    d->times.update += tick(since);
    return SPECRT_STATUS_OK;
}

specrt_status decoder_next(decoder *d, const int32_t **tokens, int32_t *n) {
    double since = cli_seconds();
    int32_t left = d->n_context - engine_cache_length(d->cache);
    *tokens = d->verdict.tokens;
    *n = 0;
    if (!d->begun)
        TRY(first_token(d));
    else if (left < 1)
        return SPECRT_STATUS_OK;
    else if (!d->session)
        TRY(plain_cycle(d, &since));
    else
        TRY(speculative_cycle(d, left > SPECRT_TREE_MAX_STEPS, &since));
    *n = d->verdict.n;
    return SPECRT_STATUS_OK;
}

const decode_times *decoder_times(const decoder *d) {
    return &d->times;
}
const specrt_session *decoder_session(const decoder *d) {
    return d->session;
}
