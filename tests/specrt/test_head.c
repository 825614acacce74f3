/* test_head.c : the digest of a head, and binding. */
#include "specrt_tools.h"
#include "core/head.h"
#include "core/simd.h"
#include "quantise.h"
#include "opened.h"

#include "formats/gguf.h"

/* A head of n_rows by n_cols in a format, from f32 values. */
static uint8_t *head_rows(specrt_dtype dtype, const float *values, int64_t n_rows, int64_t n_cols) {
    size_t row_bytes = specrt_row_bytes(dtype, n_cols);
    uint8_t *rows = (uint8_t *)malloc(row_bytes * (size_t)n_rows);
    for (int64_t r = 0; r < n_rows; r++)
        quantise_row(dtype, values + r * n_cols, n_cols, rows + (size_t)r * row_bytes);
    return rows;
}

static float *random_values(size_t n, uint64_t seed) {
    float *x = (float *)malloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = fixture_normal(&seed);
    return x;
}

static const specrt_dtype formats[] = {SPECRT_DTYPE_F32, SPECRT_DTYPE_F16, SPECRT_DTYPE_BF16,
                                       SPECRT_DTYPE_Q8_0};

/* --- the digest --- */

/* docs/FORMAT.md once more, over decoded rows, as somebody else would write it. */
static void digest_by_the_page(const float *values, int64_t n_rows, int64_t n_cols,
                               specrt_digest *out) {
    for (int i = 0; i < 64; i++)
        for (int p = 0; p < 4; p++) {
            const float *row = values + (2 * i + 1) * n_rows / 128 * n_cols;
            double sum = 0;
            for (int64_t j = 0; j < n_cols; j++) {
                uint64_t z = ((uint64_t)j + 1) * 0x9E3779B97F4A7C15u;
                z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
                z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
                z = z ^ (z >> 31);
                sum += (z >> p & 1 ? -1.0 : 1.0) * row[j];
            }
            out->values[i][p] = (float)(sum / sqrt((double)n_cols));
        }
}

TEST(digest, "the digest as docs/FORMAT.md describes it") {
    const int64_t sizes[][2] = {{1, 1}, {5, 40}, {64, 256}, {1000, 257}, {300, 700}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        int64_t n_rows = sizes[i][0], n_cols = sizes[i][1];
        float *values = random_values((size_t)(n_rows * n_cols), i + 1);
        specrt_head_desc desc = f32_rows(values, n_rows, n_cols);
        specrt_digest got, expected;
        CHECK_INT(specrt_head_digest(&desc, &got, NULL), SPECRT_STATUS_OK);
        digest_by_the_page(values, n_rows, n_cols, &expected);
        CHECK(memcmp(&got, &expected, sizeof got) == 0);
        CHECK(specrt_digest_distance(&got, &expected) == 0);
        free(values);
    }
}

static float distance(specrt_dtype dtype, const float *values, const float *other, int64_t n_rows,
                      int64_t n_cols) {
    uint8_t *rows = head_rows(dtype, other, n_rows, n_cols);
    specrt_head_desc a = f32_rows(values, n_rows, n_cols);
    specrt_head_desc b = {.rows = rows, .dtype = dtype, .n_rows = n_rows, .n_cols = n_cols};
    specrt_digest sa, sb;
    CHECK_INT(specrt_head_digest(&a, &sa, NULL), SPECRT_STATUS_OK);
    CHECK_INT(specrt_head_digest(&b, &sb, NULL), SPECRT_STATUS_OK);
    free(rows);
    CHECK(specrt_digest_distance(&sa, &sb) == specrt_digest_distance(&sb, &sa));
    return specrt_digest_distance(&sa, &sb);
}

