/* test_gpu_launches.c : what sessions launch: kernels that are on the device already, and how many. */
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

static const test_case cases[] = {
    {"loaded", "no launch loads a kernel, and a first cycle is captured", test_loaded},
};
TEST_MAIN(cases)
