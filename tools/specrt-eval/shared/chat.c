/* chat.c : conversations as token ids. A template is the text before and after each role's message;
 * where it names a special token, that token's id stands. What a user writes never makes one. */
#include "eval.h"

#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/io.h"
#include "base/memory.h"
#include "chat_template.h"
#include "formats/gguf.h"

/* Who says which form it is; also as JSON has it. */
static const char from_option[] = "option", from_model[] = "model",
                  from_tokens[] = "special tokens";

/* ---- the form ---- */

static bool has(const tokenizer *tok, const char *special) {
    return sl_tokenizer_find(tok, special, strlen(special)) >= 0;
}

static const chat_form *detect(const tokenizer *tok) {
    static const char *const tells[][2] = {{"<|start_header_id|>", "llama3"},
                                           {"<|im_start|>", "chatml"},
                                           {"<start_of_turn>", "gemma"}};
    for (size_t i = 0; i < sizeof tells / sizeof *tells; i++)
        if (has(tok, tells[i][0])) return chat_form_named(tells[i][1]);
    return chat_form_named("none");
}

static const char *string_of(json_object *value) {
    return json_object_is_type(value, json_type_string) ? json_object_get_string(value) : NULL;
}

static bool pair_of(json_object *file, const char *key, const char *out[2]) {
    json_object *value;
    if (!json_object_object_get_ex(file, key, &value) ||
        !json_object_is_type(value, json_type_array) || json_object_array_length(value) != 2)
        return false;
    for (size_t i = 0; i < 2; i++)
        if (!(out[i] = string_of(json_object_array_get_idx(value, i)))) return false;
    return true;
}

static specrt_status form_from_file(chat *c, const char *path, specrt_error *err) {
    file_view view;
    json_object *begin, *system;
    TRY(sl_file_map(path, &view, err));
    c->file = sl_json_parse(view.bytes, view.n, NULL);
    sl_file_unmap(&view);
    c->form = (chat_form){.name = path, .begin = ""};
    if (c->file && json_object_object_get_ex(c->file, "begin", &begin))
        c->form.begin = string_of(begin);
    bool ok = c->file && c->form.begin && pair_of(c->file, "user", c->form.user) &&
              pair_of(c->file, "assistant", c->form.assistant);
    if (ok && json_object_object_get_ex(c->file, "system", &system))
        ok = pair_of(c->file, "system", c->form.system);
    if (ok) return SPECRT_STATUS_OK;
    return specrt_error_set(
        err, SPECRT_STATUS_BAD_INPUT,
        "%s: chat template: expected {\"begin\": TEXT, \"user\": [BEFORE, AFTER], "
        "\"assistant\": [BEFORE, AFTER]}, and \"system\" likewise if at all",
        path);
}

static specrt_status form_by_option(chat *c, const char *name, specrt_error *err) {
    const chat_form *form = chat_form_named(name);
    c->from = from_option;
    if (form) {
        c->form = *form;
        return SPECRT_STATUS_OK;
    }
    specrt_status status = form_from_file(c, name, err);
    if (status == SPECRT_STATUS_IO)
        status = specrt_error_set(
            err, SPECRT_STATUS_BAD_ARG,
            "--chat-template: expected llama3, chatml, vicuna, gemma, none or a JSON file, "
            "found '%s'",
            name);
    return status;
}

static char *text_of_token(const tokenizer *tok, int64_t id) {
    size_t n = 0;
    const uint8_t *bytes =
        id >= 0 && id < sl_tokenizer_n_vocab(tok) ? sl_tokenizer_bytes(tok, (int32_t)id, &n) : NULL;
    return bytes ? strndup((const char *)bytes, n) : NULL;
}

/* The template that the model itself brings. ChatML has no beginning of its own, so a template of that form
 * may name the model's. */
