/* build.h : what the files of cograph-build share: the parsed command line, the graph, and one prototype
 * group per file. */
#ifndef COGRAPH_BUILD_BUILD_H
#define COGRAPH_BUILD_BUILD_H

#include "base/cli.h"
#include "corpus/corpus.h"
#include "graph.h"
#include "counts/pairs.h"
#include "base/shard.h"
#include "tokenizer/tokenizer.h"

/* ---- options.c ---- */

typedef struct cograph_options {
    cli_common common;
    const char *tokenizer; /* NULL with --merge alone; "none": the corpus holds ids */
    cli_list corpus, merge;
    const char *messages, *field, *exclude, *format;
    bool strict;
    int64_t id_bytes, n_vocab;
    const char *breaks; /* ids that no pair spans, of --tokenizer none */
    graph_rule rule;
    int64_t memory_mib;
    const char *temp; /* folder; NULL: that of the output */
    const char *shard;
    struct shard part; /* of it, and of MPI ranks */
    const char *counts_out;
} cograph_options;

/* cograph_options_parse() : @return -1 to go on, else the exit code. */
int cograph_options_parse(cograph_options *o, int argc, char **argv);
void cograph_options_free(cograph_options *o);

/* ---- count.c ---- */

/* count_pairs() : add what the corpus holds to the store and the header's tallies, on all threads.
 *   tok  : NULL: the corpus holds ids
 *   skip : u8 [n_vocab] ids that no pair spans */
specrt_status count_pairs(const cograph_options *o, const tokenizer *tok, const uint8_t *skip,
                          pairs *p, pairs_header *header, corpus_stats *stats, specrt_error *err);

/* ---- report.c ---- */

typedef struct cograph_build {
    const cograph_options *options;
    pairs_header header;
    graph graph; /* empty when none was asked for */
    corpus_stats stats;
    double seconds, seconds_counting;
} cograph_build;

void cograph_report_table(const cograph_build *b, FILE *out);
/* cograph_report_json() : the --json object; cograph_report_provenance() : for the bundle. Owned; NULL: no
 * memory. */
char *cograph_report_json(const cograph_build *b);
char *cograph_report_provenance(const cograph_build *b);

#endif
