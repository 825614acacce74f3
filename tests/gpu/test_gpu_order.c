/* test_gpu_order.c : calls on a batch that come too early, too late or twice, without what they need, or
 * while others draft: refused before anything starts, so that what follows equals the twin. What the host
 * cannot refuse leaves a sequence at rest. */
#include "gpu_session.h"

static setting setting_of(const char *policy, int32_t n_batch) {
    return (setting){.policy = policy,
                     .tree = {2, 3, 7},
                     .sampling = {.temperature = 1, .seed = gpu_seed(8), .session = 4},
                     .n_batch = n_batch,
                     .n_cycles = 2};
}

/* A batch and its twins. */
typedef struct batch {
    shared_policy policy;
    device d;
    twin twins[2];
    int32_t *prompt; /* DEVICE [N_PROMPT] of sequence 0 */
    float *last;     /* DEVICE [n_batch, V] after the prompts */
} batch;

static batch the_batch;

static batch *open_batch(const setting *how) {
    static float logits[N_PROMPT * V];
    batch *b = &the_batch;
    int32_t tokens[N_PROMPT];
    memset(b, 0, sizeof *b);
    open_policy(&b->policy, how->policy, false);
    open_device(&b->d, &b->policy, how);
    b->last = (float *)gpu_alloc(2 * V * sizeof(float));
    for (int32_t i = 0; i < b->d.n; i++) {
        open_twin(&b->twins[i], &b->policy, how, i);
        for (int32_t j = 0; j < N_PROMPT; j++) tokens[j] = prompt_token(0, j);
        target_logits(tokens, N_PROMPT, logits);
        gpu_put(b->last + i * V, logits + (N_PROMPT - 1) * V, V * sizeof *logits);
    }
    b->prompt = (int32_t *)gpu_copy(tokens, sizeof tokens);
    /* What calls read that come without those before them. */
    gpu_check(cudaMemset(b->d.tokens, 0, (size_t)b->d.n * sizeof(int32_t)), "memset");
    gpu_check(cudaMemset(b->d.logits, 0, (size_t)b->d.n * NODES * V * sizeof(float)), "memset");
    gpu_check(cudaMemset(b->d.draft_input, 0, (size_t)b->d.n * TOPK * D * sizeof(float)), "memset");
    gpu_check(cudaDeviceSynchronize(), "memset");
    return b;
}

static void close_batch(batch *b) {
    gpu_check(cudaDeviceSynchronize(), "close");
    for (int32_t i = 0; i < b->d.n; i++) specrt_session_close(b->twins[i].session);
    gpu_free(b->prompt), gpu_free(b->last);
    device_close(&b->d);
    close_policy(&b->policy);
}

/* --- every call in every place --- */

enum { PREFILL, DRAW, START, ROUTE, EXPAND, FINISH, VERIFY, OBSERVE, N_CALLS };

static specrt_status call(batch *b, int which) {
    specrt_cuda_session *s = b->d.session;
    void *stream = b->d.stream;
    switch (which) {
    case PREFILL: return specrt_cuda_session_prefill(s, 0, b->prompt, N_PROMPT, NULL, stream);
    case DRAW: return specrt_cuda_session_draw(s, b->last, b->d.tokens, stream);
    case START: return specrt_cuda_session_start(s, -1, b->d.tokens, stream);
    case ROUTE: return specrt_cuda_session_route_ahead(s, b->d.draft_input, stream);
    case EXPAND: return specrt_cuda_session_expand(s, b->d.hidden, NULL, stream);
    case FINISH: return specrt_cuda_session_finish(s, stream);
    case VERIFY: return specrt_cuda_session_verify(s, b->d.logits, stream);
    default: return specrt_cuda_session_observe(s, NULL, stream);
    }
}

/* Where a batch of one is, by the calls after begin that lead there, and which calls may come: one that has
 * not started rests in cycles. */
typedef struct place {
    const char *name, *allowed; /* in the order of the calls: + or - */
    int n_calls;
    int calls[8];
} place;

