/* test_align_layer.c : the backward pass of an EAGLE head's layer against central differences of a scalar
 * oracle in double, LoRA and all parameters; then the optimiser, threads, what drafts, and snapshots. */
#include "engine/train/align.h"
#include "../model/st_build.h"

/* A small layer on the sample's target, whose width it must have. */
enum { D = 256, HEADS = 4, KV = 2, HEAD = 8, FFN = 24, Q = HEADS * HEAD, K = KV * HEAD };
enum { IN_MOST = 2 * D, RANK = 3, N_ROWS = 14, N_QUERIES = 5 };
static const double epsilon = 1e-5, base = 10000;

static uint64_t random_state = 88172645463325252u;
static double random_real(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (double)(random_state >> 11) / 9007199254740992.0;
}
static void fill(float *x, int64_t n, double middle, double width) {
    for (int64_t i = 0; i < n; i++) x[i] = (float)(middle + width * (random_real() - 0.5));
}

/* ---- a head -------------------------------------------------------------------------------------- */

typedef struct weights {
    bool eagle3;
    int in;
    float q[Q * IN_MOST], k[K * IN_MOST], v[K * IN_MOST], o[D * Q];
    float gate[FFN * D], up[FFN * D], down[D * FFN], norm[D], fc[D * 3 * D], bias[D];
    float embedding_norm[D], feature_norm[D], final_norm[D], head[4 * D];
} weights;

static void make_weights(weights *w, bool eagle3) {
    w->eagle3 = eagle3;
    w->in = eagle3 ? 2 * D : D;
    fill(w->q, Q * w->in, 0, 0.3), fill(w->k, K * w->in, 0, 0.3), fill(w->v, K * w->in, 0, 0.3);
    fill(w->o, D * Q, 0, 0.5), fill(w->gate, FFN * D, 0, 0.3), fill(w->up, FFN * D, 0, 0.3);
    fill(w->down, D * FFN, 0, 0.5), fill(w->norm, D, 1, 0.5), fill(w->bias, D, 0, 0.2);
    fill(w->fc, D * 3 * D, 0, 0.1), fill(w->final_norm, D, 1, 0.5), fill(w->head, 4 * D, 0, 1);
    fill(w->embedding_norm, D, 1, 0.5), fill(w->feature_norm, D, 1, 0.5);
}

typedef struct named {
    const char *name;
    const float *data;
    int64_t n_rows, n_cols; /* n_rows 0: a vector */
} named;

static void write_tensors(const char *name, const named *list, int n) {
    static int64_t d2t[4] = {5, 100, 1000, 9000};
    st_tensor tensors[24];
    for (int i = 0; i < n; i++) {
        int64_t rows = list[i].n_rows ? list[i].n_rows : 1;
        tensors[i] = (st_tensor){.name = list[i].name,
                                 .dtype = "F32",
                                 .n_dims = list[i].n_rows ? 2 : 1,
                                 .shape = {list[i].n_rows ? rows : list[i].n_cols, list[i].n_cols},
                                 .data = (const uint8_t *)list[i].data,
                                 .bytes = (size_t)(rows * list[i].n_cols) * 4};
        if (strcmp(list[i].name, "d2t") == 0)
            tensors[i] = (st_tensor){"d2t", "I64", 1, {4}, (const uint8_t *)d2t, sizeof d2t};
    }
    put_st(name, tensors, n);
}

