/* checkpoint_kind.c : what a checkpoint is, by the names that it has for itself. Engines choose their code by
 * these names; tensors only tell apart what plain models' names leave open, and no kind follows from one
 * tensor: fc.weight is in EAGLE, DFlash and others, d2t in any drafter with a cut head. */
#include "model/checkpoint.h"

#include <fnmatch.h>
#include <string.h>
#include "base/error.h"
#include "model/ordered_head.h"

static const char MODEL[] = "a model of its own", EAGLE[] = "an EAGLE-1/2 drafter",
                  EAGLE3[] = "an EAGLE-3 drafter", MTP[] = "an MTP drafter",
                  DFLASH[] = "a DFlash drafter", DFLASH2[] = "a DFlash 2 drafter",
                  DSPARK[] = "a DSpark drafter", WITH_MTP[] = "a model with MTP layers",
                  GEMMA4[] = "a drafter of Gemma 4";

typedef struct known {
    const char *pattern; /* of fnmatch(); the first that fits counts */
    checkpoint_kind kind;
    const char *words; /* NULL: an algorithm that is not known here */
} known;

/* Classes of `architectures` carry the algorithm's name before or behind the model's. */
static const known classes[] = {
    {"*DSpark*", CHECKPOINT_BLOCK, DSPARK},
    {"*DFlash2*", CHECKPOINT_BLOCK, DFLASH2},
    {"*DFlash*", CHECKPOINT_BLOCK, DFLASH},
    {"Eagle3*", CHECKPOINT_EAGLE3, EAGLE3},
    {"EAGLE3*", CHECKPOINT_EAGLE3, EAGLE3},
    {"*ForCausalLMEagle3", CHECKPOINT_EAGLE3, EAGLE3},
    {"EagleDeepSeekMTPModel", CHECKPOINT_EAGLE, EAGLE},
    {"Eagle*ForCausalLM", CHECKPOINT_EAGLE, EAGLE},
    {"*ForCausalLMEagle", CHECKPOINT_EAGLE, EAGLE},
    {"EagleModel", CHECKPOINT_EAGLE, EAGLE},
    {"EagleSpeculator", CHECKPOINT_EAGLE, EAGLE},
    {"EagleDraftModel", CHECKPOINT_EAGLE, EAGLE},
    {"*MTP", CHECKPOINT_MTP, MTP},
    {"*MTPModel", CHECKPOINT_MTP, MTP},
    {"*ForCausalLMNextN", CHECKPOINT_MTP, MTP},
    {"MTPDraftModel", CHECKPOINT_MTP, MTP},
    {"*[Ee][Aa][Gg][Ll][Ee]*", CHECKPOINT_MODEL, NULL}, /* P-EAGLE and whatever comes */
    {"*Medusa*", CHECKPOINT_MODEL, NULL},
    {"*ForCausalLM", CHECKPOINT_MODEL, MODEL},
    {"*ForConditionalGeneration", CHECKPOINT_MODEL, MODEL},
    {"*LMHeadModel", CHECKPOINT_MODEL, MODEL},
    {NULL, CHECKPOINT_MODEL, NULL},
};

static const known speculators[] = {
    {"eagle", CHECKPOINT_EAGLE, EAGLE},     {"eagle3", CHECKPOINT_EAGLE3, EAGLE3},
    {"mtp", CHECKPOINT_MTP, MTP},           {"dflash", CHECKPOINT_BLOCK, DFLASH},
    {"dflash2", CHECKPOINT_BLOCK, DFLASH2}, {"dspark", CHECKPOINT_BLOCK, DSPARK},
    {NULL, CHECKPOINT_MODEL, NULL},
};

/* Most drafters have the model_type of the model whose layers they use, which says nothing. */
static const known types[] = {
    {"eagle", CHECKPOINT_EAGLE, EAGLE},
    {"eagle3", CHECKPOINT_EAGLE3, EAGLE3},
    {"*_mtp", CHECKPOINT_MTP, MTP},
    {"dflash", CHECKPOINT_BLOCK, DFLASH},
    {"dflash2", CHECKPOINT_BLOCK, DFLASH2},
    {"dspark", CHECKPOINT_BLOCK, DSPARK},
    {"gemma4*_assistant", CHECKPOINT_MODEL, GEMMA4},
    {"*", CHECKPOINT_MODEL, MODEL},
};

static const struct {
    const char *key;
    const known *names;
} sources[] = {
    {"speculators_model_type", speculators},
    {"architectures", classes},
    {"model_type", types},
};

