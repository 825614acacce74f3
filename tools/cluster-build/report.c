/* report.c : what cluster-build says of its work: a table, the --json object, the bundle's provenance. */
#include "build.h"

#include <inttypes.h>
#include <stdlib.h>
#include "json_make.h"
#include "text.h"

enum { N_EXAMPLES = 12, N_TOKENS = 6 };

static const char *router_name(const build *b) {
    static const char *const names[] = {"none", "centroid", "dynaspec", "coral"};
    return names[b->router.kind];
}

static void size_range(const kmeans *k, int32_t *least, int32_t *most) {
    *least = *most = k->sizes[0];
    for (int32_t c = 1; c < k->n_clusters; c++) {
        if (k->sizes[c] < *least) *least = k->sizes[c];
        if (k->sizes[c] > *most) *most = k->sizes[c];
    }
}

static double mean_size(const build *b) {
    return (double)b->rows.n / b->k.n_clusters;
}

void report_table(const build *b, FILE *out) {
    const kmeans *k = &b->k;
    int32_t least, most, left_out = (int32_t)b->head.n_rows - b->rows.n;
    size_range(k, &least, &most);
    fprintf(out, "%s rows of %s columns in %s clusters of %s to %s\n",
            text_count((uint64_t)b->rows.n), text_count((uint64_t)b->head.n_cols),
            text_count((uint64_t)k->n_clusters), text_count((uint64_t)least),
            text_count((uint64_t)most));
    fprintf(out, "mean similarity to the cluster %.4f after %" PRId32 " iterations",
            k->objective / b->rows.n, k->n_iterations);
    if (b->options->balanced)
        fprintf(out, " (%.4f before balancing)", k->objective_free / b->rows.n);
    fprintf(out, "\n");
    if (left_out > 0)
        fprintf(out, "left out: %s reserved rows, %s of zeros, %s equal to others\n",
                text_count((uint64_t)b->rows.n_reserved), text_count((uint64_t)b->rows.n_zero),
                text_count((uint64_t)b->rows.n_duplicate));
    fprintf(out, "router %s, clusters by level", router_name(b));
    for (int32_t t = 0; t < b->schedule.n; t++) fprintf(out, " %" PRId32, b->schedule.clusters[t]);
    fprintf(out, ": about %s rows on average\n",
            text_count((uint64_t)(b->schedule.mean * mean_size(b) + 0.5)));
}

/* The tokens nearest to a cluster's centroid, as text. */
static json_object *example_json(const build *b, int32_t cluster, float *x) {
    const kmeans *k = &b->k;
    json_object *o = json_object_new_object(), *tokens = json_object_new_array();
    float best[N_TOKENS];
    int32_t ids[N_TOKENS], n = 0;
    for (int32_t i = 0; i < b->rows.n; i++) {
        if (k->clusters[i] != cluster) continue;
        rows_read(&b->rows, i, x);
        float dot = b->rows.inverses[i] *
                    dot_f32(x, k->centroids + (size_t)cluster * (size_t)k->n_cols, k->n_cols);
        if (n == N_TOKENS && dot <= best[n - 1]) continue;
        int32_t at = n < N_TOKENS ? n++ : n - 1;
        for (; at > 0 && best[at - 1] < dot; at--) best[at] = best[at - 1], ids[at] = ids[at - 1];
        best[at] = dot;
        ids[at] = b->rows.ids[i];
    }
    for (int32_t i = 0; i < n; i++) {
        size_t n_bytes;
        const uint8_t *bytes = tokenizer_bytes(b->tok, ids[i], &n_bytes);
        char text[512];
        text_token(bytes, n_bytes < 100 ? n_bytes : 100, text);
        json_object_array_add(tokens, json_object_new_string(text));
    }
    json_put(o, "cluster", json_object_new_int(cluster));
    json_put(o, "size", json_object_new_int(k->sizes[cluster]));
    json_put(o, "tokens", tokens);
    return o;
}

/* Clusters spread over all; NULL without a tokenizer. */
static json_object *examples_json(const build *b) {
    int32_t m = b->k.n_clusters, n = m < N_EXAMPLES ? m : N_EXAMPLES;
    float *x = b->tok ? malloc((size_t)b->k.n_cols * sizeof *x) : NULL;
    if (!x) return NULL;
    json_object *list = json_object_new_array();
    for (int32_t i = 0; i < n; i++)
        json_object_array_add(list, example_json(b, (int32_t)((int64_t)i * m / n), x));
    free(x);
    return list;
}

static json_object *common_json(const build *b) {
    const kmeans *k = &b->k;
    int32_t least, most;
    json_object *o = json_object_new_object(), *objective = json_object_new_array();
    json_object *levels = json_object_new_array();
    size_range(k, &least, &most);
    for (int32_t i = 0; i < k->n_iterations; i++)
        json_object_array_add(objective, json_real(k->objectives[i]));
    for (int32_t t = 0; t < b->schedule.n; t++)
        json_object_array_add(levels, json_object_new_int(b->schedule.clusters[t]));
    json_put(o, "tool", json_object_new_string("cluster-build " SPECRT_VERSION_STRING));
    json_put(o, "model", json_base_name(b->options->model));
    json_put(o, "tensor", json_text(b->head_name));
    json_put(o, "seed", json_object_new_int64(b->options->common.seed));
    json_put(o, "n_rows", json_object_new_int(b->rows.n));
    json_put(o, "n_cols", json_object_new_int(k->n_cols));
    json_put(o, "n_reserved", json_object_new_int(b->rows.n_reserved));
    json_put(o, "n_zero", json_object_new_int(b->rows.n_zero));
    json_put(o, "n_duplicate", json_object_new_int(b->rows.n_duplicate));
    json_put(o, "n_clusters", json_object_new_int(k->n_clusters));
    json_put(o, "balanced", json_object_new_boolean(b->options->balanced));
    json_put(o, "size_least", json_object_new_int(least));
    json_put(o, "size_mean", json_real(mean_size(b)));
    json_put(o, "size_most", json_object_new_int(most));
    json_put(o, "objective", objective);
    json_put(o, "objective_final", json_real(k->objective));
    json_put(o, "objective_before_balancing", json_real(k->objective_free));
    json_put(o, "schedule", levels);
    return o;
}

char *report_provenance(const build *b) {
    json_object *o = common_json(b);
    json_put(o, "router", json_object_new_string(router_name(b)));
    json_put(o, "examples", examples_json(b));
    return json_to_text(o);
}

char *report_json(const build *b) {
    json_object *o = common_json(b), *router = json_object_new_object();
    json_put(router, "kind", json_object_new_string(router_name(b)));
    json_put(router, "rows_mean", json_real(b->schedule.mean * mean_size(b)));
    json_put(o, "router", router);
    json_put(o, "seconds_seeding", json_real(b->k.seconds_seeding));
    json_put(o, "seconds_kmeans", json_real(b->k.seconds));
    json_put(o, "seconds", json_real(b->seconds));
    json_put(o, "peak_bytes", json_object_new_int64(cli_peak_bytes()));
    return json_to_text(o);
}
