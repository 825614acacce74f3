/* tokenizer_target.h : what the fuzzers of tokenizer files share. A file that loads must encode any
 * text, to ids of its vocabulary. */
#ifndef TOKENIZER_TARGET_H
#define TOKENIZER_TARGET_H

#include <stdlib.h>
#include "tokenizer/tokenizer_impl.h"
#include "base/utf8.h"

static inline void encode_text(const tokenizer *tok, const uint8_t *data, size_t size) {
    tok_worker *w = NULL;
    id_list ids = {0};
    uint64_t n_replaced = 0;
    char *text = malloc(3 * size + 1);
    if (text && sl_tok_worker_create(tok, &w, NULL) == SPECRT_STATUS_OK) {
        size_t n = sl_utf8_repair((const char *)data, size, text, &n_replaced);
        sl_tok_encode(w, text, n, &ids);
        for (size_t i = 0; i < ids.n; i++)
            if (ids.ids[i] < 0 || ids.ids[i] >= tok->n_vocab) abort();
    }
    free(ids.ids);
    free(text);
    sl_tok_worker_free(w);
}

/* Load the bytes and encode the first of them. */
static inline int fuzz_loader(specrt_status (*load)(tokenizer *, const file_view *, specrt_error *),
                              const uint8_t *data, size_t size) {
    file_view file = {data, size, false};
    specrt_error err;
    tokenizer *tok = calloc(1, sizeof *tok);
    if (!tok) return 0;
    tok->path = "fuzz/tokenizer";
    tok->unknown_id = TOK_NONE;
    if (load(tok, &file, &err) == SPECRT_STATUS_OK &&
        sl_tokenizer_finish(tok, &err) == SPECRT_STATUS_OK)
        encode_text(tok, data, size < 4096 ? size : 4096);
    sl_tokenizer_close(tok);
    return 0;
}

#endif
