/* decode.c : the engine as a specrt_host. Hidden states travel like this (Li et al. 2024): the
 * drafter's input at position i is (token i + 1, feature i), so after a verdict the pairs of the kept
 * nodes extend its cache with the target's true features, and their last output drafts the first level
 * of the next tree. An independent drafter reads the same tokens without features, and the first token
 * of the prompt too. */
#include "specrt_tools.h"
#include "engine/infer/decode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/measure.h"

struct engine_decoder {
    const engine_model *target;
    const engine_drafter *drafter;
    engine_cache *cache, *draft_cache;
    specrt_session *session;
    specrt_host host;
    specrt_verifier *verifier; /* of plain decoding; NULL: there is a session */
    uint64_t generation;       /* of the next plain answer */
    int64_t n_left;            /* tokens that the plain answer may still have */
    int64_t position;          /* of the next token, plain */
    int32_t n_logits, n_vocab; /* columns of the target's logits; those that are tokens */
    int32_t d_model, width;    /* width: of a target feature */
    int32_t d_draft;           /* of the drafter's hidden states */
    int32_t tap_layers[3];
    float *logits;   /* [ENGINE_MAX_BATCH, n_logits] */
    float *final;    /* [ENGINE_MAX_BATCH, d_model] hidden states of the target's last batch */
    float *features; /* [ENGINE_MAX_BATCH, width] its taps; without any, `final` */
    float *pairs;    /* [ENGINE_MAX_BATCH, width] features that go with the emitted tokens */
    float *hidden[2],
        *head_input; /* [ENGINE_MAX_BATCH, d_draft] of the drafter, this level and what fed it */
    int32_t emitted[SPECRT_TREE_MAX_NODES], n_emitted; /* that the drafter has not read yet */
    bool drafted;                                      /* it has read them, for the cycle at hand */
    int32_t before, n_open; /* nodes of the drafter's cache: where the last level began, how many */
    int32_t n_context;
    bool begun;                    /* the first token was given */
    engine_controller *controller; /* NULL: the drafter stays as it is */
    bool sampled;                  /* drafts are */
    void (*watch)(void *user, const specrt_draft *draft, const specrt_verdict *verdict,
                  const float *logits);
    void *watch_user;
    const char *damaged;    /* the model whose answer to the prompt is not finite; NULL */
    specrt_verdict verdict; /* what the last call emitted */
    double since;           /* when the phase at hand began */
    engine_decode_times times;
};

static int target_prefill(void *user, const int32_t *tokens, int32_t n, int all,
                          const float **logits);
static int draft_step(void *user, int32_t level, const specrt_beam *beam, const float **hidden,
                      const float **draft_input);
static int target_verify(void *user, const specrt_draft *draft, const float **logits);
static int commit(void *user, const specrt_draft *draft, const specrt_verdict *verdict);
static int target_hidden(void *user, const float **hidden, int32_t *width);

/* ---- memory ---------------------------------------------------------------------------------- */

static const char A_SEQUENCE[] = "a sequence";

static specrt_status new_rows(float **rows, int32_t width, specrt_error *err) {
    return sl_new(rows, ENGINE_MAX_BATCH * (size_t)width, sizeof(float), A_SEQUENCE, err);
}

void engine_decoder_free(engine_decoder *d) {
    if (!d) return;
    free(d->logits);
    if (d->features != d->final) free(d->features);
    free(d->final);
    free(d->pairs);
    free(d->hidden[0]);
    free(d->hidden[1]);
    free(d->head_input);
    engine_cache_close(d->cache);
    engine_cache_close(d->draft_cache);
    specrt_session_close(d->session);
    specrt_verifier_close(d->verifier);
    free(d);
}

