/* gpu_session.h : batches of sequences on the device and their twins, sessions of the CPU, cycle by cycle,
 * called one by one or replayed as a graph. The models are bigrams made of the library's own kernels, so that
 * they run on the device: a state is a row of a table, by token. SESSION_V: the vocabulary's size. */
#ifndef TESTS_GPU_SESSION_H
#define TESTS_GPU_SESSION_H

#include "specrt_tools.h"
#include "decode/session.h"
#include "cuda/kernels.h"
#include "quantise.h"
#include "gpu.h"

extern int harness_launches[2] __attribute__((weak)); /* the harness's; not on a GPU */

#ifndef SESSION_V
#define SESSION_V 150
#endif
enum {
    V = SESSION_V,
    D = 32,
    N_PROMPT = 7,
    MAX_PROMPT = 600,
    MAX_BATCH = 64,
    TOPK = 16,
    NODES = 10
};

/* --- the models --- */

/* States f32 [V, D] after each token: the drafter's, and the target's. */
static float draft_table[V * D], target_table[V * D];
static uint16_t head_rows[V * D];
static uint8_t head_blocks[V * D / 32 * 34]; /* the same as q8_0 */
static float bias[V];
static uint8_t embedding[V * 34]; /* q8_0, 32 columns */
static specrt_bundle *bundle;
static specrt_head *head;
static int32_t n_vocab = V; /* tokens are below it; the columns after them are padding */

/* A multiple of 1/16, roughly normal. Sums of products of such numbers are exact, whatever their order. */
static inline float draw_sixteenths(uint64_t *state, float deviation) {
    return roundf(16 * deviation * fixture_normal(state)) / 16;
}

/* The target's state is the drafter's, disturbed, and meets the same rows. */
static inline void make_tables(void) {
    static float rows[V * D];
    uint64_t state = gpu_seed(77);
    for (int i = 0; i < V * D; i++) {
        rows[i] = draw_sixteenths(&state, 1);
        draft_table[i] = draw_sixteenths(&state, 0.5f);
        target_table[i] = draft_table[i] + draw_sixteenths(&state, 0.07f);
    }
    specrt_to_f16(rows, V * D, head_rows);
    quantise_row(SPECRT_DTYPE_Q8_0, rows, V * D, head_blocks);
    for (int i = 0; i < V; i++) bias[i] = draw_sixteenths(&state, 0.3f);
    for (int i = 0; i < V; i++)
        quantise_row(SPECRT_DTYPE_Q8_0, rows + i * D / 2, 32, embedding + i * 34);
}

/* A router of a kind over clusters of the head. */
static inline uint8_t *make_router(specrt_router_kind kind, size_t *n) {
    specrt_clusters_header h = fixture_router((int32_t)kind, V, D, 10 + V / 64, 2);
    h.softmax = kind == SPECRT_ROUTER_CORAL;
    if (kind == SPECRT_ROUTER_DYNASPEC) h.n_hidden = 8, h.n_embed = 32;
    if (kind == SPECRT_ROUTER_CORAL) h.n_hidden = D;
    return fixture_clusters(h, NULL, gpu_seed(40) + (uint64_t)kind, n);
}

static inline void open_all(void) {
    enum { N = 7 };
    static const char *const tags[N] = {"centroid", "cluster", "cograph", "group",
                                        "hnsw",     "ranks",   "sketch"};
    uint8_t *parts[N];
    size_t sizes[N], n;
    if (bundle) return;
    make_tables();
    for (int i = 0; i < N; i++)
        parts[i] = i == 0   ? make_router(SPECRT_ROUTER_CENTROID, &sizes[i])
                   : i == 1 ? make_router(SPECRT_ROUTER_DYNASPEC, &sizes[i])
                   : i == 2 ? fixture_graph(V, 6, NULL, 5, &sizes[i])
                   : i == 3 ? make_router(SPECRT_ROUTER_CORAL, &sizes[i])
                   : i == 4 ? fixture_index(V, D, NULL, gpu_seed(6), &sizes[i])
                   : i == 5 ? fixture_ranks(V, 2, 40, &sizes[i])
                            : fixture_sketch(V, D, 64, 6, &sizes[i]);
    uint8_t *bytes = fixture_join(tags, parts, sizes, N, &n);
    bundle = open_memory(bytes, n);
    specrt_head_desc desc = {
        .rows = head_rows, .dtype = SPECRT_DTYPE_F16, .n_rows = V, .n_cols = D, .bias = bias};
    head = bind_head(bundle, &desc);
}