static const char *write_head(const weights *w) {
    static const char config[] =
        "{\"hidden_size\": 256, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
        "\"head_dim\": 8, "
        "\"intermediate_size\": 24, \"rms_norm_eps\": 1e-05, \"rope_theta\": 10000.0}";
    named list[16] = {{"layers.0.self_attn.q_proj.weight", w->q, Q, w->in},
                      {"layers.0.self_attn.k_proj.weight", w->k, K, w->in},
                      {"layers.0.self_attn.v_proj.weight", w->v, K, w->in},
                      {"layers.0.self_attn.o_proj.weight", w->o, D, Q},
                      {"layers.0.mlp.gate_proj.weight", w->gate, FFN, D},
                      {"layers.0.mlp.up_proj.weight", w->up, FFN, D},
                      {"layers.0.mlp.down_proj.weight", w->down, D, FFN},
                      {"layers.0.post_attention_layernorm.weight", w->norm, 0, D},
                      {"fc.weight", w->fc, D, (w->eagle3 ? 3 : 2) * D}};
    int n = 9;
    if (!w->eagle3) list[n++] = (named){"fc.bias", w->bias, 0, D};
    if (w->eagle3) {
        list[n++] = (named){"layers.0.input_layernorm.weight", w->embedding_norm, 0, D};
        list[n++] = (named){"layers.0.hidden_norm.weight", w->feature_norm, 0, D};
        list[n++] = (named){"norm.weight", w->final_norm, 0, D};
        list[n++] = (named){"lm_head.weight", w->head, 4, D};
        list[n++] = (named){"d2t", NULL, 0, 4};
    }
    write_tensors("draft.safetensors", list, n);
    put_json("config.json", config);
    return in_folder("draft.safetensors");
}

typedef struct bench {
    weights w;
    engine_model *target;
    engine_drafter *d;
    engine_align *a;
    engine_align_params params;
} bench;

static void open_bench(bench *b, bool eagle3, engine_align_params params, parallel_pool *pool) {
    specrt_error err = {0};
    make_weights(&b->w, eagle3);
    b->params = params;
    REQUIRE(engine_open("data/sample/target.gguf", 2, &b->target, &err) == SPECRT_STATUS_OK);
    specrt_status status = engine_drafter_open(write_head(&b->w), b->target, &b->d, &err);
    if (status) fprintf(stderr, "%s\n", err.msg);
    REQUIRE(status == SPECRT_STATUS_OK);
    REQUIRE(engine_align_create(b->d, &params, pool, &b->a, &err) == SPECRT_STATUS_OK);
}

static void close_bench(bench *b) {
    engine_align_free(b->a);
    engine_drafter_close(b->d);
    engine_close(b->target);
    clear_folder();
}

static const engine_align_params lora = {.rank = RANK, .alpha = 5, .rate = 1e-3f, .clip = 1};
static const engine_align_params full = {.mode = ENGINE_ALIGN_FULL, .rate = 1e-3f, .clip = 1};

/* ---- the oracle ---------------------------------------------------------------------------------- */

/* Parameters in double: what is frozen, and in `trained` what engine_align_masters() holds. */
typedef struct oracle {
    const weights *w;
    const engine_align_params *p;
    const double *trained;
    double x[N_ROWS][IN_MOST], k[N_ROWS][K], v[N_ROWS][K], fused[N_ROWS][D];
} oracle;

/* A trained block in the order of the masters. @return NULL: this one is frozen. */
static const double *trained(const oracle *o, int block) {
    const int in = o->w->in, features = o->w->eagle3 ? 3 * D : 2 * D, bias = o->w->eagle3 ? 0 : D;
    const int sizes[] = {Q * in,  K * in, K * in,       D * Q, FFN * D, FFN * D,
                         D * FFN, D,      D * features, bias,  D,       D};
    int64_t from = 0;
    if (o->p->mode != ENGINE_ALIGN_FULL) return NULL;
    for (int i = 0; i < block; i++) from += sizes[i];
    return o->trained + from;
}

static void product(const oracle *o, int block, const float *frozen, int n_rows, int n_cols,
                    const double *x, double *y) {
    const double *mine = trained(o, block);
    for (int v = 0; v < n_rows; v++) {
        y[v] = 0;
        for (int c = 0; c < n_cols; c++)
            y[v] += (mine ? mine[v * n_cols + c] : (double)frozen[v * n_cols + c]) * x[c];
    }
}

