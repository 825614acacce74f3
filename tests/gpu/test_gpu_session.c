/* test_gpu_session.c : batches of sequences on the device against specrt_session: the same shortlists, trees
 * and tokens. */
#include "gpu_session.h"

/* First what sequences have alone, then what they share; the last are combined before, and run where there is
 * time. */
static const char *const policies[] = {
    "window:48@positions=tree@min=20",
    "window:40@mode=stream@kpre=2@kver=5@positions=last",
    "static:30+window:24@positions=tree@min=40",
    "static:20+window:20@only=ext+retrieve:16@mode=async@graph=off",
    "static:20+retrieve:30@sem=hnsw_h@mode=async",
    "static:8+sketch:10@keep=999",
    "group:2@always=0@beam=per_row",
    "cluster:3@beam=per_row",
    "static:20/10+cluster:2@always=8+group:2@always=0+successor:6+sketch:8@keep=999",
    "window:10+centroid:2@beam=per_row@cap=60+successor:9",
    "full",
    "static:40",
    "window:48@min=20",
    "static:24+retrieve:16@mode=async",
    "static:40/20+window:16",
    "window:12+successor:6",
    "window:10+cluster@always=8",
    "static:12+centroid",
    "static:8+sketch:10@keep=999",
};
enum { N_ALONE = 4, N_SHORT = 9, N_POLICIES = sizeof policies / sizeof policies[0] };

static setting setting_of(const char *policy) {
    return (setting){.policy = policy,
                     .tree = {2, 3, 7},
                     .sampling = {.temperature = 1, .seed = gpu_seed(4), .session = 9},
                     .n_batch = 2,
                     .n_cycles = gpu_long()     ? 60
                                 : test_brief() ? 2
                                                : 3};
}

TEST(policies, "a captured cycle drafts, emits and learns as the CPU's sessions do") {
    for (int i = 0; i < (gpu_long() ? N_POLICIES : N_SHORT); i++) {
        setting how = setting_of(policies[i]);
        if (i < N_ALONE) how.n_batch = 1;
        how.graph = true;
        run(&how);
    }
}

TEST(calls, "so do its calls one by one") {
    setting how = setting_of("static:20+window:20@positions=tree+retrieve:16@mode=async");
    how.tree = (specrt_tree_params){3, 4, 10};
    how.sampling.top_p = 0.9f;
    if (!gpu_long()) how.n_cycles = 2;
    run(&how);
}

TEST(greedy, "a chain and trees of a greedy target") {
    static const char *const texts[] = {"static:30+window:16", "static:8+sketch:6@keep=999"};
    for (int i = 0; i < 2; i++) {
        setting how = setting_of(texts[i]);
        memset(&how.sampling, 0, sizeof how.sampling);
        how.tree = i ? (specrt_tree_params){3, 3, 8} : (specrt_tree_params){4, 1, 5};
        if (i) how.n_batch = 1, how.graph = true;
        run(&how);
    }
}

TEST(padded, "columns of logits behind the vocabulary, which the target's greatest logits are in") {
    static const char *const texts[] = {"static:30+window:16@positions=tree", "full",
                                        "static:20+window:12+retrieve:9@prompt=best@graph=off"
                                        "@mode=async",
                                        "window:40@min=30"};
    size_t n;
    open_all();
    specrt_bundle *usual = bundle;
    n_vocab = V - 12;
    uint8_t *bytes = fixture_ranks_bundle(n_vocab, 2, 40, &n);
    bundle = open_memory(bytes, n);
    for (int32_t i = n_vocab; i < V; i++) bias[i] += 50;
    for (int i = 0; i < 8; i++) {
        if (test_quick() && i % 2 != i / 2 % 2 && i != 2) continue;
        setting how = setting_of(texts[i / 2]);
        if (i % 2) memset(&how.sampling, 0, sizeof how.sampling);
        if (i == 2) how.draft = SPECRT_DRAFT_SAMPLED, how.tree = (specrt_tree_params){4, 1, 5};
        how.graph = i < 4;
        how.n_more = i == 4;
        run(&how);
    }
    for (int32_t i = n_vocab; i < V; i++) bias[i] -= 50;
    specrt_bundle_close(bundle);
    free(bytes);
    bundle = usual;
    n_vocab = V;
}

