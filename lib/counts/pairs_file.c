/* pairs_file.c : count files of pairs, and the way of pairs between MPI ranks. What is read goes into the
 * store run by run, so that a file of any size takes bounded memory. */
#include "counts/pairs_impl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "corpus/stream.h"
#include "base/error.h"
#include "base/mpi.h"

enum { HEADER_BYTES = 404, FILE_VERSION = 1, READ_AHEAD = 1 << 16, MESSAGE_BYTES = 1 << 28 };
static const char file_magic[] = "\x89SPECP\r\n";

/* ---- rows that come in ascending order, into runs ---- */

typedef struct builder {
    pairs *p;
    pairs_bytes bytes;
    uint64_t *starts;
    int64_t n_started; /* ranges whose start is known */
} builder;

static specrt_status builder_flush(builder *b, specrt_error *err) {
    pairs_run run = {.bytes = b->bytes.bytes, .n_bytes = b->bytes.n, .starts = b->starts};
    if (!b->starts) return SPECRT_STATUS_OK;
    while (b->n_started <= b->p->n_ranges) b->starts[b->n_started++] = b->bytes.n;
    *b = (builder){.p = b->p};
    return sl_pairs_add_run(b->p, &run, err);
}

/* *start is where the row's bytes lie in b->bytes. */
static specrt_status builder_add(builder *b, const pairs_row *row, size_t *start,
                                 specrt_error *err) {
    if (b->bytes.n > b->p->run_memory / 4) TRY(builder_flush(b, err));
    if (!b->starts) b->starts = sl_pairs_run_starts(b->p);
    if (!b->starts) return sl_pairs_no_memory(err);
    while (b->n_started <= row->source / PAIRS_RANGE) b->starts[b->n_started++] = b->bytes.n;
    *start = b->bytes.n;
    return sl_pairs_encode(row, &b->bytes, err);
}

static void builder_free(builder *b) {
    free(b->bytes.bytes);
    free(b->starts);
}

/* ---- the header ---- */

static void header_encode(const pairs_header *h, uint8_t out[HEADER_BYTES]) {
    uint32_t version = FILE_VERSION;
    uint64_t sums[4] = {h->n_tokens, h->n_docs, h->n_bytes, h->digest};
    memset(out, 0, HEADER_BYTES);
    memcpy(out, file_magic, 8);
    memcpy(out + 8, &version, 4);
    memcpy(out + 12, &h->n_vocab, 4);
    memcpy(out + 16, &h->n_normal, 4);
    memcpy(out + 20, h->sha256, 32);
    memcpy(out + 52, h->name, 64);
    memcpy(out + 116, h->options, 256);
    memcpy(out + 372, sums, 32);
}

/* NULL, or what is wrong. */
static const char *header_decode(const uint8_t *bytes, size_t n, pairs_header *out) {
    uint32_t version;
    uint64_t sums[4];
    if (n < 8 || memcmp(bytes, file_magic, 8) != 0)
        return "not a count file of pairs; expected the magic \\x89SPECP";
    if (n < HEADER_BYTES) return "the file is cut in its header";
    memcpy(&version, bytes + 8, 4);
    if (version != FILE_VERSION) return "its version is not 1; update specrt";
    memcpy(&out->n_vocab, bytes + 12, 4);
    memcpy(&out->n_normal, bytes + 16, 4);
    memcpy(out->sha256, bytes + 20, 32);
    memcpy(out->name, bytes + 52, 64);
    memcpy(out->options, bytes + 116, 256);
    memcpy(sums, bytes + 372, 32);
    out->n_tokens = sums[0], out->n_docs = sums[1], out->n_bytes = sums[2], out->digest = sums[3];
    if (out->n_vocab < 1 || out->n_vocab > COUNTS_MAX_VOCAB || out->n_normal < 0 ||
        out->n_normal > out->n_vocab)
        return "n_vocab or n_normal is out of range";
    if (!memchr(out->name, 0, 64) || !memchr(out->options, 0, 256)) return "a text does not end";
    return NULL;
}

static bool add(uint64_t *into, uint64_t more) {
    return !__builtin_add_overflow(*into, more, into);
}

