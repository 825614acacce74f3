/* impl.h : what the files of replay share: sequences in memory, and sums over them. */
#ifndef SPECRT_EVAL_REPLAY_IMPL_H
#define SPECRT_EVAL_REPLAY_IMPL_H

#include <pthread.h>
#include "../shared/eval.h"
#include "model/model.h"
#include "replay.h"

enum {
    REPLAY_TREES = 64,
    REPLAY_NODES = SPECRT_TREE_MAX_NODES,
    REPLAY_BEST = 16,      /* best tokens of the target that a source reads at most */
    REPLAY_DRAFT_BEST = 10 /* of the drafter, whose recall is told beside that of all */
};

/* What a row (an emitted token) is to every policy. */
typedef struct replay_row {
    int32_t place; /* of the token among the drafter's best; n_draft_top: not there */
    bool known;    /* the drafter made a pass here */
    float *room;   /* [n_trees] its path's log-probability above what the tree has room for */
} replay_row;

/* A cycle, in the batch's memory. */
typedef struct replay_cycle {
    specrt_trace_record r; /* without hidden states where no policy reads them */
    int32_t *depths;       /* [n_nodes] */
    uint64_t *masks;       /* [n_nodes] */
    int32_t *best; /* [n_nodes, k] what was recorded of the target's best; -1: not that many */
    float *probs;  /* [n, n_top] of top_ids under the target's distribution; NULL: not recorded */
    replay_row *rows; /* [n] */
    bool rescored;    /* the drafter's best are another head's than the tree's */
} replay_cycle;

typedef struct replay_sequence {
    const specrt_trace_info *info;
    specrt_trace_record prompt;
    replay_cycle *cycles;
    replay_cycle *rescored[EVAL_HEADS]; /* [n_cycles] by replay.heads, in the batch's memory */
    int32_t n_cycles;
    int32_t number, domain;
    int64_t topic; /* tokens of its topic before it: of earlier sequences, in a stream */
} replay_sequence;

/* Acceptance by level of tree. */
typedef struct replay_levels {
    int64_t reached[REPLAY_POSITIONS], accepted[REPLAY_POSITIONS];
} replay_levels;

/* Of one sequence, whatever the policy. */
typedef struct replay_shared {
    const specrt_trace_info *info; /* of its trace */
    int32_t domain, n_cycles, n_tokens, n_prompt;
    int64_t wanted[REPLAY_RECALLS];
    double mass;
} replay_shared;

/* Of one sequence under a policy. */
typedef struct replay_sums {
    int64_t n_rows;
    int32_t n_covered, n_cycles; /* cycles: its own */
    int32_t held[REPLAY_RECALLS];
    double mass;
} replay_sums;

typedef struct replay_walked {
    int32_t n_emitted, n_cycles;
} replay_walked;

typedef struct replay_span {
    int64_t n_tokens, n_covered;                             /* of the policy */
    int64_t n_emitted[REPLAY_TREES], n_cycles[REPLAY_TREES]; /* of its walks, by tree */
} replay_span;

/* A copy of the drafter's head in another type, whose best tokens stand for the recorded ones. */
typedef struct replay_head {
    eval_head copy;
    specrt_policy *policy;              /* full, over it; NULL: none */
    replay_levels levels[REPLAY_TREES]; /* as those of replay */
} replay_head;

typedef struct replay_way {
    specrt_policy *policy; /* NULL: the oracle */
    replay_head *head;     /* NULL: as recorded */
    char text[512];
    bool routed, reads_hidden, reads_draft_input; /* fed: what drafter passes were given */
    bool serial;                                  /* what it learnt outlives a sequence */
    bool recorded;                                /* by it every trace was recorded */
    bool exact_coverage, exact_rows;              /* as in replay_figures */
    int32_t d_hidden;
    specrt_session *session; /* serial ones'; else workers have theirs */
    replay_sums *sums;       /* [n_sequences] */
    replay_walked *walked;   /* [n_sequences, n_trees] */
    replay_levels *levels;   /* [n_trees] */
    replay_span spans[REPLAY_SPANS];
} replay_way;