enum { GENERATIONS = 3, DRAWS = 8 };

/* What two sequences and their twins draw at the first positions of a generation, all tokens being alike. */
static void draw_keys(device *d, twin *twins, const int32_t *token, const float *logits,
                      int32_t (*out)[DRAWS]) {
    static const float alike[V] = {0};
    int32_t found[2], expected;
    for (int j = 0; j < DRAWS; j++) {
        for (int32_t i = 0; i < 2; i++)
            REQUIRE(!specrt_cuda_session_prefill(d->session, i, token, 1, NULL, d->stream));
        REQUIRE(!specrt_cuda_session_draw(d->session, logits, d->tokens, d->stream));
        gpu_get(found, d->tokens, sizeof found);
        for (int i = 0; i < 2; i++) {
            REQUIRE(!specrt_session_prefill(twins[i].session, &(const int32_t){3}, 1, NULL));
            REQUIRE(!specrt_session_draw(twins[i].session, alike, &expected));
            CHECK_INT(found[i], expected);
            out[i][j] = found[i];
        }
    }
}

/* No two generations of two sequences have a key in common, and the twins have the same keys: also where a
 * sequence begins alone, and where it begins twice. */
TEST(keys, "of two sequences and their generations") {
    static twin twins[2];
    const int32_t token = 3;
    int32_t drawn[GENERATIONS][2][DRAWS], *all = drawn[0][0];
    setting how = setting_of("full");
    shared_policy shared;
    device d;
    how.sampling.generation = 5;
    open_both(&d, &shared, &how);
    for (int i = 0; i < 2; i++) open_twin(&twins[i], &shared, &how, i);
    int32_t *read = (int32_t *)gpu_copy(&token, sizeof token);
    float *logits = (float *)gpu_zeros(2 * V * sizeof *logits);
    for (int g = 0; g < GENERATIONS; g++) {
        for (int32_t i = 0; i < 2; i++) REQUIRE(!specrt_session_begin(twins[i].session, NULL));
        REQUIRE(!specrt_cuda_session_begin(d.session, -1, d.stream));
        for (int again = 0; again < g; again++) {
            REQUIRE(!specrt_session_begin(twins[1].session, NULL));
            REQUIRE(!specrt_cuda_session_begin(d.session, 1, d.stream));
        }
        draw_keys(&d, twins, read, logits, drawn[g]);
    }
    for (int i = 0; i < 2 * GENERATIONS; i++)
        for (int j = 0; j < i; j++)
            CHECK(memcmp(all + i * DRAWS, all + j * DRAWS, DRAWS * sizeof *all) != 0);
    for (int i = 0; i < 2; i++) specrt_session_close(twins[i].session);
    gpu_free(read), gpu_free(logits);
    close_device(&d, &shared);
}

/* Chains sampled from shortlists whose rows stand in the twin's order: packed ones need not. */
TEST(sampled, "chains sampled from the drafter") {
    static const char *const texts[] = {"full", "static:40/20+cluster:2@always=8"};
    for (int i = 0; i < 2; i++) {
        setting how = setting_of(texts[i]);
        how.tree = (specrt_tree_params){4, 1, i ? 4 : 5};
        how.draft = SPECRT_DRAFT_SAMPLED;
        how.draft_temperature = i ? 0.7f : 0;
        how.graph = true;
        how.n_more = i;
        run(&how);
    }
}

TEST(keep, "what was retrieved outlives begin") {
    setting how = setting_of("static:20+window:12+retrieve:16@keep=on@mode=async");
    how.n_more = 1;
    run(&how);
}

TEST(lost, "more cycles than there is room to tell of: the others are lost, and counted") {
    setting how = setting_of("static:20+retrieve:16@graph=off@mode=async");
    how.neglects = true;
    how.graph = true;
    how.n_cycles = 40;
    how.n_batch = 1;
    how.tree = (specrt_tree_params){1, 2, 3};
    run(&how);
}

