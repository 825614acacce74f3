/* key.h : the bytes of a token or piece as two words, so that short ones compare and hash without
 * a loop. */
#ifndef TOKENIZER_KEY_H
#define TOKENIZER_KEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "specrt_tools.h"

#define TOK_KEY_BYTES 15 /* a key of up to so many bytes is the bytes themselves */

/* Short: the bytes, zero-padded, and their number in the top byte. Long: a hash of the bytes, and
 * their number under a top byte of 255; equal keys then call for a comparison of the bytes. No bytes
 * have an all-zero key. */
typedef struct tok_key {
    uint64_t low, high;
} tok_key;

static inline bool tok_key_equal(tok_key a, tok_key b) {
    return ((a.low ^ b.low) | (a.high ^ b.high)) == 0;
}

static inline uint64_t tok_key_hash(tok_key key) {
    return (key.low ^ (key.high << 29 | key.high >> 35)) * UINT64_C(0x9E3779B97F4A7C15);
}

/* tok_key_short() : of 1..15 bytes at p, where 16 may be read. Masks from a table: a branch on the
 * length would be mispredicted. */
static inline tok_key tok_key_short(const uint8_t *p, size_t n) {
#define KEEP(bytes) (~UINT64_C(0) >> (64 - 8 * (bytes)))
#define LOW(bytes)                                                                                 \
    { KEEP(bytes), 0 }
#define HIGH(bytes)                                                                                \
    { ~UINT64_C(0), KEEP(bytes) }
    static const uint64_t keep[TOK_KEY_BYTES + 1][2] = {
        {0, 0}, LOW(1),  LOW(2),  LOW(3),  LOW(4),  LOW(5),  LOW(6),  LOW(7),
        LOW(8), HIGH(1), HIGH(2), HIGH(3), HIGH(4), HIGH(5), HIGH(6), HIGH(7)};
#undef KEEP
#undef LOW
#undef HIGH
    uint64_t low, high;
    memcpy(&low, p, 8);
    memcpy(&high, p + 8, 8);
    return (tok_key){low & keep[n][0], (high & keep[n][1]) | (uint64_t)n << 56};
}

/* tok_key_make() : of n > 0 bytes at p, where `readable` >= n may be read. */
static inline tok_key tok_key_make(const uint8_t *p, size_t n, size_t readable) {
    if (n > TOK_KEY_BYTES) return (tok_key){specrt_hash64(p, n, 0), UINT64_C(255) << 56 | n};
    if (readable >= 16) return tok_key_short(p, n);
    uint8_t padded[16] = {0};
    memcpy(padded, p, n);
    return tok_key_short(padded, n);
}

#endif
