/* graph.h : counts of pairs to the bytes of section "cograph". */
#ifndef COGRAPH_BUILD_GRAPH_H
#define COGRAPH_BUILD_GRAPH_H

#include "counts/pairs.h"
#include "specrt_tools.h"

typedef struct graph_rule {
    int64_t max_degree, min_count;   /* what is kept */
    int64_t rule_degree, rule_count; /* EvoSpec's rule */
    double rule_share;
} graph_rule;

typedef struct graph {
    specrt_cograph_header header;
    uint64_t n_rule_edges; /* that obey EvoSpec's rule */
    uint64_t *totals;      /* as in the section; owned */
    uint32_t *offsets, *n_rule;
    int32_t *ids;
    float *counts;
    size_t capacity; /* of ids and counts */
    int32_t n_rows;  /* rows whose end is known */
} graph;

/* graph_create() : prune the rows of a store.
 * @return BAD_INPUT when nothing is left. */
specrt_status graph_create(pairs *p, int threads, const graph_rule *rule, int32_t n_vocab,
                           uint64_t n_tokens, graph *out, specrt_error *err);
void graph_free(graph *g);

/* graph_bytes() : the section, owned; NULL: no memory. */
void *graph_bytes(const graph *g, size_t *n);

/* graph_share() : the share of all pairs whose successor is among the first k of its row, and *rows, how
 * many rows that takes, weighted by how often each token occurs. */
double graph_share(const graph *g, int32_t k, double *rows);

#endif
