/* test_sketch.c : the scans against plain sums, what sketch:m names against brute force. */
#include "specrt_tools.h"
#include "core/shortlist.h"
#include "core/base.h"
#include "core/simd.h"
#include "core/head.h"
#include "core/pool.h"
#include "decode/policy.h"
#include "decode/session.h"
#include "sources/scan.h"
#include "sources/sketch.h"
#include "opened.h"
#include "specrt/root.h"
#include "quantise.h"

enum { MOST_ROWS = 2105, MOST_COLS = 32, TOPK = 8, N_STATIC = 20, MOST_RANK = 496 };

static uint64_t state = 11;

typedef struct world {
    int32_t n_rows, n_cols, topk;
    bool biased;
    specrt_dtype dtype;
    float rows[MOST_ROWS * MOST_COLS], bias[MOST_ROWS];
    uint8_t *bytes;
    size_t n_bytes;
    specrt_bundle *bundle;
    specrt_head *head;
    specrt_policy *policy;
    specrt_session *session;
    specrt_sketch view;
} world;

/* --- a head, a bundle, a session --- */

static void world_open(world *w, const char *policy) {
    specrt_head_desc desc = {.rows = w->rows,
                             .dtype = w->dtype,
                             .n_rows = w->n_rows,
                             .n_cols = w->n_cols,
                             .bias = w->biased ? w->bias : NULL};
    specrt_policy_desc pd = {.text = policy, .n_vocab = w->n_rows - 1};
    specrt_session_params params = {
        .n_logits = MOST_ROWS, .tree = {.num_steps = 3, .topk = w->topk, .num_draft_tokens = 12}};
    specrt_error err = {SPECRT_STATUS_OK, ""};
    specrt_bundle_open_memory(w->bytes, w->n_bytes, "b", NULL, &w->bundle, &err);
    CHECK_STR(err.msg, "");
    w->head = bind_head(w->bundle, &desc);
    specrt_policy_create(w->bundle, w->head, &pd, &w->policy, &err);
    CHECK_STR(err.msg, "");
    w->session = create_session(w->policy, &params, NULL);
    REQUIRE(!specrt_bundle_sketch(w->bundle, &w->view, &err));
}

static void world_close(world *w) {
    close_all(w->session, w->policy, w->head);
    specrt_bundle_close(w->bundle);
}

/* n_clusters : 0: by frequency */
static void world_make_in(world *w, int32_t n_clusters, int32_t n_rows, int32_t n_cols,
                          int32_t n_signs, bool biased) {
    size_t n_ranks, n_sketch;
    *w = (world){.n_rows = n_rows, .n_cols = n_cols, .topk = 5, .biased = biased};
    for (int32_t i = 0; i < n_rows; i++) w->bias[i] = 2 * fixture_normal(&state);
    for (int32_t i = 0; i < n_rows * n_cols; i++) w->rows[i] = fixture_normal(&state);
    uint8_t *ranks = fixture_ranks(n_rows - 1, 1, N_STATIC, &n_ranks);
    uint8_t *sketch =
        fixture_sketch_in(n_clusters, n_rows, n_cols, n_signs, fixture_random(&state), &n_sketch);
    fixture_section sections[] = {
        {"ranks", 1, 16, ranks, n_ranks, n_ranks},
        {"sketch", n_clusters > 0 ? 4 : 3, 32, sketch, n_sketch, n_sketch}};
    w->bytes = fixture_bundle(sections, 2, &w->n_bytes);
    free(ranks);
    free(sketch);
}

static void world_make(world *w, int32_t n_rows, int32_t n_cols, int32_t n_signs, bool biased) {
    world_make_in(w, 0, n_rows, n_cols, n_signs, biased);
}

static const specrt_shortlist *route(world *w, const float *hidden, int32_t n,
                                     const float *logprobs) {
    static const int32_t tokens[TOPK] = {1, 2, 3, 4, 5, 6, 7, 8};
    specrt_beam beam = {n, tokens, NULL, logprobs};
    root(w->session, 1);
    return specrt_session_route(w->session, 0, &beam, hidden, NULL);
}

/* --- the scans --- */

enum { SCAN_BLOCKS = 40, SCAN_LINES = 9 };

/* Sign k of a place by the definition of the layout. */
static int sign_of(const uint8_t *codes, size_t stride, int32_t place, int32_t k) {
    const uint8_t *at =
        codes + (size_t)(place / 16) * stride + k / 32 * 64 + place % 16 * 4 + k % 4;
    return 2 * (*at >> k % 32 / 4 & 1) - 1;
}

static float scale_of(uint8_t stored) {
    return ldexpf(1 + (float)(stored & 7) / 8, stored / 8 - 31);
}

static float score_of(const specrt__scan_signs *rows, const specrt__scan_query *query, int s,
                      int32_t place) {
    int32_t sum = 0;
    for (int32_t k = 0; k < 32 * rows->n_lines; k++)
        sum += sign_of(rows->codes, rows->stride, place, k) * *specrt__scan_at(query, s, k);
    return fmaf((float)sum, query->unit[s] * scale_of(rows->scales[place]),
                rows->constant_unit * (float)rows->constants[place]);
}

