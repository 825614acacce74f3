/* specrt_tools.h : single pieces for programs that build and inspect bundles and indexes. An application does
 * without.
 *
 *     heads, told apart    specrt_digest_distance
 *     an index's nodes     specrt_hnsw_nearest, _scores, _any_above */
#ifndef SPECRT_TOOLS_H
#define SPECRT_TOOLS_H

#include "specrt.h"

// >>tools

#ifdef __cplusplus
extern "C" {
#endif

/* ---- a bundle's head --------------------------------------------------------------------------------- */

/* specrt_digest_distance() : 0 for one head, about 0.1 for its 4-bit quantisation, about 1.4 for another head
 * or another row order. A constant added to every row does not count, since no softmax sees it. */
SPECRT_API float specrt_digest_distance(const specrt_digest *a, const specrt_digest *b);

/* ---- an index under construction -------------------------------------------------------------------- */

/* Builders search for nodes with nodes of an index of int8 vectors, whose links may be under
 * construction. The scores of two nodes are the same whichever asks. */

/* specrt_hnsw_nearest() : nodes of one level, best first.
 *   nodes, scores : i32, f32 [ef]
 * @return how many there are. */
SPECRT_API int32_t specrt_hnsw_nearest(const specrt_hnsw *index, int32_t node, int32_t level,
                                       int32_t ef, int32_t *nodes, float *scores, void *scratch);

/* specrt_hnsw_scores() : of the listed nodes with one. */
SPECRT_API void specrt_hnsw_scores(const specrt_hnsw *index, int32_t node, const int32_t *nodes,
                                   int32_t n, float *scores, void *scratch);

/* specrt_hnsw_any_above() : 1 when any of these scores is above a bound, else 0. */
SPECRT_API int specrt_hnsw_any_above(const specrt_hnsw *index, int32_t node, const int32_t *nodes,
                                     int32_t n, float bound, void *scratch);

#ifdef __cplusplus
}
#endif

#endif