static const place places[] = {
    {"prompt", "+--+++-+", 0, {0}},
    {"read", "++++++-+", 1, {PREFILL}},
    {"started", "-+-+++-+", 3, {PREFILL, DRAW, START}},
    {"one level", "-+-+++--", 4, {PREFILL, DRAW, START, EXPAND}},
    {"all levels", "-+---+--", 5, {PREFILL, DRAW, START, EXPAND, EXPAND}},
    {"drafted", "-+----+-", 6, {PREFILL, DRAW, START, EXPAND, EXPAND, FINISH}},
    {"verified", "-+----++", 7, {PREFILL, DRAW, START, EXPAND, EXPAND, FINISH, VERIFY}},
    {"learnt", "-+-+++--", 8, {PREFILL, DRAW, START, EXPAND, EXPAND, FINISH, VERIFY, OBSERVE}},
};

TEST(places, "every call in every place is right or refused by name") {
    static const char *const names[] = {"prefill: ", "draw: ",   "start: ",  "route_ahead: ",
                                        "expand: ",  "finish: ", "verify: ", "observe: "};
    setting how = setting_of("static:20+window:12", 1);
    batch *b = open_batch(&how);
    for (int which = 0; which < N_CALLS; which++) {
        CHECK_INT(call(b, which), SPECRT_STATUS_BAD_ORDER);
        CHECK_HAS(specrt_cuda_session_last_error(b->d.session)->msg, "expected begin() before it");
    }
    close_batch(b);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        for (int which = 0; which < N_CALLS; which++) {
            bool allowed = places[i].allowed[which] == '+';
            b = open_batch(&how);
            REQUIRE(!specrt_cuda_session_begin(b->d.session, -1, b->d.stream));
            for (int j = 0; j < places[i].n_calls; j++) REQUIRE(!call(b, places[i].calls[j]));
            specrt_status status = call(b, which);
            if ((status == SPECRT_STATUS_OK) != allowed)
                fprintf(stderr, "%s%s\n", names[which], places[i].name);
            CHECK_INT(status, allowed ? SPECRT_STATUS_OK : SPECRT_STATUS_BAD_ORDER);
            const specrt_error *error = specrt_cuda_session_last_error(b->d.session);
            CHECK_INT(error->status, status);
            if (!allowed) CHECK(strncmp(error->msg, names[which], strlen(names[which])) == 0);
            close_batch(b);
        }
}

/* Tries all that may not come in a place. */
static void try_wrong(batch *b, const char *name) {
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        for (int which = 0; which < N_CALLS && !strcmp(places[i].name, name); which++)
            if (places[i].allowed[which] == '-') CHECK_INT(call(b, which), SPECRT_STATUS_BAD_ORDER);
}

TEST(unharmed, "what is refused changes nothing: a run among refusals equals its twin") {
    setting how = setting_of("static:20+window:12+retrieve:9@graph=off@mode=async", 1);
    batch *b = open_batch(&how);
    device *d = &b->d;
    for (int g = 0; g < 2; g++) {
        REQUIRE(!specrt_cuda_session_begin(d->session, 0, d->stream));
        if (g == 0) try_wrong(b, "prompt");
        twin_start(&b->twins[0], 0, N_PROMPT);
        device_read(d, 0, N_PROMPT);
        try_wrong(b, "started");
        for (int c = 0; c < 3; c++) {
            device_pass(d);
            try_wrong(b, "one level");
            device_pass(d);
            try_wrong(b, "all levels");
            REQUIRE(!specrt_cuda_session_finish(d->session, d->stream));
            try_wrong(b, "drafted");
            device_target(d);
            REQUIRE(!specrt_cuda_session_verify(d->session, d->logits, d->stream));
            try_wrong(b, "verified");
            REQUIRE(!specrt_cuda_session_verify(d->session, d->logits, d->stream));
            gpu_check(cudaStreamSynchronize(d->stream), "cycle");
            twin_cycle(&b->twins[0]);
            check_cycle(d, &b->twins[0], 0);
            twin_observe(&b->twins[0]);
            if (c == 2) continue; /* begin() comes instead */
            device_observe(d);
            try_wrong(b, "learnt");
            gpu_check(cudaDeviceSynchronize(), "observe");
            specrt_cuda_session_serve(d->session);
        }
    }
    close_batch(b);
}

