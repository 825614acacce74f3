/* fuzz_tiktoken.c : rank files; whatever parses is compiled and encodes the file itself. */
#include <stdlib.h>
#include "tokenizer/tokenizer_impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tokenizer *tok = calloc(1, sizeof *tok);
    if (!tok) return 0;
    tok->path = "fuzz";
    tok->unknown_id = TOK_NONE;
    file_view file = {.bytes = data, .n = size};
    specrt_status status = sl_tok_load_tiktoken(tok, &file, NULL);
    tok_worker *w = NULL;
    id_list ids = {0};
    /* No small file is of a known family, but its ranks are there. */
    if (status == SPECRT_STATUS_UNSUPPORTED && !sl_tokenizer_finish(tok, NULL) &&
        !sl_tok_worker_create(tok, &w, NULL))
        sl_tok_encode(w, (const char *)data, size, &ids);
    free(ids.ids);
    sl_tok_worker_free(w);
    sl_tokenizer_close(tok);
    return 0;
}
