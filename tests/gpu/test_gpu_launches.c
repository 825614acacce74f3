/* test_gpu_launches.c : what sessions launch: kernels that are on the device already, and how many; and what makes
 * them slow. */
#include "gpu_session.h"

/* The harness's; not on a GPU. */
extern int harness_late __attribute__((weak));

static setting setting_of(const char *policy) {
    return (setting){
        .policy = policy, .tree = {2, 3, 7}, .n_batch = 2, .n_cycles = 2, .graph = true};
}

/* The first cycle of a process is captured, as strictly as can be; no launch has to load a kernel. */
static void test_loaded(void) {
    static const char *const texts[] = {
        "static:20/10+window:12+retrieve:9@prompt=best@mode=async+cluster:2@always=8+successor:6"
        "+sketch:8@keep=999",
        "window:30", "window:12+group:2@always=0@beam=per_row"};
    for (int i = 0; i < 6; i++) {
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
    device_close(&d);
    close_policy(&shared);
}

/* Products that cannot read 16 bytes at a time say so, once. */
static void test_narrow(void) {
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

static const test_case cases[] = {
    {"narrow", "operands that are not aligned are told of, once", test_narrow},
    {"loaded", "no launch loads a kernel, and a first cycle is captured", test_loaded},
};
TEST_MAIN(cases)