TEST(distance, "quantisations are near, other heads far") {
    enum { N_ROWS = 700, N_COLS = 256 };
    for (int mean = 0; mean <= 2; mean += test_quick() ? 2 : 1) {
        float *w = random_values((N_ROWS + 1) * N_COLS, 3), *common = random_values(N_COLS, 4);
        float *other = random_values(N_ROWS * N_COLS, 5),
              *scaled = random_values(N_ROWS * N_COLS, 6);
        for (int i = 0; i < (N_ROWS + 1) * N_COLS; i++) w[i] += (float)mean * common[i % N_COLS];
        for (int i = 0; i < N_ROWS * N_COLS; i++) {
            other[i] += (float)mean * common[i % N_COLS];
            scaled[i] = 2 * w[i];
        }
        CHECK(distance(SPECRT_DTYPE_F32, w, w, N_ROWS, N_COLS) == 0);
        CHECK(distance(SPECRT_DTYPE_F16, w, w, N_ROWS, N_COLS) < 0.002f);
        CHECK(distance(SPECRT_DTYPE_BF16, w, w, N_ROWS, N_COLS) < 0.01f);
        CHECK(distance(SPECRT_DTYPE_Q8_0, w, w, N_ROWS, N_COLS) < 0.02f);
        CHECK(distance(SPECRT_DTYPE_Q6_K, w, w, N_ROWS, N_COLS) < 0.1f);
        CHECK(distance(SPECRT_DTYPE_Q4_0, w, w, N_ROWS, N_COLS) < 0.3f);
        CHECK(distance(SPECRT_DTYPE_F32, w, w + N_COLS, N_ROWS, N_COLS) > 1.0f);
        CHECK(distance(SPECRT_DTYPE_Q4_0, w, w + N_COLS, N_ROWS, N_COLS) > 1.0f);
        CHECK(distance(SPECRT_DTYPE_F32, w, other, N_ROWS, N_COLS) > 1.0f);
        CHECK(distance(SPECRT_DTYPE_F32, w, scaled, N_ROWS, N_COLS) > 0.7f);
        free(w), free(common), free(other), free(scaled);
    }
    specrt_digest zero = {{{0}}}, constant = {{{0}}}, some = {{{1}}};
    for (int i = 0; i < 64; i++) constant.values[i][1] = 3;
    CHECK(specrt_digest_distance(&zero, &zero) == 0);
    CHECK(specrt_digest_distance(&zero, &constant) == 0);
    CHECK(specrt_digest_distance(&zero, &some) > 1e30f);
}

TEST(distance_trained, "the same on a trained embedding of 128,256 rows") {
    LEFT_TO_ALL();
    gguf *model;
    const char *path = test_data("weights/pair128k/target.gguf");
    REQUIRE(sl_gguf_open(path, &model, NULL) == SPECRT_STATUS_OK);
    const gguf_tensor *t = sl_gguf_find_tensor(model, "token_embd.weight");
    REQUIRE(t);
    enum { N_ROWS = 128255, N_COLS = 256 };
    float *w = (float *)malloc((size_t)(N_ROWS + 1) * N_COLS * sizeof *w);
    size_t row_bytes = specrt_row_bytes(t->type, N_COLS);
    for (int r = 0; r <= N_ROWS; r++)
        specrt_row_decode(t->type, t->data + (size_t)r * row_bytes, N_COLS, w + r * N_COLS);
    CHECK(distance(SPECRT_DTYPE_F16, w, w, N_ROWS, N_COLS) < 0.002f);
    CHECK(distance(SPECRT_DTYPE_Q6_K, w, w, N_ROWS, N_COLS) < 0.1f);
    CHECK(distance(SPECRT_DTYPE_Q4_0, w, w, N_ROWS, N_COLS) < 0.2f);
    CHECK(distance(SPECRT_DTYPE_Q4_0, w, w + N_COLS, N_ROWS, N_COLS) > 1.0f);
    free(w);
    sl_gguf_close(model);
}

/* --- products --- */

