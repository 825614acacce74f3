/* bench_block.c : the best tokens of a block's positions by a sketch (specrt_session_block_topk), beside one
 * product of the whole head, which is read once for all positions.
 *   bench_block [ROWS COLUMNS [f16|q8_0]]         time on one core by number of positions; random weights
 *   bench_block MODEL BUNDLE TRACE... [POLICY...] recall of the whole head's best 16 for the states of
 *                                                 traces (specrt-eval record), in consecutive blocks */
#define SPECRT_STATIC
#define SPECRT_IMPLEMENTATION
#include "specrt.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/measure.h"
#include "machine.h"
#include "model/model.h"
#include "sessions.h"

enum { K = 16, MOST = 31, REPEATS = 15 };

static const int32_t lengths[] = {1, 2, 4, 7, 10, 15, 23, MOST};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

typedef struct best {
    int32_t ids[MOST * K];
    float logits[MOST * K];
} best;

static specrt_session *session(const specrt_bundle *bundle, const specrt_head *head,
                               const char *text) {
    const specrt_session_params params = {
        .tree = {.num_steps = MOST, .topk = 1}, .n_logits = head->n_ids, .n_block = MOST};
    return open_session(bundle, head, text, &params);
}

/* One block, as the only pass of a cycle. @return seconds. */
static double find(specrt_session *s, const float *hidden, int32_t n, best *out) {
    next_cycle(s);
    double start = sl_measure_seconds();
    require(specrt_session_block_topk(s, hidden, NULL, n, K, out->ids, out->logits),
            specrt_session_last_error(s));
    return sl_measure_seconds() - start;
}

/* --- times --- */

static void print_times(specrt_session *full, specrt_session *const *ours,
                        const char *const *policies, int n_ours, const float *hidden) {
    static best out;
    printf("positions  whole head");
    for (int p = 0; p < n_ours; p++) printf("  %24s   x", policies[p]);
    printf("\n");
    for (int l = 0; l < LENGTHS; l++) {
        double whole = 1e9, found[4] = {1e9, 1e9, 1e9, 1e9};
        for (int round = 0; round < REPEATS; round++) {
            double seconds = find(full, hidden, lengths[l], &out);
            if (seconds < whole) whole = seconds;
            for (int p = 0; p < n_ours; p++) {
                seconds = find(ours[p], hidden, lengths[l], &out);
                if (seconds < found[p]) found[p] = seconds;
            }
        }
        printf("%9d %11.2f", (int)lengths[l], 1e3 * whole);
        for (int p = 0; p < n_ours; p++) printf("  %24.3f %4.1f", 1e3 * found[p], whole / found[p]);
        printf("\n");
    }
}

static void measure_times(int32_t n_rows, int32_t n_cols, specrt_dtype dtype) {
    static const char *const policies[] = {"sketch:64", "sketch:128", "sketch:256"};
    enum { OURS = sizeof policies / sizeof *policies };
    size_t n, n_bundle, row = specrt_row_bytes(dtype, n_cols);
    specrt_session *ours[OURS];
    specrt_bundle *bundle;
    specrt_head *head;
    specrt_error err;
    uint64_t state = 5;
    uint8_t *section = fixture_sketch(n_rows, n_cols, 96, 9, &n);
    fixture_section s = {"sketch", 3, SPECRT_SECTION_DEPENDS_HEAD, section, n, n};
    uint8_t *bytes = fixture_bundle(&s, 1, &n_bundle), *rows = take((size_t)n_rows * row);
    float *hidden = take(MOST * (size_t)n_cols * sizeof *hidden);
    fill_halves(rows, (size_t)n_rows * row / 2);
    for (int64_t i = 0; i < (int64_t)MOST * n_cols; i++) hidden[i] = fixture_normal(&state);
    specrt_head_desc desc = {.rows = rows, .dtype = dtype, .n_rows = n_rows, .n_cols = n_cols};
    require(specrt_bundle_open_memory(bytes, n_bundle, "sketch", NULL, &bundle, &err), &err);
    require(specrt_head_bind(NULL, &desc, NULL, &head, &err), &err);
    for (int p = 0; p < OURS; p++) ours[p] = session(bundle, head, policies[p]);
    printf("%d x %d %s, 96 signs, top %d; ms, best of %d\n", (int)n_rows, (int)n_cols,
           specrt_dtype_name(dtype), K, REPEATS);
    print_times(session(bundle, head, "full"), ours, policies, OURS, hidden);
}

