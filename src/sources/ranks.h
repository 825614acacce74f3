/* ranks.h : lists of leading tokens of a ranking: a bundle's, or an application's */
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

/* Distinct tokens, most frequent first. A list is a prefix of n_forced or more, and at least one. */
typedef struct specrt__ranks_order {
    const char *name;   /* for messages: the bundle's, or "ids" */
    const int32_t *ids; /* i32 [n], borrowed */
    int32_t n;
    int32_t n_forced;       /* leading tokens that every list contains */
    int32_t n_default;      /* size of a list for which none was asked */
    int32_t n_vocab;        /* ids are below it */
    specrt_status mismatch; /* status of tokens that the head lacks */
} specrt__ranks_order;

/* @return OK; BUNDLE_SECTION_MISSING, also without a bundle. */
SPECRT__INTERNAL specrt_status specrt__ranks_of_bundle(const specrt_bundle *bundle,
                                                       specrt__ranks_order *out, specrt_error *err);
/* Of specrt_policy_desc.ids. @return OK, NO_MEMORY, BAD_ARG with the entry. */
SPECRT__INTERNAL specrt_status specrt__ranks_of_ids(const specrt_policy_desc *desc, int32_t n_vocab,
                                                    const specrt_env *env, specrt__ranks_order *out,
                                                    specrt_error *err);

/* size : 0 takes the default one. @return OK, BAD_ARG naming the limits. */
SPECRT__INTERNAL specrt_status specrt__ranks_size(const specrt__ranks_order *order, int32_t size,
                                                  int32_t *out, specrt_error *err);
/* size : as above. @return OK, BAD_ARG, NO_MEMORY, or the order's mismatch. */
SPECRT__INTERNAL specrt_status specrt__ranks_create(const specrt__ranks_order *order,
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
