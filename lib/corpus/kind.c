/* kind.c : what a file holds, told by its first bytes and, where those leave a choice, by
 * its name without .gz or .zst. */
#include "specrt_tools.h"
#include "corpus/corpus_impl.h"

#include <string.h>
#include <strings.h>
#include "formats/npy.h"
#include "base/utf8.h"

static const struct {
    const char *magic;
    size_t n, at;
    const char *what;
} binaries[] = {
    {"\x7F"
     "ELF",
     4, 0, "an ELF program"},
    {"\x89PNG", 4, 0, "a PNG image"},
    {"\xFF\xD8\xFF", 3, 0, "a JPEG image"},
    {"GIF8", 4, 0, "a GIF image"},
    {"%PDF-", 5, 0, "a PDF document"},
    {"PK\x03\x04", 4, 0, "a zip archive; unpack it first"},
    {"\xFD"
     "7zXZ",
     5, 0, "xz data; unpack it first or use .gz or .zst"},
    {"BZh", 3, 0, "bzip2 data; unpack it first or use .gz or .zst"},
    {"\x04\"M\x18", 4, 0, "lz4 data; unpack it first or use .gz or .zst"},
    {"7z\xBC\xAF", 4, 0, "a 7z archive; unpack it first"},
    {"\x1F\x8B", 2, 0, "gzip data inside packed data"},
    {"\x28\xB5\x2F\xFD", 4, 0, "zstd data inside packed data"},
    {"ustar", 5, 257, "a tar archive; unpack it first"},
    {"PAR1", 4, 0, "a Parquet file; convert it to .jsonl"},
    {"ARROW1", 6, 0, "an Arrow file; convert it to .jsonl"},
    {"SQLite format 3", 15, 0, "an SQLite database"},
    {"GGUF", 4, 0, "a GGUF model"},
    {"version https://git-lfs.github.com/spec/v1", 42, 0,
     "a Git LFS pointer; run git lfs pull in its repository"},
    {"\xFF\xFE", 2, 0, "UTF-16 text; convert it to UTF-8"},
    {"\xFE\xFF", 2, 0, "UTF-16 text; convert it to UTF-8"},
};

/* NULs here and there are text, and so are a few control bytes, and ill-formed UTF-8. Control bytes
 * throughout are not, nor NULs by the third byte, nor all three together. */
static bool is_binary(const char *head, size_t n) {
    size_t n_nul = 0, n_control = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)head[i];
        n_nul += c == 0;
        n_control += c != 0 && (c < 7 || (c > 13 && c < 27) || (c > 27 && c < 32) || c == 127);
    }
    bool ill_formed = sl_utf8_valid(head, n) + 3 < n; /* the last character may be cut */
    return n_control > 8 + n / 20 || n_nul > 8 + n / 3 ||
           (n_nul > 0 && ill_formed && n_control > 2 + n / 200);
}

static const char *binary_reason(const char *head, size_t n) {
    for (size_t i = 0; i < sizeof binaries / sizeof binaries[0]; i++)
        if (n >= binaries[i].at + binaries[i].n &&
            memcmp(head + binaries[i].at, binaries[i].magic, binaries[i].n) == 0)
            return binaries[i].what;
    return is_binary(head, n) ? "binary data, not text" : NULL;
}

/* Where the part of n bytes that follows the last dot begins; 0: without a dot. */
static size_t last_part(const char *s, size_t n) {
    while (n > 0 && s[n - 1] != '.') n--;
    return n;
}

/* extension() : of a name without .gz or .zst, and without what rotated logs are numbered by (x.log.1,
 * x.log.2026-11); lower case not assumed; "" if none. */
static void extension(const char *name, char out[16]) {
    const char *slash = strrchr(name, '/'), *start = slash ? slash + 1 : name;
    size_t n = strlen(start);
    static const char *const packed[] = {".gz", ".zst", ".zstd"};
    for (int i = 0; i < 3; i++) {
        size_t m = strlen(packed[i]);
        if (n > m && strncasecmp(start + n - m, packed[i], m) == 0) {
            n -= m;
            break;
        }
    }
    size_t part = last_part(start, n);
    while (part > 1 && part < n && strchr("0123456789", start[part])) {
        n = part - 1;
        part = last_part(start, n);
    }
    out[0] = '\0';
    if (part <= 1 || n - part >= 16) return;
    memcpy(out, start + part, n - part);
    out[n - part] = '\0';
}

static bool one_of(const char *ext, const char *const *list) {
    while (*list && strcasecmp(ext, *list) != 0) list++;
    return *list != NULL;
}

