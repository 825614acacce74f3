/* route.c : how the examples held out would be routed; see train.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "train.h"
#include "base/error.h"
#include "base/order.h"

typedef struct routed {
    float score;
    int32_t cluster;
} routed;

/* Descending, ties to the lower cluster. */
static int by_score(const void *a, const void *b) {
    const routed *x = a, *y = b;
    int order = (x->score < y->score) - (x->score > y->score);
    return order ? order : sl_order_i32(&x->cluster, &y->cluster);
}

static void sort_clusters(const float *scores, int32_t n, routed *out) {
    for (int32_t m = 0; m < n; m++) out[m] = (routed){scores[m], m};
    qsort(out, (size_t)n, sizeof *out, by_score);
}

typedef void route_visit(void *user, int64_t example, const float *scores, routed *scratch);

/* Every example held out, in order. */
static specrt_status for_examples(const train_world *w, network *net, route_visit *visit,
                                  void *user, specrt_error *err) {
    routed *scratch = malloc((size_t)w->n_clusters * sizeof *scratch);
    if (!scratch) return sl_error_no_memory(err, "training");
    for (int64_t at = 0; at < w->examples->n_holdout;) {
        int32_t n = train_scores(w, net, at, w->examples->n_holdout);
        for (int32_t i = 0; i < n; i++)
            visit(user, at + i, net->scores + (int64_t)i * w->n_clusters, scratch);
        at += n;
    }
    free(scratch);
    return SPECRT_STATUS_OK;
}

/* --- rows by clusters --- */

typedef struct cost_job {
    const train_world *world;
    double *rows_of;
} cost_job;

static void add_costs(void *user, int64_t example, const float *scores, routed *scratch) {
    const cost_job *job = user;
    const train_world *w = job->world;
    double rows = 0;
    (void)example;
    sort_clusters(scores, w->n_clusters, scratch);
    for (int32_t k = 0; k < w->n_clusters; k++) {
        rows += w->sizes[scratch[k].cluster];
        job->rows_of[k + 1] += rows / (double)w->examples->n_holdout;
    }
}

specrt_status route_costs(const train_world *world, network *net, double *rows_of,
                          specrt_error *err) {
    cost_job job = {world, rows_of};
    memset(rows_of, 0, ((size_t)world->n_clusters + 1) * sizeof *rows_of);
    return for_examples(world, net, add_costs, &job, err);
}

/* --- figures --- */

typedef struct figure_job {
    const train_world *world;
    const int32_t *schedule;
    int32_t n_schedule;
    route_figures *out;
    uint8_t *chosen; /* [n_clusters] */
    float *truth;    /* [n_clusters] the target's mass */
    int32_t fixed;   /* ids of the static list; 0: the rows are not known yet */
} figure_job;

/* The target's best token and its mass in the chosen clusters. */
static void count_hits(const figure_job *job, int64_t example, double *recall, double *mass) {
    const example_set *set = job->world->examples;
    const int32_t *top = set->top + example * set->n_top;
    for (int32_t j = 0; j < set->n_top; j++) {
        int32_t cluster = top[j] < 0 ? -1 : job->world->cluster_of[top[j]];
        if (cluster < 0 || !job->chosen[cluster]) continue;
        *mass += (double)set->mass[example * set->n_top + j];
        if (j == 0) *recall += 1;
    }
}

static void choose(const figure_job *job, const float *scores, int32_t k, routed *scratch) {
    int32_t n = job->world->n_clusters;
    sort_clusters(scores, n, scratch);
    memset(job->chosen, 0, (size_t)n);
    for (int32_t i = 0; i < k; i++) job->chosen[scratch[i].cluster] = 1;
}

static int32_t figure_level(const figure_job *job, int64_t example) {
    int32_t level = job->world->examples->levels[example];
    return level < ROUTE_LEVELS ? level : ROUTE_LEVELS - 1;
}

static void add_figures(void *user, int64_t example, const float *scores, routed *scratch) {
    const figure_job *job = user;
    const train_world *w = job->world;
    const example_set *set = w->examples;
    int32_t t = figure_level(job, example), last = job->n_schedule - 1;
    int32_t k = job->schedule[t < last ? t : last];
    route_level *level = &job->out->levels[t];
    if (t >= job->out->n_levels) job->out->n_levels = t + 1;
    level->n++;
    choose(job, scores, k, scratch);
    for (int32_t i = 0; i < k; i++) level->rows += w->sizes[scratch[i].cluster];
    count_hits(job, example, &level->recall, &level->mass);
    memset(job->truth, 0, (size_t)w->n_clusters * sizeof *job->truth);
    for (int32_t j = 0; j < set->n_top; j++) {
        int32_t id = set->top[example * set->n_top + j];
        int32_t cluster = id < 0 ? -1 : w->cluster_of[id];
        if (cluster >= 0) job->truth[cluster] += set->mass[example * set->n_top + j];
    }
    choose(job, job->truth, k, scratch);
    count_hits(job, example, &level->oracle, &level->mass_oracle);
}

static void add_fixed(const figure_job *job, int64_t example) {
    const train_world *w = job->world;
    const example_set *set = w->examples;
    route_level *level = &job->out->levels[figure_level(job, example)];
    for (int32_t j = 0; j < set->n_top; j++) {
        int32_t id = set->top[example * set->n_top + j];
        if (id < 0 || w->rank_of[id] >= job->fixed) continue;
        level->mass_fixed += (double)set->mass[example * set->n_top + j];
        if (j == 0) level->fixed += 1;
    }
}

static void add_level(route_level *sum, const route_level *x) {
    sum->n += x->n;
    sum->rows += x->rows;
    sum->recall += x->recall;
    sum->oracle += x->oracle;
    sum->fixed += x->fixed;
    sum->mass += x->mass;
    sum->mass_oracle += x->mass_oracle;
    sum->mass_fixed += x->mass_fixed;
}

static void divide(route_level *x, bool has_fixed) {
    double n = (double)x->n;
    x->rows /= n;
    x->recall /= n;
    x->oracle /= n;
    x->mass /= n;
    x->mass_oracle /= n;
    x->fixed = has_fixed ? x->fixed / n : NAN;
    x->mass_fixed = has_fixed ? x->mass_fixed / n : NAN;
}

static void finish(figure_job *job) {
    route_figures *f = job->out;
    const train_world *w = job->world;
    double rows = 0;
    for (int32_t t = 0; t < f->n_levels; t++) rows += f->levels[t].rows;
    job->fixed = (int32_t)(rows / (double)w->examples->n_holdout + 0.5);
    for (int64_t i = 0; w->rank_of && i < w->examples->n_holdout; i++) add_fixed(job, i);
    for (int32_t t = 0; t < f->n_levels; t++) add_level(&f->all, &f->levels[t]);
    for (int32_t t = 0; t < f->n_levels; t++) divide(&f->levels[t], w->rank_of != NULL);
    divide(&f->all, w->rank_of != NULL);
}

specrt_status route_measure(const train_world *world, network *net, const int32_t *schedule,
                            int32_t n_schedule, route_figures *out, specrt_error *err) {
    size_t m = (size_t)world->n_clusters;
    *out = (route_figures){0};
    figure_job job = {world, schedule, n_schedule, out, calloc(m, 1), calloc(m, sizeof *job.truth),
                      0};
    specrt_status status = job.chosen && job.truth
                               ? for_examples(world, net, add_figures, &job, err)
                               : sl_error_no_memory(err, "training");
    if (!status) finish(&job);
    free(job.chosen);
    free(job.truth);
    return status;
}
