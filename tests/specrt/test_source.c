/* test_source.c : a source of one's own, from nothing but the table that sessions know it by: the last N
 * distinct tokens of the output. It also shows how little a source needs. */
#include "specrt.h"
#include "core/pool.h"
#include "sources/source.h"
#include "decode/policy.h"
#include "decode/session.h"
#include "fixture.h"
#include "test.h"
#include "specrt/root.h"

/* --- the source --- */

typedef struct recent {
    specrt__shortlist_pool *pool;
    int32_t n, size;
    int32_t ids[]; /* [size] oldest first */
} recent;

static void recent_leave(recent *r, int32_t i) {
    memmove(r->ids + i, r->ids + i + 1, (size_t)(--r->n - i) * sizeof *r->ids);
}

static void recent_push(void *state, int32_t id) {
    recent *r = (recent *)state;
    int32_t i = 0;
    if (!specrt__shortlist_valid(r->pool, id)) return;
    while (i < r->n && r->ids[i] != id) i++;
    if (i < r->n) recent_leave(r, i);
    if (r->n == r->size) {
        specrt__shortlist_drop(r->pool, r->ids[0], SPECRT__SHORTLIST_RETRIEVE);
        recent_leave(r, 0);
    }
    r->ids[r->n++] = id;
    specrt__shortlist_want(r->pool, id, SPECRT__SHORTLIST_RETRIEVE);
}

static void *recent_open(void *shared, const specrt__source_session *with) {
    int32_t size = *(const int32_t *)shared;
    recent *r = (recent *)malloc(sizeof *r + (size_t)size * sizeof *r->ids);
    r->pool = with->pool;
    r->size = size;
    return r;
}

static void recent_begin(void *state) {
    ((recent *)state)->n = 0;
}

static void recent_observe(void *state, const specrt__source_cycle *cycle) {
    for (int32_t i = 0; i < cycle->verdict->n; i++) recent_push(state, cycle->verdict->tokens[i]);
}

static void recent_limits(const void *state, int32_t *most) {
    *most = ((const recent *)state)->size;
}

static void recent_save(const void *state, specrt__save *out) {
    const recent *r = (const recent *)state;
    specrt__save_list(out, r->ids, r->n);
}

static const char *recent_load(void *state, const specrt__saved *in) {
    for (int32_t i = 0; i < in->lists->n; i++) recent_push(state, specrt__saved_word(in->lists, i));
    return ((recent *)state)->n == in->lists->n ? NULL : "recent";
}

static const specrt__source recent_source = {
    .open = recent_open,
    .close = free,
    .begin = recent_begin,
    .start = recent_push,
    .observe = recent_observe,
    .n_lists = 1,
    .limits = recent_limits,
    .save = recent_save,
    .load = recent_load,
};

/* --- its test --- */

enum { V = 50, D = 4, LAST = 7, N_CYCLES = 300 };

/* The policy `window:1`, and the source. */
static specrt_policy *make_policy(const specrt_head *head) {
    static int32_t size = LAST;
    specrt_policy_desc desc = {.text = "window:1@kpre=0@kver=0@min=0"};
    specrt_policy *policy;
    REQUIRE(specrt_policy_create(NULL, head, &desc, &policy, NULL) == SPECRT_STATUS_OK);
    policy->sources[policy->n_sources].kind = SPECRT__POLICY_KINDS;
    policy->sources[policy->n_sources].source = &recent_source;
    policy->sources[policy->n_sources++].shared.data = &size;
    policy->bound += LAST;
    return policy;
}

static specrt_session *make_session(const specrt_policy *policy) {
    specrt_session_params params = {.n_logits = V,
                                    .tree = {.num_steps = 2, .topk = 1, .num_draft_tokens = 3}};
    specrt_session *session;
    REQUIRE(specrt_session_create(policy, &params, NULL, &session, NULL) == SPECRT_STATUS_OK);
    return session;
}

/* What the source wants is the last distinct tokens of the output, by looking back through it. */
static void check_wanted(const specrt_session *s, const int32_t *output, int32_t n) {
    bool wanted[V] = {false};
    for (int32_t i = n, n_found = 0; i-- > 0 && n_found < LAST;)
        if (!wanted[output[i]]) wanted[output[i]] = true, n_found++;
    for (int32_t id = 0; id < V; id++) {
        CHECK_INT((s->pool->wants[id] & SPECRT__SHORTLIST_RETRIEVE) != 0, wanted[id]);
        if (wanted[id]) CHECK_INT(specrt_session_member(s, id, 0), SPECRT_MEMBER_NOW);
    }
}

/* Half way, another session goes on from what the first one saved; both begin once more. */
static void test_recent(void) {
    static float rows[V * D];
    static int32_t output[3 * N_CYCLES + 1];
    static uint8_t saved[1 << 16];
    specrt_head_desc desc = {.rows = rows, .dtype = SPECRT_DTYPE_F32, .n_rows = V, .n_cols = D};
    specrt_head *head;
    uint64_t random = 7;
    size_t n_saved;
    REQUIRE(specrt_head_bind(NULL, &desc, NULL, &head, NULL) == SPECRT_STATUS_OK);
    specrt_policy *policy = make_policy(head);
    specrt_session *s[2] = {make_session(policy), make_session(policy)};
    for (int round = 0; round < 2; round++) {
        int32_t n = 0;
        output[n++] = 3;
        root(s[0], 3);
        for (int cycle = 0; cycle < N_CYCLES; cycle++) {
            int32_t chain[3] = {output[n - 1], fixture_below(&random, V),
                                fixture_below(&random, V)};
            int32_t n_accepted = fixture_below(&random, 3), last = fixture_below(&random, V);
            REQUIRE(specrt_session_observe_chain(s[cycle >= N_CYCLES / 2], chain, 3, n_accepted,
                                                 last, NULL) == SPECRT_STATUS_OK);
            for (int32_t i = 0; i < n_accepted; i++) output[n++] = chain[i + 1];
            output[n++] = last;
            check_wanted(s[cycle >= N_CYCLES / 2], output, n);
            if (cycle != N_CYCLES / 2 - 1) continue;
            REQUIRE(specrt_session_save(s[0], saved, sizeof saved, &n_saved) == SPECRT_STATUS_OK);
            REQUIRE(specrt_session_load(s[1], saved, n_saved) == SPECRT_STATUS_OK);
            check_wanted(s[1], output, n);
        }
    }
    specrt_session_close(s[0]);
    specrt_session_close(s[1]);
    specrt_policy_close(policy);
    specrt_head_close(head);
}

static const test_case cases[] = {
    {"recent", "a source of one's own learns, is saved and begins anew", test_recent},
};
TEST_MAIN(cases)
