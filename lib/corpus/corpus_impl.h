/* corpus_impl.h : the inside of a corpus, for corpus.c and its files only.
 *
 *     paths -> list -> stream (unpacked) -> window -> frame (a batch) -> parse -> documents
 *
 * A batch is a range of one file's content of about CORPUS_BATCH_BYTES. Framing is a function of
 * the content and of absolute offsets alone, so batches, and with them documents, hold-out and
 * digests, do not depend on threads, shards or read sizes. Framing happens under the lock of the
 * corpus for what can only be read in order; plain text, JSON Lines and ids in regular files are
 * framed by the caller's thread, block by block, in any order. Parsing always happens in the
 * caller's thread. */
#ifndef CORPUS_IMPL_H
#define CORPUS_IMPL_H

#include "corpus/corpus.h"
#include "corpus/stream.h"
#include <sys/types.h>

struct json_tokener;

#define CORPUS_HEAD_BYTES  (64u << 10)
#define CORPUS_BATCH_BYTES (1u << 20)
#define CORPUS_UNIT_BYTES  (64u << 10)
/* Longest record or text unit; it bounds the memory of a worker. */
#define CORPUS_CAP_BYTES (64u << 20)
#define CORPUS_MAX_DEPTH 256 /* of nested JSON */

/* ---- stream.c : windows over the content of one input ---- */

/* The content [base, base + n) of a stream. Four bytes of slack follow. */
typedef struct corpus_window {
    char *bytes;
    size_t n, capacity;
    uint64_t base;
    uint64_t n_lines_before; /* newlines before base, counted by sl_corpus_window_drop */
    bool ended;              /* base + n is the end of the content */
} corpus_window;

/* sl_corpus_window_fill() : have the content up to `end`, or all there is. */
specrt_status sl_corpus_window_fill(corpus_window *w, corpus_stream *s, uint64_t end,
                                    specrt_error *err);
void sl_corpus_window_drop(corpus_window *w, uint64_t offset); /* forget what is before it */
void sl_corpus_window_free(corpus_window *w);
uint64_t sl_corpus_count_lines(const char *text, size_t n);

/* ---- kind.c : what a file holds ---- */

typedef enum corpus_kind {
    KIND_TEXT,
    KIND_LINES,  /* a JSON value per line */
    KIND_VALUES, /* JSON values one after another; top-level arrays stand for their elements */
    KIND_IDS     /* .bin, .npy */
} corpus_kind;

typedef struct corpus_format {
    corpus_kind kind;
    const char *refusal; /* why the content cannot be counted; NULL: it can */
    char doubt[160];     /* why it is perhaps no text, and what to do; "": no doubt */
    uint64_t first;      /* offset of the data: after a byte-order mark or a .npy header */
    bool is_signed;      /* ids */
    uint32_t id_bytes;
    uint64_t end;         /* .npy: offset of the end of the data; 0: of the content */
    uint64_t group_bytes; /* ids of one batch */
    uint64_t unit_bytes;  /* ids of one document */
    bool rows;            /* each of them is a document of its own */
} corpus_format;

/* sl_corpus_format_tell() : by the first bytes of the content and the name. */
specrt_status sl_corpus_format_tell(corpus_format *f, const char *name, const char *head, size_t n,
                                    const corpus_options *options, specrt_error *err);

/* sl_corpus_ids_npy() : fills f but for kind. @return BAD_INPUT naming what is wrong or unsupported. */
specrt_status sl_corpus_ids_npy(corpus_format *f, const char *name, const char *head, size_t n,
                                specrt_error *err);

/* ---- list.c : paths to files ---- */

typedef struct corpus_file {
    char *path; /* owned */
    int32_t domain;
    uint32_t ordinal; /* within its domain */
    bool named;       /* on the command line, not found in a folder */
    uint64_t n_bytes; /* raw; 0 for a pipe */
    bool dangling;    /* a link to nothing, found in a folder */
} corpus_file;

typedef struct corpus_list {
    corpus_file *files;
    size_t n;
    const char *exclude; /* as in corpus_options */
    bool has_pipe;
} corpus_list;

specrt_status sl_corpus_list_path(corpus_list *list, const char *path, int32_t domain,
                                  specrt_error *err);
specrt_status sl_corpus_list_add(corpus_list *list, const char *path, int32_t domain, bool named,
                                 uint64_t n_bytes, specrt_error *err);
void sl_corpus_list_free(corpus_list *list);

/* ---- values.c : where JSON values begin and end ---- */

typedef struct corpus_value_span {
    size_t at, n;      /* within the batch */
    const char *fault; /* why it is bad; NULL: parse it */
    size_t fault_at;
} corpus_value_span;

#define RECORD_TOO_LONG "a record longer than 64 MiB"

typedef struct corpus_value_list {
    corpus_value_span *spans;
    size_t n, capacity;
} corpus_value_list;

typedef enum corpus_value_mode { VALUES_SCAN, VALUES_RESYNC, VALUES_SKIP } corpus_value_mode;

/* A resumable scanner over the content; positions are absolute. */
typedef struct corpus_value_scanner {
    uint64_t at;
    bool in_array; /* a top-level array */
    uint64_t array_line;
    corpus_value_mode mode;
    uint64_t line_at; /* top level: where its line begins, and whether only blanks precede */
    bool line_blank;
    uint64_t counted_to, n_lines; /* newlines up to an offset */
    bool open;                    /* inside a value */
    /* of the value being read, or of a broken one while resynchronising */
    uint64_t value_at, fault_line;
    const char *fault;
    size_t indent;
    char opener;
    bool in_string, escaped, in_scalar;
    char last; /* byte that is not white space */
    int depth;
    bool is_object[CORPUS_MAX_DEPTH];
} corpus_value_scanner;

