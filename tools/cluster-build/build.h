/* build.h : what the files of cluster-build share: the command line, what was built, and one group of
 * prototypes per file. */
#ifndef CLUSTER_BUILD_H
#define CLUSTER_BUILD_H

#include <stdio.h>
#include "cli.h"
#include "kmeans.h"
#include "model.h"
#include "tokenizer.h"

/* ---- options.c ---- */

typedef struct build_options {
    cli_common common;
    const char *model, *tensor;
    const char *tokenizer; /* NULL: the model's, if it holds one */
    const char *router_name, *schedule_name, *init;
    specrt_router_kind router;
    int64_t n_clusters; /* 0: as the router's method has it */
    int64_t n_iterations;
    bool balanced;
    int64_t mean_rows; /* 0: as the router's method has it */
} build_options;

/* options_parse() : @return -1 to go on, else the exit code. */
int options_parse(build_options *o, int argc, char **argv);

/* ---- schedule.c ---- */

enum { SCHEDULE_LEVELS = 8, SCHEDULE_MEAN = 6 /* levels of the default tree */ };

typedef struct schedule {
    int32_t clusters[SCHEDULE_LEVELS]; /* of each level */
    int32_t n;                         /* levels given */
    double mean;                       /* over the first SCHEDULE_MEAN */
} schedule;

/* schedule_make() : a named shape (german, halving, flat) whose mean is the greatest that stays within
 * `mean` clusters, or the numbers of a list.
 * @return BAD_ARG when one cluster a level is too many already, or the list is none. */
specrt_status schedule_make(const char *shape, double mean, int32_t n_clusters, schedule *out,
                            specrt_error *err);

/* ---- section.c ---- */

/* A router as it is stored; the widths are those of specrt_clusters_header. */
typedef struct router_weights {
    int32_t kind, softmax, n_embed, n_state, n_hidden;
    float *w1, *b1, *w2, *b2; /* owned; NULL where the kind has none */
} router_weights;
void router_weights_free(router_weights *w);

typedef struct build {
    const build_options *options;
    model source;
    specrt_head_desc head;
    const char *head_name;
    tokenizer *tok; /* NULL: unknown */
    row_set rows;
    kmeans k;
    schedule schedule;
    router_weights router;
    double seconds;
} build;

/* section_tag() : where clusters with this router belong. */
const char *section_tag(specrt_router_kind router);

/* section_bytes() : the section, owned; NULL: no memory. */
void *section_bytes(const build *b, size_t *n_bytes);

/* centroid_router() : scores a cluster by the mean of its rows. */
specrt_status centroid_router(build *b, specrt_error *err);

/* ---- report.c ---- */

void report_table(const build *b, FILE *out);
/* report_json() : the --json object; report_provenance() : for the bundle. Owned; NULL: no memory. */
char *report_json(const build *b);
char *report_provenance(const build *b);

#endif
