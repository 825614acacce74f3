/* counts.h : token counts by domain and split, in memory and as mergeable text files.
 *
 * Merging adds, so it is exact, commutative and associative: a file merged from shards has the same
 * bytes as one made in one go. Everything a bundle needs is in the file, so the merging machine
 * needs neither tokenizer nor corpus. Fields are separated by tabs:
 *
 *     #specrt-counts  1
 *     #tokenizer      SHA256  N_VOCAB  N_NORMAL  NAME      all zeros: ids of no known tokenizer
 *     #terminators    128001,128008-128009                 ids by type, normal ones are not listed
 *     #special        128000
 *     #reserved       128002-128007
 *     #options        messages=assistant holdout=0.05 seed=1       with by=language, domains are NAME/SCRIPT
 *     #domain         PROVENANCE  N_DOCS  N_BYTES  COMPLETIONS  COMPLETIONS_HOLDOUT  DIGEST  NAME
 *     ID              CALIBRATION  HOLDOUT                 ascending ids of the domain above
 *     #end            N_ROWS  SUM                          SUM of all numbers of all rows
 *
 * Domains are sorted by name. Files may be concatenated, and be .gz or .zst. */
#ifndef COUNTS_H
#define COUNTS_H

#include <stdbool.h>
#include <stdint.h>
#include "base/io.h"
#include "specrt.h"
#include "tokenizer/tokenizer.h"

enum { COUNTS_CALIBRATION, COUNTS_HOLDOUT, COUNTS_SPLITS };
enum { COUNTS_MAX_VOCAB = 1 << 21, COUNTS_MAX_DOMAINS = 4096 };

typedef enum counts_type {
    COUNTS_NORMAL,
    COUNTS_TERMINATOR,
    COUNTS_SPECIAL,
    COUNTS_RESERVED,
} counts_type;

/* The vocabulary the ids belong to. */
typedef struct counts_vocab {
    uint8_t sha256[32];
    char name[64];
    int32_t n_vocab, n_normal;
    uint8_t *types; /* counts_type [n_vocab], owned */
} counts_vocab;

/* sl_counts_vocab_from_tokenizer(), sl_counts_vocab_from_ids() : types is owned (free it either way). Of ids
 * of no known tokenizer all are normal. */
specrt_status sl_counts_vocab_from_tokenizer(const tokenizer *tok, counts_vocab *out,
                                             specrt_error *err);
specrt_status sl_counts_vocab_from_ids(int32_t n_vocab, counts_vocab *out, specrt_error *err);

typedef struct counts_row {
    int32_t id;
    uint64_t n[COUNTS_SPLITS];
} counts_row;

typedef struct counts_domain {
    char *name;          /* owned; no control characters */
    char provenance[16]; /* "raw", "target" or "draft": who wrote the text */
    counts_row *rows;    /* [n_rows] by ascending id, owned; completions' terminators excluded */
    int32_t n_rows;
    uint64_t n_tokens[COUNTS_SPLITS];      /* sums of the rows */
    uint64_t n_completions[COUNTS_SPLITS]; /* each ends with one terminator */
    uint64_t n_docs, n_bytes;              /* n_bytes: of text, or of ids */
    uint64_t digest; /* sum of the documents' hashes: the same for any order, shard and thread */
} counts_domain;

typedef struct counts {
    counts_vocab vocab;
    char options[256];      /* how documents were read and split; equal in all that is merged */
    counts_domain *domains; /* [n_domains] sorted by name, owned */
    int n_domains;
} counts;

void sl_counts_free(counts *c);

/* sl_counts_add() : add rows and tallies to the domain of delta's name, made if new.
 *   delta : borrowed
 * @return BAD_INPUT when the provenance differs or a count overflows. */
specrt_status sl_counts_add(counts *c, const counts_domain *delta, specrt_error *err);

/* sl_counts_read() : add a count file ("-": stdin). The first one read into an all-zero `c` gives it
 * vocabulary and options; what comes later must agree. After an error only sl_counts_free is good. */
specrt_status sl_counts_read(counts *c, const char *path, specrt_error *err);
/* sl_counts_read_memory() : the same over bytes; `name` stands for the path. */
specrt_status sl_counts_read_memory(counts *c, const void *bytes, size_t n, const char *name,
                                    specrt_error *err);

specrt_status sl_counts_write(const counts *c, out_file *out, specrt_error *err);

/* Counted by language, what a domain's documents in one script add up to is a domain of its own,
 * NAME/SCRIPT. NAME itself has the digest and no documents. */
#define COUNTS_BY_LANGUAGE   " by=language"
#define COUNTS_LANGUAGE_MARK "/"

/* sl_counts_language() : the script of a domain; NULL where counts are not by language, or of NAME itself. */
const char *sl_counts_language(const counts *c, const counts_domain *d);

/* sl_counts_n_tokens() : over all domains and both splits. */
uint64_t sl_counts_n_tokens(const counts *c);

#endif
