/* prompts.c : the prompts that the options name, as the target's tokens. */
#include "specrt_tools.h"
#include "tool.h"

#include <stdlib.h>
#include <string.h>
#include "base/error.h"

static specrt_status tokenize(const models *m, const prompt *p, const char *text, bool special,
                              input *out, specrt_error *err) {
    int32_t bytes = (int32_t)strlen(text);
    int32_t n = -llama_tokenize(m->vocab, text, bytes, NULL, 0, true, special);
    if (n <= 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: expected a prompt of a token or more, found none", p->place);
    out->ids = (int32_t *)malloc((size_t)n * sizeof *out->ids);
    if (!out->ids) return sl_error_no_memory_for(err, "prompts");
    out->n = llama_tokenize(m->vocab, text, bytes, out->ids, n, true, special);
    return SPECRT_STATUS_OK;
}

/* A template writes special tokens, and the first one of a text may stand there twice. */
static void drop_double_start(const models *m, input *in) {
    int32_t start = llama_vocab_bos(m->vocab);
    if (in->n < 2 || in->ids[0] != start || in->ids[1] != start) return;
    memmove(in->ids, in->ids + 1, (size_t)--in->n * sizeof *in->ids);
}

static specrt_status take_ids(const models *m, const prompt *p, input *out, specrt_error *err) {
    for (int32_t i = 0; i < p->n_ids; i++)
        if (p->ids[i] < 0 || p->ids[i] >= m->n_vocab)
            return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                    "%s: prompt_ids: expected ids below %d, found %d", p->place,
                                    (int)m->n_vocab, (int)p->ids[i]);
    out->ids = (int32_t *)malloc((size_t)p->n_ids * sizeof *out->ids);
    if (!out->ids) return sl_error_no_memory_for(err, "prompts");
    memcpy(out->ids, p->ids, (size_t)p->n_ids * sizeof *out->ids);
    out->n = p->n_ids;
    return SPECRT_STATUS_OK;
}

static specrt_status take(const options *o, const models *m, const prompt *p, input *out,
                          specrt_error *err) {
    out->domain = p->domain;
    if (p->n_turns == 0) return take_ids(m, p, out, err);
    if (!o->conversation) return tokenize(m, p, p->turns[0], false, out, err);
    char *wrapped = template_write(m, p->system ? p->system : o->system, p->turns[0]);
    if (!wrapped)
        return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                                "%s: llama.cpp's C API knows no chat template for it; leave out "
                                "-cnv and give the text in its template",
                                o->target);
    specrt_status status = tokenize(m, p, wrapped, true, out, err);
    free(wrapped);
    drop_double_start(m, out);
    return status;
}

/* The whole file, without its last line feed. */
static specrt_status add_file(const char *path, prompt_list *out, specrt_error *err) {
    file_view view;
    TRY(sl_file_map(path, &view, err));
    char *text = view.n ? strndup((const char *)view.bytes, view.n) : strdup("");
    sl_file_unmap(&view);
    size_t n = text ? strlen(text) : 0;
    if (n > 0 && text[n - 1] == '\n') text[n - 1] = '\0';
    specrt_status status = text ? sl_prompts_add(text, "file", out) : SPECRT_STATUS_NO_MEMORY;
    free(text);
    return status == SPECRT_STATUS_OK ? status : sl_error_no_memory_for(err, "prompts");
}

static specrt_status read_prompts(const options *o, prompt_list *out, specrt_error *err) {
    for (int i = 0; i < o->texts.n; i++)
        if (sl_prompts_add(o->texts.items[i], "prompt", out) != SPECRT_STATUS_OK)
            return sl_error_no_memory_for(err, "prompts");
    for (int i = 0; i < o->files.n; i++) TRY(add_file(o->files.items[i], out, err));
    for (int i = 0; i < o->prompts.n; i++)
        TRY(sl_prompts_read(o->prompts.items[i], o->limit, out, err));
    return SPECRT_STATUS_OK;
}

static bool any_text(const prompt_list *prompts) {
    for (int i = 0; i < prompts->n; i++)
        if (prompts->items[i].n_turns > 0) return true;
    return false;
}

specrt_status inputs_read(const options *o, const models *m, inputs *out, specrt_error *err) {
    TRY(read_prompts(o, &out->prompts, err));
    out->items = (input *)calloc((size_t)out->prompts.n, sizeof *out->items);
    if (!out->items) return sl_error_no_memory_for(err, "prompts");
    for (int i = 0; i < out->prompts.n; i++, out->n++)
        TRY(take(o, m, &out->prompts.items[i], &out->items[i], err));
    if (!o->conversation && any_text(&out->prompts)) template_announce(o, m);
    return sl_prompts_account(&out->prompts, out->n, err);
}

void inputs_unanswered(const options *o, const models *m, const inputs *in, int n,
                       char out[UNANSWERED_MOST]) {
    char hint[TEMPLATE_HINT];
    template_suggest(o, m, hint);
    snprintf(out, UNANSWERED_MOST,
             "nothing was decoded for %d of %d prompts, where the answer's first token ends it; %s",
             n, in->n, hint);
}

void inputs_free(inputs *in) {
    for (int i = 0; in->items && i < in->prompts.n; i++) free(in->items[i].ids);
    free(in->items);
    sl_prompts_free(&in->prompts);
    *in = (inputs){0};
}
