/* test_gpu_launches.c : what sessions launch: kernels that are on the device already, how many and in which
 * blocks; and what makes them slow. */
#include "gpu_session.h"

/* The harness's; not on a GPU. */
extern int harness_late __attribute__((weak));
extern uint64_t harness_blocks __attribute__((weak));
extern unsigned harness_grid[3] __attribute__((weak));

static setting setting_of(const char *policy) {
    return (setting){
        .policy = policy, .tree = {2, 3, 7}, .n_batch = 2, .n_cycles = 2, .graph = true};
}

/* The first cycle of a process is captured, as strictly as can be; no launch has to load a kernel. */
TEST(loaded, "no launch loads a kernel, and a first cycle is captured") {
    static const char *const texts[] = {
        "static:20/10+window:12+retrieve:9@prompt=best@mode=async+cluster:2@always=8+successor:6"
        "+sketch:8@keep=999",
        "window:30", "window:12+group:2@always=0@beam=per_row"};
    for (int i = 0; i < 6; i++) {
        if (test_quick() && i % 2 == i / 2 % 2) continue;
        setting how = setting_of(texts[i / 2]);
        how.shared = i == 2;
        how.ahead = i >= 4;
        if (i % 2) how.sampling = (specrt_sampling){.temperature = 1, .seed = 4, .session = 9};
        if (i == 3) how.sampling.top_p = 0.9f;
        if (i == 5) how.tree.topk = 1, how.tree.num_draft_tokens = 3;
        run(&how);
    }
    if (&harness_late) CHECK_INT(harness_late, 0);
}

/* --- how many --- */

/* Kernels on the application's streams, and beside them. */
typedef struct launches {
    int on, beside;
} launches;

/* Those since `before`. */
static launches since(launches before) {
    return (launches){harness_launches[0] - before.on, harness_launches[1] - before.beside};
}

static launches now(void) {
    return since((launches){0, 0});
}

/* A cycle's, of which a level has `level`, and what expand() starts for the next one besides. */
static void check_cycle_launches(device *d, launches level, launches cycle) {
    launches all = {0, 0}, before, n;
    const int32_t n_levels = d->view.num_steps;
    for (int32_t i = 0; i < n_levels + 3; i++) {
        if (i < n_levels)
            REQUIRE(!specrt__cuda_pack(&d->draft_table, d->passes, d->n, d->view.topk,
                                       D * sizeof(float), d->stream));
        if (i == n_levels + 1) device_target(d);
        before = now();
        if (i < n_levels)
            REQUIRE(!specrt_cuda_session_expand(d->session, d->hidden, NULL, d->stream));
        else if (i == n_levels)
            REQUIRE(!specrt_cuda_session_finish(d->session, d->stream));
        else if (i == n_levels + 1)
            REQUIRE(!specrt_cuda_session_verify(d->session, d->logits, d->stream));
        else
            device_observe(d);
        n = since(before);
        if (i < n_levels) CHECK_INT(n.on, level.on);
        if (i < n_levels - 1) CHECK_INT(n.beside, level.beside);
        all.on += n.on, all.beside += n.beside;
    }
    CHECK_INT(all.on, cycle.on);
    CHECK_INT(all.beside, cycle.beside);
}

/* No more than these kernels, or a cycle becomes slower. Rows that both sequences share are a product of
 * their own. */
TEST(counts, "of kernels, by level and cycle") {
    static const struct {
        const char *policy;
        launches level, cycle;
    } table[] = {{"full", {2, 0}, {14, 0}},
                 {"window:48@kver=8@positions=tree@min=20", {2, 0}, {14, 2}},  /* microspec */
                 {"window:48+successor:6+sketch:8@keep=999", {5, 1}, {32, 8}}, /* hybrid */
                 {"static:20+window:24+successor:6", {3, 1}, {20, 8}},
                 {"static:20/10+window:24+successor:6", {5, 0}, {32, 2}}};
    if (!harness_launches) SKIP("on a GPU");
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        setting how = setting_of(table[i].policy);
        how.tree = (specrt_tree_params){6, 4, NODES};
        shared_policy shared;
        device d;
        open_both(&d, &shared, &how);
        device_start(&d, 0, N_PROMPT);
        device_cycle(&d);
        device_observe(&d);
        check_cycle_launches(&d, table[i].level, table[i].cycle);
        gpu_check(cudaStreamSynchronize(d.stream), "cycle");
        close_device(&d, &shared);
    }
}

