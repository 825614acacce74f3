/* toy.h : a target and a drafter for the examples, so that they need no files. As in a transformer, the
 * target's cache has what it read, and the logits of a row follow from every token that the row attends to
 * and from its position. A wrong position, mask or kept node, or a turn that begins with the wrong token,
 * therefore changes the text. The examples compare their text with toy_plain(), which has no cache. */
#ifndef EXAMPLES_TOY_H
#define EXAMPLES_TOY_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "specrt.h"

enum { TOY_VOCAB = 2000, TOY_FREQUENT = 500, TOY_WIDTH = 32, TOY_CONTEXT = 512, TOY_TOKENS = 48 };

static float toy_rows[TOY_VOCAB * TOY_WIDTH]; /* the LM head of both; f32 [TOY_VOCAB, TOY_WIDTH] */
static float toy_embeddings[TOY_VOCAB * TOY_WIDTH]; /* what a token says about the next one */
static float toy_logits[SPECRT_TREE_MAX_NODES * TOY_VOCAB];
static float toy_hidden[SPECRT_TREE_MAX_TOPK * TOY_WIDTH];

/* Both models' memory of one sequence. Zero-initialise it. */
typedef struct toy {
    int32_t n;                   /* tokens in the target's cache: the position of the next one */
    uint32_t cache[TOY_CONTEXT]; /* what rows that attend to a token add up */
    uint32_t sums
        [SPECRT_TREE_MAX_TOPK]; /* of the rows of the drafter's last pass, over all that each has read */
    int32_t level;              /* of the drafter's next pass */
} toy;

__attribute__((noreturn)) static inline void toy_fail(const char *message) {
    fprintf(stderr, "example: %s\n", message);
    exit(1);
}

static inline void toy_check(specrt_status status) {
    if (status != SPECRT_STATUS_OK) toy_fail(specrt_status_name(status));
}

/* Ends the program where a call on a session failed, with its text. */
static inline void toy_check_session(const specrt_session *s, specrt_status status) {
    if (status != SPECRT_STATUS_OK) toy_fail(specrt_session_last_error(s)->msg);
}

/* Numbers from -scale to scale that follow from a seed, added. */
static inline void toy_add_noise(float *values, int n, uint32_t seed, float scale) {
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        values[i] += scale * ((float)(seed >> 8) / 8388608.0f - 1);
    }
}

/* Fills the head. Tokens below TOY_FREQUENT have larger rows, and so are emitted more often. */
static inline void toy_init(void) {
    toy_add_noise(toy_embeddings, TOY_VOCAB * TOY_WIDTH, 1, 1);
    toy_add_noise(toy_rows, TOY_VOCAB * TOY_WIDTH, 3, 1);
    for (int i = 0; i < TOY_FREQUENT * TOY_WIDTH; i++) toy_rows[i] *= 1.4f;
}

static inline uint32_t toy_mix(int32_t token, int32_t position) {
    uint32_t x = (uint32_t)token * 2654435761u ^ ((uint32_t)position + 1) * 2246822519u;
    x = (x ^ x >> 15) * 2654435761u;
    return x ^ x >> 13;
}

/* The state behind a token: hidden f32 [TOY_WIDTH].
 *   sum : of toy_mix() over all that the row attends to */
static inline void toy_state(int32_t token, uint32_t sum, float *hidden) {
    memcpy(hidden, toy_embeddings + token * TOY_WIDTH, TOY_WIDTH * sizeof *hidden);
    toy_add_noise(hidden, TOY_WIDTH, sum, 0.8f);
}

static inline void toy_product(const float *hidden, float *logits) {
    for (int32_t v = 0; v < TOY_VOCAB; v++) {
        logits[v] = 0;
        for (int k = 0; k < TOY_WIDTH; k++) logits[v] += hidden[k] * toy_rows[v * TOY_WIDTH + k];
    }
}

/* The target reads tokens i32 [n] behind its cache, n up to SPECRT_TREE_MAX_NODES. toy_keep() follows.
 *   depths : i32 [n] of a draft's nodes; NULL: one behind the other
 *   masks : u64 [n] of a draft, which tokens each row attends to; NULL: those up to itself
 * @return logits f32 [n, TOY_VOCAB], until the next call. */
