/* chat_template.c : the forms of conversations, and which of them a model's own template writes. */
#include "chat_template.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const chat_form forms[] = {
    {"llama3",
     "<|begin_of_text|>",
     {"<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>"},
     {"<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"},
     {"<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"},
     NULL,
     NULL,
     false},
    {"chatml",
     "",
     {"<|im_start|>system\n", "<|im_end|>\n"},
     {"<|im_start|>user\n", "<|im_end|>\n"},
     {"<|im_start|>assistant\n", "<|im_end|>\n"},
     NULL,
     NULL,
     false},
    {"vicuna",
     "<s>",
     {"", " "},
     {"USER: ", " "},
     {"ASSISTANT:", "</s>"},
     NULL,
     "A chat between a curious user and an artificial intelligence assistant. The assistant gives "
     "helpful, detailed, and polite answers to the user's questions.",
     false},
    {"gemma",
     "<bos>",
     {NULL, NULL},
     {"<start_of_turn>user\n", "<end_of_turn>\n"},
     {"<start_of_turn>model\n", "<end_of_turn>\n"},
     NULL,
     NULL,
     true},
    {"none", "", {NULL, NULL}, {"", ""}, {"", ""}, NULL, NULL, false},
};
enum { N_FORMS = sizeof forms / sizeof *forms };

const chat_form *chat_form_named(const char *name) {
    for (int i = 0; i < N_FORMS; i++)
        if (strcmp(name, forms[i].name) == 0) return &forms[i];
    return NULL;
}

/* ---- which form ---- */

/* What a template of the form holds, and what tells that it is a variant with other texts. */
static const struct marks {
    const char *name, *holds[3], *lacks[2];
} marks[] = {
    {"chatml", {"<|im_start|>", "<|im_end|>", "assistant"}, {"<|im_sep|>", "<|im_middle|>"}},
    {"llama3", {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}, {NULL, NULL}},
    {"gemma", {"<start_of_turn>", "<end_of_turn>", "model"}, {NULL, NULL}},
    {"vicuna", {"USER: ", "ASSISTANT:", "content"}, {"###", "<|"}},
};

static bool has_marks(const char *text, const struct marks *m) {
    for (int i = 0; i < 3; i++)
        if (!strstr(text, m->holds[i])) return false;
    for (int i = 0; i < 2; i++)
        if (m->lacks[i] && strstr(text, m->lacks[i])) return false;
    return true;
}

static const chat_form *form_of(const char *text) {
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (has_marks(text, &marks[i])) return chat_form_named(marks[i].name);
    return NULL;
}

/* ---- its literals ---- */

static char unescaped(char c) {
    return c == 'n' ? '\n' : c == 't' ? '\t' : c;
}

/* The text from `at` to `stop`, which a literal that began with `quote` must hold whole; text outside of
 * literals (quote 0) ends at the next piece of program. NULL: it ends before, or there is no text. */
static char *text_until(const char *at, char quote, const char *stop) {
    char *out = (char *)malloc(strlen(at) + 1);
    size_t n = 0, n_stop = strlen(stop);
    bool ends = false;
    while (out && *at && !(ends = strncmp(at, stop, n_stop) == 0)) {
        if (quote ? *at == quote : at[0] == '{' && (at[1] == '{' || at[1] == '%')) break;
        if (quote && at[0] == '\\' && at[1])
            out[n++] = unescaped(at[1]), at += 2;
        else
            out[n++] = *at++;
    }
    if (!out || !ends || n == 0) {
        free(out);
        return NULL;
    }
    out[n] = '\0';
    return out;
}

static bool is_quote(char c) {
    return c == '\'' || c == '"';
}

/* A whole literal that begins at `at`, its quote first. */
static char *literal_at(const char *at) {
    const char stop[2] = {*at, '\0'};
    return is_quote(*at) ? text_until(at + 1, *at, stop) : NULL;
}