/* y += scale B (A x); block 0: of queries, 1: of values. */
static void adapt(const oracle *o, int block, const double *x, int n_rows, double *y) {
    int in = o->w->in, q = RANK * in + Q * RANK;
    const double *a = o->trained + block * q, *b = a + RANK * in;
    double low[RANK];
    if (o->p->mode == ENGINE_ALIGN_FULL) return;
    for (int r = 0; r < RANK; r++) {
        low[r] = 0;
        for (int c = 0; c < in; c++) low[r] += a[r * in + c] * x[c];
    }
    for (int v = 0; v < n_rows; v++)
        for (int r = 0; r < RANK; r++)
            y[v] += (double)o->p->alpha / RANK * b[v * RANK + r] * low[r];
}

static void norm(const double *x, const float *frozen, const double *mine, double *y) {
    double sum = 0;
    for (int i = 0; i < D; i++) sum += x[i] * x[i];
    for (int i = 0; i < D; i++)
        y[i] = x[i] / sqrt(sum / D + epsilon) * (mine ? mine[i] : (double)frozen[i]);
}

static void rotate(double *row, int n, int position) {
    for (int h = 0; h < n; h++)
        for (int i = 0; i < HEAD / 2; i++) {
            /* as f32 frequencies have it */
            double angle = position * (double)(float)pow(base, -2.0 * i / HEAD);
            double x = row[h * HEAD + i], y = row[h * HEAD + i + HEAD / 2];
            row[h * HEAD + i] = x * cos(angle) - y * sin(angle);
            row[h * HEAD + i + HEAD / 2] = x * sin(angle) + y * cos(angle);
        }
}

/* The layer's input from what fc and EAGLE-3's norms read: embedding and features side by side. */
static void oracle_fuse(const oracle *o, const double *kept, double *fused, double *x) {
    bool eagle3 = o->w->eagle3;
    product(o, 8, NULL, D, (eagle3 ? 3 : 2) * D, kept + (eagle3 ? D : 0), fused);
    for (int c = 0; !eagle3 && c < D; c++) x[c] = fused[c] += trained(o, 9)[c];
    if (!eagle3) return;
    norm(kept, NULL, trained(o, 10), x);
    norm(fused, NULL, trained(o, 11), x + D);
}

static void oracle_inputs(oracle *o, const engine_align_rows *rows) {
    int in = o->w->in, width = o->w->eagle3 ? 3 * D : D;
    bool fuses = o->p->mode == ENGINE_ALIGN_FULL;
    if (fuses) width += D;
    for (int i = 0; i < rows->n; i++) {
        double kept[4 * D];
        for (int c = 0; c < width; c++) kept[c] = (double)rows->inputs[i * width + c];
        memcpy(o->x[i], kept, sizeof o->x[i]);
        if (fuses) oracle_fuse(o, kept, o->fused[i], o->x[i]);
        product(o, 1, o->w->k, K, in, o->x[i], o->k[i]);
        product(o, 2, o->w->v, K, in, o->x[i], o->v[i]);
        adapt(o, 1, o->x[i], K, o->v[i]);
        rotate(o->k[i], KV, rows->positions[i]);
    }
}

static int seen_row(const engine_align_query *q, int i) {
    return i < q->n ? q->first + i : q->path + i - q->n;
}

static void attend(const oracle *o, const engine_align_query *query, const double *q, double *out) {
    int n = query->n + query->n_path;
    for (int h = 0; h < HEADS; h++) {
        int kv = h / (HEADS / KV) * HEAD;
        double weight[N_ROWS], sum = 0;
        for (int i = 0; i < n; i++) {
            weight[i] = 0;
            for (int c = 0; c < HEAD; c++)
                weight[i] += q[h * HEAD + c] * o->k[seen_row(query, i)][kv + c];
            sum += weight[i] = exp(weight[i] / sqrt((double)HEAD));
        }
        for (int c = 0; c < HEAD; c++) out[h * HEAD + c] = 0;
        for (int i = 0; i < n; i++)
            for (int c = 0; c < HEAD; c++)
                out[h * HEAD + c] += weight[i] / sum * o->v[seen_row(query, i)][kv + c];
    }
}

