/* opened.h : what cases need opened before they begin; a case ends where it is refused, with its message. */
#ifndef OPENED_H
#define OPENED_H

#include "fixture.h"
#include "test.h"

static inline void opened(specrt_status status, const specrt_error *err) {
    if (status != SPECRT_STATUS_OK) fprintf(stderr, "refused: %s\n", err->msg);
    REQUIRE(status == SPECRT_STATUS_OK);
}

/* f32_rows() : a head without ids and bias, or an embedding. */
static inline specrt_head_desc f32_rows(const void *rows, int64_t n_rows, int64_t n_cols) {
    specrt_head_desc desc = {
        .rows = rows, .dtype = SPECRT_DTYPE_F32, .n_rows = n_rows, .n_cols = n_cols};
    return desc;
}

/* open_memory() : the bytes outlive the bundle. */
static inline specrt_bundle *open_memory(const void *bytes, size_t n) {
    specrt_bundle *bundle = NULL;
    specrt_error err;
    opened(specrt_bundle_open_memory(bytes, n, "b.specb", NULL, &bundle, &err), &err);
    return bundle;
}

/* bind_head(), bind_rows() : bundle: may be NULL */
static inline specrt_head *bind_head(const specrt_bundle *bundle, const specrt_head_desc *desc) {
    specrt_head *head = NULL;
    specrt_error err;
    opened(specrt_head_bind(bundle, desc, NULL, &head, &err), &err);
    return head;
}

static inline specrt_head *bind_rows(const specrt_bundle *bundle, const void *rows, int64_t n_rows,
                                     int64_t n_cols) {
    specrt_head_desc desc = f32_rows(rows, n_rows, n_cols);
    return bind_head(bundle, &desc);
}

static inline specrt_policy *create_policy(const specrt_bundle *bundle, const specrt_head *head,
                                           const specrt_policy_desc *desc) {
    specrt_policy *policy = NULL;
    specrt_error err;
    opened(specrt_policy_create(bundle, head, desc, &policy, &err), &err);
    return policy;
}

/* env: may be NULL */
static inline specrt_session *create_session(const specrt_policy *policy,
                                             const specrt_session_params *params,
                                             const specrt_env *env) {
    specrt_session *session = NULL;
    specrt_error err;
    opened(specrt_session_create(policy, params, env, &session, &err), &err);
    return session;
}

static inline specrt_verifier *create_verifier(int32_t n_logits, int32_t n_vocab,
                                               const specrt_sampling *sampling) {
    specrt_verifier *verifier = NULL;
    specrt_error err;
    opened(specrt_verifier_create(n_logits, n_vocab, sampling, NULL, &verifier, &err), &err);
    return verifier;
}

/* What is NULL is passed over. */
static inline void close_both(specrt_session *session, specrt_policy *policy) {
    specrt_session_close(session);
    specrt_policy_close(policy);
}

static inline void close_all(specrt_session *session, specrt_policy *policy, specrt_head *head) {
    close_both(session, policy);
    specrt_head_close(head);
}

#endif
