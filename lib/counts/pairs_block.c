/* pairs_block.c : the pairs of a block of tokens, as a run. Successors are grouped by their source (a
 * counting sort), then each group is added up in counters that stay in the cache. */
#include "counts/pairs_impl.h"

#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/memory.h"

struct pairs_counter {
    pairs *store;
    id_list tokens;
    int32_t *successors; /* [capacity] grouped by source */
    size_t capacity;
    uint32_t *ends; /* [n_vocab + 1] of each source's group */
    pairs_sum sum;
};

specrt_status sl_pairs_counter_create(pairs *p, pairs_counter **out, specrt_error *err) {
    pairs_counter *c = *out = (pairs_counter *)calloc(1, sizeof *c);
    if (!c) return sl_pairs_no_memory(err);
    c->store = p;
    c->tokens.capacity = (size_t)p->block_tokens;
    if (sl_pairs_sum_init(&c->sum, p->n_vocab) &&
        (c->ends = (uint32_t *)calloc((size_t)p->n_vocab + 1, sizeof *c->ends)) &&
        (c->tokens.ids = (int32_t *)malloc(c->tokens.capacity * sizeof *c->tokens.ids)))
        return SPECRT_STATUS_OK;
    sl_pairs_counter_free(c);
    *out = NULL;
    return sl_pairs_no_memory(err);
}

void sl_pairs_counter_free(pairs_counter *c) {
    if (!c) return;
    free(c->tokens.ids);
    free(c->successors);
    free(c->ends);
    sl_pairs_sum_free(&c->sum);
    free(c);
}

id_list *sl_pairs_counter_tokens(pairs_counter *c) {
    return &c->tokens;
}

/* The boundary is a source too, so that no token needs a test; its group is never looked at. */
static void group(pairs_counter *c) {
    const int32_t *ids = c->tokens.ids;
    size_t n = c->tokens.n - 1, n_sources = (size_t)c->store->n_vocab + 1;
    uint32_t begin = 0;
    memset(c->ends, 0, n_sources * sizeof *c->ends);
    for (size_t i = 0; i < n; i++) c->ends[ids[i]]++;
    for (size_t u = 0; u < n_sources; u++) {
        uint32_t size = c->ends[u];
        c->ends[u] = begin;
        begin += size;
    }
    for (size_t i = 0; i < n; i++) c->successors[c->ends[ids[i]]++] = ids[i + 1];
}

static specrt_status encode_groups(pairs_counter *c, pairs_bytes *out, uint64_t *starts,
                                   specrt_error *err) {
    int32_t n_vocab = c->store->n_vocab;
    uint32_t at = 0;
    for (int32_t u = 0; u < n_vocab; u++) {
        if (u % PAIRS_RANGE == 0) starts[u / PAIRS_RANGE] = out->n;
        if (at == c->ends[u]) continue;
        for (; at < c->ends[u]; at++) pairs_sum_add(&c->sum, c->successors[at], 1);
        pairs_row row = sl_pairs_sum_take(&c->sum, u, n_vocab);
        if (row.n) TRY(sl_pairs_encode(&row, out, err));
    }
    starts[c->store->n_ranges] = out->n;
    return SPECRT_STATUS_OK;
}

specrt_status sl_pairs_counter_flush(pairs_counter *c, specrt_error *err) {
    pairs_bytes bytes = {0};
    if (c->tokens.n < 2) return SPECRT_STATUS_OK;
    if (c->tokens.n > UINT32_MAX ||
        !sl_reserve(&c->successors, &c->capacity, c->tokens.capacity, sizeof *c->successors))
        return sl_pairs_no_memory(err);
    pairs_run run = {.starts = sl_pairs_run_starts(c->store)};
    if (!run.starts) return sl_pairs_no_memory(err);
    group(c);
    c->tokens.n = 0;
    specrt_status status = encode_groups(c, &bytes, run.starts, err);
    run.bytes = bytes.bytes;
    run.n_bytes = bytes.n;
    if (status == SPECRT_STATUS_OK) return sl_pairs_add_run(c->store, &run, err);
    sl_pairs_run_free(&run);
    return status;
}

specrt_status sl_pairs_counter_check(pairs_counter *c, specrt_error *err) {
    /* A document may end a little beyond the block: as long as there is room, it does not grow. */
    size_t full = (size_t)(c->store->block_tokens - c->store->block_tokens / 16);
    return c->tokens.n >= full ? sl_pairs_counter_flush(c, err) : SPECRT_STATUS_OK;
}
