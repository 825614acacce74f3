/* test_session.c : whole decoding loops over a toy target. Whatever is drafted, the stream is plain
 * decoding's; shortlists hold what they say; nothing is allocated on the way. */
#include "core/pool.h"
#include <pthread.h>
#include "session.h"

/* --- lossless --- */

static const char *const policies[] = {
    "full",
    "static",
    "static:12",
    "window:40",
    "microspec",
    "microspec-paper",
    "window:16@min=0@emitted=off@mode=stream",
    "window:25@emitted=off@positions=tree",
    "window:64@only=ctx@min=0",
    "window:64@only=ext@min=0@kver=1",
    "static:30+window:48@positions=last",
    "static:60/25/12",
    "static:12/70/30+window:40@min=0@mode=stream",
    "frspec+window:20@mode=stream@positions=tree@kver=8",
    "static:30+window:48@min=0@rows=indexed",
};
enum { N_POLICIES = sizeof policies / sizeof policies[0] };

static const specrt_tree_params trees[] = {{4, 5, 20}, {4, 1, 5}, {6, 10, 60}};
static const specrt_sampling samplings[] = {
    {.temperature = 0}, {0.8f, 0, 0, 0, 9, 4, 0}, {1.3f, 20, 0.9f, 0.02f, 3, 1, 5}};

static void check_lossless(truth_kind truth) {
    run plain, r;
    open_all();
    for (int k = 0; k < 3; k++) {
        decode_plain(&samplings[k], &plain);
        for (int i = 0; i < N_POLICIES; i++) {
            if (test_quick() && (i + k + (int)truth) % 3 != 0) continue;
            setting set = {policies[i], truth, trees[(i + k) % 3], samplings[k]};
            decode_setting(&set, i % 2 == 1, &r);
            CHECK(memcmp(plain.stream, r.stream, N_TOKENS * sizeof *plain.stream) == 0);
            CHECK_INT(r.stats.n_emitted, r.n - N_PROMPT - 1);
            CHECK(r.stats.n_covered <= r.stats.n_emitted);
        }
    }
}

TEST(honest, "every policy and tree gives plain decoding's stream") {
    check_lossless(HONEST);
}

TEST(random, "so do windows fed with chance") {
    check_lossless(RANDOM);
}

TEST(adversarial, "and with what the target likes least") {
    check_lossless(ADVERSARIAL);
}

TEST(stats, "a better list drafts better, and the statistics say so") {
    setting full = {"full", HONEST, {4, 5, 20}, {.temperature = 0}};
    setting window = full, misled = full, bare = full;
    window.policy = "window:60@min=0";
    misled.policy = "window:20@min=0@emitted=off";
    misled.truth = ADVERSARIAL;
    bare.policy = "static:5";
    run a, b, c, d;
    open_all();
    decode_setting(&full, false, &a);
    decode_setting(&window, false, &b);
    decode_setting(&misled, false, &c);
    decode_setting(&bare, false, &d);
    CHECK_INT(a.stats.n_covered, a.stats.n_emitted);
    CHECK_INT(a.stats.n_rows, a.stats.n_cycles * V);
    CHECK_INT(a.stats.n_copied, 0);
    int64_t row = PAIR_D * (int64_t)sizeof(float);
    CHECK_INT(a.stats.n_bytes, a.stats.n_passes * V * row);
    CHECK_INT(d.stats.n_bytes, d.stats.n_passes * 5 * row);
    CHECK(a.stats.n_drafted <= 19 * a.stats.n_cycles && a.stats.n_drafted > 0);
    CHECK(a.stats.n_emitted > 2 * a.stats.n_cycles);
    int64_t n_cycles = 0, n_emitted = 0;
    for (int i = 0; i <= SPECRT_TREE_MAX_NODES; i++) {
        n_cycles += a.stats.n_by_length[i];
        n_emitted += i * a.stats.n_by_length[i];
    }
    CHECK_INT(n_cycles, a.stats.n_cycles);
    CHECK_INT(n_emitted, a.stats.n_emitted);
    CHECK_INT(a.stats.n_by_length[0], 0);
    CHECK(b.stats.n_covered > c.stats.n_covered);
    CHECK(b.stats.n_emitted * c.stats.n_cycles > c.stats.n_emitted * b.stats.n_cycles);
    CHECK(b.stats.n_rows <= 61 * b.stats.n_cycles);
    CHECK(b.stats.n_copied > 0 && b.stats.n_copied < b.stats.n_rows / 2);
    CHECK_INT(d.stats.n_rows, 5 * d.stats.n_cycles);
    setting levels = {"static:60/25/9", HONEST, {4, 5, 20}, {.temperature = 0}};
    decode_setting(&levels, false, &d);
    CHECK_INT(d.stats.n_rows, d.stats.n_cycles * ((60 + 25 + 9 + 9) / 4));
}

