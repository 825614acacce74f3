/* test_gpu_faults.c : what goes wrong on a device: none is there, another's code, calls of the runtime that
 * fail, kernels that do. A status, a message, nothing left behind. Its kernels are built for debugging, but
 * not where PTX is executed. */
#include "specrt_tools.h"
#include "cuda/kernels.h"
#include "quantise.h"
#include "gpu.h"

enum { N_IDS = 40, N_COLS = 8, N_EMBED = 32 };

/* The harness's; not on a GPU. */
extern int harness_calls_left __attribute__((weak));
extern int harness_kernels_left __attribute__((weak));
extern int harness_device __attribute__((weak));
extern int harness_live __attribute__((weak));

static float rows[N_IDS * N_COLS];
static uint8_t embedding[N_IDS * N_EMBED]; /* q4_0: decoded for the device */
static specrt_bundle *bundle;
static specrt_head *head;

static void open_all(void) {
    enum { N = 3 };
    specrt_clusters_header h = fixture_router(SPECRT_ROUTER_DYNASPEC, N_IDS, N_COLS, 5, 1);
    static const char *const tags[N] = {"cluster", "ranks", "sketch"};
    uint8_t *parts[N] = {NULL};
    uint64_t state = gpu_seed(3);
    float row[N_EMBED];
    size_t sizes[N], n, stride = specrt_row_bytes(SPECRT_DTYPE_Q4_0, N_EMBED);
    if (bundle) return;
    for (int i = 0; i < N_IDS * N_COLS; i++) rows[i] = fixture_normal(&state);
    for (size_t i = 0; i < N_IDS; i++) {
        for (int j = 0; j < N_EMBED; j++) row[j] = fixture_normal(&state);
        quantise_row(SPECRT_DTYPE_Q4_0, row, N_EMBED, embedding + i * stride);
    }
    h.n_embed = N_EMBED, h.n_hidden = 4;
    for (int i = 0; i < N; i++)
        parts[i] = i == 0   ? fixture_clusters(h, NULL, 4, &sizes[i])
                   : i == 1 ? fixture_ranks(N_IDS, 2, 20, &sizes[i])
                            : fixture_sketch(N_IDS, N_COLS, 64, 6, &sizes[i]);
    uint8_t *bytes = fixture_join(tags, parts, sizes, N, &n);
    bundle = open_memory(bytes, n);
    head = bind_rows(bundle, rows, N_IDS, N_COLS);
}

/* Makes a policy and a session of it, and gives them back. */
static specrt_status make_all(const specrt_policy *policy, specrt_error *err) {
    specrt_cuda_session_params params = {.tree = {2, 3, 7}, .n_batch = 2, .n_logits = N_IDS};
    specrt_cuda_policy *shared = NULL;
    specrt_cuda_session *session = NULL;
    memset(err, 0, sizeof *err);
    specrt_status status = specrt_cuda_policy_create(policy, NULL, &shared, err);
    if (status == SPECRT_STATUS_OK)
        status = specrt_cuda_session_create(shared, &params, &session, err);
    CHECK((status == SPECRT_STATUS_OK) == (session != NULL));
    specrt_cuda_session_close(session);
    specrt_cuda_policy_close(shared);
    return status;
}

static specrt_policy *make_policy(const char *text) {
    specrt_head_desc known = {
        .rows = embedding, .dtype = SPECRT_DTYPE_Q4_0, .n_rows = N_IDS, .n_cols = N_EMBED};
    specrt_policy_desc desc = {.text = text, .embedding = &known};
    open_all();
    return create_policy(bundle, head, &desc);
}

TEST(devices, "none, and one without code for it") {
    specrt_error err;
    if (!&harness_device) SKIP("on a GPU");
    specrt_policy *policy = make_policy("static:20");
    harness_device = 1;
    CHECK_INT(make_all(policy, &err), SPECRT_STATUS_NO_DEVICE);
    CHECK_HAS(err.msg, "no CUDA-capable device");
    harness_device = 2;
    CHECK_INT(make_all(policy, &err), SPECRT_STATUS_DEVICE_ARCH);
    CHECK_HAS(err.msg, "found 900; build with make cuda CUDA_ARCH=90");
    harness_device = 3;
    CHECK_INT(make_all(policy, &err), SPECRT_STATUS_DEVICE);
    CHECK_HAS(err.msg, "cuda: an error of the harness");
    harness_device = 0;
    CHECK_INT(specrt_cuda_check(&err), SPECRT_STATUS_OK);
    CHECK_INT(make_all(policy, &err), SPECRT_STATUS_OK);
    specrt_policy_close(policy);
}