static void form_by_model(chat *c, const gguf *g) {
    gguf_string said;
    int64_t bos = -1;
    c->form = *detect(c->tok);
    c->from = from_tokens;
    if (!sl_gguf_get_string(g, "tokenizer.chat_template", &said)) return;
    char *text = strndup(said.s, said.n);
    bool known = text && chat_template_read(text, &c->own);
    free(text);
    c->unknown = !known;
    if (!known) return;
    c->form = c->own.form;
    c->from = from_model;
    if (c->form.begin[0] || !c->own.says_bos) return;
    sl_gguf_get_int(g, "tokenizer.ggml.bos_token_id", &bos);
    if ((c->bos = text_of_token(c->tok, bos))) c->form.begin = c->bos;
}

static specrt_status choose(chat *c, const char *name, const char *model, specrt_error *err) {
    gguf *g;
    TRY(sl_gguf_open(model, &g, err));
    form_by_model(c, g);
    sl_gguf_close(g);
    if (!name) return SPECRT_STATUS_OK;
    if (c->unknown || c->from == from_model)
        c->passed_over = c->unknown ? "of no form known here" : c->form.name;
    c->unknown = false;
    return form_by_option(c, name, err);
}

/* Texts that plainly continue still begin as the model's texts did: as the file says, or else by the
 * token's usual names. (To Gemma "<s>" is one of HTML's tags.) */
static specrt_status plain_begin(chat *c, const char *model, specrt_error *err) {
    static const char *const begins[] = {"<|begin_of_text|>", "<bos>", "<s>"};
    int64_t adds = 0, bos = -1;
    gguf *g;
    TRY(sl_gguf_open(model, &g, err));
    bool said = sl_gguf_get_int(g, "tokenizer.ggml.add_bos_token", &adds);
    sl_gguf_get_int(g, "tokenizer.ggml.bos_token_id", &bos);
    sl_gguf_close(g);
    if (said) {
        free(c->bos);
        c->bos = adds ? text_of_token(c->tok, bos) : NULL;
        c->form.begin = c->bos ? c->bos : "";
        return SPECRT_STATUS_OK;
    }
    for (size_t i = sizeof begins / sizeof *begins; i-- > 0;)
        if (has(c->tok, begins[i])) c->form.begin = begins[i];
    return SPECRT_STATUS_OK;
}

specrt_status chat_create(const eval_options *o, const tokenizer *tok, chat **out,
                          specrt_error *err) {
    chat *c = (chat *)calloc(1, sizeof *c);
    *out = NULL;
    if (!c) return sl_error_no_memory_for(err, "a chat template");
    c->tok = tok;
    c->system = o->system;
    specrt_status status = sl_tok_worker_create(tok, &c->worker, err);
    if (status == SPECRT_STATUS_OK) status = choose(c, o->template_name, o->target, err);
    if (status == SPECRT_STATUS_OK && strcmp(c->form.name, "none") == 0)
        status = plain_begin(c, o->target, err);
    if (status == SPECRT_STATUS_OK)
        *out = c;
    else
        chat_free(c);
    return status;
}

void chat_free(chat *c) {
    if (!c) return;
    sl_tok_worker_free(c->worker);
    chat_template_free(&c->own);
    json_object_put(c->file);
    free(c->bos);
    free(c->text);
    free(c);
}

void chat_announce(chat *c) {
    const char *name = c->form.name;
    bool system = c->form.default_system || c->form.preface;
    if (c->announced) return;
    c->announced = true;
    if (c->unknown)
        sl_cli_warn("the model's chat template is unknown to specrt; %s is used, guessed from its "
                    "special tokens; choose another with --chat-template",
                    name);
    else if (c->from == from_model)
        sl_cli_info("template: %s, as the model's own says%s", name,
                    system ? ", with its system prompt" : "");
    else if (c->from == from_option)
        sl_cli_info("template: %s, by --chat-template%s%s", name,
                    c->passed_over ? "; the model's own is " : "",
                    c->passed_over ? c->passed_over : "");
    else
        sl_cli_info("template: %s, guessed from the special tokens; the model has none of its own",
                    name);
}

void chat_put_json(const chat *c, json_object *to) {
    sl_json_put(to, "chat_template", sl_json_base_name(c->form.name));
    sl_json_put(to, "chat_template_from", sl_json_text(c->from));
    sl_json_put(to, "system_prompt", sl_json_text(c->form.default_system));
}

