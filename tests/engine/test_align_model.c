/* test_align_model.c : alignment of independent drafters, whose layers are several: rows again as they were
 * drafted, gradients of every layer against differences, threads, and the order of rows in a file. */
#include "engine/train/align.h"
#include "folder.h"
#include "formats/safetensors.h"
#include "tiny.h"

enum { N_ROWS = 14, N_QUERIES = 5, RANK = 3, D_MOST = 40 };

static const tiny shapes[] = {
    {"llama", 3, 40, 4, 1, 10, 72, 37, .scaled = true},
    {"llama", 1, 32, 4, 2, 8, 48, 37, .tied = true}, /* the last layer alone: no row is below it */
    {"qwen2", 2, 32, 4, 4, 8, 40, 37, .biased = true},
    {"qwen3", 3, 24, 3, 1, 16, 40, 37, .tied = true, .normed = true},
};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };
static const engine_align_params lora = {.rank = RANK, .alpha = 5, .rate = 1e-3f, .clip = 1};

typedef struct bench {
    tiny_model files[2];
    engine_model *target;
    engine_drafter *d;
    engine_align *a;
    float *values; /* [n] masters */
    int64_t n;
} bench;

static void fill(float *x, int64_t n, double width) {
    for (int64_t i = 0; i < n; i++) x[i] = (float)(width * random_real());
}

/* A drafter of this shape beside a target of as many tokens. */
static void open_bench(bench *b, tiny shape, int threads) {
    static const tiny target = {"llama", 2, 32, 4, 2, 8, 48, 37, .tied = true};
    specrt_error err = {0};
    make_tiny(&b->files[0], target, 5);
    make_tiny(&b->files[1], shape, 42);
    b->target = open_tiny(&b->files[0], threads);
    const char *path = write_tiny(&b->files[1], NULL);
    REQUIRE(engine_drafter_open(path, b->target, &b->d, &err) == SPECRT_STATUS_OK);
    unlink(path);
    specrt_status status = engine_align_create(b->d, &lora, NULL, &b->a, &err);
    if (status) fprintf(stderr, "%s\n", err.msg);
    REQUIRE(status == SPECRT_STATUS_OK);
    b->values = engine_align_masters(b->a, &b->n);
    CHECK_INT(engine_align_width(b->a), shape.d);
    CHECK_INT(b->n,
              shape.layers * RANK * (2 * shape.d + (shape.heads + shape.kv_heads) * shape.d_head));
}

static void close_bench(bench *b) {
    engine_align_free(b->a);
    engine_drafter_close(b->d);
    engine_close(b->target);
    free_tiny(&b->files[0]);
    free_tiny(&b->files[1]);
}

/* ---- what drafts ----------------------------------------------------------------------------------- */

/* A chain of four kept, then a tree of three rows; what was captured gives the same states again. */
static void run_drafting(tiny shape) {
    enum { N = 4, M = 3 };
    static const int32_t tokens[N + M] = {1, 20, 31, 7, 12, 5, 33}, nodes[N] = {0, 1, 2, 3};
    static const int32_t parents[M] = {-1, 0, 0}, places[N + 2] = {0, 1, 2, 3, 4, 5};
    static const engine_align_query seen[N + 2] = {
        {0, 0, 1, 0, 0}, {1, 0, 2, 0, 0}, {2, 0, 3, 0, 0},
        {3, 0, 4, 0, 0}, {4, 0, 4, 4, 1}, {5, 0, 4, 4, 2},
    };
    float frozen[N * D_MOST], hidden[(N + M) * D_MOST], head_input[(N + M) * D_MOST];
    float kept[(N + M) * D_MOST], batch[ENGINE_MAX_BATCH * D_MOST];
    size_t row = sizeof(float) * (size_t)shape.d;
    specrt_error err;
    const float *again;
    engine_cache *c;
    bench b;
    open_bench(&b, shape, 2);
    REQUIRE(engine_drafter_cache(b.d, 64, &c, &err) == SPECRT_STATUS_OK);
    REQUIRE(engine_draft(b.d, c, tokens, NULL, 0, N, NULL, hidden, frozen) == SPECRT_STATUS_OK);
    engine_cache_truncate(c, 0);
    fill(b.values, b.n, 0.2);
    engine_align_swap(b.a);
    engine_capture(c, engine_align_pairs(b.a), batch);
    REQUIRE(engine_draft(b.d, c, tokens, NULL, 0, N, NULL, hidden, head_input) == SPECRT_STATUS_OK);
    CHECK(memcmp(frozen, head_input, N * row) != 0);
    memcpy(kept, batch, N * row);
    engine_keep(c, nodes, N);
    REQUIRE(engine_draft(b.d, c, tokens + N, NULL, 0, M, parents, hidden + N * shape.d,
                         head_input + N * shape.d) == SPECRT_STATUS_OK);
    memcpy(kept + N * shape.d, batch, M * row);
    /* The second child of the tree's root, beside the first, is no row of the path that was kept. */
    const engine_align_rows path = {N + 2, 3, kept, places, seen + 3, seen};
    REQUIRE(engine_align_forward(b.a, &path, &again) == SPECRT_STATUS_OK);
    for (int i = 0; i < 3 * shape.d; i++)
        CHECK_NEAR((double)again[i], (double)head_input[(N - 1) * shape.d + i],
                   1e-4 * (1 + fabs((double)again[i])));
    engine_align_free(b.a), b.a = NULL;
    engine_capture(c, false, NULL);
    engine_cache_truncate(c, 0);
    REQUIRE(engine_draft(b.d, c, tokens, NULL, 0, N, NULL, hidden, head_input) == SPECRT_STATUS_OK);
    CHECK(memcmp(frozen, head_input, N * row) == 0);
    engine_cache_close(c);
    close_bench(&b);
}

