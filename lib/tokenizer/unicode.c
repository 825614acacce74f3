/* unicode.c : compiles utf8proc's categories into the splitters' class table. */
#include "tokenizer/unicode.h"

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

/* `tokenizers` takes punctuation from a table of Unicode 8 and stays there, as tokenizers trained
 * with it must. */
static bool is_mark(uint32_t cp, unsigned class) {
    static const uint32_t newer[][2] = {
        {0x61D, 0x61D},     {0x9FD, 0x9FD},     {0xA76, 0xA76},     {0xC77, 0xC77},
        {0xC84, 0xC84},     {0x1B4E, 0x1B4F},   {0x1B7D, 0x1B7F},   {0x2E43, 0x2E4F},
        {0x2E52, 0x2E5D},   {0x10D6E, 0x10D6E}, {0x10EAD, 0x10EAD}, {0x10F55, 0x10F59},
        {0x10F86, 0x10F89}, {0x113D4, 0x113D5}, {0x113D7, 0x113D8}, {0x1144B, 0x1144F},
        {0x1145A, 0x1145B}, {0x1145D, 0x1145D}, {0x11660, 0x1166C}, {0x116B9, 0x116B9},
        {0x1183B, 0x1183B}, {0x11944, 0x11946}, {0x119E2, 0x119E2}, {0x11A3F, 0x11A46},
        {0x11A9A, 0x11A9C}, {0x11A9E, 0x11AA2}, {0x11B00, 0x11B09}, {0x11BE1, 0x11BE1},
        {0x11C41, 0x11C45}, {0x11C70, 0x11C71}, {0x11EF7, 0x11EF8}, {0x11F43, 0x11F4F},
        {0x11FFF, 0x11FFF}, {0x12FF1, 0x12FF2}, {0x16D6D, 0x16D6F}, {0x16E97, 0x16E9A},
        {0x16FE2, 0x16FE2}, {0x1E5FF, 0x1E5FF}, {0x1E95E, 0x1E95F},
    };
    if (cp < 0x80) return cp > ' ' && cp < 0x7F && !(class & (UC_LETTER | UC_NUMBER));
    if (cp == 0x166D || cp == 0x111C9) return true; /* symbols since */
    for (size_t i = 0; class & UC_PUNCT && i < sizeof newer / sizeof newer[0]; i++)
        if (cp >= newer[i][0] && cp <= newer[i][1]) return false;
    return class & UC_PUNCT;
}

static void fill_range(uint16_t *classes, uint32_t begin, uint32_t end) {
    for (uint32_t cp = begin; cp < end; cp++) {
        unsigned c = category_class(utf8proc_category((utf8proc_int32_t)cp));
        if (is_white_space(cp)) c |= UC_SPACE;
        if (cp == '\n' || cp == '\r') c |= UC_NEWLINE;
        if (is_mark(cp, c)) c |= UC_MARKS;
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

tok_unicode *sl_tok_unicode_new(void) {
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
    sl_tok_unicode_free(table);
    return NULL;
}

void sl_tok_unicode_free(tok_unicode *table) {
    if (!table) return;
    free(table->blocks);
    free(table);
}
