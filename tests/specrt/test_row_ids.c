/* test_row_ids.c : heads whose rows stand for some tokens only, in any order (EAGLE-3's d2t). The
 * oracle is the same head scattered into one row a token, where the others can never win. */
#include <stdbool.h>
#include "specrt_tools.h"
#include "sources/ranks.h"
#include "opened.h"

enum { V = 300, D = 16, N_ROWS = 140, N_FORCED = 4, N_PROMPT = 30, N_CYCLES = 60 };

static float scattered[V * D], scattered_bias[V], chosen[N_ROWS * D], chosen_bias[N_ROWS];
static int32_t ids[N_ROWS];
static specrt_bundle *bundle;
static specrt_head *head, *oracle;

static specrt_head_desc desc_of(const float *rows, int64_t n_rows) {
    return f32_rows(rows, n_rows, D);
}

/* A random choice of tokens in a random order; terminators are ids 3, 10, 17, 24 by rank. */
static void choose_ids(uint64_t *state) {
    int32_t all[V];
    for (int32_t i = 0; i < V; i++) all[i] = i;
    for (int32_t i = 0; i < N_ROWS; i++) {
        int32_t j = i + (int32_t)(fixture_random(state) >> 33) % (V - i), id = all[j];
        all[j] = all[i];
        all[i] = ids[i] = id;
    }
}

static void open_all(void) {
    uint64_t state = 17;
    size_t n;
    if (bundle) return;
    choose_ids(&state);
    for (int32_t i = 0; i < V; i++) scattered_bias[i] = -INFINITY;
    for (int32_t i = 0; i < N_ROWS; i++) {
        chosen_bias[i] = scattered_bias[ids[i]] = fixture_normal(&state);
        for (int j = 0; j < D; j++)
            chosen[i * D + j] = scattered[ids[i] * D + j] = fixture_normal(&state);
    }
    uint8_t *bytes = fixture_ranks_bundle(V, N_FORCED, 60, &n);
    bundle = open_memory(bytes, n);
    specrt_head_desc desc = desc_of(chosen, N_ROWS), whole = desc_of(scattered, V);
    desc.bias = chosen_bias;
    desc.ids = ids;
    whole.bias = scattered_bias;
    head = bind_head(bundle, &desc);
    oracle = bind_head(bundle, &whole);
}

static bool has_row(int32_t id) {
    return scattered_bias[id] > -INFINITY;
}

/* --- a decoding loop over a toy target that knows every token --- */

static void hidden_state(int32_t last, int32_t depth, float *out) {
    uint64_t state = (uint64_t)(last % 60 + 1) * 0x9E3779B97F4A7C15u + (uint64_t)depth;
    for (int i = 0; i < D; i++) out[i] = 0.7f * fixture_normal(&state);
}

static void target(const int32_t *tokens, int32_t n, float *logits) {
    for (int32_t t = 0; t < n; t++) {
        uint64_t state = (uint64_t)(tokens[t] % 60 + 1) * 0xD6E8FEB86659FD93u;
        for (int i = 0; i < V; i++) logits[t * V + i] = fixture_normal(&state);
    }
}

/* ranks : NULL: the list of `static` is the bundle's; else there is no bundle, and its ids are the list */
static specrt_session *open_listed(const specrt_head *h, const char *text,
                                   const specrt__ranks_order *ranks, specrt_policy **policy) {
    static const int32_t terminators[] = {250, 251}; /* at most one has a row */
    specrt_policy_desc desc = {
        .text = text, .n_vocab = V, .n_terminators = 2, .terminators = terminators};
    if (ranks) desc.ids = ranks->ids, desc.n_ids = ranks->n;
    specrt_session_params params = {.n_logits = V,
                                    .tree = {.num_steps = 4, .topk = 4, .num_draft_tokens = 16}};
    specrt_error err = {SPECRT_STATUS_OK, ""};
    specrt_policy_create(ranks ? NULL : bundle, h, &desc, policy, &err);
    CHECK_STR(err.msg, "");
    REQUIRE(*policy != NULL);
    return create_session(*policy, &params, NULL);
}

static specrt_session *open_session(const specrt_head *h, const char *text,
                                    specrt_policy **policy) {
    return open_listed(h, text, NULL, policy);
}

static void begin(specrt_session *s) {
    static float logits[N_PROMPT * V];
    int32_t prompt[N_PROMPT];
    specrt_target_rows rows = {.logits = logits};
    for (int32_t i = 0; i < N_PROMPT; i++) prompt[i] = i * 37 % V;
    target(prompt, N_PROMPT, logits);
    specrt_session_begin(s, NULL);
    REQUIRE(specrt_session_prefill(s, prompt, N_PROMPT, &rows) == SPECRT_STATUS_OK);
    REQUIRE(specrt_session_start(s, 11) == SPECRT_STATUS_OK);
}