/* A model's states after each of n tokens, of its table. */
static inline void states_after(const float *table, const int32_t *tokens, int32_t n, float *out) {
    for (int32_t i = 0; i < n; i++) memcpy(out + i * D, table + tokens[i] * D, D * sizeof *out);
}

/* The target's logits after each of n tokens. */
static inline void target_logits(const int32_t *tokens, int32_t n, float *out) {
    static float rows[V * D];
    specrt_row_decode(SPECRT_DTYPE_F16, head_rows, V * D, rows);
    for (int32_t i = 0; i < n * V; i++) {
        const float *row = rows + i % V * D, *state = target_table + tokens[i / V] * D;
        out[i] = bias[i % V];
        for (int j = 0; j < D; j++) out[i] += row[j] * state[j];
    }
}

static inline int32_t prompt_token(int32_t sequence, int32_t i) {
    return (37 * i + 11 * sequence + 5) % n_vocab;
}

/* --- the same on the device --- */

typedef struct device {
    int32_t n;
    specrt_cuda_session *session;
    specrt_cuda_view view;
    specrt__cuda_head draft_table, target_table;
    specrt__cuda_packing *passes;   /* DEVICE [n] from tokens to the drafter's states */
    specrt__cuda_packing *trees;    /* DEVICE [n] from tokens of a tree to the target's */
    specrt__cuda_packing *inputs;   /* DEVICE [n] from tokens to what a pass is fed */
    specrt__cuda_segment *all_rows; /* DEVICE [n] the target's */
    float *hidden, *draft_input;    /* DEVICE [n, topk, D] */
    float *target_hidden;           /* DEVICE [n, num_draft_tokens, D] */
    float *logits;                  /* DEVICE [n, num_draft_tokens, V] */
    int32_t *tokens;
    bool ahead;      /* routes beside the drafter's pass */
    int32_t n_block; /* positions of a block; 0: passes draft */
    cudaStream_t stream;
    void *owned[16];
    int n_owned;
} device;

static inline void *device_own(device *d, void *p) {
    d->owned[d->n_owned++] = p;
    return p;
}

static inline specrt__cuda_head device_table(device *d, const float *table) {
    return (specrt__cuda_head){.rows = device_own(d, gpu_copy(table, V * D * sizeof *table)),
                               .dtype = SPECRT_DTYPE_F32,
                               .n_rows = V,
                               .n_cols = D,
                               .row_stride = D * sizeof *table};
}

/* What the models read and write of every sequence. */
static inline void device_lists(device *d) {
    static specrt__cuda_packing passes[MAX_BATCH], trees[MAX_BATCH], inputs[MAX_BATCH];
    static specrt__cuda_segment all_rows[MAX_BATCH];
    size_t n = (size_t)d->n, topk = (size_t)d->view.topk;
    size_t n_nodes = (size_t)d->view.num_draft_tokens;
    all_rows[0] =
        (specrt__cuda_segment){.rows = device_own(d, gpu_copy(head_rows, sizeof head_rows)),
                               .row_stride = D * sizeof *head_rows,
                               .bias = (float *)device_own(d, gpu_copy(bias, sizeof bias)),
                               .max_rows = V};
    for (size_t i = 0; i < n; i++) {
        passes[i] = (specrt__cuda_packing){.ids = d->view.beam[i].tokens,
                                           .n = &d->view.beam[i].n,
                                           .rows = d->hidden + i * topk * D};
        inputs[i] = passes[i];
        inputs[i].rows = d->draft_input + i * topk * D;
        trees[i] = (specrt__cuda_packing){.ids = d->view.draft[i].tokens,
                                          .n = &d->view.draft[i].n,
                                          .rows = d->target_hidden + i * n_nodes * D};
        all_rows[i] = all_rows[0];
    }
    d->passes = (specrt__cuda_packing *)device_own(d, gpu_copy(passes, n * sizeof *passes));
    d->inputs = (specrt__cuda_packing *)device_own(d, gpu_copy(inputs, n * sizeof *inputs));
    d->trees = (specrt__cuda_packing *)device_own(d, gpu_copy(trees, n * sizeof *trees));
    d->all_rows = (specrt__cuda_segment *)device_own(d, gpu_copy(all_rows, n * sizeof *all_rows));
}

