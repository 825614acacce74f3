/* sketch_section.c : owns the section of a sketch as a bundle holds it. Refuses sizes and numbers that no
 * builder writes. */
#include "sources/sketch.h"
#include "core/base.h"
#include "core/bundle.h"

/* --- the section --- */

/* NULL, or what is wrong with the sizes. */
static const char *specrt__sketch_check_sizes(const specrt_sketch_header *h, size_t n) {
    if (n < sizeof *h) return "it is shorter than its header";
    if (h->n_rows < 1 || h->n_rows > SPECRT_MAX_VOCAB || h->n_cols < 1 || h->n_cols > 65536)
        return "n_rows or n_cols is out of range";
    if (h->four_bits < 0 || h->four_bits > 1) return "four_bits is neither 0 nor 1";
    if (h->rank < 4 || h->rank % specrt__sketch_step(h) || h->rank > SPECRT_MAX_SKETCH_RANK)
        return "rank is out of range";
    return NULL;
}

/* NULL, or what is wrong with the bands of a header. */
static const char *specrt__sketch_check_bands(const specrt_sketch_header *h, uint32_t version) {
    int32_t rank = 0;
    if (version == 1) return h->n_bands ? "version 1 has bands" : NULL;
    if (h->n_bands < 1 || h->n_bands > SPECRT_MAX_SKETCH_BANDS) return "n_bands is out of range";
    for (int32_t i = 0; i < SPECRT_MAX_SKETCH_BANDS; i++) {
        int32_t bits = h->bands[i].bits, own = h->bands[i].rank;
        if (i >= h->n_bands) {
            if (bits || own) return "it has a band beyond n_bands";
            continue;
        }
        if (bits != 8 && bits != 4 && bits != 2 && bits != 1)
            return "the bits of a band are not 8, 4, 2 or 1";
        if (own == 0 || own % (32 / bits)) return "the rank of a band does not fill its lines";
        rank += own;
    }
    return rank == h->rank ? NULL : "the ranks of its bands do not add up to its rank";
}

/* Places of the arrays of a sketch of bands. @return the bytes of the section. */
static uint64_t specrt__sketch_lay_out_bands(specrt_sketch *s) {
    const specrt_sketch_header *h = s->header;
    uint64_t n = (uint64_t)h->n_rows, d = (uint64_t)h->n_cols, r = (uint64_t)h->rank;
    const uint8_t *base = (const uint8_t *)h;
    uint64_t n_blocks = (n + 15) / 16;
    uint64_t center = sizeof *h + 2 * r * d, rows = center + 4 * d, at = rows + 8 * n;
    s->basis = (const uint16_t *)(const void *)(h + 1);
    s->center = (const float *)(const void *)(base + center);
    s->rows = (const int32_t *)(const void *)(base + rows);
    s->constants = (const float *)(const void *)(base + rows + 4 * n);
    for (int32_t i = 0; i < h->n_bands; i++) {
        specrt_sketch_band *band = &s->bands[i];
        uint64_t scales = specrt__base_align(at, 64);
        uint64_t codes = specrt__base_align(scales + 32 * n_blocks, 64);
        band->rank = h->bands[i].rank;
        band->bits = h->bands[i].bits;
        band->scales = (const uint16_t *)(const void *)(base + scales);
        band->codes = base + codes;
        at = codes + n_blocks * (uint64_t)(2 * band->rank * band->bits);
    }
    return at;
}

/* Places of the arrays. @return the bytes of the section. */
static uint64_t specrt__sketch_lay_out(specrt_sketch *s) {
    if (s->header->n_bands) return specrt__sketch_lay_out_bands(s);
    const specrt_sketch_header *h = s->header;
    uint64_t n = (uint64_t)h->n_rows, d = (uint64_t)h->n_cols, r = (uint64_t)h->rank;
    const uint8_t *base = (const uint8_t *)h;
    uint64_t mean = sizeof *h + 2 * 2 * r * d, rows = mean + 4 * d, scales = rows + 4 * n;
    uint64_t codes = specrt__base_align(scales + 4 * n + 16 * n, 64);
    s->basis = (const uint16_t *)(const void *)(h + 1);
    s->lift = s->basis + r * d;
    s->mean = (const float *)(const void *)(base + mean);
    s->rows = (const int32_t *)(const void *)(base + rows);
    s->scales = (const float *)(const void *)(base + scales);
    s->bounds = s->scales + n;
    s->codes = base + codes;
    return codes + (n + 15) / 16 * specrt__sketch_stride(h);
}

