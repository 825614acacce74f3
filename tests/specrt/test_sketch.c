/* test_sketch.c : the scan against plain sums, what sketch:m names against brute force. */
#include "specrt_tools.h"
#include "core/base.h"
#include "core/simd.h"
#include "core/head.h"
#include "core/pool.h"
#include "sources/scan.h"
#include "decode/session.h"
#include "fixture.h"
#include "test.h"

enum { MOST_ROWS = 2105, MOST_COLS = 24, MOST_RANK = 80, TOPK = 5, N_STATIC = 20 };

static uint64_t state = 11;

typedef struct world {
    int32_t n_rows, n_cols, rank;
    bool four_bits, biased;
    int32_t n_bands, ranks[4], bits[4];                                       /* 0: one width */
    float center[MOST_COLS], constants[MOST_ROWS], band_scales[4][MOST_ROWS]; /* by place */
    float rows[MOST_ROWS * MOST_COLS], bias[MOST_ROWS];
    int32_t order[MOST_ROWS]; /* row at each place */
    float basis[MOST_RANK * MOST_COLS], scales[MOST_ROWS];
    int16_t codes[MOST_ROWS * MOST_RANK]; /* by place */
    uint8_t *bytes;
    size_t n_bytes;
    specrt_bundle *bundle;
    specrt_head *head;
    specrt_policy *policy;
    specrt_session *session;
} world;

/* --- a section, by its definition --- */

static void to_half(const float *x, int32_t n, uint16_t *out, float *back) {
    specrt_to_f16(x, n, out);
    for (int32_t i = 0; i < n; i++) back[i] = specrt__base_f16(out[i]);
}

static double length_of(const double *x, int32_t n) {
    double sum = 0;
    for (int32_t i = 0; i < n; i++) sum += x[i] * x[i];
    return sqrt(sum) * 1.000001;
}

/* Code and lengths of the row at a place; any basis and lift will do. */
static void code_row(world *w, int32_t place, const float *mean, const float *lift,
                     float bounds[4]) {
    const float *row = w->rows + w->order[place] * w->n_cols;
    double code[MOST_RANK], rest[MOST_COLS], off[MOST_RANK], rounded[MOST_RANK], most = 0;
    for (int32_t j = 0; j < w->n_cols; j++) rest[j] = (double)row[j] - (double)mean[j];
    for (int32_t k = 0; k < w->rank; k++) {
        code[k] = 0;
        for (int32_t j = 0; j < w->n_cols; j++)
            code[k] += rest[j] * (double)lift[k * w->n_cols + j];
        most = fabs(code[k]) > most ? fabs(code[k]) : most;
    }
    int greatest = w->four_bits ? 7 : 127;
    float scale = w->scales[place] = (float)(most / greatest);
    for (int32_t k = 0; k < w->rank; k++) {
        double q = scale > 0 ? fmax(-greatest, fmin(greatest, rint(code[k] / (double)scale))) : 0;
        w->codes[place * w->rank + k] = (int16_t)q;
        rounded[k] = q * (double)scale;
        off[k] = code[k] - rounded[k];
        for (int32_t j = 0; j < w->n_cols; j++)
            rest[j] -= code[k] * (double)w->basis[k * w->n_cols + j];
    }
    double whole[MOST_COLS];
    for (int32_t j = 0; j < w->n_cols; j++) whole[j] = (double)row[j];
    bounds[0] = (float)length_of(rest, w->n_cols);
    bounds[1] = (float)length_of(off, w->rank);
    bounds[2] = (float)length_of(rounded, w->rank);
    bounds[3] = (float)length_of(whole, w->n_cols);
}

static uint8_t *section_make(world *w, size_t *n) {
    size_t v = (size_t)w->n_rows, d = (size_t)w->n_cols, r = (size_t)w->rank;
    size_t mean = 64 + 4 * r * d, rows = mean + 4 * d, scales = rows + 4 * v;
    size_t codes = (scales + 20 * v + 63) / 64 * 64;
    float plain[MOST_RANK * MOST_COLS], lift[MOST_RANK * MOST_COLS], zero[MOST_COLS] = {0};
    *n = codes + (v + 15) / 16 * 16 * r / (w->four_bits ? 2 : 1);
    uint8_t *bytes = (uint8_t *)calloc(1, *n);
    int32_t header[5] = {w->n_rows, w->n_cols, w->rank, 0, w->four_bits};
    memcpy(bytes, header, sizeof header);
    for (size_t i = 0; i < r * d; i++) plain[i] = fixture_normal(&state) / (float)sqrt((double)d);
    if (r == d)
        for (size_t i = 0; i < r * d; i++) plain[i] = i % (d + 1) == 0;
    to_half(plain, (int32_t)(r * d), (uint16_t *)(void *)(bytes + 64), w->basis);
    to_half(plain, (int32_t)(r * d), (uint16_t *)(void *)(bytes + 64 + 2 * r * d), lift);
    for (int32_t i = 0; i < w->n_rows; i++) w->order[i] = (int32_t)((i * 13 + 5) % w->n_rows);
    memcpy(bytes + rows, w->order, 4 * v);
    for (int32_t i = 0; i < w->n_rows; i++) {
        float bounds[4];
        code_row(w, i, zero, lift, bounds);
        memcpy(bytes + scales + 4 * v + 16 * (size_t)i, bounds, sizeof bounds);
        for (size_t k = 0, p = (size_t)i; k < r; k++) {
            int code = w->codes[p * r + k], step = w->four_bits ? 8 : 4;
            uint8_t *line = bytes + codes + (p / 16 * r + k) / (size_t)step * 64;
            uint8_t *at = line + p % 16 * 4 + k % 4;
            if (w->four_bits)
                *at = (uint8_t)(*at | (8 + code) << (k % 8 / 4 * 4));
            else
                *at = (uint8_t)(128 + code);
        }
    }
    memcpy(bytes + scales, w->scales, 4 * v);
    return bytes;
}