static inline void device_open(device *d, const specrt_cuda_policy *policy,
                               const specrt_cuda_session_params *params) {
    specrt_error err = {0};
    memset(d, 0, sizeof *d);
    d->n = params->n_batch;
    if (specrt_cuda_session_create(policy, params, &d->session, &err))
        test_fail(__FILE__, __LINE__, err.msg);
    REQUIRE(d->session);
    specrt_cuda_session_get_view(d->session, &d->view);
    gpu_check(cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking), "cudaStreamCreate");
    size_t n = (size_t)d->n;
    d->draft_table = device_table(d, draft_table);
    d->target_table = device_table(d, target_table);
    /* Rows beyond a beam's are read with those of other sequences, and their logits ranked by nobody. */
    d->hidden = (float *)device_own(d, gpu_zeros(n * TOPK * D * sizeof(float)));
    d->draft_input = (float *)device_own(d, gpu_alloc(n * TOPK * D * sizeof(float)));
    d->logits = (float *)device_own(d, gpu_alloc(n * NODES * V * sizeof(float)));
    d->tokens = (int32_t *)device_own(d, gpu_alloc(n * sizeof(int32_t)));
    d->target_hidden = (float *)device_own(d, gpu_alloc(n * NODES * D * sizeof(float)));
    device_lists(d);
}

static inline void device_close(device *d) {
    specrt_cuda_session_close(d->session);
    while (d->n_owned > 0) gpu_free(d->owned[--d->n_owned]);
    cudaStreamDestroy(d->stream);
}

/* The prompts from number `first` on, each in two parts, and the first tokens. */
static inline void device_read(device *d, int32_t first, int32_t n_prompt) {
    static float logits[MAX_PROMPT * V], last[MAX_BATCH * V];
    int32_t tokens[MAX_PROMPT], n_part = n_prompt / 9;
    for (int32_t i = 0; i < d->n; i++) {
        for (int32_t j = 0; j < n_prompt; j++) tokens[j] = prompt_token(first + i, j);
        target_logits(tokens, n_prompt, logits);
        memcpy(last + i * V, logits + (n_prompt - 1) * V, V * sizeof *last);
        int32_t *device_tokens = (int32_t *)gpu_copy(tokens, sizeof tokens);
        float *device_logits = (float *)gpu_copy(logits, (size_t)n_prompt * V * sizeof *logits);
        REQUIRE(!specrt_cuda_session_prefill(d->session, i, device_tokens, n_part, device_logits,
                                             d->stream));
        REQUIRE(!specrt_cuda_session_prefill(d->session, i, device_tokens + n_part,
                                             n_prompt - n_part, device_logits + n_part * V,
                                             d->stream));
        gpu_check(cudaStreamSynchronize(d->stream), "prefill");
        gpu_free(device_tokens);
        gpu_free(device_logits);
    }
    gpu_put(d->logits, last, (size_t)d->n * V * sizeof *last);
    REQUIRE(!specrt_cuda_session_draw(d->session, d->logits, d->tokens, d->stream));
    REQUIRE(!specrt_cuda_session_start(d->session, -1, d->tokens, d->stream));
}

static inline void device_start(device *d, int32_t first, int32_t n_prompt) {
    REQUIRE(!specrt_cuda_session_begin(d->session, -1, d->stream));
    device_read(d, first, n_prompt);
}

/* A pass of the drafter, whose input is any state: what it gives. Expand is not told what was fed where that
 * was routed by before. */
static inline void device_pass(device *d) {
    const float *draft_input = d->hidden;
    if (d->ahead) {
        REQUIRE(!specrt__cuda_pack(&d->draft_table, d->inputs, d->n, d->view.topk,
                                   D * sizeof(float), d->stream));
        REQUIRE(!specrt_cuda_session_route_ahead(d->session, d->draft_input, d->stream));
        CHECK_INT(specrt_cuda_session_route_ahead(d->session, d->draft_input, d->stream),
                  SPECRT_STATUS_BAD_ORDER);
        draft_input = NULL;
    }
    REQUIRE(!specrt__cuda_pack(&d->draft_table, d->passes, d->n, d->view.topk, D * sizeof(float),
                               d->stream));
    REQUIRE(!specrt_cuda_session_expand(d->session, d->hidden, draft_input, d->stream));
}