static specrt_status create_drafting(engine_decoder *d, const specrt_policy *policy,
                                     const specrt_session_params *params, int32_t n_context,
                                     specrt_error *err) {
    specrt_head_desc head;
    engine_drafter_head(d->drafter, &head);
    const specrt_tree_params *tree = &params->tree;
    int32_t topk = tree->topk ? tree->topk : 10, num_steps = tree->num_steps ? tree->num_steps : 6;
    if (topk > ENGINE_MAX_BATCH || topk * (num_steps - 1) > ENGINE_MAX_OPEN)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "tree: expected topk * (num_steps - 1) of at most %d, found %d",
                                ENGINE_MAX_OPEN, (int)(topk * (num_steps - 1)));
    int32_t n_taps = engine_drafter_features(d->drafter, d->tap_layers);
    if (n_taps) d->width = n_taps * d->d_model;
    specrt_session_params p = *params;
    p.n_logits = d->n_logits;
    TRY(engine_drafter_cache(d->drafter, n_context, &d->draft_cache, err));
    TRY(specrt_session_create(policy, &p, NULL, &d->session, err));
    d->host = (specrt_host){.user = d,
                            .n_context = d->n_context,
                            .max_batch = ENGINE_MAX_BATCH,
                            .target_prefill = target_prefill,
                            .draft_step = draft_step,
                            .target_verify = target_verify,
                            .commit = commit,
                            .target_hidden = target_hidden};
    d->sampled = params->draft == SPECRT_DRAFT_SAMPLED;
    d->d_draft = (int32_t)head.n_cols;
    TRY(new_rows(&d->pairs, d->width, err));
    TRY(new_rows(&d->hidden[0], d->d_draft, err));
    TRY(new_rows(&d->hidden[1], d->d_draft, err));
    return new_rows(&d->head_input, d->d_draft, err);
}

/* Plain decoding draws as a session of this sampling does. */
static specrt_status key_answers(engine_decoder *d, const specrt_sampling *sampling,
                                 specrt_error *err) {
    specrt_verifier *verifier;
    TRY(specrt_verifier_create(d->n_logits, d->n_vocab, sampling, NULL, &verifier, err));
    specrt_verifier_close(d->verifier);
    d->verifier = verifier;
    d->generation = sampling->generation;
    return SPECRT_STATUS_OK;
}

static specrt_status create(engine_decoder *d, const specrt_policy *policy,
                            const specrt_session_params *params, int32_t n_context,
                            specrt_error *err) {
    TRY(engine_cache_create(d->target, n_context, &d->cache, err));
    TRY(d->drafter ? create_drafting(d, policy, params, n_context, err)
                   : key_answers(d, &params->sampling, err));
    TRY(new_rows(&d->logits, d->n_logits, err));
    TRY(new_rows(&d->final, d->d_model, err));
    d->features = d->final;
    if (d->width == d->d_model) return SPECRT_STATUS_OK;
    TRY(new_rows(&d->features, d->width, err));
    engine_tap(d->cache, d->tap_layers, 3, d->features);
    return SPECRT_STATUS_OK;
}

specrt_status engine_decoder_create(const engine_model *target, const engine_drafter *drafter,
                                    const specrt_policy *policy,
                                    const specrt_session_params *params, int32_t n_vocab,
                                    int32_t n_context, engine_decoder **out, specrt_error *err) {
    const engine_config *k = engine_get_config(target);
    engine_decoder *d;
    *out = NULL;
    TRY(sl_new(&d, 1, sizeof *d, A_SEQUENCE, err));
    d->target = target;
    d->drafter = drafter;
    d->d_model = d->width = k->d_model;
    d->n_logits = k->n_vocab;
    d->n_vocab = n_vocab ? n_vocab : k->n_vocab;
    d->n_context = n_context ? n_context : k->n_context;
    specrt_status status = create(d, policy, params, n_context, err);
    if (status == SPECRT_STATUS_OK)
        *out = d;
    else
        engine_decoder_free(d);
    return status;
}

/* ---- the two models -------------------------------------------------------------------------- */

static double tick(double *since) {
    double now = sl_measure_seconds(), passed = now - *since;
    *since = now;
    return passed;
}

/* Features of a batch are its hidden states, or taps. */
static specrt_status run_target(engine_decoder *d, const int32_t *tokens, int32_t n,
                                const int32_t *parents, bool score) {
    return engine_forward(d->cache, tokens, n, parents, d->final, score ? d->logits : NULL);
}

static void keep_first(engine_cache *c, int32_t n) {
    int32_t nodes[ENGINE_MAX_BATCH];
    for (int32_t i = 0; i < n; i++) nodes[i] = i;
    engine_keep(c, nodes, n);
}

/* Extend the drafter's past by pairs (token, feature of the position before). */
static specrt_status feed_pairs(engine_decoder *d, const int32_t *tokens, const float *features,
                                int32_t n) {
    engine_cache_truncate(d->draft_cache,
                          engine_cache_length(d->draft_cache)); /* drop the old tree */
    TRY(engine_draft(d->drafter, d->draft_cache, tokens, features, d->width, n, NULL, d->hidden[0],
                     d->head_input));
    keep_first(d->draft_cache, n);
    if (d->controller) engine_controller_draft_input(d->controller, n);
    return SPECRT_STATUS_OK;
}

