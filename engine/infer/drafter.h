/* drafter.h : the inside of a drafter, for engine/ only. */
#ifndef INFER_DRAFTER_H
#define INFER_DRAFTER_H

#include "engine/infer/engine_impl.h"
#include "engine/infer/weights.h"

struct engine_drafter {
    engine_model *own; /* an independent drafter; NULL: a head, and then */
    engine_model body; /* its layers; the rest is the target's, but for what the file brings */
    const engine_model *target;
    engine_weights file;
    char prefix[16]; /* of an EAGLE head's layer's tensors: "layers.0", or EAGLE-3's "midlayer" */
    bool eagle3, mtp;
    engine_block
        block; /* a block drafter; size 0: another kind. Rows of what it points to are below */
    int32_t n_taps, taps[ENGINE_MAX_TAPS]; /* inputs of the target's layers that it reads */
    bool raw_state;   /* MTP: the next step reads what the final norm reads, else what it gives */
    engine_matrix fc; /* EAGLE-1/2, MTP's eh_proj: [d, 2d]; EAGLE-3 and blocks [d, n_taps d] */
    const float *embedding_norm, *feature_norm,
        *final_norm; /* EAGLE-3 and MTP, [d]; blocks: no first */
    int32_t *d2t;    /* owned; NULL: the head is the whole vocabulary's */
};

enum { DRAFTER_NAME = 96 };
typedef struct mtp_names mtp_names;

/* What a load passes around. */
typedef struct drafter_loader {
    engine_drafter *d;
    const char *path;
    char layer[40];       /* what names of the layer's tensors begin with */
    char module[32];      /* the same of an MTP module's other tensors, "blk.61" */
    int32_t index;        /* of its layer in the file */
    const mtp_names *mtp; /* the rest of their names */
    specrt_error *err;
} drafter_loader;

/* Where config.json has the shape of layers: in an object of its own, as speculators have it, or in the
 * whole; borrowed. NULL: there is none. */
struct json_object *drafter_shape(const drafter_loader *l);

/* config.json's shape into d->body.config; what it does not say is as in the target. */
specrt_status drafter_read_config(drafter_loader *l);

/* A layer of the target's kind, with all that its family's may have, named by l->layer. */
specrt_status drafter_load_layer(drafter_loader *l, engine_layer *w);

/* The head `name`, of listed tokens or of all; the target's where the file has none. */
specrt_status drafter_load_head(drafter_loader *l, const char *name);

/* engine_mtp_is_drafter() : whether the file, open, has an MTP module for the target; fills module, index
 * and mtp. */
bool engine_mtp_is_drafter(drafter_loader *l);

/* engine_mtp_load() : all but the layer, whose name it sets; the configuration is read. */
specrt_status engine_mtp_load(drafter_loader *l);

/* engine_block_is_drafter() : whether the file, open, is a block drafter, by the names that it has for
 * itself. */
bool engine_block_is_drafter(const drafter_loader *l);

/* engine_block_load() : all of it. */
specrt_status engine_block_load(drafter_loader *l);

#endif
