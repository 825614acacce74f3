/* test_gpu_session.c : batches of sequences on the device against specrt_session, cycle by cycle: the same
 * shortlists, trees and tokens, called one by one and replayed as a graph. The models are bigrams made of the
 * library's own kernels, so that they run on the device: a state is a row of a table, by token. */
#include "specrt_tools.h"
#include "decode/session.h"
#include "cuda/kernels.h"
#include "fixture.h"
#include "quantise.h"
#include "gpu.h"

enum { V = 150, D = 32, N_PROMPT = 7, MAX_PROMPT = 600, MAX_BATCH = 64, TOPK = 4, NODES = 10 };

/* --- the models --- */

/* The drafter's states f32 [V, D] and the target's logits f32 [V, V] after each token. */
static float draft_table[V * D], target_table[V * V];
static uint16_t head_rows[V * D];
static uint8_t head_blocks[V * D / 32 * 34]; /* the same as q8_0 */
static float bias[V];
static uint8_t embedding[V * 34]; /* q8_0, 32 columns */
static specrt_bundle *bundle;
static specrt_head *head;

/* The target says what the drafter would over the whole head, disturbed. */
static void make_tables(void) {
    uint64_t state = gpu_seed(77);
    float rows[V * D];
    for (int i = 0; i < V * D; i++) {
        rows[i] = fixture_normal(&state);
        draft_table[i] = 0.5f * fixture_normal(&state);
    }
    specrt_to_f16(rows, V * D, head_rows);
    quantise_row(SPECRT_DTYPE_Q8_0, rows, V * D, head_blocks);
    for (int i = 0; i < V; i++) bias[i] = 0.3f * fixture_normal(&state);
    for (int i = 0; i < V; i++)
        quantise_row(SPECRT_DTYPE_Q8_0, rows + i * D / 2, 32, embedding + i * 34);
    for (int token = 0; token < V; token++)
        for (int i = 0; i < V; i++) {
            float *logit = &target_table[token * V + i];
            *logit = bias[i] + 0.4f * fixture_normal(&state);
            for (int j = 0; j < D; j++) *logit += rows[i * D + j] * draft_table[token * D + j];
        }
}

/* A router of a kind over clusters of the head. */
static uint8_t *make_router(specrt_router_kind kind, size_t *n) {
    specrt_clusters_header h = {.n_rows = V,
                                .n_cols = D,
                                .n_clusters = 12,
                                .router = (int32_t)kind,
                                .softmax = kind == SPECRT_ROUTER_CORAL,
                                .n_state = D,
                                .n_schedule = 2};
    if (kind == SPECRT_ROUTER_DYNASPEC) h.n_hidden = 8, h.n_embed = 32;
    if (kind == SPECRT_ROUTER_CORAL) h.n_hidden = D;
    return fixture_clusters(h, NULL, gpu_seed(40) + (uint64_t)kind, n);
}

static void open_all(void) {
    enum { N = 7 };
    static const char *const tags[N] = {"centroid", "cluster", "cograph", "group",
                                        "hnsw",     "ranks",   "sketch"};
    uint8_t *parts[N];
    fixture_section sections[N];
    size_t n;
    if (bundle) return;
    make_tables();
    for (int i = 0; i < N; i++) {
        parts[i] = i == 0   ? make_router(SPECRT_ROUTER_CENTROID, &n)
                   : i == 1 ? make_router(SPECRT_ROUTER_DYNASPEC, &n)
                   : i == 2 ? fixture_graph(V, 6, NULL, 5, &n)
                   : i == 3 ? make_router(SPECRT_ROUTER_CORAL, &n)
                   : i == 4 ? fixture_index(V, D, NULL, gpu_seed(6), &n)
                   : i == 5 ? fixture_ranks(V, 2, 40, &n)
                            : fixture_sketch(V, D, 64, 6, &n);
        sections[i] = (fixture_section){tags[i], i == N - 1 ? 3 : 1, 0, parts[i], n, n};
    }
    uint8_t *bytes = fixture_bundle(sections, N, &n);
    REQUIRE(!specrt_bundle_open_memory(bytes, n, "b", NULL, &bundle, NULL));
    specrt_head_desc desc = {
        .rows = head_rows, .dtype = SPECRT_DTYPE_F16, .n_rows = V, .n_cols = D, .bias = bias};
    REQUIRE(!specrt_head_bind(bundle, &desc, NULL, &head, NULL));
    for (int i = 0; i < N; i++) free(parts[i]);
}

