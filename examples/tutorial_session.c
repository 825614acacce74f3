/* tutorial_session.c : one sequence under MicroSpec's policy: a chain, a tree, the next turn of a
 * conversation, and a session that is saved and loaded. docs/tutorial-embed.md explains each step.
 *
 *     tutorial_session
 */
#define SPECRT_IMPLEMENTATION /* before other headers, in strict C */
#include "specrt.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "toy.h"

/* One cycle: draft level by level, verify with the target, learn. */
static void cycle(specrt_session *session, specrt_verdict *verdict) {
    static float logits[SPECRT_TREE_MAX_NODES * TOY_VOCAB];
    static float hidden[SPECRT_TREE_MAX_TOPK * TOY_WIDTH];
    specrt_beam beam;
    specrt_draft draft;
    specrt_session_get_beam(session, &beam);
    while (beam.n > 0) {
        toy_drafter(beam.tokens, beam.n, hidden);
        toy_check(specrt_session_expand(session, hidden, NULL, beam.n, &beam));
    }
    specrt_session_finish(session, &draft);
    toy_target(draft.tokens, draft.n, logits);
    toy_check(specrt_session_verify(session, &draft, logits, verdict));
    const specrt_target_rows rows = {.logits = logits};
    toy_check(specrt_session_observe(session, &draft, verdict, &rows));
}

/* Reads a prompt and decodes TOY_TOKENS tokens. An engine would also stop at a terminator. */
static void answer(specrt_session *session, const int32_t *prompt, int32_t n, int32_t *out) {
    float *logits = malloc((size_t)n * TOY_VOCAB * sizeof *logits);
    specrt_verdict verdict;
    if (!logits) toy_check(SPECRT_STATUS_NO_MEMORY);
    toy_target(prompt, n, logits);
    const specrt_target_rows rows = {.logits = logits};
    toy_check(specrt_session_prefill(session, prompt, n, &rows));
    out[0] = specrt_session_draw(session, logits + (n - 1) * TOY_VOCAB);
    toy_check(specrt_session_start(session, out[0]));
    free(logits);
    for (int32_t done = 1; done < TOY_TOKENS;) {
        cycle(session, &verdict);
        for (int32_t i = 0; i < verdict.n && done < TOY_TOKENS; i++)
            out[done++] = verdict.tokens[i];
    }
}

/* Reports a step, and ends the program if its tokens are not those of plain decoding. */
static void report(const char *step, const specrt_session *session, int32_t last,
                   const int32_t *out) {
    int32_t plain[TOY_TOKENS];
    specrt_session_stats stats;
    toy_plain(last, plain);
    specrt_session_get_stats(session, &stats);
    printf("%-14s accept length %.2f, %.0f of %d rows scored per draft step\n", step,
           (double)stats.n_emitted / (double)stats.n_cycles,
           (double)stats.n_rows / (double)stats.n_cycles, TOY_VOCAB);
    if (memcmp(out, plain, sizeof plain) == 0) return;
    fprintf(stderr, "tutorial_session: %s: other tokens than plain decoding\n", step);
    exit(1);
}

static specrt_session *create(const specrt_policy *policy, specrt_tree_params tree) {
    specrt_session *session;
    specrt_error err;
    const specrt_session_params params = {.tree = tree};
    if (specrt_session_create(policy, &params, NULL, &session, &err) == SPECRT_STATUS_OK)
        return session;
    fprintf(stderr, "tutorial_session: %s\n", err.msg);
    exit(1);
}

int main(void) {
    const int32_t first[] = {5, 17, 3}, second[] = {40, 8};
    int32_t out[TOY_TOKENS];
    specrt_error err;
    specrt_head *head;
    specrt_policy *policy;
    toy_init();

    /* The head stays the application's. A window learns from the target, so no bundle is needed. */
    const specrt_head_desc rows = {
        .rows = toy_rows, .dtype = SPECRT_DTYPE_F32, .n_rows = TOY_VOCAB, .n_cols = TOY_WIDTH};
    const specrt_policy_desc wanted = {.text = "window:1024@kpre=8@kver=8@positions=tree@min=1024"};
    if (specrt_head_bind(NULL, &rows, NULL, &head, &err) ||
        specrt_policy_create(NULL, head, &wanted, &policy, &err)) {
        fprintf(stderr, "tutorial_session: %s\n", err.msg);
        return 1;
    }

    /* Step 1: a chain of four tokens. */
    specrt_session *chain = create(policy, (specrt_tree_params){4, 1, 5});
    toy_check(specrt_session_begin(chain, SPECRT_BEGIN_NEW, 0));
    answer(chain, first, 3, out);
    report("chain", chain, first[2], out);

    /* Step 2: a tree, four wide. */
    specrt_session *tree = create(policy, (specrt_tree_params){4, 4, 16});
    toy_check(specrt_session_begin(tree, SPECRT_BEGIN_NEW, 0));
    answer(tree, first, 3, out);
    report("tree", tree, first[2], out);

    /* Step 3: the next turn. The window and the statistics continue. */
    toy_check(specrt_session_begin(tree, SPECRT_BEGIN_TURN, 3 + TOY_TOKENS));
    answer(tree, second, 2, out);
    report("second turn", tree, second[1], out);

    /* Step 4: save the session, load it elsewhere, and continue there. */
    size_t size = 0;
    toy_check(specrt_session_save(tree, NULL, 0, &size));
    void *bytes = malloc(size);
    if (!bytes) toy_check(SPECRT_STATUS_NO_MEMORY);
    toy_check(specrt_session_save(tree, bytes, size, &size));
    specrt_session *moved = create(policy, (specrt_tree_params){4, 4, 16});
    if (specrt_session_load(moved, bytes, size, &err)) {
        fprintf(stderr, "tutorial_session: %s\n", err.msg);
        return 1;
    }
    toy_check(specrt_session_begin(moved, SPECRT_BEGIN_TURN, 5 + 2 * TOY_TOKENS));
    answer(moved, first, 3, out);
    report("moved session", moved, first[2], out);

    free(bytes);
    specrt_session_close(moved);
    specrt_session_close(tree);
    specrt_session_close(chain);
    specrt_policy_close(policy);
    specrt_head_close(head);
    return 0;
}
