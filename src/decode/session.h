/* session.h : a session's state */
#ifndef DECODE_SESSION_H
#define DECODE_SESSION_H

#include "core/pool.h"
#include "sources/source.h"
#include "adapt/auto.h"
#include "decode/policy.h"
#include "decode/tree.h"
#include "decode/verify.h"

/* A chain whose last token is not drawn yet, and the target's best tokens at each of its nodes. */
typedef struct specrt__session_open {
    int32_t n, n_accepted; /* n 0: there is none */
    bool told;             /* there are ids */
    int32_t tokens[SPECRT_TREE_MAX_NODES];
    int32_t ids[SPECRT_TREE_MAX_NODES * SPECRT_LOGITS_MAX_K];
} specrt__session_open;

struct specrt_session {
    specrt_env env;
    const specrt_policy *policy;
    specrt__shortlist_pool *pool;
    specrt_tree *tree;
    specrt_verifier *verifier;
    specrt_shortlist shortlist;
    specrt_segment segments[2 + SPECRT__SHORTLIST_MAX_SEGMENTS]; /* fixed, packed, routed */
    int32_t n_kept; /* of the segments, fixed and packed ones; the others are the last level's */
    specrt__shortlist_routed *routed;   /* NULL: the policy routes nothing */
    void *states[SPECRT__POLICY_KINDS]; /* of the policy's sources, in its order */
    int n_open;                         /* of them */
    int64_t n_routed_rows, n_levels;    /* of this cycle */
    int64_t position;                   /* of the next token to emit */
    int64_t n_copied_before;            /* by the pool, until begin */
    int64_t cycle;                      /* trees begun: keys the draws of sampled drafts */
    uint64_t sequence; /* keys the draws; or, once it is named, those after begin */
    bool sequence_named;
    specrt_session_stats stats;
    int32_t topk;
    int32_t *ids;    /* [topk, topk] */
    float *logprobs; /* [topk, topk] */
    float *logits;   /* [topk, bound + routed_bound] */
    /* Sampled drafts: what each level's token was sampled from. */
    specrt_draft_distribution
        *distributions;        /* [num_steps]; NULL: drafts are top-k; owns what follows */
    int32_t *distribution_ids; /* [num_steps, bound + routed_bound] */
    float *distribution_probs;
    float draft_temperature;
    specrt__session_open open;
    specrt_auto *auto_draft; /* NULL: drafts are as deep as the tree */
    specrt_auto_choice choice;
    int32_t n_fixed;   /* rows of the fixed segment that are drafted from in this cycle */
    int32_t *fixed_at; /* [n_ids] place of a token there; NULL: it is used whole */
    bool in_batch;     /* while a batch is looked through for a session that comes twice */
};

/* The state of a source, or NULL: the policy has none. */
static inline void *specrt__session_state(const specrt_session *s, int kind) {
    int i = specrt__policy_find(s->policy, kind);
    return i < 0 ? NULL : s->states[i];
}

SPECRT__INTERNAL void specrt__session_mark(specrt__shortlist_pool *pool,
                                           const specrt_policy *policy);
SPECRT__INTERNAL specrt_status specrt__session_shape(const specrt_session_params *params,
                                                     specrt_tree_params *tree, specrt_error *err);
SPECRT__INTERNAL specrt_status specrt__session_columns(const specrt_policy *policy, int32_t n_said,
                                                       int32_t *out, specrt_error *err);

/* --- a sequence --- */

SPECRT__INTERNAL void specrt__session_pack(specrt_session *s);

/* --- a cycle --- */

/* What sequences multiply together: as many as one product takes the states of. */
typedef struct specrt__session_group {
    specrt_session *const *sessions;
    int32_t n, n_states;
    const float *hidden; /* f32 [n_states, n_cols] */
} specrt__session_group;

SPECRT__INTERNAL float specrt__session_certainty(const float *logits, int32_t n, int32_t token);

#endif
