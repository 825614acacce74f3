/* utf8.h : validation and repair exactly as Python's bytes.decode("utf-8", errors="replace"). */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* sl_utf8_valid() : length of the longest valid prefix; n when all is valid. */
size_t sl_utf8_valid(const char *text, size_t n);

/* sl_utf8_repair() : copy with every maximal ill-formed subpart replaced by one U+FFFD.
 *   out : at least 3 * n bytes
 * @return bytes written; *n_replaced += replacements. */
size_t sl_utf8_repair(const char *text, size_t n, char *out, uint64_t *n_replaced);

/* sl_utf8_mark() : bytes of the byte order mark that editors on Windows put first: 3, or 0. */
size_t sl_utf8_mark(const void *text, size_t n);

/* utf8_next() : decode one code point of valid text at p < end; *len = its bytes, 1..4. */
static inline uint32_t utf8_next(const uint8_t *p, int *len) {
    if (p[0] < 0x80) return *len = 1, p[0];
    if (p[0] < 0xE0) return *len = 2, (p[0] & 0x1Fu) << 6 | (p[1] & 0x3Fu);
    if (p[0] < 0xF0) return *len = 3, (p[0] & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu);
    return *len = 4,
           (p[0] & 0x07u) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu);
}

#endif
