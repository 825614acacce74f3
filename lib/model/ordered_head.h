/* ordered_head.h : the ordered head of Gemma 4's drafters for E2B and E4B (Google), which vLLM, SGLang and
 * transformers load: C clusters of V / C tokens each, of which a pass scores the best K by its state's
 * products with their centroids. docs/integrations/ordered-heads.md says what each engine does. */
#ifndef MODEL_ORDERED_HEAD_H
#define MODEL_ORDERED_HEAD_H

#include "model/model.h"

#define ORDERED_CENTROIDS "masked_embedding.centroids.weight" /* bf16 [C, d] */
#define ORDERED_TOKENS                                                                             \
    "masked_embedding.token_ordering" /* i64 [V]: place p is of cluster p / (V / C) */

/* What a folder of safetensors says; nothing of it is checked. */
typedef struct ordered_head {
    const st_tensor *centroids, *ordering; /* borrowed; NULL: missing */
    const st_tensor *dense;   /* the embedding or lm_head.weight that is scored; NULL: missing */
    bool has_head;            /* that is lm_head.weight, and no copy of the embedding */
    bool is_set;              /* use_ordered_embeddings, at the top of config.json */
    bool is_inside;           /* one of its keys stands in text_config, where no engine looks */
    int64_t n_clusters, topk; /* num_centroids and centroid_intermediate_top_k, or their defaults */
    int64_t n_vocab, width;   /* vocab_size, hidden_size; 0: not said */
    int tied, tied_inside;    /* tie_word_embeddings at the top and in text_config; -1: not said */
} ordered_head;

/* sl_ordered_head_read() : of a model in safetensors. */
void sl_ordered_head_read(const model *m, ordered_head *out);

/* sl_ordered_head_is() : whether the flag or one of the tensors is there. */
bool sl_ordered_head_is(const ordered_head *o);

/* sl_ordered_head_id() : the token at a place, of an ordering that is I64 with so many. */
int64_t sl_ordered_head_id(const ordered_head *o, int64_t place);

/* sl_ordered_head_examine() : calls found() for each fault; all words are static but `what`.
 *   code, engines : as of `specrt-bundle check`; engines NULL: all */
typedef void (*ordered_head_found)(void *user, const char *code, const char *engines,
                                   const char *fix, const char *what);
void sl_ordered_head_examine(const ordered_head *o, ordered_head_found found, void *user);

/* sl_ordered_head_check() : the same as an error. @return BAD_INPUT with the first fault. */
specrt_status sl_ordered_head_check(const ordered_head *o, const char *path, specrt_error *err);

/* sl_ordered_head_batch() : sequences of a batch from which on a pass reads more than with the dense head:
 * engines read K V / C rows of each sequence, write a copy and read that; the dense head is read once. */
double sl_ordered_head_batch(int64_t n_vocab, int64_t n_clusters, int64_t topk);

#endif