/* Prompts come into the host's cache: in several parts, over what cycles brought that were not worked off
 * before, over what is kept, and over prompts that nothing followed. */
TEST(prompt, "what a prompt says before the first cycle") {
    setting how = setting_of("static:20+retrieve:40@prompt=tokens@graph=off@mode=async");
    how.n_prompt = MAX_PROMPT;
    how.n_cycles = 1;
    run(&how);
    how.n_prompt = 9;
    how.abandons = true;
    run(&how);
    how = setting_of("static:20+window:12@kpre=0+retrieve:16@prompt=best@mode=async");
    how.n_prompt = 70;
    how.n_cycles = 2;
    run(&how);
    how = setting_of("static:20+window:12");
    how.n_prompt = 1;
    how.n_cycles = 1;
    how.abandons = true;
    run(&how);
    how = setting_of("static:9+retrieve:40@graph=off@prompt=best@keep=on@mode=async");
    how.tree = (specrt_tree_params){1, 1, 2};
    how.n_prompt = 8;
    how.n_cycles = test_brief() ? 3 : 6;
    how.n_more = 2;
    run(&how);
}

/* A head that has rows for a few tokens only, lists of which it has the same rows at every level, a window
 * without ranks, a graph without edges. */
TEST(few_rows, "heads, lists and graphs that hold little") {
    static const char *const texts[] = {"static:70/60+window:12", "window:9@min=9",
                                        "window:9+successor:20"};
    enum { N_ROWS = 20 };
    int32_t ids[N_ROWS];
    uint8_t never[V];
    size_t n;
    open_all();
    for (int32_t i = 0; i < N_ROWS; i++) ids[i] = (7 * (3 * i % 60) + 3) % V;
    memset(never, 1, sizeof never);
    uint8_t *part = fixture_graph(V, 1, never, 5, &n);
    fixture_section section = {"cograph", 1, 0, part, n, n};
    uint8_t *bytes = fixture_bundle(&section, 1, &n);
    specrt_bundle *few, *usual = bundle;
    specrt_head *all = head;
    specrt_head_desc desc = {
        .rows = head_rows, .dtype = SPECRT_DTYPE_F16, .n_rows = N_ROWS, .n_cols = D, .ids = ids};
    few = open_memory(bytes, n);
    head = bind_head(NULL, &desc);
    for (int i = 0; i < 6; i++) {
        setting how = setting_of(texts[i % 3]);
        if (!gpu_long()) how.n_cycles = 2;
        how.shared = i >= 3;
        bundle = i % 3 == 0 ? usual : few;
        run(&how);
    }
    specrt_head_close(head);
    specrt_bundle_close(few);
    free(bytes);
    free(part);
    head = all;
    bundle = usual;
}

TEST(batch, "many sequences at once") {
    setting how = setting_of("static:30+window:16");
    how.n_batch = gpu_long() ? MAX_BATCH : 5;
    how.n_cycles = 2;
    how.graph = true;
    run(&how);
}

/* Rows stay in the head, and what several sequences hold is read once for all: in chains of two states of a
 * group and in trees, by calls and by graphs, beside sources that route. */
TEST(shared, "rows that several hold, in the head") {
    static const char *const texts[] = {"window:40@min=30", "static:20+window:30@positions=tree",
                                        "static:10+window:20+successor:6+retrieve:12@mode=async"};
    for (int i = 0; i < 3; i++) {
        setting how = setting_of(texts[i]);
        how.shared = true;
        how.n_batch = i == 0 ? (gpu_long() ? MAX_BATCH : 9) : 3 + i;
        if (i == 0) how.tree = (specrt_tree_params){2, 1, 3};
        if (!gpu_long()) how.n_cycles = 2;
        how.graph = i != 1;
        how.lends = i == 1;
        how.n_more = i == 1;
        run(&how);
    }
}