static void check_hits(const specrt__scan_signs *rows, int first, int n_blocks,
                       const specrt__scan_query *query, int s, const specrt__scan_hits *hits) {
    int n = 0;
    for (int place = 16 * first; place < 16 * (first + n_blocks); place++) {
        float score = score_of(rows, query, s, place);
        if (score < query->least[s]) continue;
        if (n < hits->n)
            CHECK(hits->places[n] == place && memcmp(&hits->scores[n], &score, 4) == 0);
        n++;
    }
    CHECK_INT(hits->n, n);
}

/* The kernels of this machine. @return how many. */
static int kernels_of(const specrt__scan_kernels *out[3]) {
    int n = 0;
    out[n++] = &specrt__scan_scalar;
    out[n++] = specrt__scan_choose();
#if defined(SPECRT__SIMD_X86)
    if (__builtin_cpu_supports("avx2")) out[n++] = &specrt__scan_avx2;
#endif
    return n;
}

static void query_fill(specrt__scan_query *query, int32_t n_dims, bool extreme) {
    for (int s = 0; s < query->n_states; s++) {
        query->unit[s] = 0.5f + (float)s;
        query->least[s] = s == 0 ? -INFINITY : 20.0f * (float)s;
        query->offset[s] = 0;
        for (int32_t k = 0; k < n_dims; k++) {
            int drawn = fixture_below(&state, 255) - 127;
            int8_t number = (int8_t)(extreme ? (drawn < 0 ? -127 : 127) : drawn);
            *specrt__scan_at(query, s, k) = number;
            query->offset[s] += number;
        }
    }
}

/* MinGW's fmaf() rounds twice; processors do not. */
static bool rounds_once(void) {
    volatile float x = 1 + 0x1p-12f;
    return fmaf(x, x, 0x1p-80f) > 1 + 0x1p-11f;
}

TEST(signs, "every instruction set against plain sums of signs") {
    static uint8_t codes[SCAN_BLOCKS * 64 * SCAN_LINES], scales[SCAN_BLOCKS * 16];
    static int8_t constants[SCAN_BLOCKS * 16], q[SPECRT__SCAN_STATES * 32 * SCAN_LINES];
    static specrt__scan_hits hits[SPECRT__SCAN_STATES];
    const specrt__scan_kernels *kernels[3];
    int n_kernels = kernels_of(kernels);
    if (!rounds_once()) SKIP("this C library's fmaf() rounds twice");
    for (int round = 0; round < 240; round++) {
        int32_t n_lines = 1 + round % SCAN_LINES, built = n_lines + round % 3;
        int first = round % 7, n = 1 + round % SPECRT__SCAN_BLOCKS;
        bool extreme = round % 11 == 10; /* the most that sums hold */
        if (built > SCAN_LINES) built = n_lines;
        for (size_t i = 0; i < sizeof codes; i++)
            codes[i] = extreme ? 255 : (uint8_t)(fixture_random(&state) >> 40);
        for (size_t i = 0; i < sizeof scales; i++) {
            scales[i] = (uint8_t)(fixture_random(&state) >> 40);
            constants[i] = (int8_t)(fixture_below(&state, 255) - 127);
        }
        specrt__scan_signs rows = {codes, 64 * (size_t)built, n_lines, scales, constants, 0.37f};
        specrt__scan_query query = {.q = q, .n_states = round % 3 ? SPECRT__SCAN_STATES : 1};
        query_fill(&query, 32 * n_lines, extreme);
        if (query.n_states > 1) query.least[1] = score_of(&rows, &query, 1, 16 * first + 5);
        for (int k = 0; k < n_kernels; k++) {
            for (int s = 0; s < query.n_states; s++) hits[s].n = 0;
            kernels[k]->signs(&rows, first, n, &query, hits);
            for (int s = 0; s < query.n_states; s++)
                check_hits(&rows, first, n, &query, s, &hits[s]);
        }
    }
}

/* Pair k of a record by the definition of the layout. */
static int pair_of(const uint8_t *record, int32_t n_lines, int32_t k) {
    int32_t line = k / 256, width = line == n_lines - 1 ? 60 : 64, in_line = k % 256;
    return 2 * (record[64 * line + in_line % width] >> 2 * (in_line / width) & 3) - 3;
}

