/* bench_cycle.c : whole draft cycles of sessions, a drafter's bytes included, by events and by the host's
 * clock; verification, sampled too; and when learning is over. */
#include "specrt.h"
#include "cuda/kernels.h"
#include "bench.h"

enum { STEPS = 6, NODES = 60, PATH = 4, NEW_ROWS = 16, LENT_ABOVE = 64 };

/* A session and models that cost what theirs would. The drafter is a product of as many bytes as EAGLE-2's
 * layer has for Llama-3-8B: 61,440 rows of 4,096. */
typedef struct cycle {
    specrt_policy *policy;
    specrt_cuda_policy *shared;
    specrt_cuda_session *session;
    specrt_cuda_view view;
    bench_product *layer;
    void *hidden;  /* DEVICE f16, f32 where a router reads it [n_batch, topk, n_cols] */
    float *logits; /* DEVICE f32 [n_batch, NODES, n_logits] of the target */
    float *said; /* DEVICE f32 by chance, longer than a row: where a row begins in it is its own */
    int32_t *tokens; /* DEVICE [n_batch] */
    int32_t turn;
    bool ahead;      /* the router runs beside the drafter's pass */
    int32_t n_block; /* positions that the drafter's one pass gives; 0: STEPS passes */
} cycle;

/* What sessions are opened with. */
typedef struct way {
    const char *text; /* of the policy */
    int32_t n_batch;
    int32_t
        shared; /* rows of windows stay in the head, and those of several sequences are read once */
    specrt_sampling sampling;
    bool routed, ahead;
    int32_t n_block; /* at most BENCH_K */
    bool lends;      /* many states are multiplied by cuBLASLt */
    bool markov;     /* the head has a Markov head beside it */
} way;

/* A model whose weights everything shares. */
typedef struct model {
    const bench_shape *shape;
    specrt_bundle *bundle;
    specrt_head *head, *with_markov;
    specrt_head_desc desc;     /* of the head, and of the embedding that a router reads */
    specrt_markov_desc markov; /* both matrices are one */
    void *rows;                /* DEVICE f16 */
    bench_product layer;
    void *host_rows, *markov_rows, *sections;
} model;

/* --- a cycle --- */

static void draft_block(cycle *c) {
    c->layer->n = c->n_block;
    bench_run_logits(c->layer);
    bench_must(specrt_cuda_session_draft_block(c->session, c->hidden, c->n_block, bench_stream),
               "draft_block");
}

/* All levels; `first`, unless NULL, is recorded behind the drafter's first pass. */
static void draft_levels(cycle *c, cudaEvent_t first) {
    for (int32_t level = 0; level < STEPS; level++) {
        c->layer->n = level == 0 ? 1 : BENCH_K;
        if (c->ahead)
            bench_must(specrt_cuda_session_route_ahead(c->session, c->hidden, bench_stream),
                       "route_ahead");
        bench_run_logits(c->layer);
        if (level == 0 && first) gpu_check(cudaEventRecord(first, bench_stream), "event");
        bench_must(specrt_cuda_session_expand(c->session, c->hidden, c->hidden, bench_stream),
                   "expand");
    }
    bench_must(specrt_cuda_session_finish(c->session, bench_stream), "finish");
}

/* What the last cycle taught is learnt beside the first pass of this. */
static void run_draft(void *arg) {
    cycle *c = (cycle *)arg;
    bench_must(specrt_cuda_session_observe(c->session, NULL, bench_stream), "observe");
    if (c->n_block > 0)
        draft_block(c);
    else
        draft_levels(c, NULL);
}

static void run_observe(void *arg) {
    cycle *c = (cycle *)arg;
    bench_must(specrt_cuda_session_observe(c->session, NULL, bench_stream), "observe");
    bench_must(specrt_cuda_session_finish(c->session, bench_stream), "finish"); /* joins */
}

static void run_verify(void *arg) {
    cycle *c = (cycle *)arg;
    bench_must(specrt_cuda_session_verify(c->session, c->logits, bench_stream), "verify");
}

/* Target logits with NEW_ROWS tokens among the best that were not there before; PATH drafted tokens are what
 * the target says. */
