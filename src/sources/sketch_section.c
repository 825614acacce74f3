/* sketch_section.c : owns the section of a sketch as a bundle holds it. Refuses sizes and numbers that no
 * builder writes. */
#include "sources/sketch.h"
#include "core/base.h"
#include "core/bundle.h"

/* NULL, or what is wrong with the header. */
static const char *specrt__sketch_check_header(const specrt_sketch_header *h) {
    if (h->n_rows < 1 || h->n_rows > SPECRT_MAX_VOCAB || h->n_cols < 1 || h->n_cols > 65536)
        return "n_rows, n_cols: expected 1 to 16777216, and 1 to 65536, found others";
    if (h->rank < 240 || h->rank > SPECRT_MAX_SKETCH_RANK || h->rank % 256 != 240)
        return "rank: expected 240 to 4080, 240 more than a multiple of 256, found another";
    if (h->n_signs < 32 || h->n_signs > h->rank || h->n_signs % 32)
        return "n_signs: expected a multiple of 32 from 32 to rank, found another";
    if (h->basis_dtype != SPECRT_DTYPE_F16 &&
        (h->basis_dtype != SPECRT_DTYPE_Q8_0 || h->n_cols % 32))
        return "basis_dtype: expected F16, or Q8_0 of whole blocks, found another";
    if (!(h->scale_unit >= 0 && h->scale_unit <= FLT_MAX) ||
        !(h->constant_unit >= 0 && h->constant_unit <= FLT_MAX))
        return "scale_unit, constant_unit: expected finite numbers from 0, found others";
    if (h->n_clusters < 0 || h->n_clusters > SPECRT_MAX_CLUSTERS || h->n_clusters > h->n_rows)
        return "n_clusters: expected 0 to 16384, at most n_rows, found another";
    return NULL;
}

/* Places of the arrays. @return the bytes of the section. */
static uint64_t specrt__sketch_arrays(const specrt_sketch_header *h, const uint8_t *base,
                                      specrt_sketch *s) {
    uint64_t n = (uint64_t)h->n_rows, n_places = (n + 15) / 16 * 16, at = sizeof *h;
    uint64_t row = specrt_row_bytes((specrt_dtype)h->basis_dtype, h->n_cols);
    s->header = h;
    s->basis = base + at;
    at = specrt__base_align(at + row * (uint64_t)h->rank, 4);
    s->center = (const float *)(const void *)(base + at);
    at += 4 * (uint64_t)h->n_cols;
    s->rows = (const int32_t *)(const void *)(base + at);
    at += 4 * n;
    s->scales = base + at;
    at += n_places;
    s->constants = (const int8_t *)(base + at);
    at = specrt__base_align(at + n_places, 64);
    s->signs = base + at;
    at += n_places * (uint64_t)(h->n_signs / 8);
    s->records = base + at;
    uint64_t clusters = (uint64_t)h->n_clusters, record = (uint64_t)((h->rank + 16) / 4);
    return at + n * record + (clusters > 0 ? clusters * (record + 4) + 4 : 0);
}

static bool specrt__sketch_halves_finite(const uint8_t *x, size_t n, size_t stride) {
    bool finite = true;
    for (size_t i = 0; i < n; i++, x += stride) finite = finite && (x[1] & 0x7c) != 0x7c;
    return finite;
}

/* Whether a record's scale and constant, two bf16 numbers, are finite, and the scale not negative. */
static bool specrt__sketch_record_good(const uint8_t *end) {
    return (end[-1] & 0x7f) * 2 + (end[-2] >> 7) != 255 && end[-3] * 2 + (end[-4] >> 7) < 255;
}