/* Before its first level a sequence has one state: nothing is multiplied or ranked for more. */
TEST(first_level, "has one state of each sequence") {
    setting how = setting_of("full");
    shared_policy shared;
    device d;
    uint64_t blocks[2];
    if (!&harness_blocks) SKIP("on a GPU");
    how.n_batch = 5;
    how.tree = (specrt_tree_params){2, TOPK, NODES};
    open_both(&d, &shared, &how);
    device_start(&d, 0, N_PROMPT);
    for (int i = 0; i < 2; i++) {
        blocks[i] = harness_blocks;
        REQUIRE(!specrt_cuda_session_expand(d.session, d.hidden, NULL, d.stream));
        blocks[i] = harness_blocks - blocks[i];
    }
    gpu_check(cudaStreamSynchronize(d.stream), "expand");
    /* One group of states for at least 16 rows a block, and a ranking of each; five times 16 states later. */
    CHECK(blocks[0] <= (V + 15) / 16 + 5);
    CHECK(blocks[1] >= 5 * TOPK);
    close_device(&d, &shared);
}

/* --- how they are spread --- */

enum { MAX_ROWS = 512 };

/* A product of n states of each of n_batch sequences with rows of f16, which all have. */
static void multiply(int32_t n_rows, int32_t n_batch, int32_t n) {
    specrt__cuda_layout layout = {1, D, {SPECRT_DTYPE_F16}, {n_rows}, {n_batch > 1}};
    specrt__cuda_segment segments[3], one = {.row_stride = 2 * D, .max_rows = n_rows};
    size_t n_states = (size_t)(n_batch * n);
    one.rows = gpu_zeros(MAX_ROWS * 2 * D);
    for (int i = 0; i < 3; i++) segments[i] = one;
    void *all[] = {gpu_copy(segments, sizeof segments), gpu_zeros(n_states * 2 * D),
                   gpu_alloc(n_states * MAX_ROWS * sizeof(float)), (void *)(uintptr_t)one.rows};
    const specrt__cuda_batch batch = {n_batch, n, NULL, 0};
    REQUIRE(!specrt__cuda_logits(&layout, (specrt__cuda_segment *)all[0], &batch, all[1],
                                 SPECRT_DTYPE_F16, (float *)all[2], NULL));
    gpu_check(cudaStreamSynchronize(NULL), "product");
    for (int i = 0; i < 4; i++) gpu_free(all[i]);
}

/* A block has 128 rows, or the half as often as there are fewer than four blocks on the harness's one
 * multiprocessor. */
TEST(splits, "fewer warps share a row where there are many rows") {
    static const int32_t rows[] = {512, 300, 150, 60, 20}, n_blocks[] = {4, 5, 5, 4, 2};
    if (!harness_grid) SKIP("on a GPU");
    for (int i = 0; i < 5; i++) {
        multiply(rows[i], 1, 10);
        CHECK_INT(harness_grid[0], n_blocks[i]);
        CHECK_INT(harness_grid[2], 1);
    }
}

TEST(groups, "blocks with the same rows, for one group of states after another, are neighbours") {
    if (!harness_grid) SKIP("on a GPU");
    multiply(512, 3, 50);
    CHECK_INT(harness_grid[0], 4 * 3);
    CHECK_INT(harness_grid[2], 1);
}

/* No more blocks than run at once copy rows, whatever the batch: eight on the harness's multiprocessor. */
TEST(packing, "in as many blocks as run at once") {
    enum { N = 3, M = 100 };
    static float rows[M * D];
    specrt__cuda_packing packings[N];
    int32_t ids[M], n = M;
    if (!harness_grid) SKIP("on a GPU");
    for (int32_t i = 0; i < M; i++) ids[i] = M - 1 - i;
    for (int i = 0; i < M * D; i++) rows[i] = (float)i;
    void *all[] = {gpu_copy(rows, sizeof rows), gpu_copy(ids, sizeof ids), gpu_copy(&n, sizeof n),
                   gpu_zeros(N * sizeof rows), NULL};
    const specrt__cuda_head table = {
        .rows = all[0], .n_rows = M, .n_cols = D, .row_stride = D * sizeof *rows};
    for (int i = 0; i < N; i++)
        packings[i] = (specrt__cuda_packing){
            .ids = (int32_t *)all[1], .n = (int32_t *)all[2], .rows = (float *)all[3] + i * M * D};
    all[4] = gpu_copy(packings, sizeof packings);
    REQUIRE(
        !specrt__cuda_pack(&table, (specrt__cuda_packing *)all[4], N, M, D * sizeof *rows, NULL));
    CHECK_INT(harness_grid[0], 2);
    CHECK_INT(harness_grid[1], N);
    gpu_get(rows, (float *)all[3] + (N - 1) * M * D, sizeof rows);
    for (int i = 0; i < M * D; i++) REQUIRE(rows[i] == (float)((M - 1 - i / D) * D + i % D));
    for (int i = 0; i < 5; i++) gpu_free(all[i]);
}

