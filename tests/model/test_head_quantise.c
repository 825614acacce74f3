/* test_head_quantise.c : rows in q8_0, q4_0 and q4_1 are the bytes that gguf-py 0.19.0 writes, those in
 * iq4_nl ggml's, and decode to what they were made from. */
#include "model/head_quantise.h"
#include "test.h"

enum { N_COLS = 96, N_ROWS = 5 };
static specrt_error err;

/* Ties, a block of small numbers with one large one, and a block of zeros. */
static void fill_row(float x[N_COLS]) {
    for (int j = 0; j < N_COLS; j++) {
        x[j] = (float)(j * 37 % 64 - 31) / 16;
        if (j >= 32) x[j] *= 0.001F;
        if (j == 40) x[j] *= -5;
        if (j >= 64) x[j] = 0;
    }
}

static void check_bytes(specrt_dtype dtype, const char *hex) {
    float x[N_COLS];
    uint8_t row[3 * 34];
    char found[2 * sizeof row + 1] = "";
    size_t bytes = specrt_row_bytes(dtype, N_COLS);
    fill_row(x);
    sl_quantise_row(dtype, x, N_COLS, row);
    for (size_t i = 0; i < bytes; i++) snprintf(found + 2 * i, 3, "%02x", row[i]);
    CHECK_STR(found, hex);
}

TEST(bytes, "rows are ggml's, bit for bit") {
    check_bytes(SPECRT_DTYPE_Q8_0,
                "08248518ad40d467fc9124b94be073089d30c457ec7f14a93cd063f88d20b547dc6f"
                "b50301e30cee17f922047f0ff21bfddf08ea13f51e00e20bed16f82103e50ef119fc"
                "00000000000000000000000000000000000000000000000000000000000000000000");
    check_bytes(SPECRT_DTYPE_Q4_0, "00b4cf379d047be248bf269df36ad148ae15"
                                   "5c93789a6789a7789678806789a6789a6889"
                                   "008088888888888888888888888888888888");
    check_bytes(SPECRT_DTYPE_Q4_1, "3334c0bf40d962fb952eb751da730c953ec851ea"
                                   "f310ae9753206431054216542f65321643205431"
                                   "0000000000000000000000000000000000000000");
    check_bytes(SPECRT_DTYPE_IQ4_NL, "28a4cf26ae036be138cf159df35ad137be14"
                                     "b583689a5789a6789568905789a6789b678a"
                                     "000088888888888888888888888888888888");
}

static float noise(uint32_t *state) {
    *state = *state * 1664525U + 1013904223U;
    return (float)(int32_t)*state / 2147483648.0F;
}

/* Steps of half the scale in 8 bits; in 4 a whole one, where the positive end is cut. */
static void check_near(specrt_dtype dtype, double steps, double levels) {
    float x[N_ROWS * N_COLS], back[N_COLS];
    uint32_t state = 7;
    uint8_t *rows;
    specrt_head_desc out, in = {.rows = x,
                                .dtype = SPECRT_DTYPE_F32,
                                .n_rows = N_ROWS,
                                .n_cols = N_COLS,
                                .logit_scale = 3};
    for (int i = 0; i < N_ROWS * N_COLS; i++) x[i] = noise(&state) * (float)(1 + i % 7);
    REQUIRE(sl_head_quantise(&in, dtype, &out, &rows, &err) == SPECRT_STATUS_OK);
    CHECK(out.dtype == dtype && out.rows == rows && out.n_rows == N_ROWS && out.logit_scale == 3);
    for (int i = 0; i < N_ROWS; i++) {
        specrt_row_decode(dtype, rows + (size_t)i * out.row_stride, N_COLS, back);
        for (int j = 0; j < N_COLS; j++) {
            double most = 0;
            for (int k = j / 32 * 32; k < j / 32 * 32 + 32; k++)
                most = fmax(most, fabs((double)x[i * N_COLS + k]));
            CHECK(fabs((double)back[j] - (double)x[i * N_COLS + j]) <=
                  1.01 * steps * most / levels);
        }
    }
    free(rows);
}

TEST(near, "what they decode to is within a step") {
    check_near(SPECRT_DTYPE_Q8_0, 0.57, 127); /* with the rounding of its scale */
    check_near(SPECRT_DTYPE_Q4_0, 1, 8);
    check_near(SPECRT_DTYPE_IQ4_NL, 1, 8);
    check_near(SPECRT_DTYPE_Q4_1, 0.52, 7.5); /* of twice the largest weight at most */
}

TEST(again, "rows with a stride, of a block format, once more: the scale is found again") {
    float x[N_COLS];
    uint8_t stored[2][128], *rows;
    specrt_head_desc out, in = {.rows = stored,
                                .dtype = SPECRT_DTYPE_Q4_0,
                                .n_rows = 2,
                                .n_cols = N_COLS,
                                .row_stride = sizeof *stored};
    fill_row(x);
    sl_quantise_row(SPECRT_DTYPE_Q4_0, x, N_COLS, stored[0]);
    for (int j = 0; j < N_COLS; j++) x[j] = -x[j];
    sl_quantise_row(SPECRT_DTYPE_Q4_0, x, N_COLS, stored[1]);
    REQUIRE(sl_head_quantise(&in, SPECRT_DTYPE_Q4_0, &out, &rows, &err) == SPECRT_STATUS_OK);
    CHECK_INT(out.row_stride, 54);
    CHECK(memcmp(rows, stored[0], 54) == 0 && memcmp(rows + 54, stored[1], 54) == 0);
    free(rows);
}

TEST(refused, "other types, widths and weights are refused") {
    float x[2 * 32] = {0};
    uint8_t *rows;
    specrt_head_desc out, in = {.rows = x, .dtype = SPECRT_DTYPE_F32, .n_rows = 2, .n_cols = 32};
    CHECK_INT(sl_head_quantise(&in, SPECRT_DTYPE_Q6_K, &out, &rows, &err),
              SPECRT_STATUS_UNSUPPORTED);
    CHECK_HAS(err.msg, "type q6_k: expected q8_0, q4_0, q4_1 or iq4_nl");
    x[33] = NAN;
    CHECK_INT(sl_head_quantise(&in, SPECRT_DTYPE_Q4_0, &out, &rows, &err), SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "head: row 1: expected weights up to 65504, found");
    CHECK(rows == NULL);
    x[33] = 1e-42F; /* its scale has no inverse */
    REQUIRE(sl_head_quantise(&in, SPECRT_DTYPE_Q8_0, &out, &rows, &err) == SPECRT_STATUS_OK);
    for (int i = 0; i < 2 * 34; i++) CHECK_INT(rows[i], 0);
    free(rows);
    in.n_cols = 31;
    CHECK_INT(sl_head_quantise(&in, SPECRT_DTYPE_Q8_0, &out, &rows, &err),
              SPECRT_STATUS_UNSUPPORTED);
    CHECK_HAS(err.msg, "multiple of 32 columns for q8_0, found 31");
    CHECK(rows == NULL);
}
