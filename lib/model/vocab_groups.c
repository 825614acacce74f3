/* vocab_groups.c : see vocab_groups.h. */
#include "model/vocab_groups.h"

#include <inttypes.h>
#include <stdlib.h>
#include "base/error.h"
#include "base/order.h"

typedef struct group {
    int32_t first;  /* id; sl_order_i32() sorts by it */
    uint64_t count; /* of its ids; the greatest number for a forced one */
} group;

static int by_count(const void *a, const void *b) {
    const group *x = (const group *)a, *y = (const group *)b;
    int order = (x->count < y->count) - (x->count > y->count);
    return order ? order : sl_order_i32(a, b);
}

/* @return how many groups have a forced id */
static int32_t count_groups(const specrt_ranks *ranks, group *groups, int32_t n) {
    const specrt_ranks_header *h = ranks->header;
    int32_t n_forced = 0;
    for (int32_t i = 0; i < n; i++) groups[i] = (group){i * VOCAB_GROUP, 0};
    for (int32_t i = 0; i < h->n_valid; i++) {
        int32_t g = ranks->ids[i] / VOCAB_GROUP;
        if (g >= n || groups[g].count == UINT64_MAX) continue;
        n_forced += i < h->n_forced;
        groups[g].count = i < h->n_forced ? UINT64_MAX : groups[g].count + ranks->counts[i];
    }
    return n_forced;
}

/* The best `n` of the groups as ids. */
static specrt_status to_map(group *groups, int32_t n, token_map *out, specrt_error *err) {
    qsort(groups, (size_t)n, sizeof *groups, sl_order_i32);
    out->ids = (int32_t *)malloc((size_t)n * VOCAB_GROUP * sizeof *out->ids);
    if (!out->ids) return sl_error_no_memory(err, "groups");
    for (int32_t i = 0; i < n * VOCAB_GROUP; i++)
        out->ids[i] = groups[i / VOCAB_GROUP].first + i % VOCAB_GROUP;
    out->n = n * VOCAB_GROUP;
    return SPECRT_STATUS_OK;
}

specrt_status sl_vocab_groups(const specrt_ranks *ranks, int32_t size, int32_t n_vocab,
                              token_map *out, specrt_error *err) {
    int32_t n = n_vocab / VOCAB_GROUP;
    int32_t wanted = (size ? size : ranks->header->n_default) / VOCAB_GROUP;
    group *groups = (group *)malloc(((size_t)n + 1) * sizeof *groups);
    *out = (token_map){.n_vocab = n_vocab};
    if (!groups) return sl_error_no_memory(err, "groups");
    int32_t n_forced = count_groups(ranks, groups, n);
    specrt_status status;
    if (wanted < 1 || wanted < n_forced || wanted > n) {
        status =
            specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                             "size %" PRId32 ": expected at least %" PRId32
                             " (groups of %d with forced ids) and at most %" PRId32,
                             size ? size : ranks->header->n_default,
                             (n_forced ? n_forced : 1) * VOCAB_GROUP, VOCAB_GROUP, n * VOCAB_GROUP);
    } else {
        qsort(groups, (size_t)n, sizeof *groups, by_count);
        status = to_map(groups, wanted, out, err);
    }
    free(groups);
    return status;
}

bool sl_vocab_groups_whole(const int32_t *ids, int32_t n) {
    bool whole = n % VOCAB_GROUP == 0;
    for (int32_t i = 0; i < n && whole; i++)
        whole = ids[i] % VOCAB_GROUP == i % VOCAB_GROUP &&
                (i % VOCAB_GROUP == 0 || ids[i] == ids[i - 1] + 1);
    return whole;
}
