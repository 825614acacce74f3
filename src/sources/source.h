/* source.h : what a source is, and how one that routes adds segments to a level */
#ifndef SOURCES_SOURCE_H
#define SOURCES_SOURCE_H

#include "core/bundle.h"
#include "core/head.h"
#include "core/pool.h"
#include "sources/saved.h"

/* --- routed sources: segments chosen anew at every level of the tree --- */

/* What a source may route by. Nothing here depends on the tokens that the level will propose, which
 * keeps the shortlist a function of the prefix (docs/methods). */
typedef struct specrt__source_level {
    int32_t level;         /* 0: the first pass */
    int32_t n;             /* rows of the pass */
    const int32_t *tokens; /* [n] that the pass was fed, the root at level 0 */
    const float *logprobs; /* [n] cumulative */
    const float
        *draft_input; /* f32 [n, n_cols] hidden states that the pass reads; NULL: not known */
    const float *draft_hidden; /* f32 [n, n_cols] hidden states that it produces */
    /* The rows are positions of a block: each has as many rows as it would have alone, and all score them. Of
     * tokens only the first is known, which stands for all. */
    bool each;
    bool again; /* what the source added to this shortlist before stays in use */
} specrt__source_level;

enum { SPECRT__SOURCE_MAX_SEGMENTS = 1280 }; /* three sources of 400 clusters, and the others' */

/* The segments of a level, as sources add them, and which tokens they brought at which level of this
 * cycle: a token is scored by the first segment that has it. */
typedef struct specrt__source_routed {
    const specrt__pool *pool; /* fixed and packed tokens come first */
    uint32_t *levels;         /* [pool->n_ids] bit i: routed at level i; NULL: nothing routes */
    int32_t level;
    specrt_segment segments[SPECRT__SOURCE_MAX_SEGMENTS];
    int32_t n_segments, n_rows, n_masked;
    int32_t max_rows; /* of a level: the policy's bound on what is routed */
    int64_t n_read;   /* bytes of weights and codes that this level's sources chose by */
    int32_t *masked;  /* [max_rows] */
} specrt__source_routed;

/* Whether a token would be a new row of the level. */
static inline bool specrt__source_is_new(const specrt__source_routed *r, int32_t id) {
    return specrt__pool_valid(r->pool, id) && !specrt__pool_member(r->pool, id) &&
           !(r->levels[id] >> r->level & 1);
}

/* Adds a segment without its mask, which is found here. @return false, and nothing is added, beyond
 * the bounds. A segment may have an id twice, as of clusters that share it: the first counts. */
static inline bool specrt__source_route(specrt__source_routed *r, const specrt_segment *segment) {
    if (segment->n_rows < 1) return true;
    if (r->n_segments == SPECRT__SOURCE_MAX_SEGMENTS || r->n_rows + segment->n_rows > r->max_rows)
        return false;
    specrt_segment *s = &r->segments[r->n_segments++];
    uint32_t bit = 1u << r->level;
    *s = *segment;
    s->masked = r->masked + r->n_masked;
    s->n_masked = 0;
    for (int32_t i = 0; i < s->n_rows; i++) {
        int32_t id = s->ids[i];
        if (specrt__source_is_new(r, id))
            r->levels[id] |= bit;
        else
            r->masked[r->n_masked + s->n_masked++] = i;
    }
    r->n_rows += s->n_rows;
    r->n_masked += s->n_masked;
    return true;
}

typedef struct specrt__source_option {
    const char *key;
    const char *names;          /* "off on": they stand for 0, 1...; NULL: it is a number */
    int32_t least, most, value; /* limits of a number; the default */
} specrt__source_option;

enum { SPECRT__SOURCE_MAX_OPTIONS = 8 };

/* Does not compile unless a table has n options and a source has room for their values. */
#define SPECRT__SOURCE_FITS(table, n)                                                              \
    typedef char table##_fit                                                                       \
        [sizeof table / sizeof *table == (n) && (n) <= (int)SPECRT__SOURCE_MAX_OPTIONS ? 1 : -1]

/* --- a source --- */

/* What a policy's text asks of a source, and what the policy was created with. All pointers are borrowed. */
typedef struct specrt__source_request {
    const specrt_bundle *bundle; /* NULL: none */
    const specrt_head *head;     /* the draft head */
    const specrt_policy_desc *desc;
    const int32_t *frequent; /* [n_frequent] tokens by rank; NULL: ascending ids */
    int32_t n_frequent;
    int32_t size;
    const int32_t *options; /* in the order of the source's table of options */
} specrt__source_request;