/* The target's pass over the trees. */
static inline void device_target(device *d) {
    const specrt_cuda_view *v = &d->view;
    const specrt__cuda_layout layout = {1, D, {SPECRT_DTYPE_F16}, {V}, {0}};
    const specrt__cuda_batch batch = {d->n, v->num_draft_tokens, &v->draft->n,
                                      sizeof *v->draft / sizeof(int32_t)};
    REQUIRE(!specrt__cuda_pack(&d->target_table, d->trees, d->n, v->num_draft_tokens,
                               D * sizeof(float), d->stream));
    REQUIRE(!specrt__cuda_logits(&layout, d->all_rows, &batch, d->target_hidden, SPECRT_DTYPE_F32,
                                 d->logits, d->stream));
}

/* A cycle but for what is learnt, without waiting for any of it. */
static inline void device_cycle(device *d) {
    const specrt_cuda_view *v = &d->view;
    for (int32_t level = 0; level < v->num_steps && !d->n_block; level++) device_pass(d);
    if (d->n_block)
        REQUIRE(!specrt_cuda_session_draft_block(d->session, d->hidden, d->n_block, d->stream));
    CHECK_INT(specrt_cuda_session_route_ahead(d->session, d->draft_input, d->stream),
              SPECRT_STATUS_BAD_ORDER);
    CHECK_INT(specrt_cuda_session_expand(d->session, d->hidden, d->hidden, d->stream),
              SPECRT_STATUS_BAD_ORDER);
    if (!d->n_block) REQUIRE(!specrt_cuda_session_finish(d->session, d->stream));
    device_target(d);
    REQUIRE(!specrt_cuda_session_verify(d->session, d->logits, d->stream));
}

static inline void device_observe(device *d) {
    REQUIRE(!specrt_cuda_session_observe(d->session, d->view.width ? d->target_hidden : NULL,
                                         d->stream));
}

/* A cycle as a graph, which begins with what is learnt from the one before. No call of any thread may do
 * meanwhile what a capture forbids, as with PyTorch's graphs. */
static inline cudaGraphExec_t device_capture(device *d) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaStreamBeginCapture(d->stream, cudaStreamCaptureModeGlobal);
    device_observe(d);
    device_cycle(d);
    REQUIRE(cudaStreamEndCapture(d->stream, &graph) == cudaSuccess);
    REQUIRE(cudaGraphInstantiateWithFlags(&exec, graph, 0) == cudaSuccess);
    cudaGraphDestroy(graph);
    return exec;
}

/* --- the twins --- */

typedef struct twin {
    specrt_session *session;
    int32_t root;
    specrt_draft draft;
    specrt_verdict verdict;
    specrt_task *left;  /* of what nobody worked off; NULL: none */
    specrt_block block; /* n 0: passes draft */
    float logits[NODES * V];
} twin;

/* Retrieval learns at once; or only when it is closed, which waits for it. */
static inline void submit(void *user, specrt_task *task) {
    if (user)
        *(specrt_task **)user = task;
    else
        task->run(task);
}

static inline void twin_start(twin *t, int32_t sequence, int32_t n_prompt) {
    static float logits[MAX_PROMPT * V];
    int32_t tokens[MAX_PROMPT];
    specrt_target_rows rows = {.logits = logits};
    REQUIRE(!specrt_session_begin(t->session, NULL));
    for (int32_t j = 0; j < n_prompt; j++) tokens[j] = prompt_token(sequence, j);
    target_logits(tokens, n_prompt, logits);
    REQUIRE(!specrt_session_prefill(t->session, tokens, n_prompt, &rows));
    REQUIRE(!specrt_session_draw(t->session, logits + (n_prompt - 1) * V, &t->root));
    REQUIRE(!specrt_session_start(t->session, t->root));
}

static inline void twin_cycle(twin *t) {
    specrt_beam beam = {.n = 1, .tokens = &t->root};
    float hidden[TOPK * D];
    if (t->block.n) REQUIRE(!specrt_session_draft_block(t->session, &t->block, &t->draft));
    while (beam.n > 0 && !t->block.n) {
        states_after(draft_table, beam.tokens, beam.n, hidden);
        REQUIRE(!specrt_session_expand(t->session, hidden, hidden, beam.n, &beam)); /* fed: any */
    }
    if (!t->block.n) REQUIRE(!specrt_session_finish(t->session, &t->draft));
    target_logits(t->draft.tokens, t->draft.n, t->logits);
    REQUIRE(!specrt_session_verify(t->session, &t->draft, t->logits, &t->verdict));
}