/* Rows that lie here and there have the logits of the same rows side by side, bit for bit. */
TEST(places, "rows here and there, against the same side by side") {
    enum { N = 39, COLS = 288, H = 9 };
    static const specrt_dtype dtypes[] = {SPECRT_DTYPE_F32, SPECRT_DTYPE_BF16, SPECRT_DTYPE_Q8_0,
                                          SPECRT_DTYPE_Q4_0};
    static const int32_t counts[] = {1, 2, H};
    float *values = random_values(N * COLS, 3), *hidden = random_values(H * COLS, 4);
    float bias[N], moved[N], expected[H * N], got[H * N];
    int32_t places[N];
    for (int i = 0; i < N; i++) places[i] = 7 * i % N, bias[i] = (float)i;
    for (int i = 0; i < N; i++) moved[i] = bias[places[i]];
    for (int d = 0; d < 4; d++) {
        size_t bytes = specrt_row_bytes(dtypes[d], COLS);
        uint8_t *rows = head_rows(dtypes[d], values, N, COLS),
                *packed = (uint8_t *)malloc(N * bytes);
        for (int i = 0; i < N; i++)
            memcpy(packed + (size_t)i * bytes, rows + (size_t)places[i] * bytes, bytes);
        specrt_segment s = {
            .rows = packed, .row_stride = bytes, .dtype = dtypes[d], .n_rows = N, .bias = moved};
        specrt_segment t = s;
        t.rows = rows, t.bias = bias, t.places = places;
        for (int c = 0; c < 3; c++) {
            size_t n = (size_t)(counts[c] * N) * sizeof *got;
            const specrt__simd_kernels *kernels = specrt__simd_choose();
            specrt__head_products(kernels, &s, 0, N, COLS, hidden, counts[c], expected, N);
            specrt__head_products(kernels, &t, 0, N, COLS, hidden, counts[c], got, N);
            CHECK(memcmp(got, expected, n) == 0);
        }
        free(rows);
        free(packed);
    }
    free(values);
    free(hidden);
}

TEST(pack, "a packed row of blocks is what it decodes to, in f16, however wide") {
    enum { COLS = 544 };
    float *values = random_values(2 * COLS, 5), row[COLS];
    uint8_t *rows = head_rows(SPECRT_DTYPE_Q4_0, values, 2, COLS);
    uint16_t *packed = (uint16_t *)malloc(COLS * sizeof *packed), halves[COLS];
    specrt_head_desc desc = {.rows = rows, .dtype = SPECRT_DTYPE_Q4_0, .n_rows = 2, .n_cols = COLS};
    specrt_head *head = bind_head(NULL, &desc);
    specrt__head_pack(head, 1, (uint8_t *)packed);
    specrt_row_decode(SPECRT_DTYPE_Q4_0, rows + specrt_row_bytes(SPECRT_DTYPE_Q4_0, COLS), COLS,
                      row);
    specrt_to_f16(row, COLS, halves);
    CHECK(memcmp(packed, halves, sizeof halves) == 0);
    specrt_head_close(head);
    free(packed);
    free(rows);
    free(values);
}

/* --- binding --- */