/* Nothing of a sequence but its number is left for the next: named as before, it is the first one again,
 * else it is what a new session with the next number draws. */
TEST(again, "begin forgets everything") {
    setting set = {"static:30+window:48", HONEST, {4, 5, 20}, {0.8f, 0, 0, 0, 9, 1, 4}};
    run first, next, again, fresh;
    open_all();
    specrt_policy *policy = make_policy(set.policy);
    int32_t bound = specrt_policy_get_info(policy)->bound;
    specrt_session *s = make_session(policy, &set, NULL);
    decode(s, &set, bound, false, &first);
    decode(s, &set, bound, false, &next);
    decode_as(s, &(specrt_request){.sampling = &set.sampling}, &set, bound, false, &again);
    CHECK(memcmp(&first.stats, &again.stats, sizeof first.stats) == 0);
    CHECK(memcmp(first.stream, again.stream, N_TOKENS * sizeof *first.stream) == 0);
    CHECK(memcmp(first.stream, next.stream, N_TOKENS * sizeof *first.stream) != 0);
    specrt_session_close(s);
    set.sampling.generation = 5;
    s = make_session(policy, &set, NULL);
    decode(s, &set, bound, false, &fresh);
    CHECK(memcmp(fresh.stream, next.stream, N_TOKENS * sizeof *fresh.stream) == 0);
    close_both(s, policy);
}

/* --- packed and indexed rows --- */

TEST(indexed, "the same drafts from the same rows, of which the indexed ones were never copied") {
    setting packed = {"window:40@min=0", HONEST, {4, 5, 20}, {0.8f, 0, 0, 0, 9, 1, 4}};
    setting indexed = packed;
    run first, second;
    open_all();
    indexed.policy = "window:40@min=0@rows=indexed";
    decode_setting(&packed, false, &first);
    decode_setting(&indexed, false, &second);
    CHECK(memcmp(first.stream, second.stream, N_TOKENS * sizeof *first.stream) == 0);
    CHECK(first.stats.n_copied > 0);
    CHECK_INT(second.stats.n_copied, 0);
    second.stats.n_copied = first.stats.n_copied;
    CHECK(memcmp(&first.stats, &second.stats, sizeof first.stats) == 0);
}

/* --- sums --- */

/* Scores of a sum are a plain softmax over the union of its sources. Of those the window alone packs rows. */
TEST(union, "a sum is one softmax over the union of its sources") {
    enum { K = 6 };
    setting set = {"static:40+window:70@min=0", HONEST, {4, K, 20}, {.temperature = 0}};
    float hidden[D], *logits = (float *)malloc(V * sizeof *logits);
    uint64_t state = 8;
    run r;
    open_all();
    specrt_policy *policy = make_policy(set.policy);
    specrt_session *s = make_session(policy, &set, NULL);
    decode(s, &set, specrt_policy_get_info(policy)->bound, false, &r);
    const specrt_shortlist *shortlist = specrt_session_shortlist(s);
    REQUIRE(shortlist->n_segments == 2);
    int n_both = 0;
    for (int32_t id = 0; id < V; id++)
        n_both +=
            (s->pool->wants[id] & SPECRT__POOL_FIXED) && (s->pool->wants[id] & SPECRT__POOL_SOURCE);
    CHECK(n_both > 0); /* else the sources do not overlap and the case says little */
    for (int i = 0; i < D; i++) hidden[i] = fixture_normal(&state);
    double total = 0, x[V];
    for (int32_t id = 0; id < V; id++) {
        x[id] = -INFINITY;
        if (!(s->pool->wants[id] & (SPECRT__POOL_FIXED | SPECRT__POOL_SOURCE))) continue;
        x[id] = pair_score(id, hidden);
        total += exp(x[id]);
    }
    int32_t ids[K];
    float logprobs[K];
    REQUIRE(specrt_shortlist_logits(shortlist, hidden, 1, logits) == SPECRT_STATUS_OK);
    REQUIRE(specrt_shortlist_topk(shortlist, logits, 1, K, ids, logprobs) == SPECRT_STATUS_OK);
    for (int k = 0; k < K; k++) {
        int32_t best = 0;
        for (int32_t id = 0; id < V; id++)
            if (x[id] > x[best]) best = id;
        CHECK_INT(ids[k], best);
        CHECK_NEAR(logprobs[k], x[best] - log(total), 1e-5);
        x[best] = -INFINITY;
    }
    free(logits);
    close_both(s, policy);
}