static inline void twin_observe(twin *t) {
    float hidden[NODES * D];
    specrt_target_rows rows = {.logits = t->logits,
                               .hidden = hidden,
                               .d_hidden =
                                   specrt_policy_get_info(t->session->policy)->hidden_width};
    states_after(target_table, t->draft.tokens, t->draft.n, hidden);
    t->root = t->verdict.tokens[t->verdict.n - 1];
    REQUIRE(!specrt_session_observe(t->session, &t->draft, &t->verdict, &rows));
}

/* --- both --- */

static inline int by_id(const void *a, const void *b) {
    return *(const int32_t *)a - *(const int32_t *)b;
}

/* The packed tokens, whatever their order. */
static inline void check_rows(const device *d, const twin *t, int32_t i) {
    static int32_t ids[V], expected[V];
    specrt_cuda_state state;
    int32_t n = t->session->pool->n_rows;
    gpu_get(&state, &d->view.states[i], sizeof state);
    CHECK_INT(state.n_rows, n);
    CHECK_INT(state.n_refused, 0);
    if (state.n_rows != n || n == 0) return;
    gpu_get(ids, state.ids, (size_t)n * sizeof *ids);
    memcpy(expected, t->session->pool->ids, (size_t)n * sizeof *expected);
    qsort(ids, (size_t)n, sizeof *ids, by_id);
    qsort(expected, (size_t)n, sizeof *expected, by_id);
    for (int32_t j = 0; j < n; j++) CHECK_INT(ids[j], expected[j]);
}

static inline void check_cycle(const device *d, const twin *t, int32_t i) {
    specrt_cuda_draft draft;
    specrt_verdict verdict;
    check_rows(d, t, i);
    gpu_get(&draft, &d->view.draft[i], sizeof draft);
    gpu_get(&verdict, &d->view.verdict[i], sizeof verdict);
    CHECK_INT(draft.n, t->draft.n);
    CHECK_INT(verdict.n, t->verdict.n);
    CHECK_INT(verdict.end, SPECRT_END_NONE);
    for (int32_t j = 0; j < draft.n && j < t->draft.n; j++) {
        CHECK_INT(draft.tokens[j], t->draft.tokens[j]);
        CHECK_INT(draft.parents[j], t->draft.parents[j]);
        CHECK(draft.masks[j] == t->draft.masks[j]);
        CHECK_NEAR((double)draft.logprobs[j], (double)t->draft.logprobs[j], 1e-3);
    }
    for (int32_t j = 0; j < verdict.n && j < t->verdict.n; j++) {
        CHECK_INT(verdict.tokens[j], t->verdict.tokens[j]);
        CHECK_INT(verdict.nodes[j], t->verdict.nodes[j]);
        CHECK(verdict.tokens[j] < n_vocab);
    }
}

/* Rows are packed again to close gaps, but of prompts only those that stay, and sketches scanned once. A
 * proof may take a row more. */
static inline void check_stats(const device *d, const twin *twins, const char *policy,
                               bool shared) {
    specrt_session_stats *all =
        (specrt_session_stats *)gpu_alloc((size_t)d->n * sizeof(specrt_session_stats));
    CHECK_INT(specrt_cuda_session_get_stats(d->session, all, d->stream), SPECRT_STATUS_OK);
    for (int32_t i = 0; i < d->n; i++) {
        specrt_session_stats found, expected;
        gpu_get(&found, &all[i], sizeof found);
        specrt_session_get_stats(twins[i].session, &expected);
        CHECK(strstr(policy, "@prompt") || shared || found.n_copied >= expected.n_copied);
        CHECK(!shared || found.n_copied == 0);
        found.n_copied = expected.n_copied;
        if (strstr(policy, "sketch")) found.n_bytes = expected.n_bytes;
        CHECK_INT(found.n_cycles, expected.n_cycles);
        CHECK_INT(found.n_rows, expected.n_rows);
        CHECK_INT(found.n_covered, expected.n_covered);
        CHECK_INT(found.n_bytes, expected.n_bytes);
        CHECK(memcmp(&found, &expected, sizeof found) == 0);
    }
    gpu_free(all);
}

