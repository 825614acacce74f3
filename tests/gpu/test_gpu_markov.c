/* test_gpu_markov.c : drafts of heads with a Markov head (DSpark) beside sessions of the CPU: blocks and
 * passes, chains and trees, of all sources, call by call and as a graph. */
#include "gpu_session.h"

enum { RANK = 16 };

/* Rows of w1 or w2 by chance, of a type. */
static void *make_rows(specrt_dtype dtype, int32_t n_rows, int32_t rank, uint64_t *state) {
    const int64_t n = (int64_t)n_rows * rank;
    float *values = (float *)malloc((size_t)n * sizeof *values);
    void *out = malloc(specrt_row_bytes(dtype, n));
    for (int64_t i = 0; i < n; i++) values[i] = draw_sixteenths(state, 0.7f);
    quantise_row(dtype, values, n, (uint8_t *)out);
    free(values);
    return out;
}

/* A Markov head beside the head, which is `head` until unbind(). */
typedef struct bound {
    specrt_head *usual;
    specrt_markov_desc markov;
} bound;

static void bind(bound *b, specrt_head_desc desc, int32_t n_from, int32_t rank, specrt_dtype from,
                 specrt_dtype to) {
    uint64_t state = gpu_seed(5);
    specrt_error err = {0};
    b->usual = head;
    b->markov.from = (specrt_head_desc){.rows = make_rows(from, n_from, rank, &state),
                                        .dtype = from,
                                        .n_rows = n_from,
                                        .n_cols = rank};
    b->markov.to = (specrt_head_desc){.rows = make_rows(to, (int32_t)desc.n_rows, rank, &state),
                                      .dtype = to,
                                      .n_rows = desc.n_rows,
                                      .n_cols = rank};
    desc.markov = &b->markov;
    if (specrt_head_bind(NULL, &desc, NULL, &head, &err)) test_fail(__FILE__, __LINE__, err.msg);
    REQUIRE(head != b->usual);
}

static void bind_usual(bound *b, specrt_dtype from, specrt_dtype to) {
    open_all();
    bind(b, head->desc, V, RANK, from, to);
}

static void unbind(bound *b) {
    specrt_head_close(head);
    head = b->usual;
    free((void *)(uintptr_t)b->markov.from.rows), free((void *)(uintptr_t)b->markov.to.rows);
}

/* --- the same drafts --- */

TEST(blocks, "whose positions are chosen one after another") {
    static const char *const policies[] = {"full", "static:40", "window:30@min=8",
                                           "static:20+retrieve:9@mode=async"};
    bound b;
    bind_usual(&b, SPECRT_DTYPE_F16, SPECRT_DTYPE_F16);
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++)
        for (int32_t n = 1; n <= 6 && test_failures == 0; n += n == 1 ? 3 : 2) {
            if (test_quick() && (i + (size_t)n / 2) % 2 == 0) continue;
            setting how = block_setting(policies[i], n == 4 ? 1 : 3, n);
            if (n == 6) how.sampling = (specrt_sampling){.temperature = 1, .seed = 4, .session = 9};
            how.shared = i == 2 && n == 6;
            run(&how);
        }
    unbind(&b);
}

TEST(routed, "rows that sources route to a position get the Markov head's part, too") {
    static const char *const policies[] = {
        "static:10/20+cluster:2@always=8+successor:6+sketch:8@keep=999",
        "window:30+successor:8+sketch:8@keep=999"};
    bound b;
    bind_usual(&b, SPECRT_DTYPE_F16, SPECRT_DTYPE_F16);
    for (int32_t i = 0; i < 4 && test_failures == 0; i++) {
        if (test_quick() && i % 2 == i / 2) continue;
        setting how = block_setting(policies[i / 2], i % 2 ? 1 : 4, 5);
        how.p_min = i == 2 ? 0.4f : 0;
        how.n_confidence = D + RANK;
        run(&how);
    }
    unbind(&b);
}

TEST(confidence, "each path has its own confidence, by its last token") {
    bound b;
    bind_usual(&b, SPECRT_DTYPE_F16, SPECRT_DTYPE_F16);
    for (int32_t i = 0; i < 8 && test_failures == 0; i++) {
        if (test_quick() && i % 2 != i / 2 % 2) continue;
        setting how = block_setting(i % 4 < 2 ? "static:40" : "window:30@min=8", i % 2 ? 1 : 4, 6);
        how.p_min = 0.5f;
        how.n_confidence = i < 6 ? D + RANK : 0;
        how.confidence_bias = i < 4 ? 0.5f : 2;
        run(&how);
    }
    unbind(&b);
}