TEST(drafting, "captured rows give the states that drafted") {
    for (int i = 0; i < N_SHAPES; i++) run_drafting(shapes[i]);
}

/* ---- gradients ------------------------------------------------------------------------------------- */

/* Two sequences: rows 0 to 4 with a drafted path 5, 6, 7 after four of them; rows 8 to 13 alone. */
static float inputs[N_ROWS * D_MOST];
static const int32_t positions[N_ROWS] = {0, 1, 2, 3, 4, 4, 5, 6, 0, 1, 2, 3, 4, 5};
static const engine_align_query queries[N_QUERIES] = {
    {3, 0, 4, 0, 0}, {5, 0, 4, 5, 1}, {7, 0, 4, 5, 3}, {13, 8, 6, 0, 0}, {9, 8, 2, 0, 0}};
static const engine_align_query all[N_ROWS] = {
    {0, 0, 1, 0, 0},  {1, 0, 2, 0, 0},  {2, 0, 3, 0, 0},  {3, 0, 4, 0, 0}, {4, 0, 5, 0, 0},
    {5, 0, 4, 5, 1},  {6, 0, 4, 5, 2},  {7, 0, 4, 5, 3},  {8, 8, 1, 0, 0}, {9, 8, 2, 0, 0},
    {10, 8, 3, 0, 0}, {11, 8, 4, 0, 0}, {12, 8, 5, 0, 0}, {13, 8, 6, 0, 0}};
static const engine_align_rows rows = {N_ROWS, N_QUERIES, inputs, positions, queries, all};

static double loss_of(bench *b, const float *dh, int d) {
    const float *hidden;
    double sum = 0;
    REQUIRE(engine_align_forward(b->a, &rows, &hidden) == SPECRT_STATUS_OK);
    for (int i = 0; i < N_QUERIES * d; i++) sum += (double)hidden[i] * (double)dh[i];
    return sum;
}

/* Along the gradient of one block the loss rises by the gradient's length. */
static void check_block(bench *b, const float *dh, int d, const float *gradient, int64_t at,
                        int64_t n) {
    const double step = 5e-3;
    float *was = (float *)malloc((size_t)n * sizeof *was);
    double length = 0, losses[2];
    memcpy(was, b->values + at, (size_t)n * sizeof *was);
    for (int64_t i = 0; i < n; i++) length += (double)gradient[at + i] * (double)gradient[at + i];
    length = sqrt(length);
    CHECK(length > 1e-3);
    for (int side = 0; side < 2; side++) {
        double scale = (side ? step : -step) / length;
        for (int64_t i = 0; i < n; i++)
            b->values[at + i] = (float)((double)was[i] + scale * (double)gradient[at + i]);
        losses[side] = loss_of(b, dh, d);
    }
    memcpy(b->values + at, was, (size_t)n * sizeof *was);
    CHECK_NEAR((losses[1] - losses[0]) / (2 * step), length, 1e-2 * length + 2e-3);
    free(was);
}

static void run_gradients(tiny shape) {
    bench b;
    float dh[N_QUERIES * D_MOST];
    int q = shape.heads * shape.d_head, kv = shape.kv_heads * shape.d_head;
    int64_t sizes[] = {RANK * shape.d, RANK * q, RANK * shape.d, RANK * kv}, at = 0;
    open_bench(&b, shape, 2);
    fill(b.values, b.n, 0.2), fill(inputs, N_ROWS * D_MOST, 1), fill(dh, N_QUERIES * D_MOST, 1);
    loss_of(&b, dh, shape.d);
    engine_align_backward(b.a, &rows, dh);
    float *gradient = (float *)malloc((size_t)b.n * sizeof *gradient);
    memcpy(gradient, engine_align_gradients(b.a), (size_t)b.n * sizeof *gradient);
    for (int block = 0; block < 4 * shape.layers; at += sizes[block++ % 4])
        check_block(&b, dh, shape.d, gradient, at, sizes[block % 4]);
    CHECK(at == b.n);
    /* once more behind the same pass: twice as much */
    loss_of(&b, dh, shape.d);
    engine_align_backward(b.a, &rows, dh);
    engine_align_backward(b.a, &rows, dh);
    for (int64_t i = 0; i < b.n; i++)
        CHECK_NEAR((double)engine_align_gradients(b.a)[i], 3 * (double)gradient[i],
                   1e-4 * (1 + fabs((double)gradient[i])));
    free(gradient);
    close_bench(&b);
}

