/* bench_sketch.c : one level of a tree over the full head and over a sketch of it, on one core: time by
 * phase, beside reading the same codes and the peak of int8 products. A level finds codes in the cache as the
 * one before left them, but the first after the full head. Weights are random: what is found does not matter.
 *   bench_sketch [ROWS COLUMNS RANK NAMED [BITS]]
 * BITS is 8, 4, or bands, which give the rank: 64x4,160x2 for 64 directions of 4 bits and 160 of 2. */
#define SPECRT_STATIC
#define SPECRT_IMPLEMENTATION
#include "specrt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../tests/fixture.h"
#include "base/measure.h"
#include "machine.h"

enum { TOPK = 10, BEAMS = 10 };

typedef struct bench {
    int32_t n_rows, n_cols, rank, named, bits; /* 0: bands */
    const char *widths;                        /* as they were given */
    specrt_sketch_header header;
    uint16_t *rows;
    float *hidden, *logits;
    int32_t ids[BEAMS * TOPK];
    float logprobs[BEAMS * TOPK];
    specrt_bundle *bundle;
    specrt_head *head;
} bench;

static void *take(size_t bytes) {
    void *p = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
    if (!p) fprintf(stderr, "bench_sketch: out of memory\n"), exit(1);
    specrt__os_advise_huge(p, bytes);
    memset(p, 0, bytes);
    return p;
}

static void require(specrt_status status, const specrt_error *err) {
    if (status) fprintf(stderr, "bench_sketch: %s\n", err->msg), exit(1);
}

/* Numbers of f16 near 0.03, of either sign. */
static void fill_halves(uint16_t *out, size_t n) {
    uint64_t state = 3;
    for (size_t i = 0; i < n; i++)
        out[i] = (uint16_t)(0x2800 | ((fixture_random(&state) >> 32) & 0x83ff));
}

/* Bands from RANKxBITS,... */
static void parse_bands(const char *text, specrt_sketch_header *h) {
    int n = 0, rank, bits;
    for (; h->n_bands < SPECRT_MAX_SKETCH_BANDS && sscanf(text, "%dx%d%n", &rank, &bits, &n) == 2;
         text += n + (text[n] == ',')) {
        h->bands[h->n_bands].rank = (uint16_t)rank;
        h->bands[h->n_bands++].bits = (uint16_t)bits;
        h->rank += rank;
    }
}

static void plan(bench *b) {
    b->header = (specrt_sketch_header){.n_rows = b->n_rows, .n_cols = b->n_cols};
    b->bits = b->widths && strchr(b->widths, 'x') ? 0 : b->widths ? atoi(b->widths) : 8;
    b->header.four_bits = b->bits == 4;
    if (b->bits)
        b->header.rank = b->rank;
    else
        parse_bands(b->widths, &b->header);
    b->rank = b->header.rank;
}

/* Bytes of codes and of bands' scales. */
static size_t n_codes(const specrt_sketch_header *h) {
    size_t blocks = ((size_t)h->n_rows + 15) / 16, bytes = 0;
    if (!h->n_bands) return blocks * specrt__sketch_stride(h);
    for (int i = 0; i < h->n_bands; i++)
        bytes += blocks * (2 * (size_t)h->bands[i].rank * h->bands[i].bits + 32);
    return bytes;
}

static uint8_t *section(const bench *b, size_t *n) {
    specrt_sketch_header h = b->header;
    specrt_sketch view = {.header = &h};
    uint64_t state = 9;
    *n = (size_t)specrt__sketch_lay_out(&view);
    uint8_t *bytes = (uint8_t *)take(*n);
    memcpy(bytes, &h, sizeof h);
    view.header = (const specrt_sketch_header *)(const void *)bytes;
    specrt__sketch_lay_out(&view);
    fill_halves((uint16_t *)(uintptr_t)view.basis, (size_t)b->rank * (size_t)b->n_cols);
    const uint8_t *codes = h.n_bands ? (const uint8_t *)view.bands[0].scales : view.codes;
    for (uint8_t *p = (uint8_t *)(uintptr_t)codes; p < bytes + *n; p++)
        *p = (uint8_t)(fixture_random(&state) >> 32);
    for (int32_t i = 0; i < b->n_rows; i++) {
        ((int32_t *)(uintptr_t)view.rows)[i] = i;
        if (!h.n_bands) ((float *)(uintptr_t)view.scales)[i] = 0.01f;
    }
    for (int k = 0; k < h.n_bands; k++)
        for (int32_t i = 0; i < (b->n_rows + 15) / 16 * 16; i++)
            ((uint16_t *)(uintptr_t)view.bands[k].scales)[i] = 0x3c24; /* 0.01 */
    return bytes;
}