specrt_status sl_pairs_header_add(pairs_header *into, const pairs_header *more, const char *name,
                                  specrt_error *err) {
    if (into->n_vocab == 0) {
        *into = *more;
        return SPECRT_STATUS_OK;
    }
    if (into->n_vocab != more->n_vocab || memcmp(into->sha256, more->sha256, 32) != 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: pairs of another tokenizer; expected %s with %" PRId32
                                " ids, found %s with %" PRId32,
                                name, into->name, into->n_vocab, more->name, more->n_vocab);
    if (strcmp(into->options, more->options) != 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: counted with other options; expected '%s', found '%s'", name,
                                into->options, more->options);
    into->digest += more->digest;
    /* One digest may have several names: choose regardless of the order. */
    if (strcmp(more->name, into->name) < 0) memcpy(into->name, more->name, sizeof into->name);
    if (add(&into->n_tokens, more->n_tokens) && add(&into->n_docs, more->n_docs) &&
        add(&into->n_bytes, more->n_bytes))
        return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT, "%s: counts exceed 64 bits", name);
}

/* ---- writing ---- */

typedef struct writer {
    out_file *out;
    uint64_t n_rows, sum, checksum;
} writer;

static specrt_status write_take(void *arg, const pairs_row *row, pairs_bytes *out,
                                specrt_error *err) {
    (void)arg;
    return sl_pairs_encode(row, out, err);
}

/* Where the row ends; adds its counts to *sum. */
static const uint8_t *row_end(const uint8_t *p, uint64_t *sum) {
    uint64_t n, step, count;
    p = pairs_get_varint(pairs_get_varint(p, &step), &n);
    for (uint64_t i = 0; i < n; i++) {
        p = pairs_get_varint(pairs_get_varint(p, &step), &count);
        *sum += count;
    }
    return p;
}

/* The checksum goes row by row, since ranges are no part of the format. */
static specrt_status write_put(void *arg, const void *bytes, size_t n, specrt_error *err) {
    writer *w = (writer *)arg;
    const uint8_t *p = (const uint8_t *)bytes, *end = p + n;
    while (p < end) {
        const uint8_t *row = p;
        p = row_end(row, &w->sum);
        w->checksum = specrt_hash64(row, (size_t)(p - row), w->checksum);
        w->n_rows++;
    }
    return sl_out_write(w->out, bytes, n, err);
}

specrt_status sl_pairs_write(pairs *p, int threads, const pairs_header *header, out_file *out,
                             specrt_error *err) {
    uint8_t head[HEADER_BYTES], tail[PAIRS_MAX_VARINT + 24];
    writer w = {.out = out};
    header_encode(header, head);
    w.checksum = specrt_hash64(head, HEADER_BYTES, 0);
    TRY(sl_out_write(out, head, HEADER_BYTES, err));
    TRY(sl_pairs_each(p, threads, write_take, write_put, &w, err));
    uint64_t sums[3] = {w.n_rows, w.sum, w.checksum};
    size_t n = (size_t)(pairs_put_varint(tail, (uint64_t)p->n_vocab) - tail);
    memcpy(tail + n, sums, sizeof sums);
    return sl_out_write(out, tail, n + sizeof sums, err);
}

/* ---- reading ---- */

typedef struct reader {
    corpus_stream stream;
    uint8_t *ahead; /* [READ_AHEAD] content that ends at `offset` */
    size_t at, n;
    uint64_t offset;
    int32_t *ids; /* [n_vocab] of a row */
    uint64_t *counts;
    builder rows;
    uint64_t n_rows, sum, checksum;
    specrt_error *err;
} reader;

static specrt_status bad(const reader *r, const char *what) {
    return specrt_error_set(r->err, SPECRT_STATUS_BAD_INPUT, "%s: offset %" PRIu64 ": %s",
                            r->stream.name, r->offset - r->n + r->at, what);
}

static specrt_status read_more(reader *r) {
    TRY(sl_corpus_stream_read(&r->stream, r->offset, r->ahead, READ_AHEAD, &r->n, r->err));
    r->offset += r->n;
    r->at = 0;
    return SPECRT_STATUS_OK;
}

