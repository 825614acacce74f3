/* ranks.h : lists from a bundle's ranks */
#ifndef SOURCES_RANKS_H
#define SOURCES_RANKS_H

#include "core/bundle.h"
#include "core/head.h"
#include "sources/source.h"

enum { SPECRT__RANKS_MAX_LEVELS = 8 };

/* The head's rows of leading ranks, packed once. */
typedef struct specrt__ranks_list {
    specrt_env env;
    specrt_shortlist shortlist;
    specrt_segment segment; /* rows, ids and bias stand behind this struct, in one block */
    int32_t n_levels;       /* of those that have a size of their own; 0: all are alike */
    int32_t levels[SPECRT__RANKS_MAX_LEVELS]; /* [n_levels] rows; the last holds from there on */
    int32_t n_always;                         /* rows of every level */
} specrt__ranks_list;

SPECRT__INTERNAL specrt_status specrt__ranks_size(const specrt_bundle *bundle,
                                                  const specrt_ranks *ranks, int32_t size,
                                                  int32_t *out, specrt_error *err);
/* size : 0 takes the calibrated size. @return OK, BAD_ARG naming the limits, NO_MEMORY,
 * BUNDLE_SECTION_MISSING. */
SPECRT__INTERNAL specrt_status specrt__ranks_create(const specrt_bundle *bundle,
                                                    const specrt_head *head, int32_t size,
                                                    specrt__ranks_list **out, specrt_error *err);
SPECRT__INTERNAL void specrt__ranks_free(specrt__ranks_list *list);
SPECRT__INTERNAL specrt__ranks_list *specrt__ranks_pack(const specrt_head *head, const int32_t *ids,
                                                        int32_t n_ids);

/* --- a size for every level: the rows of all are fixed, the others are routed --- */

SPECRT__INTERNAL void specrt__ranks_set_levels(specrt__ranks_list *list, const specrt_head *head,
                                               const int32_t *ids, const int32_t *sizes, int32_t n);

extern const specrt__source specrt__ranks_levels;

#endif
