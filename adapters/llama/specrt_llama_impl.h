/* specrt_llama_impl.h : what the adapter's files share; applications see specrt_llama.h alone. */
#ifndef LLAMA_SPECRT_LLAMA_IMPL_H
#define LLAMA_SPECRT_LLAMA_IMPL_H

#include "ggml.h"
#include "specrt_llama.h"

#define TRY(call)                                                                                  \
    do {                                                                                           \
        specrt_status try_status = (call);                                                         \
        if (try_status != SPECRT_STATUS_OK) return try_status;                                     \
    } while (0)

enum { SPECRT_LLAMA_MAX_RANK = 4096 }; /* columns of a Markov head at most */

typedef struct specrt_llama_reader specrt_llama_reader;

/* States of the target that a drafter reads: rows of the target's last pass, and those that wait for the
 * drafter, of positions n_read to n_past - 1. */
typedef struct specrt_llama_taps {
    char nodes[SPECRT_LLAMA_TAPS]
              [24]; /* [n_nodes] of the target's graph, f32 [rows, d_target] each */
    char named[24 * SPECRT_LLAMA_TAPS]; /* all of them, for errors */
    int32_t n_nodes, d_target;
    int32_t width; /* of a position's states: n_nodes d_target */
    float *rows;   /* [n_batch, width] of the target's last pass */
    int64_t n_rows;
    int32_t found;  /* a bit for each node that the pass had */
    float *waiting; /* [n_batch + SPECRT_TREE_MAX_NODES, width] */
} specrt_llama_taps;

struct specrt_llama {
    const specrt_llama_head *head;
    struct llama_context *target, *draft;
    struct llama_batch to_target, to_draft;
    specrt_tree_params tree;
    int32_t n_context, n_batch;
    int32_t n_vocab, n_logits; /* tokens of both models; of the target, as many as its logits */
    int32_t d;                 /* the drafter's width */
    int32_t terminators[SPECRT_MAX_TERMINATORS], n_terminators;

    /* The sequence: tokens by position, of which the target's cache holds n_past, and the drafter's
     * sequence 0 the first n_read. */
    int32_t *tokens; /* [n_context + SPECRT_TREE_MAX_NODES] */
    int32_t n_past, n_read;
    int32_t leaves[SPECRT_TREE_MAX_NODES], n_leaves; /* nodes of the tree at the target */

    const specrt_llama_reader
        *reader;            /* NULL: the drafter is a model of its own, which reads tokens */
    specrt_llama_taps taps; /* what the reader reads of the target */
    struct specrt_llama_pairs *pairs;                /* of a reader of pairs */
    struct specrt_llama_block *block;                /* of a block drafter */
    bool is_mtp;                                     /* the drafter is MTP layers */
    const bool *reads_late, *is_plain, *by_position; /* as in specrt_llama_params */
    bool outputs_all; /* every token of the target is an output, for its state */

    /* Of a target that is recurrent in part, without snapshots of its state: a copy of it, and how many of
     * the last tokens are to be read once more after it. */
    bool replays;
    uint8_t *checkpoint; /* [checkpoint_room] bytes, of which n_checkpoint are in use */
    size_t n_checkpoint, checkpoint_room;
    int32_t n_owed;

    /* The drafter's last pass. */
    float *hidden; /* [n_batch, d] what its head multiplies */
    int64_t n_hidden;
    bool uses_head, reached_head;

    /* The target's last pass. */
    float *states; /* [n_batch, d_target] what its head multiplied; NULL: not kept */
    int64_t n_states;
    int32_t d_target;

    double relative_rms; /* the check at the start */
    specrt_llama_times times;
    char fault[256];
};

