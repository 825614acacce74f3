/* scan.h : owns products of codes of 8 bits or fewer with a few hidden states, sixteen rows of a head side
 * by side. Sums are whole numbers, so that every instruction set finds the same; bands of several
 * widths add up by fused steps in one order. Refuses nothing; its callers checked. */
#ifndef SOURCES_SCAN_H
#define SOURCES_SCAN_H

#include "core/simd.h"

enum {
    SPECRT__SCAN_STATES = 5,  /* of a query: each code is loaded once for all */
    SPECRT__SCAN_TILE = 4,    /* blocks of a tile: each state is loaded once for all */
    SPECRT__SCAN_BLOCKS = 32, /* the most a call covers */
    SPECRT__SCAN_MOST = 16 * SPECRT__SCAN_BLOCKS,
    SPECRT__SCAN_AHEAD = 32 /* lines of each block from one to that to be fetched */
};

/* Rows as they are scanned, in blocks of 16 places: a code is 8 bits of a dimension less 128, or 4 less 8. */
typedef struct specrt__scan_rows {
    const uint8_t *codes; /* a block every `stride` bytes, of which the first 64 * n_lines count */
    size_t stride;
    int32_t n_lines;
    bool four_bits;      /* a line holds 8 dimensions, else 4: the first four in the lower halves */
    const float *scales; /* [n_blocks, 16] */
    const float *bias;   /* [n_blocks, 16] added to scores; NULL: none */
} specrt__scan_rows;

/* Hidden states as they are scanned with, one or SPECRT__SCAN_STATES: z is about unit * q. */
typedef struct specrt__scan_query {
    /* [n_lines or twice that, n_states, 4]: four dimensions of each state, then the next */
    int8_t *q;
    int32_t n_states;
    float unit[SPECRT__SCAN_STATES];
    int32_t offset[SPECRT__SCAN_STATES]; /* what the codes' 128 or 8 adds to every sum */
    /* scores from here on are of interest, and what is no number */
    float least[SPECRT__SCAN_STATES];
} specrt__scan_query;

/* What is of interest to a state, by place; a vector's width of it may be overwritten at a time. */
typedef struct specrt__scan_hits {
    int32_t n, places[SPECRT__SCAN_MOST + 16];
    float scores[SPECRT__SCAN_MOST + 16];
} specrt__scan_hits;

/* Adds to the hits [n_states] those in blocks [first, first + n_blocks). */
typedef void specrt__scan_kernel(const specrt__scan_rows *rows, int32_t first, int32_t n_blocks,
                                 const specrt__scan_query *query, specrt__scan_hits *hits);

/* Where dimension k of a state lies. */
static inline int8_t *specrt__scan_at(const specrt__scan_query *query, int state, int32_t k) {
    return query->q + ((size_t)(k / 4) * (size_t)query->n_states + (size_t)state) * 4 + k % 4;
}

/* Bit i of `hit` stands for place + i. */
static inline void specrt__scan_keep(specrt__scan_hits *hits, int32_t place, int hit,
                                     const float *scores) {
    for (int i = 0; hit; i++, hit >>= 1) {
        if (!(hit & 1)) continue;
        hits->places[hits->n] = place + i;
        hits->scores[hits->n++] = scores[i];
    }
}

/* --- bands: codes of 8, 4, 2 or 1 bits, added to what bands before them score --- */

/* A band as it is scanned: a code c stands for 2 c - 2^bits + 1. A line of 64 bytes holds, for 16 places,
 * four dimensions in the lowest bits, the next four above them, and so on. */
typedef struct specrt__scan_band {
    const uint8_t *codes;   /* [n_blocks, n_lines, 64] */
    const uint16_t *scales; /* bf16 [n_blocks, 16] */
    int32_t n_lines, bits;
} specrt__scan_band;

/* add() : adds the scores of blocks [first, first + n_blocks) to sums [n_states, SPECRT__SCAN_MOST].
 *   query : of the band; offset is what 2^bits - 1 adds; `least` is not read
 * pick() : adds to the hits what of a state's sums is at least `least`, or no number. */
typedef struct specrt__scan_adder {
    void (*add)(const specrt__scan_band *band, int32_t first, int32_t n_blocks,
                const specrt__scan_query *query, float *sums);
    void (*pick)(const float *sums, int32_t first, int32_t n_blocks, float least,
                 specrt__scan_hits *hits);
} specrt__scan_adder;

static inline float specrt__scan_scale(uint16_t bf16) {
    return specrt__base_float((uint32_t)bf16 << 16);
}

SPECRT__INTERNAL void specrt__scan_scalar(const specrt__scan_rows *rows, int32_t first,
                                          int32_t n_blocks, const specrt__scan_query *query,
                                          specrt__scan_hits *hits);
SPECRT__INTERNAL void specrt__scan_add_scalar(const specrt__scan_band *band, int32_t first,
                                              int32_t n_blocks, const specrt__scan_query *query,
                                              float *sums);
SPECRT__INTERNAL void specrt__scan_pick_scalar(const float *sums, int32_t first, int32_t n_blocks,
                                               float least, specrt__scan_hits *hits);
SPECRT__INTERNAL specrt__scan_kernel *specrt__scan_choose(void);
SPECRT__INTERNAL const specrt__scan_adder *specrt__scan_choose_adder(void);

#if defined(SPECRT__SIMD_X86)
SPECRT__INTERNAL void specrt__scan_avx2(const specrt__scan_rows *rows, int32_t first,
                                        int32_t n_blocks, const specrt__scan_query *query,
                                        specrt__scan_hits *hits);
SPECRT__INTERNAL void specrt__scan_vnni(const specrt__scan_rows *rows, int32_t first,
                                        int32_t n_blocks, const specrt__scan_query *query,
                                        specrt__scan_hits *hits);
SPECRT__INTERNAL void specrt__scan_add_avx2(const specrt__scan_band *band, int32_t first,
                                            int32_t n_blocks, const specrt__scan_query *query,
                                            float *sums);
SPECRT__INTERNAL void specrt__scan_pick_avx2(const float *sums, int32_t first, int32_t n_blocks,
                                             float least, specrt__scan_hits *hits);
SPECRT__INTERNAL void specrt__scan_add_bands_vnni(const specrt__scan_band *band, int32_t first,
                                                  int32_t n_blocks, const specrt__scan_query *query,
                                                  float *sums);
SPECRT__INTERNAL void specrt__scan_pick_vnni(const float *sums, int32_t first, int32_t n_blocks,
                                             float least, specrt__scan_hits *hits);
#elif defined(SPECRT__SIMD_ARM64)
SPECRT__INTERNAL void specrt__scan_neon(const specrt__scan_rows *rows, int32_t first,
                                        int32_t n_blocks, const specrt__scan_query *query,
                                        specrt__scan_hits *hits);
SPECRT__INTERNAL void specrt__scan_add_neon(const specrt__scan_band *band, int32_t first,
                                            int32_t n_blocks, const specrt__scan_query *query,
                                            float *sums);
SPECRT__INTERNAL void specrt__scan_pick_neon(const float *sums, int32_t first, int32_t n_blocks,
                                             float least, specrt__scan_hits *hits);
#endif

#endif
