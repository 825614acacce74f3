/* vocab_groups.h : draft vocabularies of whole groups of ids, for engines that cannot take single rows.
 *
 * EXL3 transforms 128 output rows together and stores 16 to a block. exllamav3 drafts with a list of blocks
 * that make up whole groups. */
#ifndef MODEL_VOCAB_GROUPS_H
#define MODEL_VOCAB_GROUPS_H

#include "model/token_map.h"

enum { VOCAB_GROUP = 128, VOCAB_BLOCK = 16 }; /* ids */

/* sl_vocab_groups() : the ids of at most `size` (0: the calibrated size) in whole groups, ascending: groups
 * with forced ids first, then those whose ids were counted most, ties to the lower.
 *   n_vocab : rows of the head; a last group that is not whole is left out
 * @return BAD_ARG for a size below that of the groups with forced ids. */
specrt_status sl_vocab_groups(const specrt_ranks *ranks, int32_t size, int32_t n_vocab,
                              token_map *out, specrt_error *err);

/* sl_vocab_groups_whole() : whether ids [n], ascending, are whole groups. */
bool sl_vocab_groups_whole(const int32_t *ids, int32_t n);

#endif