static void open_all(bench *b) {
    size_t n, n_bundle, n_weights = (size_t)b->n_rows * (size_t)b->n_cols;
    specrt_error err;
    uint8_t *bytes = section(b, &n);
    fixture_section s = {"sketch", b->bits ? 1 : 2, SPECRT_SECTION_DEPENDS_HEAD, bytes, n, n};
    uint8_t *bundle = fixture_bundle(&s, 1, &n_bundle);
    free(bytes);
    b->rows = (uint16_t *)take(n_weights * sizeof *b->rows);
    fill_halves(b->rows, n_weights);
    b->hidden = (float *)take((size_t)BEAMS * (size_t)b->n_cols * sizeof(float));
    b->logits = (float *)take((size_t)BEAMS * (size_t)b->n_rows * sizeof(float));
    uint64_t state = 5;
    for (int32_t i = 0; i < BEAMS * b->n_cols; i++) b->hidden[i] = fixture_normal(&state);
    specrt_head_desc desc = {
        .rows = b->rows, .dtype = SPECRT_DTYPE_F16, .n_rows = b->n_rows, .n_cols = b->n_cols};
    require(specrt_bundle_open_memory(bundle, n_bundle, "sketch", NULL, &b->bundle, &err), &err);
    require(specrt_head_bind(NULL, &desc, NULL, &b->head, &err), &err);
}

static specrt_session *session(bench *b, const char *text) {
    specrt_policy_desc pd = {.text = text};
    specrt_session_params params = {.tree = {.num_steps = 6, .topk = TOPK, .num_draft_tokens = 60}};
    specrt_policy *policy;
    specrt_session *out;
    specrt_error err;
    require(specrt_policy_create(b->bundle, b->head, &pd, &policy, &err), &err);
    require(specrt_session_create(policy, &params, NULL, &out, &err), &err);
    specrt_session_begin(out, SPECRT_BEGIN_NEW, 0);
    require(specrt_session_start(out, 1), &err);
    return out;
}

typedef struct times {
    double route, logits, topk, project, read;
} times;

/* One level; each phase keeps its best. */
static void level(bench *b, specrt_session *s, int32_t n, times *best) {
    static const float path[BEAMS] = {0, -1, -1, -2, -2, -2, -3, -3, -3, -3};
    static const int32_t tokens[BEAMS] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    specrt_beam beam = {n, tokens, NULL, path};
    specrt_error err = {SPECRT_STATUS_OK, "start"};
    require(specrt_session_start(s, 1), &err); /* a cycle routes each level once */
    double start = sl_measure_seconds();
    const specrt_active *active = specrt_session_route(s, 0, &beam, b->hidden, NULL);
    keep_least(&best->route, start);
    start = sl_measure_seconds();
    specrt_active_logits(active, b->hidden, n, b->logits);
    keep_least(&best->logits, start);
    start = sl_measure_seconds();
    specrt_active_topk(active, b->logits, n, TOPK, b->ids, b->logprobs);
    keep_least(&best->topk, start);
}

/* What a scan cannot do without: the projection, and reading the codes. */
static void floors(bench *b, int32_t n, times *best) {
    size_t bytes;
    const uint8_t *data = (const uint8_t *)specrt_bundle_data(b->bundle, "sketch", &bytes);
    specrt_sketch view = {.header = (const specrt_sketch_header *)(const void *)data};
    specrt__sketch_lay_out(&view);
    specrt_segment basis = specrt__sketch_basis(&view, b->rank);
    specrt_active active = {specrt_head_compute(b->head), &basis, 1, b->rank, b->n_cols, NULL};
    double start = sl_measure_seconds();
    specrt_active_logits(&active, b->hidden, n, b->logits);
    keep_least(&best->project, start);
    const uint8_t *codes = b->bits ? view.codes : (const uint8_t *)view.bands[0].scales;
    machine_read_time(codes, n_codes(&b->header), &best->read);
}

int main(int argc, char **argv) {
    bench b = {.n_rows = 128256, .n_cols = 4096, .rank = 512, .named = 512};
    char text[64];
    if (argc >= 5) {
        b.n_rows = atoi(argv[1]);
        b.n_cols = atoi(argv[2]);
        b.rank = atoi(argv[3]);
        b.named = atoi(argv[4]);
        if (argc > 5) b.widths = argv[5];
    }
    plan(&b);
    open_all(&b);
    snprintf(text, sizeof text, "sketch:%d", b.named);
    specrt_session *full = session(&b, "full"), *sketch = session(&b, text);
    printf("%d x %d f16, rank %d of %s bits, %d rows exactly; ms\n", (int)b.n_rows, (int)b.n_cols,
           (int)b.rank, b.widths ? b.widths : "8", (int)b.named);
    printf(
        "states  full: head topk  sketch: project  scan+select (reading, products; first) exact  "
        "topk   x\n");
    double peak = machine_peak_int8();
    for (int32_t n = 1; n <= BEAMS; n += BEAMS - 1) {
        times f = {1e9, 1e9, 1e9, 1e9, 1e9}, k = f, first = f;
        for (int round = 0; round < 15; round++) {
            level(&b, full, n, &f);
            level(&b, sketch, n, &first);
            for (int i = 0; i < 3; i++) level(&b, sketch, n, &k);
            floors(&b, n, &k);
        }
        double whole = f.logits + f.topk, ours = k.route + k.logits + k.topk;
        double products = peak > 0 ? 2.0 * n * b.n_rows * b.rank / peak : 0;
        printf("%6d %11.2f %5.2f %16.3f %12.3f (%7.3f, %8.3f; %5.3f) %5.3f %5.3f %4.1f\n", (int)n,
               1e3 * f.logits, 1e3 * f.topk, 1e3 * k.project, 1e3 * (k.route - k.project),
               1e3 * k.read, 1e3 * products, 1e3 * (first.route - k.project), 1e3 * k.logits,
               1e3 * k.topk, whole / ours);
    }
    return 0;
}
