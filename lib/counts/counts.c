/* counts.c : see counts.h. A file is parsed line by line and added domain by domain, so memory
 * holds the sum and one domain of what is being read. */
#include "counts/counts.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/memory.h"
#include "corpus/stream.h"

enum {
    READ_AHEAD = 1 << 16,
    MAX_LINE = 1 << 25, /* an id list of the largest vocabulary in the worst order */
};

/* What #end states of the lines above: a lost line or a changed number shows. */
typedef struct tally {
    uint64_t n_lines, sum;
} tally;

static const char *const type_tags[] = {"", "#terminators", "#special", "#reserved"};

void sl_counts_free(counts *c) {
    for (int i = 0; i < c->n_domains; i++) {
        free(c->domains[i].name);
        free(c->domains[i].rows);
    }
    free(c->domains);
    free(c->vocab.types);
    *c = (counts){0};
}

const char *sl_counts_language(const counts *c, const counts_domain *d) {
    const char *mark = strrchr(d->name, COUNTS_LANGUAGE_MARK[0]);
    return mark && d->n_docs && strstr(c->options, COUNTS_BY_LANGUAGE) ? mark + 1 : NULL;
}

uint64_t sl_counts_n_tokens(const counts *c) {
    uint64_t sum = 0;
    for (int i = 0; i < c->n_domains; i++) sum += c->domains[i].n_tokens;
    return sum;
}

static uint64_t decayed(uint64_t n, double share) {
    return share < 1 ? (uint64_t)nearbyint(share * (double)n) : n;
}

void sl_counts_decay(counts *c, double share) {
    for (int i = 0; i < c->n_domains; i++) {
        counts_domain *d = &c->domains[i];
        int32_t n_kept = 0;
        d->n_completions = decayed(d->n_completions, share);
        d->n_tokens = 0;
        for (int32_t j = 0; j < d->n_rows; j++) {
            counts_row row = d->rows[j];
            row.n = decayed(row.n, share);
            if (row.n) d->rows[n_kept++] = row;
            d->n_tokens += row.n;
        }
        d->n_rows = n_kept;
    }
}

/* 0: the options are of version 1; -1: no number of folds. */
static int given_folds(const counts *c) {
    const char *folds = strstr(c->options, COUNTS_FOLDS);
    long n = folds ? strtol(folds + strlen(COUNTS_FOLDS), NULL, 10) : 0;
    return folds && (n < 1 || n > COUNTS_MAX_FOLDS) ? -1 : (int)n;
}

int sl_counts_n_folds(const counts *c) {
    int n = given_folds(c);
    return n ? n : 2;
}

bool sl_counts_holds_out(const counts *c, int fold) {
    int n = given_folds(c);
    return n ? n > 1 : fold == 1;
}

/* ---- adding ---- */

/* The domain of that name, made in its sorted place if new; NULL: no memory or too many. */
static counts_domain *domain_get(counts *c, const counts_domain *like, specrt_error *err) {
    int at = 0;
    while (at < c->n_domains && strcmp(c->domains[at].name, like->name) < 0) at++;
    if (at < c->n_domains && strcmp(c->domains[at].name, like->name) == 0) {
        if (strcmp(c->domains[at].provenance, like->provenance) == 0) return &c->domains[at];
        specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                         "domain '%s': expected provenance %s, as in the counts before, found %s",
                         like->name, c->domains[at].provenance, like->provenance);
        return NULL;
    }
    if (c->n_domains == COUNTS_MAX_DOMAINS) {
        specrt_error_set(
            err, SPECRT_STATUS_BAD_INPUT,
            "domains: expected at most %d, found more; give several folders one name with --domain",
            COUNTS_MAX_DOMAINS);
        return NULL;
    }
    size_t n = (size_t)c->n_domains;
    char *name = sl_more(&c->domains, n, sizeof *c->domains) ? strdup(like->name) : NULL;
    if (!name) return sl_error_no_memory(err, NULL), NULL;
    counts_domain *d = &c->domains[at];
    memmove(d + 1, d, (n - (size_t)at) * sizeof *d);
    *d = (counts_domain){.name = name};
    memcpy(d->provenance, like->provenance, sizeof d->provenance);
    c->n_domains++;
    return d;
}

static int by_id_and_fold(const counts_row *a, const counts_row *b) {
    int order = (a->id > b->id) - (a->id < b->id);
    return order ? order : (a->fold > b->fold) - (a->fold < b->fold);
}