/* A head of q8_0, which the device has in planes, or lent, in blocks, of which packed rows become planes. */
TEST(q8_0, "rows in blocks, and in planes") {
    static const char *const texts[] = {"static:20/10+window:20", "static:8+sketch:10@keep=999",
                                        "cluster:3+window:12"};
    open_all();
    specrt_head *usual = head;
    specrt_head_desc desc = usual->desc;
    desc.rows = head_blocks, desc.dtype = SPECRT_DTYPE_Q8_0, desc.row_stride = 0;
    head = bind_head(bundle, &desc);
    for (int i = 0; i < 6; i++) {
        if (test_quick() && i % 2 != i / 2 % 2) continue;
        setting how = setting_of(texts[i / 2]);
        if (!gpu_long()) how.n_cycles = 2;
        how.lends = i % 2 == 1;
        how.shared = i >= 4;
        run(&how);
    }
    specrt_head_close(head);
    head = usual;
}

/* Levels routed beside the drafter's pass have the rows of the twin, which routes them inside expand(); and
 * where nothing is told ahead, or by halves, later ones too. */
TEST(ahead, "levels routed beside the drafter's pass") {
    static const char *const texts[] = {
        "static:20/10+cluster:2@always=8+group:2@always=0+successor:6+sketch:8@keep=999",
        "window:12+cluster:3@beam=per_row", "static:12+centroid"};
    shared_policy shared;
    device d;
    for (int i = 0; i < 3; i++) {
        setting how = setting_of(texts[i]);
        how.ahead = true;
        how.graph = i != 1;
        how.n_more = i == 0;
        run(&how);
        if (i != 1) continue;
        open_both(&d, &shared, &how);
        device_start(&d, 0, N_PROMPT);
        ahead_halves(&d);
        gpu_check(cudaStreamSynchronize(d.stream), "halves");
        close_device(&d, &shared);
    }
}

/* --- the same again --- */

/* What a sequence drafted and emitted in a cycle. */
static uint64_t digest_cycle(const specrt_cuda_draft *draft, const specrt_verdict *verdict,
                             uint64_t digest) {
    size_t n = (size_t)draft->n, m = (size_t)verdict->n;
    digest = specrt_hash64(draft->tokens, n * sizeof *draft->tokens, digest);
    digest = specrt_hash64(draft->parents, n * sizeof *draft->parents, digest);
    digest = specrt_hash64(draft->logprobs, n * sizeof *draft->logprobs, digest);
    digest = specrt_hash64(draft->masks, n * sizeof *draft->masks, digest);
    digest = specrt_hash64(draft->positions, n * sizeof *draft->positions, digest);
    digest = specrt_hash64(verdict->tokens, m * sizeof *verdict->tokens, digest);
    return specrt_hash64(verdict->nodes, m * sizeof *verdict->nodes, digest);
}

/* All sequences' cycle. */
static uint64_t digest_batch(const device *d) {
    static specrt_cuda_draft drafts[MAX_BATCH];
    static specrt_verdict verdicts[MAX_BATCH];
    uint64_t digest = 0;
    gpu_get(drafts, d->view.draft, (size_t)d->n * sizeof *drafts);
    gpu_get(verdicts, d->view.verdict, (size_t)d->n * sizeof *verdicts);
    for (int32_t i = 0; i < d->n; i++) digest = digest_cycle(&drafts[i], &verdicts[i], digest);
    return digest;
}

/* A session's cycles, replayed as a graph: digests [n_cycles]. The first, a middle and the last sequence are
 * held to their twins. */
static void record_cycles(const shared_policy *shared, const setting *how, bool with_twins,
                          uint64_t *digests) {
    static twin twins[3];
    const int32_t which[3] = {0, how->n_batch / 2, how->n_batch - 1};
    cudaGraphExec_t exec;
    device d;
    open_device(&d, shared, how);
    for (int i = 0; i < 3 && with_twins; i++) {
        open_twin(&twins[i], shared, how, which[i]);
        twin_start(&twins[i], which[i], N_PROMPT);
    }
    device_start(&d, 0, N_PROMPT);
    exec = device_capture(&d);
    for (int32_t c = 0; c < how->n_cycles && test_failures == 0; c++) {
        REQUIRE(cudaGraphLaunch(exec, d.stream) == cudaSuccess);
        gpu_check(cudaStreamSynchronize(d.stream), "cycle");
        specrt_cuda_session_serve(d.session);
        digests[c] = digest_batch(&d);
        for (int i = 0; i < 3 && with_twins; i++) {
            twin_cycle(&twins[i]);
            check_cycle(&d, &twins[i], which[i]);
            twin_observe(&twins[i]);
        }
        if (test_failures > 0) fprintf(stderr, "in cycle %d of %s\n", (int)c, how->policy);
    }
    cudaGraphExecDestroy(exec);
    for (int i = 0; i < 3 && with_twins; i++) specrt_session_close(twins[i].session);
    device_close(&d);
}