static void oracle_query(const oracle *o, const engine_align_rows *rows, int m, double *out) {
    const engine_align_query *query = &rows->queries[m];
    double q[Q], mixed[Q], h[D], normed[D], gate[FFN], up[FFN], added[D];
    int in = o->w->in;
    product(o, 0, o->w->q, Q, in, o->x[query->row], q);
    adapt(o, 0, o->x[query->row], Q, q);
    rotate(q, HEADS, rows->positions[query->row]);
    attend(o, query, q, mixed);
    product(o, 3, o->w->o, D, Q, mixed, h);
    for (int c = 0; c < D; c++)
        h[c] += o->p->mode == ENGINE_ALIGN_FULL ? o->fused[query->row][c]
                : o->w->eagle3 ? (double)rows->inputs[query->row * 3 * D + 2 * D + c]
                               : o->x[query->row][c];
    norm(h, o->w->norm, trained(o, 7), normed);
    product(o, 4, o->w->gate, FFN, D, normed, gate);
    product(o, 5, o->w->up, FFN, D, normed, up);
    for (int i = 0; i < FFN; i++) gate[i] *= up[i] / (1 + exp(-gate[i]));
    product(o, 6, o->w->down, D, FFN, gate, added);
    for (int c = 0; c < D; c++) out[c] = h[c] + added[c];
    if (!o->w->eagle3) return;
    memcpy(h, out, sizeof h);
    norm(h, o->w->final_norm, trained(o, 12), out);
}

/* The loss is dh . hidden, so that its gradient with respect to hidden is dh. */
static double oracle_loss(oracle *o, const engine_align_rows *rows, const float *dh,
                          double hidden[N_QUERIES][D]) {
    double loss = 0;
    oracle_inputs(o, rows);
    for (int m = 0; m < rows->n_queries; m++) {
        oracle_query(o, rows, m, hidden[m]);
        for (int c = 0; c < D; c++) loss += (double)dh[m * D + c] * hidden[m][c];
    }
    return loss;
}

/* ---- gradients ----------------------------------------------------------------------------------- */

/* Two sequences: rows 0 to 4 with a drafted path 5, 6, 7 after four of them; rows 8 to 13 alone. Paths of
 * one and of three rows, committed rows at an end and before it. */
static float inputs[N_ROWS * 4 * D];
static const int32_t positions[N_ROWS] = {0, 1, 2, 3, 4, 4, 5, 6, 10, 11, 12, 13, 14, 15};
static const engine_align_query queries[N_QUERIES] = {
    {3, 0, 4, 0, 0}, {5, 0, 4, 5, 1}, {7, 0, 4, 5, 3}, {13, 8, 6, 0, 0}, {9, 8, 2, 0, 0}};
static const engine_align_rows rows = {N_ROWS, N_QUERIES, inputs, positions, queries, NULL};

static void check_gradients(bench *b, const float *dh, double *masters, int64_t n) {
    static oracle o;
    double hidden[N_QUERIES][D];
    const float *g = engine_align_gradients(b->a);
    o = (oracle){.w = &b->w, .p = &b->params, .trained = masters};
    int n_checked = 0;
    for (int64_t i = 0; i < n; i += 1 + (int64_t)(random_real() * (double)n / 200)) {
        const double step = 1e-5, was = masters[i];
        masters[i] = was + step;
        double up = oracle_loss(&o, &rows, dh, hidden);
        masters[i] = was - step;
        double slope = (up - oracle_loss(&o, &rows, dh, hidden)) / (2 * step);
        masters[i] = was;
        CHECK_NEAR((double)g[i], slope, 2e-4 * fabs(slope) + 2e-4);
        n_checked++;
    }
    CHECK(n_checked > 100);
}