/* Random numbers in a band's codes, which any are; scales that bf16 holds. @return where it ends. */
static size_t band_fill(world *w, int32_t band, int32_t first, uint8_t *bytes, size_t at) {
    size_t n_blocks = ((size_t)w->n_rows + 15) / 16, scales = (at + 63) / 64 * 64;
    size_t codes = (scales + 32 * n_blocks + 63) / 64 * 64;
    int32_t bits = w->bits[band], step = 32 / bits, n_lines = w->ranks[band] / step;
    for (int32_t i = 0; bytes && i < w->n_rows; i++) {
        uint16_t scale = (uint16_t)(0x3c00 + (fixture_random(&state) >> 40) % 0x100);
        if (i % 31 == 7) scale = 0;
        memcpy(bytes + scales + 2 * (size_t)i, &scale, 2);
        w->band_scales[band][i] = specrt__base_float((uint32_t)scale << 16);
        for (int32_t k = 0; k < w->ranks[band]; k++) {
            int code = (int)((fixture_random(&state) >> 40) % (1u << bits));
            uint8_t *line = bytes + codes + 64 * (size_t)(i / 16 * n_lines + k / step);
            uint8_t *to = line + i % 16 * 4 + k % 4;
            *to = (uint8_t)(*to | code << k % step / 4 * bits);
            w->codes[i * w->rank + first + k] = (int16_t)(2 * code - (1 << bits) + 1);
        }
    }
    return codes + n_blocks * 64 * (size_t)n_lines;
}

/* A section of bands; what it holds need not fit the head. */
static uint8_t *bands_make(world *w, size_t *n) {
    size_t v = (size_t)w->n_rows, d = (size_t)w->n_cols, r = (size_t)w->rank;
    size_t center = 64 + 2 * r * d, rows = center + 4 * d;
    uint8_t *bytes = NULL;
    for (int round = 0; round < 2; round++) {
        size_t at = rows + 8 * v;
        for (int32_t i = 0, first = 0; i < w->n_bands; first += w->ranks[i++])
            at = band_fill(w, i, first, bytes, at);
        if (round == 0) bytes = (uint8_t *)calloc(1, *n = at);
    }
    specrt_sketch_header h = {
        .n_rows = w->n_rows, .n_cols = w->n_cols, .rank = w->rank, .n_bands = w->n_bands};
    for (int32_t i = 0; i < w->n_bands; i++) {
        h.bands[i].rank = (uint16_t)w->ranks[i];
        h.bands[i].bits = (uint16_t)w->bits[i];
    }
    memcpy(bytes, &h, sizeof h);
    float plain[MOST_RANK * MOST_COLS];
    for (size_t i = 0; i < r * d; i++) plain[i] = fixture_normal(&state);
    to_half(plain, (int32_t)(r * d), (uint16_t *)(void *)(bytes + 64), w->basis);
    for (size_t j = 0; j < d; j++) w->center[j] = fixture_normal(&state);
    for (int32_t i = 0; i < w->n_rows; i++) {
        w->order[i] = (int32_t)((i * 13 + 5) % w->n_rows);
        w->constants[i] = fixture_normal(&state);
    }
    memcpy(bytes + center, w->center, 4 * d);
    memcpy(bytes + rows, w->order, 4 * v);
    memcpy(bytes + rows + 4 * v, w->constants, 4 * v);
    return bytes;
}

/* --- a head, a bundle, a session --- */

static void world_open(world *w, const char *policy) {
    specrt_head_desc desc = {.rows = w->rows,
                             .dtype = SPECRT_DTYPE_F32,
                             .n_rows = w->n_rows,
                             .n_cols = w->n_cols,
                             .bias = w->biased ? w->bias : NULL};
    specrt_policy_desc pd = {.text = policy, .n_vocab = w->n_rows - 1};
    specrt_session_params params = {.tree = {.num_steps = 3, .topk = TOPK, .num_draft_tokens = 12}};
    specrt_error err = {SPECRT_STATUS_OK, ""};
    REQUIRE(!specrt_bundle_open_memory(w->bytes, w->n_bytes, "b", NULL, &w->bundle, &err));
    REQUIRE(!specrt_head_bind(w->bundle, &desc, NULL, &w->head, &err));
    REQUIRE(!specrt_policy_create(w->bundle, w->head, &pd, &w->policy, &err));
    REQUIRE(!specrt_session_create(w->policy, &params, NULL, &w->session, &err));
    specrt_session_begin(w->session, SPECRT_BEGIN_NEW, 0);
}