TEST(stress, "with long=1, on a GPU, 64 sequences for 1,000 cycles, twice: bit for bit the same") {
    LEFT_TO_ALL();
    enum { MOST = 1000 };
    static const char *const texts[] = {
        "static:20/10+window:24@mode=stream+cluster:2@always=8+successor:6+sketch:8@keep=999",
        "window:30@min=20+retrieve:16@graph=off@mode=async+group:2@always=0"};
    static uint64_t first[MOST], second[MOST];
    bool all = gpu_long();
    for (int i = 0; i < 2; i++) {
        setting how = setting_of(texts[i]);
        shared_policy shared;
        how.n_batch = all ? MAX_BATCH : 3;
        how.n_cycles = all ? MOST : test_brief() ? 2 : 3;
        how.ahead = true;
        open_policy(&shared, how.policy, false);
        record_cycles(&shared, &how, true, first);
        record_cycles(&shared, &how, false, second);
        close_policy(&shared);
        for (int32_t c = 0; c < how.n_cycles && test_failures == 0; c++)
            if (first[c] != second[c]) {
                fprintf(stderr, "cycle %d of %s differs\n", (int)c, how.policy);
                CHECK(first[c] == second[c]);
            }
    }
}

TEST(lent, "the application's own rows, and such as no product can read") {
    static const char *const lent[] = {"full", "static:20+window:20", "cluster:3+window:12"};
    for (size_t i = 0; i < sizeof lent / sizeof lent[0]; i++) {
        setting how = setting_of(lent[i]);
        how.lends = true;
        run(&how);
    }
    const uint8_t *rows = (const uint8_t *)gpu_alloc((V + 1) * (D * 2 + 1));
    const specrt_cuda_policy_desc wrong[] = {{.rows = rows, .row_stride = D * 2 - 2},
                                             {.rows = rows, .row_stride = D * 2 + 1},
                                             {.rows = rows + 1, .row_stride = D * 2}};
    specrt_cuda_policy *shared;
    specrt_error err = {0};
    specrt_policy *policy = create_policy(bundle, head, &(specrt_policy_desc){.text = "static:9"});
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        CHECK_INT(specrt_cuda_policy_create(policy, &wrong[i], &shared, &err),
                  SPECRT_STATUS_BAD_ARG);
        CHECK_HAS(err.msg, "cuda: rows: expected rows of 64 bytes or more, aligned to 2");
    }
    specrt_policy_close(policy);
    gpu_free((void *)(uintptr_t)rows);
}

/* --- by chance --- */

GPU_RANDOM(31)

/* Sources, and what may stand behind each: one of those that | separates, or nothing. */
static const char *const grammar[][10] = {
    {"static", ":20|:60|:30/50|:70/9/40"},
    {"window", ":8|:30|:70", "@mode=stream", "@kpre=3|@kpre=8", "@kver=0|@kver=8",
     "@positions=last|@positions=tree", "@only=ctx|@only=ext", "@emitted=off", "@min=0|@min=50"},
    {"retrieve:9@mode=async", "@sem=hnsw_h|@sem=hnsw_w", "@graph=off",
     "@prompt=tokens|@prompt=best", "@keep=on"},
    {"cluster", ":1|:5", "@schedule=harmonic", "@beam=per_row", "@cap=20", "@always=0|@always=30"},
    {"group", ":2", "@schedule=flat", "@beam=per_row", "@always=0|@always=30"},
    {"centroid", ":3", "@schedule=harmonic", "@beam=per_row", "@always=0|@always=30"},
    {"successor", ":5|:40"},
    {"sketch", ":6@keep=999|:30@keep=999", "@scan=70"},
};