/* The hidden states of the rows' parents feed the pass. Rows follow nodes [before, ...) of the drafter's
 * cache, or its past. */
static specrt_status draft_level(engine_decoder *d, const specrt_beam *beam) {
    int32_t parents[ENGINE_MAX_BATCH];
    size_t width = (size_t)d->d_draft;
    for (int32_t i = 0; i < beam->n; i++) {
        memcpy(d->hidden[1] + (size_t)i * width, d->hidden[0] + (size_t)beam->parents[i] * width,
               width * sizeof(float));
        parents[i] = d->before < 0 ? -1 : d->before + beam->parents[i];
    }
    d->before = d->n_open;
    d->n_open += beam->n;
    return engine_draft(d->drafter, d->draft_cache, beam->tokens, d->hidden[1], d->d_draft, beam->n,
                        parents, d->hidden[0], d->head_input);
}

/* What was emitted since the last draft, after a prompt the root alone, extends the drafter's past;
 * its last row drafts. */
static specrt_status draft_root(engine_decoder *d, int32_t root) {
    if (d->n_emitted == 0) d->emitted[d->n_emitted++] = root;
    int32_t n = d->n_emitted;
    size_t last = (size_t)(n - 1) * (size_t)d->d_draft, bytes = (size_t)d->d_draft * sizeof(float);
    TRY(feed_pairs(d, d->emitted, d->pairs, n));
    memmove(d->hidden[0], d->hidden[0] + last, bytes);
    memmove(d->head_input, d->head_input + last, bytes);
    d->before = -1;
    d->n_open = 0;
    d->drafted = true;
    return SPECRT_STATUS_OK;
}

/* ---- the host of a session: the time outside of it is the session's ------------------------------- */

static int draft_step(void *user, int32_t level, const specrt_beam *beam, const float **hidden,
                      const float **draft_input) {
    engine_decoder *d = (engine_decoder *)user;
    d->times.head += tick(&d->since);
    specrt_status status = level == 0 ? draft_root(d, beam->tokens[0]) : draft_level(d, beam);
    *hidden = d->head_input;
    if (d->controller && status == SPECRT_STATUS_OK)
        engine_controller_drafted(d->controller, level, beam, d->head_input);
    if (level > 0)
        *draft_input = d->hidden[1];
    else if (d->width == d->d_draft) /* EAGLE-3 fuses three features into what it reads */
        *draft_input = d->pairs + (size_t)(d->n_emitted - 1) * (size_t)d->width;
    d->times.draft += tick(&d->since);
    return (int)status;
}

static int target_verify(void *user, const specrt_draft *draft, const float **logits) {
    engine_decoder *d = (engine_decoder *)user;
    d->times.head += tick(&d->since);
    specrt_status status = run_target(d, draft->tokens, draft->n, draft->parents, true);
    *logits = d->logits;
    d->times.target += tick(&d->since);
    return (int)status;
}

/* What waits for a drafter that was not asked goes on; where there is no more room, it reads. */
static specrt_status make_room(engine_decoder *d, int32_t n) {
    specrt_status status = SPECRT_STATUS_OK;
    if (!d->drafted && d->n_emitted + n <= SPECRT_TREE_MAX_NODES) return status;
    if (!d->drafted) status = feed_pairs(d, d->emitted, d->pairs, d->n_emitted);
    d->n_emitted = 0;
    d->drafted = false;
    return status;
}

/* Features of the kept nodes wait for the tokens that follow them. */
static int commit(void *user, const specrt_draft *draft, const specrt_verdict *verdict) {
    engine_decoder *d = (engine_decoder *)user;
    size_t width = (size_t)d->width;
    engine_keep(d->cache, verdict->nodes, verdict->n);
    d->times.verify += tick(&d->since);
    if (d->n_emitted == 0 && !d->drafted) d->emitted[d->n_emitted++] = draft->tokens[0];
    specrt_status status = make_room(d, verdict->n);
    if (status != SPECRT_STATUS_OK) return (int)status;
    d->times.draft += tick(&d->since);
    memcpy(d->emitted + d->n_emitted, verdict->tokens, (size_t)verdict->n * sizeof *d->emitted);
    for (int32_t i = 0; i < verdict->n; i++)
        memcpy(d->pairs + (size_t)(d->n_emitted + i) * width,
               d->features + (size_t)verdict->nodes[i] * width, width * sizeof(float));
    d->n_emitted += verdict->n;
    d->times.verify += tick(&d->since);
    if (d->controller)
        engine_controller_verified(d->controller, d->session, d->sampled, draft, verdict,
                                   d->logits);
    d->times.align += tick(&d->since);
    if (d->watch) d->watch(d->watch_user, draft, verdict, d->logits);
    d->times.watch += tick(&d->since);
    return 0;
}

