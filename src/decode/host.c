/* host.c : owns the loop over the application's models. Refuses tables with holes, prompts that fill the
 * context, and generations that a model failed. */
#include "core/base.h"
#include "decode/session.h"

/* Before a model sees it: a host need not check tokens. */
static specrt_status specrt__host_check_prompt(const specrt_session *s, const specrt_host *host,
                                               const int32_t *prompt, int64_t n,
                                               specrt_error *err) {
    int32_t n_vocab = s->verifier->n_vocab;
    if (n < 1 || (host->n_context != 0 && n >= host->n_context))
        return specrt_error_set(
            err, SPECRT_STATUS_BAD_ARG, "prompt: expected 1 to %lld tokens, found %lld",
            host->n_context ? (long long)host->n_context - 1 : (long long)INT64_MAX, (long long)n);
    for (int64_t i = 0; i < n; i++)
        if (prompt[i] < 0 || prompt[i] >= n_vocab)
            return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                    "prompt: token %lld: expected 0 to %d, found %d", (long long)i,
                                    (int)n_vocab - 1, (int)prompt[i]);
    return SPECRT_STATUS_OK;
}

static specrt_status specrt__host_check(const specrt_session *s, const specrt_host *host,
                                        const int32_t *prompt, int64_t n, specrt_error *err) {
    bool reads = s->policy->info.hidden_width > 0;
    const char *missing = !host->target_prefill           ? "target_prefill"
                          : !host->draft_step             ? "draft_step"
                          : !host->target_verify          ? "target_verify"
                          : !host->commit                 ? "commit"
                          : reads && !host->target_hidden ? "target_hidden"
                                                          : NULL;
    if (missing)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "host: %s: expected a function, found NULL", missing);
    if (host->n_context < 0 || host->n_context == 1)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "host: n_context: expected 0 for no limit, or at least 2 for a "
                                "prompt and what follows it, found %lld",
                                (long long)host->n_context);
    return specrt__host_check_prompt(s, host, prompt, n, err);
}

static specrt_status specrt__host_failed(const char *callback, int code, specrt_error *err) {
    return specrt_error_set(err, SPECRT_STATUS_HOST, "host: %s: returned %d", callback, code);
}

/* One batch of the prompt. *last: the logits of its last token. */
static specrt_status specrt__host_prefill(specrt_session *s, const specrt_host *host,
                                          const int32_t *tokens, int32_t n, const float **last,
                                          specrt_error *err) {
    specrt_target_rows rows;
    memset(&rows, 0, sizeof rows);
    int all = s->policy->info.needs_prompt_logits;
    int code = host->target_prefill(host->user, tokens, n, all, &rows.logits);
    if (code != 0) return specrt__host_failed("target_prefill", code, err);
    *last = rows.logits + (all ? (int64_t)(n - 1) * s->verifier->n_vocab : 0);
    return specrt_session_prefill(s, tokens, n, all ? &rows : NULL);
}

/* The prompt and the first token after it. */
static specrt_status specrt__host_start(specrt_session *s, const specrt_host *host,
                                        const int32_t *prompt, int64_t n, int32_t *first,
                                        specrt_error *err) {
    const float *last = NULL;
    int64_t batch = host->max_batch > 0 ? host->max_batch : INT32_MAX;
    for (int64_t done = 0; done < n; done += batch) {
        int64_t left = n - done < batch ? n - done : batch;
        SPECRT__TRY(specrt__host_prefill(s, host, prompt + done, (int32_t)left, &last, err));
    }
    *first = specrt_session_draw(s, last);
    return specrt_session_start(s, *first);
}

SPECRT_API specrt_status specrt_host_begin(specrt_session *s, const specrt_host *host,
                                           specrt_begin kind, const int32_t *prompt, int64_t n,
                                           int32_t *first, specrt_error *err) {
    SPECRT__TRY(specrt__host_check(s, host, prompt, n, err));
    SPECRT__TRY(specrt_session_begin(s, kind, 0));
    return specrt__host_start(s, host, prompt, n, first, err);
}

/* Passes of a draft at most. */
static int32_t specrt__host_steps(const specrt_session *s, const specrt_host *host) {
    int32_t most = s->tree->params.num_steps;
    return host->num_steps > 0 && host->num_steps < most ? host->num_steps : most;
}

