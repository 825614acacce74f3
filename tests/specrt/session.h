/* session.h : decoding loops of a session over the toy models of pair.h, with a bundle and a head for them */
#ifndef TESTS_SPECRT_SESSION_H
#define TESTS_SPECRT_SESSION_H

#include "specrt.h"
#include "decode/session.h"
#include "specrt/pair.h"
#include "opened.h"
#include "specrt/root.h"

enum { V = PAIR_V, D = PAIR_D, N_PROMPT = 20, N_TOKENS = 160, MAX_STREAM = N_TOKENS + 64 };

static const pair models = {.n_last = 40, .noise = 0.2f};
static specrt_bundle *bundle;
static specrt_head *head;

static inline void open_all(void) {
    static const char *const tags[] = {"centroid", "ranks"};
    size_t sizes[2], n;
    if (bundle) return;
    const specrt_clusters_header clusters = fixture_router(SPECRT_ROUTER_CENTROID, V, D, 10, 2);
    uint8_t *parts[] = {fixture_clusters(clusters, NULL, 5, &sizes[0]),
                        fixture_ranks(V, 2, 60, &sizes[1])};
    uint8_t *bytes = fixture_join(tags, parts, sizes, 2, &n);
    bundle = open_memory(bytes, n);
    specrt_head_desc desc = pair_head();
    head = bind_head(bundle, &desc);
}

/* --- decoding --- */

typedef enum truth_kind {
    HONEST,
    RANDOM,
    ADVERSARIAL
} truth_kind; /* what the window is told of the target */

typedef struct setting {
    const char *policy;
    truth_kind truth;
    specrt_tree_params tree;
    specrt_sampling sampling;
} setting;

/* How cycles are told: draft and verdict; a chain's tokens; these, and the last token later. */
static enum { TELLS_TREES, TELLS_CHAINS, TELLS_LAST_LATER } telling;

typedef struct run {
    int32_t stream[MAX_STREAM], n;
    specrt_session_stats stats;
} run;

static inline void make_prompt(int32_t *stream) {
    for (int32_t i = 0; i < N_PROMPT; i++) stream[i] = 11 * i % 37;
}

static inline void decode_plain(const specrt_sampling *sampling, run *r) {
    float logits[V];
    specrt_verifier *v = create_verifier(V, V, sampling);
    make_prompt(r->stream);
    for (r->n = N_PROMPT; r->n < N_TOKENS; r->n++) {
        pair_target(&models, r->stream[r->n - 2], r->stream[r->n - 1], logits);
        r->stream[r->n] = specrt_verifier_draw(v, logits, r->n);
    }
    specrt_verifier_close(v);
}

/* The true rows, or ids that mislead: chance, or the tokens the target likes least. */
static inline specrt_target_rows told(truth_kind truth, const float *logits, int32_t n,
                                      int32_t *ids, uint64_t *state) {
    specrt_target_rows rows = {.logits = logits};
    if (truth == HONEST) return rows;
    rows = (specrt_target_rows){.ids = ids, .k = 3};
    for (int32_t i = 0; i < n; i++)
        for (int32_t j = 0; j < 3; j++) {
            int32_t worst = (int32_t)(fixture_random(state) % V);
            for (int32_t id = 0; id < V && truth == ADVERSARIAL; id++)
                if (logits[i * V + id] < logits[i * V + worst]) worst = id;
            ids[i * 3 + j] = worst;
        }
    return rows;
}

static inline void check_shortlist(const specrt_session *s, int32_t bound) {
    const specrt_shortlist *shortlist = specrt_session_shortlist(s);
    bool seen[V] = {false};
    int32_t n = 0;
    for (int32_t i = 0; i < shortlist->n_segments; i++)
        for (int32_t r = 0; r < shortlist->segments[i].n_rows; r++, n++) {
            int32_t id = shortlist->segments[i].ids[r];
            REQUIRE(id >= 0 && id < V && !seen[id]);
            seen[id] = true;
        }
    CHECK_INT(n, shortlist->n_rows);
    CHECK(n >= 1 && n <= bound);
    CHECK(seen[3]); /* the fixture's terminator */
    for (int32_t id = -1; id <= V; id++) {
        bool member = specrt_session_member(s, id, 0) != SPECRT_MEMBER_NO;
        REQUIRE(member == (id >= 0 && id < V && seen[id]));
    }
}