static int target_hidden(void *user, const float **hidden, int32_t *width) {
    const engine_decoder *d = (const engine_decoder *)user;
    *hidden = d->final;
    *width = d->d_model;
    return 0;
}

/* ---- the prompt ------------------------------------------------------------------------------ */

/* Pairs of a chunk: its last feature waits for the token that follows. */
static specrt_status prefill_drafter(engine_decoder *d, const int32_t *tokens, int32_t n) {
    size_t width = (size_t)d->width, bytes = width * sizeof(float), before = (size_t)(n - 1);
    bool first = engine_cache_length(d->cache) == n;
    specrt_status status = SPECRT_STATUS_OK;
    if (engine_drafter_is_model(d->drafter)) return feed_pairs(d, tokens, d->features, n);
    if (!first) {
        memcpy(d->pairs + width, d->features, before * bytes);
        status = feed_pairs(d, tokens, d->pairs, n);
    } else if (n > 1) {
        status = feed_pairs(d, tokens + 1, d->features, n - 1);
    }
    memcpy(d->pairs, d->features + before * width, bytes);
    return status;
}

/* Damaged matrices, which loading does not read through, show in what the models answer. */
static bool all_finite(const float *values, int32_t n) {
    for (int32_t i = 0; i < n; i++)
        if (isnan(values[i]) || values[i] == INFINITY) return false;
    return true;
}

static int target_prefill(void *user, const int32_t *tokens, int32_t n, int all,
                          const float **logits) {
    engine_decoder *d = (engine_decoder *)user;
    const float *last = d->logits + (all ? (size_t)(n - 1) * (size_t)d->n_logits : 0);
    specrt_status status = run_target(d, tokens, n, NULL, all);
    if (status != SPECRT_STATUS_OK) return (int)status;
    if (!all)
        engine_score(d->target, d->final + (size_t)(n - 1) * (size_t)d->d_model, 1, d->logits);
    keep_first(d->cache, n);
    *logits = d->logits;
    if (!all_finite(last, d->n_logits)) return d->damaged = "target", (int)SPECRT_STATUS_BAD_INPUT;
    if (!d->drafter) return 0;
    if (d->controller) engine_controller_prompt(d->controller);
    status = prefill_drafter(d, tokens, n);
    /* A drafter that has learnt too fast proposes nothing; that is no fault of its file. */
    if (status == SPECRT_STATUS_OK && !d->controller && engine_cache_length(d->draft_cache) > 0 &&
        !all_finite(d->hidden[0], d->d_draft))
        return d->damaged = "drafter", (int)SPECRT_STATUS_BAD_INPUT;
    return (int)status;
}

static specrt_status check_prompt(const engine_decoder *d, const int32_t *prompt, int32_t n,
                                  specrt_error *err) {
    if (n < 1 || n >= d->n_context)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "prompt: expected 1 to %d tokens, found %d", (int)d->n_context - 1,
                                (int)n);
    for (int32_t i = 0; i < n; i++)
        if (prompt[i] < 0 || prompt[i] >= d->n_vocab)
            return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                    "prompt: token %d: expected 0 to %d, found %d", (int)i,
                                    (int)d->n_vocab - 1, (int)prompt[i]);
    return SPECRT_STATUS_OK;
}

/* The token that plain decoding emits, and whether the answer ends with it. */
static specrt_status draw_plain(engine_decoder *d, const float *logits, specrt_error *err) {
    specrt_verdict *v = &d->verdict;
    v->n = 1;
    v->tokens[0] = specrt_verifier_draw(d->verifier, logits, d->position++);
    v->end = --d->n_left == 0 ? SPECRT_END_LENGTH : SPECRT_END_NONE;
    if (v->tokens[0] >= 0) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                            "target: expected logits that are numbers, found NaN or -inf alone");
}