/* The literal of "set NAME = 'TEXT'". */
static char *value_of(const char *text, const char *name) {
    size_t n = strlen(name);
    char *value = NULL;
    for (const char *at = text; !value && (at = strstr(at, "set ")) != NULL;) {
        at += 4;
        if (strncmp(at, name, n) != 0) continue;
        const char *rest = at + n + strspn(at + n, " ");
        if (*rest == '=') value = literal_at(rest + 1 + strspn(rest + 1, " "));
    }
    return value;
}

/* A line break as a template has it, in a literal or as it is. */
static size_t line_break(const char *at) {
    return *at == '\n' ? 1 : strncmp(at, "\\n", 2) == 0 ? 2 : 0;
}

/* ChatML's default stands with its marks around it: '<|im_start|>system\nTEXT<|im_end|>'. */
static char *marked_system(const char *text) {
    static const char mark[] = "<|im_start|>system";
    char *system = NULL;
    for (const char *at = text; !system && (at = strstr(at, mark)) != NULL;) {
        char quote = at > text && is_quote(at[-1]) ? at[-1] : '\0';
        at += sizeof mark - 1;
        size_t n = line_break(at);
        if (n) system = text_until(at + n, quote, "<|im_end|>");
    }
    return system;
}

static char *default_system(const char *text) {
    static const char *const names[] = {"default_system_message", "default_system_prompt",
                                        "default_system", "system_message", "system_prompt"};
    char *system = marked_system(text);
    for (size_t i = 0; !system && i < sizeof names / sizeof *names; i++)
        system = value_of(text, names[i]);
    return system;
}

/* Llama 3.1 and later tell two dates in every system message. Today's is the one that the template falls
 * back to, so that a run is the same on every day. */
static char *dates_of(const char *text) {
    static const char knowledge[] = "\"Cutting Knowledge Date: ";
    const char *at = strstr(text, knowledge);
    if (!at || !strstr(text, "\"Today Date: \" + date_string + \"\\n\\n\"")) return NULL;
    char *cut = literal_at(at), *today = value_of(text, "date_string"), *out = NULL;
    if (cut && today && (out = (char *)malloc(strlen(cut) + strlen(today) + 16)))
        sprintf(out, "%sToday Date: %s\n\n", cut, today);
    free(cut);
    free(today);
    return out;
}

/* What follows the last "add_generation_prompt": the answer's beginning, which may be more than the
 * form's ("<think>"). */
static char *opening_of(const char *text, const char *expected) {
    static const char name[] = "add_generation_prompt";
    const char *last = NULL;
    for (const char *at = text; (at = strstr(at, name)) != NULL; at += sizeof name - 1) last = at;
    const char *quote = last ? strpbrk(last, "'\"") : NULL;
    char *opening = quote ? literal_at(quote) : NULL;
    if (opening && strncmp(opening, expected, strlen(expected)) == 0) return opening;
    free(opening);
    return NULL;
}

static bool trims(const char *text) {
    static const char *const ways[] = {"'] | trim",     "']|trim",    ".content | trim",
                                       ".content|trim", "'].strip()", ".content.strip()"};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (strstr(text, ways[i])) return true;
    return false;
}

/* The same text, but the blanks belong to what follows them. */
static void space_before(chat_form *vicuna) {
    vicuna->system[1] = vicuna->user[1] = "";
    vicuna->user[0] = " USER: ";
    vicuna->assistant[0] = " ASSISTANT:";
}

bool chat_template_read(const char *text, chat_template *out) {
    const chat_form *form = form_of(text);
    if (!form) return false;
    out->form = *form;
    if (strstr(text, "' USER: '") || strstr(text, "\" USER: \"")) space_before(&out->form);
    out->says_bos = strstr(text, "bos_token") != NULL;
    out->form.trims = trims(text);
    out->form.default_system = out->system = default_system(text);
    out->form.preface = out->preface = dates_of(text);
    out->opening = opening_of(text, out->form.assistant[0]);
    if (out->opening) out->form.assistant[0] = out->opening;
    return true;
}

void chat_template_free(chat_template *t) {
    free(t->system);
    free(t->preface);
    free(t->opening);
}