/* a and b, both by ascending id and fold, into one; false: no memory. */
static bool rows_merge(counts_domain *into, const counts_row *b, int32_t n_b) {
    const counts_row *a = into->rows;
    int32_t n_a = into->n_rows, i = 0, j = 0, n = 0;
    if (n_b == 0) return true;
    counts_row *rows = (counts_row *)malloc(((size_t)n_a + (size_t)n_b) * sizeof *rows);
    if (!rows) return false;
    while (i < n_a || j < n_b) {
        int order = j == n_b ? -1 : i == n_a ? 1 : by_id_and_fold(&a[i], &b[j]);
        rows[n] = order <= 0 ? a[i++] : b[j++];
        if (order == 0) rows[n].n += b[j++].n;
        n++;
    }
    counts_row *fitted = (counts_row *)realloc(rows, (size_t)n * sizeof *rows);
    free(into->rows);
    into->rows = fitted ? fitted : rows;
    into->n_rows = n;
    return true;
}

static bool add(uint64_t *sum, uint64_t x) {
    return !__builtin_add_overflow(*sum, x, sum);
}

specrt_status sl_counts_add(counts *c, const counts_domain *delta, specrt_error *err) {
    counts_domain *d = domain_get(c, delta, err);
    if (!d) return err ? err->status : SPECRT_STATUS_NO_MEMORY;
    /* A row never exceeds the sum of all, so the sums alone can tell an overflow. */
    bool fits = add(&d->n_docs, delta->n_docs) && add(&d->n_bytes, delta->n_bytes) &&
                add(&d->n_tokens, delta->n_tokens) && add(&d->n_completions, delta->n_completions);
    if (!fits)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT, "domain '%s': counts exceed 64 bits",
                                delta->name);
    d->digest += delta->digest;
    return rows_merge(d, delta->rows, delta->n_rows) ? SPECRT_STATUS_OK
                                                     : sl_error_no_memory(err, NULL);
}

/* ---- writing ---- */

/* Ids of one type as "1,5-9". */
static specrt_status write_types(const counts_vocab *v, int type, out_file *out,
                                 specrt_error *err) {
    char text[64];
    specrt_status status = sl_out_write(out, type_tags[type], strlen(type_tags[type]), err);
    const char *before = "\t";
    for (int32_t id = 0; id < v->n_vocab && status == SPECRT_STATUS_OK; id++) {
        if (v->types[id] != type) continue;
        int32_t last = id;
        while (last + 1 < v->n_vocab && v->types[last + 1] == type) last++;
        int n = snprintf(text, sizeof text, last > id ? "%s%" PRId32 "-%" PRId32 : "%s%" PRId32,
                         before, id, last);
        status = sl_out_write(out, text, (size_t)n, err);
        before = ",";
        id = last;
    }
    return status == SPECRT_STATUS_OK ? sl_out_write(out, "\n", 1, err) : status;
}

static specrt_status write_header(const counts *c, out_file *out, specrt_error *err) {
    char text[512], hex[65];
    for (int i = 0; i < 32; i++) snprintf(hex + 2 * i, 3, "%02x", c->vocab.sha256[i]);
    int n = snprintf(text, sizeof text,
                     "#specrt-counts\t2\n#tokenizer\t%s\t%" PRId32 "\t%" PRId32 "\t%s\n", hex,
                     c->vocab.n_vocab, c->vocab.n_normal, c->vocab.name);
    specrt_status status = sl_out_write(out, text, (size_t)n, err);
    for (int type = COUNTS_TERMINATOR; type <= COUNTS_RESERVED && !status; type++)
        status = write_types(&c->vocab, type, out, err);
    n = snprintf(text, sizeof text, "#options\t%s\n", c->options);
    return status == SPECRT_STATUS_OK ? sl_out_write(out, text, (size_t)n, err) : status;
}

/* In decimal; snprintf would take most of the time of a file. @return the bytes. */
static size_t put_number(uint64_t n, char *out) {
    size_t n_digits = 1;
    for (uint64_t rest = n; rest > 9; rest /= 10) n_digits++;
    for (size_t i = n_digits; i-- > 0; n /= 10) out[i] = (char)('0' + n % 10);
    return n_digits;
}