/* The members at a level of `static:60/25/9+window:40@min=0`, terminators being ranks. */
static bool at_level(const specrt_session *s, int32_t level, int32_t id) {
    int32_t size = level == 0 ? 60 : level == 1 ? 25 : 9, rank = 0;
    while ((7 * rank + 3) % V != id) rank++;
    return rank < size || (s->pool->wants[id] & SPECRT__POOL_SOURCE);
}

TEST(levels, "every level is one softmax over its own prefix of the ranks and the window") {
    setting set = {"static:60/25/9+window:40@min=0", HONEST, {4, 5, 20}, {.temperature = 0}};
    specrt_beam beam = {.n = 1};
    uint64_t state = 8;
    int n_both = 0;
    run r;
    open_all();
    specrt_policy *policy = make_policy(set.policy);
    specrt_session *s = make_session(policy, &set, NULL);
    decode(s, &set, specrt_policy_get_info(policy)->bound, false, &r);
    for (int32_t level = 0; beam.n > 0; level++) {
        float hidden[5 * D];
        double total = 0, x[V];
        for (int i = 0; i < 5 * D; i++) hidden[i] = fixture_normal(&state);
        REQUIRE(specrt_session_expand(s, hidden, NULL, beam.n, &beam) == SPECRT_STATUS_OK);
        for (int32_t id = 0; id < V; id++) {
            x[id] = pair_score(id, hidden);
            if (at_level(s, level, id)) total += exp(x[id]);
        }
        for (int i = 0; i < 5; i++) {
            CHECK(at_level(s, level, s->ids[i]));
            CHECK_NEAR(s->logprobs[i], x[s->ids[i]] - log(total), 1e-5);
        }
        for (int32_t id = 0; id < V; id++)
            CHECK((specrt_session_member(s, id, level) != SPECRT_MEMBER_NO) ==
                  at_level(s, level, id));
        CHECK(specrt_session_member(s, V, level) == SPECRT_MEMBER_NO);
        for (int32_t id = 0; id < V; id++) /* beyond the last level that one counts */
            for (int32_t beyond = s->level; beyond <= 30; beyond++)
                CHECK_INT(specrt_session_member(s, id, beyond),
                          specrt_session_member(s, id, s->level - 1));
        for (int32_t i = 0; i < s->routed->n_segments; i++)
            n_both += s->routed->segments[i].n_masked;
    }
    CHECK(n_both > 0); /* the window holds some of the ranks that levels differ in */
    close_both(s, policy);
}

/* --- several sequences at once --- */

/* 75 rows of a full pass, or of trees as wide as there are: more than one product takes */
enum { N_BATCH = 15, N_WIDE = SPECRT_TREE_MAX_TOPK };

/* Sequences with texts of their own; every third is a level ahead. */
static void make_batch(const specrt_policy *policy, const setting *set, specrt_draft_kind draft,
                       specrt_session **batch) {
    specrt_session_params params = {
        .tree = set->tree, .sampling = set->sampling, .n_logits = V, .draft = draft};
    float hidden[D];
    specrt_beam beam;
    for (int32_t i = 0; i < N_BATCH; i++) {
        int32_t text[] = {i, 3 * i + 40, 100 + 7 * i % 90, 250 - i};
        params.sampling.session = (uint64_t)(i + 1);
        batch[i] = create_session(policy, &params, NULL);
        specrt_session_begin(batch[i], NULL);
        REQUIRE(specrt_session_prefill(batch[i], text, 4, NULL) == SPECRT_STATUS_OK);
        REQUIRE(specrt_session_start(batch[i], 5 + i) == SPECRT_STATUS_OK);
        if (i % 3) continue;
        pair_hidden(&models, i, i, hidden);
        REQUIRE(specrt_session_expand(batch[i], hidden, NULL, 1, &beam) == SPECRT_STATUS_OK);
    }
}

/* What two sessions made of the same pass: bit for bit. */
static void check_same_level(const specrt_session *a, const specrt_session *b,
                             const specrt_beam *beam_a, const specrt_beam *beam_b, int32_t n) {
    size_t n_logits = (size_t)n * (size_t)a->shortlist.n_rows, n_beam = (size_t)beam_a->n;
    REQUIRE(a->shortlist.n_rows == b->shortlist.n_rows && beam_a->n == beam_b->n);
    CHECK(memcmp(a->logits, b->logits, n_logits * sizeof *a->logits) == 0);
    CHECK(memcmp(beam_a->tokens, beam_b->tokens, n_beam * sizeof *beam_a->tokens) == 0);
    CHECK(memcmp(beam_a->parents, beam_b->parents, n_beam * sizeof *beam_a->parents) == 0);
    CHECK(memcmp(beam_a->logprobs, beam_b->logprobs, n_beam * sizeof *beam_a->logprobs) == 0);
}

