/* test_llama_costs.c : the policy that auto drafts from in llama.cpp, without llama.cpp. */
#include "specrt/costs.h"
#include "adapters/llama/specrt_llama_costs.h"
#include "test.h"

/* Without a bundle: microspec, and the whole head where it is too small to matter. */
static void test_policy(void) {
    specrt_head *head;
    specrt_costs_drafts drafts = drafts_of(&head);
    specrt_costs c = costs_of(0.2, 0.05), d = c;
    put_head(&c, "full", 0.004);
    put_head(&c, "microspec", 0.0001);
    CHECK_STR(specrt_llama_costs_policy(&c, &drafts), "microspec");
    CHECK_INT(c.n_heads, 2); /* the others need a bundle */
    put_head(&d, "full", 0.0001);
    put_head(&d, "microspec", 0.00005);
    CHECK_STR(specrt_llama_costs_policy(&d, &drafts), "full");
    put_head(&d, "hybrid", 0.00001); /* a bundle that has it, by the same costs */
    d.heads[0].seconds = 0.004;
    CHECK_STR(specrt_llama_costs_policy(&d, &drafts), "hybrid");
    specrt_head_close(head);
}

static const test_case cases[] = {
    {"policy", "by the same costs, with a bundle and without", test_policy},
};
TEST_MAIN(cases)
