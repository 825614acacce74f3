/* test_gpu_gemm.c : products that an application lends: sessions draft what they draft without them, and call
 * them for so many states, rows and places as the header says, no others. */
#include "gpu_session.h"

static setting setting_of(const char *policy, int32_t above) {
    return (setting){
        .policy = policy, .tree = {4, 3, NODES}, .n_batch = 3, .n_cycles = 3, .gemm_above = above};
}

/* --- what an application does --- */

static specrt_cuda_product last;            /* that was asked for */
static int n_calls, n_captured, fails_with; /* fails_with: what the next one returns */
static specrt__cuda_segment *rows_of_last;  /* DEVICE */

/* By loops over what the device has, between kernels of the stream. */
static void multiply_by_loops(const specrt_cuda_product *p) {
    static float hidden[MAX_BATCH * TOPK * D], rows[V * D], biases[V], logits[V];
    const size_t step = p->hidden_stride / sizeof(float);
    gpu_get(rows, p->rows, (size_t)p->n_rows * D * sizeof *rows);
    gpu_get(biases, p->bias, (size_t)p->n_rows * sizeof *biases);
    gpu_get(hidden, p->hidden, ((size_t)(p->n_states - 1) * step + D) * sizeof *hidden);
    for (size_t i = 0; i < (size_t)p->n_states; i++) {
        for (int32_t j = 0; j < p->n_rows; j++) {
            logits[j] = biases[j];
            for (size_t k = 0; k < D; k++)
                logits[j] += hidden[i * step + k] * rows[(size_t)j * D + k];
        }
        gpu_put(p->logits + i * p->logits_stride, logits, (size_t)p->n_rows * sizeof *logits);
    }
}

/* By a kernel, which a graph may hold: of states and logits without gaps. */
static void multiply_by_kernel(const specrt_cuda_product *p, void *stream) {
    const specrt__cuda_layout layout = {1, D, {SPECRT_DTYPE_F32}, {p->n_rows}, {0}};
    const specrt__cuda_batch batch = {1, p->n_states, NULL, 0};
    CHECK_INT(p->hidden_stride, D * sizeof(float));
    CHECK_INT(p->logits_stride, p->n_rows);
    REQUIRE(!specrt__cuda_logits(&layout, rows_of_last, &batch, p->hidden, SPECRT_DTYPE_F32,
                                 p->logits, stream));
}

static void forget(void) {
    if (rows_of_last) gpu_free(rows_of_last);
    rows_of_last = NULL;
    n_calls = n_captured = 0;
}

static int multiply(void *user, const specrt_cuda_product *p, void *stream) {
    const device *d = (const device *)user;
    const specrt__cuda_segment rows = {
        .rows = p->rows, .row_stride = p->row_stride, .bias = p->bias, .max_rows = p->n_rows};
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    int code = fails_with;
    fails_with = 0;
    last = *p;
    n_calls++;
    CHECK(stream == d->stream);
    if (code) return code;
    gpu_check(cudaStreamIsCapturing((cudaStream_t)stream, &status), "capture");
    if (status != cudaStreamCaptureStatusNone) {
        n_captured++;
        multiply_by_kernel(p, stream);
        return 0;
    }
    if (rows_of_last) gpu_free(rows_of_last);
    rows_of_last = (specrt__cuda_segment *)gpu_copy(&rows, sizeof rows);
    multiply_by_loops(p);
    return 0;
}

/* The head with rows of f32, which states of tests are of. */
static specrt_head *usual;
static float wide[V * D];

static void widen(void) {
    open_all();
    specrt_head_desc desc = head->desc;
    usual = head;
    specrt_row_decode(SPECRT_DTYPE_F16, head_rows, V * D, wide);
    desc.rows = wide, desc.dtype = SPECRT_DTYPE_F32, desc.row_stride = 0;
    head = bind_head(bundle, &desc);
}

static void narrow(void) {
    specrt_head_close(head);
    head = usual;
}

/* --- the same drafts --- */

/* Whether the last product was one of n_states, of the shape that a session of 3 sequences has. */
static void check_last(int32_t n_states, int32_t n_rows, size_t state_step, size_t logits_stride) {
    CHECK_INT(last.n_states, n_states);
    CHECK_INT(last.n_rows, n_rows);
    CHECK_INT(last.n_cols, D);
    CHECK_INT(last.dtype, SPECRT_DTYPE_F32);
    CHECK_INT(last.row_stride, D * sizeof(float));
    CHECK_INT(last.hidden_stride, state_step * D * sizeof(float));
    CHECK_INT(last.logits_stride, logits_stride);
}