/* What the sessions of a policy share of a source. */
typedef struct specrt__source_shared {
    void *data;        /* owned: unshare() frees it */
    int32_t bound;     /* rows at most: of each level if the source routes, else packed ones */
    int32_t more;      /* rows that every position of a block beyond the first may add to bound */
    bool reads_tokens; /* route() reads the tokens of a level alone: a block has more of them */
    bool reads_prompt; /* prefill() reads the target's logits or best ids */
    bool reads_tree;   /* observe() reads them at rejected nodes, too */
    bool reads_states; /* route() reads the drafter's hidden states: */
    bool reads_input;  /* those that the pass read */
    bool keeps;        /* begin() does not forget */
    int32_t hidden_width; /* of the target's hidden states that observe() reads; 0: none */
    bool submits;         /* hands tasks to specrt_session_params.submit */
    bool in_head;         /* wanted rows are read in the head, by index, instead of packed */
} specrt__source_shared;

/* What a session lends to its sources. All pointers are borrowed. */
typedef struct specrt__source_session {
    specrt__pool *pool; /* marked already */
    int32_t topk;       /* rows of a pass at most */
    int32_t n_block;    /* positions of a block at most, 1 or more */
    int32_t n_states;   /* rows of a level at most: the greater of the two */
    int32_t n_logits;   /* columns of the target's logits */
    int32_t bound;      /* rows that are fixed or packed at most */
    const specrt_env *env;
    void (*submit)(void *user, specrt_task *task);
    void *submit_user;
} specrt__source_session;

/* A cycle, as observe() sees it. */
typedef struct specrt__source_cycle {
    const specrt_draft *draft;
    const specrt_verdict *verdict;
    const specrt_target_rows *rows; /* NULL: nothing is known of the target */
    specrt_session_stats *stats;    /* the session's, for events */
} specrt__source_cycle;

/* A source of tokens: all that policies, sessions and saved sessions know of it. Every function but share()
 * is optional. A source that packs rows wants and drops tokens of its session's pool; one that routes adds
 * segments at every level. Sessions call sources in the order of specrt__policy_kinds to route, and in the
 * opposite order to learn: the first one, `window`, fills up what the others leave. */
typedef struct specrt__source {
    /* Of a policy's text: at most SPECRT__SOURCE_MAX_OPTIONS. */
    const specrt__source_option *options;
    int n_options;
    /* Makes what all sessions of a policy share. @return as specrt_policy_create. */
    specrt_status (*share)(const specrt__source_request *request, specrt__source_shared *out,
                           specrt_error *err);
    void (*unshare)(void *shared);
    /* A session's state; NULL: out of memory. Without open(), the state is what sessions share. */
    void *(*open)(void *shared, const specrt__source_session *with);
    void (*close)(void *state);
    /* Adds the level's segments with specrt__source_route. Never allocates. */
    void (*route)(void *state, const specrt__source_level *level, specrt__source_routed *out);
    /* A new sequence. The pool was reset. */
    void (*begin)(void *state);
    /* Prompt tokens [n], and what the target thought after each of them; rows NULL: not known. */
    void (*prefill)(void *state, const int32_t *tokens, int32_t n, const specrt_target_rows *rows);
    /* The prompt is complete, and the target's first token follows. */
    void (*start)(void *state, int32_t token);
    void (*observe)(void *state, const specrt__source_cycle *cycle);
    /* Takes over what another thread has learnt. */
    void (*settle)(void *state);
    /* A saved session has n_lists lists of words of this source (sources/saved.h). Those of `window` and
     * `retrieve`, with which the format began, are in every saved session: empty in one without the source.
     * */
    int32_t n_lists;
    bool always_saved;
    void (*limits)(const void *state, int32_t *most); /* [n_lists] words at most */
    void (*save)(const void *state, specrt__save *out);
    /* The session is as after begin(). @return what is wrong with the words, or NULL. */
    const char *(*load)(void *state, const specrt__saved *in);
} specrt__source;

/* Parts of a table: no options; no share, unshare, open, close and route, as of a source that the program was
 * compiled without; no begin, prefill, start, observe and settle; no lists. */
#define SPECRT__SOURCE_HAS_NO_OPTIONS NULL, 0
#define SPECRT__SOURCE_IS_LEFT_OUT    NULL, NULL, NULL, NULL, NULL
#define SPECRT__SOURCE_LEARNS_NOTHING NULL, NULL, NULL, NULL, NULL
#define SPECRT__SOURCE_SAVES_NOTHING  0, false, NULL, NULL, NULL

#endif
