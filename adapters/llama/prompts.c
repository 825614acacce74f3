/* prompts.c : texts of the command line and of files, as the target's tokens. */
#include "tool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static specrt_status no_memory(specrt_error *err) {
    return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "no memory for prompts");
}

/* *text : the whole file, owned, NUL-terminated */
static specrt_status read_file(const char *path, char **text, specrt_error *err) {
    size_t n = 0, room = 4096, got;
    FILE *f = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    if (!f) return specrt_error_set(err, SPECRT_STATUS_IO, "%s: %s", path, strerror(errno));
    *text = (char *)malloc(room);
    while (*text && (got = fread(*text + n, 1, room - n - 1, f)) > 0) {
        n += got;
        if (n + 1 < room) continue;
        char *more = (char *)realloc(*text, room *= 2);
        if (!more) free(*text);
        *text = more;
    }
    bool failed = ferror(f) != 0;
    if (f != stdin) fclose(f);
    if (!*text) return no_memory(err);
    (*text)[n] = '\0';
    if (!failed) return SPECRT_STATUS_OK;
    free(*text);
    *text = NULL;
    return specrt_error_set(err, SPECRT_STATUS_IO, "%s: cannot be read", path);
}

/* A user's message as the model's template writes it. @return owned; NULL: unknown template */
static char *wrap(const models *m, const char *system, const char *text) {
    const char *template = llama_model_chat_template(m->target, NULL);
    struct llama_chat_message said[2] = {{"system", system}, {"user", text}};
    size_t skip = system ? 0 : 1, room = 2 * (strlen(text) + (system ? strlen(system) : 0)) + 1024;
    char *out = (char *)malloc(room);
    if (!template || !out) return free(out), NULL;
    int32_t n =
        llama_chat_apply_template(template, said + skip, 2 - skip, true, out, (int32_t)room);
    if (n < 0 || (size_t)n >= room) return free(out), NULL;
    out[n] = '\0';
    return out;
}

static specrt_status tokenize(const models *m, const char *text, bool special, prompt *out,
                              specrt_error *err) {
    int32_t bytes = (int32_t)strlen(text);
    int32_t n = -llama_tokenize(m->vocab, text, bytes, NULL, 0, true, special);
    out->ids = (int32_t *)malloc((size_t)(n > 0 ? n : 1) * sizeof *out->ids);
    if (!out->ids) return no_memory(err);
    if (n <= 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "prompt: expected a token or more, found none");
    out->n = llama_tokenize(m->vocab, text, bytes, out->ids, n, true, special);
    return SPECRT_STATUS_OK;
}

/* A template writes special tokens, and the first one of a text may stand there twice. */
static void drop_double_start(const models *m, prompt *p) {
    int32_t start = llama_vocab_bos(m->vocab);
    if (p->n < 2 || p->ids[0] != start || p->ids[1] != start) return;
    memmove(p->ids, p->ids + 1, (size_t)--p->n * sizeof *p->ids);
}

static specrt_status add(const options *o, const models *m, const char *text, prompts *p,
                         specrt_error *err) {
    prompt *more = (prompt *)realloc(p->items, (size_t)(p->n + 1) * sizeof *more);
    if (!more) return no_memory(err);
    p->items = more;
    more[p->n] = (prompt){.n = 0};
    prompt *added = &more[p->n++];
    if (!o->conversation) return tokenize(m, text, false, added, err);
    char *wrapped = wrap(m, o->system, text);
    if (!wrapped)
        return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                                "%s: llama.cpp's C API knows no chat template for it; leave out "
                                "-cnv and give the text in its template",
                                o->target);
    specrt_status status = tokenize(m, wrapped, true, added, err);
    free(wrapped);
    drop_double_start(m, added);
    return status;
}

/* "\n" and "\\" in place; other backslashes stay. */
static void unescape(char *text) {
    char *out = text;
    for (const char *in = text; *in; in++) {
        bool escaped = in[0] == '\\' && (in[1] == 'n' || in[1] == '\\');
        in += escaped;
        *out++ = escaped && *in == 'n' ? '\n' : *in;
    }
    *out = '\0';
}

static specrt_status add_lines(const options *o, const models *m, char *text, prompts *p,
                               specrt_error *err) {
    for (char *line = text, *next; *line; line = next) {
        next = line + strcspn(line, "\n");
        if (*next) *next++ = '\0';
        line[strcspn(line, "\r")] = '\0';
        unescape(line);
        if (*line) TRY(add(o, m, line, p, err));
    }
    return SPECRT_STATUS_OK;
}

static specrt_status add_file(const options *o, const models *m, const source *from, prompts *p,
                              specrt_error *err) {
    char *text;
    TRY(read_file(from->value, &text, err));
    size_t n = strlen(text);
    if (from->kind == SOURCE_FILE && n > 0 && text[n - 1] == '\n') text[n - 1] = '\0';
    specrt_status status =
        from->kind == SOURCE_LINES ? add_lines(o, m, text, p, err) : add(o, m, text, p, err);
    free(text);
    return status;
}

specrt_status prompts_read(const options *o, const models *m, prompts *out, specrt_error *err) {
    memset(out, 0, sizeof *out);
    for (int i = 0; i < o->n_sources; i++) {
        const source *from = &o->sources[i];
        int before = out->n;
        TRY(from->kind == SOURCE_TEXT ? add(o, m, from->value, out, err)
                                      : add_file(o, m, from, out, err));
        if (out->n == before)
            return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                    "%s: expected a prompt, found none", from->value);
    }
    return SPECRT_STATUS_OK;
}

void prompts_free(prompts *p) {
    for (int i = 0; i < p->n; i++) free(p->items[i].ids);
    free(p->items);
    memset(p, 0, sizeof *p);
}
