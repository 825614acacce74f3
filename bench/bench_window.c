/* bench_window.c : what MicroSpec's update costs beside the head products it serves: pushing a cycle,
 * evicting, packing new rows; and the scan for the target's best, apart. Medians, taken in turns, on one
 * core.
 *   bench_window [--json] */
#include "specrt.h"

#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../tests/fixture.h"
#include "base/curve.h"
#include "base/measure.h"
#include "machine.h"

enum {
    N_VOCAB = 128256,
    N_COLS = 4096,
    N_CYCLES = 300,
    N_DRAFT = 60,
    N_ACCEPTED = 4,
    N_LEVELS = 6,
    TOPK = 10,
    K = 3
};

static uint64_t random_state = 7;
static int32_t random_below(int32_t n) {
    return fixture_below(&random_state, n);
}

static void require(specrt_session *s, specrt_status status) {
    if (status != SPECRT_STATUS_OK)
        fprintf(stderr, "bench_window: %s\n", specrt_session_last_error(s)->msg), exit(1);
}

/* A cycle: its tree comes from the shortlist, a path and children of its root; of the target's best n_new are
 * any token.
 *   root : the last emitted token, in and out
 * @return the seconds that learning from it took. */
static double observe(specrt_session *s, int32_t n_new, int32_t *root) {
    static int32_t tokens[N_DRAFT], parents[N_DRAFT], depths[N_DRAFT], best[N_DRAFT * K];
    static float logprobs[N_DRAFT];
    const specrt_segment *packed = &specrt_session_shortlist(s)->segments[0];
    specrt_draft draft = {N_DRAFT, tokens, parents, depths, NULL, logprobs, NULL, 0};
    specrt_verdict verdict = {.n = N_ACCEPTED};
    specrt_target_rows rows = {.ids = best, .k = K};
    for (int i = 0; i < N_DRAFT; i++) {
        tokens[i] = i > 0 ? packed->ids[random_below(packed->n_rows)] : *root;
        parents[i] = i < N_ACCEPTED ? i - 1 : 0;
        depths[i] = i < N_ACCEPTED ? i : 1;
    }
    for (int i = 0; i < N_DRAFT * K; i++) best[i] = tokens[i % N_DRAFT];
    for (int i = 0; i < n_new; i++) best[i * (N_DRAFT * K / n_new)] = random_below(N_VOCAB);
    for (int i = 0; i < N_ACCEPTED; i++) {
        verdict.nodes[i] = i;
        verdict.tokens[i] = tokens[i + 1];
    }
    require(s, specrt_session_finish(s, NULL));
    double start = sl_measure_seconds();
    require(s, specrt_session_observe(s, &draft, &verdict, &rows));
    double seconds = sl_measure_seconds() - start;
    *root = verdict.tokens[N_ACCEPTED - 1];
    return seconds;
}

typedef struct row {
    const char *policy;
    int32_t n_new; /* tokens a cycle that may be new */
    double shortlist, copied, product, cycle, update;
} row;

/* Fills a row but for its first two fields. */
static void run(const specrt_head *head, const float *hidden, float *logits, row *out) {
    static double product[N_CYCLES], level[N_CYCLES], update[N_CYCLES];
    const specrt_policy_desc desc = {.text = out->policy};
    const specrt_session_params params = {.n_logits = N_VOCAB};
    int32_t root = 1;
    specrt_policy *policy;
    specrt_session *s;
    specrt_session_stats stats;
    specrt_error err;
    if (specrt_policy_create(NULL, head, &desc, &policy, &err) != SPECRT_STATUS_OK ||
        specrt_session_create(policy, &params, NULL, &s, &err) != SPECRT_STATUS_OK)
        fprintf(stderr, "bench_window: %s\n", err.msg), exit(1);
    require(s, specrt_session_begin(s, NULL));
    for (int i = 0; i < 3 * N_COLS; i++) { /* a long prompt: the window is full */
        int32_t token = random_below(N_VOCAB);
        require(s, specrt_session_prefill(s, &token, 1, NULL));
    }
    require(s, specrt_session_start(s, root));
    specrt_session_get_stats(s, &stats);
    int64_t n_before = stats.n_copied;
    for (int i = 0; i < N_CYCLES; i++) {
        double start = sl_measure_seconds();
        specrt_shortlist_logits(specrt_session_shortlist(s), hidden, 1, logits);
        product[i] = sl_measure_seconds() - start;
        specrt_shortlist_logits(specrt_session_shortlist(s), hidden, TOPK, logits);
        level[i] = sl_measure_seconds() - start - product[i];
        update[i] = observe(s, out->n_new, &root);
    }
    specrt_session_get_stats(s, &stats);
    out->shortlist = (double)stats.n_rows / N_CYCLES;
    out->copied = (double)(stats.n_copied - n_before) / N_CYCLES;
    out->product = sl_median_of(product, N_CYCLES);
    out->cycle = out->product + (N_LEVELS - 1) * sl_median_of(level, N_CYCLES);
    out->update = sl_median_of(update, N_CYCLES);
    specrt_session_close(s);
    specrt_policy_close(policy);
}

