/* text.h : numbers and tokens for people to read. */
#ifndef TEXT_H
#define TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* text_count() : "6,787,530", in one of several static buffers by turns (enough for one printf). */
const char *text_count(uint64_t n);

/* text_columns() : how wide a terminal shows the text. */
int text_columns(const char *text);

/* text_pad() : print it in exactly so many columns, cut or followed by spaces. */
void text_pad(const char *text, int n_columns, FILE *out);

/* text_token() : a token's bytes as one visible line of UTF-8: spaces as U+2423, controls and bytes
 * that are no UTF-8 as \n, \t, \xHH.
 *   out : at least 5 * n + 1 bytes */
void text_token(const uint8_t *bytes, size_t n, char *out);

#endif