static inline specrt_status tell_rows(specrt_session *s, const specrt_draft *draft,
                                      const specrt_verdict *verdict,
                                      const specrt_target_rows *rows) {
    int32_t n_accepted = verdict->n - 1, last = verdict->tokens[n_accepted];
    if (telling == TELLS_TREES) return specrt_session_observe(s, draft, verdict, rows);
    if (telling == TELLS_CHAINS)
        return specrt_session_observe_chain(s, draft->tokens, draft->n, n_accepted, last, rows);
    REQUIRE(!specrt_session_observe_chain(s, draft->tokens, draft->n, n_accepted, -1, rows));
    CHECK_INT(specrt_session_observe(s, draft, verdict, rows), SPECRT_STATUS_BAD_ORDER);
    CHECK_INT(specrt_session_observe_chain(s, draft->tokens, draft->n, n_accepted, -1, rows),
              SPECRT_STATUS_BAD_ORDER);
    CHECK_INT(specrt_session_start(s, V), SPECRT_STATUS_BAD_ARG); /* it stays open */
    return specrt_session_start(s, last);
}

/* One sequence through a session; with_prefix: the first half of the prompt has no logits. */
static inline void decode_as(specrt_session *s, const specrt_request *request, const setting *set,
                             int32_t bound, bool with_prefix, run *r) {
    static __thread float logits[SPECRT_TREE_MAX_NODES * V];
    int32_t ids[SPECRT_TREE_MAX_NODES * 3];
    uint64_t state = 77;
    specrt_draft draft;
    specrt_verdict verdict;
    make_prompt(r->stream);
    REQUIRE(specrt_session_begin(s, request) == SPECRT_STATUS_OK);
    int32_t n_prefix = with_prefix ? N_PROMPT / 2 : 0;
    REQUIRE(specrt_session_prefill(s, r->stream, n_prefix, NULL) == SPECRT_STATUS_OK);
    for (int32_t i = n_prefix; i < N_PROMPT; i++)
        pair_target(&models, i > 0 ? r->stream[i - 1] : 0, r->stream[i],
                    logits + (i - n_prefix) * V);
    specrt_target_rows rows = told(set->truth, logits, N_PROMPT - n_prefix, ids, &state);
    REQUIRE(specrt_session_prefill(s, r->stream + n_prefix, N_PROMPT - n_prefix, &rows) ==
            SPECRT_STATUS_OK);
    REQUIRE(!specrt_session_draw(s, logits + (N_PROMPT - 1 - n_prefix) * V, &r->stream[N_PROMPT]));
    REQUIRE(specrt_session_start(s, r->stream[N_PROMPT]) == SPECRT_STATUS_OK);
    for (r->n = N_PROMPT + 1; r->n < N_TOKENS; r->n += verdict.n) {
        int32_t before = r->stream[r->n - 2];
        check_shortlist(s, bound);
        pair_draft(&models, s, before, r->stream[r->n - 1], &draft);
        pair_verify(&models, s, before, &draft, logits, &verdict);
        for (int32_t i = verdict.n; i < SPECRT_TREE_MAX_NODES; i++)
            verdict.nodes[i] = verdict.tokens[i] = -99; /* behind the verdict */
        memcpy(r->stream + r->n, verdict.tokens, (size_t)verdict.n * sizeof *r->stream);
        rows = told(set->truth, logits, draft.n, ids, &state);
        REQUIRE(tell_rows(s, &draft, &verdict, &rows) == SPECRT_STATUS_OK);
    }
    specrt_session_get_stats(s, &r->stats);
}

static inline void decode(specrt_session *s, const setting *set, int32_t bound, bool with_prefix,
                          run *r) {
    decode_as(s, NULL, set, bound, with_prefix, r);
}

static inline specrt_policy *make_policy(const char *text) {
    specrt_policy_desc desc = {.text = text};
    return create_policy(bundle, head, &desc);
}

static inline specrt_session *make_session(const specrt_policy *policy, const setting *set,
                                           const specrt_env *env) {
    specrt_session_params params = {.tree = set->tree, .sampling = set->sampling, .n_logits = V};
    return create_session(policy, &params, env);
}

static inline void decode_setting(const setting *set, bool with_prefix, run *r) {
    specrt_policy *policy = make_policy(set->policy);
    specrt_session *s = make_session(policy, set, NULL);
    decode(s, set, specrt_policy_get_info(policy)->bound, with_prefix, r);
    close_both(s, policy);
}

#endif
