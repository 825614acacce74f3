/* browser.c : a drafter's head in a page: which of its rows a policy scores for a state, and the best tokens.
 * browser.html calls these functions; tests/wasm/browser.sh compiles them.
 */
#define SPECRT_IMPLEMENTATION
#define SPECRT_NO_FILES
#define SPECRT_NO_ZSTD /* bundles by specrt-bundle unpack */
#include "specrt.h"

#include <stdlib.h>

#if defined(__wasm__)
#define EXPORT(name) __attribute__((export_name(#name)))
#else
#define EXPORT(name)
#endif

static specrt_bundle *bundle;
static specrt_head *head;
static specrt_policy *policy;
static specrt_session *session;
static specrt_error error;
static float *scores; /* [n_tokens] */
static int32_t n_tokens;

EXPORT(page_alloc) void *page_alloc(size_t n) {
    return malloc(n);
}

EXPORT(page_error) const char *page_error(void) {
    return error.msg;
}

/* bytes : a bundle; rows : f16 [n_rows, n_cols], of all tokens. Both stay where they are.
 * @return a specrt_status */
EXPORT(page_open)
int page_open(const void *bytes, size_t n, const void *rows, int32_t n_rows, int32_t n_cols) {
    const specrt_head_desc desc = {
        .rows = rows, .dtype = SPECRT_DTYPE_F16, .n_rows = n_rows, .n_cols = n_cols};
    specrt_status status = specrt_bundle_open_memory(bytes, n, "bundle", NULL, &bundle, &error);
    if (!status) status = specrt_head_bind(bundle, &desc, NULL, &head, &error);
    n_tokens = n_rows;
    if (!status && !(scores = (float *)malloc((size_t)n_rows * sizeof *scores)))
        status = SPECRT_STATUS_NO_MEMORY;
    return status;
}

/* @return a specrt_status */
EXPORT(page_choose) int page_choose(const char *text) {
    const specrt_policy_desc desc = {.text = text};
    const specrt_session_params params = {.n_logits = n_tokens};
    specrt_session_close(session);
    specrt_policy_close(policy);
    session = NULL, policy = NULL;
    specrt_status status = specrt_policy_create(bundle, head, &desc, &policy, &error);
    return status ? status : specrt_session_create(policy, &params, NULL, &session, &error);
}

static specrt_status start(int32_t token) {
    specrt_status status = specrt_session_begin(session, NULL);
    if (!status) status = specrt_session_prefill(session, &token, 1, NULL);
    return status ? status : specrt_session_start(session, token);
}

/* The k best tokens behind `token`, whose state f32 [n_cols] is the drafter's, into ids and logprobs, [k].
 * @return rows that were scored; 0: none, and page_error() says why */
EXPORT(page_route)
int32_t page_route(int32_t token, const float *state, int32_t k, int32_t *ids, float *logprobs) {
    const specrt_shortlist *list = NULL;
    specrt_beam beam;
    specrt_status status = start(token);
    if (!status) status = specrt_session_get_beam(session, &beam);
    if (!status) list = specrt_session_route(session, 0, &beam, state, NULL);
    if (!list) {
        error = *specrt_session_last_error(session);
        return 0;
    }
    status = specrt_shortlist_logits(list, state, 1, scores);
    if (!status) status = specrt_shortlist_topk(list, scores, 1, k, ids, logprobs);
    return status ? 0 : list->n_rows;
}