/* --- what is found --- */

typedef struct states {
    float *hidden; /* f32 [n, n_cols] */
    int32_t *next; /* [n] states from this one on that follow one another */
    int64_t n, room, n_cols;
} states;

/* Room for n more states. */
static void reserve(states *s, int32_t n) {
    if (s->n + n <= s->room) return;
    s->room = 2 * s->room + n + 1024;
    s->hidden = realloc(s->hidden, (size_t)(s->room * s->n_cols) * sizeof *s->hidden);
    s->next = realloc(s->next, (size_t)s->room * sizeof *s->next);
    if (!s->hidden || !s->next) fprintf(stderr, "bench_block: out of memory\n"), exit(1);
}

/* The states that follow one another since `first` end here. @return the next of them. */
static int64_t end_run(states *s, int64_t first) {
    for (int64_t i = first; i < s->n; i++) s->next[i] = (int32_t)(s->n - i);
    return s->n;
}

/* The states that the head multiplies: the drafter's if they have its width, without tokens at which it made
 * no pass, else the target's. Those of a sequence follow one another. */
static void read_states(const char *path, states *s) {
    specrt_trace_reader *reader;
    specrt_error err;
    int64_t first = s->n, n_cols = s->n_cols;
    require(specrt_trace_open(path, NULL, &reader, &err), &err);
    const specrt_trace_info *info = specrt_trace_get_info(reader);
    if (info->d_target != n_cols && info->d_draft != n_cols)
        fprintf(stderr, "bench_block: %s: states of another width\n", path), exit(1);
    for (;;) {
        specrt_trace_record r;
        require(specrt_trace_read(reader, &r, &err), &err);
        if (r.kind != SPECRT_TRACE_CYCLE) first = end_run(s, first);
        if (r.kind == SPECRT_TRACE_END) break;
        const uint16_t *rows = info->d_draft == n_cols ? r.draft_hidden : r.target_hidden;
        if (r.kind == SPECRT_TRACE_SEQUENCE || !rows) continue;
        reserve(s, r.n);
        for (int32_t i = 0; i < r.n; i++, rows += n_cols)
            if ((rows[0] & 0x7c00) != 0x7c00)
                specrt_row_decode(SPECRT_DTYPE_F16, rows, n_cols, s->hidden + s->n++ * n_cols);
    }
    specrt_trace_close(reader);
}

/* The whole head's best of every state, and what its softmax is divided by. */
typedef struct truth {
    int32_t *ids;   /* [n, K] */
    float *logits;  /* [n, K] */
    double *totals; /* [n] log of the sum of exponentials */
} truth;

static truth find_truth(const specrt_head *head, specrt_session *full, const states *s) {
    static best out;
    truth t = {take((size_t)s->n * K * 4), take((size_t)s->n * K * 4), take((size_t)s->n * 8)};
    for (int64_t i = 0, n; i < s->n; i += n) {
        n = s->n - i < MOST ? s->n - i : MOST;
        find(full, s->hidden + i * s->n_cols, (int32_t)n, &out);
        memcpy(t.ids + i * K, out.ids, (size_t)n * K * sizeof *t.ids);
        memcpy(t.logits + i * K, out.logits, (size_t)n * K * sizeof *t.logits);
        const float *logits = full->block.positions;
        for (int64_t j = 0; j < n; j++, logits += head->desc.n_rows)
            t.totals[i + j] = log(
                head->compute.kernels->sum_exp(logits, head->desc.n_rows, t.logits[(i + j) * K]));
        for (int64_t j = 0; j < n; j++) t.totals[i + j] += (double)t.logits[(i + j) * K];
    }
    return t;
}

/* Sums over positions. */
typedef struct score {
    double n, hits[3], mass, whole, rows, bytes;
    int64_t n_blocks;
} score;

static const int tops[3] = {1, 4, K};

