/* normalise.h : what some tokenizers do to text before they split it. */
#ifndef TOKENIZER_NORMALISE_H
#define TOKENIZER_NORMALISE_H

#include "tokenizer/tokenizer_impl.h"

typedef struct tok_text {
    uint8_t *bytes;
    size_t n, capacity;
} tok_text;

/* Work space of one worker; zero-initialise. */
typedef struct tok_normaliser {
    bool no_prefix; /* the segment goes on where another ended */
    tok_text buffers[2], prefixed;
    int32_t *points; /* of one run in a Unicode form: decomposed, then sorted */
    size_t points_capacity;
} tok_normaliser;

/* sl_tok_normalise() : the tokenizer's normalisation steps, its prefix if that is always put, U+2581
 * as a space.
 *   text, n : in: a segment; out: the same, or a view of the work space when anything changed
 * @return false when memory ran out. */
bool sl_tok_normalise(const tokenizer *tok, tok_normaliser *work, const uint8_t **text, size_t *n);

/* sl_tok_prefix_missing() : a space in front of normalised text, where the tokenizer asks for one that
 * is missing.
 *   first : the text begins the document */
bool sl_tok_prefix_missing(const tokenizer *tok, tok_normaliser *work, bool first,
                           const uint8_t **text, size_t *n);

void sl_tok_normaliser_free(tok_normaliser *work);

#endif
