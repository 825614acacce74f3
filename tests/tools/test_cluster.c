/* test_cluster.c : k-means and the tokens nearest to centroids against brute force, planted clusters, and the
 * bad rows a head may hold. */
#include "base/json.h"
#include "base/text.h"
#include "starve.h"
#include "opened.h"

/* clang wants functions with clones defined before they are used. */
#include "tools/cluster-build/vectors.h"

#include "tools/cluster-build/build.h"
#include "tools/cluster-build/kmeans_impl.h"
#include "tools/cluster-build/rows.h"

/* Rows about planted centres, of random lengths; row i belongs to centre truth[i]. */
typedef struct world {
    int32_t n, n_cols, n_centres;
    float *x;
    int32_t *truth;
    row_set rows;
} world;

static specrt_head_desc head_of(const world *w) {
    return f32_rows(w->x, w->n, w->n_cols);
}

static void plant(world *w, int32_t n, int32_t n_cols, int32_t n_centres, float noise) {
    uint64_t state = 88172645463325252u;
    float *centres = malloc((size_t)(n_centres * n_cols) * sizeof *centres);
    *w = (world){.n = n, .n_cols = n_cols, .n_centres = n_centres};
    w->x = malloc((size_t)(n * n_cols) * sizeof *w->x);
    w->truth = malloc((size_t)n * sizeof *w->truth);
    for (int32_t i = 0; i < n_centres * n_cols; i++) centres[i] = fixture_normal(&state);
    for (int32_t i = 0; i < n; i++) {
        w->truth[i] = (int32_t)(fixture_random(&state) % (uint64_t)n_centres);
        float length = expf(fixture_normal(&state));
        for (int32_t j = 0; j < n_cols; j++)
            w->x[i * n_cols + j] =
                length * (centres[w->truth[i] * n_cols + j] + noise * fixture_normal(&state));
    }
    free(centres);
}

static void open_world(world *w) {
    specrt_head_desc head = head_of(w);
    REQUIRE(rows_open(&head, NULL, 2, &w->rows, NULL) == SPECRT_STATUS_OK);
}

static void free_world(world *w) {
    rows_close(&w->rows);
    free(w->x);
    free(w->truth);
}

static kmeans_options options_for(int32_t n_clusters) {
    kmeans_options o = {
        .n_clusters = n_clusters, .n_iterations = 25, .tolerance = 1e-7, .seed = 7, .threads = 2};
    return o;
}

/* Similarity of row i to a centroid, in double precision. */
static double similarity(const world *w, int32_t i, const float *centroid) {
    double dot = 0, square = 0;
    for (int32_t j = 0; j < w->n_cols; j++) {
        double x = (double)w->x[i * w->n_cols + j];
        dot += x * (double)centroid[j];
        square += x * x;
    }
    return dot / sqrt(square);
}

/* --- the kernels --- */

TEST(kernels, "int8 products equal whole-number sums on every instruction set") {
    const char *names[] = {"plain", "avx2", "vnni"};
    world w;
    plant(&w, 101, 77, 5, 1);
    open_world(&w);
    unit_rows centres;
    REQUIRE(unit_rows_create(&centres, 70, 77));
    for (int32_t c = 0; c < 70; c++) unit_rows_set(&centres, c, w.x + c * 77, w.rows.inverses[c]);
    for (int k = 0; k < 3; k++) {
        panels p;
        const dot_kernels *kernels = dot_choose(names[k]);
        if (!kernels) continue;
        REQUIRE(panels_create(&p, 70, 77, kernels));
        panels_fill(&p, &centres);
        float *out = malloc((size_t)(101 * panels_width(&p)) * sizeof *out);
        panels_similarities(&p, &w.rows.units, 0, 101, out);
        for (int32_t i = 0; i < 101; i++)
            for (int32_t c = 0; c < 70; c++) {
                int64_t sum = 0;
                for (int32_t j = 0; j < 77; j++)
                    sum += w.rows.units.q[i * w.rows.units.stride + j] *
                           centres.q[c * centres.stride + j];
                double scale = (double)w.rows.units.scales[i] * (double)centres.scales[c];
                CHECK_NEAR(out[i * panels_width(&p) + c], (double)sum * scale, 1e-6);
            }
        for (int32_t i = 0; i < 101; i++)
            for (int32_t c = 70; c < panels_width(&p); c++)
                CHECK(out[i * panels_width(&p) + c] == -INFINITY);
        free(out);
        panels_free(&p);
    }
    CHECK(dot_choose("none such") == NULL);
    unit_rows_free(&centres);
    free_world(&w);
}

