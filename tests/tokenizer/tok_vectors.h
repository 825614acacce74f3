/* tok_vectors.h : tokenizers of the data folder, and published vectors of texts and ids. */
#ifndef TOK_VECTORS_H
#define TOK_VECTORS_H

#include <utf8proc.h>
#include "base/io.h"
#include "test.h"
#include "tokenizer/tokenizer.h"

#define SEPARATOR "\n__ggml_vocab_test__\n"

static inline tokenizer *open_tokenizer(const char *path) {
    specrt_error err = {0};
    tokenizer *tok = NULL;
    if (sl_tokenizer_open(path, &tok, &err)) fprintf(stderr, "%s\n", err.msg);
    REQUIRE(tok != NULL);
    return tok;
}

static inline tok_worker *worker_of(const tokenizer *tok) {
    tok_worker *w = NULL;
    REQUIRE(sl_tok_worker_create(tok, &w, NULL) == SPECRT_STATUS_OK);
    return w;
}

/* The ids of a text as " 1 2 3"; free() it. */
static inline char *ids_of(tok_worker *w, const char *text, size_t n) {
    id_list ids = {0};
    REQUIRE(sl_tok_encode(w, text, n, &ids) == SPECRT_STATUS_OK);
    char *line = calloc(1, ids.n * 12 + 1), *end = line;
    REQUIRE(line);
    for (size_t i = 0; i < ids.n; i++) end += sprintf(end, " %d", ids.ids[i]);
    free(ids.ids);
    return line;
}

static inline void check_ids(tok_worker *w, const char *text, const char *expected) {
    char *line = ids_of(w, text, strlen(text));
    CHECK_STR(line, expected);
    free(line);
}

/* One text, whose ids are published as "1 2 3", or " 1 2 3". llama.cpp never normalises,
 * so a text that the tokenizer itself changes first must have the ids of the changed text. */
static inline void check_vector(tok_worker *w, bool nfc, const char *text, size_t n,
                                const char *line, size_t n_line) {
    uint8_t *normal = NULL;
    utf8proc_ssize_t n_normal =
        utf8proc_map((const uint8_t *)text, (utf8proc_ssize_t)n, &normal,
                     (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    REQUIRE(n_normal >= 0);
    bool changes = nfc && ((size_t)n_normal != n || memcmp(normal, text, n) != 0);
    char *expected = changes ? ids_of(w, (char *)normal, (size_t)n_normal) : strndup(line, n_line);
    char *found = ids_of(w, text, n);
    CHECK_STR(found + strspn(found, " "), expected + strspn(expected, " "));
    free(expected);
    free(found);
    free(normal);
}

/* Each text of VECTORS.inp against its line of VECTORS.out.
 *   nfc : the tokenizer normalises where llama.cpp does not */
static inline void check_vectors(const char *tokenizer_path, const char *vectors, bool nfc) {
    tokenizer *tok = open_tokenizer(tokenizer_path);
    tok_worker *w = worker_of(tok);
    char path[1100];
    file_view inp, out;
    snprintf(path, sizeof path, "%s.inp", vectors);
    REQUIRE(sl_file_map(path, &inp, NULL) == 0);
    snprintf(path, sizeof path, "%s.out", vectors);
    REQUIRE(sl_file_map(path, &out, NULL) == 0);
    int n_vectors = 0;
    const char *text = (const char *)inp.bytes, *text_end = text + inp.n;
    const char *line = (const char *)out.bytes, *lines_end = line + out.n;
    while (text < text_end && line < lines_end) {
        const char *end = memmem(text, (size_t)(text_end - text), SEPARATOR, strlen(SEPARATOR));
        const char *line_end = memchr(line, '\n', (size_t)(lines_end - line));
        REQUIRE(line_end);
        if (!end) end = text_end;
        check_vector(w, nfc, text, (size_t)(end - text), line, (size_t)(line_end - line));
        n_vectors++;
        text = end + strlen(SEPARATOR);
        line = line_end + 1;
    }
    CHECK(n_vectors >= 46);
    sl_file_unmap(&inp);
    sl_file_unmap(&out);
    sl_tok_worker_free(w);
    sl_tokenizer_close(tok);
}

#endif
