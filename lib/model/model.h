/* model.h : the one thing tools want of a model file, whatever its kind: named matrices of rows. */
#ifndef MODEL_H
#define MODEL_H

#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "specrt_tools.h"

typedef struct model {
    char *path; /* of the file opened; in a folder, the one chosen */
    gguf *g;    /* one of the two */
    st *s;
    struct json_object *config; /* config.json beside safetensors, owned; NULL: none */
    int tied;                   /* config.json's tie_word_embeddings: 0, 1; -1: not said */
    float *bias;                /* the head's, once asked for */
} model;

/* sl_model_open() : GGUF or safetensors by content; a folder means the model inside it. */
specrt_status sl_model_open(const char *path, model *out, specrt_error *err);
void sl_model_close(model *m);

/* sl_model_decodes() : whether specrt_row_decode() reads rows of a type; whole numbers have rows, too. */
bool sl_model_decodes(specrt_dtype dtype);

/* sl_model_check_trace() : that a trace was recorded with this model's tokenizer, where it is a GGUF with
 * one.
 * @return TRACE_MISMATCH naming both files; what specrt_trace_open() gives */
specrt_status sl_model_check_trace(const model *m, const char *trace, specrt_error *err);

/* sl_model_blame() : put the model's path before the message of what failed over its weights.
 * @return status */
specrt_status sl_model_blame(const model *m, specrt_status status, specrt_error *err);

/* sl_model_matrix() : a 2-D tensor as rows, borrowed from the model.
 * @return OK; BAD_ARG when there is none of that name, naming those there are; BAD_INPUT: no matrix, or an
 * empty one; UNSUPPORTED type, naming those that are. */
specrt_status sl_model_matrix(const model *m, const char *name, specrt_head_desc *out,
                              specrt_error *err);

/* sl_model_head() : the LM head: `tensor` if given, else output.weight / lm_head.weight, else the tied
 * embedding. Its bias is owned by the model and lives until the next call. *name (may be NULL) is
 * what was taken, static or `tensor` itself. */
specrt_status sl_model_head(model *m, const char *tensor, specrt_head_desc *out, const char **name,
                            specrt_error *err);

/* sl_model_embedding() : the token embedding: `tensor` if given, else token_embd.weight or
 * model.embed_tokens.weight; borrowed. */
specrt_status sl_model_embedding(const model *m, const char *tensor, specrt_head_desc *out,
                                 specrt_error *err);

/* sl_model_d2t() : the target ids of a draft head's rows, distinct and below n_vocab, from its tensor d2t. In
 * safetensors d2t holds offsets (id = row + d2t[row], EAGLE-3), in a GGUF ids (llama.cpp). *ids owned; NULL:
 * the model has no such tensor.
 * @return OK, NO_MEMORY, BAD_INPUT. */
specrt_status sl_model_d2t(const model *m, int64_t n_rows, int64_t n_vocab, int32_t **ids,
                           specrt_error *err);

/* sl_model_n_params() : elements of all tensors, a tied embedding counted once. */
uint64_t sl_model_n_params(const model *m);

#endif