TEST(calls, "each call of the runtime fails in its turn") {
    static const char *const texts[] = {"static:10+window:12+retrieve:4@graph=off",
                                        "cluster@always=4", "sketch:9", "static:20/10"};
    specrt_error err;
    if (!&harness_calls_left) SKIP("on a GPU");
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        specrt_policy *policy = make_policy(texts[i]);
        specrt_status status = SPECRT_STATUS_DEVICE;
        int n = 0;
        for (; status != SPECRT_STATUS_OK && n < 300; n++) {
            int live = harness_live;
            harness_calls_left = n;
            status = make_all(policy, &err);
            harness_calls_left = -1;
            CHECK_INT(harness_live, live);
            if (status == SPECRT_STATUS_OK) break;
            CHECK_INT(status, SPECRT_STATUS_DEVICE);
            CHECK_HAS(err.msg, "cuda: ");
            specrt_cuda_check(NULL);
        }
        CHECK(n > 20 && n < 300);
        specrt_policy_close(policy);
    }
}

/* Every call that starts a kernel, for one pass of a batch of two. @return how many were OK. */
static int run_all(specrt_cuda_session *s, const float *x, int32_t *tokens, void *stream) {
    specrt_session_stats *stats = (specrt_session_stats *)gpu_zeros(2 * sizeof *stats);
    specrt_status all[] = {specrt_cuda_session_begin(s, -1, stream),
                           specrt_cuda_session_prefill(s, 0, tokens, 2, NULL, stream),
                           specrt_cuda_session_prefill(s, 1, tokens, 2, NULL, stream),
                           specrt_cuda_session_draw(s, x, tokens, stream),
                           specrt_cuda_session_start(s, -1, tokens, stream),
                           specrt_cuda_session_route_ahead(s, x, stream),
                           specrt_cuda_session_expand(s, x, NULL, stream),
                           specrt_cuda_session_finish(s, stream),
                           specrt_cuda_session_verify(s, x, stream),
                           specrt_cuda_session_observe(s, NULL, stream),
                           specrt_cuda_session_get_stats(s, stats, stream)};
    int n = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        CHECK(all[i] == SPECRT_STATUS_OK || all[i] == SPECRT_STATUS_BAD_ARG);
        n += all[i] == SPECRT_STATUS_OK;
    }
    gpu_check(cudaDeviceSynchronize(), "synchronize");
    gpu_free(stats);
    return n;
}

/* With another device current nothing is started on it, and closing gives back what is on the first. */
TEST(other_device, "calls with another current device start nothing") {
    specrt_cuda_session_params params = {.tree = {1, 3, 4}, .n_batch = 2, .n_logits = N_IDS};
    specrt_cuda_policy *shared;
    specrt_cuda_session *session, *none;
    specrt_error err;
    int n_devices = 0, live = &harness_live ? harness_live : 0, device = -1;
    gpu_check(cudaGetDeviceCount(&n_devices), "devices");
    if (n_devices < 2) SKIP("one device");
    specrt_policy *policy = make_policy("static:10+window:12");
    float *x = (float *)gpu_zeros(2 * 4 * N_IDS * sizeof *x);
    int32_t *tokens = (int32_t *)gpu_zeros(2 * sizeof *tokens);
    REQUIRE(!specrt_cuda_policy_create(policy, NULL, &shared, &err));
    REQUIRE(!specrt_cuda_session_create(shared, &params, &session, &err));
    for (int named = 0; named < 2; named++) {
        cudaStream_t stream = NULL;
        if (named) gpu_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
        CHECK_INT(run_all(session, x, tokens, stream), 11);
        gpu_check(cudaSetDevice(1), "cudaSetDevice");
        CHECK_INT(run_all(session, x, tokens, stream), 0);
        gpu_check(cudaSetDevice(0), "cudaSetDevice");
        CHECK_INT(run_all(session, x, tokens, stream), 11);
        if (named) gpu_check(cudaStreamDestroy(stream), "stream");
    }
    gpu_check(cudaSetDevice(1), "cudaSetDevice");
    CHECK_INT(specrt_cuda_session_create(shared, &params, &none, &err), SPECRT_STATUS_BAD_ARG);
    CHECK_STR(err.msg, "cuda: device: expected number 0, where the policy is, found another; call "
                       "cudaSetDevice(0)");
    specrt_cuda_session_close(session);
    specrt_cuda_policy_close(shared);
    gpu_check(cudaGetDevice(&device), "cudaGetDevice");
    CHECK_INT(device, 1);
    gpu_check(cudaSetDevice(0), "cudaSetDevice");
    gpu_free(x);
    gpu_free(tokens);
    if (&harness_live) CHECK_INT(harness_live, live);
    specrt_policy_close(policy);
}

