/* head.c : owns the binding of a head, its digest, and copies of its rows. Refuses weights that are not the
 * bundle's. */
#include "core/head.h"
#include "core/base.h"
#include "core/bundle.h"
#include "core/simd.h"
#include "core/simd_kernels.h"

/* --- binding --- */

/* What *in says, with its stride and scale filled in, or why not; name: what it is, for messages. */
SPECRT__INTERNAL specrt_status specrt__head_resolve(const char *name, const specrt_head_desc *in,
                                                    specrt_head_desc *out, specrt_error *err) {
    const char *type = specrt_dtype_name(in->dtype);
    uint64_t bytes;
    if (!type || in->dtype == SPECRT_DTYPE_I32 || in->dtype == SPECRT_DTYPE_I64)
        return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                                "%s: type %d: expected a float row format, found %s", name,
                                (int)in->dtype, type ? type : "an unknown one");
    if (!in->rows || in->n_rows < 1 || in->n_rows > SPECRT_MAX_VOCAB)
        return specrt_error_set(
            err, SPECRT_STATUS_BAD_ARG, "%s: expected 1 to %d rows in memory, found %lld%s", name,
            SPECRT_MAX_VOCAB, (long long)in->n_rows, in->rows ? "" : " at NULL");
    size_t row_bytes = specrt_row_bytes(in->dtype, in->n_cols);
    if (row_bytes == 0 || in->n_cols > INT32_MAX)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "%s: expected a positive number of columns in whole blocks of "
                                "%s, found %lld",
                                name, type, (long long)in->n_cols);
    *out = *in;
    if (out->row_stride == 0) out->row_stride = row_bytes;
    if (out->row_stride < row_bytes ||
        !specrt__base_mul(out->row_stride, (uint64_t)in->n_rows, &bytes) || bytes > PTRDIFF_MAX)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "%s: row_stride: expected at least %llu bytes, found %llu", name,
                                (unsigned long long)row_bytes, (unsigned long long)in->row_stride);
    if (out->logit_scale == 0) out->logit_scale = 1;
    if (!(out->logit_scale > 0 && out->logit_scale <= FLT_MAX) ||
        !(out->softcap >= 0 && out->softcap <= FLT_MAX))
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "%s: expected a logit_scale and softcap above 0, or 0 for none, "
                                "found %g and %g",
                                name, (double)in->logit_scale, (double)in->softcap);
    return SPECRT_STATUS_OK;
}

