/* router.c : the router of a build and its schedule: mean rows, or a network trained on traces. */
#include "build.h"

#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/measure.h"

void router_training_free(router_training *t) {
    examples_free(&t->examples);
    train_curve_free(&t->curve);
    sl_model_close(&t->embedding_file);
}

/* --- input --- */

static specrt_status find_embedding(cluster_build *b, specrt_head_desc *out, specrt_error *err) {
    const char *path = b->options->embedding;
    *out = (specrt_head_desc){0};
    if (b->options->router != SPECRT_ROUTER_DYNASPEC) return SPECRT_STATUS_OK;
    if (!path) return sl_model_embedding(&b->source, NULL, out, err);
    TRY(sl_model_open(path, &b->training.embedding_file, err));
    return sl_model_embedding(&b->training.embedding_file, NULL, out, err);
}

specrt_status router_read(cluster_build *b, specrt_error *err) {
    const cluster_options *o = b->options;
    example_set *set = &b->training.examples;
    uint8_t sha256[32];
    if (o->traces.n == 0) return SPECRT_STATUS_OK;
    TRY(find_embedding(b, &b->training.embedding, err));
    if (b->tok) sl_tokenizer_fingerprint(b->tok, sha256);
    examples_model of = {.sha256 = b->tok ? sha256 : NULL,
                         .n_state = (int32_t)b->head.n_cols,
                         .n_ids = b->n_ids,
                         .output = o->router != SPECRT_ROUTER_DYNASPEC};
    for (int i = 0; i < o->traces.n; i++) TRY(examples_read(o->traces.items[i], &of, set, err));
    TRY(examples_split(set, o->holdout, (uint64_t)o->common.seed, err));
    if (o->shuffled) examples_shuffle(set, (uint64_t)o->common.seed);
    return SPECRT_STATUS_OK;
}

/* --- what is chosen among --- */

/* Rank of each token in the bundle's list. NULL: there is none. */
static int32_t *read_ranks(const cluster_build *b) {
    specrt_bundle *bundle;
    specrt_ranks ranks;
    const char *path = b->options->common.output;
    int32_t *rank_of = NULL;
    if (!path || specrt_bundle_open(path, NULL, &bundle, NULL) != SPECRT_STATUS_OK) return NULL;
    if (specrt_bundle_ranks(bundle, &ranks, NULL) == SPECRT_STATUS_OK)
        rank_of = malloc((size_t)b->n_ids * sizeof *rank_of);
    for (int64_t id = 0; rank_of && id < b->n_ids; id++) rank_of[id] = INT32_MAX;
    for (int32_t i = 0; rank_of && i < ranks.header->n_ranked; i++)
        if (ranks.ids[i] < b->n_ids) rank_of[ranks.ids[i]] = i;
    specrt_bundle_close(bundle);
    return rank_of;
}

static int32_t *clusters_by_token(const cluster_build *b) {
    int32_t *out = malloc((size_t)b->n_ids * sizeof *out);
    for (int64_t id = 0; out && id < b->n_ids; id++) out[id] = -1;
    for (int32_t i = 0; out && i < b->rows.n; i++)
        out[build_id(b, b->rows.ids[i])] = b->k.clusters[i];
    return out;
}

/* --- schedule --- */

/* The published share of the vocabulary: 27.3k of 128k rows; 4 of CORAL's 16 groups; centroids 32 of
 * 2048. */
static double default_share(specrt_router_kind router) {
    return router == SPECRT_ROUTER_CENTROID ? 1 / 64.0
           : router == SPECRT_ROUTER_CORAL  ? 0.25
                                            : 0.213;
}

static specrt_status make_schedule(cluster_build *b, const double *rows_of, specrt_error *err) {
    const cluster_options *o = b->options;
    char stored[16];
    double rows = (double)o->mean_rows;
    if (o->stored) {
        snprintf(stored, sizeof stored, "%d", (int)b->topk);
        return schedule_make(stored, 0, rows_of, b->k.n_clusters, &b->schedule, err);
    }
    if (!o->mean_rows) rows = default_share(o->router) * b->members.n;
    if (!o->mean_rows && rows < rows_of[1]) rows = rows_of[1];
    return schedule_make(o->schedule_name, rows, rows_of, b->k.n_clusters, &b->schedule, err);
}

/* --- training --- */

static void each_epoch(void *user, int32_t epoch, double loss, double holdout) {
    const cluster_build *b = user;
    const cli_common *common = &b->options->common;
    if (common->verbose || common->progress == 1)
        sl_cli_info("epoch %d: loss %.4f, held out %.4f", (int)epoch + 1, loss, holdout);
}

static float *copy(const float *x, int64_t n) {
    float *out = malloc((size_t)n * sizeof *out);
    if (out) memcpy(out, x, (size_t)n * sizeof *out);
    return out;
}

static specrt_status keep_weights(cluster_build *b, const network *net, specrt_error *err) {
    const network_shape *s = &net->shape;
    router_weights *w = &b->router;
    *w = (router_weights){.kind = (int32_t)b->options->router,
                          .softmax = s->softmax,
                          .n_embed = s->n_in - b->training.examples.n_state,
                          .n_state = b->training.examples.n_state,
                          .n_hidden = s->n_hidden};
    w->w1 = copy(net->w1, (int64_t)s->n_hidden * s->n_in);
    w->b1 = copy(net->b1, s->n_hidden);
    w->w2 = copy(net->w2, (int64_t)s->n_out * s->n_hidden);
    w->b2 = copy(net->b2, s->n_out);
    return w->w1 && w->b1 && w->w2 && w->b2 ? SPECRT_STATUS_OK : sl_error_no_memory(err, "router");
}

