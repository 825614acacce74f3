/* ranks.h : lists from a bundle's ranks */
#ifndef SOURCES_RANKS_H
#define SOURCES_RANKS_H

#include "core/bundle.h"
#include "core/head.h"
#include "sources/source.h"

enum { SPECRT__RANKS_MAX_LEVELS = 8 };

struct specrt_static {
    specrt_desc desc;
    specrt_active active;
    specrt_segment segment; /* rows, ids and bias stand behind this struct, in one block */
    int32_t n_levels;       /* of those that have a size of their own; 0: all are alike */
    int32_t levels[SPECRT__RANKS_MAX_LEVELS]; /* [n_levels] rows; the last holds from there on */
    int32_t n_always;                         /* rows of every level */
};

SPECRT__INTERNAL specrt_status specrt__ranks_size(const specrt_bundle *bundle,
                                                  const specrt_ranks *ranks, int32_t size,
                                                  int32_t *out, specrt_error *err);
SPECRT__INTERNAL specrt_static *specrt__ranks_pack(const specrt_head *head, const int32_t *ids,
                                                   int32_t n_ids);

/* --- a size for every level: the rows of all are fixed, the others are routed --- */

SPECRT__INTERNAL void specrt__ranks_set_levels(specrt_static *list, const specrt_head *head,
                                               const int32_t *ids, const int32_t *sizes, int32_t n);

extern const specrt__source specrt__ranks_levels;

#endif
