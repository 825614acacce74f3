/* from_tiktoken.c : tiktoken rank files: lines of a token in base64, a space and its rank. The file
 * says nothing of special tokens or of the expression that splits text; both follow from its family,
 * which is told by a digest of all its lines. */
#include "tokenizer/tokenizer_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include "base/error.h"

#define MAX_FILE_BYTES  ((size_t)64 << 20) /* decompressed; the largest known has 4 MB */
#define MAX_RANK_DIGITS 7

/* ---- families ---- */

typedef struct special {
    int32_t id;
    const char *text;
    bool terminator;
} special;

typedef struct family {
    const char *name, *sha256; /* of the rank file */
    int32_t n_ranks, n_vocab;
    tok_split_kind split;
    bool nfc;
    const char *reserved; /* names the ids between specials, counted from 0; NULL: holes */
    special specials[8];
} family;

static const family families[] = {
    {"llama3",
     "82e9d31979e92ab929cd544440f129d9ecd797b69e327f80f17e1c50d5551b55",
     128000,
     128256,
     TOK_SPLIT_LLAMA3,
     false,
     "<|reserved_special_token_%d|>",
     {{128000, "<|begin_of_text|>", false},
      {128001, "<|end_of_text|>", true},
      {128004, "<|finetune_right_pad_id|>", false},
      {128006, "<|start_header_id|>", false},
      {128007, "<|end_header_id|>", false},
      {128008, "<|eom_id|>", true},
      {128009, "<|eot_id|>", true},
      {128010, "<|python_tag|>", false}}},
    {"qwen",
     "b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186",
     151643,
     151851,
     TOK_SPLIT_QWEN2,
     true,
     "<|extra_%d|>",
     {{151643, "<|endoftext|>", true},
      {151644, "<|im_start|>", false},
      {151645, "<|im_end|>", true}}},
    {"o200k_base",
     "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
     199998,
     200019,
     TOK_SPLIT_O200K,
     false,
     NULL,
     {{199999, "<|endoftext|>", true}, {200018, "<|endofprompt|>", false}}},
    {"cl100k_base",
     "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
     100256,
     100277,
     TOK_SPLIT_CL100K,
     false,
     NULL,
     {{100257, "<|endoftext|>", true},
      {100258, "<|fim_prefix|>", false},
      {100259, "<|fim_middle|>", false},
      {100260, "<|fim_suffix|>", false},
      {100276, "<|endofprompt|>", false}}},
    {"r50k_base",
     "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930",
     50256,
     50257,
     TOK_SPLIT_GPT2,
     false,
     NULL,
     {{50256, "<|endoftext|>", true}}},
};
enum { N_FAMILIES = sizeof families / sizeof families[0] };

static const special *find_special(const family *f, int32_t id) {
    for (size_t i = 0; i < sizeof f->specials / sizeof f->specials[0]; i++)
        if (f->specials[i].text && f->specials[i].id == id) return &f->specials[i];
    return NULL;
}

static specrt_status add_specials(tokenizer *tok, const family *f, specrt_error *err) {
    int reserved = 0;
    specrt_status status = sl_tok_reserve_ids(tok, f->n_vocab, err);
    for (int32_t id = f->n_ranks; !status && id < f->n_vocab; id++) {
        const special *s = find_special(f, id);
        char name[64] = "";
        if (s)
            snprintf(name, sizeof name, "%s", s->text);
        else if (f->reserved) {
            const char *number = strchr(f->reserved, '%');
            snprintf(name, sizeof name, "%.*s%d%s", (int)(number - f->reserved), f->reserved,
                     reserved++, number + 2);
        }
        if (!name[0]) continue;
        status = sl_tok_set_token(tok, id, name, strlen(name), s ? TOKEN_SPECIAL : TOKEN_RESERVED,
                                  0, err);
        if (!status && s && s->terminator) status = sl_tok_add_terminator(tok, id, err);
    }
    return status;
}

/* ---- lines ---- */

typedef struct reader {
    const uint8_t *p, *end;
    int line;
} reader;

static specrt_status bad_line(const tokenizer *tok, const reader *r, const char *what,
                              specrt_error *err) {
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT, "%s: line %d of a tiktoken file: %s",
                            tok->path, r->line, what);
}

