/* small_head.h : a bundle of ranks and a head of 100 rows for tables of policies. */
#ifndef SMALL_HEAD_H
#define SMALL_HEAD_H

#include "opened.h"

enum { V = 100, D = 8 };

typedef struct small_head {
    uint8_t *bytes;
    specrt_bundle *bundle;
    specrt_head *head;
} small_head;

static inline void small_head_open(small_head *s) {
    static float weights[V * D];
    uint64_t state = 5;
    size_t n;
    for (int i = 0; i < V * D; i++) weights[i] = fixture_normal(&state);
    s->bytes = fixture_ranks_bundle(V, 2, 60, &n);
    s->bundle = open_memory(s->bytes, n);
    s->head = bind_rows(NULL, weights, V, D);
}

static inline specrt_policy *small_head_policy(const small_head *s, const char *text) {
    const specrt_policy_desc desc = {.text = text};
    return create_policy(s->bundle, s->head, &desc);
}

static inline void small_head_close(small_head *s) {
    specrt_head_close(s->head);
    specrt_bundle_close(s->bundle);
    free(s->bytes);
}

#endif
