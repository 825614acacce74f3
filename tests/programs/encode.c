/* encode.c : drives the encoder for interoperability tests.
 *     encode TOKENIZER < documents > ids        encode TOKENIZER --fingerprint
 * A document is a little-endian u32 byte count and so many bytes of UTF-8, repaired first. Its answer
 * is an i32 count and so many i32 ids. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tokenizer/tokenizer.h"
#include "base/utf8.h"

static int fail(const char *what) {
    fprintf(stderr, "encode: %s\n", what);
    return 1;
}

static int answer(tok_worker *w, const char *raw, uint32_t n) {
    id_list ids = {0};
    uint64_t n_replaced = 0;
    char *text = malloc(3 * (size_t)n + 1);
    if (!text) return fail("out of memory");
    size_t length = sl_utf8_repair(raw, n, text, &n_replaced);
    bool ok = sl_tok_encode(w, text, length, &ids) == SPECRT_STATUS_OK;
    int32_t count = (int32_t)ids.n;
    ok = ok && fwrite(&count, sizeof count, 1, stdout) == 1 &&
         fwrite(ids.ids, sizeof *ids.ids, ids.n, stdout) == ids.n;
    free(text);
    free(ids.ids);
    return ok ? 0 : fail("a document was not encoded");
}

static int answer_all(tok_worker *w) {
    uint32_t n;
    while (fread(&n, sizeof n, 1, stdin) == 1) {
        char *raw = malloc((size_t)n + 1);
        bool ok = raw && fread(raw, 1, n, stdin) == n;
        int code = ok ? answer(w, raw, n) : fail("input ends inside a document");
        free(raw);
        if (code) return code;
    }
    return fflush(stdout) ? fail("output") : 0;
}

static void print_fingerprint(const tokenizer *tok) {
    uint8_t sha256[32];
    sl_tokenizer_fingerprint(tok, sha256);
    for (int i = 0; i < 32; i++) printf("%02x", sha256[i]);
    printf(" %d normal tokens\n", sl_tokenizer_n_normal(tok));
}

int main(int argc, char **argv) {
    specrt_error err = {0};
    tokenizer *tok = NULL;
    tok_worker *w = NULL;
    bool fingerprint = argc == 3 && strcmp(argv[2], "--fingerprint") == 0;
    if (argc != 2 && !fingerprint) return fail("usage: encode TOKENIZER [--fingerprint]");
    if (sl_tokenizer_open(argv[1], &tok, &err) || sl_tok_worker_create(tok, &w, &err)) {
        sl_tokenizer_close(tok);
        return fail(err.msg);
    }
    int code = 0;
    if (fingerprint)
        print_fingerprint(tok);
    else
        code = answer_all(w);
    sl_tok_worker_free(w);
    sl_tokenizer_close(tok);
    return code;
}