TEST(bad_heads, "descriptions that make no sense") {
    static const float rows[64];
    const specrt_head_desc good = f32_rows(rows, 2, 32);
    specrt_head_desc d;
    specrt_head *head;
    specrt_error err;
    CHECK_INT(specrt_head_bind(NULL, &good, NULL, &head, &err), SPECRT_STATUS_OK);
    specrt_head_close(head);
    d = good;
    d.n_rows = SPECRT_MAX_VOCAB; /* no row is read yet */
    CHECK_INT(specrt_head_bind(NULL, &d, NULL, &head, &err), SPECRT_STATUS_OK);
    specrt_head_close(head);
    specrt_head_close(NULL);
#define HEAD_BAD(change, status, message)                                                          \
    do {                                                                                           \
        d = good;                                                                                  \
        change;                                                                                    \
        CHECK_INT(specrt_head_bind(NULL, &d, NULL, &head, &err), status);                          \
        CHECK(!head);                                                                              \
        CHECK_HAS(err.msg, message);                                                               \
    } while (0)
    HEAD_BAD(d.rows = NULL, SPECRT_STATUS_BAD_ARG, " at NULL");
    HEAD_BAD(d.n_rows = 0, SPECRT_STATUS_BAD_ARG, "expected 1 to 16777216 rows in memory, found 0");
    HEAD_BAD(d.n_rows = -1, SPECRT_STATUS_BAD_ARG, "found -1");
    HEAD_BAD(d.n_rows = SPECRT_MAX_VOCAB + 1, SPECRT_STATUS_BAD_ARG, "found 16777217");
    HEAD_BAD(d.n_cols = 0, SPECRT_STATUS_BAD_ARG, "columns");
    HEAD_BAD(d.n_cols = -32, SPECRT_STATUS_BAD_ARG, "columns");
    HEAD_BAD(d.n_cols = INT64_MAX / 2, SPECRT_STATUS_BAD_ARG, "columns");
    HEAD_BAD(d.dtype = SPECRT_DTYPE_Q8_0; d.n_cols = 33, SPECRT_STATUS_BAD_ARG, "blocks of q8_0");
    HEAD_BAD(d.dtype = SPECRT_DTYPE_I32, SPECRT_STATUS_UNSUPPORTED, "found i32");
    HEAD_BAD(d.dtype = (specrt_dtype)99, SPECRT_STATUS_UNSUPPORTED, "type 99");
    HEAD_BAD(d.row_stride = 127, SPECRT_STATUS_BAD_ARG, "at least 128 bytes, found 127");
    HEAD_BAD(d.row_stride = SIZE_MAX / 2, SPECRT_STATUS_BAD_ARG, "row_stride");
    HEAD_BAD(d.logit_scale = -2, SPECRT_STATUS_BAD_ARG, "logit_scale");
    HEAD_BAD(d.logit_scale = NAN, SPECRT_STATUS_BAD_ARG, "logit_scale");
    HEAD_BAD(d.softcap = -30, SPECRT_STATUS_BAD_ARG, "found 0 and -30");
    HEAD_BAD(d.softcap = INFINITY, SPECRT_STATUS_BAD_ARG, "softcap above 0");
#undef HEAD_BAD
    d = good;
    d.logit_scale = d.softcap = FLT_MAX;
    CHECK_INT(specrt_head_bind(NULL, &d, NULL, &head, &err), SPECRT_STATUS_OK);
    specrt_head_close(head);
}

TEST(ids, "ids without a row say so, and the ids end with the last") {
    float row[2 * 4] = {0};
    const int32_t ids[][2] = {{3, 4}, {6, 2}};
    for (int i = 0; i < 2; i++) {
        const specrt_head_desc d = {
            .rows = row, .dtype = SPECRT_DTYPE_F32, .n_rows = 2, .n_cols = 4, .ids = ids[i]};
        specrt_head *head = bind_head(NULL, &d);
        CHECK_INT(head->n_ids, i ? 7 : 5);
        for (int32_t id = 0; id < head->n_ids; id++)
            CHECK_INT(head->row_of[id], id == ids[i][0] ? 0 : id == ids[i][1] ? 1 : -1);
        specrt_head_close(head);
    }
}

/* A bundle that records this head, opened. */
static specrt_bundle *bundle_of(const specrt_head_desc *desc, int32_t n_vocab, uint8_t **bytes) {
    size_t n;
    specrt_ident ident = {.n_vocab = n_vocab};
    strcpy(ident.tokenizer_name, "words");
    strcpy(ident.head_name, "small");
    if (desc) {
        ident.head_rows = (int32_t)desc->n_rows;
        ident.head_cols = (int32_t)desc->n_cols;
        CHECK_INT(specrt_head_digest(desc, &ident.head_digest, NULL), SPECRT_STATUS_OK);
    }
    fixture_section s = {"ident", 1, 0, &ident, sizeof ident, sizeof ident};
    *bytes = fixture_bundle(&s, 1, &n);
    return open_memory(*bytes, n);
}

static specrt_status bind(const specrt_bundle *bundle, specrt_dtype dtype, const float *values,
                          int64_t n_rows, int64_t n_cols, specrt_error *err) {
    uint8_t *rows = head_rows(dtype, values, n_rows, n_cols);
    specrt_head_desc desc = {.rows = rows, .dtype = dtype, .n_rows = n_rows, .n_cols = n_cols};
    specrt_head *head;
    specrt_status status = specrt_head_bind(bundle, &desc, NULL, &head, err);
    CHECK((status == SPECRT_STATUS_OK) == (head != NULL));
    specrt_head_close(head);
    free(rows);
    return status;
}