static inline const float *toy_read(toy *t, const int32_t *tokens, const int32_t *depths,
                                    const uint64_t *masks, int32_t n) {
    float hidden[TOY_WIDTH];
    if (n > SPECRT_TREE_MAX_NODES || n > TOY_CONTEXT - t->n) toy_fail("the context is full");
    for (int32_t i = 0; i < n; i++) {
        uint32_t sum = 0;
        t->cache[t->n + i] = toy_mix(tokens[i], t->n + (depths ? depths[i] : i));
        for (int32_t j = 0; j < t->n; j++) sum += t->cache[j];
        for (int32_t j = 0; j <= i; j++)
            if (!masks || masks[i] >> j & 1) sum += t->cache[t->n + j];
        toy_state(tokens[i], sum, hidden);
        toy_product(hidden, toy_logits + i * TOY_VOCAB);
    }
    return toy_logits;
}

/* Keeps nodes i32 [n] of what the target read last, in ascending order; NULL: the first n. */
static inline void toy_keep(toy *t, const int32_t *nodes, int32_t n) {
    for (int32_t i = 0; i < n; i++) t->cache[t->n + i] = t->cache[t->n + (nodes ? nodes[i] : i)];
    t->n += n;
    t->level = 0;
}

/* A pass of the drafter: tokens i32 [n]; each continues row parents[i] of the pass before.
 * @return states f32 [n, TOY_WIDTH], until the next call: the target's, with an error. */
static inline const float *toy_draft(toy *t, const int32_t *tokens, const int32_t *parents,
                                     int32_t n) {
    uint32_t sums[SPECRT_TREE_MAX_TOPK] = {0};
    for (int32_t i = 0; i < n; i++) {
        for (int32_t j = 0; t->level == 0 && j < t->n; j++) sums[i] += t->cache[j];
        if (t->level > 0) sums[i] = t->sums[parents[i]];
        sums[i] += toy_mix(tokens[i], t->n + t->level);
        toy_state(tokens[i], sums[i], toy_hidden + i * TOY_WIDTH);
        toy_add_noise(toy_hidden + i * TOY_WIDTH, TOY_WIDTH, ~sums[i], 0.2f);
    }
    memcpy(t->sums, sums, sizeof sums);
    t->level++;
    return toy_hidden;
}

/* Plain decoding behind text i32 [n]: what every policy must reproduce. Draws with the key of `sampling`.
 *   answer : i32 [TOY_TOKENS], written */
static inline void toy_plain(const specrt_sampling *sampling, const int32_t *text, int32_t n,
                             int32_t *answer) {
    specrt_verifier *verifier;
    specrt_error err;
    float hidden[TOY_WIDTH];
    int32_t last = text[n - 1];
    uint32_t sum = 0;
    for (int32_t i = 0; i < n; i++) sum += toy_mix(text[i], i);
    if (specrt_verifier_create(TOY_VOCAB, TOY_VOCAB, sampling, NULL, &verifier, &err))
        toy_fail(err.msg);
    for (int32_t i = 0; i < TOY_TOKENS; i++) {
        toy_state(last, sum, hidden);
        toy_product(hidden, toy_logits);
        answer[i] = last = specrt_verifier_draw(verifier, toy_logits, n + i);
        sum += toy_mix(last, n + i);
    }
    specrt_verifier_close(verifier);
}

/* Ends the program if an answer i32 [TOY_TOKENS] behind text i32 [n] is not that of plain decoding. */
static inline void toy_compare(const specrt_sampling *sampling, const int32_t *text, int32_t n,
                               const int32_t *answer) {
    int32_t plain[TOY_TOKENS];
    toy_plain(sampling, text, n, plain);
    for (int32_t i = 0; i < TOY_TOKENS; i++)
        if (answer[i] != plain[i]) {
            fprintf(stderr, "example: token %d: expected %d as in plain decoding, found %d\n", i,
                    plain[i], answer[i]);
            exit(1);
        }
}

#endif