static void answer(cycle *c) {
    size_t n_logits = (size_t)c->view.n_logits, shift = (size_t)c->turn++ % 256 * NEW_ROWS;
    const float sure = 100;
    static specrt_cuda_draft draft;
    gpu_check(cudaStreamSynchronize(bench_stream), "synchronize");
    for (size_t i = 0; i < (size_t)c->view.n_batch * NODES; i++)
        gpu_check(cudaMemcpyAsync(c->logits + i * n_logits, c->said + shift + i % 2 * NEW_ROWS / 2,
                                  n_logits * sizeof(float), cudaMemcpyDeviceToDevice, bench_stream),
                  "copy");
    gpu_check(cudaStreamSynchronize(bench_stream), "synchronize");
    for (int32_t b = 0; b < c->view.n_batch; b++) {
        gpu_get(&draft, c->view.draft + b, sizeof draft);
        for (int32_t i = 1, node = 0, n = 0; i < draft.n && n < PATH; i++) {
            if (draft.parents[i] != node) continue;
            size_t row = (size_t)(b * NODES + node) * n_logits;
            gpu_put(c->logits + row + draft.tokens[i], &sure, sizeof sure);
            node = i, n++;
        }
    }
}

static void prepare(void *arg) {
    answer((cycle *)arg);
    run_verify(arg);
}

static void prepare_answer(void *arg) {
    answer((cycle *)arg);
}

/* --- sessions --- */

static void must_open(specrt_status status, const specrt_error *err) {
    if (status == SPECRT_STATUS_OK) return;
    fprintf(stderr, "bench_gpu: %s\n", err->msg);
    exit(1);
}

static void start_cycle(cycle *c) {
    size_t n = (size_t)c->view.n_batch;
    c->tokens = (int32_t *)gpu_alloc(n * sizeof(int32_t));
    gpu_check(cudaMemset(c->tokens, 0, n * sizeof(int32_t)), "memset");
    bench_must(specrt_cuda_session_begin(c->session, -1, bench_stream), "begin");
    for (int32_t i = 0; i < c->view.n_batch; i++)
        bench_must(specrt_cuda_session_prefill(c->session, i, c->tokens, 1, NULL, bench_stream),
                   "prefill");
    bench_must(specrt_cuda_session_start(c->session, -1, c->tokens, bench_stream), "start");
    run_draft(c);
}

static void open_cycle(cycle *c, model *m, const way *w) {
    specrt_policy_desc wanted = {.text = w->text, .embedding = &m->desc};
    specrt_cuda_policy_desc desc = {.rows = m->rows, .embedding = m->rows};
    specrt_dtype hidden = w->routed ? SPECRT_DTYPE_F32 : SPECRT_DTYPE_F16;
    specrt_cuda_session_params params = {.tree = {w->n_block ? w->n_block : STEPS, BENCH_K, NODES},
                                         .n_block = w->n_block,
                                         .sampling = w->sampling,
                                         .n_batch = w->n_batch,
                                         .n_logits = m->shape->n_rows,
                                         .hidden = hidden,
                                         .stock = w->shared ? 1 : 2};
    specrt_error err = {0};
    uint64_t state = gpu_seed(3);
    memset(c, 0, sizeof *c);
    specrt_head *head = w->markov ? m->with_markov : m->head;
    must_open(specrt_policy_create(m->bundle, head, &wanted, &c->policy, &err), &err);
    must_open(specrt_cuda_policy_create(c->policy, &desc, &c->shared, &err), &err);
    must_open(specrt_cuda_session_create(c->shared, &params, &c->session, &err), &err);
    specrt_cuda_session_get_view(c->session, &c->view);
    if (w->lends)
        bench_must(specrt_cuda_session_set_gemm(c->session, bench_gemm, NULL, LENT_ABOVE),
                   "set_gemm");
    c->layer = &m->layer;
    c->ahead = w->ahead;
    c->n_block = w->n_block;
    size_t n = (size_t)w->n_batch, n_logits = (size_t)c->view.n_logits, n_said = n_logits + 8192;
    float *said = (float *)malloc(n_said * sizeof *said);
    for (size_t i = 0; i < n_said; i++) said[i] = fixture_normal(&state);
    c->said = (float *)gpu_copy(said, n_said * sizeof *said);
    free(said);
    c->hidden = bench_rows(hidden, (int64_t)n * BENCH_K, m->shape->n_cols);
    c->logits = (float *)gpu_alloc(n * NODES * n_logits * sizeof(float));
    start_cycle(c);
}

