/* mtp_tail.h : the multi-token-prediction layers that a model brings (MTP, "NextN"), whole or as a file of
 * their own. */
#ifndef MODEL_MTP_TAIL_H
#define MODEL_MTP_TAIL_H

#include "model/model.h"

enum { MTP_MOST_LAYERS = 8 }; /* of a model: published ones have 1 to 3 */

typedef struct mtp_tail {
    int32_t n_layers; /* 0: the model has none */
    int32_t first;    /* the number of the first one; -1: its names have none ("mtp.") */
    bool own_head;    /* the first one has a head of its own; else it scores by the model's */
    bool tied;        /* that one is the embedding, of which there is no second copy */
    bool is_whole;    /* the model's own layers are there, too */
} mtp_tail;

/* sl_mtp_tail() : a GGUF says it by nextn_predict_layers, safetensors by names of tensors:
 * model.layers.N.eh_proj (DeepSeek, GLM) or mtp.fc (Qwen).
 * @return BAD_INPUT for a nextn_predict_layers that does not fit block_count. */
specrt_status sl_mtp_tail(const model *m, mtp_tail *out, specrt_error *err);

/* sl_mtp_tail_gguf() : the same of an open GGUF; `path` is for messages. */
specrt_status sl_mtp_tail_gguf(const gguf *g, const char *path, mtp_tail *out, specrt_error *err);

enum { MTP_NAME = 64 };

/* sl_mtp_tail_prefix() : what names of layer i's tensors begin with: "mtp.", "model.layers.61.". */
void sl_mtp_tail_prefix(const mtp_tail *t, bool is_gguf, int32_t i, char out[MTP_NAME]);

/* sl_mtp_tail_head() : the name of its own head, which need not be there. */
void sl_mtp_tail_head(const mtp_tail *t, bool is_gguf, int32_t i, char out[MTP_NAME]);

#endif
