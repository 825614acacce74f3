/* corpus.h : documents from files, folders and pipes, in bounded memory.
 *
 * .txt .md and source code: plain text, cut into units of about 64 KiB at safe places (a newline
 * before an ASCII letter, so no tokenizer's result changes). .jsonl .json: one record per line or per
 * element of a top-level array, in ShareGPT, OpenAI-messages, Alpaca and plain-text shapes; told by
 * content. .gz and .zst are unpacked on the way; .bin (u16/u32) and .npy hold token ids; "-" is
 * stdin. Folders are walked in name order.
 *
 * One corpus is shared by all threads: corpus_next hands the next batch to whoever asks (reading is
 * serialised inside; parsing and UTF-8 repair run in the caller's thread). */
#ifndef CORPUS_H
#define CORPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "specrt.h"

typedef struct corpus_options {
    bool all_messages;      /* false: only what the target would generate (assistant, output) */
    const char *field;      /* take this field of each record instead of the known shapes; NULL */
    bool strict;            /* a bad record is fatal */
    bool token_ids;         /* --tokenizer none: accept .bin/.npy only */
    int id_bytes;           /* width of .bin ids: 2 or 4; 0 is an error naming --id-bytes */
    int32_t n_vocab;        /* ids must be below it; 0: unknown */
    int64_t shard, n_shards; /* take batches i with i % n_shards == shard; 0, 0: all */
    uint64_t seed;          /* of corpus_doc.unit_hash */
} corpus_options;

/* One document: a message, a completion, or a unit of a text file. Tokens never span documents. */
typedef struct corpus_doc {
    const char *text; /* valid UTF-8 [n_bytes], or NULL for token ids */
    size_t n_bytes;
    const int32_t *ids; /* [n_ids] */
    size_t n_ids;
    int32_t domain;     /* index of the --corpus argument it came from */
    bool completion;    /* the target would end it with a terminator */
    uint64_t unit_hash; /* same for all documents of one record: decides hold-out */
} corpus_doc;

typedef struct corpus_batch {
    const corpus_doc *docs; /* valid until the next call with this batch */
    int64_t n_docs;
    struct corpus_arena *arena; /* owned */
} corpus_batch;

#define CORPUS_EXAMPLES 5
typedef struct corpus_stats {
    uint64_t bytes_read;     /* before decompression */
    uint64_t bytes_total;    /* sum of file sizes; 0 when a pipe is among them */
    uint64_t n_files, n_records, n_docs, n_text_bytes;
    uint64_t n_bad_records, n_replaced, n_forced_cuts; /* n_replaced: U+FFFD put in */
    char bad_examples[CORPUS_EXAMPLES][256]; /* "file.jsonl:17: ..." the first few, in file order */
} corpus_stats;

typedef struct corpus corpus;

/* corpus_open() : list the files (missing or unreadable ones are an error here, before any work).
 *   paths : [n_paths] borrowed; each is a domain */
specrt_status corpus_open(const char *const *paths, int n_paths, const corpus_options *options,
                          corpus **out, specrt_error *err);
void corpus_close(corpus *c);

/* corpus_next() : fill the batch (zero-initialised before first use). n_docs == 0 with OK and
 * *end == true is the end; an empty batch may come earlier. Thread-safe. After an error every later
 * call returns the same error. */
specrt_status corpus_next(corpus *c, corpus_batch *batch, bool *end, specrt_error *err);
void corpus_batch_free(corpus_batch *batch);

/* corpus_get_stats() : thread-safe snapshot. */
void corpus_get_stats(corpus *c, corpus_stats *out);

/* corpus_digest() : XXH64 over all bytes read, file by file, after the end; for provenance. Order of
 * threads does not matter. n_paths digests, one a domain. */
uint64_t corpus_digest(corpus *c, int domain);

#endif