static specrt_status train(cluster_build *b, const train_world *world, parallel_pool *pool,
                           double *rows_of, specrt_error *err) {
    const cluster_options *o = b->options;
    network net = {0};
    train_options options = {.residual = o->router == SPECRT_ROUTER_CORAL,
                             .loss = o->loss,
                             .n_hidden = (int32_t)o->n_hidden,
                             .n_batch = (int32_t)o->n_batch,
                             .n_epochs = (int32_t)o->n_epochs,
                             .patience = (int32_t)o->patience,
                             .rate = o->rate,
                             .decay = o->decay,
                             .seed = (uint64_t)o->common.seed,
                             .pool = pool,
                             .each = each_epoch,
                             .user = b};
    specrt_status status = train_run(world, &options, &net, &b->training.curve, err);
    if (!status) status = route_costs(world, &net, rows_of, err);
    if (!status) status = make_schedule(b, rows_of, err);
    if (!status)
        status = route_measure(world, &net, b->schedule.clusters, b->schedule.n,
                               &b->training.figures, err);
    if (!status) status = keep_weights(b, &net, err);
    network_free(&net);
    return status;
}

static specrt_status trained_router(cluster_build *b, double *rows_of, specrt_error *err) {
    double started = sl_measure_seconds();
    int32_t *cluster_of = clusters_by_token(b), *rank_of = read_ranks(b);
    train_world world = {.examples = &b->training.examples,
                         .embedding = b->training.embedding,
                         .cluster_of = cluster_of,
                         .n_clusters = b->k.n_clusters,
                         .sizes = b->k.sizes,
                         .rank_of = rank_of};
    parallel_pool *pool = sl_parallel_pool_create((int)b->options->common.threads);
    specrt_status status = cluster_of && pool ? train(b, &world, pool, rows_of, err)
                                              : sl_error_no_memory(err, "router");
    if (pool) sl_parallel_pool_free(pool);
    free(cluster_of);
    free(rank_of);
    b->training.seconds = sl_measure_seconds() - started;
    return status;
}

/* --- without training --- */

/* Engines keep centroids of an ordered head in bf16: what is written is what they read. */
static float to_bf16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Adds a row of the head to a sum. @return its weight */
static double add_row(const cluster_build *b, int32_t row, float *scratch, double *sum) {
    const specrt_head_desc *head = &b->rows.head;
    double weight = b->weights ? (double)b->weights[row] : 1;
    specrt_row_decode(head->dtype, (const uint8_t *)head->rows + (size_t)row * head->row_stride,
                      head->n_cols, scratch);
    for (int64_t j = 0; j < head->n_cols; j++) sum[j] += weight * (double)scratch[j];
    return weight;
}

/* The mean of each cluster's rows into w2 [n_clusters, n_cols]. sum : scratch [n_cols] */
static void mean_rows(const cluster_build *b, float *row, double *sum, float *w2) {
    const cluster_members *m = &b->members;
    int64_t n_cols = b->rows.head.n_cols;
    for (int32_t c = 0; c < b->k.n_clusters; c++, w2 += n_cols) {
        double weight = 0;
        memset(sum, 0, (size_t)n_cols * sizeof *sum);
        for (int32_t i = m->offsets[c]; i < m->offsets[c + 1]; i++)
            if (b->left_out[m->rows[i]] != ROW_HOT) weight += add_row(b, m->rows[i], row, sum);
        for (int64_t j = 0; j < n_cols; j++) w2[j] = (float)(sum[j] / weight);
        for (int64_t j = 0; j < n_cols && b->options->ordered; j++) w2[j] = to_bf16(w2[j]);
    }
}

static specrt_status centroid_router(cluster_build *b, specrt_error *err) {
    const kmeans *k = &b->k;
    size_t n_cols = (size_t)k->n_cols, n = (size_t)k->n_clusters * n_cols;
    router_weights *w = &b->router;
    float *x = malloc(n_cols * sizeof *x);
    double *sum = malloc(n_cols * sizeof *sum);
    *w = (router_weights){.kind = SPECRT_ROUTER_CENTROID, .softmax = 1, .n_state = k->n_cols};
    w->w2 = calloc(n, sizeof *w->w2);
    w->b2 = calloc((size_t)k->n_clusters, sizeof *w->b2);
    if (!x || !sum || !w->w2 || !w->b2) {
        free(x);
        free(sum);
        return sl_error_no_memory(err, "router");
    }
    if (b->options->stored)
        memcpy(w->w2, k->centroids, n * sizeof *w->w2);
    else
        mean_rows(b, x, sum, w->w2);
    free(x);
    free(sum);
    return SPECRT_STATUS_OK;
}

specrt_status router_make(cluster_build *b, specrt_error *err) {
    int32_t m = b->k.n_clusters;
    double *rows_of = malloc(((size_t)m + 1) * sizeof *rows_of);
    if (!rows_of) return sl_error_no_memory(err, "router");
    for (int32_t k = 0; k <= m; k++) rows_of[k] = (double)b->members.n * k / m;
    specrt_status status = cluster_options_is_trained(b->options) ? trained_router(b, rows_of, err)
                                                                  : make_schedule(b, rows_of, err);
    free(rows_of);
    if (!status && b->options->router == SPECRT_ROUTER_CENTROID) status = centroid_router(b, err);
    return status;
}