/* One id's counts by fold: its n rows. */
static specrt_status write_line(const counts_row *rows, int32_t n, out_file *out, tally *all,
                                specrt_error *err) {
    char text[16 + 21 * COUNTS_MAX_FOLDS];
    size_t at = put_number((uint64_t)rows->id, text);
    all->n_lines++;
    all->sum += (uint64_t)rows->id;
    for (int32_t fold = 0, i = 0; i < n; fold++) {
        uint64_t count = rows[i].fold == fold ? rows[i++].n : 0;
        text[at++] = '\t';
        at += put_number(count, text + at);
        all->sum += count;
    }
    text[at++] = '\n';
    return sl_out_write(out, text, at, err);
}

static specrt_status write_domain(const counts_domain *d, out_file *out, tally *all,
                                  specrt_error *err) {
    char text[256];
    int n = snprintf(text, sizeof text,
                     "#domain\t%s\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%016" PRIx64 "\t",
                     d->provenance, d->n_docs, d->n_bytes, d->n_completions, d->digest);
    specrt_status status = sl_out_write(out, text, (size_t)n, err);
    if (status == SPECRT_STATUS_OK) status = sl_out_write(out, d->name, strlen(d->name), err);
    if (status == SPECRT_STATUS_OK) status = sl_out_write(out, "\n", 1, err);
    for (int32_t i = 0, end; i < d->n_rows && status == SPECRT_STATUS_OK; i = end) {
        for (end = i; end < d->n_rows && d->rows[end].id == d->rows[i].id;) end++;
        status = write_line(&d->rows[i], end - i, out, all, err);
    }
    return status;
}

specrt_status sl_counts_write(const counts *c, out_file *out, specrt_error *err) {
    char text[64];
    tally all = {0};
    specrt_status status = write_header(c, out, err);
    for (int i = 0; i < c->n_domains && status == SPECRT_STATUS_OK; i++)
        status = write_domain(&c->domains[i], out, &all, err);
    int n = snprintf(text, sizeof text, "#end\t%" PRIu64 "\t%" PRIu64 "\n", all.n_lines, all.sum);
    return status == SPECRT_STATUS_OK ? sl_out_write(out, text, (size_t)n, err) : status;
}

/* ---- reading: lines ---- */

/* A source of lines with the position for messages. */
typedef struct reader {
    corpus_stream stream;
    uint8_t *ahead; /* [READ_AHEAD] content at [offset - n, offset) */
    size_t at, n;
    uint64_t offset;
    char *line; /* without its newline; NUL-terminated */
    size_t capacity, length;
    uint64_t number; /* of the line, from 1 */
    int version, n_folds;
    tally all; /* of the domains since the header */
    specrt_error *err;
} reader;

static specrt_status bad(const reader *r, const char *what) {
    return specrt_error_set(r->err, SPECRT_STATUS_BAD_INPUT, "%s:%" PRIu64 ": %s", r->stream.name,
                            r->number, what);
}

static specrt_status read_ahead(reader *r) {
    TRY(sl_corpus_stream_read(&r->stream, r->offset, r->ahead, READ_AHEAD, &r->n, r->err));
    r->offset += r->n;
    r->at = 0;
    return SPECRT_STATUS_OK;
}

static specrt_status append(reader *r, const uint8_t *bytes, size_t n) {
    size_t need = r->length + n + 1;
    if (need > MAX_LINE) return bad(r, "line too long for a count file");
    if (memchr(bytes, '\0', n)) return bad(r, "a NUL byte; expected text");
    if (!sl_reserve(&r->line, &r->capacity, need, 1)) return sl_error_no_memory(r->err, NULL);
    memcpy(r->line + r->length, bytes, n);
    r->length += n;
    r->line[r->length] = '\0';
    return SPECRT_STATUS_OK;
}

/* *end is set when there is no further line. A last line without its newline is a cut file. */
static specrt_status next_line(reader *r, bool *end) {
    r->length = 0;
    r->number++;
    for (*end = false;;) {
        if (r->at == r->n) TRY(read_ahead(r));
        if (r->n == 0) break;
        const uint8_t *from = r->ahead + r->at;
        const uint8_t *newline = (const uint8_t *)memchr(from, '\n', r->n - r->at);
        size_t n = newline ? (size_t)(newline - from) : r->n - r->at;
        TRY(append(r, from, n));
        r->at += n + (newline != NULL);
        if (newline) return SPECRT_STATUS_OK;
    }
    *end = r->length == 0;
    return *end ? SPECRT_STATUS_OK : bad(r, "the file is cut in the middle of a line");
}

/* ---- reading: fields ---- */

/* Cut the next field off *rest at a tab; NULL when there is none left. */
static char *field(char **rest) {
    char *start = *rest, *tab = start ? strchr(start, '\t') : NULL;
    if (tab) *tab = '\0';
    *rest = tab ? tab + 1 : NULL;
    return start;
}