/* specrt_llama_fail() : keeps what went wrong for specrt_llama_fault(). @return 1, as callbacks do */
int specrt_llama_fail(specrt_llama *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* specrt_llama_check_pair() : models, vocabularies, and whether the head has their rows.
 * specrt_llama_check_branches() : whether the target takes the tree. specrt_llama_check_rollback() : whether
 * the target's context takes rejected tokens back. */
specrt_status specrt_llama_check_pair(specrt_llama *s, const struct llama_model *target,
                                      const struct llama_model *draft, specrt_error *err);
specrt_status specrt_llama_check_branches(const specrt_llama *s, const struct llama_model *target,
                                          specrt_error *err);
specrt_status specrt_llama_check_rollback(specrt_llama *s, const struct llama_model *target,
                                          specrt_error *err);

/* specrt_llama_sequence() : where the drafter keeps row `row` of a level: two sets take turns, since a row's
 * sequence is a copy of its parent's. */
int32_t specrt_llama_sequence(const specrt_llama *s, int32_t level, int32_t row);

void specrt_llama_add(struct llama_batch *b, int32_t token, int32_t pos, int32_t seq, bool output);

/* specrt_llama_remember() : copies the recurrent part of the target's state. specrt_llama_settle() :
 * restores it and reads what is owed, if anything is, before the target's next pass. @return 0, or 1 and
 * says why */
#ifdef SPECRT_LLAMA_STATES
int specrt_llama_remember(specrt_llama *s);
int specrt_llama_settle(specrt_llama *s);
#else
#define specrt_llama_remember(s) 0
#define specrt_llama_settle(s)   0
#endif

/* specrt_llama_run_draft() : the drafter's pass over to_draft, whose graph keeps n rows of result_norm.
 * specrt_llama_passed() : a pass of the drafter has ended with the code of `call` (a name); its time from
 * `began`, us, counts. specrt_llama_headless() : whether the pass kept from computing the LM head, where
 * that is asked.
 * @return 0, or 1 and says why */
int specrt_llama_run_draft(specrt_llama *s, int32_t n);
int specrt_llama_passed(specrt_llama *s, int64_t began, const char *call, int code);
int specrt_llama_headless(specrt_llama *s);

/* What a drafter reads of the target's passes. In the order of calls:
 *
 *     name              for each node, when the pair is opened; start
 *     a pass of the target    in llama.cpp's callback wants, then take, for each node; saw, at the end
 *     keep              rows of that pass wait, from position n_past on
 *     drop              the first n that wait were read
 *
 * keep and drop come before n_past grows, so that states of new positions are placed behind those that wait.
 * wants: whether the drafter reads a node. saw: whether all were there, of n rows; @return 0, or 1 and says
 * why. keep: of nodes [n]; NULL: the first n. start: @return whether there was memory. */
void specrt_llama_taps_name(specrt_llama_taps *taps, int k, const char *node);
void specrt_llama_taps_layer(specrt_llama_taps *taps, int k,
                             int32_t layer); /* whose input it reads */
bool specrt_llama_taps_start(specrt_llama *s);
void specrt_llama_taps_close(specrt_llama_taps *taps);
bool specrt_llama_taps_want(const specrt_llama *s, const struct ggml_tensor *t);
void specrt_llama_taps_take(specrt_llama *s, struct ggml_tensor *t);
int specrt_llama_taps_saw(specrt_llama *s, int32_t n);
void specrt_llama_taps_keep(specrt_llama *s, const int32_t *nodes, int32_t n);
void specrt_llama_taps_drop(specrt_llama *s, int32_t n);

/* specrt_llama_copy_rows() : copies a node and sets *n to its rows. @return whether it is f32 [n_batch at
 * most, d] */
bool specrt_llama_copy_rows(const specrt_llama *s, struct ggml_tensor *t, float *to, int32_t d,
                            int64_t *n);

/* A drafter that reads states of the target: pairs of a token and a state (EAGLE-3, MTP), or states alone,
 * before it drafts a block. Pairs are of token P + 1 and the state, or the feature made of states, of
 * position P (Li et al. 2025, arXiv 2503.01840, section 3.1). So a position waits for the token behind it,
 * and n_read counts pairs: the root's is read by the first pass of a draft, and once more by the next, unless
 * there was a commit between them. Of blocks n_read counts states. What returns an
 * int returns 0, or 1 and says why. In the order of calls:
 *
 *     opening           start; sample, twice: with the drafter's head and without
 *     a prompt's part   read(1); a pass of the target; taps_keep(NULL); read(1)
 *     a draft           for each level draft_input, whose memory the pass fills, then root or level; or block
 *     verification      a pass of the target
 *     commit            advance, if the drafter read the root; taps_keep(nodes); read, where too many wait
 *     a pass of the drafter   at_node, for each node, as llama.cpp's callback
 *
 *     a kept sequence   forget
 *
 * n_past is the position that the target reads next. taps_keep comes before it grows; read comes after. */
struct specrt_llama_reader {
    bool (*start)(specrt_llama *s); /* with both contexts. @return whether there was memory */
    void (*close)(specrt_llama *s);

    /* cb_eval of the drafter's context; its cells behind what was read; reads all that can be, where more
     * than `rest` wait. */
    bool (*at_node)(struct ggml_tensor *t, bool ask, void *user);
    void (*forget)(specrt_llama *s);
    int (*read)(specrt_llama *s, int32_t rest);

    /* Token by token: the first pass of a draft, and the next; f32 [rows, d] what the last one was fed. */
    int (*root)(specrt_llama *s, int32_t root);
    int (*level)(specrt_llama *s, int32_t level, const specrt_beam *beam);
    const float *(*draft_input)(const specrt_llama *s);
    void (*advance)(specrt_llama *s); /* the draft was committed: the root's pair stays read */

    /* As specrt_host.draft_block, in place of these four; NULL: it drafts token by token */
    int (*block)(specrt_llama *s, int32_t root, int32_t n, specrt_block *block);

    /* A pass over a state that is made up, for the check at the start. unbias: takes what the graph adds to
     * the head's products out of the logits [n_vocab] of that pass; NULL: it adds nothing. */
    int (*sample)(specrt_llama *s);
    void (*unbias)(const specrt_llama *s, float *logits);
};

/* What a reader of pairs is like; the nodes it reads are in s->taps. */
typedef struct specrt_llama_pairs_kind {
    int32_t d_pair;     /* width of what a token is paired with */
    const char *own;    /* node of the drafter's graph: its state for the next level */
    const char *hidden; /* what its head multiplies, at which a pass ends */
    bool encodes;       /* an encoder makes a feature of the states, its node fc_out */
    bool keeps_all; /* its graph has a row of `hidden` for every token, else for outputs alone */
    /* 1: a pair is at its token's position, and the first token's has a state of zeros; 0: it is at its
     * state's, and the first token has none */
    int32_t shift;
    /* Its passes read the target's cache and write none: nothing of the sequence is read ahead, and all
     * levels are at the root's position. */
    bool shares;
} specrt_llama_pairs_kind;

/* Where SPECRT_LLAMA_STATES is defined. The first makes the pair's reader; the others check the pair and make
 * theirs; the target's context follows. @return OK, NO_MEMORY, UNSUPPORTED or BAD_INPUT naming the key. */
specrt_status specrt_llama_pairs_open(specrt_llama *s, const specrt_llama_pairs_kind *kind,
                                      specrt_error *err);
specrt_status specrt_llama_eagle3_open(specrt_llama *s, const struct llama_model *target,
                                       const struct llama_model *draft, specrt_error *err);
specrt_status specrt_llama_mtp_open(specrt_llama *s, const struct llama_model *target,
                                    const struct llama_model *draft, specrt_error *err);
specrt_status specrt_llama_block_open(specrt_llama *s, const struct llama_model *target,
                                      const struct llama_model *draft, specrt_error *err);

/* specrt_llama_check_taps() : whether the drafter reads layers that the target's graph has rows of for all
 * tokens: inputs from layer 1 on. key : whose list they are, for the error */
specrt_status specrt_llama_check_taps(const specrt_llama_head *head,
                                      const struct llama_model *target, const char *key,
                                      specrt_error *err);

/* specrt_llama_block_limit() : tokens that the drafter drafts in one pass, of the tree's levels at most; 0:
 * one by one. specrt_llama_block_first() : the row of such a pass that proposes the first; else 0. */
int32_t specrt_llama_block_limit(const specrt_llama *s);
int64_t specrt_llama_block_first(const specrt_llama *s);

#endif