static specrt_status check_pass(int code, specrt_error *err) {
    if (code == 0) return SPECRT_STATUS_OK;
    return specrt_error_set(err, (specrt_status)code, "target: a pass failed: %s",
                            specrt_status_name((specrt_status)code));
}

/* What specrt_host_begin() does, without a session. */
static specrt_status begin_plain(engine_decoder *d, const specrt_request *request,
                                 const int32_t *prompt, int32_t n, specrt_error *err) {
    const float *logits = NULL;
    if (request && request->sampling) TRY(key_answers(d, request->sampling, err));
    specrt_verifier_set_generation(d->verifier, d->generation++);
    d->n_left = request && request->max_tokens > 0 ? request->max_tokens : INT64_MAX;
    for (int32_t done = 0, k; done < n; done += k) {
        k = n - done < ENGINE_MAX_BATCH ? n - done : ENGINE_MAX_BATCH;
        TRY(check_pass(target_prefill(d, prompt + done, k, 0, &logits), err));
    }
    d->position = n;
    return draw_plain(d, logits, err);
}

/* Of the call that failed on the session. */
static specrt_status take_error(const engine_decoder *d, specrt_status status, specrt_error *err) {
    if (status != SPECRT_STATUS_OK && err) *err = *specrt_session_last_error(d->session);
    return status;
}

void engine_decoder_reset(engine_decoder *d) {
    d->since = sl_measure_seconds();
    memset(&d->times, 0, sizeof d->times);
    engine_cache_truncate(d->cache, 0);
    if (d->session) engine_cache_truncate(d->draft_cache, 0);
    if (d->controller) engine_controller_begin(d->controller, d->draft_cache);
    d->n_emitted = 0;
    d->drafted = false;
    d->begun = false;
    d->damaged = NULL;
}

specrt_status engine_decoder_begin(engine_decoder *d, const specrt_request *request,
                                   const int32_t *prompt, int32_t n, specrt_error *err) {
    TRY(check_prompt(d, prompt, n, err));
    engine_decoder_reset(d);
    specrt_status status =
        d->session
            ? take_error(
                  d, specrt_host_begin(d->session, &d->host, request, prompt, n, &d->verdict), err)
            : begin_plain(d, request, prompt, n, err);
    d->times.prefill = tick(&d->since);
    if (d->damaged)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: its answer to the prompt is not finite; its weights are "
                                "damaged",
                                d->damaged);
    return status;
}

/* ---- decoding ------------------------------------------------------------------------------ */

static specrt_status plain_cycle(engine_decoder *d, specrt_error *err) {
    if (engine_cache_length(d->cache) >= d->n_context)
        return d->verdict.n = 0, d->verdict.end = SPECRT_END_CONTEXT, SPECRT_STATUS_OK;
    TRY(check_pass((int)run_target(d, d->verdict.tokens, 1, NULL, true), err));
    keep_first(d->cache, 1);
    d->times.target += tick(&d->since);
    TRY(draw_plain(d, d->logits, err));
    d->times.verify += tick(&d->since);
    return SPECRT_STATUS_OK;
}

static specrt_status speculative_cycle(engine_decoder *d, specrt_error *err) {
    TRY(take_error(d, specrt_host_cycle(d->session, &d->host, &d->verdict), err));
    d->times.update += tick(&d->since);
    return SPECRT_STATUS_OK;
}

specrt_status engine_decoder_next(engine_decoder *d, const specrt_verdict **out,
                                  specrt_error *err) {
    d->since = sl_measure_seconds();
    *out = &d->verdict;
    if (d->begun) return d->session ? speculative_cycle(d, err) : plain_cycle(d, err);
    d->begun = true; /* the first token came with the prompt */
    return SPECRT_STATUS_OK;
}

void engine_decoder_align(engine_decoder *d, engine_controller *controller) {
    d->controller = controller;
}

void engine_decoder_watch(engine_decoder *d,
                          void (*watch)(void *user, const specrt_draft *draft,
                                        const specrt_verdict *verdict, const float *logits),
                          void *user) {
    d->watch = watch;
    d->watch_user = user;
}

const specrt_host *engine_decoder_host(const engine_decoder *d) {
    return &d->host;
}
const engine_decode_times *engine_decoder_times(const engine_decoder *d) {
    return &d->times;
}
specrt_session *engine_decoder_session(const engine_decoder *d) {
    return d->session;
}
