/* fixture.h : bundles made byte by byte from docs/FORMAT.md, random numbers, an allocator that counts
 * and fails on demand. It shares no code with the writer, so each is a check of the other. */
#ifndef FIXTURE_H
#define FIXTURE_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "specrt_tools.h"

/* --- random numbers --- */

static inline uint64_t fixture_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state * 0x2545F4914F6CDD1Du;
}

/* Evenly from 0 to n - 1, n >= 1. */
static inline int32_t fixture_below(uint64_t *state, int32_t n) {
    return (int32_t)((fixture_random(state) >> 33) % (uint64_t)n);
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

/* Zeroes, aligned as a bundle's bytes must be, which malloc's are not with 32 bits; for free(). With 64 bits
 * guard.h notices a read behind the last. */
static inline uint8_t *fixture_aligned(size_t n) {
#if defined(_WIN32) || UINTPTR_MAX > UINT32_MAX
    return (uint8_t *)calloc(1, n);
#else
    void *bytes = NULL;
    return posix_memalign(&bytes, 16, n) ? NULL : (uint8_t *)memset(bytes, 0, n);
#endif
}

/* A bundle of these sections (in this order), malloc'ed. */
static inline uint8_t *fixture_bundle(const fixture_section *sections, int n_sections, size_t *n) {
    size_t end = 64 + 64 * (size_t)n_sections;
    for (int i = 0; i < n_sections; i++) end = (end + 63) / 64 * 64 + sections[i].n_stored;
    uint8_t *bytes = fixture_aligned(end);
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

/* --- sections that route --- */

/* A "cograph" section, malloc'ed: every token but each fifth is followed by `degree` tokens by chance, none
 * twice; those with never[id] follow none. never: NULL: there are none. */
static inline uint8_t *fixture_graph(int32_t n_vocab, int32_t degree, const uint8_t *never,
                                     uint64_t seed, size_t *n) {
    specrt_cograph_header h = {
        .n_vocab = n_vocab, .max_degree = degree, .min_count = 1, .rule_degree = 64};
    size_t v = (size_t)n_vocab, e = 0;
    *n = sizeof h + 16 * v + 4 + 8 * v * (size_t)degree;
    uint8_t *bytes = (uint8_t *)calloc(1, *n);
    uint64_t *totals = (uint64_t *)(void *)(bytes + sizeof h);
    uint32_t *offsets = (uint32_t *)(void *)(totals + v), *n_rule = offsets + v + 1;
    int32_t *ids = (int32_t *)(void *)(n_rule + v);
    for (int32_t u = 0; u < n_vocab; u++) {
        int32_t id = (int32_t)(fixture_random(&seed) % v);
        for (int32_t i = 0; u % 5 && i < degree; i++, id = (id + 1) % n_vocab)
            if (!never || !never[id]) ids[e++] = id;
        n_rule[u] = (uint32_t)e - offsets[u];
        offsets[u + 1] = (uint32_t)e;
        totals[u] = (uint64_t)n_rule[u] * (uint64_t)(degree + 1);
    }
    float *counts = (float *)(void *)(ids + e);
    for (int32_t u = 0; u < n_vocab; u++)
        for (uint32_t i = offsets[u]; i < offsets[u + 1]; i++)
            counts[i] = (float)(degree - (int32_t)(i - offsets[u]));
    h.n_edges = e;
    h.n_sources = n_vocab - (n_vocab + 4) / 5;
    *n = sizeof h + 16 * v + 4 + 8 * e;
    memcpy(bytes, &h, sizeof h);
    return bytes;
}

/* A "cograph" section, malloc'ed, of arrays as long as the header says. */
static inline uint8_t *fixture_graph_of(const specrt_cograph_header *h, const uint64_t *totals,
                                        const uint32_t *offsets, const uint32_t *n_rule,
                                        const int32_t *ids, const float *counts, size_t *n) {
    size_t v = (size_t)h->n_vocab, e = (size_t)h->n_edges;
    *n = sizeof *h + 16 * v + 4 + 8 * e;
    uint8_t *bytes = (uint8_t *)malloc(*n), *p = bytes;
    const void *parts[] = {h, totals, offsets, n_rule, ids, counts};
    const size_t sizes[] = {sizeof *h, 8 * v, 4 * (v + 1), 4 * v, 4 * e, 4 * e};
    for (int i = 0; i < 6; i++) memcpy(p, parts[i], sizes[i]), p += sizes[i];
    return bytes;
}

/* The header of a router that reads states alone. */
static inline specrt_clusters_header fixture_router(int32_t router, int32_t n_rows, int32_t n_cols,
                                                    int32_t n_clusters, int32_t n_schedule) {
    specrt_clusters_header h = {.n_rows = n_rows,
                                .n_cols = n_cols,
                                .n_clusters = n_clusters,
                                .router = router,
                                .softmax = router != SPECRT_ROUTER_DYNASPEC,
                                .n_state = n_cols,
                                .n_schedule = n_schedule};
    return h;
}

/* A section of clusters, malloc'ed: cluster m has the rows m, m + M, m + 2 M..., but those with never[id],
 * and a router of weights by chance. Every cluster must keep a row. */
static inline uint8_t *fixture_clusters(specrt_clusters_header h, const uint8_t *never,
                                        uint64_t seed, size_t *n) {
    int32_t n_in = h.n_embed + h.n_state, width = h.n_hidden ? h.n_hidden : h.n_state;
    size_t n_weights = (size_t)(h.n_hidden * (n_in + 1) + h.n_clusters * (width + 1));
    uint8_t *bytes = (uint8_t *)calloc(
        1, sizeof h + 4 * (size_t)(h.n_clusters + 1 + h.n_rows + h.n_schedule) + 2 * n_weights);
    uint32_t *offsets = (uint32_t *)(void *)(bytes + sizeof h);
    int32_t *ids = (int32_t *)(void *)(offsets + h.n_clusters + 1);
    h.n_members = 0;
    for (int32_t m = 0; m < h.n_clusters; m++) {
        for (int32_t id = m; id < h.n_rows; id += h.n_clusters)
            if (!never || !never[id]) ids[h.n_members++] = id;
        offsets[m + 1] = (uint32_t)h.n_members;
    }
    int32_t *schedule = ids + h.n_members;
    for (int32_t t = 0; t < h.n_schedule; t++)
        schedule[t] = h.n_clusters / (t + 2) > 0 ? h.n_clusters / (t + 2) : 1;
    uint16_t *weights = (uint16_t *)(void *)(schedule + h.n_schedule);
    for (size_t i = 0; i < n_weights; i++) {
        float x = 0.4f * fixture_normal(&seed);
        specrt_to_f16(&x, 1, &weights[i]);
    }
    memcpy(bytes, &h, sizeof h);
    *n = (size_t)((uint8_t *)(weights + n_weights) - bytes);
    return bytes;
}

/* An "hnsw" section, malloc'ed: a head's rows but those with never[id], each linked to four others by
 * chance; the head gives the vectors. */
static inline uint8_t *fixture_index(int32_t n_rows, int32_t n_cols, const uint8_t *never,
                                     uint64_t seed, size_t *n) {
    enum { M = 2 };
    specrt_hnsw_header h = {
        .n_rows = n_rows, .dim = n_cols, .m = M, .vectors = SPECRT_HNSW_NONE, .ef = 32};
    uint8_t *bytes = (uint8_t *)calloc(1, sizeof h + 4 + 4 * (size_t)n_rows * (2 + 2 * M));
    int32_t *ids = (int32_t *)(void *)(bytes + sizeof h);
    for (int32_t id = 0; id < n_rows; id++)
        if (!never || !never[id]) ids[h.n_nodes++] = id;
    int32_t *links = ids + 2 * h.n_nodes + 1; /* behind starts, which are all 0 */
    for (int32_t i = 0; i < h.n_nodes * 2 * M; i++)
        links[i] = (int32_t)(fixture_random(&seed) % (uint64_t)h.n_nodes);
    memcpy(bytes, &h, sizeof h);
    *n = (size_t)((uint8_t *)(links + h.n_nodes * 2 * M) - bytes);
    return bytes;
}

/* A "sketch" section, malloc'ed, of numbers by chance: what it promises is false. Records have one line. */
static inline uint8_t *fixture_sketch_in(int32_t n_clusters, int32_t n_rows, int32_t n_cols,
                                         int32_t n_signs, uint64_t seed, size_t *n) {
    int32_t rank = n_signs <= 240 ? 240 : 496; /* records of one line, or of two */
    specrt_sketch_header h = {.n_rows = n_rows,
                              .n_cols = n_cols,
                              .rank = rank,
                              .n_signs = n_signs,
                              .basis_dtype = n_cols % 32 ? SPECRT_DTYPE_F16 : SPECRT_DTYPE_Q8_0,
                              .scale_unit = 1,
                              .constant_unit = 0.01f,
                              .n_clusters = n_clusters};
    size_t v = (size_t)n_rows, d = (size_t)n_cols, n_places = (v + 15) / 16 * 16;
    size_t row = specrt_row_bytes((specrt_dtype)h.basis_dtype, n_cols);
    size_t record = (size_t)(rank + 16) / 4, basis = (size_t)rank * row;
    size_t center = (sizeof h + basis + 3) / 4 * 4, rows = center + 4 * d;
    size_t scales = rows + 4 * v, codes = (scales + 2 * n_places + 63) / 64 * 64;
    size_t records = codes + n_places * (size_t)n_signs / 8;
    size_t n_records = v + (size_t)n_clusters, starts = records + record * n_records;
    *n = starts + (n_clusters > 0 ? 4 * ((size_t)n_clusters + 1) : 0);
    uint8_t *bytes = (uint8_t *)calloc(1, *n);
    memcpy(bytes, &h, sizeof h);
    for (size_t i = sizeof h; i < sizeof h + basis; i += 2) {
        float x = 0.1f * fixture_normal(&seed); /* an f16, or two of eight bits */
        specrt_to_f16(&x, 1, (uint16_t *)(void *)(bytes + i));
    }
    for (size_t k = 0; n_cols % 32 == 0 && k < (size_t)rank * d / 32; k++) {
        float x = 1.0f / (float)(64 << fixture_below(&seed, 2)); /* which keeps sums exact */
        specrt_to_f16(&x, 1, (uint16_t *)(void *)(bytes + sizeof h + 34 * k));
    }
    for (size_t j = 0; j < d; j++) {
        float x = fixture_normal(&seed);
        memcpy(bytes + center + 4 * j, &x, 4);
    }
    for (int32_t i = 0; i < n_rows; i++) {
        int32_t of_place = n_rows - 1 - i;
        memcpy(bytes + rows + 4 * (size_t)i, &of_place, 4);
    }
    for (size_t i = 0; i < v; i++) {
        bytes[scales + i] = (uint8_t)(200 + (fixture_random(&seed) >> 40) % 40);
        bytes[scales + n_places + i] = (uint8_t)(fixture_random(&seed) >> 40);
    }
    for (size_t i = codes; i < starts; i++) bytes[i] = (uint8_t)(fixture_random(&seed) >> 56);
    for (int64_t m = 0; n_clusters > 0 && m <= n_clusters; m++) { /* sizes that differ */
        uint32_t at = (uint32_t)(m * m * (n_rows - n_clusters) / n_clusters / n_clusters + m);
        memcpy(bytes + starts + 4 * m, &at, 4);
    }
    for (size_t i = 1; i <= n_records; i++) { /* bf16 scales and constants, about 1/128 and 1 */
        bytes[records + record * i - 3] = 0x3c;
        bytes[records + record * i - 1] = (uint8_t)(0x3f | (i % 2) << 7);
    }
    return bytes;
}

static inline uint8_t *fixture_sketch(int32_t n_rows, int32_t n_cols, int32_t n_signs,
                                      uint64_t seed, size_t *n) {
    return fixture_sketch_in(0, n_rows, n_cols, n_signs, seed, n);
}

/* A bundle of n_parts sections of the newest versions, malloc'ed; their bytes are freed. */
static inline uint8_t *fixture_join(const char *const *tags, uint8_t *const *parts,
                                    const size_t *sizes, int n_parts, size_t *n) {
    fixture_section sections[SPECRT_BUNDLE_MAX_SECTIONS];
    for (int i = 0; i < n_parts; i++) {
        bool by_token = strcmp(tags[i], "cograph") == 0 || strcmp(tags[i], "ranks") == 0;
        sections[i] = (fixture_section){tags[i],
                                        strcmp(tags[i], "sketch") == 0 ? 3 : 1,
                                        by_token ? SPECRT_SECTION_DEPENDS_TOKENIZER
                                                 : SPECRT_SECTION_DEPENDS_HEAD,
                                        parts[i],
                                        sizes[i],
                                        sizes[i]};
    }
    uint8_t *bytes = fixture_bundle(sections, n_parts, n);
    for (int i = 0; i < n_parts; i++) free(parts[i]);
    return bytes;
}

/* A bundle of every section that a policy reads, of a head without ids, malloc'ed. n_embed: of DynaSpec's
 * router. */
static inline uint8_t *fixture_all_sections(int32_t n_vocab, int32_t n_cols, int32_t n_embed,
                                            size_t *n) {
    enum { N = 7 };
    static const char *const tags[N] = {"centroid", "cluster", "cograph", "group",
                                        "hnsw",     "ranks",   "sketch"};
    specrt_clusters_header h[] = {
        {.router = SPECRT_ROUTER_CENTROID},
        {.router = SPECRT_ROUTER_DYNASPEC, .n_embed = n_embed, .n_hidden = 5},
        {.router = SPECRT_ROUTER_CORAL, .n_hidden = n_cols}};
    uint8_t *made[N];
    size_t sizes[N];
    for (int i = 0; i < 3; i++) {
        h[i].n_rows = n_vocab;
        h[i].n_cols = h[i].n_state = n_cols;
        h[i].n_clusters = 6;
        h[i].n_schedule = 3;
        made[i == 2 ? 3 : i] = fixture_clusters(h[i], NULL, 5, &sizes[i == 2 ? 3 : i]);
    }
    made[2] = fixture_graph(n_vocab, 4, NULL, 5, &sizes[2]);
    made[4] = fixture_index(n_vocab, n_cols, NULL, 5, &sizes[4]);
    made[5] = fixture_ranks(n_vocab, 3, 20, &sizes[5]);
    made[6] = fixture_sketch(n_vocab, n_cols, 32, 5, &sizes[6]);
    return fixture_join(tags, made, sizes, N, n);
}

/* --- bytes that end where a page does: whoever reads or writes behind them dies --- */

typedef struct fixture_pages {
    uint8_t *bytes, *start;
    size_t n;
} fixture_pages;

static inline fixture_pages fixture_pages_open(size_t n) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    fixture_pages p = {.n = (n + page - 1) / page * page + page};
    p.start =
        (uint8_t *)mmap(NULL, p.n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p.start == MAP_FAILED || mprotect(p.start + p.n - page, page, PROT_NONE) != 0) abort();
    p.bytes = p.start + p.n - page - n;
    return p;
}

static inline void fixture_pages_close(fixture_pages *p) {
    munmap(p->start, p->n);
}

/* --- an allocator that counts, on any thread, and fails at call `fail_at` (from 1; 0: never) --- */

typedef struct fixture_allocator {
    int n_calls, n_live, fail_at;
} fixture_allocator;

enum { FIXTURE_HEAD = 16, FIXTURE_GUARD = 64 }; /* bytes before and behind what is asked for */

/* Memory that is not zero, with a guard behind it. With malloc() of guard.h it is 16 bytes behind a multiple
 * of 64, so that aligning what lies inside takes room. */
static inline void *fixture_alloc(void *user, size_t bytes) {
    fixture_allocator *a = (fixture_allocator *)user;
    if (__atomic_add_fetch(&a->n_calls, 1, __ATOMIC_RELAXED) == a->fail_at) return NULL;
    __atomic_add_fetch(&a->n_live, 1, __ATOMIC_RELAXED);
    uint8_t *memory = (uint8_t *)malloc((FIXTURE_HEAD + bytes + FIXTURE_GUARD + 63) / 64 * 64);
    memcpy(memory, &bytes, sizeof bytes);
    memset(memory + FIXTURE_HEAD, 0xA5, bytes + FIXTURE_GUARD);
    return memory + FIXTURE_HEAD;
}

/* Ends the program where somebody wrote behind his memory. */
static inline void fixture_free(void *user, void *ptr) {
    size_t bytes;
    __atomic_sub_fetch(&((fixture_allocator *)user)->n_live, 1, __ATOMIC_RELAXED);
    uint8_t *memory = (uint8_t *)ptr - FIXTURE_HEAD;
    memcpy(&bytes, memory, sizeof bytes);
    for (int i = 0; i < FIXTURE_GUARD; i++)
        if (memory[FIXTURE_HEAD + bytes + (size_t)i] != 0xA5) abort();
    free(memory);
}

static inline specrt_env fixture_desc(fixture_allocator *a) {
    specrt_env env = {.alloc = fixture_alloc, .free = fixture_free, .user = a};
    return env;
}

#endif
