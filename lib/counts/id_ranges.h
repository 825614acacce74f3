/* id_ranges.h : token ids in a flag: 5,7-9, or a file of such. */
#ifndef COUNTS_ID_RANGES_H
#define COUNTS_ID_RANGES_H

#include "tokenizer/tokenizer.h"

/* sl_id_ranges_read() : the ids of a list, or of the file it names, ascending and distinct.
 *   flag : "--keep", for messages
 *   out  : owned; free(out->ids)
 * @return BAD_ARG for a bad list, BAD_INPUT for a bad file, IO, NO_MEMORY. */
specrt_status sl_id_ranges_read(const char *flag, const char *text, int32_t n_vocab, id_list *out,
                                specrt_error *err);

#endif