/* Decimal digits only, up to `stop`; *end moves behind them. */
static bool parse_digits(const char *text, const char **end, uint64_t *out) {
    uint64_t x = 0;
    const char *p = text;
    for (; *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(x, 10u, &x) ||
            __builtin_add_overflow(x, (uint64_t)(*p - '0'), &x))
            return false;
    *end = p;
    *out = x;
    return p > text;
}

static bool field_u64(char **rest, uint64_t *out) {
    const char *text = field(rest), *end;
    return text && parse_digits(text, &end, out) && *end == '\0';
}

static bool field_i32(char **rest, int32_t max, int32_t *out) {
    uint64_t x;
    if (!field_u64(rest, &x) || x > (uint64_t)max) return false;
    *out = (int32_t)x;
    return true;
}

static bool parse_hex(const char *text, size_t n_bytes, uint8_t *out) {
    if (!text || strlen(text) != 2 * n_bytes) return false;
    for (size_t i = 0; i < 2 * n_bytes; i++) {
        const char *digits = "0123456789abcdef", *d = strchr(digits, text[i]);
        if (!d) return false;
        out[i / 2] = (uint8_t)(out[i / 2] << 4 | (d - digits));
    }
    return true;
}

/* "1,5-9" : mark those ids. */
static bool parse_types(const char *text, int type, counts_vocab *v) {
    while (text && *text) {
        uint64_t first, last;
        if (!parse_digits(text, &text, &first)) return false;
        last = first;
        if (*text == '-' && !parse_digits(text + 1, &text, &last)) return false;
        if (last < first || last >= (uint64_t)v->n_vocab) return false;
        memset(v->types + first, type, (size_t)(last - first) + 1);
        if (*text && *text++ != ',') return false;
    }
    return true;
}

/* ---- reading: one file ---- */

static bool has_tag(const reader *r, const char *tag) {
    size_t n = strlen(tag);
    return r->length >= n && memcmp(r->line, tag, n) == 0 &&
           (r->line[n] == '\t' || r->line[n] == '\0');
}

/* The next line must carry the tag; *rest is what follows it. */
static specrt_status expect_tag(reader *r, const char *tag, char **rest) {
    char what[96];
    bool end;
    TRY(next_line(r, &end));
    snprintf(what, sizeof what, "expected %s%s", tag, end ? ", found the end: a cut file" : "");
    if (end || !has_tag(r, tag)) return bad(r, what);
    *rest = r->line + strlen(tag);
    if (**rest == '\t') ++*rest;
    return SPECRT_STATUS_OK;
}

static specrt_status read_tokenizer(reader *r, counts_vocab *v) {
    char *rest;
    TRY(expect_tag(r, "#tokenizer", &rest));
    bool ok = parse_hex(field(&rest), 32, v->sha256) &&
              field_i32(&rest, COUNTS_MAX_VOCAB, &v->n_vocab) && v->n_vocab > 0 &&
              field_i32(&rest, v->n_vocab, &v->n_normal) && rest;
    if (!ok) return bad(r, "#tokenizer: expected SHA256, N_VOCAB, N_NORMAL, NAME");
    snprintf(v->name, sizeof v->name, "%s", rest);
    v->types = (uint8_t *)calloc((size_t)v->n_vocab, 1);
    return v->types ? SPECRT_STATUS_OK : sl_error_no_memory(r->err, NULL);
}

static specrt_status read_header(reader *r, counts *c) {
    char *rest;
    TRY(read_tokenizer(r, &c->vocab));
    for (int type = COUNTS_TERMINATOR; type <= COUNTS_RESERVED; type++) {
        TRY(expect_tag(r, type_tags[type], &rest));
        if (!parse_types(rest, type, &c->vocab))
            return bad(r, "expected ids of the vocabulary as in 1,5-9");
    }
    TRY(expect_tag(r, "#options", &rest));
    snprintf(c->options, sizeof c->options, "%s", rest);
    r->n_folds = sl_counts_n_folds(c);
    return r->n_folds > 0 ? SPECRT_STATUS_OK : bad(r, "#options: expected folds=1 to folds=20");
}

/* What both sides call themselves, for the message of a mismatch. */
static const char *vocab_label(const counts_vocab *v, char out[128]) {
    snprintf(out, 128, "%s (%02x%02x%02x%02x, %" PRId32 " ids)", v->name, v->sha256[0],
             v->sha256[1], v->sha256[2], v->sha256[3], v->n_vocab);
    return out;
}