/* --- several sequences --- */

/* Sequence i reads its twin's prompt. */
static void read_prompt(batch *b, int32_t i) {
    static float logits[N_PROMPT * V], rest[V];
    int32_t tokens[N_PROMPT];
    device *d = &b->d;
    twin_start(&b->twins[i], i, N_PROMPT);
    for (int32_t j = 0; j < N_PROMPT; j++) tokens[j] = prompt_token(i, j);
    target_logits(tokens, N_PROMPT, logits);
    int32_t *read = (int32_t *)gpu_copy(tokens, sizeof tokens);
    float *known = (float *)gpu_copy(logits, sizeof logits);
    REQUIRE(!specrt_cuda_session_prefill(d->session, i, read, N_PROMPT, known, d->stream));
    for (int32_t j = 0; j < 2; j++)
        gpu_put(b->last + j * V, j == i ? logits + (N_PROMPT - 1) * V : rest, V * sizeof *rest);
    REQUIRE(!specrt_cuda_session_draw(d->session, b->last, d->tokens, d->stream));
    gpu_check(cudaStreamSynchronize(d->stream), "prefill");
    gpu_free(read), gpu_free(known);
}

/* The rest of a cycle of the sequences that have started; the first starts meanwhile, if it does. */
static void follow_cycle(batch *b, const bool *started, bool starts) {
    device *d = &b->d;
    REQUIRE(!specrt_cuda_session_finish(d->session, d->stream));
    if (starts) REQUIRE(!specrt_cuda_session_start(d->session, 0, d->tokens, d->stream));
    device_target(d);
    REQUIRE(!specrt_cuda_session_verify(d->session, d->logits, d->stream));
    gpu_check(cudaStreamSynchronize(d->stream), "cycle");
    for (int32_t i = 0; i < 2; i++) {
        specrt_verdict verdict;
        gpu_get(&verdict, &d->view.verdict[i], sizeof verdict);
        if (!started[i]) CHECK_INT(verdict.n, 0);
        if (!started[i]) continue;
        twin_cycle(&b->twins[i]);
        check_cycle(d, &b->twins[i], i);
        twin_observe(&b->twins[i]);
    }
    device_observe(d);
    gpu_check(cudaDeviceSynchronize(), "observe");
}

/* A sequence may begin and read while others draft, and rests; it starts between their drafts. */
TEST(others, "sequences begin while others draft, and start between") {
    bool started[2] = {false, true};
    setting how = setting_of("static:30/20+window:12", 2);
    batch *b = open_batch(&how);
    device *d = &b->d;
    specrt_cuda_session *s = d->session;
    REQUIRE(!specrt_cuda_session_begin(s, -1, d->stream));
    read_prompt(b, 1);
    CHECK_INT(specrt_cuda_session_start(s, -1, d->tokens, d->stream), SPECRT_STATUS_BAD_ORDER);
    CHECK_HAS(specrt_cuda_session_last_error(s)->msg, "start: sequence 0: expected prefill()");
    REQUIRE(!specrt_cuda_session_start(s, 1, d->tokens, d->stream));
    for (int c = 0; c < 4; c++) {
        device_pass(d);
        if (c == 1) {
            read_prompt(b, 0);
            CHECK_INT(specrt_cuda_session_start(s, 0, d->tokens, d->stream),
                      SPECRT_STATUS_BAD_ORDER);
            CHECK_HAS(specrt_cuda_session_last_error(s)->msg, "other sequences are drafting");
        }
        if (c == 3) REQUIRE(!specrt_cuda_session_begin(s, 0, d->stream));
        started[0] = c == 2;
        device_pass(d);
        follow_cycle(b, started, c == 1);
    }
    close_batch(b);
}

