/* head.h : a bound head: its rows, products with them, copies of them */
#ifndef CORE_HEAD_H
#define CORE_HEAD_H

#include "specrt_block.h"
#include "core/bundle.h"
#include "core/simd.h"

struct specrt_compute {
    const specrt__simd_kernels *kernels;
    specrt_env env;
};

struct specrt_head {
    specrt_compute compute;
    specrt_head_desc desc;     /* row_stride and logit_scale filled in */
    specrt_markov_desc markov; /* the same; what desc.markov points to if it is not NULL */
    int32_t n_ids;             /* every row's id is below it */
    int32_t *row_of; /* [n_ids] -1: none; NULL: each id is its row. Stands behind this struct */
};

/* --- products --- */

/* The tiles of a type: those of f32 where rows are decoded for them. */
static inline int specrt__head_tiles(specrt_dtype dtype) {
    int format = specrt__simd_format(dtype);
    return format < 0 ? SPECRT__SIMD_F32 : format;
}

SPECRT__INTERNAL void specrt__head_products(const specrt__simd_kernels *kernels,
                                            const specrt_segment *s, int32_t begin, int32_t end,
                                            int64_t n_cols, const float *hidden, int32_t n,
                                            float *logits, size_t logits_stride);

/* --- from products to logits: scaled, then capped (specrt_head_desc.logit_scale) --- */

static inline bool specrt__head_is_plain(const specrt_head_desc *desc) {
    return desc->logit_scale == 1 && desc->softcap == 0;
}

static inline double specrt__head_logit(const specrt_head_desc *desc, double product) {
    double x = (double)desc->logit_scale * product, cap = (double)desc->softcap;
    return cap > 0 ? cap * tanh(x / cap) : x;
}

/* How fast a logit grows with its product. */
static inline double specrt__head_slope(const specrt_head_desc *desc, double logit) {
    double cap = (double)desc->softcap, share = cap > 0 ? logit / cap : 0;
    return (double)desc->logit_scale * (1 - share * share);
}

SPECRT__INTERNAL void specrt__head_shape(const specrt_head_desc *desc, int32_t n, float *x);

/* --- binding --- */

static inline const uint8_t *specrt__head_row(const specrt_head_desc *desc, int64_t row) {
    return (const uint8_t *)desc->rows + (size_t)row * desc->row_stride;
}

SPECRT__INTERNAL specrt_status specrt__head_resolve(const char *name, const specrt_head_desc *in,
                                                    specrt_head_desc *out, specrt_error *err);
SPECRT__INTERNAL specrt_status specrt__head_check(const specrt_bundle *bundle,
                                                  const specrt_head_desc *desc, specrt_error *err);

/* The row of a token; -1: it has none. */
static inline int32_t specrt__head_row_of(const specrt_head *head, int32_t id) {
    if (id < 0 || id >= head->n_ids) return -1;
    return head->row_of ? head->row_of[id] : id;
}

/* The type a row has once packed: its own where there are kernels for it, else f16. */
static inline specrt_dtype specrt__head_packed_dtype(const specrt_head *head) {
    return specrt__simd_format(head->desc.dtype) >= 0 ? head->desc.dtype : SPECRT_DTYPE_F16;
}

SPECRT__INTERNAL void specrt__head_fetch(const specrt_head *head, int64_t row);
SPECRT__INTERNAL void specrt__head_pack(const specrt_head *head, int64_t row, uint8_t *out);

#endif