TEST(passes, "every kind of segment has its rows of w2") {
    static const char *const policies[] = {
        "full", "static:20/10+window:12+retrieve:9@mode=async",
        "static:20/10+cluster:2@always=8+successor:6+sketch:8@keep=999",
        "window:30+group:2@always=0@beam=per_row"};
    bound b;
    bind_usual(&b, SPECRT_DTYPE_F16, SPECRT_DTYPE_F16);
    for (int32_t i = 0; i < 8 && test_failures == 0; i++) {
        if (test_quick() && i % 2 != i / 2 % 2) continue; /* a chain of one, a tree of the next */
        setting how = block_setting(policies[i / 2], i % 2 ? 1 : 4, 0);
        how.shared = i == 3;
        run(&how);
    }
    unbind(&b);
}

TEST(sampled, "chains, of passes and of blocks") {
    bound b;
    bind_usual(&b, SPECRT_DTYPE_F16, SPECRT_DTYPE_F16);
    for (int32_t i = 0; i < 4 && test_failures == 0; i++) {
        setting how = block_setting("static:60", 1, i == 0 ? 0 : 6);
        how.draft = SPECRT_DRAFT_SAMPLED;
        how.sampling = (specrt_sampling){.temperature = 1, .seed = 4, .session = 9};
        how.p_min = i < 2 ? 0 : 0.4f;
        how.n_confidence = i == 3 ? D + RANK : 0;
        run(&how);
    }
    unbind(&b);
}

/* Types that states and rows have, and one that is decoded, which has blocks of 32 columns. */
TEST(types, "of both matrices, kept or decoded") {
    static const specrt_dtype types[][2] = {{SPECRT_DTYPE_F32, SPECRT_DTYPE_BF16},
                                            {SPECRT_DTYPE_BF16, SPECRT_DTYPE_F32},
                                            {SPECRT_DTYPE_BF16, SPECRT_DTYPE_BF16},
                                            {SPECRT_DTYPE_Q8_0, SPECRT_DTYPE_Q8_0}};
    open_all();
    for (size_t i = 0; i < sizeof types / sizeof *types && test_failures == 0; i++) {
        setting how = block_setting("static:40+window:12", 3, 4);
        bound b;
        bind(&b, head->desc, V, 32, types[i][0], types[i][1]);
        how.n_cycles = 2;
        run(&how);
        unbind(&b);
    }
}

/* A head of few tokens: w2 has its rows alone, w1 ends behind the last of them, and tokens of the target come
 * after that. */
TEST(cut, "heads of few tokens") {
    enum { N_ROWS = 50 };
    int32_t ids[N_ROWS];
    open_all();
    for (int32_t i = 0; i < N_ROWS; i++) ids[i] = (37 * i + 3) % 53;
    specrt_head_desc desc = {
        .rows = head_rows, .dtype = SPECRT_DTYPE_F16, .n_rows = N_ROWS, .n_cols = D, .ids = ids};
    static const char *const policies[] = {"full", "static:20+window:12", "window:30@min=8"};
    for (int32_t i = 0; i < 6 && test_failures == 0; i++) {
        if (test_quick() && i % 2 != i / 2 % 2) continue;
        setting how = block_setting(policies[i / 2], i % 2 ? 1 : 3, i % 2 ? 5 : 0);
        bound b;
        bind(&b, desc, 53, 5, SPECRT_DTYPE_F32, SPECRT_DTYPE_F32);
        how.shared = i == 4;
        run(&how);
        unbind(&b);
    }
}

/* --- how many launches --- */

/* Of a block: the product, then three for each position. Of a pass: the product, the ranking, and two. */
TEST(launches, "are three for a position") {
    for (int32_t n_block = 0; n_block <= 6; n_block += 6) {
        setting how = block_setting("full", 3, n_block);
        shared_policy shared;
        device d;
        bound b;
        if (!harness_launches) SKIP("on a GPU");
        bind_usual(&b, SPECRT_DTYPE_F16, SPECRT_DTYPE_F16);
        open_both(&d, &shared, &how);
        device_start(&d, 0, N_PROMPT);
        int before = harness_launches[0];
        if (n_block)
            REQUIRE(!specrt_cuda_session_draft_block(d.session, d.hidden, n_block, d.stream));
        else
            REQUIRE(!specrt_cuda_session_expand(d.session, d.hidden, NULL, d.stream));
        CHECK_INT(harness_launches[0] - before, n_block ? 1 + 3 * n_block : 4);
        gpu_check(cudaStreamSynchronize(d.stream), "draft");
        close_device(&d, &shared);
        unbind(&b);
    }
}