/* --- graphs --- */

/* The first cycle of a generation. Its draft alone is a graph: the host sees no finish() before verify(). */
static void graph_draft(batch *b) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    device *d = &b->d;
    cudaStreamBeginCapture(d->stream, cudaStreamCaptureModeThreadLocal);
    device_observe(d);
    for (int32_t level = 0; level < d->view.num_steps; level++) device_pass(d);
    REQUIRE(!specrt_cuda_session_finish(d->session, d->stream));
    REQUIRE(cudaStreamEndCapture(d->stream, &graph) == cudaSuccess);
    REQUIRE(cudaGraphInstantiateWithFlags(&exec, graph, 0) == cudaSuccess);
    REQUIRE(cudaGraphLaunch(exec, d->stream) == cudaSuccess);
    device_target(d);
    REQUIRE(!specrt_cuda_session_verify(d->session, d->logits, d->stream));
    gpu_check(cudaStreamSynchronize(d->stream), "cycle");
    twin_cycle(&b->twins[0]);
    check_cycle(d, &b->twins[0], 0);
    cudaGraphExecDestroy(exec), cudaGraphDestroy(graph);
}

/* What a capture contains is not what came: a graph that is thrown away leaves the order as it was, and one
 * that is launched is known to the device alone. */
TEST(graphs, "calls that are captured have not come") {
    setting how = setting_of("static:20+window:12", 1);
    batch *b = open_batch(&how);
    device *d = &b->d;
    twin_start(&b->twins[0], 0, N_PROMPT);
    device_start(d, 0, N_PROMPT);
    cudaGraphExecDestroy(device_capture(d));
    for (int c = 0; c < 3; c++) {
        cudaGraphExec_t exec = c == 1 ? device_capture(d) : NULL;
        if (exec)
            REQUIRE(cudaGraphLaunch(exec, d->stream) == cudaSuccess);
        else
            device_cycle(d);
        gpu_check(cudaStreamSynchronize(d->stream), "cycle");
        twin_cycle(&b->twins[0]);
        check_cycle(d, &b->twins[0], 0);
        twin_observe(&b->twins[0]);
        if (exec) cudaGraphExecDestroy(exec);
        if (c == 1) device_observe(d);
    }
    CHECK_INT(specrt_cuda_session_expand(d->session, d->hidden, NULL, d->stream),
              SPECRT_STATUS_BAD_ORDER);
    CHECK_INT(call(b, PREFILL), SPECRT_STATUS_BAD_ORDER); /* no graph has prompts */
    twin_start(&b->twins[0], 5, N_PROMPT);
    device_start(d, 5, N_PROMPT);
    graph_draft(b);
    close_batch(b);
}

/* --- arguments --- */

static void check_missing(specrt_cuda_session *s, specrt_status status, const char *text) {
    CHECK_INT(status, SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_cuda_session_last_error(s)->status, SPECRT_STATUS_BAD_ARG);
    CHECK_STR(specrt_cuda_session_last_error(s)->msg, text);
}