static void world_close(world *w) {
    specrt_session_close(w->session);
    specrt_policy_close(w->policy);
    specrt_head_close(w->head);
    specrt_bundle_close(w->bundle);
}

static const int32_t world_ranks[4] = {4, 24, 16, 32}, world_bits[4] = {8, 4, 2, 1};

/* Rows: 0 random, 1 with equal, zero and huge ones among them, 2 all but equal. Codes have 4 bits where they
 * can and `variant` is odd, bands where the rank is beyond MOST_COLS; the head has a bias where it is 2 or
 * more. */
static void world_make(world *w, int32_t n_rows, int32_t n_cols, int32_t rank, int kind,
                       int variant) {
    size_t n_ranks, n_sketch;
    *w = (world){.n_rows = n_rows, .n_cols = n_cols, .rank = rank};
    for (int32_t used = 0; rank > MOST_COLS && used < rank; used += w->ranks[w->n_bands++]) {
        w->ranks[w->n_bands] = world_ranks[w->n_bands];
        w->bits[w->n_bands] = world_bits[w->n_bands];
    }
    w->four_bits = variant % 2 == 1 && rank % 8 == 0;
    w->biased = variant >= 2;
    for (int32_t i = 0; i < n_rows; i++) w->bias[i] = 2 * fixture_normal(&state);
    for (int32_t i = 0; i < n_rows * n_cols; i++)
        w->rows[i] = kind == 2 ? 1 + 1e-4f * fixture_normal(&state) : fixture_normal(&state);
    for (int32_t i = 0; kind == 1 && i < n_rows; i++)
        for (int32_t j = 0; j < n_cols; j++) {
            float *x = &w->rows[i * n_cols + j];
            *x = i % 7 == 1 ? w->rows[j] : i % 7 == 2 ? 0 : i % 7 == 3 ? 1000 * *x : *x;
        }
    uint8_t *ranks = fixture_ranks(n_rows - 1, 1, N_STATIC, &n_ranks);
    uint8_t *sketch = w->n_bands ? bands_make(w, &n_sketch) : section_make(w, &n_sketch);
    fixture_section sections[] = {{"ranks", 1, 16, ranks, n_ranks, n_ranks},
                                  {"sketch", w->n_bands ? 2 : 1, 32, sketch, n_sketch, n_sketch}};
    w->bytes = fixture_bundle(sections, 2, &w->n_bytes);
    free(ranks);
    free(sketch);
}

static const specrt_active *route(world *w, const float *hidden, int32_t n, const float *logprobs) {
    static const int32_t tokens[TOPK] = {1, 2, 3, 4, 5};
    specrt_beam beam = {n, tokens, NULL, logprobs};
    REQUIRE(!specrt_session_start(w->session, 1));
    return specrt_session_route(w->session, 0, &beam, hidden, NULL);
}

/* --- the scan --- */

enum { SCAN_BLOCKS = 40, SCAN_DIMS = 288 };

/* By the definition of the layout, in the order of the operations. */
static float score_of(const specrt__scan_rows *rows, const specrt__scan_query *query, int s,
                      int place) {
    int sum = 0, n_dims = rows->n_lines * (rows->four_bits ? 8 : 4);
    const uint8_t *block = rows->codes + (size_t)(place / 16) * rows->stride + place % 16 * 4;
    for (int k = 0; k < n_dims; k++) {
        int code = rows->four_bits ? (block[k / 8 * 64 + k % 4] >> (k / 4 % 2 * 4) & 15) - 8
                                   : block[k / 4 * 64 + k % 4] - 128;
        sum += code * *specrt__scan_at(query, s, k);
    }
    float scale = query->unit[s] * rows->scales[place];
    return fmaf((float)sum, scale, rows->bias ? rows->bias[place] : 0);
}

static void check_hits(const specrt__scan_rows *rows, int first, int n_blocks,
                       const specrt__scan_query *query, int s, const specrt__scan_hits *hits) {
    int n = 0;
    for (int place = 16 * first; place < 16 * (first + n_blocks); place++) {
        float score = score_of(rows, query, s, place);
        if (score < query->least[s]) continue;
        if (n < hits->n)
            CHECK(hits->places[n] == place && memcmp(&hits->scores[n], &score, 4) == 0);
        n++;
    }
    CHECK_INT(hits->n, n);
}

/* --- bands --- */

typedef struct band_world {
    uint8_t codes[SCAN_BLOCKS * 16 * SCAN_DIMS];
    uint16_t scales[SCAN_BLOCKS * 16];
    int8_t q[SPECRT__SCAN_STATES * 8 * SCAN_DIMS];
    float base[SPECRT__SCAN_STATES * SPECRT__SCAN_MOST];
} band_world;