TEST(pairs, "and of pairs of bits") {
    enum { N = 70, LINES = 3 };
    static uint8_t bytes[N * 64 * LINES];
    static int8_t q[256 * LINES];
    const specrt__scan_kernels *kernels[3];
    int n_kernels = kernels_of(kernels);
    int32_t places[N], sums[N + 1];
    for (int round = 0; round < 120; round++) {
        int32_t n_lines = 1 + round % LINES, n = 1 + round % N, rank = 256 * n_lines - 16,
                total = 0;
        const specrt__scan_records records = {bytes, n_lines};
        bool extreme = round % 11 == 10;
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = extreme ? 255 : (uint8_t)(fixture_random(&state) >> 40);
        for (int32_t i = 0; i < n; i++) places[i] = fixture_below(&state, N);
        memset(q, 0, sizeof q);
        for (int32_t k = 0; k < rank; k++) {
            int8_t number = (int8_t)(extreme ? -127 : fixture_below(&state, 255) - 127);
            q[specrt__scan_record_at(n_lines, k)] = number;
            total += number;
        }
        for (int k = 0; k < n_kernels; k++) {
            sums[n] = 77;
            kernels[k]->pairs(&records, places, n, q, sums);
            CHECK_INT(sums[n], 77);
            for (int32_t i = 0; i < n; i++) {
                int32_t expected = 0;
                const uint8_t *record = bytes + (size_t)places[i] * 64 * (size_t)n_lines;
                for (int32_t d = 0; d < rank; d++)
                    expected += pair_of(record, n_lines, d) * q[specrt__scan_record_at(n_lines, d)];
                CHECK_INT(2 * sums[i] - 3 * total, expected);
            }
        }
    }
}

/* --- what a level names --- */

/* z in 8 bits, of the first n directions, as the runtime rounds. @return the unit. */
static float round_z(const float *z, int32_t n, int32_t *q) {
    float most = 0;
    for (int32_t k = 0; k < n; k++) most = fabsf(z[k]) > most ? fabsf(z[k]) : most;
    float unit = most / 127;
    for (int32_t k = 0; k < n; k++) q[k] = (int32_t)lrintf(z[k] * (1 / unit));
    return unit;
}

static void project(const world *w, const float *hidden, float *z) {
    specrt_segment basis = specrt__sketch_basis(&w->view);
    int32_t rank = w->view.header->rank;
    specrt_shortlist shortlist = {&w->head->compute, &basis, 1, rank, w->n_cols, NULL};
    float center[MOST_RANK];
    REQUIRE(!specrt_shortlist_logits(&shortlist, hidden, 1, z));
    REQUIRE(!specrt_shortlist_logits(&shortlist, w->view.center, 1, center));
    for (int k = 0; k < rank; k++) z[k] -= center[k];
}

static float bf16_of(const uint8_t *bytes) {
    return specrt__base_float((uint32_t)bytes[0] << 16 | (uint32_t)bytes[1] << 24);
}

/* What a record scores for z in whole numbers. */
static float score_record(const specrt_sketch *v, int32_t at, const int32_t *q, float unit,
                          float bias) {
    int32_t rank = v->header->rank, n_lines = (rank + 16) / 256, sum = 0;
    const uint8_t *record = v->records + 64 * (size_t)(n_lines * at), *end = record + 64 * n_lines;
    for (int32_t k = 0; k < rank; k++) sum += pair_of(record, n_lines, k) * q[k];
    return fmaf((float)sum, unit * bf16_of(end - 4), bf16_of(end - 2) + bias);
}

/* Marks the places that a state previews: the blocks of 16 that hold its best clusters' rows. */
static void mark_probed(const world *w, const float *hidden, int32_t n_probed, uint8_t *seen) {
    const specrt_sketch *v = &w->view;
    specrt__sketch_clusters c = specrt__sketch_clusters_of(v);
    int32_t q[MOST_RANK];
    float z[MOST_RANK], scores[64];
    project(w, hidden, z);
    float unit = round_z(z, v->header->rank, q);
    REQUIRE(c.n <= 64);
    for (int32_t m = 0; m < c.n; m++) scores[m] = score_record(v, w->n_rows + m, q, unit, 0);
    for (int32_t m = 0; m < c.n; m++) {
        int32_t above = 0;
        for (int32_t j = 0; j < c.n; j++)
            above += scores[j] > scores[m] || (scores[j] == scores[m] && j < m);
        for (int32_t i = 0; above < n_probed && i < w->n_rows; i++)
            if (i / 16 >= (int32_t)c.starts[m] / 16 &&
                i / 16 <= (int32_t)(c.starts[m + 1] - 1) / 16)
                seen[i] = 1;
    }
}

/* Scores by signs and by pairs of every place. */
static void score_all(const world *w, const float *hidden, int32_t n_signs, float *preview,
                      float *refined) {
    const specrt_sketch *v = &w->view;
    int32_t rank = v->header->rank, q[2][MOST_RANK];
    float z[MOST_RANK], units[2], most = 0;
    project(w, hidden, z);
    units[0] = round_z(z, n_signs, q[0]);
    units[1] = round_z(z, rank, q[1]);
    for (int32_t i = 0; w->biased && i < w->n_rows; i++)
        most = fmaxf(
            most, fabsf(v->header->constant_unit * (float)v->constants[i] + w->bias[v->rows[i]]));
    for (int32_t i = 0; i < w->n_rows; i++) {
        int32_t sum = 0;
        float bias = w->biased ? w->bias[v->rows[i]] : 0;
        float constant = v->header->constant_unit * (float)v->constants[i];
        if (w->biased) constant = most / 127 * (float)lrintf((constant + bias) * (127 / most));
        for (int32_t k = 0; k < n_signs; k++)
            sum += sign_of(v->signs, (size_t)v->header->n_signs * 2, i, k) * q[0][k];
        preview[i] =
            fmaf((float)sum, units[0] * v->header->scale_unit * scale_of(v->scales[i]), constant);
        refined[i] = score_record(v, i, q[1], units[1], bias);
    }
}