struct replay {
    replay_params params;
    specrt_trace_reader **readers;   /* [n_traces] */
    const specrt_trace_info **infos; /* [n_traces] theirs */
    specrt_bundle *bundle;
    model model, embedding_file;
    specrt_head_desc embedding; /* its rows NULL: none */
    specrt_head *head;
    specrt_head_desc head_desc;
    replay_head heads[EVAL_HEADS];
    void *no_rows; /* of a head that nothing is multiplied with */
    specrt_tree_params trees[REPLAY_TREES];
    int n_trees;
    replay_way *ways; /* [n_policies + 1], the oracle first */
    int n_ways;
    char (*domains)[32];
    int n_domains;
    replay_shared *shared; /* [n_sequences] */
    int64_t n_sequences;
    replay_levels
        levels[REPLAY_TREES];     /* the oracle's along recorded paths, of all that was read */
    bool cut, open, keeps_hidden; /* open: a sequence is being read */
    bool untold;                  /* of a sequence, what the drafter's first pass was fed */
    int topic;                    /* of the last sequence, and tokens of it so far */
    int64_t topic_tokens;
    pthread_mutex_t lock; /* of sums over sequences */
};

/* ---- replay.c ---- */

typedef struct block block;

/* Sequences in memory. */
typedef struct replay_batch {
    block *blocks, *spare; /* spare: of the batch before */
    size_t n_bytes;
    replay_sequence *sequences;
    int64_t n;
    size_t capacity;
    bool failed; /* out of memory */
} replay_batch;

/* replay_take() : memory of the batch; NULL: there is none, and the batch has failed */
void *replay_take(replay_batch *b, size_t n);

/* replay_run_batch() : every policy over a batch, on threads; the first failure in the order of policies. */
specrt_status replay_run_batch(replay *r, replay_batch *b, specrt_error *err);

/* replay_best_width() : columns of replay_cycle.best. */
int32_t replay_best_width(const specrt_trace_info *info);

/* ---- visit.c ---- */

/* replay_scratch() : of a worker, for hidden states; to free. */
specrt_status replay_scratch(const replay *r, float **out, specrt_error *err);

/* visit_sequence() : adds what a policy makes of a sequence to its sums.
 *   session : NULL: the oracle's
 *   scratch : replay_scratch()
 * @return OK; what the session returned for a recorded cycle that is none, with its own text. */
specrt_status visit_sequence(replay *r, replay_way *e, const replay_sequence *s,
                             specrt_session *session, float *scratch);

/* ---- rescore.c ---- */

/* replay_head_of() : the copy that a policy's text asks for, made once; NULL: the head as stored.
 * @return OK; BAD_ARG: traces lack what it takes */
specrt_status replay_head_of(replay *r, int type, const char *text, replay_head **out,
                             specrt_error *err);
void replay_close_heads(replay *r);

/* replay_rescore() : a whole sequence's cycles by each of these heads. @return false: no memory */
bool replay_rescore(replay *r, replay_batch *b, replay_sequence *s);

/* ---- open.c ---- */

/* replay_open() : traces, bundle, head and policies, checked against each other. */
specrt_status replay_open(replay *r, specrt_error *err);

/* ---- estimate.c ---- */

/* estimate_rows() : what every tree makes of a cycle's rows; adds to levels. */
void estimate_rows(const specrt_tree_params *trees, int n_trees, const specrt_trace_info *info,
                   const replay_cycle *c, replay_levels levels[]);

/* replay_order_nodes() : a tree's nodes by falling probability; of equal ones the earlier is first, so that
 * parents come before children. */
void replay_order_nodes(const specrt_trace_record *r, int32_t order[REPLAY_NODES]);

/* replay_threshold() : the log-probability that a node needs to be in a tree, which is that of the last of
 * the recorded nodes that such a tree would have had. */
float replay_threshold(const specrt_tree_params *tree, const replay_cycle *c,
                       const int32_t order[REPLAY_NODES]);

/* A walk through a sequence in cycles of its own. */
typedef struct replay_walk {
    int32_t level, n; /* of the cycle at hand: the draft position next, and tokens so far */
    double carry;     /* of chances, so that they add up */
    int64_t n_emitted, n_cycles;
} replay_walk;

typedef enum replay_drafted {
    DRAFTED_NO,
    DRAFTED_YES,
    DRAFTED_UNKNOWN,
    DRAFTED_NEVER
} replay_drafted;

/* walk_step() : a token that could be drafted at `level` of the recorded cycle or not, or NEVER, since the
 * list lacks it. @return how many tokens a cycle had that ended with it; 0: it goes on. */
int32_t walk_step(replay_walk *w, const specrt_tree_params *tree, const replay_levels *levels,
                  int32_t level, replay_drafted drafted);

/* replay_chance() : the chance that a token seen at one level would have been drafted at another. A token
 * that was drafted is taken to be drafted anywhere. Drafters are surer near the root, so that a token which
 * was not drafted may have been higher up. */
double replay_chance(const replay_levels *levels, int32_t seen, int32_t level,
                     replay_drafted drafted);

/* ---- figures.c ---- */

/* replay_student_quantile() : the 97.5% quantile of Student's t. */
double replay_student_quantile(int64_t df);

#endif