/* By the definition of the layout: dimension k of a place stands in bits from `shift` on of a byte. */
static float band_score(const specrt__scan_band *band, const specrt__scan_query *query, int s,
                        int32_t place, float base) {
    int32_t step = 32 / band->bits, sum = 0;
    const uint8_t *block = band->codes + (size_t)(place / 16) * 64 * (size_t)band->n_lines;
    for (int32_t k = 0; k < band->n_lines * step; k++) {
        int byte = block[k / step * 64 + place % 16 * 4 + k % 4], shift = k % step / 4 * band->bits;
        int code = byte >> shift & ((1 << band->bits) - 1);
        sum += (2 * code - (1 << band->bits) + 1) * *specrt__scan_at(query, s, k);
    }
    float scale = query->unit[s] * specrt__scan_scale(band->scales[place]);
    return fmaf((float)sum, scale, base);
}

/* Every adder against the definition, bit for bit; and what it picks. */
static void check_band(const band_world *w, const specrt__scan_band *band,
                       const specrt__scan_query *query, int32_t first, int32_t n,
                       const specrt__scan_adder *adder) {
    static float sums[SPECRT__SCAN_STATES * SPECRT__SCAN_MOST];
    static specrt__scan_hits hits;
    memcpy(sums, w->base, sizeof sums);
    adder->add(band, first, n, query, sums);
    for (int s = 0; s < query->n_states; s++) {
        const float *own = sums + s * SPECRT__SCAN_MOST;
        int32_t n_hits = 0;
        hits.n = 0;
        adder->pick(own, first, n, query->least[s], &hits);
        for (int32_t i = 0; i < 16 * n; i++) {
            float base = w->base[s * SPECRT__SCAN_MOST + i];
            float score = band_score(band, query, s, 16 * first + i, base);
            CHECK(memcmp(&own[i], &score, 4) == 0);
            if (score < query->least[s]) continue;
            if (n_hits < hits.n)
                CHECK(hits.places[n_hits] == 16 * first + i &&
                      memcmp(&hits.scores[n_hits], &score, 4) == 0);
            n_hits++;
        }
        CHECK_INT(hits.n, n_hits);
        for (int32_t i = 16 * n; i < SPECRT__SCAN_MOST; i++) /* no further than asked */
            CHECK(memcmp(&own[i], &w->base[s * SPECRT__SCAN_MOST + i], 4) == 0);
    }
}

static void band_query(band_world *w, int bits, int32_t n_dims, int n_states, bool extreme,
                       specrt__scan_query *out) {
    *out = (specrt__scan_query){.q = w->q, .n_states = n_states};
    for (int s = 0; s < n_states; s++) {
        out->unit[s] = 0.5f + (float)s;
        out->least[s] = s == 0 ? -INFINITY : 400.0f * (float)s;
        for (int32_t k = 0; k < n_dims; k++) {
            int drawn = (int)((fixture_random(&state) >> 40) % 255) - 127;
            int8_t number = (int8_t)(extreme ? (drawn < 0 ? -127 : 127) : drawn);
            *specrt__scan_at(out, s, k) = number;
            out->offset[s] += ((1 << bits) - 1) * number;
        }
    }
}

static void test_bands(void) {
    static band_world w;
    static const specrt__scan_adder scalar = {specrt__scan_add_scalar, specrt__scan_pick_scalar};
    const specrt__scan_adder *adders[3] = {&scalar, specrt__scan_choose_adder()};
    int n_adders = 2;
#if defined(SPECRT__SIMD_X86)
    static const specrt__scan_adder avx2 = {specrt__scan_add_avx2, specrt__scan_pick_avx2};
    if (__builtin_cpu_supports("avx2")) adders[n_adders++] = &avx2;
#endif
    for (int i = 0; i < SCAN_BLOCKS * 16; i++)
        w.scales[i] = i % 19 ? (uint16_t)(0x3c00 + (fixture_random(&state) >> 40) % 0x400) : 0;
    for (size_t i = 0; i < sizeof w.base / sizeof *w.base; i++)
        w.base[i] = i % 97 ? 100 * fixture_normal(&state) : NAN;
    for (int round = 0; round < 320; round++) {
        int bits = 1 << round % 4, n_lines = 1 + round / 4 % 17, n = 1 + round / 3 % 32;
        bool extreme = round % 11 == 10; /* all ones times all 127: the most that sums hold */
        specrt__scan_band band = {w.codes, w.scales, n_lines, bits};
        specrt__scan_query query;
        for (size_t i = 0; i < sizeof w.codes; i += 8) {
            uint64_t drawn = extreme ? UINT64_MAX : fixture_random(&state);
            memcpy(w.codes + i, &drawn, 8);
        }
        band_query(&w, bits, n_lines * 32 / bits, round % 3 ? SPECRT__SCAN_STATES : 1, extreme,
                   &query);
        for (int k = 0; k < n_adders; k++) check_band(&w, &band, &query, round % 7, n, adders[k]);
    }
}

/* --- one width --- */

