/* fuzz_corpus.c : any bytes either are refused or come out as valid UTF-8. The first byte says what
 * the rest is called and how it is read. */
#include "corpus/corpus.h"
#include "base/utf8.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const names[] = {"x.txt", "x.jsonl", "x.json", "x", "x.bin", "x.npy"};
    if (size == 0) return 0;
    corpus_options options = {.all_messages = data[0] & 64, .strict = data[0] & 128, .id_bytes = 2};
    if (data[0] & 32) options.field = "a.b";
    const char *name = names[data[0] % 6];
    options.token_ids = data[0] % 6 > 3;
    corpus *c;
    corpus_batch batch = {0};
    bool end = false;
    if (sl_corpus_open_memory(name, data + 1, size - 1, &options, &c, NULL) != SPECRT_STATUS_OK)
        return 0;
    while (!end && sl_corpus_next(c, &batch, &end, NULL) == SPECRT_STATUS_OK)
        for (int64_t i = 0; i < batch.n_docs; i++) {
            const corpus_doc *doc = &batch.docs[i];
            if (doc->text && sl_utf8_valid(doc->text, doc->n_bytes) != doc->n_bytes) abort();
        }
    sl_corpus_batch_free(&batch);
    sl_corpus_close(c);
    return 0;
}