TEST(gradients, "every layer's gradients against differences") {
    for (int i = 0; i < N_SHAPES; i++) run_gradients(shapes[i]);
}

TEST(threads, "the same bytes for any number of threads") {
    static const int threads[] = {1, 2, 5};
    float dh[N_QUERIES * D_MOST], *first = NULL;
    for (int t = 0; t < 3; t++) {
        bench b;
        open_bench(&b, shapes[0], threads[t]);
        fill(b.values, b.n, 0.2), fill(inputs, N_ROWS * D_MOST, 1), fill(dh, N_QUERIES * D_MOST, 1);
        loss_of(&b, dh, shapes[0].d);
        engine_align_backward(b.a, &rows, dh);
        CHECK(engine_align_step(b.a, 0.5f));
        size_t n_bytes = (size_t)b.n * sizeof *first;
        if (t == 0) memcpy(first = (float *)malloc(n_bytes), b.values, n_bytes);
        CHECK(memcmp(first, b.values, n_bytes) == 0);
        close_bench(&b);
    }
    free(first);
}

/* ---- files ----------------------------------------------------------------------------------------- */

/* Adapters have the checkpoint's order of rows: of a head [d_head] first all x of the rotation's pairs x, y,
 * then all y. A GGUF's Llama has x and y of a pair side by side; the others have the checkpoint's order. */
static void run_file(tiny shape) {
    const char *path = in_folder("s.safetensors");
    char name[96];
    bool adjacent = strcmp(shape.arch, "llama") == 0;
    int q = shape.heads * shape.d_head, half = shape.d_head / 2;
    int64_t layer = RANK * (2 * shape.d + q + shape.kv_heads * shape.d_head);
    specrt_error err = {0};
    bench b;
    st *s;
    open_bench(&b, shape, 1);
    fill(b.values, b.n, 1);
    size_t n_bytes = (size_t)b.n * sizeof *b.values;
    float *saved = (float *)malloc(n_bytes);
    memcpy(saved, b.values, n_bytes);
    REQUIRE(engine_align_save(b.a, path, false, &err) == SPECRT_STATUS_OK);
    REQUIRE(sl_st_open(path, &s, &err) == SPECRT_STATUS_OK);
    for (int l = 0; l < shape.layers; l++) {
        snprintf(name, sizeof name,
                 "base_model.model.model.layers.%d.self_attn.q_proj.lora_B.weight", l);
        const st_tensor *t = sl_st_find(s, name);
        REQUIRE(t && t->n_dims == 2 && t->shape[0] == q && t->shape[1] == RANK);
        const float *rows_q = saved + l * layer + RANK * shape.d;
        for (int row = 0; row < q; row++) {
            int in_head = row % shape.d_head, pair = in_head % half, y = in_head / half;
            int at = adjacent ? row - in_head + 2 * pair + y : row;
            CHECK(memcmp(t->data + sizeof(float) * (size_t)(row * RANK), rows_q + at * RANK,
                         sizeof(float) * RANK) == 0);
        }
    }
    sl_st_close(s);
    fill(b.values, b.n, 1);
    REQUIRE(engine_align_load(b.a, path, &err) == SPECRT_STATUS_OK);
    CHECK(memcmp(saved, b.values, n_bytes) == 0);
    free(saved);
    close_bench(&b);
    clear_folder();
}

TEST(files, "adapters in the checkpoint's order of rows") {
    for (int i = 0; i < N_SHAPES; i++) run_file(shapes[i]);
}

/* ---- refusals -------------------------------------------------------------------------------------- */

static void refuse(tiny shape, engine_align_params params, const char *says) {
    specrt_error err = {0};
    engine_align *a;
    bench b;
    open_bench(&b, shapes[1], 1);
    engine_align_free(b.a), b.a = NULL;
    engine_drafter_close(b.d);
    free_tiny(&b.files[1]);
    make_tiny(&b.files[1], shape, 3);
    const char *path = write_tiny(&b.files[1], NULL);
    REQUIRE(engine_drafter_open(path, b.target, &b.d, &err) == SPECRT_STATUS_OK);
    unlink(path);
    CHECK_INT(engine_align_create(b.d, &params, NULL, &a, &err), SPECRT_STATUS_UNSUPPORTED);
    CHECK_HAS(err.msg, says);
    CHECK(a == NULL);
    close_bench(&b);
}

TEST(refused, "what cannot be aligned") {
    static const tiny gemma = {
        "gemma3",      7,           24,         4, 2, 16, 40, 37, .tied = true, .normed = true,
        .gemma = true, .window = 5, .period = 3};
    engine_align_params full = lora;
    full.mode = ENGINE_ALIGN_FULL;
    refuse(shapes[0], full, "alignment of all parameters: expected an EAGLE");
    refuse(gemma, lora, "alignment: expected an EAGLE head, or a drafter with layers as");
}
