/* text.h : numbers and tokens for people to read. */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* sl_text_count() : "6,787,530", in one of several static buffers by turns (enough for one printf). */
const char *sl_text_count(uint64_t n);

/* sl_text_number() : print a space, and a number at the right of so many columns; "-" for NaN. */
void sl_text_number(double x, int width, int digits);

/* Names in files may hold anything. What a terminal would obey (escapes and other controls), what misleads
 * a reader (line separators, changes of direction) and bytes that are no UTF-8 are shown as '?'.
 *
 * sl_text_clean() : so, in place.
 * sl_text_name() : a clean copy in one of several static buffers by turns, a long one cut and ended by
 * "...". */
void sl_text_clean(char *text);
const char *sl_text_name(const char *name);

/* sl_text_columns() : how wide a terminal shows the text, clean. */
int sl_text_columns(const char *text);

/* sl_text_pad(), sl_text_pad_left() : print it clean in exactly so many columns, cut or filled with spaces
 * behind it or before it. */
void sl_text_pad(const char *text, int n_columns, FILE *out);
void sl_text_pad_left(const char *text, int n_columns, FILE *out);

/* sl_text_lines() : print the text with every line of it clean. */
void sl_text_lines(const char *text, FILE *out);

/* sl_text_token() : a token's bytes as one visible line of UTF-8: spaces as U+2423, what sl_text_clean()
 * takes away as \n, \t, \xHH.
 *   out : at least 5 * n + 1 bytes */
void sl_text_token(const uint8_t *bytes, size_t n, char *out);

#endif
