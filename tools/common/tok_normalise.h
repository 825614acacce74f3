/* tok_normalise.h : what some tokenizers do to text before they split it. */
#ifndef TOK_NORMALISE_H
#define TOK_NORMALISE_H

#include "tokenizer_impl.h"

typedef struct tok_text {
    uint8_t *bytes;
    size_t n, capacity;
} tok_text;

/* Work space of one worker; zero-initialise. */
typedef struct tok_normaliser {
    tok_text spaced, composed;
    int32_t *points; /* of one run under NFC: decomposed, then sorted */
    size_t points_capacity;
} tok_normaliser;

/* tok_normalise() : NFC, U+2581 as a space, a space in front, as the tokenizer asks.
 *   text, n : in: the segment; out: the same, or a view of the work space when anything changed
 *   first   : the segment begins the document
 * @return false when memory ran out. */
bool tok_normalise(const tokenizer *tok, tok_normaliser *work, bool first, const uint8_t **text,
                   size_t *n);

void tok_normaliser_free(tok_normaliser *work);

#endif
