/* rows.c : owns the formats a weight row can be stored in: names, sizes, decoding to f32.
 * Refuses integer and unknown types. Rows may have any alignment. */
#include "core/rows.h"
#include "core/base.h"

SPECRT_API const char *specrt_dtype_name(specrt_dtype dtype) {
    switch (dtype) {
#define SPECRT_DTYPE_CASE(name, number, elems, bytes, text)                                        \
    case SPECRT_DTYPE_##name: return text;
        SPECRT_DTYPE_LIST(SPECRT_DTYPE_CASE)
#undef SPECRT_DTYPE_CASE
    default: return NULL;
    }
}

/* Elements and bytes of a block; false for types not in the list. */
static bool specrt__rows_block(specrt_dtype dtype, int64_t *n_elems, int64_t *n_bytes) {
    switch (dtype) {
#define SPECRT_DTYPE_CASE(name, number, elems, bytes, text)                                        \
    case SPECRT_DTYPE_##name: *n_elems = elems, *n_bytes = bytes; return true;
        SPECRT_DTYPE_LIST(SPECRT_DTYPE_CASE)
#undef SPECRT_DTYPE_CASE
    default: return false;
    }
}

SPECRT_API size_t specrt_row_bytes(specrt_dtype dtype, int64_t n_cols) {
    int64_t n_elems, n_bytes;
    if (!specrt__rows_block(dtype, &n_elems, &n_bytes)) return 0;
    if (n_cols % n_elems != 0) return 0;
    if ((uint64_t)(n_cols / n_elems) > (uint64_t)PTRDIFF_MAX / (uint64_t)n_bytes) return 0;
    return (size_t)(n_cols / n_elems * n_bytes);
}

/* ---- one block each: bytes in ggml's layout to f32 -------------------------------------------- */

static void specrt__rows_q4_0(const uint8_t *block, float *out) {
    float d = specrt__base_f16(specrt__base_load16(block));
    for (int i = 0; i < 16; i++) {
        out[i] = d * (float)((block[2 + i] & 15) - 8);
        out[16 + i] = d * (float)((block[2 + i] >> 4) - 8);
    }
}

static void specrt__rows_q4_1(const uint8_t *block, float *out) {
    float d = specrt__base_f16(specrt__base_load16(block));
    float m = specrt__base_f16(specrt__base_load16(block + 2));
    for (int i = 0; i < 16; i++) {
        out[i] = d * (float)(block[4 + i] & 15) + m;
        out[16 + i] = d * (float)(block[4 + i] >> 4) + m;
    }
}

SPECRT__INTERNAL const int8_t specrt__rows_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                         1,    13,   25,  38,  53,  69,  89,  113};

static void specrt__rows_iq4_nl(const uint8_t *block, float *out) {
    float d = specrt__base_f16(specrt__base_load16(block));
    for (int i = 0; i < 16; i++) {
        out[i] = d * (float)specrt__rows_levels[block[2 + i] & 15];
        out[16 + i] = d * (float)specrt__rows_levels[block[2 + i] >> 4];
    }
}

/* Element i of 32 with its fifth bit, which is bit i of `high`. */
static inline int specrt__rows_five_bits(const uint8_t *low, uint32_t high, int i) {
    int nibble = i < 16 ? low[i] & 15 : low[i - 16] >> 4;
    return nibble | (int)(high >> i & 1u) << 4;
}

static void specrt__rows_q5_0(const uint8_t *block, float *out) {
    float d = specrt__base_f16(specrt__base_load16(block));
    uint32_t high = specrt__base_load32(block + 2);
    for (int i = 0; i < 32; i++)
        out[i] = d * (float)(specrt__rows_five_bits(block + 6, high, i) - 16);
}

static void specrt__rows_q5_1(const uint8_t *block, float *out) {
    float d = specrt__base_f16(specrt__base_load16(block));
    float m = specrt__base_f16(specrt__base_load16(block + 2));
    uint32_t high = specrt__base_load32(block + 4);
    for (int i = 0; i < 32; i++) out[i] = d * (float)specrt__rows_five_bits(block + 8, high, i) + m;
}

static void specrt__rows_q8_0(const uint8_t *block, float *out) {
    float d = specrt__base_f16(specrt__base_load16(block));
    for (int i = 0; i < 32; i++) out[i] = d * (float)(int8_t)block[2 + i];
}

/* q4_k and q5_k: f16 d, f16 dmin, then eight 6-bit scales and eight 6-bit minima in 12 bytes. Group j
 * of 32 elements takes nibble j % 2 of the bytes at low + 32 * (j / 2), and bit j of high[0..31]. */
