/* snapshot.h : the numbers of the format of saved sessions */
#ifndef DECODE_SNAPSHOT_H
#define DECODE_SNAPSHOT_H

#include "decode/policy.h"

enum {
    SPECRT__SNAPSHOT_VERSION = 2,  /* 1 did not say where the session stood */
    SPECRT__SNAPSHOT_CHECKED = 24, /* bytes before those that the checksum is of */
    SPECRT__SNAPSHOT_PARTS = SPECRT__POLICY_KINDS,
    SPECRT__SNAPSHOT_LISTS = 3 + 8 * SPECRT__SNAPSHOT_PARTS /* with eight of a source at most */
};

#endif