TEST(passes, "three passes of a cycle have 3 sequences with 3 states, the first pass one of each") {
    static const struct {
        const char *policy;
        int32_t n_rows, more; /* more: columns of windows and routed rows */
        bool shared;
    } cases[] = {{"full", V, 0, false},
                 {"static:40", 40, 1, false}, /* and the terminator */
                 {"static:20/10+window:12+successor:6", 10, 29, false},
                 {"static:40+window:30@min=8", 40, 78, true}};
    widen();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int32_t above = 2; above <= 9 && test_failures == 0; above += above == 3 ? 6 : 1) {
            if (test_quick() && (above == 9 ? 2 : above - 2) != (int32_t)i % 3) continue;
            setting how = setting_of(cases[i].policy, above);
            how.gemm = multiply;
            how.shared = cases[i].shared;
            run(&how);
            CHECK_INT(n_calls, how.n_cycles * (above < 3 ? 4 : above < 9 ? 3 : 0));
            if (n_calls > 0)
                check_last(9, cases[i].n_rows, 1, (size_t)(cases[i].n_rows + cases[i].more));
            forget();
        }
    narrow();
}

TEST(blocks, "a graph holds what was lent in its capture, and calls nobody when it is launched") {
    widen();
    for (int32_t topk = 1; topk <= 3; topk += 2) {
        setting how = setting_of("full", 11);
        how.tree = (specrt_tree_params){4, topk, topk == 1 ? 5 : NODES};
        how.gemm = multiply;
        how.n_block = 4;
        how.graph = true;
        run(&how);
        CHECK_INT(n_calls, 2);
        CHECK_INT(n_captured, 1);
        check_last(12, V, 1, V);
        forget();
    }
    narrow();
}

/* --- what goes wrong --- */

static void check_refused(device *d, specrt_cuda_gemm gemm, int32_t above, specrt_status status,
                          const char *said) {
    CHECK_INT(specrt_cuda_session_set_gemm(d->session, gemm, d, above), status);
    CHECK_INT(specrt_cuda_session_last_error(d->session)->status, status);
    CHECK_STR(specrt_cuda_session_last_error(d->session)->msg, said);
}

/* Rows of another type, and policies without rows that all sequences have. */
static void check_unsupported(const char *policy, const char *said) {
    setting how = setting_of(policy, 0);
    shared_policy shared;
    device d;
    open_both(&d, &shared, &how);
    check_refused(&d, multiply, 5, SPECRT_STATUS_UNSUPPORTED, said);
    close_device(&d, &shared);
}

TEST(refusals, "a number without a function, or rows that nobody can lend") {
    setting how = setting_of("full", 0);
    shared_policy shared;
    device d;
    check_unsupported("full", "set_gemm: policy 'full': expected full or static with rows of f32, "
                              "the type of hidden, found others");
    widen();
    check_unsupported("window:12", "set_gemm: policy 'window:12': expected full or static with "
                                   "rows of f32, the type of hidden, found others");
    open_both(&d, &shared, &how);
    check_refused(&d, multiply, 0, SPECRT_STATUS_BAD_ARG,
                  "set_gemm: above: expected 1 state or more, found 0");
    check_refused(&d, NULL, 4, SPECRT_STATUS_BAD_ARG,
                  "set_gemm: above: expected 0 without a function, found 4");
    CHECK_INT(specrt_cuda_session_set_gemm(NULL, multiply, NULL, 4), SPECRT_STATUS_BAD_ARG);
    close_device(&d, &shared);
    narrow();
}

/* A product that fails ends the call, which comes again; one that is taken back is called no more. */
TEST(failures, "of a product end the call, which may come again") {
    setting how = setting_of("full", 2);
    shared_policy shared;
    device d;
    widen();
    how.gemm = multiply;
    open_both(&d, &shared, &how);
    device_start(&d, 0, N_PROMPT);
    fails_with = 7;
    CHECK_INT(specrt_cuda_session_expand(d.session, d.hidden, NULL, d.stream), SPECRT_STATUS_HOST);
    CHECK_STR(specrt_cuda_session_last_error(d.session)->msg,
              "gemm: expected 0, found 7: the product of 3 states failed");
    REQUIRE(!specrt_cuda_session_expand(d.session, d.hidden, NULL, d.stream));
    CHECK_INT(n_calls, 2);
    check_last(3, V, 3, V);
    REQUIRE(!specrt_cuda_session_set_gemm(d.session, NULL, NULL, 0));
    REQUIRE(!specrt_cuda_session_expand(d.session, d.hidden, NULL, d.stream));
    CHECK_INT(n_calls, 2);
    gpu_check(cudaStreamSynchronize(d.stream), "expand");
    close_device(&d, &shared);
    forget();
    narrow();
}

TEST(launches, "what is lent is launched no more: the product and the ranking become the ranking") {
    setting how = setting_of("full", 2);
    shared_policy shared;
    device d;
    if (!harness_launches) SKIP("on a GPU");
    widen();
    how.gemm = multiply;
    open_both(&d, &shared, &how);
    device_start(&d, 0, N_PROMPT);
    int before = harness_launches[0];
    REQUIRE(!specrt_cuda_session_expand(d.session, d.hidden, NULL, d.stream));
    CHECK_INT(harness_launches[0] - before, 1);
    gpu_check(cudaStreamSynchronize(d.stream), "expand");
    close_device(&d, &shared);
    forget();
    narrow();
}