/* Forward and backward against the oracle. */
static void run_gradients(bool eagle3, const engine_align_params *params) {
    static bench b;
    static oracle o;
    float dh[N_QUERIES * D];
    double expected[N_QUERIES][D], length = 0;
    const float *hidden;
    int64_t n;
    open_bench(&b, eagle3, *params, NULL);
    float *values = engine_align_masters(b.a, &n);
    double *masters = (double *)malloc((size_t)n * sizeof *masters);
    if (params->mode == ENGINE_ALIGN_LORA) fill(values, n, 0, 0.3);
    fill(inputs, N_ROWS * 4 * D, 0, 2), fill(dh, N_QUERIES * D, 0, 2);
    for (int64_t i = 0; i < n; i++) masters[i] = (double)values[i];
    REQUIRE(engine_align_forward(b.a, &rows, &hidden) == SPECRT_STATUS_OK);
    o = (oracle){.w = &b.w, .p = &b.params, .trained = masters};
    oracle_loss(&o, &rows, dh, expected);
    for (int i = 0; i < N_QUERIES * D; i++)
        CHECK_NEAR((double)hidden[i], expected[i / D][i % D],
                   1e-5 * (1 + fabs(expected[i / D][i % D])));
    engine_align_backward(b.a, &rows, dh);
    check_gradients(&b, dh, masters, n);
    for (int64_t i = 0; i < n; i++) length += fabs((double)engine_align_gradients(b.a)[i]);
    CHECK(length / (double)n > 1e-3);
    free(masters);
    close_bench(&b);
}

TEST(lora, "LoRA's gradients against differences in double, EAGLE-1/2 and 3") {
    run_gradients(false, &lora);
    run_gradients(true, &lora);
}
TEST(full, "all parameters' gradients against differences in double") {
    run_gradients(false, &full);
    if (!test_quick()) run_gradients(true, &full);
}

/* Gradients of one batch by pools of other sizes, bit for bit; and added up over two passes. */
TEST(threads, "the same bytes for any number of threads") {
    static const int threads[] = {1, 2, 5};
    static bench b;
    float dh[N_QUERIES * D], *first = NULL;
    const float *hidden;
    fill(inputs, N_ROWS * 3 * D, 0, 2), fill(dh, N_QUERIES * D, 0, 2);
    for (int mode = 0; mode < 2; mode++)
        for (int t = 0; t < 3; t++) {
            int64_t n;
            parallel_pool *pool = sl_parallel_pool_create(threads[t]);
            random_state = 7;
            open_bench(&b, false, mode ? full : lora, pool);
            float *values = engine_align_masters(b.a, &n);
            size_t bytes = (size_t)n * sizeof(float);
            if (!mode) fill(values, n, 0, 0.3);
            REQUIRE(engine_align_forward(b.a, &rows, &hidden) == SPECRT_STATUS_OK);
            engine_align_backward(b.a, &rows, dh);
            engine_align_backward(b.a, &rows, dh);
            engine_align_step(b.a, 0.5f);
            if (t == 0) memcpy(first = (float *)realloc(first, bytes), values, bytes);
            CHECK(memcmp(first, values, bytes) == 0);
            close_bench(&b);
            sl_parallel_pool_free(pool);
        }
    free(first);
}

/* ---- the optimiser ------------------------------------------------------------------------------- */

static void run_optimiser(engine_optimiser kind, float clip) {
    static bench b;
    engine_align_params params = lora;
    float dh[N_QUERIES * D];
    const float *hidden;
    int64_t n;
    params.optimiser = kind, params.clip = clip, params.rate = 0.01f;
    open_bench(&b, false, params, NULL);
    float *values = engine_align_masters(b.a, &n);
    double *x = (double *)calloc((size_t)n * 4, sizeof *x), *m = x + n, *v = m + n, *g = v + n;
    fill(values, n, 0, 0.3);
    float *start = (float *)malloc((size_t)n * sizeof *start);
    memcpy(start, values, (size_t)n * sizeof *start);
    for (int round = 0, t = 1; round < 6; round++, t++) {
        double length = 0;
        if (round == 3) engine_align_restart(b.a, start), t = 1;
        for (int64_t i = 0; t == 1 && i < n; i++) x[i] = (double)start[i], m[i] = v[i] = 0;
        fill(inputs, N_ROWS * 3 * D, 0, 2), fill(dh, N_QUERIES * D, 0, 2);
        REQUIRE(engine_align_forward(b.a, &rows, &hidden) == SPECRT_STATUS_OK);
        engine_align_backward(b.a, &rows, dh);
        for (int64_t i = 0; i < n; i++) g[i] = 0.5 * (double)engine_align_gradients(b.a)[i];
        for (int64_t i = 0; i < n; i++) length += g[i] * g[i];
        length = sqrt(length);
        for (int64_t i = 0; i < n; i++) {
            if (clip > 0 && length > (double)clip) g[i] *= (double)clip / length;
            m[i] = 0.9 * m[i] + 0.1 * g[i];
            v[i] = 0.999 * v[i] + 0.001 * g[i] * g[i];
            x[i] -= 0.01 * (kind == ENGINE_SGD ? g[i]
                                               : m[i] / (1 - pow(0.9, t)) /
                                                     (sqrt(v[i] / (1 - pow(0.999, t))) + 1e-8));
        }
        CHECK(engine_align_step(b.a, 0.5f));
        for (int64_t i = 0; i < n; i += 7) CHECK_NEAR((double)values[i], x[i], 2e-5);
        CHECK(engine_align_gradients(b.a)[0] == 0);
    }
    free(x), free(start);
    close_bench(&b);
}