/* Up to n bytes; *got tells a cut. */
static specrt_status read_bytes(reader *r, void *out, size_t n, size_t *got) {
    for (*got = 0; *got < n;) {
        if (r->at == r->n) TRY(read_more(r));
        if (r->n == 0) return SPECRT_STATUS_OK;
        size_t chunk = r->n - r->at < n - *got ? r->n - r->at : n - *got;
        memcpy((uint8_t *)out + *got, r->ahead + r->at, chunk);
        r->at += chunk;
        *got += chunk;
    }
    return SPECRT_STATUS_OK;
}

static specrt_status read_varint(reader *r, uint64_t *out) {
    *out = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (r->at == r->n) TRY(read_more(r));
        if (r->n == 0) return bad(r, "the file is cut");
        uint64_t byte = r->ahead[r->at++];
        if (shift == 63 && byte > 1) break;
        *out |= (byte & 0x7f) << shift;
        if (!(byte & 0x80)) return SPECRT_STATUS_OK;
    }
    return bad(r, "a number exceeds 64 bits");
}

static specrt_status read_entries(reader *r, pairs_row *row, int32_t n_vocab) {
    int64_t id = -1;
    for (int32_t i = 0; i < row->n; i++) {
        uint64_t step;
        TRY(read_varint(r, &step));
        TRY(read_varint(r, &r->counts[i]));
        if (step == 0 || step > (uint64_t)(n_vocab - 1 - id))
            return bad(r, "successors are not ascending ids of the vocabulary");
        if (r->counts[i] == 0) return bad(r, "a count of 0");
        if (!add(&r->sum, r->counts[i])) return bad(r, "counts exceed 64 bits");
        id += (int64_t)step;
        r->ids[i] = (int32_t)id;
    }
    return SPECRT_STATUS_OK;
}

/* Rows up to the end mark. */
static specrt_status read_rows(reader *r, int32_t n_vocab) {
    int64_t before = -1;
    for (;;) {
        uint64_t source, n;
        size_t start = 0;
        TRY(read_varint(r, &source));
        if (source == (uint64_t)n_vocab) return SPECRT_STATUS_OK;
        TRY(read_varint(r, &n));
        if (source > (uint64_t)n_vocab || (int64_t)source <= before)
            return bad(r, "sources are not ascending ids of the vocabulary");
        if (n < 1 || n > (uint64_t)n_vocab) return bad(r, "a row of no or too many successors");
        pairs_row row = {(int32_t)source, (int32_t)n, r->ids, r->counts};
        TRY(read_entries(r, &row, n_vocab));
        TRY(builder_add(&r->rows, &row, &start, r->err));
        r->checksum =
            specrt_hash64(r->rows.bytes.bytes + start, r->rows.bytes.n - start, r->checksum);
        r->n_rows++;
        before = (int64_t)source;
    }
}

static specrt_status read_tail(reader *r, const pairs_header *header) {
    uint64_t sums[3];
    size_t n;
    TRY(read_bytes(r, sums, sizeof sums, &n));
    if (n < sizeof sums) return bad(r, "the file is cut");
    if (sums[0] != r->n_rows || sums[1] != r->sum || sums[2] != r->checksum)
        return bad(r, "its sums do not agree with its rows: bytes were lost or changed");
    if (r->sum > header->n_tokens) return bad(r, "more pairs than tokens");
    return builder_flush(&r->rows, r->err);
}

/* *end is set where no further file begins. */
static specrt_status read_header(reader *r, pairs_header *out, bool *end) {
    uint8_t head[HEADER_BYTES];
    size_t n;
    TRY(read_bytes(r, head, HEADER_BYTES, &n));
    *end = n == 0;
    if (*end) return SPECRT_STATUS_OK;
    const char *wrong = header_decode(head, n, out);
    if (wrong) return bad(r, wrong);
    r->checksum = specrt_hash64(head, HEADER_BYTES, 0);
    r->n_rows = r->sum = 0;
    return SPECRT_STATUS_OK;
}