static void test_scan(void) {
    static uint8_t codes[SCAN_BLOCKS * 16 * SCAN_DIMS];
    static float scales[SCAN_BLOCKS * 16], bias[SCAN_BLOCKS * 16];
    static specrt__scan_hits hits[SPECRT__SCAN_STATES];
    specrt__scan_kernel *kernels[3] = {specrt__scan_scalar, specrt__scan_choose()};
    int n_kernels = 2;
    static int8_t q[SPECRT__SCAN_STATES * SCAN_DIMS];
#if defined(SPECRT__SIMD_X86)
    if (__builtin_cpu_supports("avx2")) kernels[n_kernels++] = specrt__scan_avx2;
#endif
    for (size_t i = 0; i < sizeof codes; i++) codes[i] = (uint8_t)fixture_random(&state);
    for (int i = 0; i < SCAN_BLOCKS * 16; i++) {
        scales[i] = i % 19 ? fabsf(fixture_normal(&state)) : 0;
        bias[i] = 300 * fixture_normal(&state);
    }
    for (int round = 0; round < 240; round++) {
        bool four_bits = round % 2;
        int n_lines = round % 5 == 4 ? 32 + round % 4 : 1 + round / 2 % (four_bits ? 6 : 12);
        int built = n_lines + round % 3;
        int first = round % 7, n = 1 + round % 32, n_dims = n_lines * (four_bits ? 8 : 4);
        if (64 * built > 16 * SCAN_DIMS) built = n_lines;
        specrt__scan_rows rows = {codes,  64 * (size_t)built,     n_lines, four_bits,
                                  scales, round % 5 ? NULL : bias};
        specrt__scan_query query = {.q = q, .n_states = round % 3 ? SPECRT__SCAN_STATES : 1};
        for (int s = 0; s < query.n_states; s++) {
            query.unit[s] = 0.5f + (float)s;
            query.least[s] = s == 0 ? -INFINITY : 400.0f * (float)s;
            for (int k = 0; k < n_dims; k++) {
                int8_t number = (int8_t)((fixture_random(&state) >> 40) % 255 - 127);
                *specrt__scan_at(&query, s, k) = number;
                query.offset[s] += (four_bits ? 8 : 128) * number;
            }
        }
        for (int k = 0; k < n_kernels; k++) {
            for (int s = 0; s < query.n_states; s++) hits[s].n = 0;
            kernels[k](&rows, first, n, &query, hits);
            for (int s = 0; s < query.n_states; s++)
                check_hits(&rows, first, n, &query, s, &hits[s]);
        }
    }
}

/* --- what a level names --- */

static void project(const world *w, const float *hidden, int32_t rank, float *z);

/* One place by its bands, by the definition, in the order of the operations. */
static float score_bands(const world *w, const float *z, int32_t rank, int32_t place) {
    float score = w->constants[place] + (w->biased ? w->bias[w->order[place]] : 0);
    for (int32_t band = 0, first = 0; first < rank; first += w->ranks[band++]) {
        float most = 0;
        int32_t sum = 0;
        for (int32_t k = first; k < first + w->ranks[band]; k++)
            most = fabsf(z[k]) > most ? fabsf(z[k]) : most;
        for (int32_t k = first; k < first + w->ranks[band]; k++)
            sum += w->codes[place * w->rank + k] * (int32_t)lrintf(z[k] * (127 / most));
        score = fmaf((float)sum, most / 127 * w->band_scales[band][place], score);
    }
    return score;
}

/* Scores of every token by the first `rank` dimensions; -inf for what is no new row. */
static void score_all(const world *w, const float *hidden, int32_t rank, double *scores) {
    float z[MOST_RANK], center[MOST_RANK], most = 0;
    project(w, hidden, rank, z);
    project(w, w->center, rank, center);
    for (int32_t k = 0; k < rank; k++) {
        if (w->n_bands) z[k] -= center[k];
        most = fabsf(z[k]) > most ? fabsf(z[k]) : most;
    }
    for (int32_t i = 0; i < w->n_rows; i++) {
        int32_t id = w->order[i], sum = 0;
        for (int32_t k = 0; k < rank; k++)
            sum += w->codes[i * w->rank + k] * (int32_t)lrintf(z[k] * (127 / most));
        scores[id] =
            (double)fmaf((float)sum, most / 127 * w->scales[i], w->biased ? w->bias[id] : 0);
        if (w->n_bands) scores[id] = (double)score_bands(w, z, rank, i);
        if (specrt__active_member(w->session->pool, id) ||
            !specrt__active_valid(w->session->pool, id))
            scores[id] = -INFINITY;
    }
}

/* z of the first `rank` directions, as the head's products are made. */
static void project(const world *w, const float *hidden, int32_t rank, float *z) {
    for (int32_t k = 0; k < rank; k++) {
        specrt_segment basis = {.rows = w->basis + k * w->n_cols,
                                .dtype = SPECRT_DTYPE_F32,
                                .row_stride = (size_t)w->n_cols * 4,
                                .n_rows = 1};
        specrt__head_products(&specrt__simd_kernels_scalar, &basis, 0, 1, w->n_cols, hidden, 1,
                              &z[k], 1);
    }
}

static const specrt_segment *routed(const specrt_active *active) {
    return &active->segments[active->n_segments - 1];
}