/* A kernel that reads where nothing is, last: it costs a GPU's process its device. Its launch is told of at
 * once by kernels built for debugging, which name it; by others later, without a name. */
TEST(named, "the kernel that failed") {
    specrt_error err = {0};
    int32_t *in = (int32_t *)gpu_alloc(64), nowhere = 0;
    const int32_t *ids = &harness_kernels_left ? &nowhere : (const int32_t *)(uintptr_t)64;
    if (getenv("SPECRT_PTX")) SKIP("kernels are not built for debugging");
    gpu_check(cudaMemset(in, 0, 64), "memset");
    CHECK_INT(specrt_cuda_check(&err), SPECRT_STATUS_OK);
    if (&harness_kernels_left) harness_kernels_left = 0;
    specrt_status status = specrt__cuda_remap(ids, 1, in, 16, in, NULL);
    bool named = status == SPECRT_STATUS_DEVICE;
    cudaDeviceSynchronize();
    CHECK(named || status == SPECRT_STATUS_OK);
    CHECK_INT(specrt_cuda_check(&err), SPECRT_STATUS_DEVICE);
    CHECK((strstr(err.msg, "specrt__verify_remap_kernel: ") != NULL) == named);
    if (!&harness_kernels_left) return;
    CHECK(named);
    CHECK_HAS(err.msg, "unspecified launch failure");
    harness_kernels_left = -1;
    CHECK_INT(specrt__cuda_remap(ids, 1, in, 16, in, NULL), SPECRT_STATUS_OK);
    cudaGetLastError();
    CHECK_INT(specrt_cuda_check(&err), SPECRT_STATUS_OK);
    gpu_free(in);
}

TEST(unread, "an error of others is not a launch's") {
    int32_t *in = (int32_t *)gpu_zeros(64), *ids = (int32_t *)gpu_zeros(4);
    specrt_error err = {0};
    cudaEvent_t event;
    float ms;
    gpu_check(cudaEventCreateWithFlags(&event, cudaEventDefault), "event");
    CHECK(cudaEventElapsedTime(&ms, event, event) != cudaSuccess); /* never recorded */
    CHECK_INT(specrt__cuda_remap(ids, 1, in, 16, in, NULL), SPECRT_STATUS_OK);
    CHECK_INT(specrt_cuda_check(&err), SPECRT_STATUS_DEVICE);
    CHECK_INT(specrt_cuda_check(&err), SPECRT_STATUS_OK);
    gpu_check(cudaEventDestroy(event), "event");
    gpu_free(in), gpu_free(ids);
}

TEST(captured, "while a stream is captured nothing can be waited for") {
    int32_t *in = (int32_t *)gpu_alloc(64);
    cudaStream_t stream;
    cudaGraph_t graph;
    gpu_check(cudaMemset(in, 0, 64), "memset");
    gpu_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    gpu_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    CHECK_INT(specrt__cuda_remap(in, 1, in, 16, in, stream), SPECRT_STATUS_OK);
    gpu_check(cudaStreamEndCapture(stream, &graph), "capture");
    gpu_check(cudaGraphDestroy(graph), "graph");
    gpu_check(cudaStreamDestroy(stream), "stream");
    gpu_free(in);
}
