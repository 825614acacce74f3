/* test_rows.c : every row format against vectors decoded by ggml's own Python package and against a
 * per-element reading of the layouts in double. */
#include "specrt_tools.h"
#include "test.h"

#include <stdbool.h>
#include <stdint.h>

static const specrt_dtype block_types[] = {
    SPECRT_DTYPE_Q4_0, SPECRT_DTYPE_Q4_1, SPECRT_DTYPE_Q5_0, SPECRT_DTYPE_Q5_1,   SPECRT_DTYPE_Q8_0,
    SPECRT_DTYPE_Q4_K, SPECRT_DTYPE_Q5_K, SPECRT_DTYPE_Q6_K, SPECRT_DTYPE_IQ4_NL,
};
enum { N_BLOCK_TYPES = sizeof block_types / sizeof *block_types };

static uint32_t random_bits(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* --- the oracle: one element at a time --- */

static double half_value(unsigned bits) {
    int exponent = (int)(bits >> 10 & 31), fraction = (int)(bits & 1023);
    double sign = bits >> 15 ? -1 : 1;
    if (exponent == 31) return fraction ? (double)NAN : sign * (double)INFINITY;
    if (exponent == 0) return sign * ldexp(fraction, -24);
    return sign * ldexp(1024 + fraction, exponent - 25);
}

static double half_at(const uint8_t *p) {
    return half_value((unsigned)(p[0] | p[1] << 8));
}

static int nibble(const uint8_t *p, int i, int n) {
    return i < n ? p[i] & 15 : p[i - n] >> 4;
}

static int bit(const uint8_t *p, int i) {
    return p[i / 8] >> (i % 8) & 1;
}

static int k_scale(const uint8_t *s, int j) {
    return j < 4 ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
}

static int k_min(const uint8_t *s, int j) {
    return j < 4 ? s[j + 4] & 63 : (s[j + 4] >> 4) | (s[j] >> 6) << 4;
}

static double k_element(const uint8_t *b, const uint8_t *low, const uint8_t *high, int i) {
    int chunk = i / 64, group = i / 32, n = nibble(low + 32 * chunk, i % 64, 32);
    if (high) n += 16 * (high[i % 32] >> group & 1);
    return half_at(b) * k_scale(b + 4, group) * n - half_at(b + 2) * k_min(b + 4, group);
}

static double q6_element(const uint8_t *b, int i) {
    int half = i / 128, in_half = i % 128, l = in_half % 32, run = in_half / 32;
    const uint8_t *low = b + 64 * half, *high = b + 128 + 32 * half;
    int n = nibble(low, in_half, 64) + 16 * (high[l] >> 2 * run & 3);
    return half_at(b + 208) * (int8_t)b[192 + 8 * half + l / 16 + 2 * run] * (n - 32);
}

/* Where nibbles point, eight below 0 and eight above: close near 0. */
static double iq4_element(const uint8_t *b, int i) {
    static const int8_t below[8] = {127, 104, 83, 65, 49, 35, 22, 10},
                        above[8] = {1, 13, 25, 38, 53, 69, 89, 113};
    int n = nibble(b + 2, i, 16);
    return half_at(b) * (n < 8 ? -below[n] : above[n - 8]);
}

static double element(specrt_dtype dtype, const uint8_t *b, int i) {
    switch (dtype) {
    case SPECRT_DTYPE_Q4_0: return half_at(b) * (nibble(b + 2, i, 16) - 8);
    case SPECRT_DTYPE_Q4_1: return half_at(b) * nibble(b + 4, i, 16) + half_at(b + 2);
    case SPECRT_DTYPE_Q5_0: return half_at(b) * (nibble(b + 6, i, 16) + 16 * bit(b + 2, i) - 16);
    case SPECRT_DTYPE_Q5_1:
        return half_at(b) * (nibble(b + 8, i, 16) + 16 * bit(b + 4, i)) + half_at(b + 2);
    case SPECRT_DTYPE_Q8_0: return half_at(b) * (int8_t)b[2 + i];
    case SPECRT_DTYPE_Q4_K: return k_element(b, b + 16, NULL, i);
    case SPECRT_DTYPE_Q5_K: return k_element(b, b + 48, b + 16, i);
    case SPECRT_DTYPE_Q6_K: return q6_element(b, i);
    case SPECRT_DTYPE_IQ4_NL: return iq4_element(b, i);
    default: return (double)NAN;
    }
}

/* Elements per block, told apart from the code under test. */
static int block_elems(specrt_dtype dtype) {
    return dtype >= SPECRT_DTYPE_Q4_K && dtype <= SPECRT_DTYPE_Q6_K ? 256 : 32;
}

/* --- cases --- */

TEST(golden, "block formats agree with ggml's Python package") {
    for (int k = 0; k < N_BLOCK_TYPES; k++) {
        specrt_dtype dtype = block_types[k];
        int n = block_elems(dtype) == 32 ? 128 : 512; /* four small blocks or two large */
        size_t row_bytes = specrt_row_bytes(dtype, n);
        uint8_t row[1024];
        float expected[512], found[513];
        char path[64];
        snprintf(path, sizeof path, "tests/golden/rows/%s.bin", specrt_dtype_name(dtype));
        FILE *f = fopen(path, "rb");
        REQUIRE(f);
        CHECK_INT(fread(row, 1, row_bytes, f), row_bytes);
        CHECK_INT(fread(expected, sizeof(float), (size_t)n, f), n);
        CHECK(fgetc(f) == EOF);
        fclose(f);
        found[n] = 7; /* and goes no further */
        CHECK_INT(specrt_row_decode(dtype, row, n, found), SPECRT_STATUS_OK);
        CHECK(found[n] == 7);
        for (int i = 0; i < n; i++)
            CHECK_NEAR(found[i], expected[i], 1e-6 * fabs((double)expected[i]) + 1e-9);
    }
}

/* Random bytes, but scales below 2 in magnitude, so that one tolerance fits all. */
static void random_block(specrt_dtype dtype, uint8_t *block, uint32_t *seed) {
    size_t bytes = specrt_row_bytes(dtype, block_elems(dtype));
    bool two = dtype == SPECRT_DTYPE_Q4_1 || dtype == SPECRT_DTYPE_Q5_1 ||
               dtype == SPECRT_DTYPE_Q4_K || dtype == SPECRT_DTYPE_Q5_K;
    for (size_t i = 0; i < bytes; i++) block[i] = (uint8_t)random_bits(seed);
    block[dtype == SPECRT_DTYPE_Q6_K ? 209 : 1] &= 0xBF;
    if (two) block[3] &= 0xBF;
}

TEST(formulas, "block formats agree with their formulas on random bytes") {
    uint32_t seed = 7;
    for (int k = 0; k < N_BLOCK_TYPES; k++)
        for (int round = 0; round < 500; round++) {
            int n = block_elems(block_types[k]);
            uint8_t block[256];
            float found[256];
            random_block(block_types[k], block, &seed);
            CHECK_INT(specrt_row_decode(block_types[k], block, n, found), SPECRT_STATUS_OK);
            for (int i = 0; i < n; i++) {
                double expected = element(block_types[k], block, i);
                CHECK_NEAR((double)found[i], expected, 1e-3);
            }
        }
}

TEST(halves, "all 65,536 halves and bfloat16 values") {
    for (unsigned bits = 0; bits < 65536; bits++) {
        const uint16_t stored[2] = {(uint16_t)bits, 0};
        float halves[2] = {7, 7}, brains[2] = {7, 7}, half, brain;
        uint32_t found;
        CHECK_INT(specrt_row_decode(SPECRT_DTYPE_F16, stored, 1, halves), SPECRT_STATUS_OK);
        half = halves[0];
        double expected = half_value(bits);
        CHECK(isnan(expected) ? isnan(half) : (double)half == expected);
        CHECK_INT(signbit(half) != 0, bits >> 15);
        CHECK_INT(specrt_row_decode(SPECRT_DTYPE_BF16, stored, 1, brains), SPECRT_STATUS_OK);
        brain = brains[0];
        CHECK(halves[1] == 7 && brains[1] == 7); /* and goes no further */
        memcpy(&found, &brain, sizeof found);
        CHECK_INT(found, bits << 16);
    }
}

TEST(alignment, "rows may start anywhere") {
    const float values[3] = {1.5f, -2.25f, 1e-30f}, halves[3] = {1, -2, 0.5f};
    const uint16_t f16[3] = {0x3c00, 0xc000, 0x3800}, bf16[3] = {0x3f80, 0xc000, 0x3f00};
    uint8_t bytes[sizeof values + 1];
    float found[3];
    memcpy(bytes + 1, values, sizeof values);
    CHECK_INT(specrt_row_decode(SPECRT_DTYPE_F32, bytes + 1, 3, found), SPECRT_STATUS_OK);
    CHECK(memcmp(values, found, sizeof values) == 0);
    memcpy(bytes + 1, f16, sizeof f16);
    CHECK_INT(specrt_row_decode(SPECRT_DTYPE_F16, bytes + 1, 3, found), SPECRT_STATUS_OK);
    CHECK(memcmp(halves, found, sizeof halves) == 0);
    memcpy(bytes + 1, bf16, sizeof bf16);
    CHECK_INT(specrt_row_decode(SPECRT_DTYPE_BF16, bytes + 1, 3, found), SPECRT_STATUS_OK);
    CHECK(memcmp(halves, found, sizeof halves) == 0);
}

TEST(sizes, "bytes of a row, and which rows cannot be") {
    CHECK_INT(specrt_row_bytes(SPECRT_DTYPE_F32, 4096), 16384);
    CHECK_INT(specrt_row_bytes(SPECRT_DTYPE_BF16, 1), 2);
    CHECK_INT(specrt_row_bytes(SPECRT_DTYPE_Q8_0, 4096), 4352);
    CHECK_INT(specrt_row_bytes(SPECRT_DTYPE_Q6_K, 4096), 3360);
    CHECK_INT(specrt_row_bytes(SPECRT_DTYPE_Q6_K, 128), 0);
    CHECK_INT(specrt_row_bytes(SPECRT_DTYPE_F32, 0), 0);
    CHECK_INT(specrt_row_bytes(SPECRT_DTYPE_F32, -4), 0);
    CHECK_INT(specrt_row_bytes(SPECRT_DTYPE_I64, INT64_MAX), 0);
    CHECK_INT(specrt_row_bytes((specrt_dtype)23, 256), 0);
}

TEST(refusals, "integer types, unknown types and broken blocks") {
    float out[32];
    uint8_t row[256] = {0};
    CHECK_INT(specrt_row_decode(SPECRT_DTYPE_I64, row, 1, out), SPECRT_STATUS_UNSUPPORTED);
    CHECK_INT(specrt_row_decode((specrt_dtype)23, row, 256, out), SPECRT_STATUS_UNSUPPORTED);
    CHECK_INT(specrt_row_decode(SPECRT_DTYPE_Q4_0, row, 31, out), SPECRT_STATUS_BAD_ARG);
    CHECK_INT(specrt_row_decode(SPECRT_DTYPE_F16, row, 0, out), SPECRT_STATUS_BAD_ARG);
    CHECK_STR(specrt_dtype_name(SPECRT_DTYPE_Q5_K), "q5_k");
    CHECK(specrt_dtype_name((specrt_dtype)23) == NULL);
}