/* One state: exactly the greatest scores, ties to the lower id. */
static void check_one(world *w, int32_t size, int32_t rank) {
    static double scores[MOST_ROWS];
    static uint8_t held[MOST_ROWS];
    float hidden[MOST_COLS], sure = 0;
    for (int32_t j = 0; j < w->n_cols; j++) hidden[j] = fixture_normal(&state);
    const specrt_segment *s = routed(route(w, hidden, 1, &sure));
    memset(held, 0, sizeof held);
    score_all(w, hidden, rank, scores);
    CHECK_INT(s->n_rows, size);
    CHECK_INT(s->n_masked, 0);
    for (int32_t i = 0; i < s->n_rows; i++) {
        CHECK(!held[s->ids[i]]);
        held[s->ids[i]] = 1;
    }
    double least = INFINITY;
    int32_t last = -1; /* the greatest id among the least scores held */
    for (int32_t id = 0; id < w->n_rows; id++)
        if (held[id] && scores[id] <= least) least = scores[id], last = id;
    for (int32_t id = 0; id < w->n_rows; id++) {
        if (held[id])
            CHECK(scores[id] > least || (scores[id] == least && id <= last));
        else
            CHECK(scores[id] < least || (scores[id] == least && id > last));
    }
}

/* The first bands that hold so many directions; of one width whole lines. */
static int32_t used_rank(const world *w, int32_t rank) {
    int32_t used = 0;
    if (!w->n_bands) return w->four_bits ? (rank + 7) / 8 * 8 : rank;
    for (int32_t i = 0; used < rank; i++) used += w->ranks[i];
    return used;
}

static void test_one_state(void) {
    static world w;
    static const struct {
        int32_t n_rows, n_cols, rank, used, size;
        const char *policy;
    } tries[] = {
        {2105, 20, 8, 8, 30, "static:20+sketch:30"}, {2105, 20, 8, 4, 64, "sketch:64@rank=4"},
        {97, 24, 24, 24, 11, "static:20+sketch:11"}, {2105, 20, 16, 8, 6, "sketch:6@rank=5"},
        {601, 16, 12, 12, 33, "sketch:33"},          {2105, 20, 76, 76, 30, "static:20+sketch:30"},
        {601, 20, 44, 28, 9, "sketch:9@rank=5"}};
    for (size_t i = 0; i < sizeof tries / sizeof tries[0]; i++)
        for (int kind = 0; kind < 8; kind++) {
            world_make(&w, tries[i].n_rows, tries[i].n_cols, tries[i].rank, kind % 2, kind / 2);
            world_open(&w, tries[i].policy);
            CHECK_STR(specrt_policy_get_info(w.policy)->text, tries[i].policy);
            int32_t used = used_rank(&w, tries[i].used);
            for (int round = 0; round < 20; round++) check_one(&w, tries[i].size, used);
            world_close(&w);
            free(w.bytes);
        }
}

/* Only the most frequent rows are scanned. */
static void test_part(void) {
    static world w;
    float hidden[MOST_COLS], sure = 0;
    world_make(&w, 2105, 20, 8, 0, 1);
    world_open(&w, "sketch:50@scan=133");
    for (int32_t j = 0; j < 20; j++) hidden[j] = fixture_normal(&state);
    const specrt_segment *s = routed(route(&w, hidden, 1, &sure));
    CHECK_INT(s->n_rows, 50);
    for (int32_t i = 0; i < s->n_rows; i++) {
        int32_t place = 0;
        while (w.order[place] != s->ids[i]) place++;
        CHECK(place < 133);
    }
    /* rows, the basis in f16, and nine blocks of codes of 4 bits with scales */
    specrt_session_stats stats;
    specrt_session_get_stats(w.session, &stats);
    CHECK_INT(stats.n_passes, 1);
    CHECK_INT(stats.n_bytes, w.session->active.n_rows * 80 + 8 * 40 + 9 * (64 + 64));
    world_close(&w);
    free(w.bytes);
    /* of bands: lines of codes, scales of 2 bytes, constants */
    world_make(&w, 2105, 20, 76, 0, 1);
    world_open(&w, "sketch:50@scan=133@rank=29");
    CHECK_INT(routed(route(&w, hidden, 1, &sure))->n_rows, 50);
    specrt_session_get_stats(w.session, &stats);
    CHECK_INT(stats.n_bytes,
              w.session->active.n_rows * 80 + 44 * 40 + 9 * (64 * (1 + 3 + 1) + 3 * 32 + 64));
    world_close(&w);
    free(w.bytes);
}