/* A pass of all that have rows, together and one after another. @return how many those were. */
static int32_t check_pass(specrt_session **batch, specrt_session **alone, specrt_beam *beams) {
    static __thread float hidden[N_BATCH * N_WIDE * D];
    specrt_session *open[N_BATCH];
    specrt_beam together[N_BATCH], beam;
    int32_t n = 0, n_hidden = 0, at[N_BATCH];
    uint64_t state = 91;
    for (int i = 0; i < N_BATCH * N_WIDE * D; i++) hidden[i] = fixture_normal(&state);
    for (int32_t i = 0; i < N_BATCH; i++) {
        if (beams[i].n == 0) continue;
        at[n] = i;
        open[n++] = batch[i];
        n_hidden += beams[i].n;
    }
    if (n == 0) return 0;
    REQUIRE(specrt_session_expand_batch(open, n, hidden, NULL, n_hidden, together) ==
            SPECRT_STATUS_OK);
    for (int32_t i = 0, first = 0; i < n; i++) {
        int32_t n_rows = beams[at[i]].n;
        REQUIRE(specrt_session_expand(alone[at[i]], hidden + first * D, NULL, n_rows, &beam) ==
                SPECRT_STATUS_OK);
        check_same_level(open[i], alone[at[i]], &together[i], &beam, n_rows);
        first += n_rows;
        beams[at[i]] = together[i];
    }
    return n;
}

static void check_batch(const char *text, const setting *set, specrt_draft_kind kind) {
    specrt_policy *policy = make_policy(text);
    specrt_session *batch[N_BATCH], *alone[N_BATCH];
    specrt_session_stats stats[2];
    specrt_beam beams[N_BATCH];
    int32_t n_passes = 0;
    make_batch(policy, set, kind, batch);
    make_batch(policy, set, kind, alone);
    for (int32_t i = 0; i < N_BATCH; i++) beams[i].n = batch[i]->tree->n_beam;
    while (check_pass(batch, alone, beams) > 0) n_passes++;
    CHECK_INT(n_passes, set->tree.num_steps);
    for (int32_t i = 0; i < N_BATCH; i++) {
        specrt_draft a, b;
        specrt_session_finish(batch[i], &a);
        specrt_session_finish(alone[i], &b);
        CHECK(a.n == b.n && memcmp(a.tokens, b.tokens, (size_t)a.n * sizeof *a.tokens) == 0);
        specrt_session_get_stats(batch[i], &stats[0]);
        specrt_session_get_stats(alone[i], &stats[1]);
        CHECK(memcmp(&stats[0], &stats[1], sizeof *stats) == 0);
        specrt_session_close(batch[i]);
        specrt_session_close(alone[i]);
    }
    specrt_policy_close(policy);
}

TEST(batch, "rows that sequences share are multiplied once for all, and nobody sees a difference") {
    static const char *const texts[] = {"full",
                                        "static:60",
                                        "window:40",
                                        "static:140+window:40@min=0",
                                        "static:60/25/9+window:40@min=0",
                                        "static:20+centroid:3"};
    setting tree = {NULL, HONEST, {4, 5, 20}, {.temperature = 0}};
    setting wide = {NULL, HONEST, {2, N_WIDE, SPECRT_TREE_MAX_NODES}, {.temperature = 0}};
    setting chain = {NULL, HONEST, {4, 1, 5}, {0.9f, 0, 0, 0, 3, 1, 0}};
    open_all();
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        check_batch(texts[i], &tree, SPECRT_DRAFT_TOP_K);
        check_batch(texts[i], &chain, SPECRT_DRAFT_SAMPLED);
    }
    check_batch("full", &wide, SPECRT_DRAFT_TOP_K);
}