/* SplitMix64 at step `column`: bit p is the sign of that column in projection p. */
static uint64_t specrt__head_signs(int64_t column) {
    uint64_t z = ((uint64_t)column + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* One row, decoded 256 columns at a time: every block format divides that. */
static void specrt__head_project(const specrt_head_desc *desc, int64_t row, float *out) {
    const uint8_t *p = specrt__head_row(desc, row);
    size_t chunk_bytes = specrt_row_bytes(desc->dtype, 256);
    double sums[SPECRT_DIGEST_PROJECTIONS] = {0, 0, 0, 0};
    float values[256];
    for (int64_t done = 0; done < desc->n_cols; done += 256, p += chunk_bytes) {
        int64_t n = desc->n_cols - done < 256 ? desc->n_cols - done : 256;
        specrt_row_decode(desc->dtype, p, n, values);
        for (int64_t j = 0; j < n; j++) {
            uint64_t signs = specrt__head_signs(done + j);
            for (int k = 0; k < SPECRT_DIGEST_PROJECTIONS; k++)
                sums[k] += signs >> k & 1 ? -(double)values[j] : (double)values[j];
        }
    }
    for (int k = 0; k < SPECRT_DIGEST_PROJECTIONS; k++)
        out[k] = (float)(sums[k] / sqrt((double)desc->n_cols));
}

SPECRT_API specrt_status specrt_head_digest(const specrt_head_desc *desc, specrt_digest *out,
                                            specrt_error *err) {
    specrt_head_desc head;
    SPECRT__NEED(out);
    memset(out, 0, sizeof *out);
    SPECRT__NEED(desc);
    SPECRT__TRY(specrt__head_resolve("head", desc, &head, err));
    for (int i = 0; i < SPECRT_DIGEST_ROWS; i++) {
        int64_t row = (2 * i + 1) * head.n_rows / (2 * SPECRT_DIGEST_ROWS);
        specrt__head_project(&head, row, out->values[i]);
        for (int k = 0; k < SPECRT_DIGEST_PROJECTIONS; k++) {
            if (fabsf(out->values[i][k]) <= FLT_MAX) continue;
            memset(out, 0, sizeof *out);
            return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                    "head: row %lld: expected finite weights, found NaN or "
                                    "infinity",
                                    (long long)row);
        }
    }
    return SPECRT_STATUS_OK;
}

/* A row's product and bias, decoded 256 columns at a time. */
static double specrt__head_exact(const specrt_head_desc *desc, int64_t row, const float *hidden) {
    const uint8_t *p = specrt__head_row(desc, row);
    size_t chunk_bytes = specrt_row_bytes(desc->dtype, 256);
    double sum = desc->bias ? (double)desc->bias[row] : 0;
    float values[256];
    for (int64_t done = 0; done < desc->n_cols; done += 256, p += chunk_bytes) {
        int64_t n = desc->n_cols - done < 256 ? desc->n_cols - done : 256;
        specrt_row_decode(desc->dtype, p, n, values);
        for (int64_t j = 0; j < n; j++) sum += (double)values[j] * (double)hidden[done + j];
    }
    return sum;
}

typedef struct specrt__head_match {
    double difference, size; /* sums of squares, over all states */
    int64_t n;               /* logits */
    int32_t best, found;     /* of the last state: by their logits, by ours */
    double margin;           /* between the two, by logits */
} specrt__head_match;

static void specrt__head_match_state(const specrt_head_desc *desc, const float *hidden,
                                     const float *logits, int32_t n_logits, specrt__head_match *m) {
    double found = 0;
    m->best = m->found = -1;
    for (int64_t row = 0; row < desc->n_rows; row++) {
        int32_t id = desc->ids ? desc->ids[row] : (int32_t)row;
        if (id < 0 || id >= n_logits) continue;
        double own = specrt__head_logit(desc, specrt__head_exact(desc, row, hidden));
        double logit = (double)logits[id];
        m->difference += (own - logit) * (own - logit);
        m->size += logit * logit;
        m->n++;
        if (m->best < 0 || logit > (double)logits[m->best]) m->best = id;
        if (m->found < 0 || own > found) found = own, m->found = id;
    }
    m->margin = m->n ? (double)logits[m->best] - (double)logits[m->found] : 0;
}

SPECRT_API specrt_status specrt_head_check_states(const specrt_head_desc *desc, const float *hidden,
                                                  int32_t n, const float *logits, int32_t n_logits,
                                                  double *relative_rms, specrt_error *err) {
    specrt_head_desc head;
    specrt__head_match m = {0, 0, 0, 0, 0, 0};
    double rms = 0, apart = 0;
    bool same = true;
    SPECRT__NEED(desc);
    SPECRT__NEED(hidden);
    SPECRT__NEED(logits);
    SPECRT__TRY(specrt__head_resolve("head", desc, &head, err));
    if (n < 1 || n_logits < 1)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "head: expected states and logits to check, found %d and %d",
                                (int)n, (int)n_logits);
    for (int32_t i = 0; i < n && same; i++) {
        specrt__head_match_state(&head, hidden + i * head.n_cols, logits + (int64_t)i * n_logits,
                                 n_logits, &m);
        rms = m.size > 0 ? sqrt(m.difference / m.size) : 1;
        apart = m.n ? sqrt(m.difference / (double)m.n) : 0;
        same = m.margin <= 4 * apart; /* or nearly tied */
    }
    if (relative_rms) *relative_rms = rms;
    if (rms <= SPECRT_HEAD_MAX_RMS && same) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                            "head: rows times states are not these logits: expected a relative rms "
                            "of at most %g and best token %d, found %.3g and %d",
                            SPECRT_HEAD_MAX_RMS, (int)m.best, rms, (int)m.found);
}

/* Projection k of every row less its mean, so that a constant added to all rows drops out. */
static void specrt__head_center(const specrt_digest *digest, int k, double *out) {
    double mean = 0;
    for (int i = 0; i < SPECRT_DIGEST_ROWS; i++) mean += digest->values[i][k];
    mean /= SPECRT_DIGEST_ROWS;
    for (int i = 0; i < SPECRT_DIGEST_ROWS; i++) out[i] = digest->values[i][k] - mean;
}

