/* test_sketch_build.c : the parts of sketch-build against plain loops in double precision, and sections as
 * docs/FORMAT.md describes them. */
#include "starve.h"
#include "states_trace.h"
#include "folder.h"
#include "opened.h"

#include "tools/sketch-build/build.h"

static uint64_t state = 20261125;
static const cli_common quiet = {0};
static const row_clusters none = {0};

typedef struct world {
    float *rows;
    specrt_bundle *bundle;
    uint8_t *bytes;
    row_order order;
} world;

/* Rows [n, d] that are owned, ranked by a bundle where n_ranked > 0. */
static void world_open(world *w, float *rows, int32_t n, int32_t d, int32_t n_ranked, int threads) {
    *w = (world){.rows = rows};
    const specrt_head_desc head = f32_rows(rows, n, d);
    if (n_ranked) {
        size_t n_bytes;
        w->bytes = fixture_ranks_bundle(n_ranked, 5, 20, &n_bytes);
        w->bundle = open_memory(w->bytes, n_bytes);
    }
    REQUIRE(!order_open(&head, w->bundle, threads, &w->order, NULL));
}

static void world_close(world *w) {
    order_free(&w->order);
    specrt_bundle_close(w->bundle);
    free(w->bytes);
    free(w->rows);
}

static float *normal(int64_t n) {
    float *x = (float *)malloc((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = fixture_normal(&state);
    return x;
}

static double dot(const double *a, const float *b, int32_t n) {
    double sum = 0;
    for (int32_t j = 0; j < n; j++) sum += a[j] * (double)b[j];
    return sum;
}

/* ---- the order of rows ---- */

TEST(order, "ranked rows first, weights by count, their mean") {
    enum { N = 1100, D = 8, FORCED = 5 };
    static const int32_t n_ranked[] = {0, 1000, 1200};
    for (int r = 0; r < 3; r++) {
        world w, again;
        double total = 0, weights = 0, mean[D] = {0};
        int32_t place = 0;
        bool seen[N] = {false};
        world_open(&w, normal(N * D), N, D, n_ranked[r], 3);
        for (int32_t i = FORCED; i < n_ranked[r]; i++) total += 1000.0 * (n_ranked[r] - i);
        for (int32_t i = 0; i < n_ranked[r] + N; i++) { /* ranks, then what is left by number */
            int32_t id = i < n_ranked[r] ? (7 * i + 3) % n_ranked[r] : i - n_ranked[r];
            double count = i < n_ranked[r] ? 1000.0 * (n_ranked[r] - i) : 0;
            double weight = total > 0 ? 0.5 + 0.5 * N * count / total : 1;
            if (id >= N || seen[id]) continue;
            seen[id] = true;
            CHECK_INT(w.order.rows[place], id);
            CHECK_NEAR(w.order.weights[place], weight, 1e-6 * weight);
            weights += weight;
            for (int j = 0; j < D; j++) mean[j] += weight * (double)w.rows[id * D + j];
            place++;
        }
        CHECK_INT(place, N);
        for (int j = 0; j < D; j++) CHECK_NEAR(w.order.mean[j], mean[j] / weights, 1e-6);
        float *copy = (float *)malloc(N * D * sizeof *copy);
        memcpy(copy, w.rows, N * D * sizeof *copy);
        world_open(&again, copy, N, D, n_ranked[r], 1);
        CHECK(memcmp(again.order.mean, w.order.mean, D * sizeof(float)) == 0);
        world_close(&again);
        world_close(&w);
    }
}

/* ---- states ---- */

TEST(recorded, "every recorded state once, in any order; a part of them measures") {
    const char *const path[] = {in_folder("early"), in_folder("late")};
    state_set s;
    specrt_error err;
    int n_of[90] = {0};
    for (int i = 0; i < 2; i++) states_trace_write(path[i], i ? 90 : 60, 1);
    static const int32_t asked[] = {20, 24, 25, 100};
    for (int i = 0; i < 4; i++) {
        REQUIRE(!states_from_trace(path[0], 4, asked[i], &s, NULL));
        CHECK_INT(s.n, 48);
        CHECK_INT(s.n_measured, asked[i] < 24 ? asked[i] : 24);
        for (int k = 0; k < 48; k++) CHECK_INT(n_of[(int)s.states[4 * k]]++, i);
        states_free(&s);
    }
    for (int i = 0; i < 60; i++) CHECK_INT(n_of[i], i % 5 == 4 ? 0 : 4);
    REQUIRE(!states_held_out(path[0], path[1], 4, 50, &s, NULL));
    CHECK_INT(s.n_measured, 50);
    CHECK_INT(s.n, 50 + 48);
    int n_late = 0;
    for (int k = 0; k < 98; k++) n_late += s.states[4 * k] >= 60;
    CHECK(n_late > 0);
    for (int k = 50; k < 98; k++) CHECK(s.states[4 * k] < 60);
    states_free(&s);
    CHECK_INT(states_from_trace(path[0], 5, 20, &s, &err), SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "expected 5 columns, those of the head, found 4");
    states_trace_write(path[0], 21, 1);
    CHECK_INT(states_from_trace(path[0], 4, 20, &s, &err), SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "expected 20 or more hidden states of the drafter that differ, found 17");
    states_free(&s);
    states_trace_write(path[0], 60, 0);
    CHECK_INT(states_from_trace(path[0], 4, 20, &s, &err), SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "that differ, found 48, all the same");
    states_free(&s);
    clear_folder();
}

TEST(synthetic, "three rows of one length, and noise of deviation 2") {
    enum { N = 800, D = 64 };
    float *rows = (float *)calloc(4 * D, sizeof *rows);
    double squares[3] = {0};
    world w;
    state_set s;
    rows[0] = 2, rows[D] = -2, rows[2 * D + 1] = 0.5f, rows[3 * D + 1] = -0.5f;
    world_open(&w, rows, 4, D, 0, 1);
    REQUIRE(!states_synthetic(&w.order, N, 1, &s, NULL));
    CHECK_INT(s.n, N);
    CHECK_INT(s.n_measured, N);
    for (int i = 0; i < N * D; i++)
        squares[i % D < 2 ? i % D : 2] += (double)s.states[i] * (double)s.states[i];
    for (int j = 0; j < 2; j++) CHECK_NEAR(squares[j] / N, 3 * D / 2.0 + 4, 12);
    CHECK_NEAR(squares[2] / (N * (D - 2)), 4, 0.1);
    states_free(&s);
    world_close(&w);
}

TEST(truth, "the ten best of 2,100 rows with many equal products, or of fewer than ten") {
    enum { D = 6, STATES = 37 };
    static const int32_t sizes[] = {2100, 7};
    for (int i = 0; i < 2; i++) {
        const int32_t n = sizes[i], k = n < BUILD_K ? n : BUILD_K;
        world w;
        float *rows = (float *)malloc((size_t)n * D * sizeof *rows);
        state_set s = {.n = STATES, .n_measured = STATES, .dim = D};
        s.states = (float *)malloc(STATES * D * sizeof *s.states);
        for (int j = 0; j < n * D; j++) rows[j] = (float)fixture_below(&state, 7) - 3;
        for (int j = 0; j < STATES * D; j++) s.states[j] = (float)fixture_below(&state, 9) - 4;
        world_open(&w, rows, n, D, 1000, 1);
        REQUIRE(!states_truth(&s, &w.order, 2, NULL));
        for (int q = 0; q < STATES; q++) {
            double *scores = (double *)calloc((size_t)n, sizeof *scores);
            for (int j = 0; j < n * D; j++)
                scores[j / D] += (double)(rows[j] * s.states[q * D + j % D]);
            for (int r = 0; r < BUILD_K; r++) {
                int32_t best = INT32_MAX;
                for (int32_t row = 0; row < n && r < k; row++)
                    if (!isnan(scores[row]) && (best == INT32_MAX || scores[row] > scores[best]))
                        best = row;
                CHECK_INT(s.best[q * BUILD_K + r], best);
                if (r == BUILD_K - 1) CHECK(s.least[q] == (k < 10 ? -INFINITY : scores[best]));
                if (r < k) scores[best] = NAN;
            }
            free(scores);
        }
        states_free(&s);
        world_close(&w);
    }
}

/* ---- the basis ---- */

/* Rows and states along the axes, so that moments are diagonal: the directions with the greatest products of
 * both are kept, in this order. */
static void check_axes(bool has_states) {
    enum { D = 300, RANK = 240, N_MEASURED = 3, N = N_MEASURED + 2 * D };
    double of[D], trace = 0;
    float *rows = (float *)calloc(2 * D * D, sizeof *rows);
    world w;
    basis b;
    state_set s = {.n = N, .n_measured = N_MEASURED, .dim = D};
    s.states = (float *)calloc(N * D, sizeof *s.states);
    for (int j = 0; j < N_MEASURED * D; j++) s.states[j] = 1000; /* which do not count */
    for (int j = 0; j < D; j++) {
        float length = 1 + (float)(j * 37 % D) / 100, spread = 1 + (float)(j * 53 % D) / 150;
        of[j] = (double)(length * length);
        trace += (double)(spread * spread);
        if (has_states) of[j] *= (double)(spread * spread);
        for (int sign = 0; sign < 2; sign++) {
            rows[(2 * j + sign) * D + j] = sign ? -length : length;
            for (int i = 0; i < 2 && sign; i++) {
                float *at = s.states + (N_MEASURED + 2 * j + i) * D;
                at[0] = 5; /* the mean */
                at[j] += i ? -spread : spread;
            }
        }
    }
    if (has_states)
        for (int j = 0; j < D; j++) {
            double length = 1 + (j * 37 % D) / 100.0;
            of[j] += 0.001 * trace / D * length * length;
        }
    world_open(&w, rows, 2 * D, D, 0, 1);
    REQUIRE(!basis_make(&w.order, has_states ? &s : NULL, RANK, 2, &quiet, &b, NULL));
    for (int j = 0; j < D; j++) CHECK_NEAR(b.center[j], has_states && j == 0 ? 5 : 0, 1e-3);
    double greatest = 0;
    bool kept[D] = {false};
    for (int k = 0; k < RANK; k++) {
        int axis = 0, n_above = 0;
        for (int j = 1; j < D; j++)
            if (fabsf(b.basis[k * D + j]) > fabsf(b.basis[k * D + axis])) axis = j;
        for (int j = 0; j < D; j++) n_above += of[j] > of[axis] * (1 + 1e-3);
        CHECK(n_above <= k && !kept[axis]);
        kept[axis] = true;
        double first = 0;
        for (int j = 0; j < D; j++) first = fmax(first, of[j]);
        CHECK_NEAR(b.weights[k], of[axis] / first, 1e-3);
        /* A row's number is its part along the axis, and of one size in every direction. */
        CHECK_NEAR(b.unit * b.codes[k * D + axis] * (double)b.basis[k * D + axis], 1, 1e-3);
        for (int j = 0; j < D; j++) greatest = fmax(greatest, fabs((double)b.basis[k * D + j]));
    }
    CHECK_NEAR(greatest, 1, 1e-6);
    basis_free(&b);
    states_free(&s);
    world_close(&w);
}

TEST(axes, "the best directions of diagonal moments") {
    check_axes(false);
    check_axes(true);
}

TEST(full, "with a direction for each column products are exact; directions beyond are zero") {
    enum { N = 200, D = 32, RANK = 240, STATES = 90 };
    for (int has_states = 0; has_states < 2; has_states++) {
        world w;
        basis b;
        state_set s = {.n = STATES, .n_measured = 10, .dim = D, .states = normal(STATES * D)};
        world_open(&w, normal(N * D), N, D, 150, 1);
        for (int i = 0; i < STATES * D; i++) s.states[i] *= (float)(1 + i % D);
        float *h = normal(D);
        REQUIRE(!basis_make(&w.order, has_states ? &s : NULL, RANK, 2, &quiet, &b, NULL));
        for (int i = 0; i < N; i++) {
            double row[D], exact = 0, sum = 0;
            for (int j = 0; j < D; j++) {
                row[j] = (double)w.rows[i * D + j] - (double)w.order.mean[j];
                exact += row[j] * ((double)h[j] - (double)b.center[j]);
            }
            for (int k = 0; k < RANK; k++) {
                double x = 0, z = 0;
                for (int j = 0; j < D; j++) {
                    x += b.codes[k * D + j] * row[j];
                    z += (double)b.basis[k * D + j] * ((double)h[j] - (double)b.center[j]);
                }
                CHECK(k < D || (x == 0 && z == 0 && b.weights[k] == 0));
                sum += b.unit * x * z;
            }
            CHECK_NEAR(sum, exact, 1e-4 * (1 + fabs(exact)));
        }
        free(h);
        basis_free(&b);
        states_free(&s);
        world_close(&w);
    }
}

TEST(nothing_varies, "rows or states that are all alike") {
    enum { N = 40, D = 32 };
    world w;
    basis b;
    specrt_error err;
    float *rows = (float *)calloc(N * D, sizeof *rows);
    for (int i = 0; i < N; i++) rows[i * D] = 1;
    world_open(&w, rows, N, D, 0, 1);
    CHECK_INT(basis_make(&w.order, NULL, 240, 1, &quiet, &b, &err), SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "head: expected rows that differ, found all alike");
    basis_free(&b);
    state_set s = {.n = 30, .n_measured = 10, .dim = D};
    s.states = (float *)calloc(30 * D, sizeof *s.states);
    CHECK_INT(basis_make(&w.order, &s, 240, 1, &quiet, &b, &err), SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "trace: the hidden states span no space");
    basis_free(&b);
    states_free(&s);
    world_close(&w);
}

/* ---- the section, read as docs/FORMAT.md says ---- */

typedef struct section {
    const uint8_t *bytes;
    int32_t n, d, rank, n_signs;
    size_t center, rows, scales, signs, records;
    specrt_dtype dtype;
} section;

static section section_of(const void *bytes) {
    section s = {.bytes = (const uint8_t *)bytes};
    int32_t header[6];
    memcpy(header, bytes, sizeof header);
    s.n = header[0], s.d = header[1], s.rank = header[2], s.n_signs = header[3];
    s.dtype = (specrt_dtype)header[5];
    size_t groups = (size_t)(s.n + 15) / 16;
    s.center = 64 + (size_t)s.rank * specrt_row_bytes(s.dtype, s.d);
    s.center = (s.center + 3) / 4 * 4;
    s.rows = s.center + 4 * (size_t)s.d;
    s.scales = s.rows + 4 * (size_t)s.n;
    s.signs = (s.scales + 32 * groups + 63) / 64 * 64;
    s.records = s.signs + 2 * (size_t)s.n_signs * groups;
    return s;
}

static int sign_of(const section *s, int place, int k) {
    size_t line = (size_t)(place / 16 * (s->n_signs / 32) + k / 32);
    uint8_t byte = s->bytes[s->signs + 64 * line + (size_t)(place % 16 * 4 + k % 32 % 4)];
    return byte >> (k % 32 / 4) & 1 ? 1 : -1;
}

static const uint8_t *record_of(const section *s, int place) {
    return s->bytes + s->records + (size_t)place * (size_t)((s->rank + 16) / 256) * 64;
}

static int pair_of(const section *s, int place, int k) {
    int line = k / 256, width = line == (s->rank + 16) / 256 - 1 ? 60 : 64;
    uint8_t byte = record_of(s, place)[64 * line + k % 256 % width];
    return 2 * (byte >> 2 * (k % 256 / width) & 3) - 3;
}

static double number_of(const section *s, int place, int from_end) {
    const uint8_t *at = record_of(s, place + 1) - from_end;
    uint32_t bits = (uint32_t)at[0] << 16 | (uint32_t)at[1] << 24;
    float x;
    memcpy(&x, &bits, sizeof x);
    return (double)x;
}

static double unit_of(const section *s, size_t at) {
    float x;
    memcpy(&x, s->bytes + at, sizeof x);
    return (double)x;
}

static double preview_scale(const section *s, int place) {
    int e = s->bytes[s->scales + (size_t)place];
    return unit_of(s, 24) * ldexp(1 + e % 8 / 8.0, e / 8 - 31);
}

static double preview_constant(const section *s, int place) {
    size_t groups = (size_t)(s->n + 15) / 16;
    return unit_of(s, 28) * (int8_t)s->bytes[s->scales + 16 * groups + (size_t)place];
}

typedef struct sketched {
    world w;
    state_set states;
    basis b;
    sketch sketch;
    section s;
} sketched;

static void sketched_open(sketched *x, int32_t n, int32_t d, int32_t rank, int32_t n_signs) {
    enum { STATES = 400, MEASURED = 41 };
    x->states = (state_set){.n = STATES, .n_measured = MEASURED, .dim = d};
    x->states.states = normal((int64_t)STATES * d);
    for (int32_t i = 0; i < STATES * d; i++)
        x->states.states[i] = x->states.states[i] * 4 / (float)(4 + i % d) + (float)(i % d == 1);
    world_open(&x->w, normal((int64_t)n * d), n, d, 150, 1);
    REQUIRE(!states_truth(&x->states, &x->w.order, 2, NULL));
    REQUIRE(!basis_make(&x->w.order, &x->states, rank, 2, &quiet, &x->b, NULL));
    REQUIRE(!sketch_make(&x->w.order, &x->b, &none, n_signs, true, 3, &x->sketch, NULL));
    x->s = section_of(x->sketch.bytes);
}

static void sketched_close(sketched *x) {
    sketch_free(&x->sketch);
    basis_free(&x->b);
    states_free(&x->states);
    world_close(&x->w);
}

/* Row `place` in the numbers of the basis. @return its constant. */
static double numbers_of(const sketched *x, int place, double *out) {
    int32_t d = x->s.d;
    double *row = (double *)malloc((size_t)d * sizeof *row);
    const float *stored = x->w.rows + (size_t)x->w.order.rows[place] * (size_t)d;
    for (int32_t j = 0; j < d; j++) row[j] = (double)stored[j] - (double)x->w.order.mean[j];
    for (int32_t k = 0; k < x->s.rank; k++) {
        out[k] = 0;
        for (int32_t j = 0; j < d; j++) out[k] += x->b.codes[k * d + j] * row[j];
    }
    double constant = dot(row, x->b.center, d);
    free(row);
    return constant;
}

/* Signs and pairs of a place are those of its numbers; scales lose least. */
static void check_place(const sketched *x, int place) {
    const section *s = &x->s;
    double numbers[496], along = 0, squares = 0, size = 0, total = 0;
    double constant = numbers_of(x, place, numbers), scale = number_of(s, place, 4) / x->b.unit;
    for (int k = 0; k < s->rank; k++) {
        double ratio = numbers[k] / scale, weight = x->b.weights[k];
        int q = pair_of(s, place, k), nearest = ratio > 2    ? 3
                                                : ratio > 0  ? 1
                                                : ratio > -2 ? -1
                                                             : -3;
        double gap = fmin(fabs(ratio), fabs(fabs(ratio) - 2)); /* to where the pair changes */
        if (gap > 0.02) CHECK_INT(q, nearest);
        if (k < s->n_signs && fabs(numbers[k]) > 1e-6)
            CHECK_INT(sign_of(s, place, k), numbers[k] > 0 ? 1 : -1);
        along += weight * numbers[k] * q;
        squares += weight * q * q;
        size += k < s->n_signs ? weight * fabs(numbers[k]) : 0;
        total += k < s->n_signs ? weight : 0;
    }
    CHECK_NEAR(scale, along / squares, 0.02 * scale);
    CHECK_NEAR(number_of(s, place, 2), constant, fabs(constant) / 200);
    double preview = x->b.unit * size / total;
    CHECK_NEAR(preview_scale(s, place), preview, preview / 15);
    CHECK_NEAR(preview_constant(s, place), constant, 0.51 * unit_of(s, 28));
}

TEST(section, "every bit and scale of a section") {
    static const int32_t shapes[][4] = {{70, 32, 496, 96}, {200, 260, 240, 64}};
    for (int i = 0; i < 2; i++) {
        sketched x;
        sketch again;
        sketched_open(&x, shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3]);
        const section *s = &x.s;
        CHECK_INT(s->n, shapes[i][0]);
        CHECK_INT(s->n_signs, shapes[i][3]);
        CHECK_INT(s->dtype, i ? SPECRT_DTYPE_F16 : SPECRT_DTYPE_Q8_0);
        CHECK_INT(x.sketch.n_bytes, (size_t)(record_of(s, s->n) - s->bytes));
        CHECK(memcmp(s->bytes + s->center, x.b.center, 4 * (size_t)s->d) == 0);
        CHECK(memcmp(s->bytes + s->rows, x.w.order.rows, 4 * (size_t)s->n) == 0);
        float *row = (float *)malloc((size_t)s->d * sizeof *row);
        for (int32_t k = 0; k < s->rank; k++) {
            double most = 0;
            size_t at = 64 + (size_t)k * specrt_row_bytes(s->dtype, s->d);
            specrt_row_decode(s->dtype, s->bytes + at, s->d, row);
            for (int32_t j = 0; j < s->d; j++)
                most = fmax(most, fabs((double)x.b.basis[k * s->d + j]));
            for (int32_t j = 0; j < s->d; j++)
                CHECK_NEAR(row[j], x.b.basis[k * s->d + j], most / 250);
        }
        free(row);
        for (int place = 0; place < s->n; place++) check_place(&x, place);
        for (size_t place = (size_t)s->n; place % 16; place++)
            CHECK_INT(s->bytes[s->scales + place], 0);
        REQUIRE(!sketch_make(&x.w.order, &x.b, &none, s->n_signs, true, 1, &again, NULL));
        CHECK(memcmp(again.bytes, x.sketch.bytes, again.n_bytes) == 0);
        fixture_section part = {
            "sketch",        3, SPECRT_SECTION_DEPENDS_HEAD, x.sketch.bytes, x.sketch.n_bytes,
            x.sketch.n_bytes};
        size_t n_bytes;
        uint8_t *bytes = fixture_bundle(&part, 1, &n_bytes);
        specrt_sketch view;
        specrt_bundle *bundle = open_memory(bytes, n_bytes);
        CHECK_INT(specrt_bundle_sketch(bundle, &view, NULL), SPECRT_STATUS_OK);
        specrt_bundle_close(bundle);
        free(bytes);
        sketch_free(&again);
        sketched_close(&x);
    }
}

/* ---- what a search finds ---- */

/* Scores of all places for a state, whose numbers are rounded to eight bits; by signs or by pairs. */
static void score_all(const sketched *x, const float *h, bool by_pairs, double *out) {
    const section *s = &x->s;
    int32_t width = by_pairs ? s->rank : s->n_signs;
    double z[496], most = 0;
    float *row = (float *)malloc((size_t)s->d * sizeof *row);
    for (int32_t k = 0; k < width; k++) {
        size_t at = 64 + (size_t)k * specrt_row_bytes(s->dtype, s->d);
        specrt_row_decode(s->dtype, s->bytes + at, s->d, row);
        z[k] = 0;
        for (int32_t j = 0; j < s->d; j++)
            z[k] += (double)row[j] * ((double)h[j] - (double)x->b.center[j]);
        most = fmax(most, fabs(z[k]));
    }
    free(row);
    for (int place = 0; place < s->n; place++) {
        double sum = 0;
        for (int32_t k = 0; k < width; k++)
            sum += rint(z[k] / most * 127) * (by_pairs ? pair_of : sign_of)(s, place, k);
        sum *= most / 127;
        out[place] = by_pairs ? number_of(s, place, 4) * sum + number_of(s, place, 2)
                              : preview_scale(s, place) * sum + preview_constant(s, place);
    }
}

static int n_above(const double *scores, int n, int place) {
    int above = 0;
    for (int i = 0; i < n; i++) above += scores[i] > scores[place];
    return above;
}

/* Of the best rows, the first `n_best`: the share that is kept by signs and named by pairs. */
static double share_found(const sketched *x, int n_best, int32_t keep, int32_t rows) {
    int hits = 0;
    double scores[2][300];
    for (int32_t i = 0; i < x->states.n_measured; i++) {
        for (int p = 0; p < 2; p++)
            score_all(x, x->states.states + i * x->states.dim, p, scores[p]);
        for (int b = 0; b < n_best; b++) {
            int place = 0;
            while (x->w.order.rows[place] != x->states.best[i * BUILD_K + b]) place++;
            hits += n_above(scores[0], x->s.n, place) < keep &&
                    n_above(scores[1], x->s.n, place) < rows;
        }
    }
    return hits / (double)(n_best * x->states.n_measured);
}

static void check_recall(const sketched *x, double enough) {
    const size_t row_bytes = 77;
    sketch_recall_table t;
    double least = INFINITY;
    int best_keep = -1, best_rows = -1;
    REQUIRE(!sketch_recall_measure(&x->sketch, &x->states, enough, row_bytes, 2, &t, NULL));
    for (int k = 0; k < t.n_keeps; k++)
        for (int r = 0; r < t.n_rows; r++) {
            double bytes = x->s.n * (x->s.n_signs / 8.0 + 2) + (double)(x->s.center - 64) +
                           t.keeps[k] * (x->s.rank + 16) / 4.0 + 77.0 * t.rows[r];
            CHECK_NEAR(t.bytes[k][r], bytes, 3); /* of what aligns the center */
            if (t.recall[k][r] < enough || t.bytes[k][r] >= least) continue;
            least = t.bytes[k][r];
            best_keep = k, best_rows = r;
        }
    CHECK_INT(t.best_keep, best_keep);
    CHECK_INT(t.best_rows, best_rows);
    for (int k = 0; k < t.n_keeps; k += 2) {
        int r = k / 2 % t.n_rows;
        CHECK_NEAR(t.recall[k][r], share_found(x, BUILD_K, t.keeps[k], t.rows[r]), 0.01);
        CHECK_NEAR(t.recall_best[k][r], share_found(x, 1, t.keeps[k], t.rows[r]), 0.03);
    }
}

static void check_list(const int32_t *found, int n, const char *expected) {
    char text[80] = "";
    for (int i = 0; i < n; i++) sprintf(text + strlen(text), "%d ", (int)found[i]);
    CHECK_STR(text, expected);
}

TEST(recall, "what a search finds, by plain sums") {
    sketched x;
    sketch_recall_table t;
    sketched_open(&x, 300, 40, 240, 64);
    check_recall(&x, 0.7);
    check_recall(&x, 1.1);
    REQUIRE(!sketch_recall_measure(&x.sketch, &x.states, 1, 1, 1, &t, NULL));
    check_list(t.keeps, t.n_keeps, "4 9 18 37 75 150 ");
    check_list(t.rows, t.n_rows, "32 64 128 256 ");
    sketched_close(&x);
    sketched_open(&x, 20, 40, 240, 32);
    REQUIRE(!sketch_recall_measure(&x.sketch, &x.states, 1, 1, 1, &t, NULL));
    check_list(t.keeps, t.n_keeps, "1 2 5 10 ");
    check_list(t.rows, t.n_rows, "20 ");
    sketched_close(&x);
}

/* ---- clusters ---- */

/* Half of the mean square by which scores of a place and of a mean row differ. */
static double distance(const sketched *x, const double *numbers, double constant,
                       const double *mean) {
    double sum = pow(constant - mean[x->s.rank], 2);
    for (int32_t k = 0; k < x->s.rank; k++) sum += x->b.weights[k] * pow(numbers[k] - mean[k], 2);
    return sum / 2;
}

/* Means are those of their rows, rows keep their order, and hardly any row is nearer to another mean. */
static void check_clusters(const sketched *x, const row_clusters *c, const int32_t *was) {
    double numbers[496], mean[497], own = 0, nearest = 0;
    CHECK_INT(c->starts[0], 0);
    CHECK_INT(c->starts[c->n], x->s.n);
    for (int32_t m = 0; m < c->n; m++) {
        const double *stored = c->means + m * (x->s.rank + 1);
        uint32_t n = c->starts[m + 1] - c->starts[m];
        int last = -1;
        memset(mean, 0, sizeof mean);
        REQUIRE(c->starts[m] < c->starts[m + 1]);
        for (uint32_t i = c->starts[m]; i < c->starts[m + 1]; i++) {
            int before = 0;
            double constant = numbers_of(x, (int)i, numbers), least = INFINITY;
            for (int32_t k = 0; k < x->s.rank; k++) mean[k] += numbers[k] / n;
            mean[x->s.rank] += constant / n;
            for (int32_t j = 0; j < c->n; j++)
                least = fmin(least, distance(x, numbers, constant, c->means + j * (x->s.rank + 1)));
            own += distance(x, numbers, constant, stored);
            nearest += least;
            while (was[before] != x->w.order.rows[i]) before++;
            CHECK(before > last);
            last = before;
        }
        for (int32_t k = 0; k <= x->s.rank; k++) /* none in directions that there are not */
            CHECK_NEAR(stored[k], k < x->s.rank && !(x->b.weights[k] > 0) ? 0 : mean[k], 1e-5);
    }
    CHECK(own < 1.02 * nearest);
}

/* The share of a state's best rows in the blocks of its best clusters by records, and their places. */
static void check_probed(const sketched *x, const row_clusters *c) {
    sketch_recall_table t;
    double scores[300 + 12];
    const struct probed_recall *p = &t.probed[1];
    int hits = 0, firsts = 0, places = 0;
    REQUIRE(!sketch_recall_measure(&x->sketch, &x->states, 0.9, 77, 2, &t, NULL));
    CHECK_INT(t.n_probed, 2);
    CHECK_INT(p->clusters, c->n / 4);
    for (int32_t i = 0; i < x->states.n_measured; i++) {
        sketched wider = *x;
        uint8_t seen[304] = {0};
        wider.s.n += c->n;
        score_all(&wider, x->states.states + i * x->states.dim, true, scores);
        for (int32_t m = 0; m < c->n; m++) {
            if (n_above(scores + x->s.n, c->n, m) >= p->clusters) continue;
            for (uint32_t v = c->starts[m] / 16 * 16; v < (c->starts[m + 1] + 15) / 16 * 16; v++)
                seen[v] = 1;
        }
        for (int v = 0; v < 304; v++) places += seen[v];
        for (int v = 0; v < x->s.n; v++)
            for (int b = 0; b < BUILD_K && seen[v]; b++) {
                bool in = x->w.order.rows[v] == x->states.best[i * BUILD_K + b];
                hits += in;
                firsts += b == 0 && in;
            }
    }
    double n = x->states.n_measured;
    CHECK_NEAR(p->recall, hits / (n * BUILD_K), 0.01);
    CHECK_NEAR(p->recall_best, firsts / n, 0.03);
    CHECK_NEAR(p->places, places / n, 2);
    CHECK_NEAR(p->bytes,
               (double)(x->s.center - 64) + c->n * 64 + p->places * (x->s.n_signs / 8.0 + 2), 3);
}

TEST(clusters, "means, order and recall of clusters, by plain sums") {
    sketched x;
    row_clusters c;
    int32_t was[300];
    specrt_sketch_header header;
    sketched_open(&x, 300, 40, 240, 64);
    memcpy(was, x.w.order.rows, sizeof was);
    sketch_free(&x.sketch);
    REQUIRE(!clusters_make(&x.w.order, &x.b, 12, 3, &quiet, &c, NULL));
    REQUIRE(c.n >= 8 && c.n <= 12);
    check_clusters(&x, &c, was);
    REQUIRE(!sketch_make(&x.w.order, &x.b, &c, 64, true, 2, &x.sketch, NULL));
    x.s = section_of(x.sketch.bytes);
    memcpy(&header, x.sketch.bytes, sizeof header);
    CHECK_INT(header.n_clusters, c.n);
    CHECK(memcmp(sketch_starts(&x.sketch.view), c.starts, 4 * ((size_t)c.n + 1)) == 0);
    for (int place = 0; place < x.s.n; place++) check_place(&x, place);
    check_probed(&x, &c);
    clusters_free(&c);
    sketched_close(&x);
}

/* ---- without memory ---- */

static int sketch_all(void *arg) {
    const row_order *o = &((const world *)arg)->order;
    row_order order = {.n = 0};
    state_set states = {.n = 0};
    basis b = {.rank = 0};
    sketch s = {.bytes = NULL};
    sketch_recall_table t;
    row_clusters c = {.n = 0};
    specrt_status status = order_open(&o->head, NULL, 1, &order, NULL);
    if (!status) status = states_synthetic(&order, 60, 1, &states, NULL);
    if (!status) states.n_measured = 20;
    if (!status) status = states_truth(&states, &order, 1, NULL);
    if (!status) status = basis_make(&order, &states, 240, 1, &quiet, &b, NULL);
    if (!status) status = clusters_make(&order, &b, 7, 1, &quiet, &c, NULL);
    if (!status) status = sketch_make(&order, &b, &c, 32, true, 1, &s, NULL);
    if (!status) status = sketch_recall_measure(&s, &states, 1, 1, 1, &t, NULL);
    sketch_free(&s);
    clusters_free(&c);
    basis_free(&b);
    states_free(&states);
    order_free(&order);
    return status;
}

TEST(no_memory, "every allocation that fails") {
    world w;
    world_open(&w, normal(50 * 8), 50, 8, 0, 1);
    test_starve(sketch_all, &w, SPECRT_STATUS_NO_MEMORY);
    world_close(&w);
}

/* ---- advice ---- */

TEST(advice, "what is advised for how many states") {
    static const struct {
        const char *trace;
        int32_t n_states;
        const char *says;
    } rows[] = {{NULL, 0, "record states and give --trace before this drafts"},
                {"t", 199, "once 200 states chose the sketch's directions"},
                {"t", 200, "cograph-build's graph; without it window+sketch:256"}};
    char advice[ADVICE_MOST];
    for (int i = 0; i < 3; i++) {
        const sketch_facts f = {rows[i].trace, rows[i].n_states, 10, 100};
        advice_say(&f, advice);
        CHECK_HAS(advice, rows[i].says);
    }
}
