/* corpus.h : documents from files, folders and pipes, in bounded memory.
 *
 * What a file holds is told by its content and its name; gzip and zstd are told by content and
 * unpacked on the way.
 *
 *   text   .txt .md, source code and all else: cut into units of about 64 KiB, at the first safe
 *          place at or after each multiple of 64 KiB. Safe is a space between two ASCII letters,
 *          and a line feed between visible text and a letter: there every splitter begins a new
 *          piece and no piece changes, so the units give the very tokens the whole gives, provided
 *          a unit that `continues` another gets no dummy prefix. NULs and CRLF are kept; a UTF-8
 *          byte-order mark is dropped.
 *   JSON   .jsonl and .json: values one per line or one after another, or the elements of
 *          top-level arrays, as ShareGPT "conversations", OpenAI "messages", a prompt and its
 *          "output", "response", "completion" or "answer", API "choices", requests and results
 *          of an API's batches and logs, plain "text" or "content", bare strings.
 *   ids    .bin (u16, u32) and .npy (1-dimensional, or a document per row)
 *
 * Invalid UTF-8 becomes U+FFFD as in Python, and so does each lone surrogate escape of JSON; both
 * are counted. Records over 64 MiB, or of over a million values, are bad records; text without a
 * safe place for 64 MiB is cut there all the same. Folders are walked in name order without hidden
 * files; what is no text in them is skipped and counted.
 *
 * One corpus is shared by all threads: sl_corpus_next hands the next batch to whoever asks. Documents,
 * unit hashes, digests and which shard a batch belongs to depend on the content alone. */
#ifndef CORPUS_H
#define CORPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "specrt.h"

/* CORPUS_BY_NAME: by content and name, as above. */
typedef enum corpus_reading { CORPUS_BY_NAME, CORPUS_AS_TEXT, CORPUS_AS_JSON } corpus_reading;

typedef struct corpus_options {
    bool all_messages;      /* false: only what the target would generate (assistant, output) */
    const char *field;      /* take this field of each record instead of the known shapes; NULL */
    const char *exclude;    /* a file or folder that folders are walked without; NULL: none */
    bool strict;            /* a bad record is fatal */
    corpus_reading reading; /* of all files but ids */
    bool token_ids;         /* --tokenizer none: accept .bin/.npy only */
    int id_bytes;           /* width of .bin ids: 2 or 4; 0 is an error naming --id-bytes */
    int32_t n_vocab;        /* ids must be below it; 0: unknown */
    int64_t shard,
        n_shards;  /* this one's part: n_shards together take all, none twice; 0, 0: all */
    uint64_t seed; /* of corpus_doc.unit_hash */
} corpus_options;

/* One document: a message, a completion, or a unit of a text file. Tokens never span documents. */
typedef struct corpus_doc {
    const char *text; /* valid UTF-8 [n_bytes], or NULL for token ids */
    size_t n_bytes;
    const int32_t *ids; /* [n_ids] */
    size_t n_ids;
    int32_t domain;  /* index of the --corpus argument it came from */
    bool completion; /* the target would end it with a terminator */
    /* a later unit of a text, or of ids: nothing goes between it and the one before */
    bool continues;
    uint64_t unit_hash; /* same for all documents of one record: decides hold-out */
} corpus_doc;

typedef struct corpus_batch {
    const corpus_doc *docs; /* valid until the next call with this batch */
    int64_t n_docs;
    struct corpus_arena *arena; /* owned */
} corpus_batch;

#define CORPUS_EXAMPLES 5
typedef struct corpus_stats {
    uint64_t bytes_read;      /* before unpacking; parts left to other shards count as read */
    uint64_t bytes_total;     /* sum of file sizes; 0 when a pipe is among them */
    uint64_t n_files;         /* read, or being read */
    uint64_t n_skipped_files; /* in folders: no text, no known field, links to nothing */
    uint64_t n_records;       /* JSON records, text units, rows; bad ones too */
    uint64_t n_docs, n_text_bytes;
    uint64_t n_bad_records;
    uint64_t n_replaced;    /* U+FFFD put in for invalid UTF-8 and lone surrogate escapes */
    char replaced_in[256];  /* the first file where that was needed */
    uint64_t n_forced_cuts; /* of text, at places that may change tokens */
    char bad_examples[CORPUS_EXAMPLES][256]; /* "file.jsonl:17: ...", the first few in file order */
    char skipped_examples[CORPUS_EXAMPLES][256];
    uint64_t n_doubtful_files;                    /* counted as text, though records are in them */
    char doubtful_examples[CORPUS_EXAMPLES][256]; /* each names what to do */
} corpus_stats;

typedef struct corpus corpus;

/* sl_corpus_open() : list the files. Missing and unreadable ones are an error here, before any work,
 * and so are files named on their own that hold no text or only JSON without a known field.
 *   paths : [n_paths] files, folders, "-"; each is a domain */
specrt_status sl_corpus_open(const char *const *paths, int n_paths, const corpus_options *options,
                             corpus **out, specrt_error *err);
void sl_corpus_close(corpus *c);

/* sl_corpus_open_memory() : one input in memory, borrowed; `name` serves as its path would. */
specrt_status sl_corpus_open_memory(const char *name, const void *bytes, size_t n,
                                    const corpus_options *options, corpus **out, specrt_error *err);

/* sl_corpus_next() : fill the batch (zero-initialised before first use). n_docs == 0 with OK and
 * *end == true is the end. Thread-safe. After an error every later call returns it: the earliest in
 * the files, whatever the threads. */
specrt_status sl_corpus_next(corpus *c, corpus_batch *batch, bool *end, specrt_error *err);
void sl_corpus_batch_free(corpus_batch *batch);

/* sl_corpus_get_stats() : thread-safe snapshot. */
void sl_corpus_get_stats(corpus *c, corpus_stats *out);

/* sl_corpus_warn() : what was skipped, repaired, cut or is perhaps no text, a line each. */
void sl_corpus_warn(const corpus_stats *stats);

/* sl_corpus_digest() : of all content of a domain after the end, for provenance, added up so that packing and
 * threads do not matter and shards' digests add up: XXH64 of each JSON record, wherever it stands, so that
 * records dealt to files of another number and order have one digest; of text and ids, XXH64 of each batch,
 * seeded with its place. */
uint64_t sl_corpus_digest(corpus *c, int domain);

#endif