/* The text of a key, or of the first of its list; borrowed, NULL: none. */
static const char *name_of(json_object *config, const char *key) {
    json_object *value = NULL;
    json_object_object_get_ex(config, key, &value);
    if (json_object_is_type(value, json_type_array)) value = json_object_array_get_idx(value, 0);
    return json_object_is_type(value, json_type_string) ? json_object_get_string(value) : NULL;
}

/* `beside`: what is there, too, or "". */
static specrt_status refuse(const model *m, const char *key, const char *name, const char *beside,
                            const char *fix, specrt_error *err) {
    const char *slash = strrchr(m->path, '/'), *quote = name ? "\"" : "";
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                            "%.*sconfig.json: %s: expected the name of a model or of an EAGLE, "
                            "EAGLE-3, MTP, DFlash or DSpark drafter, found %s%.60s%s%s; %s",
                            slash ? (int)(slash + 1 - m->path) : 0, m->path, key, quote,
                            name ? name : "none", quote, beside, fix);
}

/* A drafter's name counts before a plain model's, and a block drafter's before any. */
static specrt_status read_names(const model *m, checkpoint_id *out, specrt_error *err) {
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
        const char *name = name_of(m->config, sources[i].key);
        const known *k = sources[i].names;
        if (!name) continue;
        while (k->pattern && fnmatch(k->pattern, name, 0) != 0) k++;
        if (!k->words)
            return refuse(m, sources[i].key, name, "", "correct it if it is one of these", err);
        bool first = !out->words || out->kind == CHECKPOINT_MODEL;
        if (first || k->kind == CHECKPOINT_BLOCK) out->kind = k->kind, out->words = k->words;
    }
    return SPECRT_STATUS_OK;
}

/* ---- a plain model's name --------------------------------------------------------------------- */

static bool is_matrix(const st *s, const char *name, int64_t *n_rows, int64_t *n_cols) {
    const st_tensor *t = sl_st_find(s, name);
    if (!t || t->n_dims != 2) return false;
    *n_rows = t->shape[0];
    *n_cols = t->shape[1];
    return true;
}

/* fc over states of the target, and a layer over pairs that norms its state. */
static bool is_eagle3(const model *m) {
    const char *layer = sl_checkpoint_eagle3_layer(m);
    char q[64], norm[64];
    int64_t d, n_cols, n_rows, pair;
    snprintf(q, sizeof q, "%s.self_attn.q_proj.weight", layer ? layer : "");
    snprintf(norm, sizeof norm, "%s.hidden_norm.weight", layer ? layer : "");
    return layer && sl_st_find(m->s, norm) && is_matrix(m->s, "fc.weight", &d, &n_cols) &&
           is_matrix(m->s, q, &n_rows, &pair) && pair == 2 * d;
}

/* fc over pairs, and a layer as the target's; the head is the target's. */
static bool is_eagle(const st *s) {
    int64_t d, pair, n_rows, n_cols;
    return is_matrix(s, "fc.weight", &d, &pair) && pair == 2 * d &&
           is_matrix(s, "layers.0.self_attn.q_proj.weight", &n_rows, &n_cols) && n_cols == d &&
           !sl_st_find(s, "lm_head.weight") && !sl_st_find(s, "d2t");
}

/* EAGLE's own drafters name their target's class, and MTP layers are part of their model. */
static specrt_status refine(const model *m, checkpoint_id *out, specrt_error *err) {
    static const char *const parts[] = {"fc.weight", "d2t", "t2d", "hidden_norm.weight"};
    const char *part = NULL;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0] && !part; i++)
        if (sl_st_find(m->s, parts[i])) part = parts[i];
    bool named = out->words != NULL;
    *out = (checkpoint_id){.kind = CHECKPOINT_MODEL, .words = MODEL, .tail = out->tail};
    if (out->tail.n_layers > 0)
        out->kind = CHECKPOINT_MTP, out->words = out->tail.is_whole ? WITH_MTP : MTP;
    else if (is_eagle3(m))
        out->kind = CHECKPOINT_EAGLE3, out->words = EAGLE3;
    else if (is_eagle(m->s))
        out->kind = CHECKPOINT_EAGLE, out->words = EAGLE;
    else if (!named || part)
        return refuse(m, "architectures", name_of(m->config, "architectures"),
                      part ? " beside tensors of a drafter" : "",
                      "name the drafter's own class, such as LlamaForCausalLMEagle3", err);
    return SPECRT_STATUS_OK;
}

