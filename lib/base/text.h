/* text.h : numbers and tokens for people to read. */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* text_count() : "6,787,530", in one of several static buffers by turns (enough for one printf). */
const char *text_count(uint64_t n);

/* Names in files may hold anything. What a terminal would obey (escapes and other controls), what misleads
 * a reader (line separators, changes of direction) and bytes that are no UTF-8 are shown as '?'.
 *
 * text_clean() : so, in place.
 * text_name() : a clean copy in one of several static buffers by turns, a long one cut and ended by "...". */
void text_clean(char *text);
const char *text_name(const char *name);

/* text_columns() : how wide a terminal shows the text, clean. */
int text_columns(const char *text);

/* text_pad(), text_pad_left() : print it clean in exactly so many columns, cut or filled with spaces behind
 * it or before it. */
void text_pad(const char *text, int n_columns, FILE *out);
void text_pad_left(const char *text, int n_columns, FILE *out);

/* text_lines() : print the text with every line of it clean. */
void text_lines(const char *text, FILE *out);

/* text_token() : a token's bytes as one visible line of UTF-8: spaces as U+2423, what text_clean() takes
 * away as \n, \t, \xHH.
 *   out : at least 5 * n + 1 bytes */
void text_token(const uint8_t *bytes, size_t n, char *out);

#endif
