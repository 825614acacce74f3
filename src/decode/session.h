/* session.h : a session's state */
#ifndef DECODE_SESSION_H
#define DECODE_SESSION_H

#include "core/pool.h"
#include "sources/source.h"
#include "adapt/auto.h"
#include "decode/block.h"
#include "decode/policy.h"
#include "decode/tree.h"
#include "decode/verify.h"

/* Where a session stands in the order of calls. What is allowed in several places is a sum of them. */
enum {
    SPECRT__AT_CREATED = 1,  /* begin has not come */
    SPECRT__AT_PROMPT = 2,   /* no token of the prompt has come */
    SPECRT__AT_READ = 4,     /* some have; the first token of the answer has not */
    SPECRT__AT_OPEN = 8,     /* observe_chain left its last token to start */
    SPECRT__AT_DRAFT = 16,   /* a tree has its root, and grows */
    SPECRT__AT_DRAFTED = 32, /* it is finished, or another was verified */
    SPECRT__AT_ENDED = 64    /* the answer ended, or a model failed */
};

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
    specrt__pool *pool;
    specrt_tree *tree;
    specrt_verifier *verifier;
    specrt_shortlist shortlist;
    specrt_segment segments[2 + SPECRT__SOURCE_MAX_SEGMENTS]; /* fixed, packed, routed */
    int32_t n_kept; /* of the segments, fixed and packed ones; the others are the last level's */
    specrt__source_routed *routed;            /* NULL: the policy routes nothing */
    void *states[SPECRT__POLICY_MAX_SOURCES]; /* of the policy's sources, in its order */
    int n_open;                               /* of them */
    int64_t n_routed_rows;                    /* of this cycle */
    int64_t position;                         /* of the next token to emit */
    int64_t n_copied_before;                  /* by the pool, until begin */
    int64_t cycle;                            /* trees begun: keys the draws of sampled drafts */
    int64_t stamp;       /* counts them without end, so that verdicts are told apart */
    uint64_t generation; /* number of the one that the next begin begins */
    int64_t n_left;      /* tokens that the answer may still have */
    int64_t n_late;      /* of the prompt, that the drafter reads when it first drafts */
    int32_t n_logits;    /* columns of the target's logits */
    int32_t level;       /* passes scored in this cycle */
    int at;              /* SPECRT__AT_* */
    specrt_error error;  /* of the last call that failed */
    specrt_session_stats stats;
    int32_t topk;
    int32_t bound;   /* rows of a shortlist at most */
    int32_t *ids;    /* [topk, topk] */
    float *logprobs; /* [topk, topk] */
    float *logits;   /* [topk, bound] */
    specrt__block block;
    /* Sampled drafts: what each level's token was sampled from. */
    specrt_draft_distribution
        *distributions;        /* [num_steps]; NULL: drafts are top-k; owns what follows */
    int32_t *distribution_ids; /* [num_steps, bound] */
    float *distribution_probs;
    int32_t sampled[SPECRT_TREE_MAX_STEPS]; /* those tokens; -1: none */
    float draft_temperature;                /* 0: the target's */
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

/* Whether a prompt may begin so. */
SPECRT__INTERNAL specrt_status specrt__session_check_request(specrt_session *s,
                                                             const specrt_request *request);

/* Whether a call comes in order; else the session's error names what was expected.
 *   allowed : sum of SPECRT__AT_* */
SPECRT__INTERNAL specrt_status specrt__session_refuse_order(specrt_session *s, const char *call);
static inline specrt_status specrt__session_order(specrt_session *s, int allowed,
                                                  const char *call) {
    return s->at & allowed ? SPECRT_STATUS_OK : specrt__session_refuse_order(s, call);
}

/* Before anything is read of an argument. */
#define SPECRT__SESSION_NEEDS(s, argument, call)                                                   \
    do {                                                                                           \
        if (!(s) || !(argument))                                                                   \
            return specrt__base_refuse_null((s) ? &(s)->error : NULL, call, #argument);            \
    } while (0)

SPECRT__INTERNAL void specrt__session_mark(specrt__pool *pool, const specrt_policy *policy);
SPECRT__INTERNAL specrt_status specrt__session_shape(const specrt_session_params *params,
                                                     specrt_tree_params *tree, specrt_error *err);
SPECRT__INTERNAL specrt_status specrt__session_check_columns(const specrt_policy *policy,
                                                             int32_t n_logits, specrt_error *err);

/* --- a sequence --- */

SPECRT__INTERNAL void specrt__session_pack(specrt_session *s);
SPECRT__INTERNAL void specrt__session_reset(specrt_session *s);

/* --- a cycle --- */

/* The rows of the pass to come. */
SPECRT__INTERNAL specrt_beam specrt__session_beam(const specrt_session *s);
/* What sources route a pass by. */
SPECRT__INTERNAL specrt__source_level specrt__session_level(int32_t at, const specrt_beam *beam,
                                                            const float *draft_hidden,
                                                            const float *draft_input);
/* The last level's routed segments make way for those of this one. */
SPECRT__INTERNAL const specrt_shortlist *specrt__session_route_by(specrt_session *s,
                                                                  specrt__source_level level);
/* The shortlist becomes what is kept and what was routed so far. */
SPECRT__INTERNAL void specrt__session_list_routed(specrt_session *s);
/* So many bytes that sources read, and rows of the head, were read to draft. */
SPECRT__INTERNAL void specrt__session_count_read(specrt_session *s, int64_t n_read, int64_t n_rows);
/* Whether a pass of n rows may come now. */
SPECRT__INTERNAL specrt_status specrt__session_check_expand(specrt_session *s, int32_t n);
/* The rows of the pass to come, for the tree at hand. */
SPECRT__INTERNAL void specrt__session_route_pass(specrt_session *s, const float *draft_hidden,
                                                 const float *draft_input);
/* The tree's next level, from the session's k ids and logprobs of each of n rows. */
SPECRT__INTERNAL specrt_status specrt__session_propose(specrt_session *s, int32_t n, int32_t k,
                                                       specrt_beam *beam);
/* The same, of one token that is sampled from the distribution that verification will be shown.
 *   ids : of n logits; NULL: they are those of the shortlist */
SPECRT__INTERNAL specrt_status specrt__session_sample(specrt_session *s, const int32_t *ids,
                                                      const float *logits, int32_t n,
                                                      specrt_beam *beam);
/* The tree's next level, from the logits of a pass of n rows. */
SPECRT__INTERNAL specrt_status specrt__session_grow(specrt_session *s, int32_t n,
                                                    specrt_beam *beam);

/* Cuts what is emitted where the answer ends. */
SPECRT__INTERNAL void specrt__session_cut(const specrt_session *s, specrt_verdict *verdict);
/* Learns from a cycle that was cut, and ends the answer where it says so. */
SPECRT__INTERNAL specrt_status specrt__session_end(specrt_session *s, const specrt_draft *draft,
                                                   const specrt_target_rows *rows,
                                                   const specrt_verdict *cut);

SPECRT__INTERNAL float specrt__session_certainty(const float *logits, int32_t n, int32_t token);

#endif
