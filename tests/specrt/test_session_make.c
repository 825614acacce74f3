/* test_session_make.c : what a session is made of: memory that is there from the start or refused whole,
 * members that no source asks for, and distributions of the head's scale and cap. */
#include "core/pool.h"
#include "session.h"

/* --- memory --- */

TEST(no_allocation, "nothing is allocated after creation") {
    static const char *const texts[] = {"full", "static:30+window:48", "microspec-paper",
                                        "static:30/20/60+window:48"};
    open_all();
    for (int i = 0; i < 4; i++) {
        fixture_allocator a = {0, 0, 0};
        specrt_env env = fixture_desc(&a);
        setting set = {texts[i], HONEST, {4, 5, 20}, {0.8f, 5, 0.9f, 0, 9, 1, 4}};
        run r;
        specrt_policy *policy = make_policy(set.policy);
        specrt_session *s = make_session(policy, &set, &env);
        int n_calls = a.n_calls;
        CHECK(n_calls > 0);
        decode(s, &set, specrt_policy_get_info(policy)->bound, true, &r);
        CHECK_INT(a.n_calls, n_calls);
        specrt_session_close(s);
        CHECK_INT(a.n_live, 0);
        specrt_policy_close(policy);
    }
}

TEST(failed_allocations, "whatever allocation fails, creation says so and leaves nothing behind") {
    setting set = {"static:20+window:48+centroid:3", HONEST, {4, 1, 5}, {0.8f, 0, 0, 0, 9, 1, 4}};
    open_all();
    specrt_policy *policy = make_policy(set.policy);
    for (int kind = SPECRT_DRAFT_TOP_K; kind <= SPECRT_DRAFT_SAMPLED; kind++)
        for (int fail_at = 1;; fail_at++) {
            fixture_allocator a = {0, 0, fail_at};
            specrt_env env = fixture_desc(&a);
            specrt_session_params params = {.tree = set.tree,
                                            .sampling = set.sampling,
                                            .draft = (specrt_draft_kind)kind,
                                            .n_logits = V};
            specrt_session *s = NULL;
            specrt_status status = specrt_session_create(policy, &params, &env, &s, NULL);
            CHECK_INT(status, a.n_calls < fail_at ? SPECRT_STATUS_OK : SPECRT_STATUS_NO_MEMORY);
            CHECK((s != NULL) == !status);
            specrt_session_close(s);
            CHECK_INT(a.n_live, 0);
            if (!status) break;
        }
    specrt_policy_close(policy);
}

/* --- members --- */

TEST(first_terminator, "token 0 may end a text, too: it is a member from the start, and once") {
    open_all();
    const specrt_policy_desc desc = {
        .text = "window:40@min=0", .terminators = &(int32_t){0}, .n_terminators = 1};
    const specrt_session_params params = {.tree = {3, 1, 4}, .n_logits = V};
    specrt_policy *policy = create_policy(bundle, head, &desc);
    specrt_session *s = create_session(policy, &params, NULL);
    root(s, 9);
    CHECK(specrt_session_member(s, 0, 0) != SPECRT_MEMBER_NO);
    CHECK(specrt_session_member(s, 3, 0) != SPECRT_MEMBER_NO); /* the fixture's */
    CHECK(specrt_session_member(s, 1, 0) == SPECRT_MEMBER_NO);
    CHECK(specrt_session_member(s, 3, -1) == SPECRT_MEMBER_NO);
    CHECK(specrt_session_member(s, -1, 0) == SPECRT_MEMBER_NO);
    CHECK(specrt_session_member(s, V, 0) == SPECRT_MEMBER_NO);
    CHECK(specrt_session_member(s, INT32_MAX, 0) == SPECRT_MEMBER_NO);
    const specrt_shortlist *rows = specrt_session_shortlist(s);
    for (int32_t i = 0; i < rows->n_segments; i++) CHECK(rows->segments[i].n_rows > 0);
    CHECK_INT(specrt_session_shortlist(s)->n_rows, 3); /* with the root */
    close_both(s, policy);
}

TEST(padding, "heads are padded: rows behind the vocabulary stand for no token") {
    open_all();
    const specrt_policy_desc desc = {.text = "window:40@min=0", .n_vocab = V - 4};
    const specrt_session_params params = {.tree = {3, 1, 4}, .n_logits = V - 4};
    specrt_head_desc rows = pair_head();
    specrt_head *padded = bind_head(NULL, &rows);
    specrt_policy *policy = create_policy(NULL, padded, &desc);
    specrt_session *s = create_session(policy, &params, NULL);
    CHECK_INT(s->pool->n_ids, V);
    for (int32_t id = 0; id < V; id++) CHECK_INT(specrt__pool_valid(s->pool, id), id < V - 4);
    close_all(s, policy, padded);
}

