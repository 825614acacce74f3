/* counts.h : token counts by domain and fold, in memory and as mergeable text files.
 *
 * Merging adds, so it is exact, commutative and associative: a file merged from shards has the same
 * bytes as one made in one go. Everything a bundle needs is in the file, so the merging machine
 * needs neither tokenizer nor corpus. Fields are separated by tabs:
 *
 *     #specrt-counts  2
 *     #tokenizer      SHA256  N_VOCAB  N_NORMAL  NAME      all zeros: ids of no known tokenizer
 *     #terminators    128001,128008-128009                 ids by type, normal ones are not listed
 *     #special        128000
 *     #reserved       128002-128007
 *     #options        messages=assistant folds=10 seed=1   with by=language, domains are NAME/SCRIPT
 *     #domain         PROVENANCE  N_DOCS  N_BYTES  COMPLETIONS  DIGEST  NAME
 *     ID              N_0  N_1 ...                         counts by fold, zeros at the end left out;
 *                                                          ascending ids of the domain above
 *     #end            N_LINES  SUM                         SUM of all numbers of these lines
 *
 * A record's fold is a function of its content and the seed. Each of the K folds (folds=K) can be held
 * out from the others. Version 1 is read too: its options have holdout=F in place of folds=K, its lines
 * CALIBRATION and HOLDOUT counts, which are read as two folds of which only the second is held out, and
 * #domain has COMPLETIONS for each. Both versions are added only to counts of equal options.
 *
 * Domains are sorted by name. Files may be concatenated, and be .gz or .zst. */
#ifndef COUNTS_H
#define COUNTS_H

#include <stdbool.h>
#include <stdint.h>
#include "base/io.h"
#include "specrt.h"
#include "tokenizer/tokenizer.h"

enum { COUNTS_MAX_VOCAB = 1 << 21, COUNTS_MAX_DOMAINS = 4096, COUNTS_MAX_FOLDS = 20 };

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
    int32_t id, fold;
    uint64_t n; /* above 0 */
} counts_row;

typedef struct counts_domain {
    char *name;          /* owned; no control characters */
    char provenance[16]; /* "raw", "target" or "draft": who wrote the text */
    counts_row
        *rows; /* [n_rows] by ascending id and fold, owned; completions' terminators excluded */
    int32_t n_rows;
    uint64_t n_tokens;        /* sum of the rows */
    uint64_t n_completions;   /* each ends with one terminator */
    uint64_t n_docs, n_bytes; /* n_bytes: of text, or of ids */
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

/* sl_counts_decay() : multiply all counts of tokens by `share`, above 0 and at most 1, rounded; what rounds
 * to none goes. Tallies of documents and bytes stay: they say what was read. */
void sl_counts_decay(counts *c, double share);

specrt_status sl_counts_write(const counts *c, out_file *out, specrt_error *err);

/* Counted by language, what a domain's documents in one script add up to is a domain of its own,
 * NAME/SCRIPT. NAME itself has the digest and no documents. */
#define COUNTS_BY_LANGUAGE   " by=language"
#define COUNTS_LANGUAGE_MARK "/"

/* sl_counts_language() : the script of a domain; NULL where counts are not by language, or of NAME itself. */
const char *sl_counts_language(const counts *c, const counts_domain *d);

/* Which part of the text is ranked and tested, as #options says it. */
#define COUNTS_FOLDS " folds="

/* sl_counts_n_folds() : from 1 (nothing is held out) to COUNTS_MAX_FOLDS; 2 for counts of version 1. */
int sl_counts_n_folds(const counts *c);

/* sl_counts_holds_out() : whether a fold is tested by a list of the others. */
bool sl_counts_holds_out(const counts *c, int fold);

/* sl_counts_n_tokens() : over all domains and folds. */
uint64_t sl_counts_n_tokens(const counts *c);

#endif
