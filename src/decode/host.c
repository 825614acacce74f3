/* host.c : owns the loop over the application's models. Refuses tables with holes, prompts that fill the
 * context, and generations that a model failed. */
#include "core/base.h"
#include "decode/session.h"

/* Before a model sees it: a host need not check tokens. */
static specrt_status specrt__host_check_prompt(specrt_session *s, const specrt_host *host,
                                               int64_t position, const int32_t *prompt, int64_t n) {
    int32_t n_vocab = s->verifier->n_vocab;
    int64_t most = host->n_context ? host->n_context - 1 - position : INT64_MAX;
    if (n < 1 || n > most)
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                                "prompt: expected 1 to %lld tokens, found %lld", (long long)most,
                                (long long)n);
    for (int64_t i = 0; i < n; i++)
        if (prompt[i] < 0 || prompt[i] >= n_vocab)
            return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                                    "prompt: token %lld: expected 0 to %d, found %d", (long long)i,
                                    (int)n_vocab - 1, (int)prompt[i]);
    return SPECRT_STATUS_OK;
}

static specrt_status specrt__host_check(specrt_session *s, const specrt_host *host) {
    bool reads = s->policy->info.hidden_width > 0;
    const char *missing = !host->target_prefill                     ? "target_prefill"
                          : !host->draft_step && !host->draft_block ? "draft_step"
                          : !host->target_verify                    ? "target_verify"
                          : !host->commit                           ? "commit"
                          : reads && !host->target_hidden           ? "target_hidden"
                                                                    : NULL;
    if (missing)
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                                "host: %s: expected a function, found NULL", missing);
    if (host->n_context < 0 || host->n_context == 1)
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                                "host: n_context: expected 0 for no limit, or at least 2 for a "
                                "prompt and what follows it, found %lld",
                                (long long)host->n_context);
    return SPECRT_STATUS_OK;
}

/* What a callback returned. After a failure nobody knows what the models have read. */
static specrt_status specrt__host_returned(specrt_session *s, const char *callback, int code,
                                           bool has_result) {
    if (code == 0 && has_result) return SPECRT_STATUS_OK;
    s->at = SPECRT__AT_ENDED;
    if (code == 0)
        return specrt_error_set(&s->error, SPECRT_STATUS_HOST,
                                "host: %s: returned 0, expected a result with it, found NULL",
                                callback);
    return specrt_error_set(&s->error, SPECRT_STATUS_HOST, "host: %s: returned %d", callback, code);
}

/* One batch of the prompt. *last: the logits of its last token. */
static specrt_status specrt__host_prefill(specrt_session *s, const specrt_host *host,
                                          const int32_t *tokens, int32_t n, const float **last) {
    specrt_target_rows rows;
    memset(&rows, 0, sizeof rows);
    int all = s->policy->info.needs_prompt_logits;
    int code = host->target_prefill(host->user, tokens, n, all, &rows.logits);
    SPECRT__TRY(specrt__host_returned(s, "target_prefill", code, rows.logits != NULL));
    *last = rows.logits + (all ? (int64_t)(n - 1) * s->n_logits : 0);
    return specrt_session_prefill(s, tokens, n, all ? &rows : NULL);
}

/* The prompt and the first token after it. */
static specrt_status specrt__host_start(specrt_session *s, const specrt_host *host,
                                        const int32_t *prompt, int64_t n, specrt_verdict *out) {
    const float *last = NULL;
    int64_t batch = host->max_batch > 0 ? host->max_batch : INT32_MAX;
    for (int64_t done = 0; done < n; done += batch) {
        int64_t left = n - done < batch ? n - done : batch;
        SPECRT__TRY(specrt__host_prefill(s, host, prompt + done, (int32_t)left, &last));
    }
    s->n_late = host->reads_late ? n : 0;
    return specrt_session_first(s, last, out);
}

SPECRT_API specrt_status specrt_host_begin(specrt_session *s, const specrt_host *host,
                                           const specrt_request *request, const int32_t *prompt,
                                           int64_t n, specrt_verdict *out) {
    SPECRT__SESSION_NEEDS(s, out, "host_begin");
    memset(out, 0, sizeof *out);
    SPECRT__SESSION_NEEDS(s, host, "host_begin");
    SPECRT__SESSION_NEEDS(s, prompt, "host_begin");
    SPECRT__TRY(specrt__host_check(s, host));
    if (request) SPECRT__TRY(specrt__session_check_request(s, request));
    SPECRT__TRY(specrt__host_check_prompt(s, host, request ? request->position : 0, prompt, n));
    SPECRT__TRY(specrt_session_begin(s, request));
    return specrt__host_start(s, host, prompt, n, out);
}

/* Passes of a draft at most. */
static int32_t specrt__host_steps(const specrt_session *s, const specrt_host *host) {
    int32_t most = s->tree->params.num_steps;
    return host->num_steps > 0 && host->num_steps < most ? host->num_steps : most;
}