void sl_corpus_values_begin(corpus_value_scanner *v, uint64_t at);

/* sl_corpus_values_frame() : gather the spans of the next batch, [the old v->at, the new v->at); nothing
 * moves at the end of the content.
 * @return BAD_INPUT where a top-level array cannot be followed further. */
specrt_status sl_corpus_values_frame(corpus_value_scanner *v, corpus_window *w, corpus_stream *s,
                                     corpus_value_list *out, specrt_error *err);

specrt_status sl_corpus_values_add(corpus_value_list *list, corpus_value_span span);

/* sl_corpus_record_is_crowded() : so many values that parsing them would take memory out of proportion. */
bool sl_corpus_record_is_crowded(const char *text, size_t n);

/* sl_corpus_lines_are_values() : false if the first line of a .jsonl head leaves a value open. */
bool sl_corpus_lines_are_values(const char *head, size_t n);

/* ---- frame.c : batches by absolute offsets ---- */

/* Content offsets; start == end when nothing begins in the block. */
typedef struct corpus_range {
    uint64_t start, end;
    uint64_t cuts[CORPUS_BATCH_BYTES / CORPUS_UNIT_BYTES + 1]; /* text: where its units begin */
    int n_cuts, n_forced;
} corpus_range;

/* sl_corpus_frame_block() : what begins in block `block`, with the window over all of it. Streams that must
 * be read in order are asked for ascending blocks, none left out. */
specrt_status sl_corpus_frame_block(const corpus_format *f, corpus_window *w, corpus_stream *s,
                                    uint64_t block, corpus_range *out, specrt_error *err);

/* ---- docs.c, record.c, ids.c : documents ---- */

struct corpus_arena {
    corpus_window window; /* the batch's content */
    corpus_value_list values;
    corpus_doc *docs;
    size_t n_docs, docs_capacity;
    struct arena_chunk *chunks; /* text that is not in the window */
    int32_t *ids;
    size_t ids_capacity;
    struct json_tokener *tokener;
    uint64_t n_text_bytes, n_replaced; /* of this batch */
};

void sl_corpus_arena_reset(struct corpus_arena *a);
void sl_corpus_arena_free(struct corpus_arena *a);

/* sl_corpus_arena_add_doc() : append a document; text that is not UTF-8 is repaired.
 *   keep : text stays as long as the batch (else it is copied) */
specrt_status sl_corpus_arena_add_doc(struct corpus_arena *a, const corpus_doc *doc, bool keep);

/* sl_corpus_record_parse() : the documents of one JSON record, text [n]; text[n] may be written, and is
 * restored.
 *   base : domain and unit_hash of the documents
 *   why : what is wrong with it, when BAD_INPUT is returned; then no document was added
 * @return OK, BAD_INPUT, NO_MEMORY. */
specrt_status sl_corpus_record_parse(struct corpus_arena *a, char *text, size_t n,
                                     const corpus_options *options, const corpus_doc *base,
                                     char why[256]);

/* sl_corpus_ids_add() : the documents of a batch of ids, the content range of the arena's window. */
specrt_status sl_corpus_ids_add(struct corpus_arena *a, const corpus_format *f, const char *name,
                                const corpus_range *range, const corpus_options *options,
                                const corpus_doc *base, specrt_error *err);

/* What sl_corpus_record_parse() understands, for messages. */
#define RECORD_SHAPES                                                                              \
    "conversations, messages, output, response, completion, answer, text or content, or --field "  \
    "NAME"

/* ---- file.c : a file being read ---- */

typedef struct corpus_open_file {
    corpus_stream stream;
    corpus_format format;
    size_t index;  /* in the list */
    bool parallel; /* blocks may be framed in any order, by any thread */
    uint64_t n_blocks, next_block;
    corpus_window window; /* unless parallel */
    corpus_value_scanner scanner;
    int refs; /* kept until the last batch taken from it is parsed */
} corpus_open_file;

/* sl_corpus_file_open() : open, tell what it holds, and try its first records.
 *   bytes : content of the file in memory; NULL: read `path`
 *   refusal : [512] why its content cannot be counted, "" if it can; naming the file */
specrt_status sl_corpus_file_open(const char *path, const uint8_t *bytes, size_t n,
                                  const corpus_options *options, corpus_open_file **out,
                                  char refusal[512], specrt_error *err);
void sl_corpus_file_release(corpus_open_file *file); /* frees it with the last reference */

/* sl_corpus_file_frame() : batch `block` into the arena: its content, and its records if it has any. Batches
 * of files that are not parallel come in order; `block` is then file->next_block - 1. */
specrt_status sl_corpus_file_frame(corpus_open_file *file, uint64_t block, struct corpus_arena *a,
                                   corpus_range *range, specrt_error *err);

/* sl_corpus_file_ended() : no batch follows the one just framed in order. */
bool sl_corpus_file_ended(const corpus_open_file *file, const corpus_range *range);
uint64_t sl_corpus_file_position(const corpus_open_file *file); /* raw bytes passed */

/* sl_corpus_file_line() : number of the line that holds a content offset of the batch in the arena. */
uint64_t sl_corpus_file_line(corpus_open_file *file, const struct corpus_arena *a, uint64_t offset);

#endif
