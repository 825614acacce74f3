/* vectors.c : see vectors.h.
 *
 * The products with centroids are nearly all the time of k-means. Rounded to int8 they run four times as
 * fast as in f32 where the CPU multiplies bytes (VNNI), and a row takes a quarter of the memory; which
 * of the close ones is the nearest is decided in f32 afterwards (kmeans.c). */
#include "vectors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF /* a fused product would round otherwise than where there is none */
#endif

/* --- tiles --- */

/* Sums stay in registers only where every index is a constant. */
#define UNROLL _Pragma("GCC unroll 8")

static void tile_plain(const int8_t *const *rows, const void *panel, int32_t n_cols,
                       int32_t *sums) {
    const int16_t *p = panel;
    memset(sums, 0, sizeof *sums * DOT_ROWS * 16);
    for (int32_t j = 0; j < n_cols; j += 2, p += 32)
        for (int r = 0; r < DOT_ROWS; r++)
            for (int c = 0; c < 16; c++)
                sums[16 * r + c] += rows[r][j] * p[2 * c] + rows[r][j + 1] * p[2 * c + 1];
}

#if defined(__x86_64__)

enum { WIDENED = 256 }; /* columns at a time */

/* Two columns a step: pairs of 16-bit products are added in one instruction. */
__attribute__((target("avx2"))) static void tile_avx2(const int8_t *const *rows, const void *panel,
                                                      int32_t n_cols, int32_t *sums) {
    const __m256i *p = panel;
    int16_t wide[DOT_ROWS][WIDENED];
    __m256i acc[DOT_ROWS][2];
    UNROLL for (int r = 0; r < DOT_ROWS; r++) acc[r][0] = acc[r][1] = _mm256_setzero_si256();
    for (int32_t begin = 0; begin < n_cols; begin += WIDENED) {
        int32_t n = n_cols - begin < WIDENED ? n_cols - begin : WIDENED;
        for (int r = 0; r < DOT_ROWS; r++)
            for (int32_t j = 0; j < n; j += 16) {
                __m128i x = _mm_loadu_si128((const __m128i *)(const void *)(rows[r] + begin + j));
                _mm256_storeu_si256((__m256i *)(void *)&wide[r][j], _mm256_cvtepi8_epi16(x));
            }
        for (int32_t j = 0; j < n; j += 2, p += 2) {
            __m256i left = _mm256_loadu_si256(p), right = _mm256_loadu_si256(p + 1);
            UNROLL for (int r = 0; r < DOT_ROWS; r++) {
                int32_t pair;
                memcpy(&pair, &wide[r][j], sizeof pair);
                __m256i x = _mm256_set1_epi32(pair);
                acc[r][0] = _mm256_add_epi32(acc[r][0], _mm256_madd_epi16(x, left));
                acc[r][1] = _mm256_add_epi32(acc[r][1], _mm256_madd_epi16(x, right));
            }
        }
    }
    UNROLL for (int r = 0; r < DOT_ROWS; r++) UNROLL for (int c = 0; c < 2; c++)
        _mm256_storeu_si256((__m256i *)(void *)(sums + 16 * r + 8 * c), acc[r][c]);
}

/* Four columns a step. */
__attribute__((target("avx512f,avx512bw,avx512vnni"))) static void
tile_vnni(const int8_t *const *rows, const void *panel, int32_t n_cols, int32_t *sums) {
    const uint8_t *p = panel;
    __m512i acc[DOT_ROWS][4];
    UNROLL for (int r = 0; r < DOT_ROWS; r++) UNROLL for (int c = 0; c < 4; c++) acc[r][c] =
        _mm512_setzero_si512();
    for (int32_t j = 0; j < n_cols; j += 4, p += 256) {
        __m512i b0 = _mm512_loadu_si512(p), b1 = _mm512_loadu_si512(p + 64);
        __m512i b2 = _mm512_loadu_si512(p + 128), b3 = _mm512_loadu_si512(p + 192);
        UNROLL for (int r = 0; r < DOT_ROWS; r++) {
            int32_t four;
            memcpy(&four, rows[r] + j, sizeof four);
            __m512i x = _mm512_set1_epi32(four);
            acc[r][0] = _mm512_dpbusd_epi32(acc[r][0], b0, x);
            acc[r][1] = _mm512_dpbusd_epi32(acc[r][1], b1, x);
            acc[r][2] = _mm512_dpbusd_epi32(acc[r][2], b2, x);
            acc[r][3] = _mm512_dpbusd_epi32(acc[r][3], b3, x);
        }
    }
    UNROLL for (int r = 0; r < DOT_ROWS; r++) UNROLL for (int c = 0; c < 4; c++)
        _mm512_storeu_si512(sums + 64 * r + 16 * c, acc[r][c]);
}