/* A block of the drafter, as far as it is of use. */
static specrt_status specrt__host_block(specrt_session *s, const specrt_host *host, int32_t n) {
    specrt_block block;
    specrt_beam beam;
    SPECRT__CLEAR(&block, 1);
    SPECRT__TRY(specrt_session_get_beam(s, &beam));
    if (beam.n == 0) return SPECRT_STATUS_OK;
    if (s->auto_draft && s->choice.num_steps < n) n = s->choice.num_steps;
    int code = host->draft_block(host->user, s->tree->root, n, &block);
    SPECRT__TRY(specrt__host_returned(s, "draft_block", code, block.hidden != NULL));
    if (block.n > n) block.n = n;
    if (block.p_min == 0) block.p_min = host->p_min;
    return specrt__block_grow(s, &block);
}

/* Where it ends follows from tokens that stay in the draft, as a sampled chain must have it. */
static specrt_status specrt__host_draft(specrt_session *s, const specrt_host *host) {
    specrt_beam beam;
    const int32_t n_steps = specrt__host_steps(s, host);
    if (host->draft_block) return specrt__host_block(s, host, n_steps);
    const float least = host->p_min > 0 ? logf(host->p_min) : -INFINITY;
    SPECRT__TRY(specrt_session_get_beam(s, &beam));
    for (int32_t level = 0; level < n_steps && beam.n > 0 && beam.logprobs[0] >= least; level++) {
        const float *draft_hidden = NULL, *draft_input = NULL;
        int code = host->draft_step(host->user, level, &beam, &draft_hidden, &draft_input);
        SPECRT__TRY(specrt__host_returned(s, "draft_step", code, draft_hidden != NULL));
        SPECRT__TRY(specrt_session_expand(s, draft_hidden, draft_input, beam.n, &beam));
    }
    return SPECRT_STATUS_OK;
}

/* The hidden states that the last verification computed, where a source reads them. */
static specrt_status specrt__host_hidden(specrt_session *s, const specrt_host *host,
                                         specrt_target_rows *rows) {
    int32_t width = s->policy->info.hidden_width;
    if (width == 0) return SPECRT_STATUS_OK;
    int code = host->target_hidden(host->user, &rows->hidden, &rows->d_hidden);
    SPECRT__TRY(specrt__host_returned(s, "target_hidden", code, rows->hidden != NULL));
    if (rows->d_hidden == width) return SPECRT_STATUS_OK;
    return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                            "host: target_hidden: expected %d columns, which the index has, found "
                            "%d",
                            (int)width, (int)rows->d_hidden);
}

/* Verifies a draft that the target has read, tells the host what to keep, and learns. */
static specrt_status specrt__host_accept(specrt_session *s, const specrt_host *host,
                                         const specrt_draft *draft, const specrt_target_rows *rows,
                                         specrt_verdict *out) {
    SPECRT__TRY(specrt_session_verify(s, draft, rows->logits, out));
    specrt__session_cut(s, out);
    SPECRT__TRY(specrt__host_returned(s, "commit", host->commit(host->user, draft, out), true));
    return specrt__session_end(s, draft, rows, out);
}

SPECRT_API specrt_status specrt_host_cycle(specrt_session *s, const specrt_host *host,
                                           specrt_verdict *out) {
    specrt_draft draft;
    specrt_target_rows rows;
    SPECRT__SESSION_NEEDS(s, out, "host_cycle");
    memset(&rows, 0, sizeof rows);
    memset(out, 0, sizeof *out);
    SPECRT__SESSION_NEEDS(s, host, "host_cycle");
    SPECRT__TRY(specrt__host_check(s, host));
    SPECRT__TRY(specrt__session_order(s, SPECRT__AT_DRAFT, "host_cycle"));
    int64_t left = host->n_context ? host->n_context - (s->position - 1) : INT64_MAX;
    if (left < 1) return out->end = SPECRT_END_CONTEXT, SPECRT_STATUS_OK;
    if (left > specrt__host_steps(s, host)) SPECRT__TRY(specrt__host_draft(s, host));
    SPECRT__TRY(specrt_session_finish(s, &draft));
    int code = host->target_verify(host->user, &draft, &rows.logits);
    SPECRT__TRY(specrt__host_returned(s, "target_verify", code, rows.logits != NULL));
    SPECRT__TRY(specrt__host_hidden(s, host, &rows));
    return specrt__host_accept(s, host, &draft, &rows, out);
}

/* Gives new tokens to the application. @return whether it goes on. */
static bool specrt__host_give(specrt_generation *g, const specrt_verdict *v) {
    g->n_tokens += v->n;
    g->end = v->end;
    if (v->n > 0 && g->each && g->each(g->user, v->tokens, v->n) != 0 && g->end == SPECRT_END_NONE)
        g->end = SPECRT_END_STOPPED;
    return g->end == SPECRT_END_NONE;
}

SPECRT_API specrt_status specrt_generate(specrt_session *s, const specrt_host *host,
                                         const specrt_request *request, const int32_t *prompt,
                                         int64_t n, specrt_generation *g) {
    specrt_verdict verdict;
    SPECRT__SESSION_NEEDS(s, g, "generate");
    g->n_tokens = 0;
    g->end = SPECRT_END_NONE;
    SPECRT__TRY(specrt_host_begin(s, host, request, prompt, n, &verdict));
    while (specrt__host_give(g, &verdict)) SPECRT__TRY(specrt_host_cycle(s, host, &verdict));
    return SPECRT_STATUS_OK;
}