TEST(rounding, "residuals are what rounding left") {
    world w;
    plant(&w, 500, 64, 500, 1);
    open_world(&w);
    for (int32_t i = 0; i < w.rows.n; i++) {
        double square = 0;
        for (int32_t j = 0; j < 64; j++) {
            double x = (double)w.x[i * 64 + j] * (double)w.rows.inverses[i];
            double off = x - (double)w.rows.units.scales[i] * w.rows.units.q[i * 64 + j];
            square += off * off;
        }
        CHECK_NEAR(w.rows.units.residuals[i], sqrt(square), 1e-6);
    }
    free_world(&w);
}

/* --- k-means --- */

/* Every row is nearest to the centroid it was given, but for ties within float rounding. */
static void check_nearest(const world *w, const float *centroids, int32_t n_clusters,
                          const int32_t *clusters) {
    for (int32_t i = 0; i < w->n; i++) {
        double best = -2, own = similarity(w, i, centroids + clusters[i] * w->n_cols);
        for (int32_t c = 0; c < n_clusters; c++)
            best = fmax(best, similarity(w, i, centroids + c * w->n_cols));
        CHECK(own >= best - 1e-6);
    }
}

TEST(one_iteration, "assignment, objective, sums and centroids by brute force") {
    world w;
    plant(&w, 3000, 48, 3000, 1);
    open_world(&w);
    kmeans_options o = options_for(37);
    kmeans k;
    float initial[37 * 48], unit[37 * 48];
    for (int32_t c = 0; c < 37; c++) {
        double square = 0;
        memcpy(initial + c * 48, w.x + c * 71 * 48, 48 * sizeof(float));
        for (int j = 0; j < 48; j++) square += (double)initial[c * 48 + j] * initial[c * 48 + j];
        for (int j = 0; j < 48; j++) unit[c * 48 + j] = (float)(initial[c * 48 + j] / sqrt(square));
    }
    o.initial = initial;
    o.n_iterations = 1;
    REQUIRE(kmeans_run(&w.rows, &o, &k, NULL) == SPECRT_STATUS_OK);
    check_nearest(&w, unit, 37, k.clusters);
    double total = 0;
    for (int32_t i = 0; i < w.n; i++) total += similarity(&w, i, unit + k.clusters[i] * 48);
    CHECK_NEAR(k.objectives[0], total, 1e-3);
    for (int32_t c = 0; c < 37; c++) {
        double sum[48] = {0}, square = 0;
        int32_t size = 0;
        for (int32_t i = 0; i < w.n; i++) {
            if (k.clusters[i] != c) continue;
            size++;
            for (int j = 0; j < 48; j++)
                sum[j] += (double)w.x[i * 48 + j] * (double)w.rows.inverses[i];
        }
        CHECK_INT(k.sizes[c], size);
        for (int j = 0; j < 48; j++) square += sum[j] * sum[j];
        for (int j = 0; j < 48; j++)
            CHECK_NEAR(k.centroids[c * 48 + j], sum[j] / sqrt(square), 1e-5);
    }
    kmeans_free(&k);
    free_world(&w);
}

TEST(planted, "clusters far apart are found") {
    enum { N = 60 }; /* so many that seeds at random would miss some */
    world w;
    kmeans_options o = options_for(N);
    kmeans k;
    int32_t cluster_of[N];
    plant(&w, 4000, 32, N, 0.02f);
    open_world(&w);
    REQUIRE(kmeans_run(&w.rows, &o, &k, NULL) == SPECRT_STATUS_OK);
    memset(cluster_of, 0xff, sizeof cluster_of);
    for (int32_t i = 0; i < w.n; i++)
        if (cluster_of[w.truth[i]] < 0) cluster_of[w.truth[i]] = k.clusters[i];
    for (int32_t i = 0; i < w.n; i++) CHECK_INT(k.clusters[i], cluster_of[w.truth[i]]);
    kmeans_free(&k);
    free_world(&w);
}

