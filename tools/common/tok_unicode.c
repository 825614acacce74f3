/* tok_unicode.c : compiles utf8proc's categories into the splitters' class table. */
#include "tok_unicode.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define PLANES_END 0x40000 /* planes 4 to 13 are unassigned, 15 and 16 private: no property */
#define TAGS_BEGIN 0xE0000
#define TAGS_END   0xE1000
#define N_BLOCKS   (0x110000 / UC_BLOCK)

static bool is_white_space(uint32_t cp) {
    return (cp >= 0x09 && cp <= 0x0D) || cp == 0x20 || cp == 0x85 || cp == 0xA0 || cp == 0x1680 ||
           (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 || cp == 0x202F ||
           cp == 0x205F || cp == 0x3000;
}

static unsigned category_class(utf8proc_category_t category) {
    switch (category) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT: return UC_LETTER | UC_UPPER;
    case UTF8PROC_CATEGORY_LL: return UC_LETTER | UC_LOWER;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return UC_LETTER | UC_UPPER | UC_LOWER;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME: return UC_MARK | UC_UPPER | UC_LOWER;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return UC_NUMBER;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO: return UC_PUNCT;
    default: return 0;
    }
}

/* What composition can touch: a character that NFC replaces, one with a combining class, and the
 * second half of any composition. The last is marked when its composite comes by, so it is set in
 * classes[] rather than returned. */
static void mark_unstable(uint32_t cp, uint16_t *classes) {
    const utf8proc_property_t *property = utf8proc_get_property((utf8proc_int32_t)cp);
    bool hangul = cp >= 0xAC00 && cp < 0xD7A4;
    if (property->combining_class) classes[cp] |= UC_UNSTABLE;
    if (!hangul && (property->decomp_type || property->decomp_seqindex == UINT16_MAX)) return;
    utf8proc_int32_t parts[8];
    utf8proc_ssize_t n =
        utf8proc_decompose_char((utf8proc_int32_t)cp, parts, 8, UTF8PROC_DECOMPOSE, NULL);
    if (n < 1 || n > 8) return;
    uint32_t last = (uint32_t)parts[n - 1];
    n = utf8proc_normalize_utf32(parts, n, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    if (n == 1 && (uint32_t)parts[0] == cp)
        classes[last] |= UC_UNSTABLE;
    else
        classes[cp] |= UC_UNSTABLE;
}

static void fill_range(uint16_t *classes, uint32_t begin, uint32_t end) {
    for (uint32_t cp = begin; cp < end; cp++) {
        unsigned c = category_class(utf8proc_category((utf8proc_int32_t)cp));
        if (is_white_space(cp)) c |= UC_SPACE;
        if (cp == '\n' || cp == '\r') c |= UC_NEWLINE;
        classes[cp] |= (uint16_t)c;
        mark_unstable(cp, classes);
    }
}

/* Blocks are shared where equal: about 300 of 4,352 differ. */
static bool share_blocks(tok_unicode *table, const uint16_t *classes) {
    table->blocks = malloc(N_BLOCKS * sizeof *table->blocks);
    if (!table->blocks) return false;
    uint16_t n = 0;
    for (uint32_t b = 0; b < N_BLOCKS; b++) {
        const uint16_t *block = classes + b * UC_BLOCK;
        uint16_t i = 0;
        while (i < n && memcmp(table->blocks[i], block, sizeof table->blocks[0])) i++;
        if (i == n) memcpy(table->blocks[n++], block, sizeof table->blocks[0]);
        table->block_of[b] = i;
    }
    return true;
}

tok_unicode *tok_unicode_new(void) {
    tok_unicode *table = calloc(1, sizeof *table);
    uint16_t *classes = calloc(0x110000, sizeof *classes);
    bool ok = table && classes;
    if (ok) {
        fill_range(classes, 0, PLANES_END);
        fill_range(classes, TAGS_BEGIN, TAGS_END);
        ok = share_blocks(table, classes);
    }
    free(classes);
    if (ok) return table;
    tok_unicode_free(table);
    return NULL;
}

void tok_unicode_free(tok_unicode *table) {
    if (!table) return;
    free(table->blocks);
    free(table);
}