static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2");
}

static bool has_vnni(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vnni");
}

#endif

static bool has_plain(void) {
    return true;
}

const dot_kernels *dot_choose(const char *name) {
    static const struct {
        dot_kernels kernels;
        bool (*here)(void);
    } all[] = {
#if defined(__x86_64__)
        {{"vnni", 64, 1, tile_vnni}, has_vnni},
        {{"avx2", 16, 2, tile_avx2}, has_avx2},
#endif
        {{"plain", 16, 2, tile_plain}, has_plain},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if ((!name || strcmp(name, all[i].kernels.name) == 0) && all[i].here())
            return &all[i].kernels;
    return NULL;
}

typedef float lanes __attribute__((vector_size(64), aligned(4)));

CLONES float dot_f32(const float *a, const float *b, int32_t n) {
    lanes sums[2] = {{0}, {0}}, x, y;
    int32_t i = 0;
    for (; i + 32 <= n; i += 32)
        for (int k = 0; k < 2; k++) {
            memcpy(&x, a + i + 16 * k, sizeof x);
            memcpy(&y, b + i + 16 * k, sizeof y);
            sums[k] += x * y;
        }
    float out = 0;
    sums[0] += sums[1];
    for (; i < n; i++) out += a[i] * b[i];
    for (int half = 8; half; half /= 2)
        for (int k = 0; k < half; k++) sums[0][k] += sums[0][k + half];
    return out + sums[0][0];
}

/* --- rows --- */

bool unit_rows_create(unit_rows *u, int32_t n, int32_t n_cols) {
    size_t m = (size_t)(n > 0 ? n : 1);
    *u = (unit_rows){.n = n, .n_cols = n_cols};
    u->stride = (n_cols + DOT_PAD - 1) / DOT_PAD * DOT_PAD;
    u->q = sl_array(&u->owned, m, (size_t)u->stride);
    u->scales = sl_array(&u->owned, m, sizeof *u->scales);
    u->residuals = sl_array(&u->owned, m, sizeof *u->residuals);
    u->sums = sl_array(&u->owned, m, sizeof *u->sums);
    if (!u->owned.failed) return true;
    unit_rows_free(u);
    return false;
}

void unit_rows_free(unit_rows *u) {
    sl_arrays_free(&u->owned);
    *u = (unit_rows){0};
}

void unit_rows_set(unit_rows *u, int32_t i, const float *x, float inverse) {
    int8_t *q = u->q + (size_t)i * (size_t)u->stride;
    float most = 0;
    double residual = 0;
    int32_t sum = 0;
    for (int32_t j = 0; j < u->n_cols; j++) most = fmaxf(most, fabsf(x[j]));
    float step = most > 0 ? most / 127 : 1, per_step = 1 / step;
    for (int32_t j = 0; j < u->n_cols; j++) {
        float steps = rintf(x[j] * per_step), off = x[j] - steps * step;
        q[j] = (int8_t)steps;
        sum += q[j];
        residual += (double)off * off;
    }
    u->scales[i] = step * inverse;
    u->residuals[i] = (float)sqrt(residual) * inverse;
    u->sums[i] = sum;
}

/* --- centroids --- */

int32_t panels_width(const panels *p) {
    return p->n_panels * p->kernels->width;
}

bool panels_create(panels *p, int32_t n, int32_t n_cols, const dot_kernels *kernels) {
    *p = (panels){.kernels = kernels, .n = n, .n_cols = (n_cols + DOT_PAD - 1) / DOT_PAD * DOT_PAD};
    p->n_panels = (n + kernels->width - 1) / kernels->width;
    p->panel_bytes = (size_t)p->n_cols * (size_t)(kernels->width * kernels->elem_bytes);
    if (posix_memalign(&p->bytes, 64, p->panel_bytes * (size_t)p->n_panels)) p->bytes = NULL;
    p->scales = malloc((size_t)panels_width(p) * sizeof *p->scales);
    if (p->bytes && p->scales) return true;
    panels_free(p);
    return false;
}

void panels_free(panels *p) {
    free(p->bytes);
    free(p->scales);
    *p = (panels){0};
}

/* Row i goes to lane i % width of panel i / width, a group of columns at a time. */
static void fill_lane(const panels *p, int32_t i, const int8_t *q) {
    int width = p->kernels->width, bytes = p->kernels->elem_bytes, group = 4 / bytes;
    uint8_t *lane = (uint8_t *)p->bytes + (size_t)(i / width) * p->panel_bytes + 4 * (i % width);
    for (int32_t j = 0; j < p->n_cols; j += group, lane += 4 * width)
        for (int k = 0; k < group; k++) {
            int16_t value = q ? q[j + k] : 0;
            if (bytes == 1)
                lane[k] = (uint8_t)(value + 128);
            else
                memcpy(lane + 2 * k, &value, sizeof value);
        }
}

void panels_fill(panels *p, const unit_rows *u) {
    p->n = u->n;
    p->n_panels = (u->n + p->kernels->width - 1) / p->kernels->width;
    p->residual = 0;
    for (int32_t i = 0; i < panels_width(p); i++) {
        bool is = i < u->n;
        fill_lane(p, i, is ? u->q + (size_t)i * (size_t)u->stride : NULL);
        p->scales[i] = is ? u->scales[i] : 0;
        if (is) p->residual = fmaxf(p->residual, u->residuals[i]);
    }
}

/* Sums of one row with one panel to similarities. */
CLONES static void to_floats(const int32_t *sums, int32_t offset, float scale, const float *scales,
                             int width, float *out) {
    for (int c = 0; c < width; c++) out[c] = (float)(sums[c] - offset) * (scale * scales[c]);
}

static void panel_similarities(const panels *p, int32_t panel, const unit_rows *rows, int32_t begin,
                               int32_t end, float *out) {
    int width = p->kernels->width;
    const uint8_t *bytes = (const uint8_t *)p->bytes + (size_t)panel * p->panel_bytes;
    int32_t sums[DOT_ROWS * DOT_MAX_WIDTH];
    for (int32_t i = begin; i < end; i += DOT_ROWS) {
        const int8_t *tile[DOT_ROWS];
        for (int r = 0; r < DOT_ROWS; r++)
            tile[r] = rows->q + (size_t)(i + r < end ? i + r : end - 1) * (size_t)rows->stride;
        p->kernels->tile(tile, bytes, p->n_cols, sums);
        for (int r = 0; r < DOT_ROWS && i + r < end; r++)
            to_floats(sums + r * width, p->kernels->elem_bytes == 1 ? 128 * rows->sums[i + r] : 0,
                      rows->scales[i + r], p->scales + panel * width, width,
                      out + (size_t)(i + r - begin) * (size_t)panels_width(p) + panel * width);
    }
}

void panels_similarities(const panels *p, const unit_rows *rows, int32_t begin, int32_t end,
                         float *out) {
    for (int32_t panel = 0; panel < p->n_panels; panel++)
        panel_similarities(p, panel, rows, begin, end, out);
    for (int32_t i = 0; i < end - begin; i++)
        for (int32_t c = p->n; c < panels_width(p); c++)
            out[(size_t)i * (size_t)panels_width(p) + (size_t)c] = -INFINITY;
}

float panels_noise(const panels *p, const unit_rows *rows, int32_t i) {
    float x = rows->residuals[i], c = p->residual;
    return 6 * sqrtf(2 * (x * x + c * c) / (float)rows->n_cols);
}
