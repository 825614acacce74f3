/* block_drafter.c : a drafter that gives the states of several positions at once, as DFlash and DSpark do.
 * One call makes a tree of them.
 *
 *     block_drafter
 */
#define SPECRT_IMPLEMENTATION /* before other headers, in strict C */
#include "specrt.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include "toy.h"

enum { STEPS = 3, TOPK = 4, NODES = 12 };

/* One pass of the drafter behind the last token. Each level guesses the tokens before it.
 *   block : f32 [STEPS, TOY_WIDTH], written */
static void draft_block(toy *models, int32_t last, float *block) {
    static float logits[TOY_VOCAB];
    const int32_t parent = 0;
    for (int level = 0; level < STEPS; level++, block += TOY_WIDTH) {
        memcpy(block, toy_draft(models, &last, &parent, 1), TOY_WIDTH * sizeof *block);
        toy_product(block, logits);
        specrt_logits_topk(logits, TOY_VOCAB, 1, &last);
    }
}

int main(void) {
    static toy models;
    const int32_t prompt[] = {5, 17, 3};
    int32_t answer[TOY_TOKENS + SPECRT_TREE_MAX_NODES], n = 0;
    specrt_head *head;
    specrt_policy *policy;
    specrt_session *s;
    specrt_error err;
    toy_init();

    const specrt_head_desc rows = {
        .rows = toy_rows, .dtype = SPECRT_DTYPE_F32, .n_rows = TOY_VOCAB, .n_cols = TOY_WIDTH};
    const specrt_policy_desc window = {.text = "window:512@kpre=8@kver=8@min=512"};
    const specrt_session_params params = {
        .tree = {STEPS, TOPK, NODES}, .n_logits = TOY_VOCAB, .n_block = STEPS};
    const specrt_request request = {.max_tokens = TOY_TOKENS};
    if (specrt_head_bind(NULL, &rows, NULL, &head, &err) ||
        specrt_policy_create(NULL, head, &window, &policy, &err) ||
        specrt_session_create(policy, &params, NULL, &s, &err))
        toy_fail(err.msg);

    static float states[STEPS * TOY_WIDTH];
    const specrt_block block = {.n = STEPS, .hidden = states};
    specrt_draft draft;
    specrt_verdict verdict;
    specrt_target_rows results = {.logits = toy_read(&models, prompt, NULL, NULL, 3)};
    toy_keep(&models, NULL, 3);
    toy_check_session(s, specrt_session_begin(s, &request));
    toy_check_session(s, specrt_session_prefill(s, prompt, 3, &results));
    toy_check_session(s, specrt_session_first(s, results.logits + 2 * TOY_VOCAB, &verdict));
    answer[n++] = verdict.tokens[0];
    while (verdict.end == SPECRT_END_NONE) {
        draft_block(&models, answer[n - 1], states);
        toy_check_session(s, specrt_session_draft_block(s, &block, &draft));
        results.logits = toy_read(&models, draft.tokens, draft.depths, draft.masks, draft.n);
        toy_check_session(s, specrt_session_accept(s, &draft, &results, &verdict));
        toy_keep(&models, verdict.nodes, verdict.n);
        for (int32_t i = 0; i < verdict.n; i++) answer[n++] = verdict.tokens[i];
    }
    toy_compare(NULL, prompt, 3, answer);

    specrt_session_stats stats;
    specrt_session_get_stats(s, &stats);
    printf("accept length %.2f with blocks of %d states\n",
           (double)stats.n_emitted / (double)stats.n_cycles, STEPS);
    specrt_session_close(s);
    specrt_policy_close(policy);
    specrt_head_close(head);
    return 0;
}