static void close_cycle(cycle *c) {
    specrt_cuda_session_close(c->session);
    specrt_cuda_policy_close(c->shared);
    specrt_policy_close(c->policy);
    gpu_free(c->hidden), gpu_free(c->logits), gpu_free(c->said), gpu_free(c->tokens);
}

/* Rows that sequence 0 packed so far. */
static int64_t count_copied(const cycle *c) {
    specrt_cuda_state state;
    gpu_get(&state, c->view.states, sizeof state);
    return state.n_copied;
}

/* --- what a policy costs --- */

/* Columns of a Markov head, as DSpark's have. */
static int32_t rank(void) {
    return bench_tiny ? 32 : 256;
}

typedef struct costs {
    double full, fixed, same; /* draft seconds of `full`, static:32768 and static:3072 */
} costs;

static void report_draft(cycle *c, bench_result r, const costs *goals, bool learns, bool markov) {
    double layer = (double)c->layer->head.n_rows * (double)c->layer->head.row_stride;
    double rows = (double)r.rows * (double)c->layer->head.row_stride;
    int64_t copied = count_copied(c), turn = c->turn;
    r.n = BENCH_K;
    r.what = "draft";
    r.bytes = (c->n_block ? 1 : STEPS) * (layer + rows);
    if (markov) r.bytes += (double)c->n_block * (double)r.rows * 2 * rank();
    r.seconds = bench_time_graph(run_draft, learns ? prepare : NULL, c, &r.spread);
    if (learns && goals->full > 0) {
        r.limit = (1 - 0.516) * goals->full, r.goal = "51.6% below full";
        bench_report(&r);
        r.limit = (1 - 0.203) * goals->fixed, r.goal = "20.3% below static:32768";
        bench_report(&r);
        r.limit = 1.02 * goals->same, r.goal = "within 2% of static:3072, which packs nothing";
    }
    bench_report(&r);
    if (!learns) return;
    r.what = "observe, new rows";
    r.rows = c->turn > turn ? (count_copied(c) - copied) / (c->turn - turn) : 0;
    r.seconds = bench_time(run_observe, prepare, c, &r.spread);
    r.bytes = 0;
    r.limit = 0;
    bench_report(&r);
}

/* What the host and the launches cost: drafts one after the other, by the host's clock. */
static void report_host(cycle *c, bench_result r) {
    r.n = BENCH_K;
    r.what = "draft, call by call";
    r.seconds = bench_wall(run_draft, c, false);
    bench_report(&r);
    r.what = "draft, as a graph";
    r.seconds = bench_wall(run_draft, c, true);
    bench_report(&r);
}

static void name_way(const way *w, char *out, size_t n) {
    snprintf(out, n, "%s x%d%s%s%s%s%s", w->text, (int)w->n_batch, w->shared ? " shared" : "",
             w->ahead ? " ahead" : "", w->n_block ? " block" : "", w->markov ? " markov" : "",
             w->lends ? " cublaslt" : "");
}

/* What sequences are told here is much the same, and so are their windows. */
static double bench_policy(model *m, const way *w, const costs *goals) {
    cycle c;
    char name[64];
    open_cycle(&c, m, w);
    name_way(w, name, sizeof name);
    bench_result r = {
        .model = name, .dtype = "f16", .rows = specrt_policy_get_info(c.policy)->bound};
    bool learns = specrt_policy_get_info(c.policy)->needs_prompt_logits;
    report_draft(&c, r, goals, learns, w->markov);
    if (w->n_batch == 1) report_host(&c, r);
    double seconds = learns ? 0 : bench_time_graph(run_draft, NULL, &c, NULL);
    r.what = "verify";
    r.n = NODES;
    r.bytes = (double)w->n_batch * NODES * (double)c.view.n_logits * sizeof(float);
    r.seconds = bench_time(run_verify, prepare_answer, &c, &r.spread);
    bench_report(&r);
    close_cycle(&c);
    return seconds;
}

