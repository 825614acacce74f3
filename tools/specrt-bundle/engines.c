/* engines.c : see engines.h; docs/TOKEN_MAPS.md says which sources this was read from. */
#include "engines.h"

#include <string.h>
#include "base/error.h"
#include "model/checkpoint.h"
#include "recut.h"

/* Engines that gather rows of the target's head by a list. */
static const struct list_engine {
    const char *name, *format;
    bool any; /* drafter; else MTP layers alone */
} lists[] = {
    {"sglang", "sglang-pt", false}, {"vllm", "sglang-pt", false}, {"exllamav3", "exllamav3", false},
    {"mtplx", "mtplx", false},      {"text", "text", true},
};
enum { N_LISTS = sizeof lists / sizeof lists[0] };

static const struct list_engine *find_list(const char *name) {
    for (int i = 0; i < N_LISTS; i++)
        if (strcmp(lists[i].name, name) == 0) return &lists[i];
    return NULL;
}

const char *engine_names(void) {
    return "vllm, sglang, specforge, speculators, llama.cpp, specrt, gemma4, exllamav3, mtplx, "
           "text";
}

bool engine_is_known(const char *name) {
    return recut_is_engine(name) || find_list(name) || engine_is_ordered(name);
}

bool engine_is_ordered(const char *name) {
    return name && strcmp(name, "gemma4") == 0;
}

/* What SGLang does to a list without a word: it scores by the whole tied embedding and takes the row's
 * number through the list; of several layers it scores each by the whole head. */
static specrt_status check_sglang(const char *drafter, const mtp_tail *tail, specrt_error *err) {
    if (tail->tied)
        return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                                "%s: its head is tied to the embedding: SGLang scores by the whole "
                                "of it and takes wrong tokens from a list; start it without one",
                                drafter);
    if (tail->n_layers > 1)
        return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                                "%s: has %d MTP layers: SGLang scores each by the whole head and "
                                "leaves a list out",
                                drafter, (int)tail->n_layers);
    return SPECRT_STATUS_OK;
}

/* Rows of the target's head, which may be more than there are tokens. */
static int32_t head_rows(model *m) {
    specrt_head_desc head;
    if (m->g ? sl_gguf_find_tensor(m->g, "d2t") != NULL : sl_st_find(m->s, "d2t") != NULL) return 0;
    if (sl_model_head(m, NULL, &head, NULL, NULL) != SPECRT_STATUS_OK) return 0;
    return head.n_rows <= SPECRT_MAX_VOCAB ? (int32_t)head.n_rows : 0;
}

static specrt_status choose(const char *engine, model *m, bool has_target, engine_choice *out,
                            specrt_error *err) {
    const struct list_engine *list = find_list(engine);
    checkpoint_id id;
    TRY(sl_checkpoint_identify(m, &id, err));
    TRY(sl_checkpoint_refuse_block(&id, m->path, err));
    bool converts = id.kind == CHECKPOINT_EAGLE3 && has_target;
    if ((m->g || converts) && strcmp(engine, "llama.cpp") == 0) {
        out->format = "gguf";
        return SPECRT_STATUS_OK;
    }
    if (!list || (id.tail.n_layers == 0 && recut_is_engine(engine))) {
        if (!m->g) return SPECRT_STATUS_OK;
        return specrt_error_set(
            err, SPECRT_STATUS_BAD_ARG,
            "%s: is a GGUF: expected a folder of safetensors, or --for llama.cpp", m->path);
    }
    if (id.tail.n_layers == 0 && !list->any)
        return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                                "%s: has no MTP layers: %s takes a list for those alone", m->path,
                                engine);
    if (strcmp(engine, "sglang") == 0) TRY(check_sglang(m->path, &id.tail, err));
    out->format = list->format;
    out->n_rows = head_rows(m);
    return SPECRT_STATUS_OK;
}

specrt_status engine_choose(const char *engine, const char *drafter, const char *target,
                            engine_choice *out, specrt_error *err) {
    model m;
    *out = (engine_choice){0};
    TRY(sl_model_open(drafter, &m, err));
    specrt_status status = choose(engine, &m, target != NULL, out, err);
    sl_model_close(&m);
    return status;
}