TEST(monotone, "the objective never falls") {
    world w;
    plant(&w, 5000, 40, 5000, 1);
    open_world(&w);
    kmeans_options o = options_for(60);
    kmeans k;
    o.tolerance = 0;
    REQUIRE(kmeans_run(&w.rows, &o, &k, NULL) == SPECRT_STATUS_OK);
    CHECK(k.n_iterations > 5);
    for (int32_t i = 1; i < k.n_iterations; i++) CHECK(k.objectives[i] >= k.objectives[i - 1]);
    CHECK(k.objective >= k.objectives[k.n_iterations - 1]);
    kmeans_free(&k);
    free_world(&w);
}

TEST(same_bytes, "any threads, any kernels") {
    const char *names[] = {"plain", "avx2", "vnni"};
    world w;
    plant(&w, 3000, 50, 3000, 1);
    open_world(&w);
    for (int largest = 0; largest < 2; largest++) {
        uint64_t first = 0;
        for (int run_ = 0; run_ < 6; run_ += test_quick() ? 2 : 1) {
            kmeans_options o = options_for(70);
            kmeans k;
            o.largest = largest;
            o.threads = run_ < 3 ? 1 + 2 * run_ : 2;
            o.kernels = run_ < 3 ? NULL : names[run_ - 3];
            if (!dot_choose(o.kernels)) continue;
            REQUIRE(kmeans_run(&w.rows, &o, &k, NULL) == SPECRT_STATUS_OK);
            uint64_t hash = specrt_hash64(k.clusters, (size_t)w.n * sizeof *k.clusters, 0) ^
                            specrt_hash64(k.centroids, 70 * 50 * sizeof *k.centroids, 0);
            if (run_ == 0) first = hash;
            CHECK(hash == first);
            kmeans_free(&k);
        }
    }
    free_world(&w);
}

TEST(balanced, "sizes differ by at most one") {
    const int32_t counts[] = {1, 7, 64, 333, 1000};
    world w;
    plant(&w, 1000, 24, 9, 0.5f);
    open_world(&w);
    for (int i = 0; i < 5; i++) {
        kmeans_options o = options_for(counts[i]);
        kmeans k;
        o.largest = 1;
        REQUIRE(kmeans_run(&w.rows, &o, &k, NULL) == SPECRT_STATUS_OK);
        int32_t n_larger = 0;
        for (int32_t c = 0; c < counts[i]; c++) {
            CHECK(k.sizes[c] == 1000 / counts[i] || k.sizes[c] == 1000 / counts[i] + 1);
            n_larger += k.sizes[c] == 1000 / counts[i] + 1;
        }
        CHECK_INT(n_larger, 1000 % counts[i]);
        kmeans_free(&k);
    }
    free_world(&w);
}

/* Room for 1,080 of 1,000 rows: 80 copies, of the rows worth most, each beside its row's own cluster. */
TEST(copies, "room that is left goes to copies, for any threads") {
    world w;
    plant(&w, 1000, 24, 9, 0.5f);
    open_world(&w);
    int32_t worth[1000], n_copies[1000] = {0};
    for (int32_t i = 0; i < 1000; i++) worth[i] = (i * 7 + 3) % 1000;
    uint64_t first = 0;
    for (int threads = 1; threads < 4; threads++) {
        kmeans_options o = options_for(40);
        kmeans k;
        o.room = 27;
        o.worth = worth;
        o.threads = threads;
        REQUIRE(kmeans_run(&w.rows, &o, &k, NULL) == SPECRT_STATUS_OK);
        CHECK_INT(k.n_copies, 80);
        for (int32_t c = 0; c < 40; c++) CHECK_INT(k.sizes[c], 27);
        for (int32_t i = 0; i < k.n_copies; i++) {
            CHECK(k.copies[i].cluster != k.clusters[k.copies[i].row]);
            n_copies[k.copies[i].row]++;
        }
        for (int32_t i = 0; i < 1000; i++) CHECK_INT(n_copies[worth[i]], i < 80 ? threads : 0);
        uint64_t hash = specrt_hash64(k.copies, 80 * sizeof *k.copies, 0);
        if (threads == 1) first = hash;
        CHECK(hash == first);
        kmeans_free(&k);
    }
    free_world(&w);
}

