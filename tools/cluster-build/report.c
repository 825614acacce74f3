/* report.c : what cluster-build says of its work: a table, the --json object, the bundle's provenance. */
#include "build.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include "base/json.h"
#include "base/measure.h"
#include "base/text.h"

enum { N_EXAMPLES = 12, N_TOKENS = 6 };

static const char *router_name(const cluster_build *b) {
    static const char *const names[] = {"none", "centroid", "dynaspec", "coral"};
    return names[b->router.kind];
}

/* Of positions held out: the target's best token among the rows. */
static void training_table(const cluster_build *b, FILE *out) {
    const route_figures *f = &b->training.figures;
    const train_curve *c = &b->training.curve;
    fprintf(out,
            "trained on %s positions, %s held out; %" PRId32 " epochs, the best %" PRId32
            ": loss %.4f, held out %.4f\n",
            sl_text_count((uint64_t)(b->training.examples.n - b->training.examples.n_holdout)),
            sl_text_count((uint64_t)b->training.examples.n_holdout), c->n, c->best + 1,
            c->loss[c->best], c->holdout[c->best]);
    fprintf(out, "level  positions    rows  recall  oracle  static list of the mean size\n");
    for (int32_t t = 0; t <= f->n_levels; t++) {
        const route_level *x = t < f->n_levels ? &f->levels[t] : &f->all;
        char name[16] = "all", fixed[16] = "-";
        if (t < f->n_levels) snprintf(name, sizeof name, "%" PRId32, t);
        if (!isnan(x->fixed)) snprintf(fixed, sizeof fixed, "%.4f", x->fixed);
        if (x->n > 0)
            fprintf(out, "%5s %10s %7.0f  %.4f  %.4f  %s\n", name, sl_text_count((uint64_t)x->n),
                    x->rows, x->recall, x->oracle, fixed);
    }
}

void cluster_report_table(const cluster_build *b, FILE *out) {
    const kmeans *k = &b->k;
    int32_t least, most, n_others = b->n_hot + b->n_rare;
    int32_t left_out = (int32_t)b->head.n_rows - b->rows.n - n_others;
    kmeans_size_range(k, &least, &most);
    fprintf(out, "%s rows of %s columns in %s clusters of %s to %s\n",
            sl_text_count((uint64_t)b->rows.n), sl_text_count((uint64_t)b->head.n_cols),
            sl_text_count((uint64_t)k->n_clusters), sl_text_count((uint64_t)least),
            sl_text_count((uint64_t)most));
    if (k->n_copies + n_others > 0)
        fprintf(out, "%s copies, %s rows in every cluster, %s left out as too rare\n",
                sl_text_count((uint64_t)k->n_copies), sl_text_count((uint64_t)b->n_hot),
                sl_text_count((uint64_t)b->n_rare));
    if (k->n_iterations > 0)
        fprintf(out, "mean similarity to the cluster %.4f after %" PRId32 " iterations",
                k->objective / b->rows.n, k->n_iterations);
    if (k->objective != k->objective_free)
        fprintf(out, " (%.4f before sizes were bounded)", k->objective_free / b->rows.n);
    fprintf(out, k->n_iterations > 0 ? "\n" : "clusters and centroids of the model's own\n");
    if (left_out > 0)
        fprintf(out, "left out: %s reserved rows, %s of zeros, %s equal to others\n",
                sl_text_count((uint64_t)(b->rows.n_reserved - n_others)),
                sl_text_count((uint64_t)b->rows.n_zero),
                sl_text_count((uint64_t)b->rows.n_duplicate));
    fprintf(out, "router %s, clusters by level", router_name(b));
    for (int32_t t = 0; t < b->schedule.n; t++) fprintf(out, " %" PRId32, b->schedule.clusters[t]);
    fprintf(out, ": about %s rows on average\n", sl_text_count((uint64_t)(b->schedule.rows + 0.5)));
    if (cluster_options_is_trained(b->options)) training_table(b, out);
}

/* The tokens nearest to a cluster's centroid, as text. */
static json_object *example_json(const cluster_build *b, int32_t cluster, float *x) {
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
        ids[at] = build_id(b, b->rows.ids[i]);
    }
    for (int32_t i = 0; i < n; i++) {
        size_t n_bytes;
        const uint8_t *bytes = sl_tokenizer_bytes(b->tok, ids[i], &n_bytes);
        char text[512];
        sl_text_token(bytes, n_bytes < 100 ? n_bytes : 100, text);
        json_object_array_add(tokens, json_object_new_string(text));
    }
    sl_json_put(o, "cluster", json_object_new_int(cluster));
    sl_json_put(o, "size", json_object_new_int(k->sizes[cluster]));
    sl_json_put(o, "tokens", tokens);
    return o;
}

/* Clusters spread over all; NULL without a tokenizer. */
static json_object *examples_json(const cluster_build *b) {
    int32_t m = b->k.n_clusters, n = m < N_EXAMPLES ? m : N_EXAMPLES;
    float *x = b->tok ? malloc((size_t)b->k.n_cols * sizeof *x) : NULL;
    if (!x) return NULL;
    json_object *list = json_object_new_array();
    for (int32_t i = 0; i < n; i++)
        json_object_array_add(list, example_json(b, (int32_t)((int64_t)i * m / n), x));
    free(x);
    return list;
}