/* Scores of tokens that a state may name: those of the `keep` best by signs of the places seen; else -inf. */
static void score_tokens(const world *w, const float *hidden, int32_t n_signs, int32_t keep,
                         const uint8_t *seen, double *scores) {
    static float preview[MOST_ROWS], refined[MOST_ROWS];
    score_all(w, hidden, n_signs, preview, refined);
    for (int32_t id = 0; id < w->n_rows; id++) scores[id] = -INFINITY;
    for (int32_t i = 0; i < w->n_rows; i++) {
        int32_t above = 0, id = w->view.rows[i];
        for (int32_t j = 0; j < w->n_rows; j++)
            above += seen[j] && (preview[j] > preview[i] || (preview[j] == preview[i] && j < i));
        if (seen[i] && above < keep && specrt__pool_valid(w->session->pool, id) &&
            !specrt__pool_member(w->session->pool, id))
            scores[id] = (double)refined[i];
    }
}

static const specrt_segment *routed(const specrt_shortlist *shortlist) {
    return &shortlist->segments[shortlist->n_segments - 1];
}

static const specrt__sketch *sketch_of(const world *w) {
    const specrt_policy *policy = w->policy;
    for (int i = 0; i < policy->n_sources; i++)
        if (policy->sources[i].source == &specrt__sketch_source)
            return (const specrt__sketch *)w->session->states[i];
    REQUIRE(false);
    return NULL;
}

/* One state: exactly the greatest scores, ties to the lower id. */
static void check_one(world *w, int32_t size, int32_t n_signs, int32_t keep, int32_t n_places,
                      int32_t n_probed) {
    static double scores[MOST_ROWS];
    static uint8_t held[MOST_ROWS], seen[MOST_ROWS];
    float hidden[MOST_COLS], sure = 0;
    for (int32_t j = 0; j < w->n_cols; j++) hidden[j] = fixture_normal(&state);
    const specrt_segment *s = routed(route(w, hidden, 1, &sure));
    int32_t kept = sketch_of(w)->kept->n, n_named = 0, n_seen = 0;
    memset(seen, 0, sizeof seen);
    if (n_probed > 0) mark_probed(w, hidden, n_probed, seen);
    for (int32_t i = 0; i < n_places && n_probed == 0; i++) seen[i] = 1;
    for (int32_t i = 0; i < w->n_rows; i++) n_seen += seen[i];
    if (keep > n_seen) keep = n_seen;
    CHECK(kept <= keep && kept >= keep / 2);
    if (n_seen < 31 * 16) CHECK_INT(kept, keep); /* nothing is guessed */
    memset(held, 0, sizeof held);
    score_tokens(w, hidden, n_signs, kept, seen, scores);
    for (int32_t id = 0; id < w->n_rows; id++) n_named += scores[id] > -INFINITY;
    CHECK_INT(s->n_rows, size < n_named ? size : n_named);
    CHECK_INT(s->n_masked, 0);
    double least = INFINITY;
    int32_t last = -1; /* the greatest id among the least scores held */
    for (int32_t i = 0; i < s->n_rows; i++) {
        CHECK(!held[s->ids[i]]);
        held[s->ids[i]] = 1;
    }
    for (int32_t id = 0; id < w->n_rows; id++)
        if (held[id] && scores[id] <= least) least = scores[id], last = id;
    for (int32_t id = 0; id < w->n_rows; id++) {
        if (held[id])
            CHECK(scores[id] > least || (scores[id] == least && id <= last));
        else
            CHECK(scores[id] < least || (scores[id] == least && id > last));
    }
}

TEST(one_state, "what a state names against a full sort: fewer signs, keeps, parts, ties") {
    static world w;
    static const struct {
        int32_t n_rows, n_cols, signs, size, used, keep, n_places;
        const char *policy;
        int32_t n_clusters, n_probed;
    } tries[] = {
        {2105, 20, 64, 30, 64, 131, 2105, "static:20+sketch:30", 0, 0},
        {2105, 32, 96, 64, 32, 300, 2105, "sketch:64@keep=300@signs=32", 0, 0},
        {97, 24, 96, 11, 96, 44, 97, "static:20+sketch:11", 0, 0},
        {2105, 20, 32, 6, 32, 131, 2105, "sketch:6", 0, 0},
        {481, 20, 256, 12, 256, 40, 481, "sketch:12@keep=40", 0, 0},
        {2105, 20, 480, 25, 128, 90, 2105, "static:20+sketch:25@keep=90@signs=128", 0, 0},
        {481, 32, 224, 33, 96, 40, 481, "sketch:33@keep=40@signs=70", 0, 0},
        {601, 16, 64, 50, 64, 50, 133, "sketch:50@keep=9@scan=133", 0, 0},
        {601, 16, 64, 20, 64, 601, 601, "sketch:20@keep=601", 0, 0},
        {2105, 20, 64, 30, 64, 100, 0, "sketch:30@keep=100@clusters=7", 40, 7},
        {2105, 24, 256, 30, 64, 90, 0, "static:20+sketch:30@keep=90@signs=64@clusters=1", 64, 1},
        {2105, 20, 64, 40, 64, 300, 0, "sketch:40@keep=300@clusters=30", 33, 30},
        {601, 16, 96, 12, 96, 60, 601, "sketch:12@keep=60@clusters=9", 9, 0},
        {601, 16, 96, 12, 96, 60, 601, "sketch:12@keep=60", 9, 0}};
    for (size_t i = 0; i < sizeof tries / sizeof tries[0]; i++)
        for (int biased = 0; biased < 2; biased++) {
            world_make_in(&w, tries[i].n_clusters, tries[i].n_rows, tries[i].n_cols, tries[i].signs,
                          biased == 1);
            world_open(&w, tries[i].policy);
            for (int round = 0; round < (test_quick() ? 4 : 12); round++)
                check_one(&w, tries[i].size, tries[i].used, tries[i].keep, tries[i].n_places,
                          tries[i].n_probed);
            world_close(&w);
            free(w.bytes);
        }
}

