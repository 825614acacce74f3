/* bundle_open.h : the bundle that a program's options name. */
#ifndef FORMATS_BUNDLE_OPEN_H
#define FORMATS_BUNDLE_OPEN_H

#include <stdbool.h>
#include "specrt.h"

/* sl_bundle_open_for() : opens a bundle and checks that it is of a tokenizer.
 *   path : NULL: none, and *out is NULL
 *   sha256 : the tokenizer's fingerprint; all zero: unknown, nothing is compared
 *   out : to be closed, also where the check failed
 * @return as specrt_bundle_open() and specrt_bundle_check_tokenizer() */
specrt_status sl_bundle_open_for(const char *path, const uint8_t sha256[32], specrt_bundle **out,
                                 specrt_error *err);

/* sl_bundle_ends() : whether a bundle's ranks list a token as a terminator, which ends the answers of every
 * policy over it.
 *   bundle : NULL: none does */
bool sl_bundle_ends(const specrt_bundle *bundle, int32_t token);

#endif