TEST(optimiser, "AdamW and plain descent against their formulas") {
    run_optimiser(ENGINE_ADAMW, 0);
    run_optimiser(ENGINE_ADAMW, 0.1f);
    run_optimiser(ENGINE_SGD, 0);
    run_optimiser(ENGINE_SGD, 0.5f);
}

TEST(not_finite, "a gradient that is not finite makes no step, and is gone afterwards") {
    static bench b;
    float dh[N_QUERIES * D];
    const float *hidden;
    int64_t n;
    open_bench(&b, false, lora, NULL);
    float *values = engine_align_masters(b.a, &n), before = values[5];
    fill(inputs, N_ROWS * 3 * D, 0, 2), fill(dh, N_QUERIES * D, 0, 2);
    dh[3] = NAN;
    REQUIRE(engine_align_forward(b.a, &rows, &hidden) == SPECRT_STATUS_OK);
    engine_align_backward(b.a, &rows, dh);
    CHECK(!engine_align_step(b.a, 1));
    CHECK(values[5] == before);
    dh[3] = 0;
    engine_align_backward(b.a, &rows, dh);
    CHECK(engine_align_step(b.a, 1));
    for (int64_t i = 0; i < n; i++) CHECK(isfinite(values[i]));
    close_bench(&b);
}

/* ---- what drafts --------------------------------------------------------------------------------- */

/* A chain of four kept, then a tree of three rows; what was captured gives the same states again. */
static void run_drafting(bool eagle3, engine_align_params params) {
    enum { N = 4, M = 3 };
    static bench b;
    static const int32_t tokens[N + M] = {100, 2000, 31, 7, 77, 500, 501}, nodes[N] = {0, 1, 2, 3};
    static const int32_t parents[M] = {-1, 0, 0};
    static const engine_align_query drawn[3] = {{3, 0, 4, 0, 0}, {4, 0, 4, 4, 1}, {5, 0, 4, 4, 2}};
    static const int32_t places[N + M] = {0, 1, 2, 3, 4, 5, 5};
    float features[(N + M) * 3 * D], hidden[(N + M) * D], draft_input[(N + M) * D];
    float kept[ENGINE_MAX_BATCH * 4 * D], batch[ENGINE_MAX_BATCH * 4 * D];
    specrt_error err;
    engine_cache *c;
    const float *again;
    int64_t n;
    open_bench(&b, eagle3, params, NULL);
    float *values = engine_align_masters(b.a, &n);
    int32_t width = engine_align_width(b.a), feature = eagle3 ? 3 * D : D;
    fill(features, (N + M) * 3 * D, 0, 1);
    fill(values, params.mode == ENGINE_ALIGN_LORA ? n : 0, 0, 0.4);
    REQUIRE(engine_drafter_cache(b.d, 64, &c, &err) == SPECRT_STATUS_OK);
    engine_align_swap(b.a);
    engine_capture(c, engine_align_pairs(b.a), batch);
    REQUIRE(engine_draft(b.d, c, tokens, features, feature, N, NULL, hidden, draft_input) == 0);
    memcpy(kept, batch, sizeof(float) * (size_t)(N * width));
    engine_keep(c, nodes, N);
    bool own = eagle3 && !engine_align_pairs(b.a); /* features of the drafter's own */
    REQUIRE(engine_draft(b.d, c, tokens + N, features + N * feature, own ? D : feature, M, parents,
                         hidden + N * D, draft_input + N * D) == 0);
    memcpy(kept + N * width, batch, sizeof(float) * (size_t)(M * width));
    const engine_align_rows all = {N + M, 3, kept, places, drawn, NULL};
    REQUIRE(engine_align_forward(b.a, &all, &again) == SPECRT_STATUS_OK);
    for (int m = 0; m < 3; m++)
        for (int i = 0; i < D; i++)
            CHECK_NEAR((double)again[m * D + i], (double)draft_input[(N - 1 + m) * D + i],
                       1e-4 * (1 + fabs((double)again[m * D + i])));
    engine_cache_close(c);
    close_bench(&b);
}

