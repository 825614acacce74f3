/* chat_template.h : how conversations are written, and what a model's own template says of it. Such a
 * template is a Jinja program; it is not run but told by its marks, and its literals are read. */
#ifndef SPECRT_EVAL_SHARED_CHAT_TEMPLATE_H
#define SPECRT_EVAL_SHARED_CHAT_TEMPLATE_H

#include <stdbool.h>
#include "eval.h"

/* Texts around messages. */
typedef struct chat_form {
    const char *name, *begin;
    const char *system[2]; /* before and after a message; NULL: it stands in the user's first one */
    const char *user[2], *assistant[2];
    const char *preface;        /* of every system message, and one without more; NULL: none */
    const char *default_system; /* where a conversation brings none; NULL: none */
    bool trims;                 /* messages lose the blanks around them */
} chat_form;

/* chat_form_named() : llama3, chatml, vicuna, gemma, none; NULL for others. */
const chat_form *chat_form_named(const char *name);

/* A template that was told, with the texts that it owns. */
typedef struct chat_template {
    chat_form form;
    bool says_bos; /* it names the token of beginnings */
    char *system, *preface, *opening;
} chat_template;

/* chat_template_read() : zero-initialise `out`.
 * @return false where its marks are of no form that is known */
bool chat_template_read(const char *text, chat_template *out);
void chat_template_free(chat_template *t);

/* What eval.h calls a chat. */
struct chat {
    const tokenizer *tok;
    const char *system; /* of conversations that bring none; NULL: the template's */
    tok_worker *worker;
    chat_form form;
    const char *from;
    const char
        *passed_over; /* the model's own form, where an option names another; NULL: it has none */
    bool announced;
    bool unknown;      /* the model has a template, of no form that is known */
    chat_template own; /* the model's, where it is taken */
    char *bos;         /* of the model */
    json_object *file; /* owns the texts of a form from a file */
    const char *lead;  /* a system message that the user's first one will hold; borrowed */
    char *text; /* pending, not yet tokens: pieces on both sides of a seam are cut together */
    size_t n_text, capacity;
};

#endif