/* Give an empty `c` the header of what is read, or compare the two. */
static specrt_status adopt_header(counts *c, counts *head, const reader *r) {
    counts_vocab *a = &c->vocab, *b = &head->vocab;
    char a_text[128], b_text[128];
    if (!a->types) {
        *a = *b;
        b->types = NULL;
        memcpy(c->options, head->options, sizeof c->options);
        return SPECRT_STATUS_OK;
    }
    if (memcmp(a->sha256, b->sha256, 32) != 0 || a->n_vocab != b->n_vocab)
        return specrt_error_set(r->err, SPECRT_STATUS_BAD_INPUT,
                                "%s: counts of another tokenizer; expected %s, found %s",
                                r->stream.name, vocab_label(a, a_text), vocab_label(b, b_text));
    if (a->n_normal != b->n_normal || memcmp(a->types, b->types, (size_t)a->n_vocab) != 0)
        return specrt_error_set(r->err, SPECRT_STATUS_BAD_INPUT,
                                "%s: expected the special tokens of the counts before, found "
                                "others; count everything with one tokenizer file",
                                r->stream.name);
    if (strcmp(c->options, head->options) != 0)
        return specrt_error_set(r->err, SPECRT_STATUS_BAD_INPUT,
                                "%s: counted with other options; expected '%s', found '%s'",
                                r->stream.name, c->options, head->options);
    /* One digest may have several names (GGUF, tiktoken): choose regardless of the order. */
    if (strcmp(b->name, a->name) < 0) memcpy(a->name, b->name, sizeof a->name);
    return SPECRT_STATUS_OK;
}

static bool is_provenance(const char *text) {
    return text && (!strcmp(text, "raw") || !strcmp(text, "target") || !strcmp(text, "draft"));
}

/* The name is a view of the line: copied before the next one is read. */
static bool parse_domain(const reader *r, counts_domain *d) {
    char *rest = r->line + strlen("#domain\t");
    uint8_t digest[8] = {0};
    uint64_t held_out = 0; /* completions, in version 1 */
    const char *provenance = field(&rest);
    if (!is_provenance(provenance)) return false;
    snprintf(d->provenance, sizeof d->provenance, "%s", provenance);
    bool ok = field_u64(&rest, &d->n_docs) && field_u64(&rest, &d->n_bytes) &&
              field_u64(&rest, &d->n_completions) &&
              (r->version > 1 || field_u64(&rest, &held_out)) && add(&d->n_completions, held_out) &&
              parse_hex(field(&rest), 8, digest) && rest && *rest;
    for (const char *p = rest; ok && *p; p++) ok = (unsigned char)*p >= ' ' && *p != 0x7f;
    for (int i = 0; i < 8; i++) d->digest = d->digest << 8 | digest[i];
    d->name = ok ? strdup(rest) : NULL;
    return ok;
}

static specrt_status add_row(reader *r, counts_domain *d, const counts_row *row) {
    counts_row *at = (counts_row *)sl_more(&d->rows, (size_t)d->n_rows, sizeof *at);
    if (!at) return sl_error_no_memory(r->err, NULL);
    *at = *row;
    d->n_rows++;
    r->all.sum += row->n;
    return add(&d->n_tokens, row->n) ? SPECRT_STATUS_OK : bad(r, "counts exceed 64 bits");
}

static specrt_status parse_row(reader *r, counts_domain *d, int32_t n_vocab) {
    char *rest = r->line;
    counts_row row = {0};
    int32_t before = d->n_rows;
    bool ok = field_i32(&rest, n_vocab - 1, &row.id) && rest;
    if (ok && before && d->rows[before - 1].id >= row.id) return bad(r, "ids are not ascending");
    for (; ok && rest; row.fold++) {
        ok = row.fold < r->n_folds && field_u64(&rest, &row.n);
        if (ok && row.n) TRY(add_row(r, d, &row));
    }
    if (!ok) return bad(r, "expected ID and a count for each fold, with an id of the vocabulary");
    if (d->n_rows == before) return bad(r, "a row without a count");
    r->all.n_lines++;
    r->all.sum += (uint64_t)row.id;
    return SPECRT_STATUS_OK;
}

