/* fuzz_costs.c : costs from any bytes are refused, or their curves make auto_draft that drafts within its
 * tree, and their policy is one; written and read again, they are the same. */
#include "specrt_tools.h"
#include "engine/infer/auto.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static void draft(const specrt_costs *costs, int32_t num_steps, int32_t topk, int32_t nodes) {
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

static void write_again(const specrt_costs *costs) {
    static char text[SPECRT_COSTS_BYTES], twice[SPECRT_COSTS_BYTES];
    specrt_costs again;
    size_t n = specrt_costs_text(costs, text);
    if (specrt_costs_parse(text, n, "again", NULL, &again, NULL)) abort();
    if (specrt_costs_text(&again, twice) != n || memcmp(text, twice, n) != 0) abort();
}

/* The lines of any bytes under a checksum of their own: no fuzzer finds one. */
static size_t seal(const uint8_t *data, size_t size, char *out) {
    uint8_t digest[32];
    specrt_sha256 sha;
    if (size > SPECRT_COSTS_BYTES - 64) size = SPECRT_COSTS_BYTES - 64;
    memcpy(out, data, size);
    specrt_sha256_init(&sha);
    specrt_sha256_update(&sha, out, size);
    specrt_sha256_final(&sha, digest);
    int n = snprintf(out + size, 8, "sum ");
    for (int i = 0; i < 8; i++)
        n += snprintf(out + size + n, 4, i < 7 ? "%02x" : "%02x\n", digest[i]);
    return size + (size_t)n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char text[SPECRT_COSTS_BYTES];
    specrt_costs costs;
    specrt_error err;
    if (specrt_costs_parse((const char *)data, size, "any", NULL, &costs, &err) &&
        specrt_costs_parse(text, seal(data, size, text), "sealed", NULL, &costs, &err))
        return 0;
    if (costs.policy[0] && specrt_policy_check(costs.policy, &err)) abort();
    if (specrt_policy_check(auto_policy("auto", &costs), &err)) abort();
    draft(&costs, 8, 1, 9);
    draft(&costs, 6, 10, 60);
    write_again(&costs);
    return 0;
}
