/* gather.h : all documents of a corpus, of which the files are made at run time. */
#ifndef GATHER_H
#define GATHER_H

#include "base/parallel.h"
#include "base/utf8.h"
#include "corpus/corpus.h"
#include "folder.h"
#include "specrt_tools.h"
#include "test.h"

#include <sys/stat.h>
#include <zlib.h>
#include <zstd.h>

/* ---- files ---- */

static inline const char *put_file(const char *name, const void *bytes, size_t n) {
    const char *path = in_folder(name);
    FILE *f = fopen(path, "wb");
    REQUIRE(f && fwrite(bytes, 1, n, f) == n && fclose(f) == 0);
    return path;
}

static inline const char *put_text(const char *name, const char *text) {
    return put_file(name, text, strlen(text));
}

static inline const char *make_folder(const char *name) {
    const char *path = in_folder(name);
    REQUIRE(mkdir(path, 0777) == 0);
    return path;
}

/* gzip members or zstd frames of `part` bytes each. @return bytes; freed by the caller. */

/* gzip members or zstd frames of `part` bytes each. @return bytes; freed by the caller. */
static inline uint8_t *pack(const char *codec, const void *bytes, size_t n, size_t part,
                            size_t *n_out) {
    size_t room = 2 * n + 1024 + 64 * (n / part + 1), at = 0;
    uint8_t *out = (uint8_t *)malloc(room);
    const uint8_t *from = (const uint8_t *)bytes;
    for (size_t i = 0; i < n; i += part) {
        size_t m = n - i < part ? n - i : part;
        if (strcmp(codec, "zst") == 0) {
            at += ZSTD_compress(out + at, room - at, from + i, m, 1);
            continue;
        }
        z_stream z = {0};
        deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
        z.next_in = (Bytef *)(uintptr_t)(from + i);
        z.avail_in = (uInt)m;
        z.next_out = out + at;
        z.avail_out = (uInt)(room - at);
        REQUIRE(deflate(&z, Z_FINISH) == Z_STREAM_END);
        at += z.total_out;
        deflateEnd(&z);
    }
    *n_out = at;
    return out;
}

static inline const char *put_packed(const char *name, const char *codec, const void *bytes,
                                     size_t n, size_t part) {
    size_t m;
    uint8_t *packed = pack(codec, bytes, n, part, &m);
    const char *path = put_file(name, packed, m);
    free(packed);
    return path;
}

static uint32_t draw_state;
static inline uint32_t draw(uint32_t n) {
    draw_state = draw_state * 1664525u + 1013904223u;
    return (draw_state >> 8) % n;
}

/* ---- collecting ---- */

typedef struct gathered {
    char *text; /* all documents, one after another */
    size_t n_text, capacity;
    size_t *ends; /* [n_docs] where each ends in text */
    bool *completion, *continues;
    size_t n_docs, docs_capacity;
    uint64_t sum; /* of hashes of (document, domain, flags, unit hash): any order */
    uint64_t digest;
    corpus_stats stats;
    specrt_error err;
    specrt_status status;
} gathered;

static inline void gather_free(gathered *g) {
    free(g->text), free(g->ends), free(g->completion), free(g->continues);
    memset(g, 0, sizeof *g);
}

static inline void gather_text(gathered *g, const corpus_doc *doc) {
    if (g->n_text + doc->n_bytes + 1 > g->capacity) {
        g->capacity = 2 * (g->n_text + doc->n_bytes + 1);
        g->text = (char *)realloc(g->text, g->capacity);
    }
    if (g->n_docs == g->docs_capacity) {
        g->docs_capacity = 2 * g->docs_capacity + 16;
        g->ends = (size_t *)realloc(g->ends, g->docs_capacity * sizeof *g->ends);
        g->completion = (bool *)realloc(g->completion, g->docs_capacity);
        g->continues = (bool *)realloc(g->continues, g->docs_capacity);
    }
    if (doc->n_bytes > 0) memcpy(g->text + g->n_text, doc->text, doc->n_bytes);
    g->n_text += doc->n_bytes;
    g->text[g->n_text] = '\0';
    g->ends[g->n_docs] = g->n_text;
    g->completion[g->n_docs] = doc->completion;
    g->continues[g->n_docs++] = doc->continues;
}

static inline uint64_t hash_doc(const corpus_doc *doc) {
    uint64_t key[4] = {doc->unit_hash, (uint64_t)doc->domain, doc->completion, doc->continues};
    uint64_t seed = specrt_hash64(key, sizeof key, 0);
    return doc->text ? specrt_hash64(doc->text, doc->n_bytes, seed)
                     : specrt_hash64(doc->ids, doc->n_ids * sizeof *doc->ids, seed);
}

typedef struct reader {
    corpus *c;
    gathered *g; /* texts are kept for one thread only */
    bool keep;
    uint64_t sums[8], n_docs[8];
    specrt_error errors[8];
} reader;