/* ---- ids ---- */

static specrt_status add_text(chat *c, const char *text, size_t n) {
    if (n == 0) return SPECRT_STATUS_OK; /* there may be no buffer yet */
    if (!sl_reserve(&c->text, &c->capacity, c->n_text + n, 1)) return SPECRT_STATUS_NO_MEMORY;
    memcpy(c->text + c->n_text, text, n);
    c->n_text += n;
    return SPECRT_STATUS_OK;
}

static specrt_status flush(chat *c, id_list *ids) {
    size_t n = c->n_text;
    c->n_text = 0;
    return n ? sl_tok_encode(c->worker, c->text, n, ids) : SPECRT_STATUS_OK;
}

/* The special token that begins at `text`: "<...>". */
static int32_t special_at(const chat *c, const char *text, size_t *n) {
    const char *end = *text == '<' ? strchr(text, '>') : NULL;
    if (!end) return -1;
    *n = (size_t)(end - text) + 1;
    int32_t id = sl_tokenizer_find(c->tok, text, *n);
    return id >= 0 && sl_tokenizer_type(c->tok, id) != TOKEN_NORMAL ? id : -1;
}

static specrt_status add_form(chat *c, const char *text, id_list *ids) {
    while (*text) {
        size_t n = 1;
        int32_t id = special_at(c, text, &n);
        if (id >= 0) {
            TRY(flush(c, ids));
            TRY(ids_append(ids, &id, 1));
        } else {
            n = 1;
            TRY(add_text(c, text, n));
        }
        text += n;
    }
    return SPECRT_STATUS_OK;
}

static bool is_blank(char c) {
    return c && strchr(" \t\n\r\v\f", c);
}

static specrt_status add_message(chat *c, const char *text) {
    size_t n = strlen(text);
    while (c->form.trims && is_blank(*text)) text++, n--;
    while (c->form.trims && n && is_blank(text[n - 1])) n--;
    return add_text(c, text, n);
}

specrt_status chat_begin(chat *c, const char *system, id_list *ids) {
    const char *preface = c->form.preface ? c->form.preface : "";
    ids->n = 0;
    c->n_text = 0;
    c->lead = NULL;
    TRY(add_form(c, c->form.begin, ids));
    if (!system) system = c->system;
    if (!system) system = c->form.default_system ? c->form.default_system : "";
    if (!*system && !*preface) return SPECRT_STATUS_OK;
    if (!c->form.system[0]) {
        c->lead = system;
        return SPECRT_STATUS_OK;
    }
    TRY(add_form(c, c->form.system[0], ids));
    TRY(add_text(c, preface, strlen(preface)));
    TRY(add_message(c, system));
    return add_form(c, c->form.system[1], ids);
}

specrt_status chat_user(chat *c, const char *text, id_list *ids) {
    TRY(add_form(c, c->form.user[0], ids));
    if (c->lead) {
        TRY(add_message(c, c->lead));
        TRY(add_text(c, "\n\n", 2));
        c->lead = NULL;
    }
    TRY(add_message(c, text));
    TRY(add_form(c, c->form.user[1], ids));
    TRY(add_form(c, c->form.assistant[0], ids));
    return flush(c, ids);
}

specrt_status chat_answered(chat *c, id_list *ids) {
    int32_t n;
    const int32_t *ends = sl_tokenizer_terminators(c->tok, &n);
    for (int32_t i = 0; ids->n && i < n; i++)
        if (ids->ids[ids->n - 1] == ends[i]) {
            ids->n--;
            break;
        }
    return add_form(c, c->form.assistant[1], ids);
}

specrt_status chat_prompt(chat *c, const prompt *p, id_list *ids) {
    if (p->n_turns) {
        TRY(chat_begin(c, p->system, ids));
        return chat_user(c, p->turns[0], ids);
    }
    ids->n = 0;
    return ids_append(ids, p->ids, p->n_ids);
}
