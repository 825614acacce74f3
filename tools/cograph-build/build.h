/* build.h : what the files of cograph-build share: the parsed command line, the graph, and one prototype
 * group per file. */
#ifndef COGRAPH_BUILD_H
#define COGRAPH_BUILD_H

#include "cli.h"
#include "corpus.h"
#include "graph.h"
#include "pairs.h"
#include "shard.h"
#include "tokenizer.h"

/* ---- options.c ---- */

typedef struct build_options {
    cli_common common;
    const char *tokenizer; /* NULL with --merge alone; "none": the corpus holds ids */
    cli_list corpus, merge;
    const char *messages, *field;
    bool strict;
    int64_t id_bytes, n_vocab;
    const char *breaks; /* ids that no pair spans, of --tokenizer none */
    graph_rule rule;
    int64_t memory_mib;
    const char *temp; /* folder; NULL: that of the output */
    const char *shard;
    struct shard part; /* of it, and of MPI ranks */
    const char *counts_out;
} build_options;

/* options_parse() : @return -1 to go on, else the exit code. */
int options_parse(build_options *o, int argc, char **argv);
void options_free(build_options *o);

/* ---- count.c ---- */

/* count_pairs() : add what the corpus holds to the store and the header's tallies, on all threads.
 *   tok  : NULL: the corpus holds ids
 *   skip : u8 [n_vocab] ids that no pair spans */
specrt_status count_pairs(const build_options *o, const tokenizer *tok, const uint8_t *skip,
                          pairs *p, pairs_header *header, corpus_stats *stats, specrt_error *err);

/* ---- report.c ---- */

typedef struct build {
    const build_options *options;
    pairs_header header;
    graph graph; /* empty when none was asked for */
    corpus_stats stats;
    double seconds, seconds_counting;
} build;

void report_table(const build *b, FILE *out);
/* report_json() : the --json object; report_provenance() : for the bundle. Owned; NULL: no memory. */
char *report_json(const build *b);
char *report_provenance(const build *b);

#endif
