/* script.c : one regex with a group for each script, anchored where a byte is not ASCII. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "corpus/script.h"

#include <pcre2.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/error.h"

enum { LATIN, HAN, JAPANESE };

static const struct {
    const char *name, *letters;
} scripts[N_SCRIPTS] = {
    {"Latin", "[\\p{Latin}]+"},
    {"Han", "[\\p{Han}]+"},
    {"Japanese", "[\\p{Hiragana}\\p{Katakana}]+"},
    {"Cyrillic", "[\\p{Cyrillic}]+"},
    {"Hangul", "[\\p{Hangul}]+"},
    {"Arabic", "[\\p{Arabic}]+"},
    {"Hebrew", "[\\p{Hebrew}]+"},
    {"Greek", "[\\p{Greek}]+"},
    {"Devanagari", "[\\p{Devanagari}]+"},
    {"Bengali", "[\\p{Bengali}]+"},
    {"Gurmukhi", "[\\p{Gurmukhi}]+"},
    {"Gujarati", "[\\p{Gujarati}]+"},
    {"Tamil", "[\\p{Tamil}]+"},
    {"Telugu", "[\\p{Telugu}]+"},
    {"Kannada", "[\\p{Kannada}]+"},
    {"Malayalam", "[\\p{Malayalam}]+"},
    {"Sinhala", "[\\p{Sinhala}]+"},
    {"Thai", "[\\p{Thai}]+"},
    {"Lao", "[\\p{Lao}]+"},
    {"Khmer", "[\\p{Khmer}]+"},
    {"Myanmar", "[\\p{Myanmar}]+"},
    {"Georgian", "[\\p{Georgian}]+"},
    {"Armenian", "[\\p{Armenian}]+"},
    {"Ethiopic", "[\\p{Ethiopic}]+"},
    {"Tibetan", "[\\p{Tibetan}]+"},
    {"other", "\\p{L}"}, /* tried last, a letter at a time */
    {"none", NULL},
};

struct script_finder {
    pcre2_code *code;
    pcre2_match_data *match;
};

const char *sl_script_name(int script) {
    return scripts[script].name;
}

static pcre2_code *compile(void) {
    char pattern[1024];
    int n = 0, code;
    PCRE2_SIZE offset;
    for (int i = 0; scripts[i].letters; i++)
        n += snprintf(pattern + n, sizeof pattern - (size_t)n, "%s(%s)", i ? "|" : "",
                      scripts[i].letters);
    return pcre2_compile((PCRE2_SPTR)pattern, (size_t)n, PCRE2_UTF | PCRE2_ANCHORED, &code, &offset,
                         NULL);
}

specrt_status sl_script_finder_new(script_finder **out, specrt_error *err) {
    script_finder *f = (script_finder *)calloc(1, sizeof *f);
    *out = f;
    if (!f) return sl_error_no_memory(err, NULL);
    f->code = compile();
    f->match = pcre2_match_data_create(N_SCRIPTS, NULL);
    if (!f->code || !f->match) return sl_error_no_memory(err, NULL);
    pcre2_jit_compile(f->code, PCRE2_JIT_COMPLETE); /* without it slower, and the same */
    return SPECRT_STATUS_OK;
}

void sl_script_finder_free(script_finder *f) {
    if (!f) return;
    pcre2_match_data_free(f->match);
    pcre2_code_free(f->code);
    free(f);
}

static bool is_ascii_letter(uint8_t c) {
    return (uint8_t)((c | 0x20) - 'a') < 26;
}

/* Bytes of letters from text[p], which is not ASCII, in *script; or of the one character there that is no
 * letter, with -1. */
static size_t run_at(script_finder *f, const uint8_t *text, size_t n, size_t p, int *script) {
    int groups = pcre2_match(f->code, text, n, p, PCRE2_NO_UTF_CHECK, f->match, NULL);
    *script = groups > 1 ? groups - 2 : -1;
    if (groups > 1) return pcre2_get_ovector_pointer(f->match)[1] - p;
    size_t length = 1;
    while (p + length < n && (text[p + length] & 0xC0) == 0x80) length++;
    return length;
}

static void count_letters(script_finder *f, const uint8_t *text, size_t n,
                          uint64_t bytes[N_SCRIPTS]) {
    for (size_t p = 0; p < n;) {
        if (text[p] < 0x80) {
            bytes[LATIN] += is_ascii_letter(text[p++]);
            continue;
        }
        int script;
        size_t length = run_at(f, text, n, p, &script);
        if (script >= 0) bytes[script] += length;
        p += length;
    }
}

int sl_script_of(script_finder *f, const char *text, size_t n) {
    uint64_t bytes[N_SCRIPTS] = {0};
    count_letters(f, (const uint8_t *)text, n, bytes);
    uint64_t east = bytes[HAN] + bytes[JAPANESE];
    if (10 * bytes[JAPANESE] >= east) bytes[JAPANESE] = east, bytes[HAN] = 0;
    int most = SCRIPT_NONE;
    for (int i = 0; scripts[i].letters; i++) {
        uint64_t weight = i == LATIN ? bytes[i] : 4 * bytes[i];
        uint64_t best = most == LATIN ? bytes[most] : 4 * bytes[most];
        if (weight > best) most = i;
    }
    return most;
}