/* Sequence 1 has its next prompt while sequence 0 goes on. */
static void begin_again(device *d, twin *t) {
    static float logits[N_PROMPT * V];
    int32_t tokens[N_PROMPT];
    for (int32_t j = 0; j < N_PROMPT; j++) tokens[j] = prompt_token(5, j);
    target_logits(tokens, N_PROMPT, logits);
    twin_start(t, 5, N_PROMPT);
    int32_t *read = (int32_t *)gpu_copy(tokens, sizeof tokens);
    float *known = (float *)gpu_copy(logits, sizeof logits);
    REQUIRE(!specrt_cuda_session_begin(d->session, 1, d->stream));
    REQUIRE(!specrt_cuda_session_prefill(d->session, 1, read, N_PROMPT, known, d->stream));
    gpu_check(cudaStreamSynchronize(d->stream), "prefill");
    gpu_put(d->tokens + 1, &t->root, sizeof t->root);
    REQUIRE(!specrt_cuda_session_start(d->session, 1, d->tokens, d->stream));
    gpu_free(read), gpu_free(known);
}

/* A sequence begins when observe() has found the first successors of all: they are found again, and all have
 * the rows and counts of their twins. */
TEST(again, "successors of a level that were found before") {
    static twin twins[2];
    setting how = setting_of("window:24+successor:6+sketch:8@keep=999");
    shared_policy shared;
    device d;
    how.graph = false;
    open_both(&d, &shared, &how);
    for (int32_t i = 0; i < 2; i++) open_twin(&twins[i], &shared, &how, i);
    start(&d, twins, &how, 0);
    run_cycles(&d, twins, &how, false);
    begin_again(&d, &twins[1]);
    run_cycles(&d, twins, &how, false);
    check_stats(&d, twins, how.policy, how.shared);
    for (int32_t i = 0; i < 2; i++) specrt_session_close(twins[i].session);
    close_device(&d, &shared);
}

/* Four sequences' windows are as many rows as the head has, so they are read there; two sequences' are
 * copied. */
TEST(stock, "rows stay in the head from a batch on") {
    for (int i = 0; i < 2; i++) {
        setting how = setting_of("window:40@min=38");
        how.chooses = true;
        how.shared = i == 0;
        how.n_batch = how.shared ? 4 : 2;
        run(&how);
    }
}

/* --- what reads slowly --- */

static char told[256]; /* lines, by | */

static void note(void *user, int level, const char *section, const char *msg) {
    (void)user;
    CHECK_INT(level, SPECRT_LOG_INFO);
    CHECK_STR(section, "cuda");
    if (strlen(told) + strlen(msg) + 2 < sizeof told) strcat(strcat(told, msg), "|");
}

/* What a session tells of two levels, whose states begin so many bytes off. */
static void check_told(const setting *how, size_t off, const char *expected) {
    shared_policy shared;
    device d;
    told[0] = '\0';
    open_policy(&shared, how->policy, how->lends);
    open_device(&d, &shared, how);
    device_start(&d, 0, N_PROMPT);
    for (int i = 0; i < 2; i++)
        REQUIRE(!specrt_cuda_session_expand(
            d.session, (const uint8_t *)(const void *)d.hidden + off, NULL, d.stream));
    gpu_check(cudaStreamSynchronize(d.stream), "expand");
    CHECK_STR(told, expected);
    close_device(&d, &shared);
}

TEST(narrow, "products that cannot read 16 bytes at a time say so, once") {
    const specrt_env env = {.log = note};
    setting how = setting_of("static:20+window:12");
    open_all();
    specrt_head *usual = head;
    specrt_head_desc desc = usual->desc;
    REQUIRE(!specrt_head_bind(bundle, &desc, &env, &head, NULL));
    check_told(&how, 0, "");
    check_told(
        &how, 4,
        "expand: products are slow: expected draft_hidden aligned to 16 bytes, found others|");
    how.policy = "full";
    how.lends = true;
    check_told(
        &how, 0,
        "expand: products are slow: expected rows aligned to 16 bytes, of q8_0 copied by the "
        "policy, found others|");
    specrt_head_close(head);
    desc.rows = head_blocks, desc.dtype = SPECRT_DTYPE_Q8_0, desc.row_stride = 0;
    REQUIRE(!specrt_head_bind(bundle, &desc, &env, &head, NULL));
    check_told(
        &how, 0,
        "expand: products are slow: expected rows aligned to 16 bytes, of q8_0 copied by the "
        "policy, found others|");
    how.lends = false;
    check_told(&how, 0, "");
    specrt_head_close(head);
    head = usual;
}
