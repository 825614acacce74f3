/* session_order.c : owns the order of calls on a session: where it stands, which call is expected there, and
 * what a request may begin with. Refuses what comes too early, too late or twice, for an engine that goes on
 * would emit tokens of another text. */
#include "decode/session.h"
#include "core/base.h"

/* What is expected where a session stands. */
static const char *specrt__session_expected(int at) {
    if (at & SPECRT__AT_CREATED) return "specrt_session_begin() first";
    if (at & SPECRT__AT_PROMPT) return "specrt_session_prefill() first, with the prompt";
    if (at & SPECRT__AT_READ) return "specrt_session_first() or start() first, which root a tree";
    if (at & SPECRT__AT_OPEN)
        return "specrt_session_start() first, with the token that observe_chain() lacked";
    if (at & SPECRT__AT_DRAFT)
        return "specrt_session_expand() or finish(), or begin() for another prompt";
    if (at & SPECRT__AT_DRAFTED)
        return "specrt_session_accept(), or verify() and observe(), which end the cycle";
    return "specrt_session_begin() first: the generation has ended";
}

SPECRT__INTERNAL specrt_status specrt__session_refuse_order(specrt_session *s, const char *call) {
    return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ORDER, "%s: expected %s", call,
                            specrt__session_expected(s->at));
}

SPECRT_API const specrt_error *specrt_session_last_error(const specrt_session *session) {
    return session ? &session->error : NULL;
}

/* How many tokens the target has read: all but the last one that was emitted. */
static int64_t specrt__session_n_read(const specrt_session *s) {
    if (s->at & SPECRT__AT_OPEN) return s->position + s->open.n_accepted;
    if (s->at & (SPECRT__AT_DRAFT | SPECRT__AT_DRAFTED | SPECRT__AT_ENDED))
        return s->position > 0 ? s->position - 1 : 0;
    return s->position;
}

SPECRT__INTERNAL specrt_status specrt__session_check_request(specrt_session *s,
                                                             const specrt_request *r) {
    bool turn = r->begin == SPECRT_BEGIN_TURN;
    int64_t most = turn ? specrt__session_n_read(s) : INT64_MAX / 2;
    if (!turn && r->begin != SPECRT_BEGIN_NEW)
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                                "begin: begin: expected new (0) or turn (1), found %d",
                                (int)r->begin);
    if (r->position < 0 || r->position > most)
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                                "begin: position: expected 0 to %lld%s, found %lld",
                                (long long)most,
                                turn ? ", the tokens that the target has read (the last emitted "
                                       "one leads the prompt)"
                                     : "",
                                (long long)r->position);
    if (r->max_tokens < 0)
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                                "begin: max_tokens: expected 0 for no limit, or more, found %lld",
                                (long long)r->max_tokens);
    if (!r->sampling) return SPECRT_STATUS_OK;
    if (s->distributions && r->sampling->temperature == 0)
        return specrt_error_set(&s->error, SPECRT_STATUS_BAD_ARG,
                                "begin: sampling: expected a temperature above 0, since the "
                                "session has sampled drafts, found 0");
    return specrt__verify_check(s->verifier->n_logits, s->verifier->n_vocab, r->sampling,
                                &s->error);
}

/* Sources forget the sequence. */
static void specrt__session_forget(specrt_session *s) {
    specrt__pool_reset(s->pool);
    for (int i = s->policy->n_sources; i-- > 0;)
        if (s->policy->sources[i].source->begin) s->policy->sources[i].source->begin(s->states[i]);
    for (int32_t i = 0; i < s->policy->n_terminators; i++)
        specrt__pool_want(s->pool, s->policy->terminators[i], SPECRT__POOL_PINNED);
    s->n_copied_before = s->pool->n_copied;
    s->cycle = 0;
    SPECRT__CLEAR(&s->stats, 1);
    specrt__session_pack(s);
}

SPECRT__INTERNAL void specrt__session_reset(specrt_session *s) {
    specrt__session_forget(s);
    s->at = SPECRT__AT_CREATED;
    s->position = 0;
    s->open.n = 0;
    s->n_left = INT64_MAX;
    specrt_tree_begin(s->tree, 0);
}

SPECRT_API specrt_status specrt_session_begin(specrt_session *s, const specrt_request *request) {
    specrt_request r;
    SPECRT__SESSION_NEEDS(s, s, "begin");
    SPECRT__CLEAR(&r, 1);
    if (request) r = *request;
    SPECRT__TRY(specrt__session_check_request(s, &r));
    if (r.sampling) s->verifier->sampling = *r.sampling, s->generation = r.sampling->generation;
    specrt_verifier_set_generation(s->verifier, s->generation++);
    s->position = r.position;
    s->n_left = r.max_tokens > 0 ? r.max_tokens : INT64_MAX;
    s->n_late = 0;
    s->open.n = 0;
    s->level = 0;
    s->stamp++;
    specrt_tree_begin(s->tree, s->tree->root); /* a draft that was left is forgotten */
    if (r.begin == SPECRT_BEGIN_NEW) specrt__session_forget(s);
    /* what a new sequence starts behind has been read, and perhaps all of its prompt */
    s->at = r.begin == SPECRT_BEGIN_NEW && r.position > 0 ? SPECRT__AT_PROMPT | SPECRT__AT_READ
                                                          : SPECRT__AT_PROMPT;
    return SPECRT_STATUS_OK;
}