/* Room for a row; the first file gives a store its vocabulary. */
static specrt_status reserve_row(reader *r, pairs *p, int32_t n_vocab) {
    if (p->n_vocab == 0) sl_pairs_set_vocab(p, n_vocab);
    if (p->n_vocab != n_vocab) return bad(r, "pairs of another vocabulary");
    if (r->ids) return SPECRT_STATUS_OK;
    bool ok = (r->ids = (int32_t *)malloc((size_t)n_vocab * sizeof *r->ids)) &&
              (r->counts = (uint64_t *)malloc((size_t)n_vocab * sizeof *r->counts));
    return ok ? SPECRT_STATUS_OK : sl_pairs_no_memory(r->err);
}

static specrt_status read_all(reader *r, pairs *p, pairs_header *header) {
    for (bool first = true;; first = false) {
        pairs_header found;
        bool end;
        TRY(read_header(r, &found, &end));
        if (end && first) return bad(r, "empty; expected a count file of pairs");
        if (end) return SPECRT_STATUS_OK;
        TRY(sl_pairs_header_add(header, &found, r->stream.name, r->err));
        TRY(reserve_row(r, p, found.n_vocab));
        TRY(read_rows(r, p->n_vocab));
        TRY(read_tail(r, &found));
    }
}

static specrt_status read_input(pairs *p, pairs_header *header, const char *path, const void *bytes,
                                size_t n, specrt_error *err) {
    reader r = {.rows = {.p = p}, .err = err};
    TRY(sl_corpus_stream_open(&r.stream, path, (const uint8_t *)bytes, n, err));
    r.ahead = (uint8_t *)malloc(READ_AHEAD);
    specrt_status status = r.ahead ? read_all(&r, p, header) : sl_pairs_no_memory(err);
    sl_corpus_stream_close(&r.stream);
    builder_free(&r.rows);
    free(r.ahead);
    free(r.ids);
    free(r.counts);
    return status;
}

specrt_status sl_pairs_read(pairs *p, pairs_header *header, const char *path, specrt_error *err) {
    return read_input(p, header, path, NULL, 0, err);
}

specrt_status sl_pairs_read_memory(pairs *p, pairs_header *header, const void *bytes, size_t n,
                                   const char *name, specrt_error *err) {
    return read_input(p, header, name, bytes ? bytes : "", n, err);
}

/* ---- between MPI ranks ---- */

/* Rows of one range, in messages of whole rows. */
static specrt_status send_put(void *arg, const void *bytes, size_t n, specrt_error *err) {
    const uint8_t *begin = (const uint8_t *)bytes, *end = begin + n, *p = begin;
    uint64_t unused = 0;
    (void)err;
    while (p < end) {
        p = row_end(p, &unused);
        if (p < end && p - begin < MESSAGE_BYTES) continue;
        sl_mpi_send(begin, (size_t)(p - begin), *(const int *)arg);
        begin = p;
    }
    return SPECRT_STATUS_OK;
}

specrt_status sl_pairs_send(pairs *p, int to, specrt_error *err) {
    specrt_status status = sl_pairs_each(p, 1, write_take, send_put, &to, err);
    sl_mpi_send("", 0, to); /* also after an error, so that the receiver is not left waiting */
    return status;
}

/* A message holds rows of one range: a run. Takes it over. */
static specrt_status add_message(pairs *p, uint8_t *bytes, size_t n, specrt_error *err) {
    pairs_run run = {.bytes = bytes, .n_bytes = n, .starts = sl_pairs_run_starts(p)};
    uint64_t source;
    if (!run.starts) return sl_pairs_run_free(&run), sl_pairs_no_memory(err);
    pairs_get_varint(bytes, &source);
    for (int64_t range = (int64_t)source / PAIRS_RANGE; range < p->n_ranges; range++)
        run.starts[range + 1] = n;
    return sl_pairs_add_run(p, &run, err);
}

/* After an error all that is left is received all the same, or the sender would wait. */
specrt_status sl_pairs_receive(pairs *p, int from, specrt_error *err) {
    specrt_status status = SPECRT_STATUS_OK;
    size_t n = 1;
    while (n > 0) {
        uint8_t *bytes = (uint8_t *)sl_mpi_receive(from, &n);
        if (n > 0 && status == SPECRT_STATUS_OK)
            status = add_message(p, bytes, n, err);
        else
            free(bytes);
    }
    return status;
}