/* The target's logits after each of n tokens. */
static void target_logits(const int32_t *tokens, int32_t n, float *out) {
    for (int32_t i = 0; i < n; i++)
        memcpy(out + i * V, target_table + tokens[i] * V, V * sizeof *out);
}

/* The drafter's states after each. */
static void draft_states(const int32_t *tokens, int32_t n, float *out) {
    for (int32_t i = 0; i < n; i++)
        memcpy(out + i * D, draft_table + tokens[i] * D, D * sizeof *out);
}

static int32_t prompt_token(int32_t sequence, int32_t i) {
    return (37 * i + 11 * sequence + 5) % V;
}

/* --- the same on the device --- */

typedef struct device {
    int32_t n;
    specrt_cuda_session *session;
    specrt_cuda_view view;
    specrt__cuda_head draft_table, target_table;
    specrt__cuda_packing *passes, *trees; /* DEVICE [n] from tokens to states, and to logits */
    specrt__cuda_packing *states;         /* DEVICE [n] from tokens of a tree to states */
    specrt__cuda_packing *inputs;         /* DEVICE [n] from tokens to what a pass is fed */
    float *hidden, *draft_input;          /* DEVICE [n, topk, D] */
    float *target_hidden;                 /* DEVICE [n, num_draft_tokens, D] */
    float *logits;                        /* DEVICE [n, num_draft_tokens, V] */
    int32_t *tokens;
    bool ahead; /* routes beside the drafter's pass */
    cudaStream_t stream;
    void *owned[16];
    int n_owned;
} device;

static void *device_own(device *d, void *p) {
    d->owned[d->n_owned++] = p;
    return p;
}

static specrt__cuda_head device_table(device *d, const float *table, int32_t n_cols) {
    size_t stride = (size_t)n_cols * sizeof(float);
    return (specrt__cuda_head){.rows = device_own(d, gpu_copy(table, V * stride)),
                               .dtype = SPECRT_DTYPE_F32,
                               .n_rows = V,
                               .n_cols = n_cols,
                               .row_stride = stride};
}

/* What the models read and write of every sequence. */
static void device_lists(device *d) {
    static specrt__cuda_packing passes[MAX_BATCH], trees[MAX_BATCH], states[MAX_BATCH];
    static specrt__cuda_packing inputs[MAX_BATCH];
    size_t n = (size_t)d->n, topk = (size_t)d->view.topk;
    size_t n_nodes = (size_t)d->view.num_draft_tokens;
    for (size_t i = 0; i < n; i++) {
        passes[i] = (specrt__cuda_packing){.ids = d->view.beam[i].tokens,
                                           .n = &d->view.beam[i].n,
                                           .rows = d->hidden + i * topk * D};
        inputs[i] = passes[i];
        inputs[i].rows = d->draft_input + i * topk * D;
        trees[i] = (specrt__cuda_packing){.ids = d->view.draft[i].tokens,
                                          .n = &d->view.draft[i].n,
                                          .rows = d->logits + i * n_nodes * V};
        states[i] = trees[i];
        states[i].rows = d->target_hidden + i * n_nodes * D;
    }
    d->passes = (specrt__cuda_packing *)device_own(d, gpu_copy(passes, n * sizeof *passes));
    d->inputs = (specrt__cuda_packing *)device_own(d, gpu_copy(inputs, n * sizeof *inputs));
    d->trees = (specrt__cuda_packing *)device_own(d, gpu_copy(trees, n * sizeof *trees));
    d->states = (specrt__cuda_packing *)device_own(d, gpu_copy(states, n * sizeof *states));
}

static void device_open(device *d, const specrt_cuda_policy *policy,
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
    d->draft_table = device_table(d, draft_table, D);
    d->target_table = device_table(d, target_table, V);
    /* Rows beyond a beam's are read with those of other sequences, and their logits ranked by nobody. */
    d->hidden = (float *)device_own(d, gpu_zeros(n * TOPK * D * sizeof(float)));
    d->draft_input = (float *)device_own(d, gpu_alloc(n * TOPK * D * sizeof(float)));
    d->logits = (float *)device_own(d, gpu_alloc(n * NODES * V * sizeof(float)));
    d->tokens = (int32_t *)device_own(d, gpu_alloc(n * sizeof(int32_t)));
    d->target_hidden = (float *)device_own(d, gpu_alloc(n * NODES * D * sizeof(float)));
    device_lists(d);
}