static void draft(specrt_session *s, specrt_draft *out) {
    specrt_beam beam = {.n = 1};
    int32_t depth = 0;
    float hidden[SPECRT_TREE_MAX_TOPK * D];
    hidden_state(11, depth, hidden);
    for (;;) {
        REQUIRE(specrt_session_expand(s, hidden, NULL, beam.n, &beam) == SPECRT_STATUS_OK);
        if (beam.n == 0) break;
        depth++;
        for (int32_t i = 0; i < beam.n; i++) hidden_state(beam.tokens[i], depth, hidden + i * D);
    }
    specrt_session_finish(s, out);
}

static void check_same(const specrt_draft *a, const specrt_draft *b) {
    CHECK_INT(a->n, b->n);
    for (int32_t i = 0; i < a->n && i < b->n; i++) {
        CHECK_INT(a->tokens[i], b->tokens[i]);
        CHECK_INT(a->parents[i], b->parents[i]);
        CHECK_NEAR((double)a->logprobs[i], (double)b->logprobs[i], 1e-5);
        CHECK(i == 0 || has_row(a->tokens[i]));
    }
}

static void cycle(specrt_session *s, const specrt_draft *d, specrt_verdict *verdict) {
    static float logits[SPECRT_TREE_MAX_NODES * V];
    specrt_target_rows rows = {.logits = logits};
    target(d->tokens, d->n, logits);
    REQUIRE(specrt_session_verify(s, d, logits, verdict) == SPECRT_STATUS_OK);
    REQUIRE(specrt_session_observe(s, d, verdict, &rows) == SPECRT_STATUS_OK);
}

/* Every token of the list once, with its own row. */
static void check_list(const specrt_shortlist *shortlist) {
    int seen[V] = {0};
    for (int32_t i = 0; i < shortlist->n_segments; i++) {
        const specrt_segment *s = &shortlist->segments[i];
        for (int32_t r = 0; r < s->n_rows; r++) {
            const char *row = (const char *)s->rows + (size_t)r * s->row_stride;
            CHECK_INT(seen[s->ids[r]]++, 0);
            CHECK(memcmp(row, scattered + s->ids[r] * D, D * sizeof(float)) == 0);
            CHECK(s->bias && s->bias[r] == scattered_bias[s->ids[r]]);
        }
    }
}

TEST(scattered, "trees are those of a head with a row for every token") {
    static const char *const policies[] = {"full", "static:50", "window:300@min=1",
                                           "static:50+window:300@min=1",
                                           "window:5000@mode=stream@min=1@positions=tree"};
    open_all();
    for (size_t p = 0; p < sizeof policies / sizeof policies[0]; p++) {
        specrt_policy *ours, *whole;
        specrt_session *a = open_session(head, policies[p], &ours);
        specrt_session *b = open_session(oracle, policies[p], &whole);
        CHECK_STR(specrt_policy_get_info(ours)->text, specrt_policy_get_info(whole)->text);
        begin(a);
        begin(b);
        int n_drafted = 0;
        for (int i = 0; i < N_CYCLES; i++) {
            specrt_draft x, y;
            specrt_verdict said, expected;
            check_list(specrt_session_shortlist(a));
            CHECK(specrt_session_shortlist(a)->n_rows <= specrt_policy_get_info(ours)->bound);
            draft(a, &x);
            draft(b, &y);
            check_same(&x, &y);
            n_drafted += x.n - 1;
            cycle(a, &x, &said);
            cycle(b, &y, &expected);
            CHECK_INT(said.n, expected.n);
            CHECK_INT(said.tokens[said.n - 1], expected.tokens[expected.n - 1]);
        }
        CHECK(n_drafted > 10 * N_CYCLES);
        specrt_session_close(a);
        close_both(b, ours);
        specrt_policy_close(whole);
    }
}

/* Windows shorter than what they see hold as many tokens as they may, all with rows. */
TEST(short_window, "full windows hold tokens with rows only") {
    specrt_policy *policy;
    open_all();
    specrt_session *s = open_session(head, "window:24", &policy);
    begin(s);
    CHECK(specrt_session_shortlist(s)->n_rows >= 24);
    check_list(specrt_session_shortlist(s));
    close_both(s, policy);
    s = open_session(head, "window", &policy);
    CHECK_INT(specrt_policy_get_info(policy)->bound, N_ROWS);
    close_both(s, policy);
}