/* Several states: every one held is at least as likely as every one that some state named but not held. */
static void check_levels(int32_t rank) {
    static world w;
    static double scores[TOPK][MOST_ROWS], weights[MOST_ROWS];
    float hidden[TOPK * MOST_COLS], logprobs[TOPK];
    uint8_t held[MOST_ROWS];
    world_make(&w, 2105, 20, rank, 0, 2);
    world_open(&w, "static:20+sketch:40");
    for (int round = 0; round < 20; round++) {
        int32_t n = 2 + round % (TOPK - 1);
        for (int32_t i = 0; i < n * w.n_cols; i++) hidden[i] = fixture_normal(&state);
        for (int32_t i = 0; i < n; i++) logprobs[i] = -0.7f * (float)i;
        const specrt_segment *s = routed(route(&w, hidden, n, logprobs));
        memset(weights, 0, sizeof weights);
        memset(held, 0, sizeof held);
        for (int32_t i = 0; i < n; i++) {
            double most = -INFINITY, sum = 0;
            int32_t named = 0;
            score_all(&w, hidden + i * w.n_cols, w.rank, scores[i]);
            for (int32_t id = 0; id < w.n_rows; id++) most = fmax(most, scores[i][id]);
            double low = most;
            while (named < 40) { /* the 40th greatest */
                double next = -INFINITY;
                named = 0;
                for (int32_t id = 0; id < w.n_rows; id++) {
                    named += scores[i][id] >= low;
                    if (scores[i][id] < low && scores[i][id] > next) next = scores[i][id];
                }
                if (named < 40) low = next;
            }
            for (int32_t id = 0; id < w.n_rows; id++)
                sum += scores[i][id] >= low ? exp(scores[i][id] - most) : 0;
            for (int32_t id = 0; id < w.n_rows; id++)
                if (scores[i][id] >= low)
                    weights[id] += exp((double)logprobs[i] + scores[i][id] - most) / sum;
        }
        double least = INFINITY;
        CHECK_INT(s->n_rows, 40);
        for (int32_t i = 0; i < s->n_rows; i++) {
            CHECK(!held[s->ids[i]]);
            held[s->ids[i]] = 1;
            least = fmin(least, weights[s->ids[i]]);
        }
        for (int32_t id = 0; id < w.n_rows; id++)
            CHECK(held[id] || weights[id] <= least * (1 + 1e-4) + 1e-11); /* TOPK 2^-40 */
    }
    world_close(&w);
    free(w.bytes);
}

static void test_levels(void) {
    check_levels(12);
    check_levels(76); /* bands */
}

/* With every row named, logits are the full vocabulary's. */
static void test_everything(void) {
    static world w;
    static float logits[MOST_ROWS], expected[MOST_ROWS];
    float hidden[MOST_COLS], sure = 0;
    world_make(&w, 601, 24, 24, 1, 3);
    world_open(&w, "sketch:601");
    for (int32_t j = 0; j < w.n_cols; j++) hidden[j] = fixture_normal(&state);
    const specrt_active *active = route(&w, hidden, 1, &sure);
    CHECK_INT(active->n_rows, 599); /* n_vocab leaves one out, the ranks another */
    specrt_segment all = {.rows = w.rows,
                          .dtype = SPECRT_DTYPE_F32,
                          .row_stride = 24 * 4,
                          .n_rows = 601,
                          .bias = w.bias};
    specrt__head_products(w.head->compute.kernels, &all, 0, 601, 24, hidden, 1, expected, 601);
    REQUIRE(!specrt_active_logits(active, hidden, 1, logits));
    const float *at = logits;
    for (int32_t i = 0; i < active->n_segments; at += active->segments[i++].n_rows)
        for (int32_t r = 0; r < active->segments[i].n_rows; r++)
            CHECK(memcmp(&at[r], &expected[active->segments[i].ids[r]], 4) == 0);
    world_close(&w);
    free(w.bytes);
}

/* --- what is refused --- */

static void test_refused(void) {
    static world w;
    specrt_error err;
    specrt_policy *policy;
    specrt_head_desc desc = {.rows = w.rows, .dtype = SPECRT_DTYPE_F32, .n_rows = 96, .n_cols = 24};
    specrt_policy_desc pd = {.text = "sketch:5@rank=28"};
    specrt_head *other;
    specrt_sketch view;
    world_make(&w, 97, 24, 24, 0, 0);
    world_open(&w, "sketch:5");
    CHECK_INT(specrt_policy_create(w.bundle, w.head, &pd, &policy, &err), SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(err.msg, "expected at most the section's 24, found 28");
    pd.text = "sketch:5";
    REQUIRE(!specrt_head_bind(NULL, &desc, NULL, &other, &err));
    CHECK_INT(specrt_policy_create(w.bundle, other, &pd, &policy, &err),
              SPECRT_STATUS_BUNDLE_MISMATCH);
    CHECK_HAS(err.msg, "expected a head [97, 24], found [96, 24]");
    CHECK_INT(specrt_policy_create(NULL, other, &pd, &policy, &err),
              SPECRT_STATUS_BUNDLE_SECTION_MISSING);
    CHECK_HAS(err.msg, "sketch-build");
    specrt_head_close(other);
    REQUIRE(!specrt_bundle_sketch(w.bundle, &view, &err));
    size_t at[] = {(size_t)((const uint8_t *)view.basis - w.bytes) + 1,
                   (size_t)((const uint8_t *)view.mean - w.bytes) + 3,
                   (size_t)((const uint8_t *)view.rows - w.bytes),
                   (size_t)((const uint8_t *)view.scales - w.bytes) + 3,
                   (size_t)((const uint8_t *)view.bounds - w.bytes) + 3,
                   (size_t)((const uint8_t *)view.header - w.bytes) + 8,
                   (size_t)((const uint8_t *)view.header - w.bytes) + 16};
    world_close(&w);
    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
        uint8_t kept[2];
        memcpy(kept, w.bytes + at[i] - 1, 2);
        bool whole = i == 2 || i >= 5;
        memset(w.bytes + at[i] - !whole, 0xff, whole ? 1 : 2);
        fixture_seal(w.bytes, w.n_bytes);
        REQUIRE(!specrt_bundle_open_memory(w.bytes, w.n_bytes, "b", NULL, &w.bundle, &err));
        CHECK_INT(specrt_bundle_sketch(w.bundle, &view, &err), SPECRT_STATUS_BUNDLE_CONTENT);
        CHECK_HAS(err.msg, "section 'sketch'");
        specrt_bundle_close(w.bundle);
        memcpy(w.bytes + at[i] - 1, kept, 2);
    }
    free(w.bytes);
}

