/* test_source.c : a source that no file of src/ knows, examples/own_source.h, in policies and in saved
 * sessions. */
#define SPECRT_STATIC
#include "examples/own_source.h"
#include "opened.h"
#include "specrt/root.h"

enum { V = 50, D = 4, LAST = 7, N_CYCLES = 300 };

#define POLICY "window:1@kver=0@min=0+recent:7"

static specrt_policy *make_policy(const specrt_head *head) {
    specrt_policy *policy = create_policy(NULL, head, &(specrt_policy_desc){.text = POLICY});
    CHECK_STR(specrt_policy_get_info(policy)->text, POLICY);
    CHECK_INT(specrt_policy_get_info(policy)->bound, 1 + LAST);
    return policy;
}

static specrt_session *make_session(const specrt_policy *policy) {
    specrt_session_params params = {.n_logits = V,
                                    .tree = {.num_steps = 2, .topk = 1, .num_draft_tokens = 3}};
    return create_session(policy, &params, NULL);
}

/* What the source wants is the last distinct tokens of the output, by looking back through it. */
static void check_wanted(const specrt_session *s, const int32_t *output, int32_t n) {
    const recent *r = (const recent *)specrt__session_state(s, SPECRT__POLICY_RECENT);
    bool wanted[V] = {false};
    for (int32_t i = n, n_found = 0; i-- > 0 && n_found < LAST;)
        if (!wanted[output[i]]) wanted[output[i]] = true, n_found++;
    for (int32_t id = 0; id < V; id++) {
        CHECK_INT((s->pool->wants[id] & r->bit) != 0, wanted[id]);
        if (wanted[id]) CHECK_INT(specrt_session_member(s, id, 0), SPECRT_MEMBER_NOW);
    }
}

/* Half way, another session goes on from what the first one saved; both begin once more. */
TEST(recent, "a source of one's own learns, is saved and begins anew") {
    static float rows[V * D];
    static int32_t output[3 * N_CYCLES + 1];
    static uint8_t saved[1 << 16];
    uint64_t random = 7;
    size_t n_saved = 0;
    specrt_head *head = bind_rows(NULL, rows, V, D);
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
    close_all(s[1], policy, head);
}

TEST(text, "its name is one of a policy's") {
    specrt_error err;
    CHECK_INT(specrt_policy_check("static:9+recent", NULL), SPECRT_STATUS_OK);
    CHECK_INT(specrt_policy_check("recent@n=7", &err), SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(err.msg, "no option for this source");
    CHECK_INT(specrt_policy_check("resent", &err), SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(err.msg, "sketch, recent, frspec");
}