static int base64_digit(uint8_t c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Whole groups of four only, padding in its place, spare bits zero. @return bytes; 0: not base64 or
 * too long. */
static size_t base64_decode(const uint8_t *text, size_t n, uint8_t out[TOK_MAX_TOKEN_BYTES]) {
    size_t count = 0;
    if (n == 0 || n % 4 || n / 4 * 3 > TOK_MAX_TOKEN_BYTES) return 0;
    for (size_t i = 0; i < n; i += 4) {
        int pad = i + 4 < n || text[i + 3] != '=' ? 0 : text[i + 2] != '=' ? 1 : 2;
        uint32_t bits = 0;
        for (int k = 0; k < 4 - pad; k++) {
            int digit = base64_digit(text[i + (size_t)k]);
            if (digit < 0) return 0;
            bits |= (uint32_t)digit << (18 - 6 * k);
        }
        if (bits & ((1u << (8 * pad)) - 1)) return 0;
        for (int k = 0; k < 3 - pad; k++) out[count++] = (uint8_t)(bits >> (16 - 8 * k));
    }
    return count;
}

/* "TOKEN RANK" up to a line end; an empty line gives *n = 0. */
static specrt_status read_line(const tokenizer *tok, reader *r, uint8_t *token, size_t *n,
                               int32_t *rank, specrt_error *err) {
    const uint8_t *begin = r->p, *end = memchr(r->p, '\n', (size_t)(r->end - r->p));
    r->p = end ? end + 1 : r->end;
    r->line++;
    if (!end) end = r->end;
    if (end > begin && end[-1] == '\r') end--;
    *n = 0;
    if (begin == end) return SPECRT_STATUS_OK;
    const uint8_t *space = memchr(begin, ' ', (size_t)(end - begin));
    if (!space) return bad_line(tok, r, "no space; expected TOKEN-IN-BASE64 RANK", err);
    *n = base64_decode(begin, (size_t)(space - begin), token);
    if (*n == 0) return bad_line(tok, r, "bad base64 before the space", err);
    *rank = 0;
    for (const uint8_t *p = space + 1; p < end; p++) {
        if (*p < '0' || *p > '9' || p - space > MAX_RANK_DIGITS)
            return bad_line(tok, r, "bad rank after the space", err);
        *rank = *rank * 10 + (*p - '0');
    }
    return end == space + 1 ? bad_line(tok, r, "no rank after the space", err) : SPECRT_STATUS_OK;
}

static bool rank_is_taken(const tokenizer *tok, int32_t rank) {
    return rank < tok->n_vocab && tok->tokens[rank].n > 0;
}

/* lines : i32 [TOK_MAX_VOCAB], the line of each rank */
static specrt_status read_lines(tokenizer *tok, const uint8_t *bytes, size_t n_bytes,
                                int32_t *lines, specrt_error *err) {
    reader r = {bytes, bytes + n_bytes, 0};
    while (r.p < r.end) {
        uint8_t token[TOK_MAX_TOKEN_BYTES];
        size_t n;
        int32_t rank;
        specrt_status status = read_line(tok, &r, token, &n, &rank, err);
        if (status) return status;
        if (n == 0) continue;
        if (rank >= TOK_MAX_VOCAB) return bad_line(tok, &r, "rank is too large", err);
        if (rank_is_taken(tok, rank)) return bad_line(tok, &r, "rank was used before", err);
        status = sl_tok_set_token(tok, rank, token, n, TOKEN_NORMAL, 0, err);
        if (status) return status;
        lines[rank] = r.line;
    }
    return SPECRT_STATUS_OK;
}

/* Every rank, every token once, every single byte. */
static specrt_status check_ranks(tokenizer *tok, const int32_t *lines, specrt_error *err) {
    for (int32_t id = 0; id < tok->n_vocab; id++)
        if (tok->tokens[id].n == 0)
            return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                    "%s: rank %d is missing; ranks must run from 0 to %d",
                                    tok->path, id, tok->n_vocab - 1);
    specrt_status status = sl_tok_index(tok, err);
    if (status) return status;
    for (int32_t id = 0; id < tok->n_vocab; id++) {
        const tok_token *token = &tok->tokens[id];
        int32_t first = sl_tok_find_symbol(tok, tok->pool + token->offset, token->n);
        if (first != id)
            return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                    "%s: lines %d and %d hold the same token", tok->path,
                                    lines[first], lines[id]);
    }
    for (int b = 0; b < 256; b++)
        if (sl_tok_find_symbol(tok, &(uint8_t){(uint8_t)b}, 1) == TOK_NONE)
            return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                    "%s: no token for the single byte 0x%02X", tok->path,
                                    (unsigned)b);
    return SPECRT_STATUS_OK;
}

/* ---- recognition ---- */

