/* quantise.h : rows of every format, quantised by the plainest rule. After specrt.h. */
#ifndef QUANTISE_H
#define QUANTISE_H

static inline void quantise_half(uint8_t *out, float x) {
    uint16_t half;
    specrt_to_f16(&x, 1, &half);
    memcpy(out, &half, 2);
}

static inline float quantise_absmax(const float *x, int n) {
    float most = 0;
    for (int i = 0; i < n; i++) most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    return most;
}

/* The nearest code of [-limit, limit] for x in steps of d. */
static inline int quantise_code(float x, float d, int limit) {
    long q = d > 0 ? lroundf(x / d) : 0;
    return q > limit ? limit : q < -limit ? -limit : (int)q;
}

static inline void quantise_q8_0(const float *x, uint8_t *out) {
    float d = quantise_absmax(x, 32) / 127;
    quantise_half(out, d);
    for (int i = 0; i < 32; i++) out[2 + i] = (uint8_t)quantise_code(x[i], d, 127);
}

static inline void quantise_q4_0(const float *x, uint8_t *out) {
    float d = quantise_absmax(x, 32) / 7;
    quantise_half(out, d);
    for (int i = 0; i < 16; i++)
        out[2 + i] =
            (uint8_t)((quantise_code(x[i], d, 7) + 8) | (quantise_code(x[i + 16], d, 7) + 8) << 4);
}

/* Sixteen scales of 8 bits, codes of 6 bits in two planes. */
static inline void quantise_q6_k(const float *x, uint8_t *out) {
    float d = quantise_absmax(x, 256) / 31 / 126; /* leaves the largest scale room to round up */
    memset(out, 0, 210);
    quantise_half(out + 208, d);
    for (int i = 0; i < 256; i++) {
        int scale = (int)ceilf(d > 0 ? quantise_absmax(x + i / 16 * 16, 16) / 31 / d : 0);
        int q = quantise_code(x[i], d * (float)scale, 31) + 32, half = i / 128, l = i % 32,
            quarter = i % 128 / 32;
        out[192 + i / 16] = (uint8_t)scale;
        uint8_t *low = out + 64 * half + l + (quarter & 1 ? 32 : 0);
        *low = (uint8_t)(*low | (q & 15) << (quarter < 2 ? 0 : 4));
        out[128 + 32 * half + l] = (uint8_t)(out[128 + 32 * half + l] | (q >> 4) << (2 * quarter));
    }
}

static inline void quantise_row(specrt_dtype dtype, const float *x, int64_t n, uint8_t *out) {
    for (int64_t i = 0; i < n; i++) {
        if (dtype == SPECRT_DTYPE_F32) memcpy(out + 4 * i, &x[i], 4);
        if (dtype == SPECRT_DTYPE_F16) quantise_half(out + 2 * i, x[i]);
        if (dtype == SPECRT_DTYPE_BF16) memcpy(out + 2 * i, (const uint8_t *)&x[i] + 2, 2);
        if (dtype == SPECRT_DTYPE_Q8_0 && i % 32 == 0) quantise_q8_0(x + i, out + 34 * (i / 32));
        if (dtype == SPECRT_DTYPE_Q4_0 && i % 32 == 0) quantise_q4_0(x + i, out + 18 * (i / 32));
        if (dtype == SPECRT_DTYPE_Q6_K && i % 256 == 0) quantise_q6_k(x + i, out + 210 * (i / 256));
    }
}

#endif