/* Adds one of the texts that | separates. */
static void add_choice(char *text, const char *choices) {
    int32_t n = 1;
    for (const char *p = choices; *p; p++) n += *p == '|';
    for (n = random_below(n); n > 0; n--) choices = strchr(choices, '|') + 1;
    strncat(text, choices, strcspn(choices, "|"));
}

static void draw_policy(char *text) {
    const int32_t n = (int32_t)(sizeof grammar / sizeof grammar[0]);
    text[0] = '\0';
    for (int32_t i = random_below(n), left = 1 + random_below(4); left > 0 && i < n; left--) {
        if (text[0]) strcat(text, "+");
        strcat(text, grammar[i][0]);
        for (int j = 1; j < 10 && grammar[i][j]; j++)
            if (random_below(2)) add_choice(text, grammar[i][j]);
        i += 1 + random_below(3);
    }
}

TEST(random, "policies, trees and prompts by chance") {
    static const int32_t prompts[] = {1, 5, 80};
    char text[512];
    for (int i = 0; i < (gpu_long() ? 60 : test_quick() ? 1 : 2); i++) {
        draw_policy(text);
        setting how = setting_of(text);
        how.tree = (specrt_tree_params){1 + random_below(4), 1 + random_below(4),
                                        2 + random_below(NODES - 1)};
        how.sampling.temperature = (float)random_below(4) / 2;
        how.sampling.top_k = random_below(2) * (1 + random_below(20));
        how.sampling.top_p = (float)random_below(3) / 2.1f;
        how.sampling.min_p = (float)random_below(3) / 30;
        how.n_batch = 1 + random_below(3);
        how.n_cycles = gpu_long() ? 20 : 3;
        how.n_more = random_below(2);
        how.n_prompt = prompts[random_below(3)];
        how.graph = random_below(2);
        how.abandons = random_below(4) == 0;
        how.ahead = random_below(2);
        how.shared = random_below(2);
        if (how.shared) how.n_batch++;
        run(&how);
    }
}

/* --- refusals --- */

TEST(captures, "half of what a graph has to hold is refused by name") {
    setting how = setting_of("static:20+window:12+retrieve:9@graph=off@mode=async");
    how.halves = true;
    run(&how);
}

/* How many allocations the harness lets succeed; below 0: all. Not on a GPU. */
extern int harness_allocations_left __attribute__((weak));

TEST(memory, "memory that runs out at any call leaves nothing behind") {
    specrt_policy_desc desc = {.text = "static:20+retrieve:8@mode=async"};
    specrt_cuda_session_params params = {.tree = {2, 3, 7}, .n_batch = 2, .n_logits = V};
    specrt_cuda_policy *shared = NULL;
    specrt_cuda_session *session = NULL;
    specrt_error err;
    if (!&harness_allocations_left) SKIP("on a GPU");
    open_all();
    specrt_policy *policy = create_policy(bundle, head, &desc);
    for (int n = 0; !session && n < 200; n++) {
        harness_allocations_left = n;
        if (!shared && specrt_cuda_policy_create(policy, NULL, &shared, &err)) {
            CHECK_INT(err.status, SPECRT_STATUS_NO_MEMORY);
            CHECK_HAS(err.msg, "bytes");
        } else if (specrt_cuda_session_create(shared, &params, &session, &err)) {
            CHECK_INT(err.status, SPECRT_STATUS_NO_MEMORY);
        }
    }
    harness_allocations_left = -1;
    CHECK(session != NULL);
    specrt_cuda_session_close(session);
    specrt_cuda_policy_close(shared);
    specrt_policy_close(policy);
}