TEST(bind, "quantised heads bind; shifted, padded and broken ones do not") {
    enum { N_ROWS = 300, N_COLS = 256 };
    float *w = random_values((N_ROWS + 1) * N_COLS, 8);
    uint8_t *f16 = head_rows(SPECRT_DTYPE_F16, w, N_ROWS, N_COLS), *bytes;
    specrt_head_desc desc = {
        .rows = f16, .dtype = SPECRT_DTYPE_F16, .n_rows = N_ROWS, .n_cols = N_COLS};
    specrt_bundle *bundle = bundle_of(&desc, N_ROWS - 7, &bytes);
    specrt_error err;
    for (int f = 0; f < 4; f++)
        CHECK_INT(bind(bundle, formats[f], w, N_ROWS, N_COLS, &err), SPECRT_STATUS_OK);
    CHECK_INT(bind(bundle, SPECRT_DTYPE_Q4_0, w, N_ROWS, N_COLS, &err), SPECRT_STATUS_OK);
    CHECK_INT(bind(bundle, SPECRT_DTYPE_Q6_K, w, N_ROWS, N_COLS, &err), SPECRT_STATUS_OK);
    CHECK_INT(bind(bundle, SPECRT_DTYPE_F16, w + N_COLS, N_ROWS, N_COLS, &err),
              SPECRT_STATUS_BUNDLE_MISMATCH);
    CHECK_HAS(err.msg, "b.specb: head: expected the weights of 'small'");
    CHECK_HAS(err.msg, "sketch, cluster and centroid are of the drafter's head");
    CHECK_INT(bind(bundle, SPECRT_DTYPE_F16, w, N_ROWS + 1, N_COLS, &err),
              SPECRT_STATUS_BUNDLE_MISMATCH);
    CHECK_HAS(err.msg, "expected 'small' [300, 256], found [301, 256]");
    CHECK_INT(bind(bundle, SPECRT_DTYPE_F16, w, N_ROWS, N_COLS - 32, &err),
              SPECRT_STATUS_BUNDLE_MISMATCH);
    w[(2 * 5 + 1) * N_ROWS / 128 * N_COLS + 9] = NAN;
    CHECK_INT(bind(bundle, SPECRT_DTYPE_F16, w, N_ROWS, N_COLS, &err), SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "row 25");
    specrt_bundle_close(bundle);
    free(bytes), free(f16), free(w);
}

/* A head that was bound to no bundle, as that of an independent drafter: lists serve it, a sketch of another
 * head of its shape does not. */
TEST(another, "what is made of a head serves that head alone") {
    enum { N_ROWS = 300, N_COLS = 256 };
    static const struct {
        const char *policy;
        bool same;
        specrt_status expected; /* the bundle has none of the sections */
    } cases[] = {{"sketch:8", true, SPECRT_STATUS_BUNDLE_SECTION_MISSING},
                 {"sketch:8", false, SPECRT_STATUS_BUNDLE_MISMATCH},
                 {"window:64+cluster:2", false, SPECRT_STATUS_BUNDLE_MISMATCH},
                 {"group:2", false, SPECRT_STATUS_BUNDLE_MISMATCH},
                 {"centroid:2", false, SPECRT_STATUS_BUNDLE_MISMATCH},
                 {"static:64", false, SPECRT_STATUS_BUNDLE_SECTION_MISSING},
                 {"window:64+successor:8", false, SPECRT_STATUS_BUNDLE_SECTION_MISSING},
                 {"window:64", false, SPECRT_STATUS_OK}};
    float *w = random_values((N_ROWS + 1) * N_COLS, 8);
    specrt_head_desc desc = f32_rows(w, N_ROWS, N_COLS);
    uint8_t *bytes;
    specrt_bundle *bundle = bundle_of(&desc, N_ROWS, &bytes);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        specrt_policy_desc asked = {.text = cases[i].policy};
        specrt_policy *policy;
        specrt_error err;
        desc.rows = cases[i].same ? w : w + N_COLS;
        specrt_head *head = bind_head(NULL, &desc);
        CHECK_INT(specrt_policy_create(bundle, head, &asked, &policy, &err), cases[i].expected);
        if (cases[i].expected == SPECRT_STATUS_BUNDLE_MISMATCH)
            CHECK_HAS(err.msg, "b.specb: head: expected the weights of 'small'");
        specrt_policy_close(policy);
        specrt_head_close(head);
    }
    specrt_bundle_close(bundle);
    free(bytes), free(w);
}