/* Rows of one domain, up to the next line that is none (left in the reader). */
static specrt_status read_rows(reader *r, counts_domain *d, int32_t n_vocab) {
    for (;;) {
        bool end;
        TRY(next_line(r, &end));
        if (end) return bad(r, "expected #end, found the end: a cut file");
        if (r->length && r->line[0] == '#') return SPECRT_STATUS_OK;
        if (!r->length) return bad(r, "empty line");
        TRY(parse_row(r, d, n_vocab));
    }
}

/* Add the error's line to what sl_counts_add() has to say. */
static specrt_status add_domain(reader *r, counts *c, const counts_domain *d) {
    specrt_error inner = {SPECRT_STATUS_OK, ""};
    specrt_status status = sl_counts_add(c, d, &inner);
    if (status == SPECRT_STATUS_OK) return status;
    return specrt_error_set(r->err, status, "%s: %s", r->stream.name, inner.msg);
}

static specrt_status read_domain(reader *r, counts *c) {
    counts_domain d = {0};
    specrt_status status = SPECRT_STATUS_OK;
    if (!parse_domain(r, &d))
        return bad(r, "#domain: expected PROVENANCE, N_DOCS, N_BYTES, COMPLETIONS, DIGEST, NAME");
    if (!d.name) return sl_error_no_memory(r->err, NULL);
    status = read_rows(r, &d, c->vocab.n_vocab);
    if (status == SPECRT_STATUS_OK) status = add_domain(r, c, &d);
    free(d.name);
    free(d.rows);
    return status;
}

/* Domains and the closing line, after the header. */
static specrt_status read_body(reader *r, counts *c) {
    uint64_t said_lines, said_sum;
    bool end;
    r->all = (tally){0};
    specrt_status status = next_line(r, &end);
    while (status == SPECRT_STATUS_OK && !end && has_tag(r, "#domain") && r->length > 8)
        status = read_domain(r, c);
    if (status != SPECRT_STATUS_OK) return status;
    if (end) return bad(r, "expected #domain or #end, found the end: a cut file");
    if (!has_tag(r, "#end") || r->length < 6) return bad(r, "expected #domain or #end");
    char *rest = r->line + strlen("#end\t");
    if (!field_u64(&rest, &said_lines) || !field_u64(&rest, &said_sum) || rest)
        return bad(r, "#end: expected N_LINES, SUM");
    if (said_lines != r->all.n_lines || said_sum != r->all.sum)
        return bad(r, "#end does not agree with the rows above: lines were lost or changed");
    return SPECRT_STATUS_OK;
}

/* 0: the line begins no count file. */
static int version_of(const reader *r) {
    const char *tag = "#specrt-counts\t";
    bool is_first = r->line && strncmp(r->line, tag, strlen(tag)) == 0;
    const char *version = is_first ? r->line + strlen(tag) : "";
    return strcmp(version, "2") == 0 ? 2 : strcmp(version, "1") == 0;
}

static specrt_status read_all(reader *r, counts *c) {
    for (bool first = true;; first = false) {
        counts head = {0};
        bool end;
        TRY(next_line(r, &end));
        if (end && first)
            return specrt_error_set(r->err, SPECRT_STATUS_BAD_INPUT,
                                    "%s: empty; expected a count file", r->stream.name);
        if (end) return SPECRT_STATUS_OK;
        r->version = version_of(r);
        if (!r->version) return bad(r, "not a count file; expected '#specrt-counts 1' or 2");
        specrt_status status = read_header(r, &head);
        if (status == SPECRT_STATUS_OK) status = adopt_header(c, &head, r);
        sl_counts_free(&head);
        if (status == SPECRT_STATUS_OK) status = read_body(r, c);
        if (status != SPECRT_STATUS_OK) return status;
    }
}

static specrt_status read_input(counts *c, const char *path, const void *bytes, size_t n,
                                specrt_error *err) {
    reader r = {.err = err};
    TRY(sl_corpus_stream_open(&r.stream, path, (const uint8_t *)bytes, n, err));
    r.ahead = (uint8_t *)malloc(READ_AHEAD);
    specrt_status status = r.ahead ? read_all(&r, c) : sl_error_no_memory(err, NULL);
    sl_corpus_stream_close(&r.stream);
    free(r.ahead);
    free(r.line);
    return status;
}

specrt_status sl_counts_read_memory(counts *c, const void *bytes, size_t n, const char *name,
                                    specrt_error *err) {
    return read_input(c, name, bytes ? bytes : "", n, err);
}

specrt_status sl_counts_read(counts *c, const char *path, specrt_error *err) {
    return read_input(c, path, NULL, 0, err);
}
