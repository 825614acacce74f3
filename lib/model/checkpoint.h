/* checkpoint.h : a drafter as inference engines load it: safetensors with config.json beside them. */
#ifndef MODEL_CHECKPOINT_H
#define MODEL_CHECKPOINT_H

#include <json-c/json.h>
#include "base/io.h"
#include "model/block_drafter.h"
#include "model/model.h"
#include "model/mtp_tail.h"
#include "model/token_map.h"

typedef enum checkpoint_kind {
    CHECKPOINT_MODEL,  /* a model of its own */
    CHECKPOINT_EAGLE,  /* EAGLE-1/2: a layer over pairs; scores by the target's head */
    CHECKPOINT_EAGLE3, /* EAGLE-3: a head of its own, whose rows d2t gives to tokens */
    CHECKPOINT_MTP,    /* multi-token-prediction layers, with the model that they are of or alone */
    CHECKPOINT_BLOCK   /* DFlash, DFlash 2, DSpark: a block of tokens in one pass */
} checkpoint_kind;

/* What a checkpoint is. */
typedef struct checkpoint_id {
    checkpoint_kind kind;
    const char *words; /* "a DFlash drafter", static */
    mtp_tail tail; /* of kind MTP; else zeros. is_whole: the model's own layers are there, too */
    block_drafter block; /* of kind BLOCK; else zeros */
    bool headless;   /* EAGLE-3 or a block drafter without an LM head: scored with the target's */
    bool is_gemma4;  /* of kind MODEL: a drafter of Gemma 4, which engines run as MTP layers */
    bool is_ordered; /* of Gemma 4: its head, ordered_head.h */
    bool is_gguf;
} checkpoint_id;

/* sl_checkpoint_identify() : the kind of an open model, by speculators_model_type, architectures and
 * model_type of config.json, or general.architecture. Where config.json names a plain model, or there is
 * none, the whole set of a drafter's tensors decides between MODEL, EAGLE, EAGLE3 and MTP.
 * @return BAD_INPUT naming the field for a name that is not known, and for a plain one beside some of a
 * drafter's tensors. */
specrt_status sl_checkpoint_identify(const model *m, checkpoint_id *out, specrt_error *err);

/* sl_checkpoint_identify_gguf() : the same of an open GGUF; `path` is for messages. */
specrt_status sl_checkpoint_identify_gguf(const gguf *g, const char *path, checkpoint_id *out,
                                          specrt_error *err);

/* sl_checkpoint_identify_path() : the same of a folder or file. @return as sl_model_open(), too */
specrt_status sl_checkpoint_identify_path(const char *path, checkpoint_id *out, specrt_error *err);

/* sl_checkpoint_refuse_block() : UNSUPPORTED with the reason for a block drafter that no engine takes with a
 * cut head; else OK. */
specrt_status sl_checkpoint_refuse_block(const checkpoint_id *id, const char *path,
                                         specrt_error *err);

typedef struct checkpoint {
    model m;             /* its safetensors */
    char *folder;        /* of config.json, with the last slash; owned */
    file_view text;      /* config.json */
    json_object *config; /* the same, an object */
    json_object
        *layer; /* borrowed: where its dimensions stand, which may be an object of its own */
    checkpoint_kind kind;
    const char *words; /* as of checkpoint_id */
    mtp_tail tail;
    block_drafter block;
    const st_tensor
        *head; /* [n_rows, width] lm_head.weight, or the first MTP layer's own; NULL: none, or a
                            * copy of the embedding */
    const st_tensor *d2t, *t2d;
    int64_t n_rows;  /* of the head; 0: none */
    int64_t n_vocab; /* of the target: vocab_size, else the length of t2d; 0: not said */
} checkpoint;

/* sl_checkpoint_open() : a folder, or the safetensors file of one.
 *   needs_config : a folder without config.json is refused; else its object is empty then
 * @return IO, NO_MEMORY; BAD_INPUT naming file and field: no safetensors, a config.json that is none, a head
 * or d2t of another shape than a matrix and a list. */
specrt_status sl_checkpoint_open(const char *path, bool needs_config, checkpoint *out,
                                 specrt_error *err);
void sl_checkpoint_close(checkpoint *c);

/* sl_checkpoint_map() : the target's ids by row of the head. map->n is 0 where the checkpoint has no d2t:
 * row i is token i then.
 *   values : how d2t is to be read; engines take offsets, AUTO finds ids, too
 * @return as sl_token_map_read() */
specrt_status sl_checkpoint_map(const checkpoint *c, token_map_values values, token_map *out,
                                specrt_error *err);

/* sl_checkpoint_value(), sl_checkpoint_number(), sl_checkpoint_is_set() : a key of config.json; NULL, -1 and
 * false where it is not there. A value is borrowed. */
json_object *sl_checkpoint_value(const checkpoint *c, const char *key);
int64_t sl_checkpoint_number(const checkpoint *c, const char *key);
bool sl_checkpoint_is_set(const checkpoint *c, const char *key);

/* sl_checkpoint_eagle3_layer() : what names of the layer's tensors begin with, "midlayer" or "layers.0",
 * where safetensors are an EAGLE-3 head's, whose layer is named so or norms the feature; else NULL. */
const char *sl_checkpoint_eagle3_layer(const model *m);

/* sl_checkpoint_has() : whether a tensor's name ends so: "self_attn.q_proj.bias". */
bool sl_checkpoint_has(const checkpoint *c, const char *ending);

/* sl_checkpoint_read_json() : a file that holds an object, owned. @return IO, BAD_INPUT. */
specrt_status sl_checkpoint_read_json(const char *path, json_object **out, specrt_error *err);

#endif