static void add_position(score *sum, const truth *t, int64_t at, const int32_t *ids,
                         const float *logits) {
    const int32_t *best_ids = t->ids + at * K;
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < tops[k]; i++)
            for (int j = 0; j < tops[k]; j++)
                sum->hits[k] += best_ids[i] == ids[j] ? 1.0 / tops[k] : 0;
    for (int i = 0; i < K; i++) {
        sum->mass += ids[i] < 0 ? 0 : exp((double)logits[i] - t->totals[at]);
        sum->whole += exp((double)t->logits[at * K + i] - t->totals[at]);
    }
    sum->n++;
}

static void print_found(const char *policy, specrt_session *s, const states *all, const truth *t,
                        int32_t n, double head_bytes) {
    static best out;
    score sum = {0};
    specrt_session_stats before, after;
    for (int64_t i = 0; i + n <= all->n; i += all->next[i] < n ? all->next[i] : n) {
        if (all->next[i] < n) continue;
        specrt_session_get_stats(s, &before);
        find(s, all->hidden + i * all->n_cols, n, &out);
        specrt_session_get_stats(s, &after);
        sum.rows += s->shortlist.n_rows;
        sum.bytes += (double)(after.n_bytes - before.n_bytes);
        sum.n_blocks++;
        for (int32_t j = 0; j < n; j++)
            add_position(&sum, t, i + j, out.ids + j * K, out.logits + j * K);
    }
    if (sum.n_blocks == 0) return;
    printf("%-24s %9d %8lld  %.4f %.4f %.4f %.4f %8.0f   1/%.1f\n", policy, (int)n,
           (long long)sum.n_blocks, sum.hits[0] / sum.n, sum.hits[1] / sum.n, sum.hits[2] / sum.n,
           sum.mass / sum.whole, sum.rows / (double)sum.n_blocks,
           head_bytes * (double)sum.n_blocks / sum.bytes);
}

static void measure_found(const char *path, const char *bundle_path, char *const *names,
                          int n_names) {
    static const int32_t blocks[] = {1, 7, 15};
    static char *const usual[] = {"sketch:16", "sketch:32", "sketch:64", "sketch:128",
                                  "sketch:256"};
    int n_traces = 0;
    model m;
    specrt_head_desc desc;
    specrt_bundle *bundle;
    specrt_head *head;
    specrt_error err;
    require(sl_model_open(path, &m, &err), &err);
    require(sl_model_head(&m, NULL, &desc, NULL, &err), &err);
    require(specrt_bundle_open(bundle_path, NULL, &bundle, &err), &err);
    require(specrt_head_bind(bundle, &desc, NULL, &head, &err), &err);
    states all = {.n_cols = desc.n_cols};
    for (; n_traces < n_names && strstr(names[n_traces], ".trace"); n_traces++)
        read_states(names[n_traces], &all);
    char *const *policies = n_traces < n_names ? names + n_traces : usual;
    int n_policies = n_traces < n_names ? n_names - n_traces : 5;
    specrt_session *full = session(bundle, head, "full");
    truth t = find_truth(head, full, &all);
    double head_bytes = (double)specrt_row_bytes(desc.dtype, desc.n_cols) * (double)desc.n_rows;
    printf("%lld x %lld %s, %lld states\n", (long long)desc.n_rows, (long long)desc.n_cols,
           specrt_dtype_name(desc.dtype), (long long)all.n);
    printf("policy                   positions   blocks     @1     @4    @16   mass     rows  "
           "bytes\n");
    for (int p = 0; p < n_policies; p++) {
        specrt_session *s = session(bundle, head, policies[p]);
        for (int b = 0; b < 3; b++) print_found(policies[p], s, &all, &t, blocks[b], head_bytes);
        specrt_session_close(s);
    }
}

int main(int argc, char **argv) {
    static const int32_t widths[] = {576, 896, 1536, 4096};
    bool halves = argc > 3 && strcmp(argv[3], "f16") == 0;
    if (argc >= 4 && atoi(argv[1]) == 0)
        measure_found(argv[1], argv[2], argv + 3, argc - 3);
    else if (argc > 2)
        measure_times(atoi(argv[1]), atoi(argv[2]), halves ? SPECRT_DTYPE_F16 : SPECRT_DTYPE_Q8_0);
    else
        for (int i = 0; i < 4; i++) measure_times(151936, widths[i], SPECRT_DTYPE_Q8_0);
    return 0;
}
