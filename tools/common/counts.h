/* counts.h : token counts by domain, in memory and as mergeable text files.
 *
 * A count file is UTF-8 text: a header line "#specrt-counts 1", "#tokenizer SHA256 N_VOCAB NAME", a line per
 * domain, then "domain<TAB>split<TAB>id<TAB>count" sorted by domain, split and id, and a closing "#end N"
 * that tells a cut file. Several may be concatenated. Merging adds, so it is exact, commutative and
 * associative; a merged file has the same bytes as one made in one go. */
#ifndef COUNTS_H
#define COUNTS_H

#include <stdbool.h>
#include <stdint.h>
#include "io.h"
#include "specrt.h"

typedef struct counts_domain {
    char *name; /* owned */
    double weight;
    uint64_t *calibration, *holdout; /* [n_vocab] */
    uint64_t n_calibration, n_holdout; /* their sums, terminators of completions excluded */
    uint64_t n_docs, n_bytes;        /* text bytes */
    uint64_t n_completions;          /* terminator occurrences, by calibration and hold-out together */
} counts_domain;

typedef struct counts {
    uint8_t tokenizer_sha256[32];
    char tokenizer_name[64];
    int32_t n_vocab;
    counts_domain *domains;
    int n_domains;
} counts;

specrt_status counts_add_domain(counts *c, const char *name, int *index, specrt_error *err);
void counts_free(counts *c);
specrt_status counts_read_merge(counts *c, const char *path, specrt_error *err); /* adds */
specrt_status counts_write(const counts *c, out_file *out, specrt_error *err);

#endif