TEST(drafting, "captured rows give the states that drafted") {
    run_drafting(false, lora);
    run_drafting(true, lora);
    run_drafting(false, full);
    run_drafting(true, full);
}

TEST(swap, "drafts change at a swap only, and are the drafter's own again in the end") {
    static const int32_t token = 100;
    for (int mode = 0; mode < 2; mode++) {
        static bench b;
        float feature[D], hidden[4][D], draft_input[D];
        specrt_error err;
        engine_cache *c;
        int64_t n;
        open_bench(&b, false, mode ? full : lora, NULL);
        fill(feature, D, 0, 1);
        float *values = engine_align_masters(b.a, &n);
        REQUIRE(engine_drafter_cache(b.d, 64, &c, &err) == SPECRT_STATUS_OK);
        for (int i = 0; i < 4; i++) {
            if (i == 1) fill(values, n, 0, 0.5);
            if (i == 2) engine_align_swap(b.a);
            if (i == 3) engine_align_free(b.a), b.a = NULL;
            engine_cache_truncate(c, 0);
            REQUIRE(engine_draft(b.d, c, &token, feature, D, 1, NULL, hidden[i], draft_input) == 0);
        }
        CHECK(memcmp(hidden[0], hidden[1], sizeof hidden[0]) == 0);
        CHECK(memcmp(hidden[0], hidden[2], sizeof hidden[0]) != 0);
        CHECK(memcmp(hidden[0], hidden[3], sizeof hidden[0]) == 0);
        engine_cache_close(c);
        close_bench(&b);
    }
}

/* ---- snapshots ----------------------------------------------------------------------------------- */

static void refuse(bench *b, const char *path, const char *says) {
    specrt_error err = {0};
    int64_t n;
    float before = engine_align_masters(b->a, &n)[1];
    CHECK(engine_align_load(b->a, path, &err) != SPECRT_STATUS_OK);
    CHECK_HAS(err.msg, says);
    CHECK(engine_align_masters(b->a, &n)[1] == before);
}

static void run_snapshot(engine_align_params params) {
    static bench b;
    static weights other;
    specrt_error err = {0};
    int64_t n;
    open_bench(&b, false, params, NULL);
    float *values = engine_align_masters(b.a, &n);
    float *saved = (float *)malloc((size_t)n * sizeof *saved);
    fill(values, n, 0, 1);
    memcpy(saved, values, (size_t)n * sizeof *saved);
    REQUIRE(engine_align_save(b.a, in_folder("s.safetensors"), false, &err) == SPECRT_STATUS_OK);
    CHECK(engine_align_save(b.a, in_folder("s.safetensors"), false, &err) == SPECRT_STATUS_BAD_ARG);
    fill(values, n, 0, 1);
    REQUIRE(engine_align_load(b.a, in_folder("s.safetensors"), &err) == SPECRT_STATUS_OK);
    CHECK(memcmp(saved, values, (size_t)n * sizeof *saved) == 0);
    refuse(&b, in_folder("config.json"), "config.json");
    refuse(&b, in_folder("none.safetensors"), "none.safetensors");
    refuse(&b, in_folder("draft.safetensors"), params.mode == ENGINE_ALIGN_LORA ? "lora_A" : "");
    engine_align_free(b.a);
    params.alpha = 7;
    REQUIRE(engine_align_create(b.d, &params, NULL, &b.a, &err) == SPECRT_STATUS_OK);
    refuse(&b, in_folder("s.safetensors"), "lora_alpha");
    engine_align_free(b.a);
    engine_drafter_close(b.d);
    make_weights(&other, false);
    REQUIRE(engine_drafter_open(write_head(&other), b.target, &b.d, &err) == SPECRT_STATUS_OK);
    REQUIRE(engine_align_create(b.d, &params, NULL, &b.a, &err) == SPECRT_STATUS_OK);
    refuse(&b, in_folder("s.safetensors"), "is of another drafter; expected digest");
    free(saved);
    close_bench(&b);
}

