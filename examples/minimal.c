/* minimal.c : a drafter that scores a static list of tokens, in a decode loop that verifies on its own. A
 * list never changes, so it needs no session.
 *
 *     minimal [BUNDLE]    the list of the application, or that of a bundle
 */
#define SPECRT_IMPLEMENTATION /* before other headers, in strict C */
#include "specrt.h"

#include <stdint.h>
#include <stdio.h>
#include "toy.h"

enum { STEPS = 3 };

/* Drafts STEPS tokens behind chain[0]: each is the best of the list. */
static void draft(toy *models, const specrt_shortlist *list, int32_t *chain) {
    static float scores[TOY_VOCAB];
    const int32_t parent = 0;
    float logprob;
    for (int i = 0; i < STEPS; i++) {
        const float *hidden = toy_draft(models, &chain[i], &parent, 1);
        toy_check(specrt_shortlist_logits(list, hidden, 1, scores));
        toy_check(specrt_shortlist_topk(list, scores, 1, 1, &chain[i + 1], &logprob));
    }
}

/* The target reads the chain. @return how many tokens were emitted, into out. */
static int32_t verify(toy *models, const int32_t *chain, int32_t *out) {
    const float *logits = toy_read(models, chain, NULL, NULL, STEPS + 1);
    int32_t n = 0;
    do specrt_logits_topk(logits + n * TOY_VOCAB, TOY_VOCAB, 1, &out[n]);
    while (n < STEPS && out[n] == chain[n + 1] && ++n);
    toy_keep(models, NULL, n + 1);
    return n + 1;
}

int main(int argc, char **argv) {
    static toy models;
    const int32_t prompt[] = {5, 17, 3};
    int32_t ids[TOY_FREQUENT], answer[TOY_TOKENS + STEPS], chain[STEPS + 1], n = 1, n_passes = 0;
    specrt_bundle *bundle = NULL;
    specrt_head *head;
    specrt_policy *policy;
    specrt_error err;
    toy_init();

    /* Frequent tokens, from an FR-Spec list, a token map or a d2t; a bundle has its own list. */
    for (int32_t i = 0; i < TOY_FREQUENT; i++) ids[i] = i;
    const specrt_head_desc rows = {
        .rows = toy_rows, .dtype = SPECRT_DTYPE_F32, .n_rows = TOY_VOCAB, .n_cols = TOY_WIDTH};
    specrt_policy_desc list = {
        .text = "static", .n_vocab = TOY_VOCAB, .ids = ids, .n_ids = TOY_FREQUENT};
    if (argc > 1) list = (specrt_policy_desc){.text = "static"};
    if ((argc > 1 && specrt_bundle_open(argv[1], NULL, &bundle, &err)) ||
        specrt_head_bind(NULL, &rows, NULL, &head, &err) ||
        specrt_policy_create(bundle, head, &list, &policy, &err))
        toy_fail(err.msg);
    const specrt_shortlist *shortlist = specrt_policy_get_info(policy)->shortlist;

    const float *logits = toy_read(&models, prompt, NULL, NULL, 3);
    toy_keep(&models, NULL, 3);
    specrt_logits_topk(logits + 2 * TOY_VOCAB, TOY_VOCAB, 1, &answer[0]);
    for (; n < TOY_TOKENS; n_passes++) {
        chain[0] = answer[n - 1];
        draft(&models, shortlist, chain);
        n += verify(&models, chain, answer + n);
    }
    toy_compare(NULL, prompt, 3, answer);
    printf("accept length %.2f with a list of %d of %d tokens\n", (n - 1.0) / n_passes,
           shortlist->n_rows, TOY_VOCAB);
    specrt_policy_close(policy);
    specrt_head_close(head);
    specrt_bundle_close(bundle);
    return 0;
}
