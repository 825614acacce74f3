/* recall.h : how many of the truly best rows a search finds. */
#ifndef HNSW_BUILD_RECALL_H
#define HNSW_BUILD_RECALL_H

#include "specrt_tools.h"

enum { RECALL_K = 10, RECALL_MAX_STEPS = 8 };

typedef struct hnsw_recall_set {
    int32_t n;
    int64_t dim;
    float *queries; /* [n, dim] owned */
    int32_t *truth; /* [n, RECALL_K] owned; -1 beyond the rows there are */
} hnsw_recall_set;

typedef struct hnsw_recall_step {
    int32_t ef;
    double recall, queries_per_second; /* on one thread */
} hnsw_recall_step;

/* hnsw_recall_create() : room for n queries, which are not set. */
specrt_status hnsw_recall_create(hnsw_recall_set *set, int64_t dim, int32_t n, specrt_error *err);

/* hnsw_recall_hits() : how many of truth [n] are among found [n]; adds the truths there are to n_true. */
int32_t hnsw_recall_hits(const int32_t *truth, const int32_t *found, int32_t n, int32_t *n_true);

/* hnsw_recall_from_trace() : up to n of the target's hidden states in a trace, spread over it.
 * @return BAD_INPUT naming the file when there are none, or of another width. */
specrt_status hnsw_recall_from_trace(const char *path, int64_t dim, int32_t n, hnsw_recall_set *out,
                                     specrt_error *err);

/* hnsw_recall_synthetic() : mixtures of three rows and as much noise, for want of hidden states: queries are
 * never rows. */
specrt_status hnsw_recall_synthetic(const specrt_head_desc *rows, const int32_t *ids, int32_t n_ids,
                                    int32_t n, uint64_t seed, hnsw_recall_set *out,
                                    specrt_error *err);

/* hnsw_recall_truth() : fills truth by scoring rows ids [n_ids] of the head with every query. */
specrt_status hnsw_recall_truth(hnsw_recall_set *set, const specrt_head *head,
                                const specrt_head_desc *rows, const int32_t *ids, int32_t n_ids,
                                specrt_error *err);

/* hnsw_recall_measure() : search with each query at this ef. */
specrt_status hnsw_recall_measure(const hnsw_recall_set *set, const specrt_hnsw *index, int32_t ef,
                                  hnsw_recall_step *out, specrt_error *err);

void hnsw_recall_free(hnsw_recall_set *set);

#endif
