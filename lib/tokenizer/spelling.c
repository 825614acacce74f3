/* spelling.c : spellings of tokens in vocabulary files. */
#include "tokenizer/spelling.h"

#include <string.h>
#include "base/utf8.h"

/* GPT-2's alphabet: printable bytes of Latin-1 stand for themselves, the other 68 in ascending
 * order for U+0100 and on. @return 0..255, or -1. */
static int byte_of_letter(uint32_t cp) {
    bool printable =
        (cp >= 0x21 && cp <= 0x7E) || (cp >= 0xA1 && cp <= 0xAC) || (cp >= 0xAE && cp <= 0xFF);
    if (printable) return (int)cp;
    if (cp >= 0x100 && cp <= 0x120) return (int)cp - 0x100;        /* 0x00..0x20 */
    if (cp >= 0x121 && cp <= 0x142) return (int)cp - 0x121 + 0x7F; /* 0x7F..0xA0 */
    return cp == 0x143 ? 0xAD : -1;
}

static size_t unspell_bytes(const uint8_t *text, size_t n, uint8_t *out) {
    size_t count = 0;
    for (size_t i = 0; i < n;) {
        int len, byte = byte_of_letter(utf8_next(text + i, &len));
        if (byte < 0) return 0;
        out[count++] = (uint8_t)byte;
        i += (size_t)len;
    }
    return count;
}

/* A space in the file itself never meets a text, whose spaces become U+2581 first. */
static size_t unspell_spaces(const uint8_t *text, size_t n, uint8_t *out) {
    size_t count = 0;
    for (size_t i = 0; i < n;) {
        if (text[i] == ' ') return 0;
        bool mark = n - i >= 3 && memcmp(text + i, "\xE2\x96\x81", 3) == 0;
        out[count++] = mark ? ' ' : text[i];
        i += mark ? 3 : 1;
    }
    return count;
}

size_t sl_tok_unspell(tok_spelling spelling, const char *text, size_t n, uint8_t *out) {
    if (sl_utf8_valid(text, n) != n) return 0;
    if (spelling == TOK_SPELL_BYTE_LEVEL) return unspell_bytes((const uint8_t *)text, n, out);
    if (spelling == TOK_SPELL_SPACES) return unspell_spaces((const uint8_t *)text, n, out);
    memcpy(out, text, n);
    return n;
}

int sl_tok_byte_token(const char *text, size_t n) {
    static const char digits[] = "0123456789ABCDEF";
    if (n != 6 || memcmp(text, "<0x", 3) || text[5] != '>') return -1;
    const char *high = memchr(digits, text[3], 16), *low = memchr(digits, text[4], 16);
    return high && low ? (int)((high - digits) * 16 + (low - digits)) : -1;
}

/* ---- names ---- */

static char lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* The letters and digits of a name, lower-case: "<|Reserved_Token_3|>" is "reservedtoken3". */
static size_t bare_name(const char *text, size_t n, char *out, size_t capacity) {
    size_t count = 0;
    for (size_t i = 0; i < n && count + 1 < capacity; i++) {
        char c = lower(text[i]);
        if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) out[count++] = c;
    }
    out[count] = 0;
    return count;
}

token_type sl_tok_special_type(const char *text, size_t n) {
    static const char *const words[] = {
        "reserved", "reservedspecialtoken", "reservedtoken", "unused",  "unusedtoken", "pad",
        "extra",    "placeholder",          "dummy",         "special", "control",     "fakepad",
    };
    char name[40];
    size_t length = bare_name(text, n, name, sizeof name), stem = length;
    bool bracketed = n > 2 && strchr("<[", text[0]) && strchr(">]", text[n - 1]);
    while (stem > 0 && name[stem - 1] >= '0' && name[stem - 1] <= '9') stem--;
    if (!bracketed || stem == length) return TOKEN_SPECIAL;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strlen(words[i]) == stem && memcmp(words[i], name, stem) == 0) return TOKEN_RESERVED;
    return TOKEN_SPECIAL;
}

static int32_t find_special(const tokenizer *tok, const char *name) {
    int32_t id = sl_tokenizer_find(tok, name, strlen(name));
    return id != TOK_NONE && tok->tokens[id].type == TOKEN_SPECIAL ? id : TOK_NONE;
}

specrt_status sl_tok_add_named_terminators(tokenizer *tok, specrt_error *err) {
    static const char *const names[] = {
        "</s>",
        "<eos>",
        "[EOS]",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|eot|>",
        "<|eom|>",
        "<|im_end|>",
        "<|end|>",
        "<end_of_turn>",
        "<|endofturn|>",
        "<|END_OF_TURN_TOKEN|>",
        "<turn|>",
        "<|tool_response>", /* where Gemma 4 waits for a tool */
        "<|return|>",
        "<|call|>",
        "<EOT>",
        "[EOT]",
        "<end_of_utterance>",
        ("<\xEF\xBD\x9C"
         "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>"), /* DeepSeek's */
    };
    /* In gpt-oss <|end|> closes a message, and the turn goes on. */
    bool harmony = find_special(tok, "<|return|>") >= 0 && find_special(tok, "<|call|>") >= 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        int32_t id = find_special(tok, names[i]);
        if (id == TOK_NONE || (harmony && strcmp(names[i], "<|end|>") == 0)) continue;
        specrt_status status = sl_tok_add_terminator(tok, id, err);
        if (status) return status;
    }
    return SPECRT_STATUS_OK;
}