TEST(bind_vocabulary, "a bundle that knows only the tokenizer asks for enough rows") {
    float *w = random_values(40 * 32, 8);
    uint8_t *bytes;
    specrt_bundle *bundle = bundle_of(NULL, 30, &bytes);
    specrt_error err;
    CHECK_INT(bind(bundle, SPECRT_DTYPE_F32, w, 30, 32, &err), SPECRT_STATUS_OK);
    CHECK_INT(bind(bundle, SPECRT_DTYPE_F32, w, 40, 32, &err), SPECRT_STATUS_OK);
    CHECK_INT(bind(bundle, SPECRT_DTYPE_F32, w, 29, 32, &err), SPECRT_STATUS_BUNDLE_MISMATCH);
    CHECK_HAS(err.msg, "at least the 30 rows of tokenizer 'words', found 29");
    specrt_bundle_close(bundle);
    free(bytes), free(w);
}

/* Logits of an engine that rounds states to steps of `step`. */
static void engine_logits(const specrt_head_desc *head, const float *w, const float *hidden, int n,
                          double step, float *logits, int32_t n_logits) {
    for (int i = 0; i < n; i++)
        for (int32_t row = 0; row < (int32_t)head->n_rows; row++) {
            double sum = head->bias ? (double)head->bias[row] : 0;
            for (int64_t j = 0; j < head->n_cols; j++) {
                double x = (double)hidden[i * head->n_cols + j];
                sum += (double)w[row * head->n_cols + j] * (step > 0 ? step * round(x / step) : x);
            }
            int32_t id = head->ids ? head->ids[row] : row;
            if (id < n_logits) logits[i * n_logits + id] = (float)sum;
        }
}

enum { S_ROWS = 40, S_COLS = 320, S_STATES = 2, S_LOGITS = 2 * S_ROWS };