/* States vary along one column alone: rows that differ elsewhere are alike. */
TEST(space, "rows that states score alike are near each other") {
    enum { N = 200, D = 8, N_STATES = 500 };
    world w;
    space s;
    uint64_t state = 9;
    static uint16_t states[N_STATES * D];
    plant(&w, N, D, N, 1);
    open_world(&w);
    for (int32_t i = 0; i < N_STATES * D; i++) {
        float x = fixture_normal(&state) * (i % D == 2 ? 100 : 0.001f);
        specrt_to_f16(&x, 1, &states[i]);
    }
    example_set set = {.n = N_STATES, .n_state = D, .states = states};
    REQUIRE(space_open(&w.rows, &set, 2, &s, NULL) == SPECRT_STATUS_OK);
    CHECK_INT(s.rows.n, N);
    for (int32_t i = 1; i < N; i++) {
        float x[D], y[D], dot = 0;
        rows_read(&s.rows, 0, x);
        rows_read(&s.rows, i, y);
        for (int j = 0; j < D; j++) dot += x[j] * y[j];
        bool same_sign = (w.x[2] < 0) == (w.x[i * D + 2] < 0);
        if (fabsf(w.x[2]) > 0.5f && fabsf(w.x[i * D + 2]) > 0.5f)
            CHECK(same_sign ? dot > 0.9f : dot < -0.9f);
    }
    space_close(&s);
    memset(states, 0, sizeof states);
    CHECK_INT(space_open(&w.rows, &set, 1, &s, NULL), SPECRT_STATUS_BAD_INPUT);
    free_world(&w);
}

/* Seven rows of ten lie in one place, which free clusters leave to few of them. */
TEST(bounded, "no size is over its bound; a tighter bound costs similarity") {
    const double bounds[] = {0, 6, 2, 1};
    double objective = INFINITY;
    uint64_t state = 5;
    world w;
    plant(&w, 1000, 24, 30, 0.5f);
    for (int32_t i = 1; i < w.n; i++)
        for (int32_t j = 0; j < w.n_cols && i % 10 < 7; j++)
            w.x[i * w.n_cols + j] = w.x[j] + 1e-3f * fixture_normal(&state);
    open_world(&w);
    for (int i = 0; i < 4; i++) {
        kmeans_options o = options_for(40);
        kmeans k;
        o.largest = bounds[i];
        REQUIRE(kmeans_run(&w.rows, &o, &k, NULL) == SPECRT_STATUS_OK);
        int32_t n = 0, most = 0;
        for (int32_t c = 0; c < 40; c++) {
            CHECK(k.sizes[c] > 0);
            n += k.sizes[c];
            if (k.sizes[c] > most) most = k.sizes[c];
        }
        CHECK_INT(n, w.rows.n);
        CHECK(i == 0 ? most > 6 * 25 : most <= bounds[i] * 25);
        CHECK(k.objective <= objective);
        CHECK(i == 0 ? k.objective == k.objective_free : k.objective < k.objective_free);
        objective = k.objective;
        kmeans_free(&k);
    }
    free_world(&w);
}

/* All start in one place, so that all but one cluster are empty after the first assignment. */
TEST(repair, "no cluster stays empty") {
    world w;
    plant(&w, 300, 16, 300, 1);
    open_world(&w);
    float initial[40 * 16];
    for (int i = 0; i < 40 * 16; i++) initial[i] = w.x[i % 16];
    kmeans_options o = options_for(40);
    kmeans k;
    o.initial = initial;
    o.tolerance = 0;
    REQUIRE(kmeans_run(&w.rows, &o, &k, NULL) == SPECRT_STATUS_OK);
    CHECK(k.n_repaired >= 39);
    for (int32_t c = 0; c < 40; c++) CHECK(k.sizes[c] > 0);
    for (int32_t i = 1; i < k.n_iterations; i++) CHECK(k.objectives[i] >= k.objectives[i - 1]);
    kmeans_free(&k);
    free_world(&w);
}

/* --- rows --- */