static void device_close(device *d) {
    specrt_cuda_session_close(d->session);
    while (d->n_owned > 0) gpu_free(d->owned[--d->n_owned]);
    cudaStreamDestroy(d->stream);
}

/* Begin, the prompts from number `first` on, each in two parts, the first tokens. */
static void device_start(device *d, int32_t first, int32_t n_prompt) {
    static float logits[MAX_PROMPT * V], last[MAX_BATCH * V];
    int32_t tokens[MAX_PROMPT], n_part = n_prompt / 9, end = n_prompt > 0 ? n_prompt : 1;
    REQUIRE(!specrt_cuda_session_begin(d->session, -1, d->stream));
    for (int32_t i = 0; i < d->n; i++) {
        for (int32_t j = 0; j < end; j++) tokens[j] = prompt_token(first + i, j);
        target_logits(tokens, end, logits);
        memcpy(last + i * V, logits + (end - 1) * V, V * sizeof *last);
        int32_t *device_tokens = (int32_t *)gpu_copy(tokens, sizeof tokens);
        float *device_logits = (float *)gpu_copy(logits, sizeof logits);
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

/* A pass of the drafter, whose input is any state: what it gives. Expand is not told what was fed where that
 * was routed by before. */
static void device_pass(device *d) {
    const float *draft_input = d->hidden;
    if (d->ahead) {
        REQUIRE(!specrt__cuda_pack(&d->draft_table, d->inputs, d->n, d->view.topk,
                                   D * sizeof(float), d->stream));
        REQUIRE(!specrt_cuda_session_route_ahead(d->session, d->draft_input, d->stream));
        CHECK_INT(specrt_cuda_session_route_ahead(d->session, d->draft_input, d->stream),
                  SPECRT_STATUS_BAD_ARG);
        draft_input = NULL;
    }
    REQUIRE(!specrt__cuda_pack(&d->draft_table, d->passes, d->n, d->view.topk, D * sizeof(float),
                               d->stream));
    REQUIRE(!specrt_cuda_session_expand(d->session, d->hidden, draft_input, d->stream));
}

/* A cycle but for what is learnt, without waiting for any of it. */
static void device_cycle(device *d) {
    const specrt_cuda_view *v = &d->view;
    for (int32_t level = 0; level < v->num_steps; level++) device_pass(d);
    CHECK_INT(specrt_cuda_session_route_ahead(d->session, d->draft_input, d->stream),
              SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_cuda_session_expand(d->session, d->hidden, d->hidden, d->stream),
              SPECRT_STATUS_BAD_ARG);
    REQUIRE(!specrt_cuda_session_finish(d->session, d->stream));
    REQUIRE(!specrt__cuda_pack(&d->target_table, d->trees, d->n, v->num_draft_tokens,
                               V * sizeof(float), d->stream));
    if (v->width > 0) /* any states will do: the drafter's */
        REQUIRE(!specrt__cuda_pack(&d->draft_table, d->states, d->n, v->num_draft_tokens,
                                   D * sizeof(float), d->stream));
    REQUIRE(!specrt_cuda_session_verify(d->session, d->logits, d->stream));
}

static void device_observe(device *d) {
    REQUIRE(!specrt_cuda_session_observe(d->session, d->view.width ? d->target_hidden : NULL,
                                         d->stream));
}

/* A cycle as a graph, which begins with what is learnt from the one before. */
static cudaGraphExec_t device_capture(device *d) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaStreamBeginCapture(d->stream, cudaStreamCaptureModeThreadLocal);
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
    float logits[NODES * V];
} twin;

/* Retrieval learns at once. */
static void submit(void *user, specrt_task *task) {
    (void)user;
    task->run(task);
}

static void twin_start(twin *t, int32_t sequence, int32_t n_prompt) {
    specrt_session_begin(t->session, SPECRT_BEGIN_NEW, 0);
    static float logits[MAX_PROMPT * V];
    int32_t tokens[MAX_PROMPT], end = n_prompt > 0 ? n_prompt : 1;
    specrt_target_rows rows = {.logits = logits};
    for (int32_t j = 0; j < end; j++) tokens[j] = prompt_token(sequence, j);
    target_logits(tokens, end, logits);
    REQUIRE(!specrt_session_prefill(t->session, tokens, n_prompt, &rows));
    t->root = specrt_session_draw(t->session, logits + (end - 1) * V);
    REQUIRE(!specrt_session_start(t->session, t->root));
}

static void twin_cycle(twin *t) {
    specrt_beam beam = {.n = 1, .tokens = &t->root};
    float hidden[TOPK * D];
    while (beam.n > 0) {
        draft_states(beam.tokens, beam.n, hidden);
        REQUIRE(!specrt_session_expand(t->session, hidden, hidden, beam.n, &beam)); /* fed: any */
    }
    specrt_session_finish(t->session, &t->draft);
    target_logits(t->draft.tokens, t->draft.n, t->logits);
    REQUIRE(!specrt_session_verify(t->session, &t->draft, t->logits, &t->verdict));
}

static void twin_observe(twin *t) {
    float hidden[NODES * D];
    specrt_target_rows rows = {.logits = t->logits,
                               .hidden = hidden,
                               .d_hidden =
                                   specrt_policy_get_info(t->session->policy)->hidden_width};
    draft_states(t->draft.tokens, t->draft.n, hidden);
    t->root = t->verdict.tokens[t->verdict.n - 1];
    REQUIRE(!specrt_session_observe(t->session, &t->draft, &t->verdict, &rows));
}

/* --- both --- */

static int by_id(const void *a, const void *b) {
    return *(const int32_t *)a - *(const int32_t *)b;
}

/* The packed tokens, whatever their order. */
static void check_rows(const device *d, const twin *t, int32_t i) {
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

static void check_cycle(const device *d, const twin *t, int32_t i) {
    specrt_cuda_draft draft;
    specrt_verdict verdict;
    check_rows(d, t, i);
    gpu_get(&draft, &d->view.draft[i], sizeof draft);
    gpu_get(&verdict, &d->view.verdict[i], sizeof verdict);
    CHECK_INT(draft.n, t->draft.n);
    CHECK_INT(verdict.n, t->verdict.n);
    for (int32_t j = 0; j < draft.n && j < t->draft.n; j++) {
        CHECK_INT(draft.tokens[j], t->draft.tokens[j]);
        CHECK_INT(draft.parents[j], t->draft.parents[j]);
        CHECK(draft.masks[j] == t->draft.masks[j]);
        CHECK_NEAR((double)draft.logprobs[j], (double)t->draft.logprobs[j], 1e-3);
    }
    for (int32_t j = 0; j < verdict.n && j < t->verdict.n; j++) {
        CHECK_INT(verdict.tokens[j], t->verdict.tokens[j]);
        CHECK_INT(verdict.nodes[j], t->verdict.nodes[j]);
    }
}

/* Rows are packed again to close gaps, but of prompts only those that stay, and sketches scanned once. A
 * proof may take a row more. */
static void check_stats(const device *d, const twin *twins, const char *policy, bool shared) {
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
    int32_t n_prompt; /* 0: N_PROMPT; below: none */
    bool abandons;    /* each sequence follows one of which the prompt alone was read */
    bool lends;       /* the device has the head and the embedding */
    bool halves;      /* graphs are begun that do not hold all they must */
    bool ahead;       /* levels are routed beside the drafter's pass */
    bool shared;      /* rows stay in the head, and those of several are read once */
} setting;

/* Cycles by calls, or the first so and then by a graph, or all by a graph: after start, or after a cycle's
 * verify, it learns what there is. */
static void run_cycles(device *d, twin *twins, const setting *how, bool at_once) {
    cudaGraphExec_t exec = NULL;
    for (int32_t c = 0; c < how->n_cycles && test_failures == 0; c++) {
        if (how->graph && !exec && (at_once || c > 0)) exec = device_capture(d);
        if (exec)
            REQUIRE(cudaGraphLaunch(exec, d->stream) == cudaSuccess);
        else
            device_cycle(d);
        gpu_check(cudaStreamSynchronize(d->stream), "cycle");
        /* What a graph told of. */
        if (exec) specrt_cuda_session_serve(d->session);
        for (int32_t i = 0; i < d->n; i++) {
            twin_cycle(&twins[i]);
            check_cycle(d, &twins[i], i);
            twin_observe(&twins[i]);
        }
        if (how->graph && c + 1 < how->n_cycles) continue;
        device_observe(d);
        gpu_check(cudaDeviceSynchronize(), "observe"); /* the session's own stream tells of it */
        /* What is left is worked off by the next prompt. */
        if (!how->n_prompt || c + 1 < how->n_cycles) specrt_cuda_session_serve(d->session);
    }
    if (exec) cudaGraphExecDestroy(exec);
}

/* A graph without the observe() that its expand() has to wait for, then one without the expand() that has to
 * wait for its observe(): both are refused, and what follows goes on as if they had not been begun. */
static void capture_halves(device *d, twin *twins) {
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
    gpu_check(cudaStreamSynchronize(d->stream), "observe");
    specrt_cuda_session_serve(d->session);
}

/* Routes that no expand() waits for, or not in the same graph: refused, and the level is routed anew. */
static void ahead_halves(device *d) {
    cudaGraph_t graph = NULL;
    specrt_cuda_session *s = d->session;
    device_cycle(d);
    device_observe(d);
    REQUIRE(!specrt_cuda_session_route_ahead(s, d->draft_input, d->stream));
    device_observe(d); /* of no draft: the tree is there */
    REQUIRE(!specrt_cuda_session_route_ahead(s, d->draft_input, d->stream));
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
static void start(device *d, twin *twins, const setting *how, int32_t n_begun) {
    int32_t n_prompt = how->n_prompt > 0 ? how->n_prompt : how->n_prompt < 0 ? 0 : N_PROMPT;
    for (int32_t i = 0; i < d->n; i++) {
        specrt_session_set_sequence(twins[i].session,
                                    how->sampling.sequence + (uint64_t)(n_begun * d->n + i));
        twin_start(&twins[i], i + 3 * n_begun, n_prompt);
    }
    device_start(d, 3 * n_begun, n_prompt);
}

/* Rows that an application has on the device already, further apart than they need be. */
static void lend(specrt_cuda_policy_desc *out) {
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

/* A policy on both sides; close_policy() closes it. */
typedef struct shared_policy {
    specrt_policy *policy;
    specrt_cuda_policy *device;
    specrt_cuda_policy_desc lent;
} shared_policy;

static void open_policy(shared_policy *p, const char *text, bool lends) {
    const int32_t reserved = V - 4; /* the last rank */
    specrt_head_desc known = {
        .rows = embedding, .dtype = SPECRT_DTYPE_Q8_0, .n_rows = V, .n_cols = 32};
    specrt_policy_desc desc = {.text = text,
                               .n_vocab = V,
                               .n_terminators = 1,
                               .terminators = &reserved,
                               .embedding = &known};
    specrt_error err = {0};
    memset(p, 0, sizeof *p);
    open_all();
    desc.target = head;
    REQUIRE(!specrt_policy_create(bundle, head, &desc, &p->policy, &err));
    if (lends) lend(&p->lent);
    if (specrt_cuda_policy_create(p->policy, &p->lent, &p->device, &err))
        test_fail(__FILE__, __LINE__, err.msg);
    REQUIRE(p->device);
}

static void close_policy(shared_policy *p) {
    specrt_cuda_policy_close(p->device);
    specrt_policy_close(p->policy);
    gpu_free((void *)(uintptr_t)p->lent.rows), gpu_free((void *)(uintptr_t)p->lent.embedding);
}

static void open_device(device *d, const shared_policy *p, const setting *how) {
    specrt_cuda_session_params wanted = {.tree = how->tree,
                                         .sampling = how->sampling,
                                         .n_batch = how->n_batch,
                                         .draft = how->draft,
                                         .draft_temperature = how->draft_temperature,
                                         .stock = how->shared};
    device_open(d, p->device, &wanted);
    d->ahead = how->ahead;
}

static void open_twin(twin *t, const shared_policy *p, const setting *how, int32_t i) {
    specrt_session_params params = {.tree = how->tree,
                                    .sampling = how->sampling,
                                    .draft = how->draft,
                                    .draft_temperature = how->draft_temperature,
                                    .submit = submit};
    specrt_error err = {0};
    params.sampling.sequence += (uint64_t)i;
    REQUIRE(!specrt_session_create(p->policy, &params, NULL, &t->session, &err));
}

static void run(const setting *how) {
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
    for (int32_t i = 0; i < d.n; i++) specrt_session_close(twins[i].session);
    device_close(&d);
    close_policy(&shared);
}

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

/* SPECRT_TEST_LONG asks for more than the harness does in seconds. */
static bool is_long(void) {
    return getenv("SPECRT_TEST_LONG") != NULL;
}

static setting setting_of(const char *policy) {
    return (setting){.policy = policy,
                     .tree = {2, 3, 7},
                     .sampling = {.temperature = 1, .seed = gpu_seed(4), .sequence = 9},
                     .n_batch = 2,
                     .n_cycles = is_long()      ? 60
                                 : test_brief() ? 2
                                                : 3};
}

static void test_policies(void) {
    for (int i = 0; i < (is_long() ? N_POLICIES : N_SHORT); i++) {
        setting how = setting_of(policies[i]);
        if (i < N_ALONE) how.n_batch = 1;
        how.graph = true;
        run(&how);
    }
}

static void test_calls(void) {
    setting how = setting_of("static:20+window:20@positions=tree+retrieve:16@mode=async");
    how.tree = (specrt_tree_params){3, 4, 10};
    how.sampling.top_p = 0.9f;
    if (!is_long()) how.n_cycles = 2;
    run(&how);
}

static void test_greedy(void) {
    static const char *const texts[] = {"static:30+window:16", "static:8+sketch:6@keep=999"};
    for (int i = 0; i < 2; i++) {
        setting how = setting_of(texts[i]);
        memset(&how.sampling, 0, sizeof how.sampling);
        how.tree = i ? (specrt_tree_params){3, 3, 8} : (specrt_tree_params){4, 1, 5};
        if (i) how.n_batch = 1, how.graph = true;
        run(&how);
    }
}

/* Chains sampled from shortlists whose rows stand in the twin's order: packed ones need not. */
static void test_sampled(void) {
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

/* What was retrieved outlives begin. */
static void test_keep(void) {
    setting how = setting_of("static:20+window:12+retrieve:16@keep=on@mode=async");
    how.n_more = 1;
    run(&how);
}

/* Prompts come into the host's cache: in several parts, over what cycles brought that were not worked off
 * before, over what is kept, and over prompts that nothing followed. */
static void test_prompt(void) {
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
    how.n_prompt = -1;
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
static void test_few_rows(void) {
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
    REQUIRE(!specrt_bundle_open_memory(bytes, n, "b", NULL, &few, NULL));
    REQUIRE(!specrt_head_bind(NULL, &desc, NULL, &head, NULL));
    for (int i = 0; i < 6; i++) {
        setting how = setting_of(texts[i % 3]);
        if (!is_long()) how.n_cycles = 2;
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

/* Many sequences in one launch. */
static void test_batch(void) {
    setting how = setting_of("static:30+window:16");
    how.n_batch = is_long() ? MAX_BATCH : 5;
    how.n_cycles = 2;
    how.graph = true;
    run(&how);
}

/* Rows stay in the head, and what several sequences hold is read once for all: in chains of two states of a
 * group and in trees, by calls and by graphs, beside sources that route. */
static void test_shared(void) {
    static const char *const texts[] = {"window:40@min=30", "static:20+window:30@positions=tree",
                                        "static:10+window:20+successor:6+retrieve:12@mode=async"};
    for (int i = 0; i < 3; i++) {
        setting how = setting_of(texts[i]);
        how.shared = true;
        how.n_batch = i == 0 ? (is_long() ? MAX_BATCH : 9) : 3 + i;
        if (i == 0) how.tree = (specrt_tree_params){2, 1, 3};
        if (!is_long()) how.n_cycles = 2;
        how.graph = i != 1;
        how.lends = i == 1;
        how.n_more = i == 1;
        run(&how);
    }
}

/* A head of q8_0, which the device has in planes, or lent, in blocks, of which packed rows become planes. */
static void test_q8_0(void) {
    static const char *const texts[] = {"static:20/10+window:20", "static:8+sketch:10@keep=999",
                                        "cluster:3+window:12"};
    open_all();
    specrt_head *usual = head;
    specrt_head_desc desc = usual->desc;
    desc.rows = head_blocks, desc.dtype = SPECRT_DTYPE_Q8_0, desc.row_stride = 0;
    REQUIRE(!specrt_head_bind(bundle, &desc, NULL, &head, NULL));
    for (int i = 0; i < 6; i++) {
        setting how = setting_of(texts[i / 2]);
        if (!is_long()) how.n_cycles = 2;
        how.lends = i % 2 == 1;
        how.shared = i >= 4;
        run(&how);
    }
    specrt_head_close(head);
    head = usual;
}

/* Levels routed beside the drafter's pass have the rows of the twin, which routes them inside expand(); and
 * where nothing is told ahead, or by halves, later ones too. */
static void test_ahead(void) {
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
        open_policy(&shared, how.policy, false);
        open_device(&d, &shared, &how);
        device_start(&d, 0, N_PROMPT);
        ahead_halves(&d);
        gpu_check(cudaStreamSynchronize(d.stream), "halves");
        device_close(&d);
        close_policy(&shared);
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

/* With SPECRT_TEST_STRESS, on a GPU, 64 sequences for 1,000 cycles, twice: bit for bit the same. */
static void test_stress(void) {
    enum { MOST = 1000 };
    static const char *const texts[] = {
        "static:20/10+window:24@mode=stream+cluster:2@always=8+successor:6+sketch:8@keep=999",
        "window:30@min=20+retrieve:16@graph=off@mode=async+group:2@always=0"};
    static uint64_t first[MOST], second[MOST];
    bool all = getenv("SPECRT_TEST_STRESS") != NULL;
    for (int i = 0; i < 2; i++) {
        setting how = setting_of(texts[i]);
        shared_policy shared;
        how.n_batch = all ? MAX_BATCH : 3;
        how.n_cycles = all ? MOST : test_brief() ? 2 : 5;
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

/* The application's own rows, and such as no product can read. */
static void test_lent(void) {
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
    specrt_policy_desc desc = {.text = "static:9"};
    specrt_policy *policy;
    specrt_cuda_policy *shared;
    specrt_error err = {0};
    REQUIRE(!specrt_policy_create(bundle, head, &desc, &policy, &err));
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        CHECK_INT(specrt_cuda_policy_create(policy, &wrong[i], &shared, &err),
                  SPECRT_STATUS_BAD_ARG);
        CHECK_HAS(err.msg, "cuda: rows: expected rows of 64 bytes or more, aligned to 2");
    }
    specrt_policy_close(policy);
    gpu_free((void *)(uintptr_t)rows);
}

/* --- by chance --- */

static uint64_t random_state;

static int32_t random_below(int32_t n) {
    return fixture_below(&random_state, n);
}

/* Sources, and what may stand behind each: one of those that | separates, or nothing. */
static const char *const grammar[][10] = {
    {"static", ":20|:60|:30/50|:70/9/40"},
    {"window", ":8|:30|:70", "@mode=stream", "@kpre=0|@kpre=8", "@kver=0|@kver=8",
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

static void test_random(void) {
    static const int32_t prompts[] = {-1, 5, 80};
    char text[512];
    random_state = gpu_seed(31);
    for (int i = 0; i < (is_long() ? 60 : 2); i++) {
        draw_policy(text);
        setting how = setting_of(text);
        how.tree = (specrt_tree_params){1 + random_below(4), 1 + random_below(TOPK),
                                        2 + random_below(NODES - 1)};
        how.sampling.temperature = (float)random_below(4) / 2;
        how.sampling.top_k = random_below(2) * (1 + random_below(20));
        how.sampling.top_p = (float)random_below(3) / 2.1f;
        how.sampling.min_p = (float)random_below(3) / 30;
        how.n_batch = 1 + random_below(3);
        how.n_cycles = is_long() ? 20 : 3;
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

/* Half of what a graph has to hold is refused by name. */
static void test_captures(void) {
    setting how = setting_of("static:20+window:12+retrieve:9@graph=off@mode=async");
    how.halves = true;
    run(&how);
}

/* How many allocations the harness lets succeed; below 0: all. Not on a GPU. */
extern int harness_allocations_left __attribute__((weak));

/* Memory that runs out at any call leaves nothing behind. */
static void test_memory(void) {
    specrt_policy_desc desc = {.text = "static:20+retrieve:8@mode=async"};
    specrt_cuda_session_params params = {.tree = {2, 3, 7}, .n_batch = 2};
    specrt_policy *policy;
    specrt_cuda_policy *shared = NULL;
    specrt_cuda_session *session = NULL;
    specrt_error err;
    if (!&harness_allocations_left) SKIP("on a GPU");
    open_all();
    REQUIRE(!specrt_policy_create(bundle, head, &desc, &policy, &err));
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

/* The memory of as many levels and sources as there may be. */
static void test_most(void) {
    specrt_head_desc known = {
        .rows = embedding, .dtype = SPECRT_DTYPE_Q8_0, .n_rows = V, .n_cols = 32};
    specrt_policy_desc desc = {
        .text = "static:40/20+window:12+retrieve:8@sem=hnsw_h@prompt=best@mode=async"
                "+cluster:2@always=8@beam=per_row+group:2@always=8@beam=per_row"
                "+centroid:2@always=8@beam=per_row+successor:6+sketch:8@keep=999",
        .embedding = &known};
    specrt_cuda_session_params params = {.tree = {SPECRT_TREE_MAX_STEPS, 1, NODES},
                                         .sampling = {.temperature = 1},
                                         .draft = SPECRT_DRAFT_SAMPLED};
    specrt_policy *policy;
    specrt_cuda_policy *shared;
    specrt_cuda_session *session;
    specrt_error err = {0};
    open_all();
    desc.target = head;
    REQUIRE(!specrt_policy_create(bundle, head, &desc, &policy, &err));
    REQUIRE(!specrt_cuda_policy_create(policy, NULL, &shared, &err));
    specrt_cuda_session_create(shared, &params, &session, &err);
    CHECK_STR(err.msg, "");
    specrt_cuda_session_close(session);
    specrt_cuda_policy_close(shared);
    specrt_policy_close(policy);
}

static void check_refused(const char *text, specrt_cuda_session_params params,
                          specrt_status expected, const char *part) {
    specrt_policy_desc desc = {.text = text};
    specrt_policy *policy;
    specrt_cuda_policy *shared = NULL;
    specrt_cuda_session *session = NULL;
    specrt_error err = {0};
    REQUIRE(!specrt_policy_create(bundle, head, &desc, &policy, &err));
    if (!specrt_cuda_policy_create(policy, NULL, &shared, &err))
        specrt_cuda_session_create(shared, &params, &session, &err);
    CHECK(session == NULL);
    CHECK_INT(err.status, expected);
    CHECK_HAS(err.msg, part);
    specrt_cuda_policy_close(shared);
    specrt_policy_close(policy);
}

static void test_refusals(void) {
    specrt_cuda_session_params good = {.tree = {2, 3, 7}}, p = good;
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
    specrt_head *plain = head;
    specrt_head_desc capped = plain->desc;
    capped.softcap = 30;
    REQUIRE(specrt_head_bind(bundle, &capped, NULL, &head, NULL) == SPECRT_STATUS_OK);
    check_refused("static:9", good, SPECRT_STATUS_UNSUPPORTED, "a softcap of 30");
    specrt_head_close(head);
    head = plain;
}

static const test_case cases[] = {
    {"policies", "a captured cycle drafts, emits and learns as the CPU's sessions do",
     test_policies},
    {"calls", "so do its calls one by one", test_calls},
    {"greedy", "a chain and trees of a greedy target", test_greedy},
    {"sampled", "chains sampled from the drafter", test_sampled},
    {"keep", "one sequence after another, with what was retrieved", test_keep},
    {"prompt", "what a prompt says before the first cycle", test_prompt},
    {"few rows", "heads, lists and graphs that hold little", test_few_rows},
    {"batch", "many sequences at once", test_batch},
    {"shared", "rows that several hold, in the head", test_shared},
    {"ahead", "levels routed beside the drafter's pass", test_ahead},
    {"stress", "the same again, bit for bit, for long on a GPU", test_stress},
    {"lent", "rows that the device has already", test_lent},
    {"q8_0", "rows in blocks, and in planes", test_q8_0},
    {"random", "policies, trees and prompts by chance", test_random},
    {"captures", "that hold half of a cycle are refused by name", test_captures},
    {"most", "all that a session may hold", test_most},
    {"memory", "running out of it leaves nothing behind", test_memory},
    {"refusals", "what the device cannot do is named", test_refusals},
};
TEST_MAIN(cases)
