/* shard.h : which part of a corpus a process reads: --shard I/N, or its rank in a scheduler. */
#ifndef BASE_SHARD_H
#define BASE_SHARD_H

#include <stdbool.h>
#include <stdint.h>

/* Part `index` of `n`; 0 of 1 is all. */
typedef struct shard {
    int64_t index, n;
} shard;

/* sl_shard_parse() : "I/N" with 0 <= I < N. @return -1, or the exit code of a usage error. */
int sl_shard_parse(const char *text, shard *out);

/* sl_shard_choose() : the part of this process: what --shard says, or the scheduler, split among MPI ranks. A
 * task that writes counts alone means its share, any other all of the corpus.
 *   text       : of --shard; NULL: not given
 *   has_corpus : there is something to share
 *   what       : "outputs", which a warning says hold one shard alone
 * @return as above. */
int sl_shard_choose(const char *text, bool counts_only, bool has_corpus, const char *what,
                    shard *out);

#endif
