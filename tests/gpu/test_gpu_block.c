/* test_gpu_block.c : drafts from the states of a block, in one product, beside sessions of the CPU: chains
 * and trees, greedy and sampled targets, whole blocks and shorter ones, call by call and as a graph. */
#include "gpu_session.h"

TEST(twins, "draft what sessions of the CPU draft of a block") {
    static const char *const policies[] = {"full", "static:40", "window:30@min=8",
                                           "static:20+retrieve:9@mode=async"};
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++)
        for (int32_t n = 1; n <= 6 && test_failures == 0; n += n == 1 ? 3 : 2) {
            setting how = block_setting(policies[i], n == 4 ? 1 : 3, n);
            if (n == 6) how.sampling = (specrt_sampling){.temperature = 1, .seed = 4, .session = 9};
            how.shared = i == 2 && n == 6;
            run(&how);
        }
}

TEST(routes, "sources that route do so for each position, by the tokens before it and its state") {
    static const char *const policies[] = {
        "static:20/10+cluster:2@always=8+successor:6+sketch:8@keep=999",
        "sketch:12@keep=999",
        "window:30@min=8+successor:8",
        "group:2@always=0+window:20",
        "centroid:3+successor:9",
        "static:20+retrieve:9@mode=async+sketch:8@keep=999"};
    for (int32_t i = 0; i < 12 && test_failures == 0; i++) {
        if (test_quick() && i % 2 != i / 2 % 2) continue; /* a chain of one, a tree of the next */
        setting how = block_setting(policies[i / 2], i % 2 ? 3 : 1, i % 2 ? 4 : 6);
        how.shared = i % 4 == 1;
        how.p_min = i % 3 ? 0 : 0.5f;
        how.n_confidence = i < 6 ? D : 0;
        if (i % 4 == 2) how.sampling = (specrt_sampling){.temperature = 1, .seed = 4, .session = 9};
        run(&how);
    }
    setting how = block_setting("static:40/20+cluster:2@always=8@beam=per_row", 1, 6);
    run(&how);
    how.draft = SPECRT_DRAFT_SAMPLED; /* of columns whose order is the CPU's */
    how.sampling = (specrt_sampling){.temperature = 30, .seed = 4, .session = 9};
    run(&how);
}

/* Blocks that end before a position of little confidence, or behind a path of little probability: some at
 * the first, none at all, and trees as well as chains. */
TEST(confidence, "ends a draft, or a path of it") {
    static const float least[] = {0.01f, 0.5f, 0.8f, 1};
    for (int32_t i = 0; i < 16 && test_failures == 0; i++) {
        if (test_quick() && i / 4 % 2 == i % 2)
            continue; /* of one source trees, chains of the other */
        setting how = block_setting(i % 8 < 4 ? "static:40" : "window:30@min=8", i % 2 ? 1 : 3, 6);
        how.p_min = least[i % 4];
        how.n_confidence = i < 8 ? D : 0;
        how.confidence_bias = i % 3 ? 0.75f : 0;
        run(&how);
    }
}

/* Each position drafts from its own distribution, by which its token is verified. Without packed rows, whose
 * order is another, the tokens are those of the CPU. */
TEST(sampled, "chains of a block, by distributions") {
    for (int32_t i = 0; i < 12 && test_failures == 0; i++) {
        if (test_quick() && i / 4 == 1) continue;
        setting how = block_setting(i % 2 ? "full" : "static:60", 1, i < 6 ? 6 : 4);
        how.draft = SPECRT_DRAFT_SAMPLED;
        how.draft_temperature = i % 3 == 2 ? 0.7f : 0;
        how.sampling = (specrt_sampling){.temperature = i % 2 ? 30 : 4, .seed = 4, .session = 9};
        how.sampling.top_k = i % 3 == 1 ? 20 : 0;
        how.p_min = i % 4 < 2 ? 0 : i % 4 == 2 ? 0.6f : 0.02f;
        how.n_confidence = i % 4 == 2 ? D : 0;
        run(&how);
    }
}