/* Where it ends follows from tokens that stay in the draft, as a sampled chain must have it. */
static specrt_status specrt__host_draft(specrt_session *s, const specrt_host *host,
                                        specrt_error *err) {
    specrt_beam beam;
    const int32_t n_steps = specrt__host_steps(s, host);
    const float least = host->p_min > 0 ? logf(host->p_min) : -INFINITY;
    specrt_session_get_beam(s, &beam);
    for (int32_t level = 0; level < n_steps && beam.n > 0 && beam.logprobs[0] >= least; level++) {
        const float *draft_hidden = NULL, *draft_input = NULL;
        int code = host->draft_step(host->user, level, &beam, &draft_hidden, &draft_input);
        if (code != 0) return specrt__host_failed("draft_step", code, err);
        SPECRT__TRY(specrt_session_expand(s, draft_hidden, draft_input, beam.n, &beam));
    }
    return SPECRT_STATUS_OK;
}

/* The hidden states that the last verification computed, where a source reads them. */
static specrt_status specrt__host_hidden(const specrt_session *s, const specrt_host *host,
                                         specrt_target_rows *rows, specrt_error *err) {
    int32_t width = s->policy->info.hidden_width;
    if (width == 0) return SPECRT_STATUS_OK;
    int code = host->target_hidden(host->user, &rows->hidden, &rows->d_hidden);
    if (code != 0) return specrt__host_failed("target_hidden", code, err);
    if (rows->d_hidden == width) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                            "host: target_hidden: expected %d columns, which the index has, found "
                            "%d",
                            (int)width, (int)rows->d_hidden);
}

SPECRT_API specrt_status specrt_host_cycle(specrt_session *s, const specrt_host *host,
                                           specrt_verdict *verdict, specrt_error *err) {
    specrt_draft draft;
    specrt_target_rows rows;
    memset(&rows, 0, sizeof rows);
    int64_t left = host->n_context ? host->n_context - (s->position - 1) : INT64_MAX;
    if (left < 1) return verdict->n = 0, SPECRT_STATUS_OK;
    if (left > specrt__host_steps(s, host)) SPECRT__TRY(specrt__host_draft(s, host, err));
    specrt_session_finish(s, &draft);
    int code = host->target_verify(host->user, &draft, &rows.logits);
    if (code != 0) return specrt__host_failed("target_verify", code, err);
    SPECRT__TRY(specrt__host_hidden(s, host, &rows, err));
    SPECRT__TRY(specrt_session_verify(s, &draft, rows.logits, verdict));
    code = host->commit(host->user, &draft, verdict);
    if (code != 0) return specrt__host_failed("commit", code, err);
    return specrt_session_observe(s, &draft, verdict, &rows);
}

/* Gives new tokens to the application, cut where the answer ends. @return whether it goes on. */
static bool specrt__host_give(const specrt_session *s, specrt_generation *g, const int32_t *tokens,
                              int32_t n) {
    int64_t left = g->max_tokens > 0 ? g->max_tokens - g->n_tokens : INT64_MAX;
    bool more = n > 0; /* none where the context is full */
    if (n >= left) n = (int32_t)left, g->end = SPECRT_END_LENGTH, more = false;
    for (int32_t i = 0; i < n; i++)
        if (specrt_policy_ends(s->policy, tokens[i]))
            n = i + 1, g->end = SPECRT_END_TERMINATOR, more = false;
    g->n_tokens += n;
    if (n > 0 && g->each && g->each(g->user, tokens, n) != 0 && more)
        g->end = SPECRT_END_STOPPED, more = false;
    return more;
}

SPECRT_API specrt_status specrt_generate(specrt_session *s, const specrt_host *host,
                                         const int32_t *prompt, int64_t n, specrt_generation *g,
                                         specrt_error *err) {
    specrt_verdict verdict;
    g->n_tokens = 0;
    g->end = SPECRT_END_CONTEXT; /* unless something else ends it first */
    verdict.n = 1;
    SPECRT__TRY(specrt_host_begin(s, host, g->begin, prompt, n, &verdict.tokens[0], err));
    while (specrt__host_give(s, g, verdict.tokens, verdict.n))
        SPECRT__TRY(specrt_host_cycle(s, host, &verdict, err));
    return SPECRT_STATUS_OK;
}
