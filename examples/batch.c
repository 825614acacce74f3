/* batch.c : four sequences at once, whose sessions share packed rows in a stock. A sequence whose answer ends
 * leaves the batch.
 *
 *     batch
 */
#define SPECRT_IMPLEMENTATION /* before other headers, in strict C */
#include "specrt.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include "toy.h"

enum { N = 4, STEPS = 3 };

typedef struct sequence {
    specrt_session *s;
    toy models;
    int32_t prompt, answer[TOY_TOKENS], n; /* tokens of the answer */
    specrt_end end;
} sequence;

static sequence sequences[N];

static void emit(sequence *q, const specrt_verdict *verdict) {
    memcpy(q->answer + q->n, verdict->tokens, (size_t)verdict->n * sizeof *q->answer);
    q->n += verdict->n;
    q->end = verdict->end;
}

static void begin(sequence *q) {
    const specrt_request request = {.max_tokens = TOY_TOKENS};
    specrt_target_rows rows = {.logits = toy_read(&q->models, &q->prompt, NULL, NULL, 1)};
    specrt_verdict verdict;
    toy_keep(&q->models, NULL, 1);
    toy_check_session(q->s, specrt_session_begin(q->s, &request));
    toy_check_session(q->s, specrt_session_prefill(q->s, &q->prompt, 1, &rows));
    toy_check_session(q->s, specrt_session_first(q->s, rows.logits, &verdict));
    emit(q, &verdict);
}

/* A pass of all sequences together, level by level. Chains of equal length stay in step. */
static void draft(sequence **live, int32_t n) {
    specrt_session *sessions[N];
    specrt_beam beams[N];
    float hidden[N * TOY_WIDTH];
    for (int32_t i = 0; i < n; i++) {
        sessions[i] = live[i]->s;
        toy_check_session(sessions[i], specrt_session_get_beam(sessions[i], &beams[i]));
    }
    while (beams[0].n > 0) {
        for (int32_t i = 0; i < n; i++)
            memcpy(hidden + i * TOY_WIDTH,
                   toy_draft(&live[i]->models, beams[i].tokens, beams[i].parents, 1),
                   TOY_WIDTH * sizeof *hidden);
        toy_check_session(sessions[0],
                          specrt_session_expand_batch(sessions, n, hidden, NULL, n, beams));
    }
}

static void verify(sequence *q) {
    specrt_draft chain;
    specrt_verdict verdict;
    specrt_target_rows rows = {0};
    toy_check_session(q->s, specrt_session_finish(q->s, &chain));
    rows.logits = toy_read(&q->models, chain.tokens, chain.depths, chain.masks, chain.n);
    toy_check_session(q->s, specrt_session_accept(q->s, &chain, &rows, &verdict));
    toy_keep(&q->models, verdict.nodes, verdict.n);
    emit(q, &verdict);
}

int main(void) {
    sequence *live[N];
    int32_t n = N;
    specrt_error err;
    specrt_head *head;
    specrt_policy *policy;
    specrt_stock *stock;
    specrt_stock_stats stats = {0};
    toy_init();

    const specrt_head_desc rows = {
        .rows = toy_rows, .dtype = SPECRT_DTYPE_F32, .n_rows = TOY_VOCAB, .n_cols = TOY_WIDTH};
    const specrt_policy_desc window = {.text = "window:512@kpre=8@kver=8@min=512"};
    specrt_session_params params = {.tree = {STEPS, 1, STEPS + 1}, .n_logits = TOY_VOCAB};
    if (specrt_head_bind(NULL, &rows, NULL, &head, &err) ||
        specrt_policy_create(NULL, head, &window, &policy, &err) ||
        specrt_stock_create(head, NULL, NULL, &stock, &err))
        toy_fail(err.msg);
    params.stock = stock;
    for (int32_t i = 0; i < N; i++) {
        live[i] = &sequences[i];
        live[i]->prompt = 7 + i;
        if (specrt_session_create(policy, &params, NULL, &live[i]->s, &err)) toy_fail(err.msg);
        begin(live[i]);
    }
    while (n > 0) {
        draft(live, n);
        for (int32_t i = n; i-- > 0;) {
            verify(live[i]);
            if (live[i]->end != SPECRT_END_NONE) live[i] = live[--n];
        }
    }

    specrt_stock_get_stats(stock, &stats);
    for (int32_t i = 0; i < N; i++) {
        toy_compare(NULL, &sequences[i].prompt, 1, sequences[i].answer);
        specrt_session_close(sequences[i].s);
    }
    printf("%d sequences use %lld rows; the stock packs %d\n", N, (long long)stats.n_holds,
           stats.n_held);
    specrt_stock_close(stock);
    specrt_policy_close(policy);
    specrt_head_close(head);
    return 0;
}
