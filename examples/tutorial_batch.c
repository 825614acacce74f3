/* tutorial_batch.c : four sequences at once, whose sessions share packed rows in a stock.
 * docs/tutorial-embed.md explains the steps.
 *
 *     tutorial_batch
 */
#define SPECRT_IMPLEMENTATION /* before other headers, in strict C */
#include "specrt.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include "toy.h"

enum { N = 4, STEPS = 3, NODES = STEPS + 1 };

static float logits[NODES * TOY_VOCAB];

/* A draft pass for all sequences together, level by level. Chains of equal length stay in step. */
static void draft(specrt_session *const *sessions) {
    float hidden[N * TOY_WIDTH];
    specrt_beam beams[N];
    for (int i = 0; i < N; i++) specrt_session_get_beam(sessions[i], &beams[i]);
    while (beams[0].n > 0) {
        for (int i = 0; i < N; i++) toy_drafter(beams[i].tokens, 1, hidden + i * TOY_WIDTH);
        toy_check(specrt_session_expand_batch(sessions, N, hidden, NULL, N, beams));
    }
}

/* Verifies one sequence's chain and learns from it. @return the new number of tokens in out. */
static int32_t verify(specrt_session *session, int32_t *out, int32_t done) {
    specrt_draft chain;
    specrt_verdict verdict;
    specrt_session_finish(session, &chain);
    toy_target(chain.tokens, chain.n, logits);
    toy_check(specrt_session_verify(session, &chain, logits, &verdict));
    const specrt_target_rows rows = {.logits = logits};
    toy_check(specrt_session_observe(session, &chain, &verdict, &rows));
    for (int32_t i = 0; i < verdict.n && done < TOY_TOKENS; i++) out[done++] = verdict.tokens[i];
    return done;
}

static int32_t begin(specrt_session *session, int32_t prompt) {
    toy_check(specrt_session_begin(session, SPECRT_BEGIN_NEW, 0));
    toy_target(&prompt, 1, logits);
    const specrt_target_rows rows = {.logits = logits};
    toy_check(specrt_session_prefill(session, &prompt, 1, &rows));
    const int32_t token = specrt_session_draw(session, logits);
    toy_check(specrt_session_start(session, token));
    return token;
}

int main(void) {
    int32_t out[N][TOY_TOKENS], done[N], plain[TOY_TOKENS], least = 1;
    specrt_session *sessions[N];
    specrt_error err;
    specrt_head *head;
    specrt_policy *policy;
    specrt_stock *stock;
    toy_init();

    const specrt_head_desc rows = {
        .rows = toy_rows, .dtype = SPECRT_DTYPE_F32, .n_rows = TOY_VOCAB, .n_cols = TOY_WIDTH};
    const specrt_policy_desc wanted = {.text = "window:512@kpre=8@kver=8@min=512"};
    if (specrt_head_bind(NULL, &rows, NULL, &head, &err) ||
        specrt_policy_create(NULL, head, &wanted, &policy, &err) ||
        specrt_stock_create(head, NULL, NULL, &stock, &err))
        goto failed;
    const specrt_session_params params = {.tree = {STEPS, 1, NODES}, .stock = stock};
    for (int i = 0; i < N; i++) {
        if (specrt_session_create(policy, &params, NULL, &sessions[i], &err)) goto failed;
        out[i][0] = begin(sessions[i], 7 + i);
        done[i] = 1;
    }

    while (least < TOY_TOKENS) {
        draft(sessions);
        least = TOY_TOKENS;
        for (int i = 0; i < N; i++) {
            done[i] = verify(sessions[i], out[i], done[i]);
            if (done[i] < least) least = done[i];
        }
    }

    specrt_stock_stats stats;
    specrt_stock_get_stats(stock, &stats);
    printf("%d sequences use %lld rows; the stock packs %d\n", N, (long long)stats.n_holds,
           stats.n_held);
    for (int i = 0; i < N; i++) {
        toy_plain(7 + i, plain);
        if (memcmp(out[i], plain, sizeof plain) != 0) {
            fprintf(stderr, "tutorial_batch: sequence %d: other tokens than plain decoding\n", i);
            return 1;
        }
        specrt_session_close(sessions[i]);
    }
    printf("all tokens equal plain decoding\n");
    specrt_stock_close(stock);
    specrt_policy_close(policy);
    specrt_head_close(head);
    return 0;

failed:
    fprintf(stderr, "tutorial_batch: %s\n", err.msg);
    return 1;
}
