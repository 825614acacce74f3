/* build.h : what the files of cluster-build share: the command line, what was built, and one group of
 * prototypes per file. */
#ifndef CLUSTER_BUILD_BUILD_H
#define CLUSTER_BUILD_BUILD_H

#include <stdio.h>
#include "base/cli.h"
#include "kmeans.h"
#include "model/model.h"
#include "space.h"
#include "tokenizer/tokenizer.h"
#include "train.h"

/* ---- options.c ---- */

typedef struct cluster_options {
    cli_common common;
    const char *model, *tensor;
    const char *tokenizer; /* NULL: the model's, if it holds one */
    const char *router_name, *schedule_name;
    specrt_router_kind router;
    int64_t n_clusters; /* 0: as the router's method has it */
    int64_t n_iterations;
    bool balanced;
    double largest;
    bool ordered;              /* clusters of at most rows / n_clusters slots, an ordered head's */
    bool stored;               /* clusters and centroids are the model's own */
    int64_t n_hot, n_distinct; /* of an ordered head; 0: none, all that fit */
    int64_t mean_rows;         /* 0: as the router's method has it */
    cli_list traces;           /* of trained routers */
    const char *embedding;     /* the model that holds it; NULL: `model` */
    const char *loss_name;
    bool shuffled; /* labels, as a control */
    train_loss loss;
    int64_t n_hidden, n_batch, n_epochs, patience;
    double rate, decay, holdout;
} cluster_options;

/* cluster_options_is_trained() : whether the router has a network. */
bool cluster_options_is_trained(const cluster_options *o);

/* cluster_options_parse() : @return -1 to go on, else the exit code. */
int cluster_options_parse(cluster_options *o, int argc, char **argv);

/* ---- schedule.c ---- */

enum { SCHEDULE_LEVELS = 8, SCHEDULE_MEAN = 6 /* levels of the default tree */ };

typedef struct schedule {
    int32_t clusters[SCHEDULE_LEVELS]; /* of each level */
    int32_t n;                         /* levels given */
    double rows;                       /* mean over the first SCHEDULE_MEAN levels */
} schedule;

/* schedule_make() : a named shape (harmonic, flat), the greatest whose mean stays within `rows`,
 * or the numbers of a list.
 *   rows_of : [n_clusters + 1] that the k clusters of a level hold on average
 * @return BAD_ARG when one cluster a level is too many already, or the list is none. */
specrt_status schedule_make(const char *name, double rows, const double *rows_of,
                            int32_t n_clusters, schedule *out, specrt_error *err);

/* ---- section.c ---- */

/* A router as it is stored; the widths are those of specrt_clusters_header. */
typedef struct router_weights {
    int32_t kind, softmax, n_embed, n_state, n_hidden;
    float *w1, *b1, *w2, *b2; /* owned; NULL where the kind has none */
} router_weights;
void router_weights_free(router_weights *w);

/* What came of training; empty for the other routers. */
typedef struct router_training {
    model embedding_file; /* unless it is the build's own model */
    specrt_head_desc embedding;
    example_set examples;
    train_curve curve;
    route_figures figures;
    double seconds;
} router_training;

/* Who is in which cluster. */
typedef struct cluster_members {
    int32_t n;        /* of all clusters */
    int32_t *offsets; /* [n_clusters + 1] */
    int32_t *rows;    /* [n] of the head, ascending in a cluster; a row may be in several */
} cluster_members;
void cluster_members_free(cluster_members *m);

/* Why a row of the head takes no part in clustering. */
enum { ROW_RESERVED = 1, ROW_HOT /* it is in every cluster */, ROW_RARE /* no slot is left */ };

typedef struct cluster_build {
    const cluster_options *options;
    model source;
    specrt_head_desc head;
    const char *head_name;
    specrt_ident ident; /* with -o */
    int32_t *ids;       /* target ids of the head's rows; NULL: row i is token i. head.ids, owned */
    int32_t n_ids;      /* they are below it */
    tokenizer *tok;     /* NULL: unknown */
    uint8_t *left_out;  /* [head.n_rows] ROW_RESERVED...; 0: takes part. NULL: all do */
    int32_t *order; /* [head.n_rows] all rows, the most frequent first; of an ordered head alone */
    float *weights; /* [head.n_rows] in centroids: the root of a row's count; likewise */
    int32_t n_hot, n_rare;
    int32_t topk; /* of a stored ordered head */
    row_set rows;
    space space; /* the same as states tell them apart; empty without traces */
    kmeans k;
    cluster_members members;
    schedule schedule;
    router_weights router;
    router_training training;
    double seconds;
} cluster_build;

/* build_id() : the target id of a row of the head. */
static inline int32_t build_id(const cluster_build *b, int32_t row) {
    return b->ids ? b->ids[row] : row;
}

/* cluster_section_tag() : where clusters with this router belong. */
const char *cluster_section_tag(specrt_router_kind router);

/* cluster_section_bytes() : the section, owned; NULL: no memory. */
void *cluster_section_bytes(const cluster_build *b, size_t *n_bytes);

/* ---- members.c ---- */

/* members_plan() : of an ordered head, marks the rows that are in every cluster and those that no slot is
 * left for. After placeholders were marked.
 * @return BAD_ARG, UNSUPPORTED, NO_MEMORY; as specrt_bundle_ranks(). */
specrt_status members_plan(cluster_build *b, specrt_error *err);

/* members_worth() : indices of the rows that take part, the most frequent first, into *out [rows.n],
 * owned. */
specrt_status members_worth(const cluster_build *b, int32_t **out, specrt_error *err);

/* members_make() : from k-means and the plan. */
specrt_status members_make(cluster_build *b, specrt_error *err);

/* members_read() : clusters and centroids of the model's own ordered head, into members and k.
 * @return BAD_INPUT: it has none, or a faulty one; UNSUPPORTED, NO_MEMORY. */
specrt_status members_read(cluster_build *b, specrt_error *err);

/* ---- router.c ---- */

/* router_read() : the examples of the traces, before any work; a no-op for routers that need none. */
specrt_status router_read(cluster_build *b, specrt_error *err);

/* router_make() : after clustering, the weights and the schedule. Centroids score a cluster by the mean of
 * its rows, of an ordered head the weighted mean of those not in every cluster, or are the model's own. */
specrt_status router_make(cluster_build *b, specrt_error *err);
void router_training_free(router_training *t);

/* ---- report.c ---- */

void cluster_report_table(const cluster_build *b, FILE *out);
/* cluster_report_json() : the --json object; cluster_report_provenance() : for the bundle. Owned; NULL: no
 * memory. */
char *cluster_report_json(const cluster_build *b);
char *cluster_report_provenance(const cluster_build *b);

#endif