/* --- logits that are scaled and capped --- */

/* By token, what a distribution over the shortlist says at this temperature; 0 for those outside. */
static void distribution_of(const specrt_shortlist *list, const specrt_head_desc *desc,
                            const float *hidden, double temperature, double *out) {
    double total = 0, scale = (double)desc->logit_scale, cap = (double)desc->softcap;
    for (int i = 0; i < V; i++) out[i] = 0;
    for (int32_t i = 0; i < list->n_segments; i++)
        for (int32_t r = 0; r < list->segments[i].n_rows; r++) {
            int32_t id = list->segments[i].ids[r];
            double x = scale * pair_score(id, hidden);
            if (cap > 0) x = cap * tanh(x / cap);
            total += out[id] = exp(x / temperature);
        }
    for (int i = 0; i < V; i++) out[i] /= total;
}

TEST(shape, "drafts are of the distribution that a scaled and capped head has") {
    static const float shapes[][2] = {{1, 0}, {0.25f, 0}, {1, 2}, {0.5f, 1.5f}};
    open_all();
    for (size_t i = 0; i < 2 * sizeof shapes / sizeof *shapes; i++) {
        bool sampled = i % 2;
        double distribution[V];
        float hidden[D];
        specrt_beam beam;
        specrt_head_desc desc = pair_head();
        desc.logit_scale = shapes[i / 2][0];
        desc.softcap = shapes[i / 2][1];
        specrt_policy_desc wanted = {.text = "static:30+window:48"};
        specrt_session_params params = {.n_logits = V,
                                        .tree = {3, sampled ? 1 : 5, sampled ? 4 : 12},
                                        .sampling = {.temperature = 0.7f, .seed = 2, .session = 1},
                                        .draft =
                                            sampled ? SPECRT_DRAFT_SAMPLED : SPECRT_DRAFT_TOP_K};
        specrt_head *shaped = bind_head(bundle, &desc);
        specrt_policy *policy = create_policy(bundle, shaped, &wanted);
        specrt_session *s = create_session(policy, &params, NULL);
        root(s, 9);
        pair_hidden(&models, 3, 9, hidden);
        REQUIRE(specrt_session_expand(s, hidden, NULL, 1, &beam) == SPECRT_STATUS_OK);
        distribution_of(specrt_session_shortlist(s), &desc, hidden, sampled ? 0.7 : 1,
                        distribution);
        CHECK_INT(beam.n, params.tree.topk);
        for (int32_t k = 0; k < beam.n; k++) {
            CHECK_NEAR((double)beam.logprobs[k], log(distribution[beam.tokens[k]]), 1e-4);
            for (int id = 0; id < V && !sampled && k == 0; id++)
                CHECK(distribution[id] < distribution[beam.tokens[0]] * 1.0001);
        }
        for (int32_t k = 0; sampled && k < s->distributions[0].n; k++)
            CHECK_NEAR((double)s->distributions[0].probs[k],
                       distribution[s->distributions[0].ids[k]], 1e-5);
        close_all(s, policy, shaped);
    }
}

/* Marks of a policy are within those of a pool's tokens, which end where their memory does. */
TEST(marks, "of a policy end with the tokens") {
    open_all();
    specrt_policy *policy = make_policy("static:30");
    specrt__pool pool = {.n_ids = V + 16 - V % 16};
    pool.wants = (int32_t *)calloc((size_t)pool.n_ids, sizeof *pool.wants);
    REQUIRE(pool.wants);
    const int32_t invalid[] = {9, pool.n_ids}, *own = policy->invalid, n_own = policy->n_invalid;
    policy->invalid = invalid;
    policy->n_invalid = 2;
    specrt__session_mark(&pool, policy);
    policy->invalid = own;
    policy->n_invalid = n_own;
    CHECK_INT(pool.n_fixed, policy->fixed.n_rows);
    CHECK(pool.wants[9] & SPECRT__POOL_INVALID);
    for (int32_t i = V; i < pool.n_ids; i++) CHECK_INT(pool.wants[i], SPECRT__POOL_INVALID);
    free(pool.wants);
    specrt_policy_close(policy);
}