static json_object *common_json(const cluster_build *b) {
    const kmeans *k = &b->k;
    int32_t least, most;
    json_object *o = json_object_new_object();
    kmeans_size_range(k, &least, &most);
    sl_json_put(o, "tool", json_object_new_string("cluster-build " SPECRT_VERSION_STRING));
    sl_json_put(o, "model", sl_json_base_name(b->options->model));
    sl_json_put(o, "tensor", sl_json_text(b->head_name));
    sl_json_put(o, "seed", json_object_new_int64(b->options->common.seed));
    sl_json_put(o, "n_rows", json_object_new_int(b->rows.n));
    sl_json_put(o, "n_cols", json_object_new_int(k->n_cols));
    sl_json_put(o, "n_reserved", json_object_new_int(b->rows.n_reserved - b->n_hot - b->n_rare));
    sl_json_put(o, "n_zero", json_object_new_int(b->rows.n_zero));
    sl_json_put(o, "n_duplicate", json_object_new_int(b->rows.n_duplicate));
    sl_json_put(o, "n_clusters", json_object_new_int(k->n_clusters));
    sl_json_put(o, "n_members", json_object_new_int(b->members.n));
    sl_json_put(o, "n_copies", json_object_new_int(k->n_copies));
    sl_json_put(o, "n_hot", json_object_new_int(b->n_hot));
    sl_json_put(o, "n_rare", json_object_new_int(b->n_rare));
    sl_json_put(o, "balanced", json_object_new_boolean(b->options->balanced));
    sl_json_put(o, "largest", sl_json_real(b->options->largest));
    sl_json_put(o, "size_least", json_object_new_int(least));
    sl_json_put(o, "size_mean", sl_json_real((double)b->rows.n / k->n_clusters));
    sl_json_put(o, "size_most", json_object_new_int(most));
    sl_json_put(o, "objective", sl_json_reals(k->objectives, k->n_iterations));
    sl_json_put(o, "objective_final", sl_json_real(k->objective));
    sl_json_put(o, "objective_before_balancing", sl_json_real(k->objective_free));
    sl_json_put(o, "schedule", sl_json_ids(b->schedule.clusters, (size_t)b->schedule.n));
    return o;
}

static json_object *level_json(const route_level *x) {
    json_object *o = json_object_new_object();
    sl_json_put(o, "n", json_object_new_int64(x->n));
    sl_json_put(o, "rows", sl_json_real(x->rows));
    sl_json_put(o, "recall", sl_json_real(x->recall));
    sl_json_put(o, "recall_oracle", sl_json_real(x->oracle));
    sl_json_put(o, "recall_static", sl_json_real(x->fixed));
    sl_json_put(o, "mass", sl_json_real(x->mass));
    sl_json_put(o, "mass_oracle", sl_json_real(x->mass_oracle));
    sl_json_put(o, "mass_static", sl_json_real(x->mass_fixed));
    return o;
}

static json_object *names_json(const cli_list *paths) {
    json_object *list = json_object_new_array();
    for (int i = 0; i < paths->n; i++)
        json_object_array_add(list, sl_json_base_name(paths->items[i]));
    return list;
}

/* The router: its kind and size, and what training came to. */
static json_object *router_json(const cluster_build *b) {
    const cluster_options *o = b->options;
    const router_training *t = &b->training;
    const route_figures *f = &t->figures;
    json_object *r = json_object_new_object();
    sl_json_put(r, "kind", json_object_new_string(router_name(b)));
    sl_json_put(r, "rows_mean", sl_json_real(b->schedule.rows));
    if (!cluster_options_is_trained(o)) return r;
    json_object *levels = json_object_new_array();
    for (int32_t i = 0; i < f->n_levels; i++)
        json_object_array_add(levels, level_json(&f->levels[i]));
    sl_json_put(r, "recall", sl_json_real(f->all.recall));
    sl_json_put(r, "recall_oracle", sl_json_real(f->all.oracle));
    sl_json_put(r, "recall_static", sl_json_real(f->all.fixed));
    sl_json_put(r, "all", level_json(&f->all));
    sl_json_put(r, "levels", levels);
    sl_json_put(r, "traces", names_json(&o->traces));
    sl_json_put(r, "shuffled", json_object_new_boolean(o->shuffled));
    sl_json_put(r, "loss", json_object_new_string(o->loss_name));
    sl_json_put(r, "n_hidden", json_object_new_int(b->router.n_hidden));
    sl_json_put(r, "n_examples", json_object_new_int64(t->examples.n));
    sl_json_put(r, "n_holdout", json_object_new_int64(t->examples.n_holdout));
    sl_json_put(r, "rate", sl_json_real(o->rate));
    sl_json_put(r, "decay", sl_json_real(o->decay));
    sl_json_put(r, "best_epoch", json_object_new_int(t->curve.best + 1));
    sl_json_put(r, "loss_training", sl_json_reals(t->curve.loss, t->curve.n));
    sl_json_put(r, "loss_holdout", sl_json_reals(t->curve.holdout, t->curve.n));
    return r;
}

char *cluster_report_provenance(const cluster_build *b) {
    json_object *o = common_json(b);
    if (cluster_options_is_trained(b->options))
        sl_json_put(o, "router", router_json(b));
    else
        sl_json_put(o, "router", json_object_new_string(router_name(b)));
    sl_json_put(o, "examples", examples_json(b));
    return sl_json_to_text(o);
}

char *cluster_report_json(const cluster_build *b) {
    json_object *o = common_json(b);
    sl_json_put(o, "router", router_json(b));
    sl_json_put(o, "seconds_seeding", sl_json_real(b->k.seconds_seeding));
    sl_json_put(o, "seconds_kmeans", sl_json_real(b->k.seconds));
    sl_json_put(o, "seconds_router", sl_json_real(b->training.seconds));
    sl_json_put(o, "seconds", sl_json_real(b->seconds));
    sl_json_put(o, "peak_bytes", json_object_new_int64(sl_measure_peak_bytes()));
    return sl_json_to_text(o);
}