typedef struct setting {
    const char *policy;
    specrt_tree_params tree;
    specrt_sampling sampling;
    int32_t n_batch, n_cycles;
    bool graph;
    specrt_draft_kind draft;
    float draft_temperature;
    int32_t n_more;   /* sequences after the first */
    int32_t n_prompt; /* 0: N_PROMPT */
    bool abandons;    /* each sequence follows one of which the prompt alone was read */
    bool lends;       /* the device has the head and the embedding */
    bool halves;      /* graphs are begun that do not hold all they must */
    bool ahead;       /* levels are routed beside the drafter's pass */
    bool shared;      /* rows stay in the head, and those of several are read once */
    bool chooses;     /* whether they do is the session's choice */
    bool neglects;    /* nobody works off what retrieval is told */
    int32_t n_block;  /* positions of a block; 0: passes draft */
    float p_min, confidence_bias;
    int32_t n_confidence; /* weights of a confidence head; 0: none */
    /* A product that is lent for more than gemm_above states; NULL: none */
    specrt_cuda_gemm gemm;
    int32_t gemm_above;
} setting;

/* A setting of blocks, or of a chain or trees by passes where n_block is 0. */
static inline setting block_setting(const char *policy, int32_t topk, int32_t n_block) {
    return (setting){.policy = policy,
                     .tree = {6, topk, topk == 1 ? 7 : NODES},
                     .n_batch = 3,
                     .n_cycles = test_quick() ? 2 : 4,
                     .n_block = n_block,
                     .graph = true};
}

/* Cycles by calls, or the first so and then by a graph, or all by a graph: after start, or after a cycle's
 * verify, it learns what there is. */
static inline void run_cycles(device *d, twin *twins, const setting *how, bool at_once) {
    cudaGraphExec_t exec = NULL;
    for (int32_t c = 0; c < how->n_cycles && test_failures == 0; c++) {
        if (how->graph && !exec && (at_once || c > 0)) exec = device_capture(d);
        if (exec)
            REQUIRE(cudaGraphLaunch(exec, d->stream) == cudaSuccess);
        else
            device_cycle(d);
        gpu_check(cudaStreamSynchronize(d->stream), "cycle");
        /* What a graph told of. */
        if (exec && !how->neglects) specrt_cuda_session_serve(d->session);
        for (int32_t i = 0; i < d->n; i++) {
            twin_cycle(&twins[i]);
            check_cycle(d, &twins[i], i);
            twin_observe(&twins[i]);
        }
        if (how->graph && c + 1 < how->n_cycles) continue;
        device_observe(d);
        gpu_check(cudaDeviceSynchronize(), "observe"); /* the session's own stream tells of it */
        /* What is left is worked off by the next prompt. */
        if (!how->neglects && (!how->n_prompt || c + 1 < how->n_cycles))
            specrt_cuda_session_serve(d->session);
    }
    if (exec) cudaGraphExecDestroy(exec);
}

/* A graph without the observe() that its expand() has to wait for, then one without the expand() that has to
 * wait for its observe(): both are refused, and what follows goes on as if they had not been begun. */
static inline void capture_halves(device *d, twin *twins) {
    cudaGraph_t graph = NULL;
    cudaStreamBeginCapture(d->stream, cudaStreamCaptureModeThreadLocal);
    CHECK_INT(specrt_cuda_session_expand(d->session, d->hidden, d->hidden, d->stream),
              SPECRT_STATUS_CAPTURE);
    CHECK_INT(cudaStreamEndCapture(d->stream, &graph), cudaSuccess);
    cudaGraphDestroy(graph);
    device_cycle(d);
    gpu_check(cudaStreamSynchronize(d->stream), "cycle");
    for (int32_t i = 0; i < d->n; i++) {
        twin_cycle(&twins[i]);
        check_cycle(d, &twins[i], i);
        twin_observe(&twins[i]);
    }
    cudaStreamBeginCapture(d->stream, cudaStreamCaptureModeThreadLocal);
    device_observe(d);
    CHECK_INT(cudaStreamEndCapture(d->stream, &graph), cudaErrorStreamCaptureUnjoined);
    cudaGetLastError();
    CHECK_INT(specrt_cuda_session_expand(d->session, d->hidden, d->hidden, d->stream),
              SPECRT_STATUS_CAPTURE);
    CHECK_HAS(specrt_status_name(SPECRT_STATUS_CAPTURE), "observe()");
    device_observe(d);
    gpu_check(cudaDeviceSynchronize(), "observe"); /* the session's own stream tells of it */
    specrt_cuda_session_serve(d->session);
}

