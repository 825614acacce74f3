/* spelling.h : what token spellings in vocabulary files stand for: the byte-level alphabet,
 * U+2581, <0x0A>, placeholders, ends of text. Shared by the loaders. */
#ifndef TOKENIZER_SPELLING_H
#define TOKENIZER_SPELLING_H

#include "tokenizer/tokenizer_impl.h"

/* How a vocabulary spells the bytes of its normal tokens. */
typedef enum tok_spelling {
    TOK_SPELL_PLAIN,      /* as they are */
    TOK_SPELL_BYTE_LEVEL, /* GPT-2's alphabet: one printable character for each byte */
    TOK_SPELL_SPACES,     /* U+2581 for a space */
} tok_spelling;

/* sl_tok_unspell() : the bytes that `text` [n] spells.
 *   out : [n]
 * @return how many; 0 when no text is tokenised to it (empty, or a character that cannot occur). */
size_t sl_tok_unspell(tok_spelling spelling, const char *text, size_t n, uint8_t *out);

/* sl_tok_byte_token() : 0..255 of "<0x00>".."<0xFF>"; -1: something else. */
int sl_tok_byte_token(const char *text, size_t n);

/* sl_tok_special_type() : TOKEN_RESERVED for a placeholder's name ("<unused12>", "[PAD7]",
 * "<|reserved_special_token_3|>"), else TOKEN_SPECIAL. */
token_type sl_tok_special_type(const char *text, size_t n);

/* sl_tok_add_named_terminators() : specials whose name says that text ends. After the last token. */
specrt_status sl_tok_add_named_terminators(tokenizer *tok, specrt_error *err);

#endif
