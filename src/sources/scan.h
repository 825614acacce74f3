/* scan.h : owns products of a head's low-bit copies with a few hidden states in 8 bits: signs of all rows,
 * sixteen rows side by side, and pairs of bits of single rows. Sums are whole numbers, so that every
 * instruction set finds the same. Refuses nothing; its callers checked. */
#ifndef SOURCES_SCAN_H
#define SOURCES_SCAN_H

#include "core/simd.h"

enum {
    SPECRT__SCAN_STATES = 5,  /* of a query: each sign is loaded once for all */
    SPECRT__SCAN_BLOCKS = 32, /* the most a call covers */
    SPECRT__SCAN_MOST = 16 * SPECRT__SCAN_BLOCKS,
    SPECRT__SCAN_AHEAD = 8 /* records from one to that to be fetched */
};

/* --- signs --- */

/* Signs of rows in blocks of 16 places. A line of 64 bytes holds 32 dimensions: four of each place in the
 * lowest bits of its four bytes, the next four above them, and so on; 1 stands for +1, 0 for -1. */
typedef struct specrt__scan_signs {
    const uint8_t *codes; /* a block every `stride` bytes, of which the first 64 * n_lines count */
    size_t stride;
    int32_t n_lines;
    const uint8_t *scales;   /* [n_blocks, 16] specrt__scan_scale() */
    const int8_t *constants; /* [n_blocks, 16] in constant_unit, added to scores */
    float constant_unit;
} specrt__scan_signs;

/* Hidden states as they are scanned with, one or SPECRT__SCAN_STATES: z is about unit * q. */
typedef struct specrt__scan_query {
    int8_t *q; /* [8 * n_lines, n_states, 4]: four dimensions of each state, then the next */
    int32_t n_states;
    float unit[SPECRT__SCAN_STATES];
    int32_t offset[SPECRT__SCAN_STATES]; /* the sum of q */
    /* scores from here on are of interest, and what is no number */
    float least[SPECRT__SCAN_STATES];
} specrt__scan_query;

/* What is of interest to a state, by place; a vector's width of it may be overwritten at a time. */
typedef struct specrt__scan_hits {
    int32_t n, places[SPECRT__SCAN_MOST + 16];
    float scores[SPECRT__SCAN_MOST + 16];
} specrt__scan_hits;

/* Where dimension k of a state lies. */
static inline int8_t *specrt__scan_at(const specrt__scan_query *query, int state, int32_t k) {
    return query->q + ((size_t)(k / 4) * (size_t)query->n_states + (size_t)state) * 4 + k % 4;
}

/* A scale of 5 bits of exponent and 3 of a fraction: from 2^-31 to 1.875. */
enum { SPECRT__SCAN_EXPONENT = 96 << 23 };
static inline float specrt__scan_scale(uint8_t scale) {
    return specrt__base_float(((uint32_t)scale << 20) + (uint32_t)SPECRT__SCAN_EXPONENT);
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

/* --- pairs of bits --- */

/* A row's record is n_lines lines of 64 bytes, each four planes of a pair of bits: byte j holds dimensions
 * 256 line + 64 plane + j. A pair c stands for 2 c - 3. The last four bytes hold no dimensions but two bf16
 * numbers, the row's scale and its constant. */
typedef struct specrt__scan_records {
    const uint8_t *bytes; /* [n_places, n_lines, 64] */
    int32_t n_lines;
} specrt__scan_records;

/* Dimensions of a record. */
static inline int32_t specrt__scan_record_rank(int32_t n_lines) {
    return 256 * n_lines - 16;
}

/* Where dimension k of a state lies among [n_lines, 4, 64], in which a record's last four bytes meet zeros.
 * */
static inline int32_t specrt__scan_record_at(int32_t n_lines, int32_t k) {
    int32_t line = k / 256, width = line == n_lines - 1 ? 60 : 64, in_line = k - 256 * line;
    return 256 * line + in_line / width * 64 + in_line % width;
}

/* --- kernels --- */

typedef struct specrt__scan_kernels {
    /* Adds to the hits [n_states] those in blocks [first, first + n_blocks). */
    void (*signs)(const specrt__scan_signs *rows, int32_t first, int32_t n_blocks,
                  const specrt__scan_query *query, specrt__scan_hits *hits);
    /* sums [n] of codes times q, i8 [n_lines, 4, 64], of the records at these places. */
    void (*pairs)(const specrt__scan_records *records, const int32_t *places, int32_t n,
                  const int8_t *q, int32_t *sums);
} specrt__scan_kernels;

/* The fastest of this machine. */
SPECRT__INTERNAL const specrt__scan_kernels *specrt__scan_choose(void);

extern const specrt__scan_kernels specrt__scan_scalar;
#if defined(SPECRT__SIMD_X86)
extern const specrt__scan_kernels specrt__scan_avx2, specrt__scan_vnni;
#elif defined(SPECRT__SIMD_ARM64)
extern const specrt__scan_kernels specrt__scan_neon;
#endif

#endif