/* |a - b| / sqrt(|a| |b|) of the centred digests. */
SPECRT_API float specrt_digest_distance(const specrt_digest *a, const specrt_digest *b) {
    double aa = 0, bb = 0, difference = 0;
    if (!a || !b) return INFINITY;
    for (int k = 0; k < SPECRT_DIGEST_PROJECTIONS; k++) {
        double x[SPECRT_DIGEST_ROWS], y[SPECRT_DIGEST_ROWS];
        specrt__head_center(a, k, x);
        specrt__head_center(b, k, y);
        for (int i = 0; i < SPECRT_DIGEST_ROWS; i++) {
            aa += x[i] * x[i];
            bb += y[i] * y[i];
            difference += (x[i] - y[i]) * (x[i] - y[i]);
        }
    }
    if (difference == 0) return 0;
    /* Infinite where the rows of one are all equal. */
    return (float)sqrt(difference / sqrt(aa * bb));
}

static bool specrt__head_needed(const specrt_bundle *bundle) {
    int32_t n;
    const specrt_bundle_section *sections = specrt_bundle_sections(bundle, &n);
    for (int32_t i = 0; i < n; i++)
        if (sections[i].flags & SPECRT_SECTION_DEPENDS_HEAD) return true;
    return false;
}

SPECRT__INTERNAL specrt_status specrt__head_check(const specrt_bundle *bundle,
                                                  const specrt_head_desc *desc, specrt_error *err) {
    const specrt_ident *ident = specrt_bundle_ident(bundle);
    specrt_digest digest;
    if (!ident) return SPECRT_STATUS_OK;
    if (desc->ids && !specrt__head_needed(bundle)) return SPECRT_STATUS_OK;
    if (!desc->ids && ident->n_vocab > desc->n_rows)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_MISMATCH,
                                "%s: head: expected at least the %d rows of tokenizer '%s', found "
                                "%lld",
                                bundle->name, (int)ident->n_vocab, ident->tokenizer_name,
                                (long long)desc->n_rows);
    if (ident->head_rows == 0) return SPECRT_STATUS_OK;
    if (ident->head_rows != desc->n_rows || ident->head_cols != desc->n_cols)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_MISMATCH,
                                "%s: head: expected '%s' [%d, %d], found [%lld, %lld]; use the "
                                "bundle made for this model: sketch, cluster and centroid are of "
                                "the drafter's head",
                                bundle->name, ident->head_name, (int)ident->head_rows,
                                (int)ident->head_cols, (long long)desc->n_rows,
                                (long long)desc->n_cols);
    SPECRT__TRY(specrt_head_digest(desc, &digest, err));
    float distance = specrt_digest_distance(&ident->head_digest, &digest);
    if (distance > SPECRT_DIGEST_TOLERANCE)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_MISMATCH,
                                "%s: head: expected the weights of '%s', found others (distance "
                                "%.2f, at most %.2f); use the bundle made for this model: sketch, "
                                "cluster and centroid are of the drafter's head",
                                bundle->name, ident->head_name, (double)distance,
                                (double)SPECRT_DIGEST_TOLERANCE);
    return SPECRT_STATUS_OK;
}

/* One more than the highest id. */
static specrt_status specrt__head_count_ids(const specrt_head_desc *desc, int32_t *out,
                                            specrt_error *err) {
    *out = (int32_t)desc->n_rows;
    if (!desc->ids) return SPECRT_STATUS_OK;
    *out = 0;
    for (int64_t i = 0; i < desc->n_rows; i++) {
        if (desc->ids[i] < 0 || desc->ids[i] >= SPECRT_MAX_VOCAB)
            return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                    "head: ids: row %lld: expected a token from 0 to %d, found %d",
                                    (long long)i, SPECRT_MAX_VOCAB - 1, (int)desc->ids[i]);
        if (desc->ids[i] >= *out) *out = desc->ids[i] + 1;
    }
    return SPECRT_STATUS_OK;
}

/* The inverse of desc.ids, into its own memory. */
static specrt_status specrt__head_map_ids(specrt_head *head, specrt_error *err) {
    head->row_of = (int32_t *)(void *)(head + 1);
    memset(head->row_of, 0xff, (size_t)head->n_ids * sizeof(int32_t));
    for (int32_t i = 0; i < (int32_t)head->desc.n_rows; i++) {
        int32_t *row = &head->row_of[head->desc.ids[i]];
        if (*row >= 0)
            return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                    "head: ids: expected distinct tokens, found %d at rows %d and "
                                    "%d",
                                    (int)head->desc.ids[i], (int)*row, (int)i);
        *row = i;
    }
    return SPECRT_STATUS_OK;
}