/* What is counted as read: rows, the basis, signs with scales and constants of the scanned blocks, records.
 * Of the last try the best are guessed, rightly: no block is read twice. */
TEST(bytes, "what a pass reads") {
    static world w;
    static const struct {
        int32_t signs, rank, blocks, lines, states;
        const char *policy;
        int32_t clusters;
    } tries[] = {{96, 240, 9, 2, 1, "sketch:50@scan=133@keep=60@signs=64", 0},
                 {256, 496, 9, 2, 3, "sketch:50@scan=133@keep=60@signs=64", 0},
                 {96, 240, 132, 3, 2, "sketch:50@keep=300", 0},
                 {256, 496, 0, 2, 3, "sketch:50@keep=300@signs=64@clusters=9", 40}};
    for (int i = 0; i < 4; i++) {
        float hidden[3 * MOST_COLS], logprobs[3] = {0};
        uint8_t seen[MOST_ROWS];
        specrt_session_stats stats;
        int64_t n_kept = 0;
        world_make_in(&w, tries[i].clusters, 2105, 20, tries[i].signs, false);
        world_open(&w, tries[i].policy);
        for (int32_t j = 0; j < 3 * 20; j++) /* the first one's bound is too high for the others */
            hidden[j] = (j < 20 ? 4 : 1) * fixture_normal(&state);
        CHECK_INT(routed(route(&w, hidden, tries[i].states, logprobs))->n_rows, 50);
        int32_t blocks = tries[i].blocks;
        for (int32_t k = 0; k < tries[i].states && tries[i].clusters > 0; k++) { /* each its own */
            memset(seen, 0, sizeof seen);
            mark_probed(&w, hidden + 20 * k, 9, seen);
            for (int32_t v = 0; v < w.n_rows; v += 16) blocks += seen[v];
        }
        specrt_session_get_stats(w.session, &stats);
        for (int k = 0; k < tries[i].states; k++)
            n_kept += sketch_of(&w)->kept[k * SPECRT__SKETCH_PARTS].n;
        CHECK_INT(stats.n_passes, 1);
        CHECK_INT(stats.n_bytes,
                  w.session->shortlist.n_rows * 80 + tries[i].rank * 40 +
                      blocks * (tries[i].lines * 64 + 32) +
                      (n_kept + tries[i].states * tries[i].clusters) * (tries[i].rank + 16) / 4);
        world_close(&w);
        free(w.bytes);
    }
}

/* Where rows of a cluster score alike, blocks of many clusters guess the bound: hardly a state is previewed
 * again. */
TEST(guess, "bounds where rows of a cluster score alike") {
    static world w;
    enum { ROUNDS = 200, SIZE = 64, KEEP = 300 };
    float hidden[MOST_COLS], sure = 0;
    int n_again = 0;
    for (int round = 0; round < ROUNDS; round++) {
        world_make_in(&w, 33, 2105, 20, 64, false);
        world_open(&w, round % 2 ? "sketch:9@keep=300" : "sketch:9@keep=300@clusters=32");
        int8_t *constants = (int8_t *)(uintptr_t)w.view.constants; /* of w.bytes */
        specrt__sketch_clusters c = specrt__sketch_clusters_of(&w.view);
        for (int32_t m = 0; m < c.n; m++)
            memset(constants + c.starts[m], fixture_below(&state, 255) - 127,
                   c.starts[m + 1] - c.starts[m]);
        for (int32_t j = 0; j < w.n_cols; j++) hidden[j] = 0.01f * fixture_normal(&state);
        route(&w, hidden, 1, &sure);
        const specrt__sketch *s = sketch_of(&w);
        int64_t once = 240 * 40 + (round % 2 ? 0 : 33 * 64) + 64 * (int64_t)s->kept->n +
                       s->n_blocks * (2 * 64 + 32);
        n_again += s->n_read > once;
        world_close(&w);
        free(w.bytes);
    }
    CHECK(n_again <= ROUNDS / 20);
}