static void note_gemma4(const model *m, checkpoint_id *out) {
    ordered_head head;
    sl_ordered_head_read(m, &head);
    out->is_gemma4 = true;
    out->is_ordered = sl_ordered_head_is(&head);
}

static specrt_status identify_st(const model *m, checkpoint_id *out, specrt_error *err) {
    TRY(read_names(m, out, err));
    if (out->words == GEMMA4) return note_gemma4(m, out), SPECRT_STATUS_OK;
    if (!out->words || out->kind == CHECKPOINT_MODEL) return refine(m, out, err);
    if (out->kind == CHECKPOINT_MTP && out->tail.n_layers == 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: expected MTP layers (tensors mtp.* or "
                                "model.layers.N.eh_proj.weight), as config.json says, found none",
                                m->path);
    return SPECRT_STATUS_OK;
}

/* ---- GGUF ------------------------------------------------------------------------------------- */

/* llama.cpp has one architecture for block drafters. */
static void identify_block(const gguf *g, checkpoint_id *out) {
    out->kind = CHECKPOINT_BLOCK;
    sl_block_drafter_gguf(g, &out->block);
    out->headless = out->block.headless;
    out->words = out->block.markov ? DSPARK : out->block.selector ? DFLASH2 : DFLASH;
}

specrt_status sl_checkpoint_identify_gguf(const gguf *g, const char *path, checkpoint_id *out,
                                          specrt_error *err) {
    static const char key[] = "general.architecture";
    gguf_string arch = {"", 0};
    mtp_tail tail;
    TRY(sl_mtp_tail_gguf(g, path, &tail, err));
    bool named = sl_gguf_get_string(g, key, &arch);
    const char *part = sl_gguf_find_tensor(g, "d2t")         ? "d2t"
                       : sl_gguf_find_tensor(g, "fc.weight") ? "fc.weight"
                                                             : NULL;
    *out = (checkpoint_id){.kind = CHECKPOINT_MODEL, .words = MODEL, .is_gguf = true};
    if (arch.n == 6 && memcmp(arch.s, "eagle3", 6) == 0)
        out->kind = CHECKPOINT_EAGLE3, out->words = EAGLE3,
        out->headless = !sl_gguf_find_tensor(g, "output.weight");
    else if (arch.n == 6 && memcmp(arch.s, "dflash", 6) == 0)
        identify_block(g, out);
    else if (tail.n_layers > 0)
        out->kind = CHECKPOINT_MTP, out->words = tail.is_whole ? WITH_MTP : MTP, out->tail = tail;
    else if (!named || part)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: %s: expected eagle3 or dflash%s%s%s, found %.*s; convert the "
                                "drafter with llama.cpp's convert_hf_to_gguf.py",
                                path, key, part ? " beside tensor \"" : ", or a model's",
                                part ? part : "", part ? "\"" : "",
                                named ? (int)(arch.n < 60 ? arch.n : 60) : 4,
                                named ? arch.s : "none");
    return SPECRT_STATUS_OK;
}

/* ---- any -------------------------------------------------------------------------------------- */

specrt_status sl_checkpoint_identify(const model *m, checkpoint_id *out, specrt_error *err) {
    *out = (checkpoint_id){0};
    if (m->g) return sl_checkpoint_identify_gguf(m->g, m->path, out, err);
    TRY(sl_mtp_tail(m, &out->tail, err));
    TRY(identify_st(m, out, err));
    if (out->kind != CHECKPOINT_MTP) out->tail = (mtp_tail){0};
    if (out->kind == CHECKPOINT_BLOCK) sl_block_drafter_st(m->s, m->config, &out->block);
    out->headless =
        out->kind == CHECKPOINT_EAGLE3 ? !sl_st_find_prefix(m->s, "lm_head.") : out->block.headless;
    return SPECRT_STATUS_OK;
}

specrt_status sl_checkpoint_identify_path(const char *path, checkpoint_id *out, specrt_error *err) {
    model m;
    TRY(sl_model_open(path, &m, err));
    specrt_status status = sl_checkpoint_identify(&m, out, err);
    sl_model_close(&m);
    return status;
}

specrt_status sl_checkpoint_refuse_block(const checkpoint_id *id, const char *path,
                                         specrt_error *err) {
    if (!id->block.no_cut) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                            "%s: is %s: %s; draft with the whole file", path, id->words,
                            id->block.no_cut);
}
