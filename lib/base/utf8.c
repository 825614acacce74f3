/* utf8.c : well-formedness by the table of the Unicode standard (3-7), with a word-wise path for
 * ASCII. */
#include "base/utf8.h"
#include <stdbool.h>
#include <string.h>

#define HIGH_BITS UINT64_C(0x8080808080808080)

/* ascii_run() : length of a prefix that is ASCII; stops within 8 bytes of the first other byte. */
static size_t ascii_run(const uint8_t *p, size_t n) {
    size_t i = 0;
    uint64_t w[8];
    for (; n - i >= sizeof w; i += sizeof w) {
        memcpy(w, p + i, sizeof w);
        if ((w[0] | w[1] | w[2] | w[3] | w[4] | w[5] | w[6] | w[7]) & HIGH_BITS) break;
    }
    for (; n - i >= sizeof w[0]; i += sizeof w[0]) {
        memcpy(w, p + i, sizeof w[0]);
        if (w[0] & HIGH_BITS) break;
    }
    return i;
}

static bool continues(uint8_t byte) {
    return (byte & 0xC0) == 0x80;
}

/* The second byte of a sequence has a narrower range after E0, ED, F0 and F4: no overlong forms, no
 * surrogates, nothing above U+10FFFF. */
static bool second_fits(uint8_t lead, uint8_t byte) {
    switch (lead) {
    case 0xE0: return byte >= 0xA0 && byte <= 0xBF;
    case 0xED: return byte >= 0x80 && byte <= 0x9F;
    case 0xF0: return byte >= 0x90 && byte <= 0xBF;
    case 0xF4: return byte >= 0x80 && byte <= 0x8F;
    default: return continues(byte);
    }
}

/* sequence() : bytes of the sequence at p[0..n), n > 0; *whole tells a well-formed one from a
 * maximal ill-formed subpart. */
static size_t sequence(const uint8_t *p, size_t n, bool *whole) {
    size_t need = p[0] < 0x80   ? 1
                  : p[0] < 0xC2 ? 0
                  : p[0] < 0xE0 ? 2
                  : p[0] < 0xF0 ? 3
                  : p[0] < 0xF5 ? 4
                                : 0;
    *whole = false;
    if (need == 0) return 1;
    size_t have = 1;
    if (have < need && n > 1 && second_fits(p[0], p[1])) {
        have = 2;
        while (have < need && have < n && continues(p[have])) have++;
    }
    *whole = have == need;
    return have;
}

/* three_byte_run() : length of a prefix of plain 3-byte sequences (CJK and most of the rest of the
 * plane); E0 and ED are left to sequence(). */
static size_t three_byte_run(const uint8_t *p, size_t n) {
    size_t i = 0;
    while (n - i >= 3 && (p[i] & 0xF0) == 0xE0 && p[i] != 0xE0 && p[i] != 0xED &&
           continues(p[i + 1]) && continues(p[i + 2]))
        i += 3;
    return i;
}

size_t sl_utf8_valid(const char *text, size_t n) {
    const uint8_t *p = (const uint8_t *)text;
    size_t i = 0;
    while (i < n) {
        if (p[i] < 0x80) {
            size_t run = ascii_run(p + i, n - i);
            i += run ? run : 1;
            continue;
        }
        size_t run = three_byte_run(p + i, n - i);
        if (run == 0) {
            bool whole;
            run = sequence(p + i, n - i, &whole);
            if (!whole) return i;
        }
        i += run;
    }
    return n;
}

size_t sl_utf8_repair(const char *text, size_t n, char *out, uint64_t *n_replaced) {
    size_t i = 0, at = 0;
    while (i < n) {
        size_t good = sl_utf8_valid(text + i, n - i);
        memcpy(out + at, text + i, good);
        i += good, at += good;
        if (i == n) break;
        bool whole;
        i += sequence((const uint8_t *)text + i, n - i, &whole);
        memcpy(out + at, "\xEF\xBF\xBD", 3);
        at += 3;
        ++*n_replaced;
    }
    return at;
}

size_t sl_utf8_mark(const void *text, size_t n) {
    return n >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
}
