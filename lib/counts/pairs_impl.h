/* pairs_impl.h : the inside of a pair store, for pairs*.c only. */
#ifndef COUNTS_PAIRS_IMPL_H
#define COUNTS_PAIRS_IMPL_H

#include <pthread.h>
#include "counts/pairs.h"

/* Sources are handled in ranges, so that several threads can merge. */
enum { PAIRS_RANGE = 1024, PAIRS_MAX_VARINT = 10 };

/* Encoded rows by ascending source, as in a count file. */
typedef struct pairs_run {
    uint8_t *bytes;   /* owned; NULL: in the store's file */
    uint64_t n_bytes; /* in memory */
    uint64_t *starts; /* [n_ranges + 1] of each range, in bytes or in the file; owned */
} pairs_run;

struct pairs {
    int32_t n_vocab;
    int64_t n_ranges;
    uint64_t run_memory, block_tokens; /* of all runs in memory; of one block */
    const char *folder;
    pthread_mutex_t lock; /* over all below */
    pairs_run *runs;      /* [n_runs] the first n_spilled of them are in the file */
    size_t n_runs, capacity, n_spilled;
    uint64_t held; /* bytes of runs in memory */
    int fd;        /* the unnamed file; -1: none yet */
    uint64_t file_end;
};

/* Adds up one row; each id's first count marks it, so that ids come out in order. */
typedef struct pairs_sum {
    uint64_t *counts; /* [n_vocab + 1] */
    uint64_t *marks;  /* a bit per id, and a bit per word of those */
    uint64_t *summary;
    size_t n_summary;
    int32_t *ids; /* [n_vocab + 1] the row taken */
    uint64_t *taken;
} pairs_sum;

void sl_pairs_set_vocab(pairs *p, int32_t n_vocab);

bool sl_pairs_sum_init(pairs_sum *s, int32_t n_vocab);
void sl_pairs_sum_free(pairs_sum *s);

static inline void pairs_sum_add(pairs_sum *s, int32_t id, uint64_t count) {
    if (s->counts[id] == 0) {
        s->marks[id >> 6] |= UINT64_C(1) << (id & 63);
        s->summary[id >> 12] |= UINT64_C(1) << (id >> 6 & 63);
    }
    s->counts[id] += count;
}

/* sl_pairs_sum_take() : the row so far, and begin anew. Ids from n_vocab on are dropped. */
pairs_row sl_pairs_sum_take(pairs_sum *s, int32_t source, int32_t n_vocab);

/* sl_pairs_encode() : append a row. */
specrt_status sl_pairs_encode(const pairs_row *row, pairs_bytes *out, specrt_error *err);

/* sl_pairs_add_run() : takes the run over, also on failure. */
specrt_status sl_pairs_add_run(pairs *p, pairs_run *run, specrt_error *err);
void sl_pairs_run_free(pairs_run *run);
uint64_t *sl_pairs_run_starts(const pairs *p); /* zeros; NULL: no memory */

static inline uint8_t *pairs_put_varint(uint8_t *p, uint64_t x) {
    for (; x >= 0x80; x >>= 7) *p++ = (uint8_t)(x | 0x80);
    *p++ = (uint8_t)x;
    return p;
}

static inline const uint8_t *pairs_get_varint(const uint8_t *p, uint64_t *out) {
    uint64_t x = *p & 0x7f;
    for (int shift = 7; *p++ & 0x80; shift += 7) x |= (uint64_t)(*p & 0x7f) << shift;
    *out = x;
    return p;
}

specrt_status sl_pairs_no_memory(specrt_error *err);

#endif
