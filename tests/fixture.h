/* fixture.h : bundles made byte by byte from docs/FORMAT.md, random numbers, an allocator that counts
 * and fails on demand. It shares no code with the writer, so each is a check of the other. */
#ifndef FIXTURE_H
#define FIXTURE_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "specrt.h"

/* --- random numbers --- */

static inline uint64_t fixture_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state * 0x2545F4914F6CDD1Du;
}

/* Roughly normal, mean 0, deviation 1. */
static inline float fixture_normal(uint64_t *state) {
    double sum = 0;
    for (int i = 0; i < 6; i++) sum += (double)(fixture_random(state) >> 11) / 9007199254740992.0;
    return (float)((sum - 3.0) * 1.4142135623730951);
}

/* --- containers --- */

typedef struct fixture_section {
    const char *tag;
    uint32_t version, flags;
    const void *stored;
    size_t n_stored, n_raw;
} fixture_section;

/* Sets every checksum right again: of sections that lie in the file, of the table, of the header. */
static inline void fixture_seal(uint8_t *bytes, size_t n) {
    specrt_bundle_header h;
    memcpy(&h, bytes, sizeof h);
    size_t n_table = h.n_sections * sizeof(specrt_bundle_section);
    if (h.n_sections <= 256 && n_table <= n - sizeof h) {
        for (uint32_t i = 0; i < h.n_sections; i++) {
            specrt_bundle_section s;
            uint8_t *at = bytes + sizeof h + i * sizeof s;
            memcpy(&s, at, sizeof s);
            if (s.offset > n || s.stored_bytes > n - s.offset) continue;
            s.checksum = specrt_hash64(bytes + s.offset, (size_t)s.stored_bytes, 0);
            memcpy(at, &s, sizeof s);
        }
        h.table_checksum = specrt_hash64(bytes + sizeof h, n_table, 0);
    }
    h.header_checksum = specrt_hash64(&h, 56, 0);
    memcpy(bytes, &h, sizeof h);
}

/* A bundle of these sections (in this order), malloc'ed. */
static inline uint8_t *fixture_bundle(const fixture_section *sections, int n_sections, size_t *n) {
    size_t end = 64 + 64 * (size_t)n_sections;
    for (int i = 0; i < n_sections; i++) end = (end + 63) / 64 * 64 + sections[i].n_stored;
    uint8_t *bytes = (uint8_t *)calloc(1, end);
    specrt_bundle_header h = {.version_major = 1, .table_offset = 64, .file_bytes = end};
    memcpy(h.magic, "\x89SPECB\r\n", 8);
    h.n_sections = (uint32_t)n_sections;
    memcpy(bytes, &h, sizeof h);
    *n = end;
    end = 64 + 64 * (size_t)n_sections;
    for (int i = 0; i < n_sections; i++) {
        specrt_bundle_section s = {.version = sections[i].version, .flags = sections[i].flags};
        s.offset = end = (end + 63) / 64 * 64;
        s.stored_bytes = sections[i].n_stored;
        s.raw_bytes = sections[i].n_raw;
        memcpy(s.tag, sections[i].tag, strnlen(sections[i].tag, 8));
        memcpy(bytes + 64 + 64 * i, &s, sizeof s);
        if (s.stored_bytes > 0) memcpy(bytes + end, sections[i].stored, sections[i].n_stored);
        end += sections[i].n_stored;
    }
    fixture_seal(bytes, *n);
    return bytes;
}

/* A "ranks" section over n_vocab ids, malloc'ed: ids (7 i + 3) mod n_vocab, so n_vocab must not be
 * a multiple of 7; the first n_forced are forced, counts fall by rank. */
static inline uint8_t *fixture_ranks(int32_t n_vocab, int32_t n_forced, int32_t n_default,
                                     size_t *n) {
    specrt_ranks_header h = {.n_vocab = n_vocab,
                             .n_ranked = n_vocab,
                             .n_forced = n_forced,
                             .n_terminators = n_forced < 1 ? n_forced : 1,
                             .n_valid = n_vocab - 1,
                             .n_default = n_default};
    *n = sizeof h + 12 * (size_t)n_vocab;
    uint8_t *bytes = (uint8_t *)malloc(*n);
    for (int32_t i = 0; i < n_vocab; i++) {
        int32_t id = (int32_t)((7 * (int64_t)i + 3) % n_vocab);
        uint64_t count = (uint64_t)(n_vocab - i) * 1000;
        if (i >= n_forced) h.n_tokens += count;
        memcpy(bytes + sizeof h + 8 * (size_t)i, &count, 8);
        memcpy(bytes + sizeof h + 8 * (size_t)n_vocab + 4 * (size_t)i, &id, 4);
    }
    memcpy(bytes, &h, sizeof h);
    return bytes;
}

/* A bundle that holds such ranks alone, stored raw. */
static inline uint8_t *fixture_ranks_bundle(int32_t n_vocab, int32_t n_forced, int32_t n_default,
                                            size_t *n) {
    size_t n_ranks;
    uint8_t *ranks = fixture_ranks(n_vocab, n_forced, n_default, &n_ranks);
    fixture_section section = {"ranks", 1,       SPECRT_SECTION_DEPENDS_TOKENIZER,
                               ranks,   n_ranks, n_ranks};
    uint8_t *bytes = fixture_bundle(&section, 1, n);
    free(ranks);
    return bytes;
}

/* --- an allocator that counts, and fails at call `fail_at` (1 is the first; 0: never) --- */

typedef struct fixture_allocator {
    int n_calls, n_live, fail_at;
} fixture_allocator;

static inline void *fixture_alloc(void *user, size_t bytes) {
    fixture_allocator *a = (fixture_allocator *)user;
    if (++a->n_calls == a->fail_at) return NULL;
    a->n_live++;
    return malloc(bytes);
}

static inline void fixture_free(void *user, void *ptr) {
    ((fixture_allocator *)user)->n_live--;
    free(ptr);
}

static inline specrt_desc fixture_desc(fixture_allocator *a) {
    specrt_desc desc = {.alloc = fixture_alloc, .free = fixture_free, .user = a};
    return desc;
}

#endif
