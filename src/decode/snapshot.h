/* snapshot.h :  */
#ifndef DECODE_SNAPSHOT_H
#define DECODE_SNAPSHOT_H

#include "sources/retrieve.h"

enum {
    SPECRT__SNAPSHOT_VERSION = 1,
    SPECRT__SNAPSHOT_HEADER = 104,
    SPECRT__SNAPSHOT_CHECKED = 24, /* bytes before those that the checksum is of */
    SPECRT__SNAPSHOT_EVENTS = SPECRT__RETRIEVE_WARM_UP + 1 /* more are all the same */
};

/* The lists in their order. Those of recency begin with the oldest. */
enum {
    SPECRT__SNAPSHOT_ROWS,   /* packed tokens by slot */
    SPECRT__SNAPSHOT_WINDOW, /* its tokens by recency; of a stream those of a set not appended yet */
    SPECRT__SNAPSHOT_RING,   /* elements of its stream */
    SPECRT__SNAPSHOT_SEED,   /* the target's best at the latest prompt position */
    SPECRT__SNAPSHOT_T1,     /* the cache's lists by recency: T1, T2, B1, B2 */
    SPECRT__SNAPSHOT_T2,
    SPECRT__SNAPSHOT_B1,
    SPECRT__SNAPSHOT_B2,
    SPECRT__SNAPSHOT_AGES,  /* of T1's tokens, then of T2's: cycles since they came in, at most 8 */
    SPECRT__SNAPSHOT_CHAIN, /* tokens of a chain that waits for its last one */
    SPECRT__SNAPSHOT_CHAIN_BEST, /* [n, SPECRT_LOGITS_MAX_K] the target's best there, or none */
    SPECRT__SNAPSHOT_LISTS
};

#endif