/* One reading of the logits is the floor. */
static void bench_sampled(model *m, const char *text, int32_t n_batch) {
    static const struct {
        const char *what;
        specrt_sampling sampling;
    } kinds[] = {
        {"verify, temperature", {.temperature = 1, .seed = 1, .session = 1}},
        {"verify, top_k 50", {.temperature = 1, .top_k = 50, .seed = 1, .session = 1}},
        {"verify, top_p 0.95", {.temperature = 1, .top_p = 0.95f, .seed = 1, .session = 1}}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        cycle c;
        char name[64];
        const way w = {.text = text, .n_batch = n_batch, .sampling = kinds[i].sampling};
        open_cycle(&c, m, &w);
        name_way(&w, name, sizeof name);
        bench_result r = {.what = kinds[i].what, .model = name, .dtype = "f32", .n = NODES};
        r.bytes = (double)n_batch * NODES * (double)c.view.n_logits * sizeof(float);
        r.seconds = bench_time(run_verify, prepare_answer, &c, &r.spread);
        bench_report(&r);
        close_cycle(&c);
    }
}

/* --- what runs beside --- */

/* Learning and packing must be over before the drafter's first pass is. */
static void bench_learning(model *m, const char *text) {
    enum { BEGUN, LEARNT, DRAFTED, EVENTS };
    cudaEvent_t at[EVENTS];
    float learning = 0, drafting = 0;
    cycle c;
    open_cycle(&c, m, &(way){.text = text, .n_batch = 1});
    for (int i = 0; i < EVENTS; i++)
        gpu_check(cudaEventCreateWithFlags(&at[i], cudaEventDefault), "event");
    for (int i = 0; i < 3; i++) {
        prepare(&c);
        gpu_check(cudaEventRecord(at[BEGUN], bench_stream), "event");
        bench_must(specrt_cuda_session_observe(c.session, NULL, bench_stream), "observe");
        gpu_check(cudaEventRecord(at[LEARNT], (cudaStream_t)c.view.side), "event");
        draft_levels(&c, at[DRAFTED]);
    }
    gpu_check(cudaStreamSynchronize(bench_stream), "synchronize");
    gpu_check(cudaEventElapsedTime(&learning, at[BEGUN], at[LEARNT]), "elapsed");
    gpu_check(cudaEventElapsedTime(&drafting, at[BEGUN], at[DRAFTED]), "elapsed");
    bench_result r = {.what = "learn+pack is over",
                      .model = "microspec x1",
                      .dtype = "f16",
                      .seconds = (double)learning / 1e3,
                      .limit = (double)drafting / 1e3,
                      .goal = "before the first layer is"};
    bench_report(&r);
    for (int i = 0; i < EVENTS; i++) cudaEventDestroy(at[i]);
    close_cycle(&c);
}

/* --- */

/* Sections by chance, as large as a model's. */
static uint8_t *make_bundle(const bench_shape *shape, size_t *n) {
    enum { N = 4 };
    static const char *const tags[N] = {"cluster", "cograph", "ranks", "sketch"};
    const specrt_clusters_header clusters = {.n_rows = shape->n_rows,
                                             .n_cols = shape->n_cols,
                                             .n_clusters = 10 + shape->n_rows / 54,
                                             .router = SPECRT_ROUTER_DYNASPEC,
                                             .n_state = shape->n_cols,
                                             .n_hidden = bench_tiny ? 8 : 1024,
                                             .n_embed = shape->n_cols,
                                             .n_schedule = STEPS};
    uint8_t *parts[N];
    size_t sizes[N];
    for (int i = 0; i < N; i++)
        parts[i] = i == 0   ? fixture_clusters(clusters, NULL, 5, &sizes[i])
                   : i == 1 ? fixture_graph(shape->n_rows, bench_tiny ? 6 : 64, NULL, 5, &sizes[i])
                   : i == 2 ? fixture_ranks(shape->n_rows, 2, shape->n_rows / 4, &sizes[i])
                            : fixture_sketch(shape->n_rows, shape->n_cols, 64, 6, &sizes[i]);
    return fixture_join(tags, parts, sizes, N, n);
}

