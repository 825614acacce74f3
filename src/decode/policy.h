/* policy.h : a policy, parsed and made */
#ifndef DECODE_POLICY_H
#define DECODE_POLICY_H

#include "core/head.h"
#include "sources/source.h"
#include "sources/ranks.h"

/* The table of sources, one line per source, in the order in which a sum covers tokens and is printed. A
 * line is the name of the number, then the members of specrt__policy_kind. A program adds lines of its own
 * by SPECRT__MORE_SOURCES: examples/own_source.h shows how. */
#define SPECRT__POLICY_TABLE(SOURCE)                                                               \
    SOURCE(FULL, "full", 0, 0, NULL, false, false)                                                 \
    SOURCE(STATIC, "static", SPECRT__RANKS_MAX_LEVELS, 0, NULL, false, false)                      \
    SOURCE(WINDOW, "window", 1, 3072, &specrt__window_source, false, false)                        \
    SOURCE(RETRIEVE, "retrieve", 1, 256, &specrt__retrieve_source, false, false)                   \
    SOURCE(CLUSTER, "cluster", 1, 0, SPECRT__POLICY_LARGE(specrt__cluster_source), true, true)     \
    SOURCE(GROUP, "group", 1, 0, SPECRT__POLICY_LARGE(specrt__cluster_groups), true, true)         \
    SOURCE(CENTROID, "centroid", 1, 0, SPECRT__POLICY_LARGE(specrt__cluster_centroids), true,      \
           true)                                                                                   \
    SOURCE(SUCCESSOR, "successor", 1, 1024, SPECRT__POLICY_LARGE(specrt__successor_source), false, \
           false)                                                                                  \
    SOURCE(SKETCH, "sketch", 1, 512, SPECRT__POLICY_LARGE(specrt__sketch_source), true, false)     \
    SPECRT__MORE_SOURCES(SOURCE)
#if !defined(SPECRT__MORE_SOURCES)
#define SPECRT__MORE_SOURCES(SOURCE)
#endif

#define SPECRT__POLICY_NUMBER(NAME, ...) SPECRT__POLICY_##NAME,
enum { SPECRT__POLICY_TABLE(SPECRT__POLICY_NUMBER) SPECRT__POLICY_KINDS };
/* Sources of a policy at most, whatever the table has: a program's own lines change no struct. */
enum { SPECRT__POLICY_MAX_SOURCES = SPECRT__POOL_MAX_SOURCES };
enum { SPECRT__POLICY_MAX_TEXT = 1024 }; /* as much as a trace keeps */

typedef struct specrt__policy_kind {
    const char *name;
    int32_t n_sizes;              /* it may be given: one for each level, or one for all, or none */
    int32_t size;                 /* when the text names none; 0: as calibrated */
    const specrt__source *source; /* NULL: its rows are fixed */
    bool of_head;                 /* its section was made of the very head that drafts */
    bool takes_share;             /* N% for a size: of its clusters */
} specrt__policy_kind;

extern const specrt__policy_kind specrt__policy_kinds[SPECRT__POLICY_KINDS];

static inline int specrt__policy_n_options(const specrt__policy_kind *kind) {
    return kind->source ? kind->source->n_options : 0;
}

typedef struct specrt__policy_source {
    bool present;
    int32_t size;     /* of the first level, or of all; below 0 a list's at most, or a share in % */
    int32_t n_levels; /* 0: all are alike */
    int32_t levels[SPECRT__RANKS_MAX_LEVELS];
    int32_t options[SPECRT__SOURCE_MAX_OPTIONS];
} specrt__policy_source;

typedef struct specrt__policy_spec {
    specrt__policy_source sources[SPECRT__POLICY_KINDS];
} specrt__policy_spec;

/* --- parsing --- */

SPECRT__INTERNAL specrt_status specrt__policy_parse(const char *text, specrt__policy_spec *out,
                                                    specrt_error *err);

/* --- printing --- */

SPECRT__INTERNAL void specrt__policy_print(const specrt__policy_spec *spec, char *text);

/* --- what sessions share --- */

struct specrt_policy {
    specrt_env env;
    specrt_policy_info info;
    specrt_shortlist shortlist; /* of a policy that never changes */
    const specrt_head *head;
    char text[SPECRT__POLICY_MAX_TEXT];
    int32_t n_vocab, bound;
    specrt__ranks_list *list; /* owned; NULL where no row is packed for all */
    int32_t *full_ids;        /* owned; NULL but for `full` over rows without ids */
    specrt_segment fixed;     /* n_rows = 0: none */
    /* In the order of specrt__policy_kinds, but for a static list of several sizes, which is the first. */
    int32_t n_sources;
    struct {
        int kind; /* of specrt__policy_kinds */
        const specrt__source *source;
        specrt__source_shared shared;
    } sources[SPECRT__POLICY_MAX_SOURCES];
    bool in_head;                      /* those are not packed, but read in the head */
    int32_t packed_bound;              /* rows that sources pack at most */
    int32_t routed_bound;              /* rows that sources add to a level at most */
    const int32_t *frequent, *invalid; /* by rank, borrowed from the bundle, or NULL */
    int32_t n_frequent, n_invalid;
    /* all of them, and those to pack: rows that no fixed segment holds */
    int32_t n_ends, n_terminators;
    int32_t ends[SPECRT_MAX_TERMINATORS], terminators[SPECRT_MAX_TERMINATORS];
};

/* The place of a kind among the policy's sources, or -1. */
static inline int specrt__policy_find(const specrt_policy *policy, int kind) {
    for (int i = 0; i < policy->n_sources; i++)
        if (policy->sources[i].kind == kind) return i;
    return -1;
}

/* What sessions share of a source, or NULL. */
static inline const void *specrt__policy_shared(const specrt_policy *policy, int kind) {
    int i = specrt__policy_find(policy, kind);
    return i < 0 ? NULL : policy->sources[i].shared.data;
}

#endif