TEST(snapshot, "adapters come back; another drafter's are refused") {
    run_snapshot(lora);
}

TEST(eagle3_snapshot, "EAGLE-3's norms come back as well") {
    static bench b;
    specrt_error err = {0};
    int64_t n;
    st *s;
    open_bench(&b, true, full, NULL);
    float *values = engine_align_masters(b.a, &n),
          *saved = (float *)malloc((size_t)n * sizeof *saved);
    fill(values, n, 0, 1);
    memcpy(saved, values, (size_t)n * sizeof *saved);
    REQUIRE(engine_align_save(b.a, in_folder("t.safetensors"), false, &err) == SPECRT_STATUS_OK);
    REQUIRE(sl_st_open(in_folder("t.safetensors"), &s, &err) == SPECRT_STATUS_OK);
    const st_tensor *t = sl_st_find(s, "norm.weight");
    REQUIRE(t && t->n_dims == 1 && t->shape[0] == D);
    CHECK(memcmp(t->data, saved + n - D, D * sizeof *saved) == 0);
    CHECK(sl_st_find(s, "layers.0.hidden_norm.weight") != NULL);
    sl_st_close(s);
    fill(values, n, 0, 1);
    REQUIRE(engine_align_load(b.a, in_folder("t.safetensors"), &err) == SPECRT_STATUS_OK);
    CHECK(memcmp(saved, values, (size_t)n * sizeof *saved) == 0);
    free(saved);
    close_bench(&b);
}

TEST(full_snapshot, "all parameters are a drafter of its own") {
    static bench b;
    specrt_error err = {0};
    engine_drafter *again;
    engine_align *a;
    int64_t n, m;
    open_bench(&b, false, full, NULL);
    float *values = engine_align_masters(b.a, &n);
    fill(values, n, 0, 1);
    REQUIRE(engine_align_save(b.a, in_folder("t.safetensors"), false, &err) == SPECRT_STATUS_OK);
    specrt_status status = engine_drafter_open(in_folder("t.safetensors"), b.target, &again, &err);
    if (status) fprintf(stderr, "%s\n", err.msg);
    REQUIRE(status == SPECRT_STATUS_OK);
    REQUIRE(engine_align_create(again, &full, NULL, &a, &err) == SPECRT_STATUS_OK);
    const float *loaded = engine_align_masters(a, &m);
    CHECK(m == n && memcmp(loaded, values, (size_t)n * sizeof *values) == 0);
    engine_align_free(a);
    engine_drafter_close(again);
    close_bench(&b);
}

TEST(refused, "what cannot be aligned") {
    static bench b;
    specrt_error err = {0};
    engine_align *a;
    engine_align_params bad = lora;
    open_bench(&b, true, lora, NULL);
    engine_align_free(b.a);
    b.a = NULL;
    bad.rank = FFN + 1;
    CHECK_INT(engine_align_create(b.d, &bad, NULL, &a, &err), SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(err.msg, "rank: expected 1 to 24, found 25");
    bad = lora, bad.rate = NAN;
    CHECK_INT(engine_align_create(b.d, &bad, NULL, &a, &err), SPECRT_STATUS_BAD_ARG);
    close_bench(&b);
}