/* The engine's own states and logits pass, with a bias, ids and rounding; other ones do not. */
TEST(check_states, "an engine's own states and logits") {
    float *w = random_values(S_ROWS * S_COLS, 11), *bias = random_values(S_ROWS, 12);
    float *hidden = random_values(S_STATES * S_COLS, 13), *wrong = random_values(S_COLS, 14);
    float logits[S_STATES * S_LOGITS] = {0}, scaled[S_LOGITS];
    int32_t ids[S_ROWS];
    double rms = -1;
    specrt_error err;
    for (int32_t i = 0; i < S_ROWS; i++) ids[i] = 2 * i + 1;
    specrt_head_desc head = {
        .rows = w, .dtype = SPECRT_DTYPE_F32, .n_rows = S_ROWS, .n_cols = S_COLS, .bias = bias};
    for (int with_ids = 0; with_ids < 2; with_ids++) {
        if (with_ids) head.ids = ids;
        for (int rounded = 0; rounded < 2; rounded++) {
            engine_logits(&head, w, hidden, S_STATES, rounded ? 0.02 : 0, logits, S_LOGITS);
            CHECK_INT(
                specrt_head_check_states(&head, hidden, S_STATES, logits, S_LOGITS, &rms, &err),
                SPECRT_STATUS_OK);
            CHECK(rounded ? rms > 1e-4 && rms < SPECRT_HEAD_MAX_RMS : rms < 1e-6);
            engine_logits(&head, w, hidden, S_STATES, 0, logits, S_ROWS / 2); /* of a part */
            CHECK_INT(
                specrt_head_check_states(&head, hidden, S_STATES, logits, S_ROWS / 2, &rms, &err),
                SPECRT_STATUS_OK);
            CHECK(rms < 1e-6);
        }
    }
    engine_logits(&head, w, hidden, S_STATES, 0.02, logits, S_LOGITS);
    for (int i = 0; i < S_LOGITS; i++) scaled[i] = 0.5f * logits[i];
    CHECK_INT(specrt_head_check_states(&head, hidden, 1, scaled, S_LOGITS, &rms, &err),
              SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "head: rows times states are not these logits");
    CHECK(rms > 0.9 && rms < 1.1); /* of logits that are half as large */
    head.logit_scale = 0.5f;
    CHECK_INT(specrt_head_check_states(&head, hidden, 1, scaled, S_LOGITS, &rms, &err),
              SPECRT_STATUS_OK);
    for (int i = 0; i < S_LOGITS; i++) scaled[i] = (float)(3 * tanh((double)scaled[i] / 3));
    CHECK_INT(specrt_head_check_states(&head, hidden, 1, scaled, S_LOGITS, &rms, &err),
              SPECRT_STATUS_BAD_INPUT);
    head.softcap = 3;
    CHECK_INT(specrt_head_check_states(&head, hidden, 1, scaled, S_LOGITS, &rms, &err),
              SPECRT_STATUS_OK);
    static const float exact[] = {1, 2, 3}, one = 1, flat[] = {5, 4, 4};
    specrt_head_desc small = f32_rows(exact, 3, 1);
    CHECK_INT(specrt_head_check_states(&small, &one, 1, exact, 3, &rms, &err), SPECRT_STATUS_OK);
    CHECK(rms == 0);
    CHECK_INT(specrt_head_check_states(&small, &one, 1, flat, 3, &rms, &err),
              SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "and best token 0, found 0.607 and 2");
    static const float falling[] = {3, 2, 1}, ties[] = {4, 5, 5}, zeros[3];
    small.rows = falling;
    CHECK_INT(specrt_head_check_states(&small, &one, 1, ties, 3, &rms, &err),
              SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(err.msg, "and best token 1, found ");
    CHECK_HAS(err.msg, " and 0");
    CHECK_INT(specrt_head_check_states(&small, &one, 1, zeros, 3, &rms, &err),
              SPECRT_STATUS_BAD_INPUT);
    CHECK(rms == 1);
    head.logit_scale = head.softcap = 0;
    CHECK_INT(specrt_head_check_states(&head, wrong, 1, logits, S_LOGITS, NULL, &err),
              SPECRT_STATUS_BAD_INPUT);
    CHECK_INT(specrt_head_check_states(&head, hidden, 0, logits, S_LOGITS, NULL, &err),
              SPECRT_STATUS_BAD_ARG);
    head.n_cols = 0;
    CHECK_INT(specrt_head_check_states(&head, hidden, 1, logits, S_LOGITS, NULL, &err),
              SPECRT_STATUS_BAD_ARG);
    free(w), free(bias), free(hidden), free(wrong);
}

TEST(check_best, "a best token that is another is found, however well the other logits fit") {
    enum { N = 4000 };
    float *w = random_values((size_t)N * S_COLS, 23), *hidden = random_values(S_COLS, 22);
    float *logits = (float *)calloc(N, sizeof *logits);
    specrt_error err;
    specrt_head_desc head = f32_rows(w, N, S_COLS);
    double rms;
    int32_t best = 0, second;
    engine_logits(&head, w, hidden, 1, 0, logits, N);
    for (int32_t i = 1; i < N; i++)
        if (logits[i] > logits[best]) best = i;
    second = best == 0;
    for (int32_t i = 0; i < N; i++)
        if (i != best && logits[i] > logits[second]) second = i;
    logits[second] = logits[best] + 5;
    CHECK_INT(specrt_head_check_states(&head, hidden, 1, logits, N, &rms, &err),
              SPECRT_STATUS_BAD_INPUT);
    CHECK(rms < SPECRT_HEAD_MAX_RMS);
    free(w), free(hidden), free(logits);
}

TEST(bind_memory, "a failing allocator") {
    static const float rows[32];
    specrt_head_desc desc = f32_rows(rows, 1, 32);
    specrt_head *head;
    specrt_error err;
    fixture_allocator a = {.fail_at = 1};
    specrt_env env = fixture_desc(&a);
    CHECK_INT(specrt_head_bind(NULL, &desc, &env, &head, &err), SPECRT_STATUS_NO_MEMORY);
    CHECK(!head);
    CHECK_INT(specrt_head_bind(NULL, &desc, &env, &head, &err), SPECRT_STATUS_OK);
    specrt_head_close(head);
    CHECK_INT(a.n_live, 0);
}