TEST(batch_refused, "what is refused grows no tree") {
    setting set = {"static:60", HONEST, {1, 2, 3}, {.temperature = 0}};
    float hidden[3 * D] = {0};
    specrt_beam beams[2];
    open_all();
    specrt_policy *policy = make_policy(set.policy), *other = make_policy("static:30");
    specrt_session *s[] = {make_session(policy, &set, NULL), make_session(policy, &set, NULL)};
    specrt_session *twice[] = {s[0], s[0]}, *mixed[] = {s[0], make_session(other, &set, NULL)};
    for (int i = 0; i < 2; i++) root(s[i], 9);
    root(mixed[1], 9);
    specrt_session **lists[] = {s, s, s, s, twice, mixed};
    const int32_t n[] = {0, SPECRT_SESSION_MAX_BATCH + 1, 2, 2, 2, 2}, rows[] = {0, 2, 1, 3, 2, 2};
    for (int i = 0; i < 6; i++)
        CHECK_INT(specrt_session_expand_batch(lists[i], n[i], hidden, NULL, rows[i], beams),
                  SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_session_expand_batch(s, 2, NULL, NULL, 2, beams), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_session_expand_batch(s, 2, hidden, NULL, 2, NULL), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_session_expand_batch(s, 2, hidden, NULL, 2, beams), SPECRT_STATUS_OK);
    CHECK(beams[0].n == 0 && beams[1].n == 0); /* of one level */
    CHECK_INT(specrt_session_expand_batch(s, 2, hidden, NULL, 2, beams), SPECRT_STATUS_BAD_ORDER);
    CHECK_STR(specrt_session_last_error(s[0])->msg,
              "expand: expected finish(): the tree has its last level");
    static specrt_session *many[SPECRT_SESSION_MAX_BATCH];
    static float rows_of_many[SPECRT_SESSION_MAX_BATCH * D];
    static specrt_beam beams_of_many[SPECRT_SESSION_MAX_BATCH];
    for (int i = 0; i < SPECRT_SESSION_MAX_BATCH; i++) {
        many[i] = make_session(policy, &set, NULL);
        root(many[i], 9);
    }
    CHECK_INT(specrt_session_expand_batch(many, SPECRT_SESSION_MAX_BATCH, rows_of_many, NULL,
                                          SPECRT_SESSION_MAX_BATCH, beams_of_many),
              SPECRT_STATUS_OK);
    for (int i = 0; i < SPECRT_SESSION_MAX_BATCH; i++) specrt_session_close(many[i]);
    for (int i = 0; i < 2; i++) specrt_session_close(s[i]);
    close_both(mixed[1], other);
    specrt_policy_close(policy);
}

TEST(route, "an application that grows its own tree asks for the list of each level") {
    setting set = {"static:60/25/9", HONEST, {4, 5, 20}, {.temperature = 0}};
    static const int32_t sizes[] = {60, 25, 9, 9, 9}, tokens[6] = {9, 8, 7, 6, 5, 4};
    const float logprobs[6] = {0}, hidden[6 * D] = {0};
    specrt_beam beam = {5, tokens, NULL, logprobs};
    open_all();
    specrt_policy *policy = make_policy(set.policy), *plain = make_policy("static:60");
    specrt_session *s = make_session(policy, &set, NULL), *t = make_session(plain, &set, NULL);
    root(s, 9);
    root(t, 9);
    CHECK_INT(specrt_session_shortlist(s)->n_rows, 9);
    for (int32_t level = 0; level < 5; level++) {
        const specrt_shortlist *shortlist = specrt_session_route(s, level, &beam, hidden, NULL);
        REQUIRE(shortlist == specrt_session_shortlist(s));
        CHECK_INT(shortlist->n_rows, sizes[level]);
    }
    CHECK(specrt_session_route(t, 0, &beam, hidden, NULL) == specrt_session_shortlist(t));
    static const int32_t not_next[] = {-1, 0, 4, 6, SPECRT_TREE_MAX_STEPS};
    for (int i = 0; i < 5; i++) {
        CHECK(!specrt_session_route(s, not_next[i], &beam, hidden, NULL));
        CHECK_INT(specrt_session_last_error(s)->status, SPECRT_STATUS_BAD_ORDER);
    }
    root(t, 9);
    beam.n = 1;
    CHECK(specrt_session_route(t, 0, &beam, hidden, NULL) == specrt_session_shortlist(t));
    CHECK_INT(specrt_session_shortlist(t)->n_segments, 1);
    static const int32_t no_rows[] = {6, 0};
    for (int i = 0; i < 2; i++) {
        beam.n = no_rows[i];
        CHECK(!specrt_session_route(s, 5, &beam, hidden, NULL));
        CHECK_INT(specrt_session_last_error(s)->status, SPECRT_STATUS_BAD_ARG);
    }
    beam.n = 1;
    for (int32_t level = 5; level < SPECRT_TREE_MAX_STEPS; level++)
        CHECK(specrt_session_route(s, level, &beam, hidden, NULL));
    CHECK(!specrt_session_route(s, SPECRT_TREE_MAX_STEPS, &beam, hidden, NULL));
    CHECK_INT(specrt_session_last_error(s)->status, SPECRT_STATUS_BAD_ARG);
    specrt_session_close(s);
    close_both(t, policy);
    specrt_policy_close(plain);
}