/* NULL, or what is wrong with the numbers. */
static const char *specrt__sketch_check_numbers(const specrt_sketch *s) {
    const specrt_sketch_header *h = s->header;
    int32_t n_records = h->n_rows + h->n_clusters; /* centroids follow rows */
    size_t d = (size_t)h->n_cols, bytes = (size_t)((h->rank + 16) / 4), rank = (size_t)h->rank;
    const uint8_t *basis = (const uint8_t *)s->basis, *end = s->records;
    bool q8_0 = h->basis_dtype == SPECRT_DTYPE_Q8_0;
    if (!specrt__sketch_halves_finite(basis, rank * (q8_0 ? d / 32 : d), q8_0 ? 34 : 2))
        return "basis: expected finite weights, found others";
    for (size_t i = 0; i < d; i++)
        if (!(fabsf(s->center[i]) <= FLT_MAX))
            return "center: expected finite numbers, found others";
    for (int32_t i = 0; i < n_records; i++)
        if (!specrt__sketch_record_good(end += bytes))
            return "records: expected finite scales from 0, found another";
    return NULL;
}

static const char *specrt__sketch_check_clusters(const specrt_sketch *s) {
    specrt__sketch_clusters c = specrt__sketch_clusters_of(s);
    if (c.n == 0) return NULL;
    if (c.starts[0] != 0 || c.starts[c.n] != (uint32_t)s->header->n_rows)
        return "starts: expected 0 first and n_rows last, found others";
    for (int32_t m = 0; m < c.n; m++)
        if (c.starts[m + 1] <= c.starts[m])
            return "starts: expected ascending places, found one at or below its predecessor";
    return NULL;
}

/* NULL, or what is wrong with the arrays; seen: scratch, zeroed, a bit for each row. */
static const char *specrt__sketch_check(const specrt_sketch *s, uint8_t *seen) {
    const specrt_sketch_header *h = s->header;
    const char *wrong = specrt__sketch_check_numbers(s);
    if (!wrong) wrong = specrt__sketch_check_clusters(s);
    if (wrong) return wrong;
    for (size_t i = 0; i < (size_t)h->n_rows; i++) {
        int32_t row = s->rows[i];
        if (row < 0 || row >= h->n_rows) return "rows: expected rows below n_rows, found another";
        if (seen[row >> 3] >> (row & 7) & 1) return "rows: expected distinct rows, found one twice";
        seen[row >> 3] = (uint8_t)(seen[row >> 3] | 1 << (row & 7));
    }
    return NULL;
}

SPECRT_API specrt_status specrt_bundle_sketch(const specrt_bundle *bundle, specrt_sketch *out,
                                              specrt_error *err) {
    size_t n;
    specrt_sketch view;
    SPECRT__NEED(out);
    memset(out, 0, sizeof *out);
    SPECRT__NEED(bundle);
    const uint8_t *base = (const uint8_t *)specrt_bundle_data(bundle, "sketch", &n);
    const specrt_sketch_header *header = (const specrt_sketch_header *)(const void *)base;
    if (!base) return specrt__bundle_missing(bundle, "sketch", err);
    if (specrt__bundle_version(bundle, "sketch") < 3)
        return specrt_error_set(
            err, SPECRT_STATUS_BUNDLE_VERSION,
            "%s: section 'sketch': expected version 3 or 4, found %d; rebuild it "
            "with sketch-build",
            bundle->name, (int)specrt__bundle_version(bundle, "sketch"));
    const char *wrong = n < sizeof *header ? "size: expected at least its header, found less"
                                           : specrt__sketch_check_header(header);
    if (!wrong && specrt__sketch_arrays(header, base, &view) != n)
        wrong = "size: expected the bytes of its header's counts, found others";
    if (!wrong && header->n_clusters > 0 && specrt__bundle_version(bundle, "sketch") < 4)
        wrong = "n_clusters: expected 0 in version 3, found another";
    if (wrong) return specrt__bundle_bad(bundle, "sketch", wrong, err);
    size_t n_seen = ((size_t)header->n_rows + 7) / 8;
    uint8_t *seen = (uint8_t *)specrt__base_alloc(&bundle->env, n_seen);
    if (!seen)
        return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "%s: out of memory", bundle->name);
    memset(seen, 0, n_seen);
    wrong = specrt__sketch_check(&view, seen);
    specrt__base_free(&bundle->env, seen);
    if (wrong) return specrt__bundle_bad(bundle, "sketch", wrong, err);
    *out = view;
    return SPECRT_STATUS_OK;
}