static inline void read_all(void *arg, int worker) {
    reader *r = (reader *)arg;
    corpus_batch batch = {0};
    bool end = false;
    while (sl_corpus_next(r->c, &batch, &end, &r->errors[worker]) == SPECRT_STATUS_OK && !end)
        for (int64_t i = 0; i < batch.n_docs; i++) {
            const corpus_doc *doc = &batch.docs[i];
            REQUIRE(!doc->text || sl_utf8_valid(doc->text, doc->n_bytes) == doc->n_bytes);
            r->sums[worker] += hash_doc(doc);
            r->n_docs[worker]++;
            if (r->keep) gather_text(r->g, doc);
        }
    sl_corpus_batch_free(&batch);
}

static inline void gather_open(gathered *g, corpus *c, int threads) {
    static reader r;
    memset(&r, 0, sizeof r);
    r.c = c, r.g = g, r.keep = threads == 1;
    if (threads == 1)
        read_all(&r, 0);
    else
        sl_parallel_run(threads, read_all, &r);
    uint64_t n_docs = 0;
    for (int i = 0; i < threads; i++) {
        g->sum += r.sums[i];
        n_docs += r.n_docs[i];
        if (r.errors[i].status != SPECRT_STATUS_OK) g->err = r.errors[i];
    }
    g->status = g->err.status;
    g->digest = sl_corpus_digest(c, 0);
    sl_corpus_get_stats(c, &g->stats);
    if (g->status == SPECRT_STATUS_OK) CHECK_INT(g->stats.n_docs, n_docs);
    sl_corpus_close(c);
}

static inline gathered gather(const char *path, const corpus_options *options, int threads) {
    static const corpus_options none;
    gathered g = {0};
    corpus *c;
    g.status = sl_corpus_open(&path, 1, options ? options : &none, &c, &g.err);
    if (g.status == SPECRT_STATUS_OK) gather_open(&g, c, threads);
    return g;
}

static inline gathered gather_memory(const char *name, const void *bytes, size_t n,
                                     const corpus_options *options) {
    static const corpus_options none;
    gathered g = {0};
    corpus *c;
    g.status = sl_corpus_open_memory(name, bytes, n, options ? options : &none, &c, &g.err);
    if (g.status == SPECRT_STATUS_OK) gather_open(&g, c, 1);
    return g;
}

static inline gathered gather_string(const char *name, const char *text,
                                     const corpus_options *options) {
    return gather_memory(name, text, strlen(text), options);
}

/* ---- texts and records ---- */

/* Words, lines, paragraphs, CRLF, scripts, and stretches without a safe place. */
static inline char *make_text(size_t n) {
    static const char *const parts[] = {"word ",
                                        "Another ",
                                        "x\n",
                                        "end.\n\n",
                                        "\r\n",
                                        "1 2 3 ",
                                        "\xE4\xB8\xAD\xE6\x96\x87",
                                        "a\nb ",
                                        "d\xC3\xA9j\xC3\xA0 ",
                                        "\xE3\x80\x82\n\xE4\xB8\xAD",
                                        "  ",
                                        "\tindented\n",
                                        "\xE3\x80\x80\nNo ",
                                        "//x\n/y",
                                        "\n",
                                        "!\nYes "};
    char *text = (char *)malloc(n + 1);
    size_t at = 0;
    while (at < n) {
        const char *part = parts[draw(sizeof parts / sizeof parts[0])];
        uint32_t repeat = draw(1500) == 0 ? 9000 + draw(9000) : 1;
        if (repeat > 1) part = draw(2) ? "0123456789" : "\xE4\xB8\xAD\xE6\x96\x87";
        for (uint32_t i = 0; i < repeat && at < n; i++)
            for (const char *p = part; *p && at < n; p++) text[at++] = *p;
    }
    text[n] = '\0';
    return text;
}

static inline void check_bytes(const char *in, size_t n, const char *want, size_t m,
                               uint64_t replaced) {
    gathered g = gather_memory("x.txt", in, n, NULL);
    CHECK_INT(g.status, SPECRT_STATUS_OK);
    CHECK_INT(g.n_text, m);
    CHECK(g.n_text == m && (m == 0 || memcmp(g.text, want, m) == 0));
    CHECK_INT(g.stats.n_replaced, replaced);
    gather_free(&g);
}

/* Documents as "text|text!": an exclamation mark for a completion. */
static inline const char *show(const gathered *g) {
    static char out[4096];
    size_t at = 0;
    out[0] = '\0';
    for (size_t i = 0; i < g->n_docs && at < 3000; i++) {
        size_t from = i > 0 ? g->ends[i - 1] : 0;
        at +=
            (size_t)snprintf(out + at, sizeof out - at, "%s%.*s%s", i > 0 ? "|" : "",
                             (int)(g->ends[i] - from), g->text + from, g->completion[i] ? "!" : "");
    }
    return out;
}

static inline void check_good(const char *name, const char *text, const char *want,
                              uint64_t n_bad) {
    gathered g = gather_string(name, text, NULL);
    CHECK_STR(g.status ? g.err.msg : show(&g), want);
    CHECK_INT(g.stats.n_bad_records, n_bad);
    gather_free(&g);
}

static inline void check_fails(const char *name, const char *text, const char *message) {
    gathered g = gather_string(name, text, NULL);
    CHECK_INT(g.status, SPECRT_STATUS_BAD_INPUT);
    CHECK_HAS(g.err.msg, message);
    gather_free(&g);
}

#endif