/* Content without an extension to go by (a pipe, "part-00000"): '{"' and '[{' begin JSON. */
static corpus_kind kind_of_content(const char *head, size_t n) {
    size_t at = 0;
    char seen[2] = {0};
    for (int i = 0; i < 2; i++) {
        while (at < n && head[at] && strchr(" \t\r\n", head[at])) at++;
        if (at < n) seen[i] = head[at++];
    }
    if (seen[0] == '{' && (seen[1] == '"' || seen[1] == '}'))
        return sl_corpus_lines_are_values(head, n) ? KIND_LINES : KIND_VALUES;
    return seen[0] == '[' && seen[1] == '{' ? KIND_VALUES : KIND_TEXT;
}

/* The first line of a table, as column names. */
static void doubt_table(corpus_format *f, const char *head, size_t n) {
    const char *end = (const char *)memchr(head, '\n', n);
    int length = (int)(end ? end - head : (ptrdiff_t)n);
    if (length > 0 && head[length - 1] == '\r') length--;
    snprintf(f->doubt, sizeof f->doubt,
             "a table, counted as text with its separators; put the column to count into .jsonl, "
             "found columns %.*s",
             length < 60 ? length : 60, head);
}

/* Records in a file whose name says text. */
static void doubt_text(corpus_format *f, const char *ext, const char *head, size_t n) {
    static const char *const tables[] = {"csv", "tsv", NULL}, *const texts[] = {
                                                                  "txt", "text", "log", "out",
                                                                  "dat", "data", NULL};
    if (one_of(ext, tables)) doubt_table(f, head, n);
    if (one_of(ext, texts) && kind_of_content(head, n) != KIND_TEXT)
        snprintf(f->doubt, sizeof f->doubt,
                 "JSON records, counted as text with their keys; --format json reads the records, "
                 "as does the name .jsonl");
    else if (strcasecmp(ext, "log") == 0)
        snprintf(f->doubt, sizeof f->doubt,
                 "a log, counted as text with its time stamps and requests; put the answers into "
                 ".jsonl, as {\"output\": \"text\"}");
}

static void tell_text(corpus_format *f, const char *ext, const char *head, size_t n,
                      corpus_reading reading) {
    static const char *const lines[] = {"jsonl", "ndjson", "jsonlines", NULL};
    f->first = sl_utf8_mark(head, n);
    head += f->first;
    n -= f->first;
    f->refusal = binary_reason(head, n);
    if (reading == CORPUS_AS_TEXT)
        f->kind = KIND_TEXT;
    else if (one_of(ext, lines) || reading == CORPUS_AS_JSON)
        f->kind = sl_corpus_lines_are_values(head, n) ? KIND_LINES : KIND_VALUES;
    else if (strcasecmp(ext, "json") == 0)
        f->kind = KIND_VALUES;
    else
        f->kind = ext[0] ? KIND_TEXT : kind_of_content(head, n);
    if (f->kind == KIND_TEXT && reading == CORPUS_BY_NAME) doubt_text(f, ext, head, n);
}

static specrt_status tell_bin(corpus_format *f, const char *name, const corpus_options *options,
                              specrt_error *err) {
    if (options->id_bytes != 2 && options->id_bytes != 4)
        return specrt_error_set(
            err, SPECRT_STATUS_BAD_ARG,
            "%s: expected --id-bytes 2 or 4, since a .bin file does not state the width of its ids",
            name);
    f->id_bytes = (uint32_t)options->id_bytes;
    f->unit_bytes = CORPUS_UNIT_BYTES;
    f->group_bytes = CORPUS_BATCH_BYTES;
    return SPECRT_STATUS_OK;
}

specrt_status sl_corpus_format_tell(corpus_format *f, const char *name, const char *head, size_t n,
                                    const corpus_options *options, specrt_error *err) {
    char ext[16];
    memset(f, 0, sizeof *f);
    extension(name, ext);
    bool npy = sl_npy_probe(head, n);
    bool ids = npy || strcasecmp(ext, "npy") == 0 || strcasecmp(ext, "bin") == 0 ||
               (options->token_ids && ext[0] == '\0');
    if (!ids) tell_text(f, ext, head, n, options->reading);
    if (ids) f->kind = KIND_IDS;
    if (ids && !options->token_ids)
        f->refusal = "token ids, not text; they are counted with --tokenizer none";
    if (!ids && options->token_ids) f->refusal = "no token ids (.bin or .npy)";
    if (f->refusal || !ids) return SPECRT_STATUS_OK;
    if (npy || strcasecmp(ext, "npy") == 0) return sl_corpus_ids_npy(f, name, head, n, err);
    return tell_bin(f, name, options, err);
}