/* Routes that no expand() waits for, or not in the same graph: refused, and the level is routed anew. */
static inline void ahead_halves(device *d) {
    cudaGraph_t graph = NULL;
    specrt_cuda_session *s = d->session;
    device_cycle(d);
    device_observe(d);
    REQUIRE(!specrt_cuda_session_route_ahead(s, d->draft_input, d->stream));
    CHECK_INT(specrt_cuda_session_observe(s, NULL, d->stream), SPECRT_STATUS_BAD_ORDER);
    cudaStreamBeginCapture(d->stream, cudaStreamCaptureModeThreadLocal);
    CHECK_INT(specrt_cuda_session_expand(s, d->hidden, NULL, d->stream), SPECRT_STATUS_CAPTURE);
    CHECK_INT(cudaStreamEndCapture(d->stream, &graph), cudaSuccess);
    cudaGraphDestroy(graph);
    gpu_check(cudaDeviceSynchronize(), "refused"); /* the cycle writes what is being routed by */
    device_cycle(d);
    device_observe(d);
    cudaStreamBeginCapture(d->stream, cudaStreamCaptureModeThreadLocal);
    REQUIRE(!specrt_cuda_session_route_ahead(s, d->draft_input, d->stream));
    CHECK_INT(cudaStreamEndCapture(d->stream, &graph), cudaErrorStreamCaptureUnjoined);
    cudaGetLastError();
    CHECK_INT(specrt_cuda_session_expand(s, d->hidden, NULL, d->stream), SPECRT_STATUS_CAPTURE);
}

/* The batch that comes after n_begun others. */
static inline void start(device *d, twin *twins, const setting *how, int32_t n_begun) {
    int32_t n_prompt = how->n_prompt > 0 ? how->n_prompt : N_PROMPT;
    for (int32_t i = 0; i < d->n; i++) twin_start(&twins[i], i + 3 * n_begun, n_prompt);
    device_start(d, 3 * n_begun, n_prompt);
}

/* Rows that an application has on the device already, further apart than they need be. */
static inline void lend(specrt_cuda_policy_desc *out) {
    static uint8_t rows[V * (D * 2 + 2)], known[V * 36];
    size_t bytes = specrt_row_bytes(head->desc.dtype, D), stride = bytes + 2;
    for (size_t i = 0; i < V; i++) {
        memcpy(rows + i * stride, (const uint8_t *)head->desc.rows + i * bytes, bytes);
        memcpy(known + i * 36, embedding + i * 34, 34);
    }
    *out = (specrt_cuda_policy_desc){.rows = gpu_copy(rows, sizeof rows),
                                     .row_stride = stride,
                                     .embedding = gpu_copy(known, sizeof known),
                                     .embedding_stride = 36};
}

/* States of all positions of a batch's blocks, one after another; the same in every cycle. */
static inline const float *block_states(void) {
    static float states[MAX_BATCH * TOPK * D];
    for (int32_t i = 0; i < MAX_BATCH * TOPK; i++)
        memcpy(states + i * D, draft_table + (29 * i + 5) % V * D, D * sizeof *states);
    return states;
}

/* Weights of a confidence head: of a state, then of a row of w1. */
static inline const float *confidence_weights(void) {
    static float weights[2 * D];
    uint64_t state = gpu_seed(12);
    for (int i = 0; i < 2 * D; i++) weights[i] = draw_sixteenths(&state, 0.5f);
    return weights;
}

/* A policy on both sides; close_policy() closes it. */
typedef struct shared_policy {
    specrt_policy *policy;
    specrt_cuda_policy *device;
    specrt_cuda_policy_desc lent;
} shared_policy;

