/* shard.h : which part of a corpus a process reads: --shard I/N, or its rank in a scheduler. */
#ifndef SHARD_H
#define SHARD_H

#include <stdint.h>

/* Part `index` of `n`; 0 of 1 is all. */
typedef struct shard {
    int64_t index, n;
} shard;

/* shard_parse() : "I/N" with 0 <= I < N. @return -1, or the exit code of a usage error. */
int shard_parse(const char *text, shard *out);

/* shard_from_scheduler() : by the rank variables of Slurm, Open MPI and PMI, with a line that says so;
 * unchanged where there are none. @return as above. */
int shard_from_scheduler(shard *out);

#endif
