/* docs.c : the memory of a batch, and its documents. */
#include "corpus/corpus_impl.h"

#include "base/memory.h"
#include "base/utf8.h"
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 1 << 20, KEEP_BYTES = 4 << 20 };

struct arena_chunk {
    struct arena_chunk *next;
    size_t n, capacity;
    char bytes[];
};

static void free_chunks(struct corpus_arena *a) {
    for (struct arena_chunk *chunk = a->chunks, *next; chunk; chunk = next) {
        next = chunk->next;
        free(chunk);
    }
    a->chunks = NULL;
}

/* Texts, and what an unusual batch made large, are given back; the rest is kept for the next one. */
void sl_corpus_arena_reset(struct corpus_arena *a) {
    free_chunks(a);
    if (a->window.capacity > KEEP_BYTES) sl_corpus_window_free(&a->window);
    a->values.n = a->n_docs = 0;
    a->n_text_bytes = a->n_replaced = 0;
}

void sl_corpus_arena_free(struct corpus_arena *a) {
    if (!a) return;
    free_chunks(a);
    sl_corpus_window_free(&a->window);
    free(a->values.spans);
    free(a->docs);
    free(a->ids);
    if (a->tokener) json_tokener_free(a->tokener);
    free(a);
}

static char *arena_alloc(struct corpus_arena *a, size_t n) {
    struct arena_chunk *chunk = a->chunks;
    if (!chunk || chunk->capacity - chunk->n < n) {
        size_t capacity = n > CHUNK_BYTES ? n : CHUNK_BYTES;
        chunk = (struct arena_chunk *)malloc(sizeof *chunk + capacity);
        if (!chunk) return NULL;
        *chunk = (struct arena_chunk){a->chunks, 0, capacity};
        a->chunks = chunk;
    }
    char *out = chunk->bytes + chunk->n;
    chunk->n += n;
    return out;
}

/* arena_give_back() : the end of the last allocation was not needed. */
static void arena_give_back(struct corpus_arena *a, size_t n) {
    a->chunks->n -= n;
}

static specrt_status repair_text(struct corpus_arena *a, corpus_doc *doc, bool keep) {
    size_t good = sl_utf8_valid(doc->text, doc->n_bytes), n = doc->n_bytes;
    if (good == n && keep) return SPECRT_STATUS_OK;
    size_t room = good + 3 * (n - good);
    char *copy = arena_alloc(a, room);
    if (!copy) return SPECRT_STATUS_NO_MEMORY;
    memcpy(copy, doc->text, good);
    doc->n_bytes = good + sl_utf8_repair(doc->text + good, n - good, copy + good, &a->n_replaced);
    doc->text = copy;
    arena_give_back(a, room - doc->n_bytes);
    return SPECRT_STATUS_OK;
}

specrt_status sl_corpus_arena_add_doc(struct corpus_arena *a, const corpus_doc *doc, bool keep) {
    if (!sl_reserve(&a->docs, &a->docs_capacity, a->n_docs + 1, sizeof *a->docs))
        return SPECRT_STATUS_NO_MEMORY;
    corpus_doc *to = &a->docs[a->n_docs];
    *to = *doc;
    if (doc->text) {
        specrt_status status = repair_text(a, to, keep);
        if (status != SPECRT_STATUS_OK) return status;
        a->n_text_bytes += to->n_bytes;
    }
    a->n_docs++;
    return SPECRT_STATUS_OK;
}