TEST(static, "a list keeps the ranks that have rows") {
    specrt__ranks_list *list;
    specrt__ranks_order ranks;
    int32_t n = 0;
    open_all();
    REQUIRE(specrt__ranks_of_bundle(bundle, &ranks, NULL) == SPECRT_STATUS_OK);
    REQUIRE(specrt__ranks_create(&ranks, head, 0, &list, NULL) == SPECRT_STATUS_OK);
    const specrt_shortlist *shortlist = &list->shortlist;
    for (int32_t i = 0; i < 60; i++)
        if (has_row(ranks.ids[i])) CHECK_INT(shortlist->segments[0].ids[n++], ranks.ids[i]);
    CHECK_INT(shortlist->n_rows, n);
    check_list(shortlist);
    specrt__ranks_free(list);
}

TEST(own_list, "drafts over the application's list are those over a bundle of the same ranks") {
    static const char *const policies[] = {"static:50", "static:80/20/50"};
    specrt__ranks_order ranks;
    open_all();
    REQUIRE(specrt__ranks_of_bundle(bundle, &ranks, NULL) == SPECRT_STATUS_OK);
    for (int p = 0; p < 4; p++) {
        const specrt_head *h = p < 2 ? head : oracle;
        specrt_policy *ours, *of_bundle;
        specrt_session *a = open_listed(h, policies[p % 2], &ranks, &ours);
        specrt_session *b = open_session(h, policies[p % 2], &of_bundle);
        CHECK_STR(specrt_policy_get_info(ours)->text, policies[p % 2]);
        CHECK_INT(specrt_policy_get_info(ours)->bound, specrt_policy_get_info(of_bundle)->bound);
        begin(a);
        begin(b);
        for (int i = 0; i < N_CYCLES; i++) {
            specrt_draft x, y;
            specrt_verdict verdict;
            draft(a, &x);
            draft(b, &y);
            CHECK_INT(x.n, y.n);
            CHECK(memcmp(x.tokens, y.tokens, sizeof *x.tokens * (size_t)x.n) == 0);
            CHECK(memcmp(x.logprobs, y.logprobs, sizeof *x.logprobs * (size_t)x.n) == 0);
            CHECK(x.n > 4);
            cycle(a, &x, &verdict);
            cycle(b, &y, &verdict);
        }
        specrt_session_close(a);
        close_both(b, ours);
        specrt_policy_close(of_bundle);
    }
}

