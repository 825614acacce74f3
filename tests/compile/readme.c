/* readme.c : runs the README's lines of C over the examples' models, and compares the answer with plain
 * decoding. run.sh takes the lines from the page, those with # into readme_head.h. */
#include "readme_head.h"
#include "examples/toy.h"

static toy models;
static int32_t answer[TOY_CONTEXT], n_answer;

static int fail(const char *message) {
    fprintf(stderr, "readme: %s\n", message);
    return 1;
}

static void check(const specrt_session *s, specrt_status status) {
    toy_check_session(s, status);
}

static void keep(const int32_t *nodes, int32_t n) {
    toy_keep(&models, nodes, n);
}

/* A prompt stays whole. */
static const float *target(const int32_t *tokens, const int32_t *depths, const uint64_t *masks,
                           int32_t n) {
    const float *logits = toy_read(&models, tokens, depths, masks, n);
    if (!masks) keep(NULL, n);
    return logits;
}

static const float *drafter(const specrt_beam *beam) {
    return toy_draft(&models, beam->tokens, beam->parents, beam->n);
}

static void print(const int32_t *tokens, int32_t n) {
    memcpy(answer + n_answer, tokens, (size_t)n * sizeof *tokens);
    n_answer += n;
}

static int readme(const void *lm_head, const int32_t *prompt, int32_t n, int32_t end_of_text) {
    const int32_t n_vocab = TOY_VOCAB, width = TOY_WIDTH;
#include "readme_body.h"
    specrt_session_close(s);
    specrt_policy_close(policy);
    specrt_head_close(head);
    return 0;
}

int main(void) {
    static uint16_t lm_head[TOY_VOCAB * TOY_WIDTH];
    const int32_t prompt[] = {5, 17, 3};
    int32_t plain[TOY_TOKENS], n = TOY_TOKENS / 2;
    uint32_t bits;
    toy_init();
    for (int i = 0; i < TOY_VOCAB * TOY_WIDTH; i++) {
        memcpy(&bits, &toy_rows[i], sizeof bits);
        lm_head[i] = (uint16_t)(bits >> 16);
    }
    toy_plain(NULL, prompt, 3, plain);
    for (int i = 0; i < n; i++)
        if (plain[i] == plain[n]) i = -1, n++; /* the first of its kind ends the text */
    if (readme(lm_head, prompt, 3, plain[n])) return 1;
    return n_answer == n + 1 && memcmp(answer, plain, (size_t)n_answer * sizeof *plain) == 0
               ? 0
               : fail("other tokens than plain decoding");
}