TEST(bad_rows, "reserved, zero and equal rows are left out; NaN is refused") {
    uint8_t reserved[100] = {0};
    specrt_error err;
    kmeans k;
    world w;
    plant(&w, 100, 16, 5, 1);
    memset(w.x + 10 * 16, 0, 3 * 16 * sizeof(float));
    for (int i = 20; i < 24; i++) memcpy(w.x + i * 16, w.x + 30 * 16, 16 * sizeof(float));
    reserved[98] = reserved[99] = 1;
    w.x[99 * 16] = NAN; /* of a row that does not count */
    specrt_head_desc head = head_of(&w);
    REQUIRE(rows_open(&head, reserved, 1, &w.rows, &err) == SPECRT_STATUS_OK);
    CHECK_INT(w.rows.n_reserved, 2);
    CHECK_INT(w.rows.n_zero, 3);
    CHECK_INT(w.rows.n_duplicate, 5);
    CHECK_INT(w.rows.n, 90);
    for (int32_t i = 1; i < w.rows.n; i++) CHECK(w.rows.ids[i] > w.rows.ids[i - 1]);
    kmeans_options o = options_for(91);
    CHECK_INT(kmeans_run(&w.rows, &o, &k, &err), SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(err.msg, "expected 1 to 90, the rows there are to cluster, found 91");
    o.n_clusters = 90;
    REQUIRE(kmeans_run(&w.rows, &o, &k, &err) == SPECRT_STATUS_OK);
    for (int32_t c = 0; c < 90; c++) CHECK_INT(k.sizes[c], 1);
    kmeans_free(&k);
    rows_close(&w.rows);
    free_world(&w);
}

/* --- the report --- */

/* The token of the row of a cluster that is the n-th nearest to its centroid. */
static void nth_token(const world *w, const cluster_build *b, int32_t cluster, int32_t n,
                      char *text) {
    const float *centroid = b->k.centroids + cluster * w->n_cols;
    for (int32_t i = 0; i < w->n; i++) {
        int32_t nearer = 0;
        for (int32_t j = 0; j < w->n; j++)
            nearer += b->k.clusters[j] == cluster &&
                      similarity(w, j, centroid) > similarity(w, i, centroid);
        if (b->k.clusters[i] != cluster || nearer != n) continue;
        size_t n_bytes;
        const uint8_t *bytes = sl_tokenizer_bytes(b->tok, i, &n_bytes);
        sl_text_token(bytes, n_bytes, text);
    }
}

TEST(examples, "the nearest tokens to a centroid, nearest first") {
    world w;
    kmeans_options o = options_for(3);
    cluster_options options = {.model = "x"};
    tokenizer *tok;
    REQUIRE(!sl_tokenizer_open("tests/golden/tokenizers/chars.json", &tok, NULL));
    plant(&w, sl_tokenizer_n_vocab(tok), 16, 3, 1);
    open_world(&w);
    cluster_build b = {.options = &options, .head_name = "y", .tok = tok, .rows = w.rows};
    REQUIRE(!kmeans_run(&w.rows, &o, &b.k, NULL));
    char *report = cluster_report_provenance(&b);
    json_object *json = json_tokener_parse(report), *examples, *tokens;
    REQUIRE(json_object_object_get_ex(json, "examples", &examples));
    CHECK_INT(json_object_array_length(examples), 3);
    for (int32_t c = 0; c < 3; c++) {
        json_object_object_get_ex(json_object_array_get_idx(examples, (size_t)c), "tokens",
                                  &tokens);
        CHECK_INT(json_object_array_length(tokens), 6);
        for (int32_t n = 0; n < 6; n++) {
            char text[512] = "";
            nth_token(&w, &b, c, n, text);
            CHECK_STR(json_object_get_string(json_object_array_get_idx(tokens, (size_t)n)), text);
        }
    }
    json_object_put(json);
    free(report);
    kmeans_free(&b.k);
    sl_tokenizer_close(tok);
    free_world(&w);
}

static int cluster_all(void *arg) {
    const world *w = arg;
    specrt_head_desc head = head_of(w);
    kmeans_options o = options_for(9);
    row_set rows = {.n = 0};
    kmeans k = {.n_clusters = 0};
    o.largest = o.threads = 1;
    specrt_status status = rows_open(&head, NULL, 1, &rows, NULL);
    if (!status) status = kmeans_run(&rows, &o, &k, NULL);
    kmeans_free(&k);
    rows_close(&rows);
    return status;
}

TEST(no_memory, "every allocation that fails") {
    world w;
    plant(&w, 100, 16, 5, 1);
    starve_own = true; /* qsort() does without */
    test_starve(cluster_all, &w, SPECRT_STATUS_NO_MEMORY);
    free(w.x);
    free(w.truth);
}