/* Seconds to find the best K of each of a tree's rows of logits, and to read them. */
static void run_scan(double *scan, double *read) {
    size_t n = (size_t)N_DRAFT * N_VOCAB;
    float *rows = (float *)malloc(n * sizeof *rows);
    int32_t ids[K];
    *scan = *read = 1e9;
    if (!rows) fprintf(stderr, "bench_window: out of memory\n"), exit(1);
    for (size_t i = 0; i < n; i++) rows[i] = fixture_normal(&random_state);
    for (int repeat = 0; repeat < 15; repeat++) {
        double start = sl_measure_seconds();
        for (size_t i = 0; i < N_DRAFT; i++)
            specrt_logits_topk(rows + i * N_VOCAB, N_VOCAB, K, ids);
        keep_least(scan, start);
        machine_read_time(rows, n * sizeof *rows, read);
    }
    free(rows);
}

static void print(const row *r) {
    printf("%s, %d tokens a cycle new to anything: %.0f rows, %.1f copied: product %.3f ms, six "
           "levels %.2f ms, update %.4f ms (%.1f%%, %.1f%%)\n",
           r->policy, (int)r->n_new, r->shortlist, r->copied, 1e3 * r->product, 1e3 * r->cycle,
           1e3 * r->update, 100 * r->update / r->product, 100 * r->update / r->cycle);
}

static json_object *row_json(const row *r) {
    json_object *o = json_object_new_object();
    json_object_object_add(o, "policy", json_object_new_string(r->policy));
    json_object_object_add(o, "n_new", json_object_new_int(r->n_new));
    json_object_object_add(o, "shortlist_rows", json_object_new_double(r->shortlist));
    json_object_object_add(o, "copied_rows", json_object_new_double(r->copied));
    json_object_object_add(o, "product", json_object_new_double(r->product));
    json_object_object_add(o, "cycle", json_object_new_double(r->cycle));
    json_object_object_add(o, "update", json_object_new_double(r->update));
    return o;
}

int main(int argc, char **argv) {
    row cases[] = {{.policy = "window:3072@positions=all", .n_new = 12},
                   {.policy = "window:3072@positions=tree", .n_new = 12},
                   {.policy = "window:3072@positions=tree", .n_new = 60},
                   {.policy = "window:3072@positions=tree@rows=indexed", .n_new = 12},
                   {.policy = "window:3072@positions=tree@rows=indexed", .n_new = 60},
                   {.policy = "window:3072@mode=stream", .n_new = 12}};
    enum { N_CASES = sizeof cases / sizeof cases[0] };
    bool json = argc > 1 && strcmp(argv[1], "--json") == 0;
    size_t n = (size_t)N_VOCAB * N_COLS;
    uint16_t *weights = (uint16_t *)malloc(n * sizeof *weights);
    float *hidden = (float *)malloc(TOPK * N_COLS * sizeof *hidden);
    float *logits = (float *)malloc((size_t)TOPK * N_VOCAB * sizeof *logits);
    json_object *out = json_object_new_object(), *rows = json_object_new_array();
    specrt_head *head;
    double scan, read;
    if (!weights || !hidden || !logits) return fprintf(stderr, "out of memory\n"), 1;
    for (size_t i = 0; i < n; i++) weights[i] = (uint16_t)(0x2c00 + (i * 2654435761u >> 22) % 1024);
    for (int i = 0; i < TOPK * N_COLS; i++) hidden[i] = fixture_normal(&random_state);
    specrt_head_desc desc = {
        .rows = weights, .dtype = SPECRT_DTYPE_F16, .n_rows = N_VOCAB, .n_cols = N_COLS};
    if (specrt_head_bind(NULL, &desc, NULL, &head, NULL) != SPECRT_STATUS_OK) return 1;
    if (!json) printf("f16 head [%d, %d], one core\n", N_VOCAB, N_COLS);
    for (int i = 0; i < N_CASES; i++) {
        run(head, hidden, logits, &cases[i]);
        if (!json) print(&cases[i]);
        json_object_array_add(rows, row_json(&cases[i]));
    }
    specrt_head_close(head);
    free(weights), free(hidden), free(logits);
    run_scan(&scan, &read);
    json_object_object_add(out, "rows", rows);
    json_object_object_add(out, "scan", json_object_new_double(scan));
    json_object_object_add(out, "scan_read", json_object_new_double(read));
    if (json)
        printf("%s\n", json_object_to_json_string_ext(out, JSON_C_TO_STRING_PRETTY));
    else
        printf("scan of %d x %d logits for the best %d: %.3f ms (%.1f GB/s; reading alone %.1f)\n",
               N_DRAFT, N_VOCAB, K, 1e3 * scan, 4e-9 * N_DRAFT * N_VOCAB / scan,
               4e-9 * N_DRAFT * N_VOCAB / read);
    json_object_put(out);
    return 0;
}