TEST(missing, "pointers and numbers out of range are named") {
    setting how = setting_of("static:20+window:12", 2);
    batch *b = open_batch(&how);
    specrt_cuda_session *s = b->d.session;
    int32_t *tokens = b->d.tokens;
    float *x = b->d.logits;
    CHECK_INT(specrt_cuda_session_last_error(s)->status, SPECRT_STATUS_OK);
    REQUIRE(!specrt_cuda_session_begin(s, -1, NULL));
    check_missing(s, specrt_cuda_session_begin(s, 2, NULL),
                  "begin: i: expected a sequence of -1 to 1, found 2");
    check_missing(s, specrt_cuda_session_begin(s, -2, NULL),
                  "begin: i: expected a sequence of -1 to 1, found -2");
    check_missing(s, specrt_cuda_session_prefill(s, -1, tokens, 1, NULL, NULL),
                  "prefill: i: expected a sequence of 0 to 1, found -1");
    check_missing(s, specrt_cuda_session_prefill(s, 0, tokens, -1, NULL, NULL),
                  "prefill: n: expected 0 or more tokens, found -1");
    check_missing(s, specrt_cuda_session_prefill(s, 0, NULL, 1, NULL, NULL),
                  "prefill: tokens: expected a pointer, found NULL");
    CHECK_INT(specrt_cuda_session_prefill(s, 0, NULL, 0, NULL, NULL), SPECRT_STATUS_OK);
    check_missing(s, specrt_cuda_session_draw(s, NULL, tokens, NULL),
                  "draw: logits, tokens: expected a pointer, found NULL");
    check_missing(s, specrt_cuda_session_draw(s, x, NULL, NULL),
                  "draw: logits, tokens: expected a pointer, found NULL");
    check_missing(s, specrt_cuda_session_start(s, 0, NULL, NULL),
                  "start: tokens: expected a pointer, found NULL");
    check_missing(s, specrt_cuda_session_start(s, 2, tokens, NULL),
                  "start: i: expected a sequence of -1 to 1, found 2");
    check_missing(s, specrt_cuda_session_expand(s, NULL, NULL, NULL),
                  "expand: draft_hidden: expected a pointer, found NULL");
    check_missing(s, specrt_cuda_session_verify(s, NULL, NULL),
                  "verify: logits: expected a pointer, found NULL");
    check_missing(s, specrt_cuda_session_get_stats(s, NULL, NULL),
                  "get_stats: stats: expected a pointer, found NULL");
    close_batch(b);
}

TEST(null, "no call reads a session or a policy that is NULL") {
    const specrt_cuda_session_params params = {.n_logits = V};
    specrt_cuda_policy *policy = (specrt_cuda_policy *)&the_batch;
    specrt_cuda_session *session = (specrt_cuda_session *)&the_batch;
    specrt_cuda_view view;
    specrt_session_stats stats;
    specrt_error err = {0};
    float x[1] = {0};
    int32_t token = 0;
    const specrt_status all[] = {specrt_cuda_policy_create(NULL, NULL, &policy, &err),
                                 specrt_cuda_session_create(NULL, &params, &session, &err),
                                 specrt_cuda_session_begin(NULL, 0, NULL),
                                 specrt_cuda_session_prefill(NULL, 0, &token, 1, NULL, NULL),
                                 specrt_cuda_session_draw(NULL, x, &token, NULL),
                                 specrt_cuda_session_start(NULL, 0, &token, NULL),
                                 specrt_cuda_session_route_ahead(NULL, x, NULL),
                                 specrt_cuda_session_expand(NULL, x, x, NULL),
                                 specrt_cuda_session_draft_block(NULL, x, 1, NULL),
                                 specrt_cuda_session_finish(NULL, NULL),
                                 specrt_cuda_session_verify(NULL, x, NULL),
                                 specrt_cuda_session_observe(NULL, x, NULL),
                                 specrt_cuda_session_get_stats(NULL, &stats, NULL)};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        CHECK_INT(all[i], SPECRT_STATUS_BAD_ARG);
    CHECK(policy == NULL && session == NULL);
    CHECK(specrt_cuda_session_last_error(NULL) == NULL);
    CHECK_INT(specrt_cuda_session_serve(NULL), 0);
    specrt_cuda_session_get_view(NULL, &view);
    CHECK_INT(view.n_batch, 0);
    specrt_cuda_session_get_view(NULL, NULL);
    specrt_cuda_session_close(NULL);
    specrt_cuda_policy_close(NULL);
}

/* --- what the host does not see --- */