/* The digest of the file as it is published, whatever its line ends or compression here. */
static void digest_ranks(const tokenizer *tok, char hex[65]) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    specrt_sha256 sha;
    specrt_sha256_init(&sha);
    for (int32_t id = 0; id < tok->n_vocab; id++) {
        const uint8_t *bytes = tok->pool + tok->tokens[id].offset;
        char line[TOK_MAX_TOKEN_BYTES / 3 * 4 + 32];
        size_t n = tok->tokens[id].n, count = 0;
        for (size_t i = 0; i < n; i += 3) {
            uint32_t bits = (uint32_t)bytes[i] << 16;
            if (i + 1 < n) bits |= (uint32_t)bytes[i + 1] << 8;
            if (i + 2 < n) bits |= bytes[i + 2];
            for (size_t k = 0; k < 4; k++)
                line[count++] = i + k > n ? '=' : digits[bits >> (18 - 6 * k) & 63];
        }
        count += (size_t)snprintf(line + count, 16, " %d\n", id);
        specrt_sha256_update(&sha, line, count);
    }
    uint8_t digest[32];
    specrt_sha256_final(&sha, digest);
    for (int i = 0; i < 32; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
}

static const family *recognise(const tokenizer *tok) {
    char hex[65];
    digest_ranks(tok, hex);
    for (int i = 0; i < N_FAMILIES; i++)
        if (strcmp(hex, families[i].sha256) == 0) return &families[i];
    return NULL;
}

static specrt_status unknown_family(const tokenizer *tok, specrt_error *err) {
    char known[256] = "";
    for (int i = 0; i < N_FAMILIES; i++) {
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", families[i].name);
    }
    return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                            "%s: %d ranks of an unknown tokenizer; known are %s; for another give "
                            "its tokenizer.json or a GGUF",
                            tok->path, tok->n_vocab, known);
}

static specrt_status load_ranks(tokenizer *tok, const uint8_t *bytes, size_t n, specrt_error *err) {
    int32_t *lines = malloc(TOK_MAX_VOCAB * sizeof *lines);
    if (!lines) return sl_error_no_memory(err, tok->path);
    specrt_status status = read_lines(tok, bytes, n, lines, err);
    if (!status) status = check_ranks(tok, lines, err);
    free(lines);
    if (status) return status;
    const family *f = recognise(tok);
    if (!f) return unknown_family(tok, err);
    snprintf(tok->name, sizeof tok->name, "%s (tiktoken)", f->name);
    tok->merge_order = TOK_MERGE_BY_ID;
    tok->ignore_merges = true;
    tok->split = f->split;
    if (f->nfc) TRY(sl_tok_add_normal(tok, TOK_NORMAL_NFC, "", 0, "", 0, err));
    return add_specials(tok, f, err);
}

/* ---- gzip ---- */

/* Inflate into a growing buffer, owned by the caller. */
static specrt_status inflate_all(const tokenizer *tok, const file_view *file, uint8_t **out,
                                 size_t *n, specrt_error *err) {
    z_stream z = {.next_in = (Bytef *)(uintptr_t)file->bytes, .avail_in = (uInt)file->n};
    size_t capacity = (size_t)1 << 20;
    int code = file->n > MAX_FILE_BYTES ? Z_BUF_ERROR : inflateInit2(&z, 15 + 16);
    *out = NULL;
    while (code == Z_OK && z.total_out < MAX_FILE_BYTES) {
        if (!*out || z.total_out == capacity) {
            uint8_t *bigger = realloc(*out, capacity *= 2);
            if (!bigger) break;
            *out = bigger;
        }
        z.next_out = *out + z.total_out;
        z.avail_out = (uInt)(capacity - z.total_out);
        code = inflate(&z, Z_NO_FLUSH);
    }
    *n = z.total_out;
    inflateEnd(&z);
    if (code == Z_STREAM_END) return SPECRT_STATUS_OK;
    if (code == Z_OK && *n < MAX_FILE_BYTES) return sl_error_no_memory(err, tok->path);
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                            "%s: gzip data is cut, damaged or above %zu MiB", tok->path,
                            MAX_FILE_BYTES >> 20);
}

specrt_status sl_tok_load_tiktoken(tokenizer *tok, const file_view *file, specrt_error *err) {
    bool gzip = file->n > 2 && file->bytes[0] == 0x1F && file->bytes[1] == 0x8B;
    if (!gzip) return load_ranks(tok, file->bytes, file->n, err);
    uint8_t *bytes;
    size_t n;
    specrt_status status = inflate_all(tok, file, &bytes, &n, err);
    if (!status) status = load_ranks(tok, bytes, n, err);
    free(bytes);
    return status;
}