TEST(no_numbers, "states that are no numbers name rows all the same") {
    static world w;
    float hidden[MOST_COLS], sure = 0;
    world_make(&w, 601, 20, 64, false);
    world_open(&w, "sketch:50");
    for (int round = 0; round < 3; round++) {
        for (int32_t j = 0; j < 20; j++)
            hidden[j] = round == 0 ? 0 : round == 1 ? NAN : j % 2 ? INFINITY : 1e30f;
        CHECK_INT(routed(route(&w, hidden, 1, &sure))->n_rows, 50);
    }
    world_close(&w);
    free(w.bytes);
}

/* Several states, more than are scanned at once: every one held is at least as likely as every one that some
 * state named but not held. */
static void check_levels(int32_t n_clusters, int32_t n_probed, int32_t size, const char *policy) {
    static world w;
    static double scores[MOST_ROWS], weights[MOST_ROWS];
    float hidden[TOPK * MOST_COLS], logprobs[TOPK];
    uint8_t held[MOST_ROWS], seen[MOST_ROWS];
    world_make_in(&w, n_clusters, 2105, 20, 64, true);
    w.topk = TOPK;
    world_open(&w, policy);
    for (int round = 0; round < (test_quick() ? 4 : 12); round++) {
        int32_t n = 2 + round % (TOPK - 1);
        for (int32_t i = 0; i < n * w.n_cols; i++) hidden[i] = fixture_normal(&state);
        for (int32_t i = 0; i < n; i++) logprobs[i] = -0.7f * (float)i;
        const specrt_segment *s = routed(route(&w, hidden, n, logprobs));
        memset(weights, 0, sizeof weights);
        memset(held, 0, sizeof held);
        for (int32_t i = 0; i < n; i++) {
            memset(seen, n_probed == 0, sizeof seen);
            if (n_probed > 0) mark_probed(&w, hidden + i * w.n_cols, n_probed, seen);
            double most = -INFINITY, sum = 0;
            int32_t above, kept = sketch_of(&w)->kept[i * SPECRT__SKETCH_PARTS].n;
            score_tokens(&w, hidden + i * w.n_cols, 64, kept, seen, scores);
            for (int32_t id = 0; id < w.n_rows; id++) most = fmax(most, scores[id]);
            for (int32_t id = 0; id < w.n_rows; id++) { /* the greatest alone */
                above = 0;
                for (int32_t j = 0; j < w.n_rows; j++) above += scores[j] > scores[id];
                held[id] = scores[id] > -INFINITY && above < size;
                sum += held[id] ? exp(scores[id] - most) : 0;
            }
            for (int32_t id = 0; id < w.n_rows; id++)
                if (held[id]) weights[id] += exp((double)logprobs[i] + scores[id] - most) / sum;
        }
        double least = INFINITY;
        memset(held, 0, sizeof held);
        CHECK_INT(s->n_rows, size);
        for (int32_t i = 0; i < s->n_rows; i++) {
            CHECK(!held[s->ids[i]]);
            held[s->ids[i]] = 1;
            least = fmin(least, weights[s->ids[i]]);
        }
        for (int32_t id = 0; id < w.n_rows; id++)
            CHECK(held[id] || weights[id] <= least * (1 + 1e-4) + 1e-11); /* TOPK 2^-40 */
    }
    world_close(&w);
    free(w.bytes);
}

TEST(levels, "what a level of several states names, by probability") {
    check_levels(0, 0, 600, "static:20+sketch:600@keep=1900"); /* more than lists have room for */
    check_levels(40, 20, 40, "static:20+sketch:40@keep=600@clusters=20");
}

/* With every row named, logits are the full vocabulary's. */
static void check_everything(const char *policy, specrt_dtype dtype) {
    static world w;
    static float logits[MOST_ROWS], expected[MOST_ROWS];
    static uint8_t rows[601 * 32 * 4];
    float hidden[MOST_COLS], sure = 0;
    world_make(&w, 601, 32, 64, true);
    w.dtype = dtype;
    for (int32_t i = 0; i < 601; i++)
        quantise_row(dtype, w.rows + 32 * i, 32, rows + (size_t)i * specrt_row_bytes(dtype, 32));
    memcpy(w.rows, rows, sizeof rows);
    world_open(&w, policy);
    specrt_dtype packed = specrt__head_packed_dtype(w.head);
    size_t stride = specrt_row_bytes(packed, 32);
    for (int32_t i = 0; i < 601; i++) specrt__head_pack(w.head, i, rows + (size_t)i * stride);
    for (int32_t j = 0; j < w.n_cols; j++) hidden[j] = fixture_normal(&state);
    const specrt_shortlist *shortlist = route(&w, hidden, 1, &sure);
    CHECK_INT(shortlist->n_rows, 599); /* n_vocab leaves one out, the ranks another */
    specrt_segment all = {
        .rows = rows, .dtype = packed, .row_stride = stride, .n_rows = 601, .bias = w.bias};
    specrt__head_products(w.head->compute.kernels, &all, 0, 601, 32, hidden, 1, expected, 601);
    REQUIRE(!specrt_shortlist_logits(shortlist, hidden, 1, logits));
    const float *at = logits;
    for (int32_t i = 0; i < shortlist->n_segments; at += shortlist->segments[i++].n_rows)
        for (int32_t r = 0; r < shortlist->segments[i].n_rows; r++)
            CHECK(memcmp(&at[r], &expected[shortlist->segments[i].ids[r]], 4) == 0);
    world_close(&w);
    free(w.bytes);
}

