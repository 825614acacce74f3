/* pairs.h : how often one token follows another, exactly, in bounded memory.
 *
 * Every thread gathers tokens in a block, counts the pairs of a full block into a run sorted by (source,
 * successor) and hands the run to the shared store. Runs beyond the store's memory are merged into an
 * unnamed temporary file. Sums are exact, so nothing depends on who counted what. */
#ifndef COUNTS_PAIRS_H
#define COUNTS_PAIRS_H

#include <stdint.h>
#include "counts/counts.h"
#include "base/io.h"
#include "tokenizer/tokenizer.h"

typedef struct pairs pairs;

/* sl_pairs_create() : ids are in [0, n_vocab); 0: as the first count file says.
 *   memory : bytes to stay within, blocks of `threads` counters included; at least PAIRS_MIN_MEMORY
 *   folder : where the temporary file goes, borrowed */
enum { PAIRS_MIN_MEMORY = 32 << 20 };
specrt_status sl_pairs_create(int32_t n_vocab, uint64_t memory, int threads, const char *folder,
                              pairs **out, specrt_error *err);
void sl_pairs_free(pairs *p);

/* sl_pairs_limit() : bytes of runs in memory, instead of a share of `memory`. */
void sl_pairs_limit(pairs *p, uint64_t run_memory);

/* ---- counting, one counter a thread ---- */

typedef struct pairs_counter pairs_counter;

specrt_status sl_pairs_counter_create(pairs *p, pairs_counter **out, specrt_error *err);
void sl_pairs_counter_free(pairs_counter *c);

/* sl_pairs_counter_tokens() : append tokens here; n_vocab is a boundary that no pair spans. */
id_list *sl_pairs_counter_tokens(pairs_counter *c);

/* sl_pairs_counter_check() : call after each document: counts a full block. A boundary must stand before
 * what follows, if the document is not continued. sl_pairs_counter_flush() : counts what is left. */
specrt_status sl_pairs_counter_check(pairs_counter *c, specrt_error *err);
specrt_status sl_pairs_counter_flush(pairs_counter *c, specrt_error *err);

/* ---- the sums ---- */

typedef struct pairs_row {
    int32_t source, n;
    const int32_t *ids;     /* [n] successors, ascending */
    const uint64_t *counts; /* [n] */
} pairs_row;

/* Growable bytes; zero-initialise, free(bytes). */
typedef struct pairs_bytes {
    uint8_t *bytes;
    size_t n, capacity;
} pairs_bytes;

/* sl_pairs_bytes_more() : room for n more, *at is where; false: no memory. The caller adds to out->n. */
bool sl_pairs_bytes_more(pairs_bytes *out, size_t n, uint8_t **at);

/* sl_pairs_each() : every row that has pairs. take() turns rows into bytes, on all threads; put() gets the
 * bytes of ascending ranges of sources, in order, on this thread. The store stays as it is. */
typedef specrt_status pairs_take(void *arg, const pairs_row *row, pairs_bytes *out,
                                 specrt_error *err);
typedef specrt_status pairs_put(void *arg, const void *bytes, size_t n, specrt_error *err);
specrt_status sl_pairs_each(pairs *p, int threads, pairs_take *take, pairs_put *put, void *arg,
                            specrt_error *err);

/* ---- count files: binary, exact, mergeable ----
 * Files of shards add up, in any order, to the bytes of one run. They may be concatenated, .gz or .zst.
 *
 *     0    u8[8]  magic "\x89SPECP\r\n"
 *     8    u32    version 1
 *     12   i32    n_vocab, n_normal
 *     20   u8[32] sha-256 of the tokenizer; zeros: ids of no known one
 *     52   u8[64] its name, NUL-padded
 *     116  u8[256] how documents were read, NUL-padded; equal in all that is merged
 *     372  u64    n_tokens, n_docs, n_bytes, digest
 *     404  rows   by ascending source: varint source, varint n, n times varint successor minus the one
 *                 before (minus -1 for the first), varint count
 *     ...  varint n_vocab, u64 rows, u64 sum of all counts, u64 checksum: XXH64 of the header, then of
 *                 each row with the one before as its seed */

typedef struct pairs_header {
    int32_t n_vocab, n_normal;
    uint8_t sha256[32];
    char name[64], options[256];
    uint64_t n_tokens;        /* in documents; specials excluded */
    uint64_t n_docs, n_bytes; /* of text, or of ids */
    uint64_t digest;          /* sum of the documents' hashes */
} pairs_header;

/* sl_pairs_header_add() : `more` into a header; an all-zero one takes it over.
 * @return BAD_INPUT naming `name` and both sides when tokenizer or options differ. */
specrt_status sl_pairs_header_add(pairs_header *into, const pairs_header *more, const char *name,
                                  specrt_error *err);

/* sl_pairs_read() : add a count file ("-": stdin) to store and header. */
specrt_status sl_pairs_read(pairs *p, pairs_header *header, const char *path, specrt_error *err);
specrt_status sl_pairs_read_memory(pairs *p, pairs_header *header, const void *bytes, size_t n,
                                   const char *name, specrt_error *err);

specrt_status sl_pairs_write(pairs *p, int threads, const pairs_header *header, out_file *out,
                             specrt_error *err);

/* sl_pairs_send(), sl_pairs_receive() : the sums of one MPI rank to another. */
specrt_status sl_pairs_send(pairs *p, int to, specrt_error *err);
specrt_status sl_pairs_receive(pairs *p, int from, specrt_error *err);

#endif