static void specrt__rows_k_groups(const uint8_t *block, const uint8_t *low, const uint8_t *high,
                                  float *out) {
    float d = specrt__base_f16(specrt__base_load16(block));
    float dmin = specrt__base_f16(specrt__base_load16(block + 2));
    const uint8_t *s = block + 4;
    for (int j = 0; j < 8; j++) {
        int scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | s[j - 4] >> 6 << 4;
        int min = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | s[j] >> 6 << 4;
        float ds = d * (float)scale, dm = dmin * (float)min;
        const uint8_t *q = low + 32 * (j / 2);
        for (int i = 0; i < 32; i++) {
            int n = (q[i] >> 4 * (j % 2) & 15) | (high[i] >> j & 1) << 4;
            out[32 * j + i] = ds * (float)n - dm;
        }
    }
}

static void specrt__rows_q4_k(const uint8_t *block, float *out) {
    static const uint8_t no_high_bits[32] = {0};
    specrt__rows_k_groups(block, block + 16, no_high_bits, out);
}

static void specrt__rows_q5_k(const uint8_t *block, float *out) {
    specrt__rows_k_groups(block, block + 48, block + 16, out);
}

/* q6_k: 128 bytes of low nibbles, 64 of bit pairs, 16 int8 scales, then f16 d. Each half of the block
 * is four runs of 32 elements that share the bytes of the bit pairs. */
static void specrt__rows_q6_k(const uint8_t *block, float *out) {
    float d = specrt__base_f16(specrt__base_load16(block + 208));
    for (int half = 0; half < 2; half++) {
        const uint8_t *high = block + 128 + 32 * half;
        for (int run = 0; run < 4; run++) {
            const uint8_t *low = block + 64 * half + 32 * (run % 2);
            const uint8_t *scales = block + 192 + 8 * half + 2 * run;
            for (int i = 0; i < 32; i++) {
                int n = (low[i] >> 4 * (run / 2) & 15) | (high[i] >> 2 * run & 3) << 4;
                *out++ = d * (float)(int8_t)scales[i / 16] * (float)(n - 32);
            }
        }
    }
}

typedef void (*specrt__rows_decoder)(const uint8_t *block, float *out);

/* NULL for types that are not stored in blocks. */
static specrt__rows_decoder specrt__rows_find_decoder(specrt_dtype dtype) {
    switch (dtype) {
    case SPECRT_DTYPE_Q4_0: return specrt__rows_q4_0;
    case SPECRT_DTYPE_Q4_1: return specrt__rows_q4_1;
    case SPECRT_DTYPE_Q5_0: return specrt__rows_q5_0;
    case SPECRT_DTYPE_Q5_1: return specrt__rows_q5_1;
    case SPECRT_DTYPE_Q8_0: return specrt__rows_q8_0;
    case SPECRT_DTYPE_Q4_K: return specrt__rows_q4_k;
    case SPECRT_DTYPE_Q5_K: return specrt__rows_q5_k;
    case SPECRT_DTYPE_Q6_K: return specrt__rows_q6_k;
    case SPECRT_DTYPE_IQ4_NL: return specrt__rows_iq4_nl;
    default: return NULL;
    }
}

SPECRT__INTERNAL void specrt__rows_decode_blocks(specrt_dtype dtype, const uint8_t *row,
                                                 int64_t n_cols, float *out) {
    specrt__rows_decoder decode = specrt__rows_find_decoder(dtype);
    int64_t n_elems = 1, n_bytes = 0;
    specrt__rows_block(dtype, &n_elems, &n_bytes);
    for (int64_t i = 0; i < n_cols; i += n_elems, row += n_bytes) decode(row, out + i);
}

SPECRT_API specrt_status specrt_row_decode(specrt_dtype dtype, const void *row, int64_t n_cols,
                                           float *out) {
    const uint8_t *p = (const uint8_t *)row;
    bool blocks = specrt__rows_find_decoder(dtype) != NULL;
    if (!row || !out) return SPECRT_STATUS_BAD_ARG;
    if (!blocks && dtype != SPECRT_DTYPE_F32 && dtype != SPECRT_DTYPE_F16 &&
        dtype != SPECRT_DTYPE_BF16)
        return SPECRT_STATUS_UNSUPPORTED;
    size_t bytes = specrt_row_bytes(dtype, n_cols);
    if (bytes == 0) return SPECRT_STATUS_BAD_ARG;
    if (blocks)
        specrt__rows_decode_blocks(dtype, p, n_cols, out);
    else if (dtype == SPECRT_DTYPE_F32)
        memcpy(out, p, bytes);
    else if (dtype == SPECRT_DTYPE_F16)
        for (int64_t i = 0; i < n_cols; i++)
            out[i] = specrt__base_f16(specrt__base_load16(p + 2 * i));
    else
        for (int64_t i = 0; i < n_cols; i++)
            out[i] = specrt__base_bf16(specrt__base_load16(p + 2 * i));
    return SPECRT_STATUS_OK;
}

SPECRT_API void specrt_to_f16(const float *x, int64_t n, uint16_t *out) {
    for (int64_t i = 0; x && out && i < n; i++) out[i] = specrt__base_to_f16(x[i]);
}