static int64_t count_cycles(batch *b, int32_t i) {
    size_t n = (size_t)b->d.n * sizeof(specrt_session_stats);
    specrt_session_stats *all = (specrt_session_stats *)gpu_alloc(n), one;
    REQUIRE(!specrt_cuda_session_get_stats(b->d.session, all, b->d.stream));
    gpu_get(&one, &all[i], sizeof one);
    gpu_free(all);
    return one.n_cycles;
}

TEST(no_token, "logits of which none counts draw no token, and what is no token starts nothing") {
    static const int32_t wrong[2] = {-1, V};
    setting how = setting_of("static:20+window:12", 2);
    batch *b = open_batch(&how);
    device *d = &b->d;
    float nothing[2 * V];
    int32_t tokens[2];
    specrt_cuda_beam beams[2];
    for (int i = 0; i < 2 * V; i++) nothing[i] = i % 3 ? -INFINITY : NAN;
    nothing[V + 7] = 1;
    REQUIRE(!specrt_cuda_session_begin(d->session, -1, d->stream));
    for (int32_t i = 0; i < 2; i++)
        REQUIRE(!specrt_cuda_session_prefill(d->session, i, b->prompt, 2, NULL, d->stream));
    gpu_put(b->last, nothing, sizeof nothing);
    REQUIRE(!specrt_cuda_session_draw(d->session, b->last, d->tokens, d->stream));
    gpu_get(tokens, d->tokens, sizeof tokens);
    CHECK_INT(tokens[0], -1);
    CHECK_INT(tokens[1], 7);
    gpu_put(d->tokens, wrong, sizeof wrong);
    REQUIRE(!specrt_cuda_session_start(d->session, -1, d->tokens, d->stream));
    gpu_get(beams, d->view.beam, sizeof beams);
    for (int i = 0; i < 2; i++) CHECK_INT(beams[i].n, 0);
    device_cycle(d);
    device_observe(d);
    for (int32_t i = 0; i < 2; i++) CHECK_INT(count_cycles(b, i), 0);
    close_batch(b);
}

/* Puts a verdict in place of what the device decided, and observes it. @return whether it was learned. */
static bool observe_own(batch *b, const specrt_cuda_draft *draft, const specrt_verdict *verdict) {
    device *d = &b->d;
    int64_t n_cycles = count_cycles(b, 0);
    gpu_put((void *)(uintptr_t)d->view.draft, draft, sizeof *draft);
    REQUIRE(!specrt_cuda_session_verify(d->session, d->logits, d->stream));
    gpu_check(cudaStreamSynchronize(d->stream), "verify");
    gpu_put((void *)(uintptr_t)d->view.verdict, verdict, sizeof *verdict);
    device_observe(d);
    gpu_check(cudaDeviceSynchronize(), "observe");
    return count_cycles(b, 0) > n_cycles;
}

TEST(own_verdict, "that is no path is not learned") {
    setting how = setting_of("static:20+window:12@positions=tree", 1);
    specrt_cuda_draft draft;
    specrt_verdict good = {.n = 2, .tokens = {0, 9}, .nodes = {0, 1}};
    for (int i = 0; i < 9; i++) {
        batch *b = open_batch(&how);
        device *d = &b->d;
        device_start(d, 0, N_PROMPT);
        device_cycle(d);
        gpu_get(&draft, d->view.draft, sizeof draft);
        draft.n = 3;
        draft.tokens[2] = 11;
        good.tokens[0] = draft.tokens[1];
        specrt_verdict verdict = good;
        if (i == 1) verdict.n = 4;
        if (i == 2) verdict.nodes[1] = 3;
        if (i == 3) verdict.nodes[1] = 0;
        if (i == 4) verdict.nodes[0] = 1;
        if (i == 5) verdict.tokens[0]++;
        if (i == 6) verdict.tokens[1] = V;
        if (i == 7) draft.tokens[2] = -1;
        if (i == 8) draft.n = 8;
        CHECK_INT(observe_own(b, &draft, &verdict), i == 0);
        close_batch(b);
    }
}