TEST(most, "the memory of as many levels and sources as there may be") {
    specrt_head_desc known = {
        .rows = embedding, .dtype = SPECRT_DTYPE_Q8_0, .n_rows = V, .n_cols = 32};
    specrt_policy_desc desc = {
        .text = "static:40/20+window:12+retrieve:8@sem=hnsw_h@prompt=best@mode=async"
                "+cluster:2@always=8@beam=per_row+group:2@always=8@beam=per_row"
                "+centroid:2@always=8@beam=per_row+successor:6+sketch:8@keep=999",
        .embedding = &known};
    specrt_cuda_session_params params = {.tree = {SPECRT_TREE_MAX_STEPS, 1, NODES},
                                         .sampling = {.temperature = 1, .session = 1},
                                         .n_logits = V,
                                         .draft = SPECRT_DRAFT_SAMPLED};
    specrt_cuda_policy *shared;
    specrt_cuda_session *session;
    specrt_error err = {0};
    open_all();
    desc.target = head;
    specrt_policy *policy = create_policy(bundle, head, &desc);
    REQUIRE(!specrt_cuda_policy_create(policy, NULL, &shared, &err));
    specrt_cuda_session_create(shared, &params, &session, &err);
    CHECK_STR(err.msg, "");
    specrt_cuda_session_close(session);
    specrt_cuda_policy_close(shared);
    specrt_policy_close(policy);
}

static void check_refused(const char *text, specrt_cuda_session_params params,
                          specrt_status expected, const char *part) {
    specrt_cuda_policy *shared = NULL;
    specrt_cuda_session *session = NULL;
    specrt_error err = {0};
    specrt_policy *policy = create_policy(bundle, head, &(specrt_policy_desc){.text = text});
    if (!specrt_cuda_policy_create(policy, NULL, &shared, &err))
        specrt_cuda_session_create(shared, &params, &session, &err);
    CHECK(session == NULL);
    CHECK_INT(err.status, expected);
    CHECK_HAS(err.msg, part);
    specrt_cuda_policy_close(shared);
    specrt_policy_close(policy);
}

/* A source that a program brings has no kernels. */
static void check_own_source(void) {
    specrt_cuda_policy *shared;
    specrt_error err = {0};
    specrt_policy *policy = create_policy(bundle, head, &(specrt_policy_desc){.text = "window:9"});
    policy->sources[0].kind = SPECRT__POLICY_KINDS;
    CHECK_INT(specrt_cuda_policy_create(policy, NULL, &shared, &err), SPECRT_STATUS_UNSUPPORTED);
    CHECK_HAS(err.msg, "cuda: policy 'window:9': expected sources with kernels");
    specrt_policy_close(policy);
}

TEST(refusals, "what the device cannot do is named") {
    specrt_cuda_session_params good = {.tree = {2, 3, 7}, .n_logits = V}, p = good;
    open_all();
    p.hidden = SPECRT_DTYPE_F16;
    check_refused("centroid", p, SPECRT_STATUS_BAD_ARG, "f32");
    p.hidden = SPECRT_DTYPE_Q8_0;
    check_refused("static:9", p, SPECRT_STATUS_BAD_ARG, "hidden");
    p = good;
    p.n_batch = 2000;
    check_refused("static:9", p, SPECRT_STATUS_BAD_ARG, "n_batch");
    p = good;
    p.draft = SPECRT_DRAFT_SAMPLED;
    check_refused("static:9", p, SPECRT_STATUS_BAD_ARG, "greedy");
    p = good;
    p.tree.topk = 20;
    check_refused("static:9", p, SPECRT_STATUS_BAD_ARG, "topk");
    p = good;
    p.n_logits = V - 1;
    check_refused("static:9", p, SPECRT_STATUS_BAD_ARG, "n_logits");
    p.n_logits = 0;
    check_refused("static:9", p, SPECRT_STATUS_BAD_ARG, "n_logits");
    p = good;
    p.sampling.temperature = 1;
    check_refused("static:9", p, SPECRT_STATUS_BAD_ARG, "session: expected a number of 1 or more");
    check_refused("window:9@rows=indexed", good, SPECRT_STATUS_UNSUPPORTED, "found rows=indexed");
    specrt_head *plain = head;
    specrt_head_desc capped = plain->desc;
    capped.softcap = 30;
    head = bind_head(bundle, &capped);
    check_refused("static:9", good, SPECRT_STATUS_UNSUPPORTED, "a softcap of 30");
    specrt_head_close(head);
    head = plain;
    check_own_source();
}
