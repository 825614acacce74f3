/* head_share.c : bytes of tensors, by what a pass does with them. */
#include "model/head_share.h"

#include <math.h>
#include <string.h>
#include "base/error.h"

/* What becomes of a tensor in a pass over one token. */
typedef enum role { ROLE_LAYER, ROLE_HEAD, ROLE_LOOKUP, ROLE_EXPERT } role;

/* Parts of names, GGUF's and Hugging Face's; the first that occurs decides. */
static const struct {
    const char *part;
    role role;
} roles[] = {{"_exps.", ROLE_EXPERT},
             {".experts.", ROLE_EXPERT},
             {"shared_head.head", ROLE_HEAD},
             {"shared_head_head", ROLE_HEAD},
             {"lm_head", ROLE_HEAD},
             {"markov_w2", ROLE_HEAD},
             {"markov_w1", ROLE_LOOKUP},
             {"selector_predecessor", ROLE_LOOKUP},
             {"selector_successor", ROLE_LOOKUP},
             {"codebook", ROLE_LOOKUP},
             {"embed_tokens", ROLE_LOOKUP},
             {"token_embd", ROLE_LOOKUP},
             {"vision", ROLE_LOOKUP},
             {"visual.", ROLE_LOOKUP},
             {"d2t", ROLE_LOOKUP},
             {"t2d", ROLE_LOOKUP}};

static role role_of(const char *name) {
    if (strcmp(name, "output.weight") == 0) return ROLE_HEAD;
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (strstr(name, roles[i].part)) return roles[i].role;
    return ROLE_LAYER;
}

typedef struct sizes {
    double bytes[ROLE_EXPERT + 1];
} sizes;

/* Of the tensors whose names begin so. */
static sizes add_up(const model *m, const char *prefix) {
    sizes sum = {{0}};
    int64_t n;
    const gguf_tensor *g = m->g ? sl_gguf_tensors(m->g, &n) : NULL;
    const st_tensor *s = m->s ? sl_st_tensors(m->s, &n) : NULL;
    for (int64_t i = 0; (g || s) && i < n; i++) {
        const char *name = g ? g[i].name : s[i].name;
        if (strncmp(name, prefix, strlen(prefix)) == 0)
            sum.bytes[role_of(name)] += (double)(g ? g[i].bytes : s[i].bytes);
    }
    return sum;
}

/* The head that scores a model's states, or its tied embedding. */
static specrt_status head_bytes(model *m, double *out, specrt_error *err) {
    specrt_head_desc head;
    TRY(sl_model_head(m, NULL, &head, NULL, err));
    *out = (double)specrt_row_bytes(head.dtype, head.n_cols) * (double)head.n_rows;
    return SPECRT_STATUS_OK;
}

/* All of a model's layers; its MTP layers are passes of their own. */
static specrt_status read_target(model *m, head_share *out, specrt_error *err) {
    mtp_tail tail;
    char prefix[MTP_NAME];
    double head;
    TRY(head_bytes(m, &head, err));
    TRY(sl_mtp_tail(m, &tail, err));
    sizes all = add_up(m, "");
    for (int32_t i = 0; i < tail.n_layers; i++) {
        sl_mtp_tail_prefix(&tail, m->g != NULL, i, prefix);
        all.bytes[ROLE_LAYER] -= add_up(m, prefix).bytes[ROLE_LAYER];
    }
    if (all.bytes[ROLE_EXPERT] == 0) out->target = all.bytes[ROLE_LAYER] + head;
    return SPECRT_STATUS_OK;
}

/* A drafter without a head scores by the target's. */
static specrt_status read_drafter(model *m, model *target, const checkpoint_id *id, head_share *out,
                                  specrt_error *err) {
    char prefix[MTP_NAME] = "";
    if (id->kind == CHECKPOINT_MTP && id->tail.is_whole)
        sl_mtp_tail_prefix(&id->tail, m->g != NULL, 0, prefix);
    sizes own = add_up(m, prefix);
    out->layers = own.bytes[ROLE_LAYER];
    out->head = own.bytes[ROLE_HEAD];
    if (own.bytes[ROLE_EXPERT] > 0) out->layers = NAN;
    if (out->head > 0) return SPECRT_STATUS_OK;
    bool scores = id->kind == CHECKPOINT_MODEL || id->kind == CHECKPOINT_MTP;
    return head_bytes(scores || !target->path ? m : target, &out->head, err);
}

static specrt_status read_pair(model *target, model *drafter, const checkpoint_id *id,
                               head_share *out, specrt_error *err) {
    if (target->path) TRY(read_target(target, out, err));
    return read_drafter(drafter, target, id, out, err);
}

specrt_status sl_head_share(const char *target, const char *drafter, const checkpoint_id *id,
                            int64_t n_drafts, head_share *out, specrt_error *err) {
    specrt_error none;
    model t, d;
    *out = (head_share){0};
    TRY(sl_model_open(drafter, &d, err));
    if (sl_model_open(target, &t, &none) != SPECRT_STATUS_OK) t = (model){0};
    specrt_status status = read_pair(&t, &d, id, out, err);
    double passes = id->kind == CHECKPOINT_BLOCK ? 1 : (double)n_drafts;
    out->draft = out->head / (out->layers + out->head);
    out->cycle = out->target > 0
                     ? passes * out->head / (out->target + passes * (out->layers + out->head))
                     : NAN;
    sl_model_close(&d);
    sl_model_close(&t);
    return status;
}