/* --- threads --- */

static const setting threaded = {
    "static:60/30+window:48", HONEST, {4, 5, 20}, {0.8f, 0, 0, 0, 9, 1, 4}};

static void *decode_thread(void *arg) {
    const specrt_policy *policy = *(const specrt_policy **)arg;
    run *r = (run *)malloc(sizeof *r);
    specrt_session *s = make_session(policy, &threaded, NULL);
    decode(s, &threaded, specrt_policy_get_info(policy)->bound, false, r);
    specrt_session_close(s);
    return r;
}

TEST(threads, "two sessions share a policy") {
    pthread_t threads[2];
    void *results[2];
    open_all();
    specrt_policy *policy = make_policy(threaded.policy);
    for (int i = 0; i < 2; i++)
        REQUIRE(pthread_create(&threads[i], NULL, decode_thread, &policy) == 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], &results[i]);
    const run *a = (const run *)results[0], *b = (const run *)results[1];
    CHECK(memcmp(a->stream, b->stream, N_TOKENS * sizeof *a->stream) == 0);
    CHECK(memcmp(&a->stats, &b->stats, sizeof a->stats) == 0);
    free(results[0]);
    free(results[1]);
    specrt_policy_close(policy);
}

/* A chain that is told by its tokens alone teaches what its draft and verdict do, and so does one whose last
 * token comes later; what the target said may be logits or its best tokens. */
TEST(observe_chain, "a chain's tokens tell what its draft and verdict do") {
    open_all();
    for (size_t i = 0; i < 2 * N_POLICIES; i++) {
        static run whole, chain;
        truth_kind truth = i < N_POLICIES ? HONEST : RANDOM;
        setting set = {
            policies[i % N_POLICIES], truth, {4, 1, 5}, {.temperature = 0.7f, .session = 3}};
        decode_setting(&set, true, &whole);
        for (telling = TELLS_CHAINS; telling <= TELLS_LAST_LATER; telling++) {
            decode_setting(&set, true, &chain);
            CHECK_INT(chain.n, whole.n);
            CHECK(memcmp(chain.stream, whole.stream, (size_t)whole.n * sizeof *whole.stream) == 0);
            CHECK(memcmp(&chain.stats, &whole.stats, sizeof whole.stats) == 0);
        }
        telling = TELLS_TREES;
    }
}

TEST(left_open, "a cycle that never got its last token is forgotten with its sequence") {
    setting set = {"window:40@min=0", HONEST, {4, 1, 5}, {.temperature = 0}};
    const int32_t tokens[] = {5, 6, 7};
    specrt_session_stats stats;
    open_all();
    specrt_policy *policy = make_policy(set.policy);
    specrt_session *s = make_session(policy, &set, NULL);
    for (int turn = 0; turn < 2; turn++) {
        root(s, 5);
        CHECK_INT(specrt_session_observe_chain(s, tokens, 3, 1, -1, NULL), SPECRT_STATUS_OK);
        CHECK_INT(specrt_session_begin(s, &(specrt_request){.begin = (specrt_begin)turn}),
                  SPECRT_STATUS_OK);
        REQUIRE(specrt_session_prefill(s, tokens, 1, NULL) == SPECRT_STATUS_OK);
        CHECK_INT(specrt_session_start(s, 9), SPECRT_STATUS_OK);
        specrt_session_get_stats(s, &stats);
        CHECK_INT(stats.n_cycles, 0);
        CHECK(specrt_session_member(s, 7, 0) == SPECRT_MEMBER_NO);
    }
    root(s, 5);
    CHECK_INT(specrt_session_observe_chain(s, tokens, 3, 1, -2, NULL), SPECRT_STATUS_BAD_ARG);
    float *logits = (float *)calloc(3 * V, sizeof *logits); /* of three rows, and nothing behind */
    int32_t *ids = (int32_t *)calloc(3 * 4, sizeof *ids);
    REQUIRE(logits && ids);
    const specrt_target_rows told[] = {
        {.logits = logits}, {.ids = ids, .k = 4}, {.ids = NULL, .k = 4}, {.ids = ids, .k = 0}};
    for (int i = 0; i < 4; i++) {
        CHECK_INT(specrt_session_observe_chain(s, tokens, 3, 1, -1, &told[i]), SPECRT_STATUS_OK);
        root(s, 5);
    }
    free(logits);
    free(ids);
    int32_t most[SPECRT_TREE_MAX_NODES] = {5}; /* all of the longest chain is accepted */
    CHECK_INT(specrt_session_observe_chain(s, most, SPECRT_TREE_MAX_NODES,
                                           SPECRT_TREE_MAX_NODES - 1, V - 1, NULL),
              SPECRT_STATUS_OK);
    specrt_session_get_stats(s, &stats);
    CHECK_INT(stats.n_emitted, SPECRT_TREE_MAX_NODES);
    close_both(s, policy);
}