/* A head with ids skips what it has no row for, and refuses a list of nothing else. */
TEST(own_list_rows, "of an application's list, tokens with rows") {
    int32_t absent = 0;
    specrt_error err;
    open_all();
    while (has_row(absent)) absent++;
    const int32_t list[] = {absent, ids[5], ids[2]};
    specrt_policy_desc desc = {.text = "static", .n_vocab = V, .ids = list, .n_ids = 3};
    specrt_policy *policy = create_policy(NULL, head, &desc);
    CHECK_STR(specrt_policy_get_info(policy)->text, "static:3");
    const specrt_shortlist *shortlist = specrt_policy_get_info(policy)->shortlist;
    REQUIRE(shortlist && shortlist->n_rows == 2);
    CHECK(memcmp(shortlist->segments[0].ids, list + 1, 2 * sizeof *list) == 0);
    check_list(shortlist);
    specrt_policy_close(policy);
    desc.n_ids = 1;
    CHECK_INT(specrt_policy_create(NULL, head, &desc, &policy, &err), SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(err.msg, "ids: static: expected the head to have rows for some of its 1 tokens");
}

TEST(full_decoded, "rows without kernels of their own are decoded, in the head's order") {
    static uint8_t q4[N_ROWS * 18];
    specrt_policy *policy;
    specrt_session *s;
    open_all();
    for (size_t i = 0; i < sizeof q4; i++) q4[i] = (uint8_t)(i * 37 & 63);
    specrt_head_desc desc = {
        .rows = q4, .dtype = SPECRT_DTYPE_Q4_0, .n_rows = N_ROWS, .n_cols = 32, .ids = ids};
    specrt_head *h = bind_head(bundle, &desc);
    s = open_session(h, "full", &policy);
    const specrt_shortlist *shortlist = specrt_session_shortlist(s);
    CHECK_INT(shortlist->n_rows, N_ROWS);
    CHECK_INT(shortlist->segments[0].dtype, SPECRT_DTYPE_F16);
    CHECK(memcmp(shortlist->segments[0].ids, ids, sizeof ids) == 0);
    close_all(s, policy, h);
}

/* --- what is refused --- */

static void check_bind(const specrt_bundle *b, const int32_t *list, specrt_status status,
                       const char *says) {
    specrt_head *h;
    specrt_error err = {SPECRT_STATUS_OK, ""};
    specrt_head_desc desc = desc_of(chosen, N_ROWS);
    desc.ids = list;
    CHECK_INT(specrt_head_bind(b, &desc, NULL, &h, &err), status);
    CHECK_HAS(err.msg, says);
    CHECK((h == NULL) == (status != SPECRT_STATUS_OK));
    specrt_head_close(h);
}

/* A bundle of clusters of all tokens but one. */
static specrt_bundle *open_clusters(int32_t left_out, uint8_t **bytes) {
    specrt_clusters_header h = fixture_router(SPECRT_ROUTER_CENTROID, V, D, 2, 1);
    uint8_t never[V] = {0};
    size_t n;
    never[left_out] = 1;
    uint8_t *part = fixture_clusters(h, never, 5, &n);
    fixture_section section = {"centroid", 1, 0, part, n, n};
    *bytes = fixture_bundle(&section, 1, &n);
    free(part);
    return open_memory(*bytes, n);
}

TEST(refused, "ids twice, out of range, or none to propose") {
    int32_t bad[N_ROWS];
    open_all();
    memcpy(bad, ids, sizeof bad);
    bad[9] = bad[4];
    check_bind(NULL, bad, SPECRT_STATUS_BAD_ARG, "at rows 4 and 9");
    bad[9] = bad[0];
    check_bind(NULL, bad, SPECRT_STATUS_BAD_ARG, "at rows 0 and 9");
    bad[9] = -1;
    check_bind(NULL, bad, SPECRT_STATUS_BAD_ARG, "row 9: expected a token from 0 to 16777215");
    bad[9] = SPECRT_MAX_VOCAB;
    check_bind(NULL, bad, SPECRT_STATUS_BAD_ARG, "found 16777216");
    specrt_error err;
    specrt_head_desc desc = desc_of(chosen, 1);
    const int32_t last[] = {V - 1}, beyond[] = {V + 1},
                  rare[] = {V - 4}; /* the last rank but one is 7 * 299 + 3 mod V */
    desc.ids = last;
    specrt_head *h = bind_head(bundle, &desc);
    specrt_policy *policy = create_policy(bundle, h, &(specrt_policy_desc){.text = "full"});
    specrt_policy_close(policy);
    specrt_head_close(h);
    desc.ids = beyond;
    h = bind_head(bundle, &desc);
    specrt_policy_desc few = {.text = "microspec"};
    CHECK(specrt_policy_create(bundle, h, &few, &policy, &err) == SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(err.msg, "expected rows of tokens below 300, found one of 301");
    specrt_head_close(h);
    desc.ids = rare;
    h = bind_head(bundle, &desc);
    few.text = "static:10";
    CHECK(specrt_policy_create(bundle, h, &few, &policy, &err) == SPECRT_STATUS_BUNDLE_MISMATCH);
    CHECK_HAS(err.msg, "expected the head to have rows for some of its 10 tokens, found none");
    uint8_t *bytes;
    specrt_bundle *clusters = open_clusters(rare[0], &bytes);
    few.text = "centroid";
    CHECK(specrt_policy_create(clusters, h, &few, &policy, &err) == SPECRT_STATUS_BUNDLE_MISMATCH);
    CHECK_HAS(err.msg, "expected the head to have rows for some of its 299 tokens, found none");
    specrt_bundle_close(clusters);
    free(bytes);
    specrt_head_close(h);
}

/* A bundle of the target's head serves until a section depends on that very head. */
TEST(bundle_head, "bundles are checked as far as they depend on the head") {
    for (int depends = 0; depends < 2; depends++) {
        specrt_ident ident = {.n_vocab = V, .n_normal = V, .head_rows = V, .head_cols = D};
        size_t n_ranks, n;
        uint8_t *ranks = fixture_ranks(V, N_FORCED, 60, &n_ranks);
        fixture_section sections[] = {
            {"ident", 1, 0, &ident, sizeof ident, sizeof ident},
            {"ranks", 1,
             SPECRT_SECTION_DEPENDS_TOKENIZER | (depends ? SPECRT_SECTION_DEPENDS_HEAD : 0u), ranks,
             n_ranks, n_ranks},
        };
        uint8_t *bytes = fixture_bundle(sections, 2, &n);
        open_all();
        specrt_bundle *b = open_memory(bytes, n);
        check_bind(b, ids, depends ? SPECRT_STATUS_BUNDLE_MISMATCH : SPECRT_STATUS_OK,
                   depends ? "found [140, 16]" : "");
        check_bind(b, NULL, SPECRT_STATUS_BUNDLE_MISMATCH, "expected at least the 300 rows");
        specrt_bundle_close(b);
        free(bytes);
        free(ranks);
    }
}
