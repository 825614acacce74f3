/* cut.h : cutting text that no splitter cuts. Merging never joins two characters that stand side
 * by side in no token, so between them a piece may end without changing any id; words then repeat
 * and the cache knows them. */
#ifndef TOKENIZER_CUT_H
#define TOKENIZER_CUT_H

#include "tokenizer/tokenizer_impl.h"

/* sl_tok_cut_use() : let a tokenizer without a splitter cut text so, where that is sound. After
 * sl_tok_index(). */
specrt_status sl_tok_cut_use(tokenizer *tok, specrt_error *err);

#endif