static bool specrt__sketch_halves_finite(const uint16_t *x, size_t n) {
    bool finite = true;
    for (size_t i = 0; i < n; i++) finite = finite && (x[i] & 0x7c00) != 0x7c00;
    return finite;
}

/* Lengths and scales: finite and not negative. */
static bool specrt__sketch_lengths_good(const float *x, size_t n) {
    bool good = true;
    for (size_t i = 0; i < n; i++) good = good && x[i] >= 0 && x[i] <= FLT_MAX;
    return good;
}

static bool specrt__sketch_floats_finite(const float *x, size_t n) {
    bool finite = true;
    for (size_t i = 0; i < n; i++) finite = finite && fabsf(x[i]) <= FLT_MAX;
    return finite;
}

/* NULL, or what is wrong with the arrays of a sketch of bands. */
static const char *specrt__sketch_check_numbers(const specrt_sketch *s) {
    const specrt_sketch_header *h = s->header;
    size_t n = (size_t)h->n_rows, d = (size_t)h->n_cols, n_places = (n + 15) / 16 * 16;
    if (!specrt__sketch_halves_finite(s->basis, (size_t)h->rank * d))
        return "a weight of its basis is not finite";
    if (!specrt__sketch_floats_finite(s->center, d)) return "center is not finite";
    if (!specrt__sketch_floats_finite(s->constants, n)) return "a constant is not finite";
    for (int32_t b = 0; b < h->n_bands; b++)
        for (size_t i = 0; i < n_places; i++)
            if (s->bands[b].scales[i] >= 0x7f80) return "a scale is out of range";
    return NULL;
}

/* The same of a sketch of one width. */
static const char *specrt__sketch_check_lengths(const specrt_sketch *s) {
    const specrt_sketch_header *h = s->header;
    size_t n = (size_t)h->n_rows, d = (size_t)h->n_cols;
    if (!specrt__sketch_halves_finite(s->basis, 2 * (size_t)h->rank * d))
        return "a weight of its basis is not finite";
    if (!specrt__sketch_floats_finite(s->mean, d)) return "mean is not finite";
    if (!specrt__sketch_lengths_good(s->scales, 5 * n)) return "a scale or length is out of range";
    return NULL;
}

/* NULL, or what is wrong with the arrays; seen: scratch, zeroed, a bit for each row. */
static const char *specrt__sketch_check(const specrt_sketch *s, uint8_t *seen) {
    const specrt_sketch_header *h = s->header;
    const char *wrong =
        h->n_bands ? specrt__sketch_check_numbers(s) : specrt__sketch_check_lengths(s);
    if (wrong) return wrong;
    for (size_t i = 0; i < (size_t)h->n_rows; i++) {
        int32_t row = s->rows[i];
        if (row < 0 || row >= h->n_rows) return "a row is out of range";
        if (seen[row >> 3] >> (row & 7) & 1) return "a row stands twice";
        seen[row >> 3] = (uint8_t)(seen[row >> 3] | 1 << (row & 7));
    }
    return NULL;
}

SPECRT_API specrt_status specrt_bundle_sketch(const specrt_bundle *bundle, specrt_sketch *out,
                                              specrt_error *err) {
    size_t n;
    specrt_sketch view;
    memset(out, 0, sizeof *out);
    memset(&view, 0, sizeof view);
    view.header = (const specrt_sketch_header *)specrt_bundle_data(bundle, "sketch", &n);
    if (!view.header) return specrt__bundle_missing(bundle, "sketch", err);
    const char *wrong = specrt__sketch_check_sizes(view.header, n);
    if (!wrong)
        wrong = specrt__sketch_check_bands(view.header, specrt__bundle_version(bundle, "sketch"));
    if (!wrong && specrt__sketch_lay_out(&view) != n) wrong = "its size does not fit its header";
    if (wrong) return specrt__bundle_bad(bundle, "sketch", wrong, err);
    size_t n_seen = ((size_t)view.header->n_rows + 7) / 8;
    uint8_t *seen = (uint8_t *)specrt__base_alloc(&bundle->desc, n_seen);
    if (!seen)
        return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "%s: out of memory", bundle->name);
    memset(seen, 0, n_seen);
    wrong = specrt__sketch_check(&view, seen);
    specrt__base_free(&bundle->desc, seen);
    if (wrong) return specrt__bundle_bad(bundle, "sketch", wrong, err);
    *out = view;
    return SPECRT_STATUS_OK;
}
