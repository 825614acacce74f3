/* json.c : text in JSON. */
#include "tool.h"

#include <string.h>

/* The length of the character at s, of n bytes; 0: not UTF-8 (RFC 3629). */
static size_t character(const unsigned char *s, size_t n) {
    static const unsigned char least[5] = {0, 0, 0x80, 0xa0, 0x90};
    size_t length = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    if (s[0] > 0xf4 || length > n) return 0;
    for (size_t i = 1; i < length; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    if ((s[0] == 0xe0 || s[0] == 0xf0) && s[1] < least[length]) return 0;
    if ((s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf4 && s[1] > 0x8f)) return 0;
    return length;
}

void json_string(FILE *f, const char *bytes, size_t n) {
    putc('"', f);
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)bytes[i];
        size_t length = character((const unsigned char *)bytes + i, n - i);
        if (length == 0)
            fputs("\\ufffd", f), length = 1;
        else if (c < 0x20 || c == 0x7f)
            fprintf(f, "\\u%04x", c);
        else if (c == '"' || c == '\\')
            fprintf(f, "\\%c", c);
        else
            fwrite(bytes + i, 1, length, f);
        i += length;
    }
    putc('"', f);
}