TEST(everything, "all rows named: the full vocabulary, bit for bit") {
    check_everything("sketch:601", SPECRT_DTYPE_F32);
    check_everything("sketch:601", SPECRT_DTYPE_Q4_0);                   /* decoded */
    check_everything("sketch:602@keep=603@scan=9999", SPECRT_DTYPE_F32); /* more than there are */
}

TEST(least, "one row of one column is a head, too") {
    size_t n_sketch, n;
    uint8_t *section = fixture_sketch(1, 1, 32, 7, &n_sketch);
    fixture_section s = {"sketch", 3, 32, section, n_sketch, n_sketch};
    uint8_t *bytes = fixture_bundle(&s, 1, &n);
    specrt_sketch view;
    specrt_bundle *bundle = open_memory(bytes, n);
    CHECK_INT(specrt_bundle_sketch(bundle, &view, NULL), SPECRT_STATUS_OK);
    CHECK(view.header->n_rows == 1 && view.header->n_cols == 1);
    specrt_bundle_close(bundle);
    free(section);
    free(bytes);
}

/* --- what is refused --- */

TEST(refused, "signs, heads, a missing bundle, clusters that are not there") {
    static world w;
    specrt_error err;
    specrt_policy *policy;
    specrt_head_desc desc = f32_rows(w.rows, 96, 24);
    specrt_policy_desc pd = {.text = "sketch:5@signs=128"};
    specrt_head *other, *narrow;
    world_make(&w, 97, 24, 96, false);
    world_open(&w, "sketch:5");
    CHECK_INT(specrt_policy_create(w.bundle, w.head, &pd, &policy, &err), SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(err.msg, "signs: expected at most the section's 96, found 128");
    pd.text = "sketch:5@signs=96";
    CHECK_INT(specrt_policy_create(w.bundle, w.head, &pd, &policy, &err), SPECRT_STATUS_OK);
    specrt_policy_close(policy);
    pd.text = "sketch:5";
    other = bind_head(NULL, &desc);
    CHECK_INT(specrt_policy_create(w.bundle, other, &pd, &policy, &err),
              SPECRT_STATUS_BUNDLE_MISMATCH);
    CHECK_HAS(err.msg, "expected a head [97, 24], found [96, 24]");
    desc.n_rows = 97, desc.n_cols = 23;
    narrow = bind_head(NULL, &desc);
    CHECK_INT(specrt_policy_create(w.bundle, narrow, &pd, &policy, &err),
              SPECRT_STATUS_BUNDLE_MISMATCH);
    CHECK_HAS(err.msg, "expected a head [97, 24], found [97, 23]");
    specrt_head_close(narrow);
    CHECK_INT(specrt_policy_create(NULL, other, &pd, &policy, &err),
              SPECRT_STATUS_BUNDLE_SECTION_MISSING);
    CHECK_HAS(err.msg, "sketch-build");
    specrt_head_close(other);
    pd.text = "sketch:5@clusters=3";
    CHECK_INT(specrt_policy_create(w.bundle, w.head, &pd, &policy, &err), SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(err.msg, "clusters: the section has none; build it with sketch-build --clusters N");
    world_close(&w);
    free(w.bytes);
    world_make_in(&w, 12, 97, 24, 96, false);
    world_open(&w, "sketch:5@clusters=3");
    pd.text = "sketch:5@scan=50";
    CHECK_INT(specrt_policy_create(w.bundle, w.head, &pd, &policy, &err), SPECRT_STATUS_BAD_ARG);
    CHECK_HAS(err.msg, "scan: expected rows by frequency, found them in clusters");
    world_close(&w);
    free(w.bytes);
}

/* One damaged number of a section. @return what refuses it. */
static void check_damage(world *w, size_t at, const void *with, size_t n, specrt_status status,
                         const char *what) {
    uint8_t kept[4];
    specrt_error err = {SPECRT_STATUS_OK, ""};
    specrt_sketch view;
    memcpy(kept, w->bytes + at, n);
    memcpy(w->bytes + at, with, n);
    fixture_seal(w->bytes, w->n_bytes);
    w->bundle = open_memory(w->bytes, w->n_bytes);
    CHECK_INT(specrt_bundle_sketch(w->bundle, &view, &err), status);
    CHECK_HAS(err.msg, "b: section 'sketch': ");
    CHECK_HAS(err.msg, what);
    CHECK(view.header == NULL);
    specrt_bundle_close(w->bundle);
    memcpy(w->bytes + at, kept, n);
}

static void check_bad_header(world *w, size_t header) {
    static const struct {
        size_t at;
        int32_t with;
        const char *what;
    } tries[] = {
        {0, 0, "n_rows, n_cols: "},
        {0, SPECRT_MAX_VOCAB + 1, "n_rows, n_cols: "},
        {4, 0, "n_rows, n_cols: "},
        {4, 65537, "n_rows, n_cols: "},
        {8, 0, "rank: "},
        {8, 256, "rank: "},
        {8, 4336, "rank: "},
        {8, -16, "rank: "},
        {12, 0, "n_signs: "},
        {12, 33, "n_signs: "},
        {12, 256, "n_signs: "},
        {20, SPECRT_DTYPE_F32, "basis_dtype: "},
        {20, SPECRT_DTYPE_Q8_0, "basis_dtype: "},
        {24, 0x7f800000, "scale_unit, constant_unit: "},
        {24, -1082130432, "scale_unit, constant_unit: "},
        {28, 0x7fc00000, "scale_unit, constant_unit: "},
        {28, 0x7f800000, "scale_unit, constant_unit: "},
        {32, -1, "n_clusters: "},
        {32, 602, "n_clusters: "},
        {32, 1, "size: expected the bytes of its header's counts"},
        {0, 560, "size: expected the bytes of its header's counts"},
        {0, 700, "size: expected the bytes of its header's counts"},
        {8, 4080, "size: expected the bytes of its header's counts"}, /* the largest rank */
        {12, 96, "size: expected the bytes of its header's counts"}};
    for (size_t i = 0; i < sizeof tries / sizeof tries[0]; i++)
        check_damage(w, header + tries[i].at, &tries[i].with, 4, SPECRT_STATUS_BUNDLE_CONTENT,
                     tries[i].what);
}

/* Where the table of the bundle has the version of the section. */
static size_t version_at(const world *w) {
    size_t entry = 64;
    while (memcmp(w->bytes + entry, "sketch", 6) != 0) entry += 64;
    return entry + offsetof(specrt_bundle_section, version);
}

TEST(damaged, "sizes that lie, numbers that are none, versions that were") {
    static world w;
    const uint16_t huge = 0x7c00, endless = 0x7f80, negative = 0xbc00;
    const uint32_t nan = 0x7fc00000, old = 2, rows[2] = {601, 0xffffffff};
    world_make(&w, 601, 20, 64, false);
    world_open(&w, "sketch:5");
    const specrt_sketch v = w.view;
#define AT(field) ((size_t)((const uint8_t *)v.field - w.bytes))
    size_t header = AT(header), basis = AT(basis), center = AT(center), places = AT(rows),
           records = AT(records);
#undef AT
    world_close(&w);
    check_bad_header(&w, header);
    const specrt_status content = SPECRT_STATUS_BUNDLE_CONTENT;
    check_damage(&w, basis + 2, &huge, 2, content, "basis: ");
    check_damage(&w, basis + 240 * 40 - 2, &huge, 2, content, "basis: ");
    check_damage(&w, center, &nan, 4, content, "center: ");
    check_damage(&w, center + 19 * 4, &nan, 4, content, "center: ");
    check_damage(&w, records + 60, &endless, 2, content, "records: ");
    check_damage(&w, records + 64 * 600 + 62, &endless, 2, content, "records: ");
    check_damage(&w, records + 60, &negative, 2, content, "records: ");
    check_damage(&w, places + 4, w.bytes + places, 4, content, "rows: expected distinct rows");
    check_damage(&w, places + 8, w.bytes + places + 4, 4, content, "rows: expected distinct rows");
    check_damage(&w, places, &rows[0], 4, content, "rows: expected rows below n_rows");
    check_damage(&w, places + 4 * 600, &rows[1], 4, content, "rows: expected rows below n_rows");
    check_damage(&w, version_at(&w), &old, 4, SPECRT_STATUS_BUNDLE_VERSION,
                 "expected version 3 or 4, found 2; rebuild it with sketch-build");
    free(w.bytes);
}

/* Clusters that overlap, are empty or end elsewhere, means without a scale, and a version without any. */
TEST(damaged_clusters, "clusters that are none") {
    static world w;
    const uint16_t endless = 0x7f80;
    const uint32_t one = 1, all = 601, three = 3;
    world_make_in(&w, 15, 601, 20, 64, false); /* the last of 16 starts ends the bundle */
    world_open(&w, "sketch:5");
    specrt__sketch_clusters c = specrt__sketch_clusters_of(&w.view);
    size_t starts = (size_t)((const uint8_t *)c.starts - w.bytes);
    size_t means = (size_t)(c.centroids.bytes - w.bytes);
    world_close(&w);
    const specrt_status content = SPECRT_STATUS_BUNDLE_CONTENT;
    check_damage(&w, starts, &one, 4, content, "starts: expected 0 first and n_rows last");
    check_damage(&w, starts + 4 * 15, &one, 4, content, "starts: expected 0 first and n_rows last");
    check_damage(&w, starts + 4 * 14, &all, 4, content, "starts: expected ascending places");
    check_damage(&w, starts + 4 * 2, &one, 4, content, "starts: expected ascending places");
    check_damage(&w, means + 64 * 14 + 62, &endless, 2, content, "records: ");
    check_damage(&w, version_at(&w), &three, 4, content, "n_clusters: expected 0 in version 3");
    free(w.bytes);
}
