/* fuzz_session.c : saved sessions from hostile bytes, as they come and again with length and checksum made
 * right. What loads must serve cycles, and save to bytes that load again. The first byte chooses a policy. */
#include "section_target.h"

#include <stdio.h>

enum { N_VOCAB = 60, N_COLS = 12, N_POLICIES = 4, MAX_BYTES = 1 << 16 };

static const char *const texts[N_POLICIES] = {
    "static:12+window:20@min=0+retrieve:16", "window:24@mode=stream@only=ext@min=8",
    "window:24@min=24", "static:12+retrieve:8@graph=off@keep=on"};
static specrt_bundle *bundle;
static specrt_head *head;
static specrt_session *sessions[N_POLICIES];

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv) {
    const specrt_head_desc rows = {.rows = section_weights(), .n_rows = N_VOCAB, .n_cols = N_COLS};
    const specrt_session_params params = {
        .tree = {.num_steps = SECTION_STEPS, .topk = SECTION_TOPK, .num_draft_tokens = 8},
        .n_logits = N_VOCAB};
    static uint8_t *bytes; /* kept: the bundle lies in it */
    size_t sizes[2], n;
    specrt_error err = {SPECRT_STATUS_OK, ""};
    (void)argc, (void)argv;
    uint8_t *parts[] = {fixture_graph(N_VOCAB, 4, NULL, 5, &sizes[0]),
                        fixture_ranks(N_VOCAB, 3, 20, &sizes[1])};
    bytes = fixture_join((const char *[]){"cograph", "ranks"}, parts, sizes, 2, &n);
    specrt_bundle_open_memory(bytes, n, "fuzz", NULL, &bundle, &err);
    if (!err.status) specrt_head_bind(NULL, &rows, NULL, &head, &err);
    for (int i = 0; i < N_POLICIES && !err.status; i++) {
        const specrt_policy_desc desc = {.text = texts[i]};
        specrt_policy *policy;
        if (!specrt_policy_create(bundle, head, &desc, &policy, &err))
            specrt_session_create(policy, &params, NULL, &sessions[i], &err);
    }
    if (err.status) fprintf(stderr, "%s\n", err.msg), exit(1);
    return 0;
}

/* Two cycles and the next turn's prompt. */
static void serve(specrt_session *s) {
    const specrt_request turn = {.begin = SPECRT_BEGIN_TURN};
    specrt_target_rows rows = {.logits = section_weights()};
    section_begin(s, N_VOCAB, &turn, &rows);
    for (int cycle = 0; cycle < 2; cycle++) {
        const specrt_verdict verdict = {.n = 1, .tokens = {40 + cycle}};
        specrt_draft draft;
        section_draft(s, N_VOCAB, &draft);
        if (specrt_session_observe(s, &draft, &verdict, &rows)) abort();
    }
}

static void load(specrt_session *s, const uint8_t *bytes, size_t n) {
    static uint8_t first[MAX_BYTES], second[MAX_BYTES];
    size_t n_first, n_second;
    specrt_status status = specrt_session_load(s, bytes, n);
    if (status != SPECRT_STATUS_OK) {
        const specrt_error *err = specrt_session_last_error(s);
        if (err->status != status || !err->msg[0] || strchr(err->msg, '\n')) abort();
        if (specrt_session_begin(s, NULL)) abort();
    }
    if (specrt_session_save(s, first, sizeof first, &n_first)) abort();
    if (specrt_session_load(s, first, n_first)) abort();
    if (specrt_session_save(s, second, sizeof second, &n_second)) abort();
    if (n_first != n_second || memcmp(first, second, n_first) != 0) abort();
    serve(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1) return 0;
    specrt_session *s = sessions[data[0] % N_POLICIES];
    uint8_t *copy = (uint8_t *)malloc(size);
    memcpy(copy, data + 1, size - 1);
    load(s, copy, size - 1);
    if (size - 1 >= 104) {
        uint32_t n = (uint32_t)size - 1;
        memcpy(copy + 12, &n, 4);
        uint64_t sum = specrt_hash64(copy + 24, size - 1 - 24, 0);
        memcpy(copy + 16, &sum, 8);
        load(s, copy, size - 1);
    }
    free(copy);
    return 0;
}
