/* missing.h : inputs that are not there, with the command that brings them. */
#ifndef BASE_MISSING_H
#define BASE_MISSING_H

#include "specrt.h"

/* sl_missing() : the error of a model, tokenizer or folder that cannot be opened, by errno. A path of the
 * form of a name on the Hugging Face hub (ORG/NAME, and no folder ORG is there) comes with the command that
 * downloads it.
 * @return IO */
specrt_status sl_missing(const char *path, specrt_error *err);

#endif