static inline void open_policy(shared_policy *p, const char *text, bool lends) {
    const int32_t reserved = n_vocab - 4; /* the last rank, where nothing is padding */
    specrt_head_desc known = {
        .rows = embedding, .dtype = SPECRT_DTYPE_Q8_0, .n_rows = V, .n_cols = 32};
    specrt_policy_desc desc = {.text = text,
                               .n_vocab = n_vocab,
                               .n_terminators = 1,
                               .terminators = &reserved,
                               .embedding = &known};
    specrt_error err = {0};
    memset(p, 0, sizeof *p);
    open_all();
    desc.target = head;
    if (specrt_policy_create(bundle, head, &desc, &p->policy, &err))
        test_fail(__FILE__, __LINE__, err.msg);
    REQUIRE(p->policy);
    if (lends) lend(&p->lent);
    if (specrt_cuda_policy_create(p->policy, &p->lent, &p->device, &err))
        test_fail(__FILE__, __LINE__, err.msg);
    REQUIRE(p->device);
}

static inline void close_policy(shared_policy *p) {
    specrt_cuda_policy_close(p->device);
    specrt_policy_close(p->policy);
    gpu_free((void *)(uintptr_t)p->lent.rows), gpu_free((void *)(uintptr_t)p->lent.embedding);
}

static inline void open_device(device *d, const shared_policy *p, const setting *how) {
    specrt_cuda_session_params wanted = {.tree = how->tree,
                                         .sampling = how->sampling,
                                         .n_batch = how->n_batch,
                                         .n_logits = V,
                                         .draft = how->draft,
                                         .draft_temperature = how->draft_temperature,
                                         .n_block = how->n_block,
                                         .p_min = how->p_min,
                                         .confidence_bias = how->confidence_bias,
                                         .stock = how->chooses  ? 0
                                                  : how->shared ? 1
                                                                : 2};
    if (how->n_confidence)
        wanted.confidence = (const float *)gpu_copy(
            confidence_weights(), (size_t)how->n_confidence * sizeof *wanted.confidence);
    device_open(d, p->device, &wanted);
    if (how->n_confidence) device_own(d, (void *)(uintptr_t)wanted.confidence);
    d->ahead = how->ahead;
    d->n_block = how->n_block;
    REQUIRE(!specrt_cuda_session_set_gemm(d->session, how->gemm, d, how->gemm_above));
    if (d->n_block)
        gpu_put(d->hidden, block_states(), (size_t)(d->n * d->n_block) * D * sizeof(float));
}

/* A policy that lends no rows, and a device for it. */
static inline void open_both(device *d, shared_policy *p, const setting *how) {
    open_policy(p, how->policy, false);
    open_device(d, p, how);
}

static inline void close_device(device *d, shared_policy *p) {
    device_close(d);
    close_policy(p);
}

static inline void open_twin(twin *t, const shared_policy *p, const setting *how, int32_t i) {
    specrt_session_params params = {.tree = how->tree,
                                    .sampling = how->sampling,
                                    .n_logits = V,
                                    .draft = how->draft,
                                    .draft_temperature = how->draft_temperature,
                                    .n_block = how->n_block,
                                    .submit = submit,
                                    .submit_user = how->neglects ? &t->left : NULL};
    params.sampling.session += (uint64_t)i;
    t->block = (specrt_block){.n = how->n_block,
                              .hidden = block_states() + i * how->n_block * D,
                              .by_position = 1, /* if anything routes, as on the device */
                              .p_min = how->p_min,
                              .confidence = how->n_confidence ? confidence_weights() : NULL,
                              .confidence_bias = how->confidence_bias};
    t->session = create_session(p->policy, &params, NULL);
}

static inline void run(const setting *how) {
    static twin twins[MAX_BATCH];
    int32_t n_begun = 0;
    shared_policy shared;
    device d;
    open_policy(&shared, how->policy, how->lends);
    open_device(&d, &shared, how);
    for (int32_t i = 0; i < d.n; i++) open_twin(&twins[i], &shared, how, i);
    for (int32_t more = 0; more <= how->n_more; more++) {
        if (how->abandons) start(&d, twins, how, n_begun++);
        start(&d, twins, how, n_begun++);
        run_cycles(&d, twins, how, more % 2);
        if (how->halves) capture_halves(&d, twins);
        if (how->halves) run_cycles(&d, twins, how, true);
    }
    if (test_failures == 0) check_stats(&d, twins, how->policy, how->shared);
    if (test_failures > 0) fprintf(stderr, "in policy %s\n", how->policy);
    for (int32_t i = 0; i < d.n; i++) {
        if (how->neglects) twins[i].left->run(twins[i].left);
        specrt_session_close(twins[i].session);
    }
    device_close(&d);
    close_policy(&shared);
}

#endif
