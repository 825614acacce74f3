/* test_same_bytes.c : digests of tokens and of saved sessions, the same whatever the processor, the C library
 * and the system: what is saved on one machine is loaded on another. */
#include "specrt/session.h"

enum { SAVED = 1 << 20 };

static const specrt_tree_params chain = {.num_steps = 4, .topk = 1, .num_draft_tokens = 5},
                                tree = {.num_steps = 3, .topk = 4, .num_draft_tokens = 16};

static uint64_t digest_of_tokens(const run *r, uint64_t seed) {
    uint8_t bytes[4 * MAX_STREAM];
    for (int32_t i = 0; i < 4 * r->n; i++)
        bytes[i] = (uint8_t)((uint32_t)r->stream[i / 4] >> 8 * (i % 4));
    return specrt_hash64(bytes, (size_t)(4 * r->n), seed);
}

static uint64_t digest_of_session(specrt_session *s, uint64_t seed) {
    static uint8_t saved[SAVED];
    size_t bound, n;
    REQUIRE(!specrt_session_save(s, NULL, 0, &bound) && bound <= SAVED);
    REQUIRE(!specrt_session_save(s, saved, bound, &n));
    return specrt_hash64(saved, n, seed);
}

static void check(float temperature, uint64_t tokens, uint64_t sessions) {
    static const char *const policies[] = {"full",      "static:40",           "microspec",
                                           "window:30", "static:20+window:20", "centroid:4"};
    uint64_t of_tokens = 0, of_sessions = 0;
    static run r;
    open_all();
    for (size_t i = 0; i < 2 * sizeof policies / sizeof *policies; i++) {
        setting set = {.policy = policies[i / 2], .tree = i % 2 ? tree : chain};
        set.sampling = (specrt_sampling){.temperature = temperature, .seed = 7, .session = 1};
        specrt_policy *policy = make_policy(set.policy);
        specrt_session *s = make_session(policy, &set, NULL);
        decode(s, &set, specrt_policy_get_info(policy)->bound, false, &r);
        of_tokens = digest_of_tokens(&r, of_tokens);
        of_sessions = digest_of_session(s, of_sessions);
        close_both(s, policy);
    }
    CHECK_INT(of_tokens, tokens);
    CHECK_INT(of_sessions, sessions);
}

TEST(greedy, "tokens and saved sessions of six policies") {
    check(0, 0x0f360200824b3d24, 0x13e806c475cc124a);
}

TEST(sampled, "the same at a temperature") {
    check(0.8f, 0x201b5418621ffb32, 0x4dc1d9ae8a63e7b1);
}
