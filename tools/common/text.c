/* text.c : see text.h. */
#include "text.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>
#include <utf8proc.h>
#include "utf8.h"

const char *text_count(uint64_t n) {
    static char buffers[8][32];
    static int turn;
    char digits[24], *out = buffers[turn++ % 8], *p = out;
    int length = snprintf(digits, sizeof digits, "%" PRIu64, n);
    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0) *p++ = ',';
        *p++ = digits[i];
    }
    *p = '\0';
    return out;
}

/* Columns of the character at p, *len its bytes; a byte that is no UTF-8 is shown as one of either. */
static int columns_at(const char *p, int *len) {
    size_t n = strnlen(p, 4), good = utf8_valid(p, n);
    *len = 1;
    if (good == 0) return 1;
    return utf8proc_charwidth((utf8proc_int32_t)utf8_next((const uint8_t *)p, len));
}

int text_columns(const char *text) {
    int n = 0, len;
    for (; *text; text += len) n += columns_at(text, &len);
    return n;
}

void text_pad(const char *text, int n_columns, FILE *out) {
    for (int len; *text; text += len) {
        int width = columns_at(text, &len);
        if (width > n_columns) break;
        fwrite(text, 1, (size_t)len, out);
        n_columns -= width;
    }
    fprintf(out, "%*s", n_columns, "");
}

void text_token(const uint8_t *bytes, size_t n, char *out) {
    for (size_t i = 0; i < n;) {
        uint8_t byte = bytes[i];
        size_t length = byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
        bool c1 = byte == 0xC2 && i + 1 < n && bytes[i + 1] < 0xA0;
        if (byte == ' ')
            out += sprintf(out, "\xe2\x90\xa3"), i++;
        else if (byte == '\n' || byte == '\t' || byte == '\r')
            out += sprintf(out, "\\%c", byte == '\n' ? 'n' : byte == '\t' ? 't' : 'r'), i++;
        else if (byte < 0x20 || byte == 0x7F || c1 || i + length > n ||
                 utf8_valid((const char *)bytes + i, length) != length)
            out += sprintf(out, "\\x%02x", byte), i++;
        else
            memcpy(out, bytes + i, length), out += length, i += length;
    }
    *out = '\0';
}
