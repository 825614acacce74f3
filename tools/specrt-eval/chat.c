/* chat.c : conversations as token ids. A template is the text before and after each role's message;
 * where it names a special token, that token's id stands. What a user writes never makes one. */
#include "eval.h"

#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>
#include "io.h"

typedef struct chat_form {
    const char *name, *begin;
    const char *user[2], *assistant[2]; /* before and after a message */
} chat_form;

static const chat_form forms[] = {
    {"llama3",
     "<|begin_of_text|>",
     {"<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"},
     {"<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"}},
    {"chatml",
     "",
     {"<|im_start|>user\n", "<|im_end|>\n"},
     {"<|im_start|>assistant\n", "<|im_end|>\n"}},
    {"vicuna",
     "<s>A chat between a curious user and an artificial intelligence assistant. The assistant "
     "gives "
     "helpful, detailed, and polite answers to the user's questions. ",
     {"USER: ", " "},
     {"ASSISTANT:", "</s>"}},
    {"none", "", {"", ""}, {"", ""}},
};
enum { N_FORMS = sizeof forms / sizeof *forms };

struct chat {
    const tokenizer *tok;
    tok_worker *worker;
    chat_form form;
    json_object *file; /* owns the texts of a form from a file */
    char *text; /* pending, not yet tokens: pieces on both sides of a seam are cut together */
    size_t n_text, capacity;
};

/* ---- the form ---- */

static bool has(const tokenizer *tok, const char *special) {
    return tokenizer_find(tok, special, strlen(special)) >= 0;
}

static const chat_form *detect(const tokenizer *tok) {
    if (has(tok, "<|start_header_id|>")) return &forms[0];
    if (has(tok, "<|im_start|>")) return &forms[1];
    return &forms[3];
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
    json_object *begin;
    TRY(file_map(path, &view, err));
    json_tokener *tokener = json_tokener_new();
    if (tokener && view.n && view.n < INT32_MAX)
        c->file = json_tokener_parse_ex(tokener, (const char *)view.bytes, (int)view.n);
    if (tokener) json_tokener_free(tokener);
    file_unmap(&view);
    c->form.name = path;
    c->form.begin = "";
    if (c->file && json_object_object_get_ex(c->file, "begin", &begin))
        c->form.begin = string_of(begin);
    if (c->file && c->form.begin && pair_of(c->file, "user", c->form.user) &&
        pair_of(c->file, "assistant", c->form.assistant))
        return SPECRT_STATUS_OK;
    return specrt_error_set(
        err, SPECRT_STATUS_BAD_INPUT,
        "%s: chat template: expected {\"begin\": TEXT, \"user\": [BEFORE, AFTER], "
        "\"assistant\": [BEFORE, AFTER]}",
        path);
}

static specrt_status choose(chat *c, const char *name, specrt_error *err) {
    c->form = *detect(c->tok);
    if (!name) return SPECRT_STATUS_OK;
    for (int i = 0; i < N_FORMS; i++)
        if (strcmp(name, forms[i].name) == 0) {
            c->form = forms[i];
            return SPECRT_STATUS_OK;
        }
    specrt_status status = form_from_file(c, name, err);
    if (status == SPECRT_STATUS_IO)
        status = specrt_error_set(
            err, SPECRT_STATUS_BAD_ARG,
            "--chat-template: expected llama3, chatml, vicuna, none or a JSON file, "
            "found '%s'",
            name);
    return status;
}

/* Texts that plainly continue still begin as the model's texts did. */
static void plain_begin(chat *c) {
    static const char *const begins[] = {"<|begin_of_text|>", "<s>", "<bos>"};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (has(c->tok, begins[i])) {
            c->form.begin = begins[i];
            return;
        }
}

specrt_status chat_create(const char *name, const tokenizer *tok, chat **out, specrt_error *err) {
    chat *c = (chat *)calloc(1, sizeof *c);
    *out = NULL;
    if (!c) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "no memory for a chat template");
    c->tok = tok;
    specrt_status status = tok_worker_create(tok, &c->worker, err);
    if (status == SPECRT_STATUS_OK) status = choose(c, name, err);
    if (status == SPECRT_STATUS_OK && strcmp(c->form.name, "none") == 0) plain_begin(c);
    if (status == SPECRT_STATUS_OK)
        *out = c;
    else
        chat_free(c);
    return status;
}

void chat_free(chat *c) {
    if (!c) return;
    tok_worker_free(c->worker);
    json_object_put(c->file);
    free(c->text);
    free(c);
}

const char *chat_name(const chat *c) {
    return c->form.name;
}

/* ---- ids ---- */

static specrt_status add_text(chat *c, const char *text, size_t n) {
    if (c->n_text + n > c->capacity) {
        size_t capacity = 2 * (c->n_text + n);
        char *grown = (char *)realloc(c->text, capacity);
        if (!grown) return SPECRT_STATUS_NO_MEMORY;
        c->text = grown;
        c->capacity = capacity;
    }
    memcpy(c->text + c->n_text, text, n);
    c->n_text += n;
    return SPECRT_STATUS_OK;
}

static specrt_status flush(chat *c, id_list *ids) {
    size_t n = c->n_text;
    c->n_text = 0;
    return n ? tok_encode(c->worker, c->text, n, ids) : SPECRT_STATUS_OK;
}

/* The special token that begins at `text`: "<...>". */
static int32_t special_at(const chat *c, const char *text, size_t *n) {
    const char *end = *text == '<' ? strchr(text, '>') : NULL;
    if (!end) return -1;
    *n = (size_t)(end - text) + 1;
    int32_t id = tokenizer_find(c->tok, text, *n);
    return id >= 0 && tokenizer_type(c->tok, id) != TOKEN_NORMAL ? id : -1;
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

specrt_status chat_begin(chat *c, id_list *ids) {
    ids->n = 0;
    c->n_text = 0;
    return add_form(c, c->form.begin, ids);
}

specrt_status chat_user(chat *c, const char *text, id_list *ids) {
    TRY(add_form(c, c->form.user[0], ids));
    TRY(add_text(c, text, strlen(text)));
    TRY(add_form(c, c->form.user[1], ids));
    TRY(add_form(c, c->form.assistant[0], ids));
    return flush(c, ids);
}

specrt_status chat_answered(chat *c, id_list *ids) {
    int32_t n;
    const int32_t *ends = tokenizer_terminators(c->tok, &n);
    for (int32_t i = 0; ids->n && i < n; i++)
        if (ids->ids[ids->n - 1] == ends[i]) {
            ids->n--;
            break;
        }
    return add_form(c, c->form.assistant[1], ids);
}

specrt_status chat_prompt(chat *c, const prompt *p, id_list *ids) {
    if (p->n_turns) {
        TRY(chat_begin(c, ids));
        return chat_user(c, p->turns[0], ids);
    }
    ids->n = 0;
    return ids_append(ids, p->ids, p->n_ids);
}