/* One damaged byte or two of a section of bands. @return what refuses it. */
static void check_damage(world *w, size_t at, const void *with, size_t n, const char *what) {
    uint8_t kept[4];
    specrt_error err = {SPECRT_STATUS_OK, ""};
    specrt_sketch view;
    memcpy(kept, w->bytes + at, n);
    memcpy(w->bytes + at, with, n);
    fixture_seal(w->bytes, w->n_bytes);
    REQUIRE(!specrt_bundle_open_memory(w->bytes, w->n_bytes, "b", NULL, &w->bundle, &err));
    CHECK_INT(specrt_bundle_sketch(w->bundle, &view, &err), SPECRT_STATUS_BUNDLE_CONTENT);
    CHECK_HAS(err.msg, "b: section 'sketch': ");
    CHECK_HAS(err.msg, what);
    CHECK(view.header == NULL);
    specrt_bundle_close(w->bundle);
    memcpy(w->bytes + at, kept, n);
}

static void check_bad_header(world *w, size_t header) {
    static const struct {
        size_t at;
        uint16_t with;
        const char *what;
    } tries[] = {{20, 0, "n_bands is out of range"},
                 {20, 9, "n_bands is out of range"},
                 {20, 3, "a band beyond n_bands"},
                 {26, 3, "not 8, 4, 2 or 1"},
                 {26, 0, "not 8, 4, 2 or 1"},
                 {24, 0, "does not fill its lines"},
                 {24, 6, "does not fill its lines"},
                 {24, 8, "do not add up to its rank"},
                 {28, 65528, "do not add up to its rank"},
                 {8, 72, "do not add up to its rank"},
                 {0, 560, "its size does not fit its header"},
                 {0, 700, "its size does not fit its header"}};
    for (size_t i = 0; i < sizeof tries / sizeof tries[0]; i++)
        check_damage(w, header + tries[i].at, &tries[i].with, 2, tries[i].what);
}

/* Bands that lie, numbers that are none. */
static void test_bad_bands(void) {
    static world w;
    const uint16_t huge = 0x7c00, endless = 0x7f80;
    const uint32_t nan = 0x7fc00000, one = 1;
    specrt_sketch view;
    specrt_error err;
    world_make(&w, 601, 20, 76, 0, 0);
    world_open(&w, "sketch:5");
    REQUIRE(!specrt_bundle_sketch(w.bundle, &view, &err));
    size_t header = (size_t)((const uint8_t *)view.header - w.bytes);
    size_t basis = (size_t)((const uint8_t *)view.basis - w.bytes);
    size_t center = (size_t)((const uint8_t *)view.center - w.bytes);
    size_t rows = (size_t)((const uint8_t *)view.rows - w.bytes);
    size_t constants = (size_t)((const uint8_t *)view.constants - w.bytes);
    size_t scales = (size_t)((const uint8_t *)view.bands[3].scales - w.bytes);
    world_close(&w);
    check_bad_header(&w, header);
    check_damage(&w, basis + 2, &huge, 2, "a weight of its basis is not finite");
    check_damage(&w, center, &nan, 4, "center is not finite");
    check_damage(&w, constants + 4, &nan, 4, "a constant is not finite");
    check_damage(&w, scales + 2 * 600, &endless, 2, "a scale is out of range");
    check_damage(&w, rows + 4, w.bytes + rows, 4, "a row stands twice");
    size_t version = header; /* the table's entry of the section */
    for (version = 64; memcmp(w.bytes + version, "sketch", 6) != 0;) version += 64;
    version += offsetof(specrt_bundle_section, version);
    check_damage(&w, version, &one, 4, "version 1 has bands");
    free(w.bytes);
}

static const test_case cases[] = {
    {"scan", "every instruction set against plain sums: both widths, odd ranks and lengths, biases",
     test_scan},
    {"bands", "codes of 8, 4, 2 and 1 bits by every instruction set against plain sums",
     test_bands},
    {"one_state", "what a state names against a full sort, prefix ranks, ties", test_one_state},
    {"part", "a scan of the frequent rows alone", test_part},
    {"levels", "what a level of several states names, by probability", test_levels},
    {"everything", "all rows named: the full vocabulary, bit for bit", test_everything},
    {"bad_bands", "bands whose widths, ranks or sizes lie, numbers that are none", test_bad_bands},
    {"refused", "ranks, heads, a missing bundle, damaged sections", test_refused},
};
TEST_MAIN(cases)
