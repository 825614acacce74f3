/* toy.h : a target and a drafter for the tutorial's programs, so that they need no files. The models' next
 * token depends on the last token alone; an engine would pass parents, masks and KV caches too. */
#ifndef EXAMPLES_TOY_H
#define EXAMPLES_TOY_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include "specrt.h"

enum { TOY_VOCAB = 2000, TOY_WIDTH = 32, TOY_TOKENS = 48 };

static float toy_states[TOY_VOCAB * TOY_WIDTH]; /* the target's hidden state after each token */
static float toy_errors[TOY_VOCAB * TOY_WIDTH]; /* by how much the drafter misses it */
static float toy_rows[TOY_VOCAB * TOY_WIDTH];   /* the LM head of both */

static void toy_fill(float *values, uint32_t random, float scale) {
    for (int i = 0; i < TOY_VOCAB * TOY_WIDTH; i++) {
        random = random * 1664525u + 1013904223u;
        values[i] = scale * ((float)(random >> 8) / 8388608.0f - 1);
    }
}

static void toy_init(void) {
    toy_fill(toy_states, 1, 1);
    toy_fill(toy_errors, 2, 0.15f);
    toy_fill(toy_rows, 3, 1);
}

/* The target: tokens i32 [n] -> logits f32 [n, TOY_VOCAB] of the token after each. */
static void toy_target(const int32_t *tokens, int32_t n, float *logits) {
    for (int32_t i = 0; i < n; i++)
        for (int32_t v = 0; v < TOY_VOCAB; v++) {
            float sum = 0;
            for (int k = 0; k < TOY_WIDTH; k++)
                sum += toy_states[tokens[i] * TOY_WIDTH + k] * toy_rows[v * TOY_WIDTH + k];
            logits[i * TOY_VOCAB + v] = sum;
        }
}

/* The drafter: tokens i32 [n] -> output hidden states f32 [n, TOY_WIDTH], which the head multiplies. */
static void toy_drafter(const int32_t *tokens, int32_t n, float *hidden) {
    for (int32_t i = 0; i < n; i++)
        for (int k = 0; k < TOY_WIDTH; k++)
            hidden[i * TOY_WIDTH + k] =
                toy_states[tokens[i] * TOY_WIDTH + k] + toy_errors[tokens[i] * TOY_WIDTH + k];
}

/* Plain decoding, TOY_TOKENS tokens after `last`: what every policy must reproduce. */
static void toy_plain(int32_t last, int32_t *tokens) {
    static float logits[TOY_VOCAB];
    for (int i = 0; i < TOY_TOKENS; i++) {
        toy_target(&last, 1, logits);
        specrt_logits_topk(logits, TOY_VOCAB, 1, &last);
        tokens[i] = last;
    }
}

static void toy_check(specrt_status status) {
    if (status == SPECRT_STATUS_OK) return;
    fprintf(stderr, "tutorial: %s\n", specrt_status_name(status));
    exit(1);
}

#endif
