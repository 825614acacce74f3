/* bench_sketch.c : one level of a tree over the full head and over a sketch of it, on one core: time by
 * phase, beside reading the same bytes. A level finds signs in the cache as the one before left them, but the
 * first after the full head. Weights are random: what is found does not matter.
 *   bench_sketch [ROWS COLUMNS SIGNS NAMED KEEP [f16|q8_0|q4_0|iq4_nl [CLUSTERS PROBED]]] */
#define SPECRT_STATIC
#define SPECRT_IMPLEMENTATION
#include "specrt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/measure.h"
#include "machine.h"
#include "sessions.h"

enum { TOPK = 10, BEAMS = 10 };

typedef struct bench {
    int32_t n_rows, n_cols, n_signs, named, keep, n_clusters, n_probed;
    specrt_dtype dtype;
    uint8_t *rows;
    float *hidden, *logits;
    int32_t ids[BEAMS * TOPK];
    float logprobs[BEAMS * TOPK];
    specrt_bundle *bundle;
    specrt_head *head;
} bench;

static void open_all(bench *b) {
    size_t n, n_bundle, row = specrt_row_bytes(b->dtype, b->n_cols);
    specrt_error err;
    uint8_t *bytes = fixture_sketch_in(b->n_clusters, b->n_rows, b->n_cols, b->n_signs, 9, &n);
    fixture_section s = {"sketch", 4, SPECRT_SECTION_DEPENDS_HEAD, bytes, n, n};
    uint8_t *bundle = fixture_bundle(&s, 1, &n_bundle);
    free(bytes);
    b->rows = (uint8_t *)take((size_t)b->n_rows * row);
    fill_halves(b->rows, (size_t)b->n_rows * row / 2);
    b->hidden = (float *)take((size_t)BEAMS * (size_t)b->n_cols * sizeof(float));
    b->logits = (float *)take((size_t)BEAMS * (size_t)b->n_rows * sizeof(float));
    uint64_t state = 5;
    for (int32_t i = 0; i < BEAMS * b->n_cols; i++) b->hidden[i] = fixture_normal(&state);
    specrt_head_desc desc = {
        .rows = b->rows, .dtype = b->dtype, .n_rows = b->n_rows, .n_cols = b->n_cols};
    require(specrt_bundle_open_memory(bundle, n_bundle, "sketch", NULL, &b->bundle, &err), &err);
    require(specrt_head_bind(NULL, &desc, NULL, &b->head, &err), &err);
}

static specrt_session *session(bench *b, const char *text) {
    const specrt_session_params params = {
        .tree = {.num_steps = 6, .topk = TOPK, .num_draft_tokens = 60}, .n_logits = b->n_rows};
    return open_session(b->bundle, b->head, text, &params);
}

typedef struct times {
    double route, logits, topk, project, read;
} times;

/* One level; each phase keeps its best. */
static void level(bench *b, specrt_session *s, int32_t n, times *best) {
    static const float path[BEAMS] = {0, -1, -1, -2, -2, -2, -3, -3, -3, -3};
    static const int32_t tokens[BEAMS] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    specrt_beam beam = {n, tokens, NULL, path};
    next_cycle(s);
    double start = sl_measure_seconds();
    const specrt_shortlist *shortlist = specrt_session_route(s, 0, &beam, b->hidden, NULL);
    keep_least(&best->route, start);
    start = sl_measure_seconds();
    specrt_shortlist_logits(shortlist, b->hidden, n, b->logits);
    keep_least(&best->logits, start);
    start = sl_measure_seconds();
    specrt_shortlist_topk(shortlist, b->logits, n, TOPK, b->ids, b->logprobs);
    keep_least(&best->topk, start);
}

/* What a search cannot do without: the projection, and reading signs and records. */
static void floors(bench *b, int32_t n, times *best) {
    specrt_sketch view;
    specrt_error err;
    require(specrt_bundle_sketch(b->bundle, &view, &err), &err);
    specrt_segment basis = specrt__sketch_basis(&view);
    specrt_shortlist shortlist = {
        specrt_head_compute(b->head), &basis, 1, basis.n_rows, b->n_cols, NULL};
    double start = sl_measure_seconds();
    specrt_shortlist_logits(&shortlist, b->hidden, n, b->logits);
    keep_least(&best->project, start);
    machine_read_time(view.signs,
                      (size_t)b->n_rows * (size_t)(b->n_signs / 8 + 2) + (size_t)b->keep * 64,
                      &best->read);
}

static specrt_dtype type_named(const char *name) {
    static const specrt_dtype types[] = {SPECRT_DTYPE_F16, SPECRT_DTYPE_Q8_0, SPECRT_DTYPE_Q4_0,
                                         SPECRT_DTYPE_IQ4_NL};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(name, specrt_dtype_name(types[i])) == 0) return types[i];
    fprintf(stderr, "bench_sketch: type: expected f16, q8_0, q4_0 or iq4_nl, found %s\n", name);
    exit(2);
}

int main(int argc, char **argv) {
    bench b = {.n_rows = 128256,
               .n_cols = 4096,
               .n_signs = 96,
               .named = 256,
               .keep = 8016,
               .dtype = SPECRT_DTYPE_F16};
    char text[64];
    if (argc >= 6) {
        b.n_rows = atoi(argv[1]);
        b.n_cols = atoi(argv[2]);
        b.n_signs = atoi(argv[3]);
        b.named = atoi(argv[4]);
        b.keep = atoi(argv[5]);
        if (argc > 6) b.dtype = type_named(argv[6]);
        if (argc > 8) b.n_clusters = atoi(argv[7]), b.n_probed = atoi(argv[8]);
    }
    open_all(&b);
    snprintf(text, sizeof text, "sketch:%d@keep=%d@clusters=%d", b.named, b.keep, b.n_probed);
    specrt_session *full = session(&b, "full"), *sketch = session(&b, text);
    printf("%d x %d %s, %d signs, %d places refined, %d rows exactly; ms\n", (int)b.n_rows,
           (int)b.n_cols, specrt_dtype_name(b.dtype), (int)b.n_signs, (int)b.keep, (int)b.named);
    printf("states  full: head topk  sketch: project  search (reading; first) exact  topk   x\n");
    for (int32_t n = 1; n <= BEAMS; n += BEAMS - 1) {
        times f = {1e9, 1e9, 1e9, 1e9, 1e9}, k = f, first = f;
        for (int round = 0; round < 15; round++) {
            level(&b, full, n, &f);
            level(&b, sketch, n, &first);
            for (int i = 0; i < 3; i++) level(&b, sketch, n, &k);
            floors(&b, n, &k);
        }
        double whole = f.logits + f.topk, ours = k.route + k.logits + k.topk;
        printf("%6d %11.2f %5.2f %16.3f %7.3f (%7.3f; %5.3f) %5.3f %5.3f %4.1f\n", (int)n,
               1e3 * f.logits, 1e3 * f.topk, 1e3 * k.project, 1e3 * (k.route - k.project),
               1e3 * k.read, 1e3 * (first.route - k.project), 1e3 * k.logits, 1e3 * k.topk,
               whole / ours);
    }
    return 0;
}