TEST(observe_plain, "tokens of plain decoding, and what is refused") {
    setting set = {"window:40@min=0", HONEST, {4, 1, 5}, {.temperature = 0}};
    int32_t tokens[SPECRT_TREE_MAX_NODES + 1] = {5, 6, 7};
    float logits[V];
    specrt_session_stats stats;
    open_all();
    specrt_policy *policy = make_policy(set.policy);
    specrt_session *s = make_session(policy, &set, NULL);
    const specrt_target_rows rows = {.logits = logits};
    root(s, 5);
    pair_target(&models, 0, 5, logits);
    CHECK(specrt_session_member(s, 8, 0) == SPECRT_MEMBER_NO);
    CHECK_INT(specrt_session_observe_chain(s, tokens, 1, 0, 8, &rows), SPECRT_STATUS_OK);
    CHECK(specrt_session_shortlist(s)->n_rows > 1); /* what the target likes is there now */
    specrt_session_get_stats(s, &stats);
    CHECK_INT(stats.n_cycles, 1);
    CHECK_INT(stats.n_emitted, 1);
    CHECK_INT(stats.n_drafted, 0);
    const struct {
        int32_t n, n_accepted, last;
    } bad[] = {{0, 0, 8},   {SPECRT_TREE_MAX_NODES + 1, 0, 8},
               {3, 3, 8},   {3, -1, 8},
               {3, 1, V},   {3, 3, -1},
               {3, -1, -1}, {3, 1, 8}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_INT(
            specrt_session_observe_chain(s, tokens, bad[i].n, bad[i].n_accepted, bad[i].last, NULL),
            SPECRT_STATUS_BAD_ARG);
    CHECK_STR(specrt_session_last_error(s)->msg,
              "observe_chain: draft: root: expected 8, the last emitted token, found 5");
    specrt_session_get_stats(s, &stats);
    CHECK_INT(stats.n_cycles, 1);
    close_both(s, policy);
}

TEST(bad_tokens, "tokens that are none are refused before anything is learnt") {
    setting set = {"window:40@min=0", HONEST, {4, 5, 20}, {.temperature = 0}};
    int32_t tokens[3] = {5, V, 7}, parents[3] = {-1, 0, 1}, depths[3] = {0, 1, 2};
    const float logprobs[3] = {0};
    open_all();
    specrt_policy *policy = make_policy(set.policy);
    specrt_session *s = make_session(policy, &set, NULL);
    specrt_draft draft = {3, tokens, parents, depths, NULL, logprobs, NULL, 0};
    specrt_beam beam;
    float hidden[6 * D] = {0};
    specrt_session_begin(s, NULL);
    CHECK(specrt_session_prefill(s, tokens, 2, NULL) == SPECRT_STATUS_BAD_ARG);
    CHECK_STR(specrt_session_last_error(s)->msg, "prefill: token 1: expected 0 to 299, found 300");
    CHECK(specrt_session_prefill(s, tokens, -1, NULL) == SPECRT_STATUS_BAD_ARG);
    CHECK(specrt_session_prefill(s, tokens, 1, NULL) == SPECRT_STATUS_OK);
    CHECK(specrt_session_start(s, -1) == SPECRT_STATUS_BAD_ARG);
    CHECK(specrt_session_start(s, 5) == SPECRT_STATUS_OK);
    const int32_t n_rows = specrt_session_shortlist(s)->n_rows;
    CHECK(specrt_session_expand(s, hidden, NULL, 6, &beam) == SPECRT_STATUS_BAD_ARG);
    CHECK_STR(specrt_session_last_error(s)->msg,
              "expand: n: expected the 1 rows of the beam, found 6");
    CHECK(specrt_session_expand(s, hidden, NULL, 0, &beam) == SPECRT_STATUS_BAD_ARG);
    CHECK(specrt_session_finish(s, NULL) == SPECRT_STATUS_OK);
    const struct {
        int32_t second, parent, n, n_verdict, node, token;
        const char *says;
    } bad[] = {
        {V, 0, 3, 1, 0, 5, "observe: token 1: expected 0 to 299, found 300"},
        {6, 0, 0, 1, 0, 5,
         "observe: draft: expected 1 to 64 nodes with tokens, as specrt_session_finish() gives "
         "them, found 0"},
        {6, 0, 65, 1, 0, 5,
         "draft: expected 1 to 64 nodes with tokens, as specrt_session_finish() gives them, found "
         "65"},
        {6, 1, 3, 1, 0, 5, "observe: draft: parent of node 1: expected 0 to 0, found 1"},
        {6, 0, 3, 0, 0, 5, "a token after it, found 0 nodes that are none"},
        {6, 0, 3, 4, 1, 6, "a token after it, found 4 nodes that are none"},
        {6, 0, 3, 2, 3, 6, "a token after it, found 2 nodes that are none"},
        {6, 0, 3, 2, 2, 7, "a token after it, found 2 nodes that are none"}, /* not a child */
        {6, 0, 3, 2, 1, 7, "a token after it, found 2 nodes that are none"}, /* not its token */
        {6, 0, 3, 1, 0, V, "observe: token 0: expected 0 to 299, found 300"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        specrt_verdict verdict = {.n = bad[i].n_verdict, .nodes = {0, bad[i].node}};
        verdict.tokens[0] = bad[i].token;
        tokens[1] = bad[i].second;
        parents[1] = bad[i].parent;
        draft.n = bad[i].n;
        CHECK_INT(specrt_session_observe(s, &draft, &verdict, NULL), SPECRT_STATUS_BAD_ARG);
        CHECK_HAS(specrt_session_last_error(s)->msg, bad[i].says);
    }
    CHECK_INT(specrt_session_shortlist(s)->n_rows, n_rows); /* nothing was learned */
    tokens[1] = 6;
    parents[1] = 0;
    draft.n = 3;
    const specrt_verdict good = {.n = 2, .nodes = {0, 1}, .tokens = {6, 8}};
    CHECK_INT(specrt_session_observe(s, &draft, &good, NULL), SPECRT_STATUS_OK);
    close_both(s, policy);
}

TEST(bad_drafts, "a sampled draft of no nodes, of more than were drafted, or that is no chain") {
    static float logits[6 * V];
    specrt_draft draft;
    specrt_verdict verdict;
    open_all();
    specrt_policy *policy = make_policy("static:60");
    const specrt_session_params params = {.tree = {3, 1, 4},
                                          .sampling = {.temperature = 1, .session = 1},
                                          .draft = SPECRT_DRAFT_SAMPLED,
                                          .n_logits = V};
    specrt_session *s = create_session(policy, &params, NULL);
    root(s, 9);
    pair_draft(&models, s, 3, 9, &draft);
    CHECK_INT(draft.n, 4);
    CHECK_INT(specrt_session_verify(s, &(specrt_draft){0}, logits, &verdict),
              SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(specrt_session_last_error(s)->msg,
              "as specrt_session_finish() gives them"); /* forgotten */
    CHECK_INT(specrt_session_verify(s, &draft, logits, &verdict), SPECRT_STATUS_OK);
    int32_t tokens[6] = {0}, parents[6] = {-1, 0, 1, 2, 3, 4}, kept = parents[3];
    specrt_draft other = draft;
    memcpy(tokens, draft.tokens, (size_t)draft.n * sizeof *tokens);
    other.tokens = tokens;
    other.parents = parents;
    static const int32_t bad[] = {0, -1, 5, 6};
    for (int i = 0; i < 4; i++) {
        other.n = bad[i];
        CHECK_INT(specrt_session_verify(s, &other, logits, &verdict), SPECRT_STATUS_BAD_ARG);
    }
    other.n = 4;
    parents[3] = 1;
    CHECK_INT(specrt_session_verify(s, &other, logits, &verdict), SPECRT_STATUS_BAD_ARG);
    parents[3] = kept;
    tokens[2] = (tokens[2] + 1) % V; /* drawn by nobody: its distribution is another's */
    CHECK_INT(specrt_session_verify(s, &other, logits, &verdict), SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(specrt_session_last_error(s)->msg, "expected the chain that the session sampled");
    tokens[2] = draft.tokens[2];
    CHECK_INT(specrt_session_verify(s, &other, logits, &verdict), SPECRT_STATUS_OK);
    close_both(s, policy);
}