/* Call n draft_block()s of a session whose blocks have 4 positions. */
static void check_refused(device *d, int32_t n, specrt_status status, const char *said) {
    CHECK_INT(specrt_cuda_session_draft_block(d->session, d->hidden, n, d->stream), status);
    CHECK(strstr(specrt_cuda_session_last_error(d->session)->msg, said) != NULL);
}

TEST(refusals, "of other positions, and behind a pass") {
    setting how = block_setting("static:40", 3, 4);
    shared_policy shared;
    device d;
    open_both(&d, &shared, &how);
    device_start(&d, 0, N_PROMPT);
    check_refused(&d, 0, SPECRT_STATUS_BAD_ARG, "n: expected 1 to 4 positions");
    check_refused(&d, 5, SPECRT_STATUS_BAD_ARG, "n_block), found 5");
    REQUIRE(!specrt_cuda_session_expand(d.session, d.hidden, NULL, d.stream));
    check_refused(&d, 4, SPECRT_STATUS_BAD_ORDER,
                  "expected expand() or finish(): the cycle has begun");
    close_device(&d, &shared);
}

/* The product, then the ranking with all levels of the tree; before it confidences. What is drawn takes two
 * launches for each position, and one chooses the nodes. */
static void check_launches(specrt_draft_kind draft, int32_t n_confidence, int n_launches) {
    setting how = block_setting("full", draft == SPECRT_DRAFT_SAMPLED ? 1 : 3, 6);
    shared_policy shared;
    device d;
    how.draft = draft;
    how.sampling = (specrt_sampling){.temperature = 1, .session = 1};
    how.p_min = 0.5f;
    how.n_confidence = n_confidence;
    open_both(&d, &shared, &how);
    device_start(&d, 0, N_PROMPT);
    int before = harness_launches[0];
    REQUIRE(!specrt_cuda_session_draft_block(d.session, d.hidden, 6, d.stream));
    CHECK_INT(harness_launches[0] - before, n_launches);
    gpu_check(cudaStreamSynchronize(d.stream), "draft_block");
    close_device(&d, &shared);
}

TEST(launches, "are two, however many positions are ranked") {
    if (!harness_launches) SKIP("on a GPU");
    check_launches(SPECRT_DRAFT_TOP_K, 0, 2);
    check_launches(SPECRT_DRAFT_TOP_K, D, 3);
    check_launches(SPECRT_DRAFT_SAMPLED, 0, 1 + 2 * 6 + 1);
}

TEST(unsupported, "what sessions with blocks are not made for") {
    static const struct {
        const char *policy;
        int32_t n_block;
        specrt_draft_kind draft;
        const char *said;
        float p_min;
    } cases[] = {
        {"static:40", 7, SPECRT_DRAFT_TOP_K, "n_block: expected 0 to the 6 levels", 0},
        {"static:40", -1, SPECRT_DRAFT_TOP_K, "found -1", 0},
        {"static:40", 2, SPECRT_DRAFT_TOP_K, "p_min: expected 0 to 1, found 1.5", 1.5f},
        {"static:40", 2, SPECRT_DRAFT_TOP_K, "p_min: expected 0 to 1, found", NAN},
        {"static:40", 0, SPECRT_DRAFT_TOP_K, "p_min: expected 0 without n_block", 0.5f},
        {"static:40+group:2@beam=per_row", 2, SPECRT_DRAFT_TOP_K, "with beam=per_row, found 2", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        specrt_cuda_session_params params = {.tree = {6, 3, 7},
                                             .n_logits = V,
                                             .n_block = cases[i].n_block,
                                             .draft = cases[i].draft,
                                             .p_min = cases[i].p_min,
                                             .sampling = {.temperature = 1}};
        specrt_cuda_session *session = NULL;
        shared_policy shared;
        specrt_error err = {0};
        open_policy(&shared, cases[i].policy, false);
        CHECK_INT(specrt_cuda_session_create(shared.device, &params, &session, &err),
                  i < 5 ? SPECRT_STATUS_BAD_ARG : SPECRT_STATUS_UNSUPPORTED);
        CHECK(!session && strstr(err.msg, cases[i].said) != NULL);
        close_policy(&shared);
    }
}