/* A Markov head beside a head: its ranks are one, and its rows those of all tokens and of the head. */
static specrt_status specrt__head_add_markov(specrt_head *head, specrt_error *err) {
    const specrt_markov_desc *in = head->desc.markov;
    specrt_markov_desc *out = &head->markov;
    if (!in) return SPECRT_STATUS_OK;
    SPECRT__TRY(specrt__head_resolve("head: markov: from", &in->from, &out->from, err));
    SPECRT__TRY(specrt__head_resolve("head: markov: to", &in->to, &out->to, err));
    if (out->from.n_cols != out->to.n_cols)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "head: markov: expected one rank, found %lld of from and %lld of "
                                "to",
                                (long long)out->from.n_cols, (long long)out->to.n_cols);
    if (out->from.n_rows < head->n_ids || out->to.n_rows != head->desc.n_rows)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "head: markov: expected a row of from for each of %d token ids, "
                                "and one of to for each of the head's %lld rows, found %lld and "
                                "%lld; cut `to` with the head, and keep `from` whole",
                                (int)head->n_ids, (long long)head->desc.n_rows,
                                (long long)out->from.n_rows, (long long)out->to.n_rows);
    head->desc.markov = out;
    return SPECRT_STATUS_OK;
}

SPECRT_API specrt_status specrt_head_bind(const specrt_bundle *bundle, const specrt_head_desc *desc,
                                          const specrt_env *env, specrt_head **out,
                                          specrt_error *err) {
    specrt_head_desc resolved;
    specrt_env allocator = specrt__base_env(env);
    int32_t n_ids;
    SPECRT__NEED(out);
    *out = NULL;
    SPECRT__NEED(desc);
    SPECRT__TRY(specrt__head_resolve("head", desc, &resolved, err));
    SPECRT__TRY(specrt__head_count_ids(&resolved, &n_ids, err));
    if (bundle) SPECRT__TRY(specrt__head_check(bundle, &resolved, err));
    size_t map_bytes = resolved.ids ? (size_t)n_ids * sizeof(int32_t) : 0;
    specrt_head *head = (specrt_head *)specrt__base_alloc(&allocator, sizeof *head + map_bytes);
    if (!head) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "head: out of memory");
    head->compute.kernels = specrt__simd_choose();
    head->compute.env = allocator;
    head->desc = resolved;
    head->n_ids = n_ids;
    head->row_of = NULL;
    specrt_status status = resolved.ids ? specrt__head_map_ids(head, err) : SPECRT_STATUS_OK;
    if (status == SPECRT_STATUS_OK) status = specrt__head_add_markov(head, err);
    if (status == SPECRT_STATUS_OK)
        *out = head;
    else
        specrt_head_close(head);
    return status;
}

SPECRT_API void specrt_head_close(specrt_head *head) {
    if (!head) return;
    specrt_env allocator = head->compute.env;
    specrt__base_free(&allocator, head);
}

SPECRT_API const specrt_compute *specrt_head_compute(const specrt_head *head) {
    return head ? &head->compute : NULL;
}

/* Ask for a row that is packed next: the beginning of each of its pages, from where hardware goes on. */
SPECRT__INTERNAL void specrt__head_fetch(const specrt_head *head, int64_t row) {
    const uint8_t *p = specrt__head_row(&head->desc, row);
    size_t n = specrt_row_bytes(head->desc.dtype, head->desc.n_cols);
    for (size_t page = 0; page < n; page += 4096)
        for (size_t at = page; at < page + 512 && at < n; at += 64) SPECRT__SIMD_PREFETCH(p + at);
}

/* One row, packed: copied, or decoded and rounded to f16. */
SPECRT__INTERNAL void specrt__head_pack(const specrt_head *head, int64_t row, uint8_t *out) {
    const specrt_head_desc *desc = &head->desc;
    const uint8_t *p = specrt__head_row(desc, row);
    if (specrt__simd_format(desc->dtype) >= 0) {
        memcpy(out, p, specrt_row_bytes(desc->dtype, desc->n_cols));
        return;
    }
    size_t chunk_bytes = specrt_row_bytes(desc->dtype, 256);
    float values[256];
    for (int64_t done = 0; done < desc->n_cols; done += 256, p += chunk_bytes) {
        int64_t n = desc->n_cols - done < 256 ? desc->n_cols - done : 256;
        specrt_row_decode(desc->dtype, p, n, values);
        for (int64_t j = 0; j < n; j++, out += 2) {
            uint16_t half = specrt__base_to_f16(values[j]);
            memcpy(out, &half, sizeof half);
        }
    }
}
