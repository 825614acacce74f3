/* fuzz_costs.c : a file of costs from any bytes is refused, or its curves make auto_draft that drafts within
 * its tree, and its policy is one; written and read again, it is the same. */
#include "engine/infer/auto.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static char path[64];
static int fd;

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    fd = memfd_create("costs", 0);
    if (fd < 0) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return 0;
}

static void put(const uint8_t *bytes, size_t n) {
    if (pwrite(fd, bytes, n, 0) != (ssize_t)n || ftruncate(fd, (off_t)n)) abort();
}

static void draft(const pass_costs *costs, int32_t num_steps, int32_t topk, int32_t nodes) {
    const specrt_tree_params tree = {num_steps, topk, nodes};
    const int32_t rows[] = {512, 3072}, lists[] = {512, 3072};
    const auto_desc desc = {costs, &tree, rows, lists, 2};
    specrt_auto *auto_draft;
    specrt_error err;
    if (auto_open(&desc, &auto_draft, &err)) return;
    for (int i = 0; i < 40; i++) {
        specrt_auto_choice choice;
        specrt_auto_choose(auto_draft, &choice);
        if (choice.num_steps < 0 || choice.num_steps > num_steps) abort();
        if (choice.list < 0 || choice.list > 1) abort();
        float certain[SPECRT_TREE_MAX_STEPS + 1] = {(float)-i, NAN, INFINITY, 0};
        const specrt_auto_cycle c = {.n_passes = choice.num_steps,
                                     .n_accepted = i % (choice.num_steps + 1),
                                     .target_logprobs = i % 3 ? certain : NULL};
        if (specrt_auto_observe(auto_draft, &c)) abort();
    }
    specrt_auto_close(auto_draft);
}

static void write_again(const pass_costs *costs) {
    pass_costs again;
    specrt_error err;
    json_object *o = json_object_new_object();
    pass_costs_put(costs, o);
    const char *text = json_object_to_json_string(o);
    put((const uint8_t *)text, strlen(text));
    if (pass_costs_read(path, &again, &err) || again.target.n != costs->target.n ||
        strcmp(again.policy, costs->policy) != 0)
        abort();
    json_object_put(o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    pass_costs costs;
    specrt_error err;
    put(data, size);
    if (pass_costs_read(path, &costs, &err)) return 0;
    if (costs.policy[0] && specrt_policy_check(costs.policy, &err)) abort();
    if (specrt_policy_check(auto_policy("auto", &costs), &err)) abort();
    draft(&costs, 8, 1, 9);
    draft(&costs, 6, 10, 60);
    write_again(&costs);
    return 0;
}