/* The same head with a Markov head. */
static void open_markov(model *m) {
    size_t bytes = (size_t)m->shape->n_rows * (size_t)rank() * 2;
    specrt_head_desc desc = m->desc;
    specrt_error err = {0};
    void *rows = bench_rows(SPECRT_DTYPE_F16, m->shape->n_rows, rank());
    m->markov_rows = malloc(bytes);
    gpu_get(m->markov_rows, rows, bytes);
    gpu_free(rows);
    m->markov.from = (specrt_head_desc){.rows = m->markov_rows,
                                        .dtype = SPECRT_DTYPE_F16,
                                        .n_rows = m->shape->n_rows,
                                        .n_cols = rank()};
    m->markov.to = m->markov.from;
    desc.markov = &m->markov;
    must_open(specrt_head_bind(m->bundle, &desc, NULL, &m->with_markov, &err), &err);
}

static void open_model(model *m, const bench_shape *shape) {
    const bench_shape layer = {"layer", bench_tiny ? 64 : 61440, bench_tiny ? 64 : 4096};
    size_t n, bytes = (size_t)shape->n_rows * (size_t)shape->n_cols * 2;
    specrt_error err = {0};
    m->shape = shape;
    m->host_rows = malloc(bytes);
    m->sections = make_bundle(shape, &n);
    m->rows = bench_rows(SPECRT_DTYPE_F16, shape->n_rows, shape->n_cols);
    gpu_get(m->host_rows, m->rows, bytes); /* lists are packed there */
    m->desc = (specrt_head_desc){.rows = m->host_rows,
                                 .dtype = SPECRT_DTYPE_F16,
                                 .n_rows = shape->n_rows,
                                 .n_cols = shape->n_cols};
    must_open(specrt_bundle_open_memory(m->sections, n, "sections", NULL, &m->bundle, &err), &err);
    must_open(specrt_head_bind(m->bundle, &m->desc, NULL, &m->head, &err), &err);
    open_markov(m);
    bench_make(&m->layer, &layer, SPECRT_DTYPE_F16);
}

void bench_cycles(const bench_shape *shape) {
    const char *fixed = bench_tiny ? "static:200" : "static:32768";
    const char *same = bench_tiny ? "static:96" : "static:3072";
    const char *learning = bench_tiny ? "window:96@min=96" : "microspec";
    const char *sum = bench_tiny ? "window:96@min=96+successor:8+sketch:8" : "hybrid";
    const int32_t most = bench_tiny ? 1 : 64;
    static const costs none;
    static model m;
    open_model(&m, shape);
    bench_learning(&m, learning);
    for (int32_t n = 1; n <= most; n = n == 1 ? 8 : 2 * n) {
        costs c = {0};
        c.full = bench_policy(&m, &(way){.text = "full", .n_batch = n}, &c);
        if (bench_gemm && n * BENCH_K > LENT_ABOVE)
            bench_policy(&m, &(way){.text = "full", .n_batch = n, .lends = true}, &none);
        c.fixed = bench_policy(&m, &(way){.text = fixed, .n_batch = n}, &c);
        c.same = bench_policy(&m, &(way){.text = same, .n_batch = n}, &c);
        bench_policy(&m, &(way){.text = learning, .n_batch = n}, &c);
        bench_policy(&m, &(way){.text = learning, .n_batch = n, .shared = 1}, &none);
        bench_policy(&m, &(way){.text = sum, .n_batch = n}, &none);
        bench_policy(&m, &(way){.text = fixed, .n_batch = n, .n_block = BENCH_K}, &none);
        bench_policy(&m, &(way){.text = fixed, .n_batch = n, .n_block = BENCH_K, .markov = true},
                     &none);
        bench_sampled(&m, same, n);
    }
    bench_policy(&m, &(way){.text = "dynaspec", .n_batch = 1, .routed = true}, &none);
    bench_policy(&m, &(way){.text = "dynaspec", .n_batch = 1, .routed = true, .ahead = true},
                 &none);
    bench_free(&m.layer);
    specrt_head_close(m.head);
    specrt_head_close(m.with_markov);
    specrt_bundle_close(m.bundle);
    gpu_free(m.rows), free(m.host_rows), free(m.markov_rows), free(m.sections);
}
