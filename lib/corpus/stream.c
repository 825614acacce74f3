/* stream.c : see stream.h; and the window that slides over a stream. */
#include "specrt_tools.h"
#include "corpus/corpus_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include "base/error.h"
#include "base/memory.h"
#include "base/system.h"

enum { READ_AHEAD = 1 << 18 };

static specrt_status read_fd(const corpus_stream *s, uint64_t offset, bool in_order, uint8_t *out,
                             size_t n, size_t *got, specrt_error *err) {
    for (*got = 0; *got < n;) {
        ssize_t m = in_order ? read(s->fd, out + *got, n - *got)
                             : pread(s->fd, out + *got, n - *got, (off_t)(offset + *got));
        if (m < 0 && errno == EINTR) continue;
        if (m < 0)
            return specrt_error_set(err, SPECRT_STATUS_IO, "%s: cannot read: %s", s->name,
                                    strerror(errno));
        *got += (size_t)m;
        if (m == 0 || in_order) break; /* a pipe is not waited on for more */
    }
    return SPECRT_STATUS_OK;
}

static specrt_status read_raw(const corpus_stream *s, uint64_t offset, bool in_order, void *out,
                              size_t n, size_t *got, specrt_error *err) {
    if (s->fd >= 0) return read_fd(s, offset, in_order, (uint8_t *)out, n, got, err);
    uint64_t left = offset < s->n_raw ? s->n_raw - offset : 0;
    *got = n < left ? n : (size_t)left;
    if (*got > 0) memcpy(out, s->memory + offset, *got);
    return SPECRT_STATUS_OK;
}

/* refill() : at least one more raw byte in s->in, unless the input has ended. */
static specrt_status refill(corpus_stream *s, specrt_error *err) {
    memmove(s->in, s->in + s->in_at, s->in_n - s->in_at);
    s->in_n -= s->in_at;
    s->in_at = 0;
    size_t got;
    specrt_status status =
        read_raw(s, s->raw_at, true, s->in + s->in_n, READ_AHEAD - s->in_n, &got, err);
    if (status != SPECRT_STATUS_OK) return status;
    s->in_n += got;
    s->raw_at += got;
    return SPECRT_STATUS_OK;
}

/* A pipe may give its first bytes one at a time. */
static specrt_status read_magic(corpus_stream *s, specrt_error *err) {
    for (size_t before = SIZE_MAX; s->in_n < 4 && s->in_n != before;) {
        before = s->in_n;
        specrt_status status = refill(s, err);
        if (status != SPECRT_STATUS_OK) return status;
    }
    return SPECRT_STATUS_OK;
}

static specrt_status packed_error(const corpus_stream *s, const char *what, specrt_error *err) {
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT, "%s: %s data at byte %llu: %s", s->name,
                            s->codec == CODEC_GZIP ? "gzip" : "zstd",
                            (unsigned long long)sl_corpus_stream_raw_position(s), what);
}

static bool gzip_magic(const uint8_t *p, size_t n) {
    return n >= 2 && p[0] == 0x1F && p[1] == 0x8B;
}

/* A frame, or a skippable frame (which pzstd and others put first). */
static bool zstd_magic(const uint8_t *p, size_t n) {
    if (n < 4) return false;
    uint32_t magic =
        (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    return magic == ZSTD_MAGICNUMBER ||
           (magic & ZSTD_MAGIC_SKIPPABLE_MASK) == ZSTD_MAGIC_SKIPPABLE_START;
}

static specrt_status decoder_create(corpus_stream *s, specrt_error *err) {
    if (s->codec == CODEC_ZSTD) {
        s->decoder = ZSTD_createDStream();
        return s->decoder ? SPECRT_STATUS_OK : sl_error_no_memory(err, s->name);
    }
    z_stream *z = (z_stream *)calloc(1, sizeof *z);
    if (!z || inflateInit2(z, 15 + 16) != Z_OK) return free(z), sl_error_no_memory(err, s->name);
    s->decoder = z;
    return SPECRT_STATUS_OK;
}

static specrt_status open_fd(corpus_stream *s, const char *path, specrt_error *err) {
    struct stat st;
    bool standard = strcmp(path, "-") == 0;
    s->fd = standard ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC);
    if (s->fd < 0 || fstat(s->fd, &st) != 0)
        return specrt_error_set(err, SPECRT_STATUS_IO, "%s: cannot open: %s", path,
                                strerror(errno));
    s->sized = S_ISREG(st.st_mode) && !standard;
    s->n_raw = s->sized ? (uint64_t)st.st_size : 0;
    if (s->sized) sl_read_ahead(s->fd);
    return SPECRT_STATUS_OK;
}

specrt_status sl_corpus_stream_open(corpus_stream *s, const char *name, const uint8_t *bytes,
                                    size_t n, specrt_error *err) {
    memset(s, 0, sizeof *s);
    s->name = strcmp(name, "-") == 0 ? "standard input" : name;
    s->fd = -1;
    s->memory = bytes;
    s->n_raw = n;
    s->sized = true;
    specrt_status status = bytes ? SPECRT_STATUS_OK : open_fd(s, name, err);
    if (status == SPECRT_STATUS_OK) {
        s->in = (uint8_t *)malloc(READ_AHEAD);
        status = s->in ? read_magic(s, err) : sl_error_no_memory(err, name);
    }
    if (status == SPECRT_STATUS_OK) {
        s->codec = gzip_magic(s->in, s->in_n)   ? CODEC_GZIP
                   : zstd_magic(s->in, s->in_n) ? CODEC_ZSTD
                                                : CODEC_NONE;
        s->any_offset = s->sized && s->codec == CODEC_NONE;
        if (s->codec != CODEC_NONE) status = decoder_create(s, err);
    }
    if (status != SPECRT_STATUS_OK) sl_corpus_stream_close(s);
    return status;
}

void sl_corpus_stream_close(corpus_stream *s) {
    if (s->decoder && s->codec == CODEC_ZSTD) ZSTD_freeDStream((ZSTD_DStream *)s->decoder);
    if (s->decoder && s->codec == CODEC_GZIP) {
        inflateEnd((z_stream *)s->decoder);
        free(s->decoder);
    }
    if (s->fd >= 0) close(s->fd);
    free(s->in);
    memset(s, 0, sizeof *s);
    s->fd = -1;
}

uint64_t sl_corpus_stream_raw_position(const corpus_stream *s) {
    return s->raw_at - (s->in_n - s->in_at);
}

/* Between members: another one, zero padding, or nothing may follow. */
static specrt_status gzip_next_member(corpus_stream *s, specrt_error *err) {
    for (;;) {
        while (s->in_at < s->in_n && s->in[s->in_at] == 0) s->in_at++;
        if (s->in_n - s->in_at >= 2) break;
        size_t before = s->in_n - s->in_at;
        specrt_status status = refill(s, err);
        if (status != SPECRT_STATUS_OK) return status;
        if (s->in_n == 0) return SPECRT_STATUS_OK;
        if (s->in_n == before) break;
    }
    if (!gzip_magic(s->in + s->in_at, s->in_n - s->in_at))
        return packed_error(s, "something else follows it", err);
    if (inflateReset((z_stream *)s->decoder) != Z_OK) return sl_error_no_memory(err, s->name);
    s->in_frame = true;
    return SPECRT_STATUS_OK;
}

static specrt_status gzip_step(corpus_stream *s, uint8_t *out, size_t n, size_t *got,
                               specrt_error *err) {
    z_stream *z = (z_stream *)s->decoder;
    z->next_in = s->in + s->in_at;
    z->avail_in = (uInt)(s->in_n - s->in_at);
    z->next_out = out;
    z->avail_out = (uInt)n;
    int code = inflate(z, Z_NO_FLUSH);
    s->in_at = s->in_n - z->avail_in;
    *got = n - z->avail_out;
    if (code == Z_STREAM_END) s->in_frame = false;
    if (code == Z_STREAM_END || code == Z_OK || code == Z_BUF_ERROR) return SPECRT_STATUS_OK;
    if (code == Z_MEM_ERROR) return sl_error_no_memory(err, s->name);
    return packed_error(s, z->msg ? z->msg : "damaged", err);
}

static specrt_status zstd_step(corpus_stream *s, uint8_t *out, size_t n, size_t *got,
                               specrt_error *err) {
    ZSTD_inBuffer in = {s->in, s->in_n, s->in_at};
    ZSTD_outBuffer to = {out, n, 0};
    size_t code = ZSTD_decompressStream((ZSTD_DStream *)s->decoder, &to, &in);
    s->in_at = in.pos;
    *got = to.pos;
    if (ZSTD_isError(code)) return packed_error(s, ZSTD_getErrorName(code), err);
    s->in_frame = code != 0;
    return SPECRT_STATUS_OK;
}

/* unpack() : some content; *got == 0 is the end. */
static specrt_status unpack(corpus_stream *s, uint8_t *out, size_t n, size_t *got,
                            specrt_error *err) {
    specrt_status status = SPECRT_STATUS_OK;
    for (*got = 0; status == SPECRT_STATUS_OK && *got == 0;) {
        if (s->codec == CODEC_GZIP && !s->in_frame) {
            status = gzip_next_member(s, err);
            if (status != SPECRT_STATUS_OK || !s->in_frame) return status;
        }
        if (s->in_at == s->in_n) status = refill(s, err);
        if (status != SPECRT_STATUS_OK) return status;
        bool ended = s->in_n == 0;
        if (ended && !s->in_frame) return SPECRT_STATUS_OK;
        status = s->codec == CODEC_GZIP ? gzip_step(s, out, n, got, err)
                                        : zstd_step(s, out, n, got, err);
        if (status == SPECRT_STATUS_OK && ended && *got == 0 && s->in_frame)
            return packed_error(s, "it ends here, in the middle; the file is cut short", err);
    }
    return status;
}

static specrt_status copy_through(corpus_stream *s, uint8_t *out, size_t n, size_t *got,
                                  specrt_error *err) {
    if (s->in_at == s->in_n) {
        specrt_status status = refill(s, err);
        if (status != SPECRT_STATUS_OK) return status;
    }
    *got = n < s->in_n - s->in_at ? n : s->in_n - s->in_at;
    memcpy(out, s->in + s->in_at, *got);
    s->in_at += *got;
    return SPECRT_STATUS_OK;
}

specrt_status sl_corpus_stream_read(corpus_stream *s, uint64_t offset, void *out, size_t n,
                                    size_t *got, specrt_error *err) {
    if (s->any_offset) return read_raw(s, offset, false, out, n, got, err);
    specrt_status status = SPECRT_STATUS_OK;
    for (*got = 0; *got < n;) {
        size_t m, want = n - *got < (1u << 30) ? n - *got : 1u << 30; /* zlib counts in 32 bits */
        uint8_t *to = (uint8_t *)out + *got;
        status = s->codec == CODEC_NONE ? copy_through(s, to, want, &m, err)
                                        : unpack(s, to, want, &m, err);
        if (status != SPECRT_STATUS_OK || m == 0) break;
        *got += m;
    }
    return status;
}

/* ---- window ---- */

specrt_status sl_corpus_window_fill(corpus_window *w, corpus_stream *s, uint64_t end,
                                    specrt_error *err) {
    uint64_t have = w->base + w->n;
    if (w->ended || end <= have) return SPECRT_STATUS_OK;
    size_t need = (size_t)(end - w->base);
    if (!sl_reserve(&w->bytes, &w->capacity, need + 4, 1)) return sl_error_no_memory(err, s->name);
    size_t got;
    specrt_status status = sl_corpus_stream_read(s, have, w->bytes + w->n, need - w->n, &got, err);
    if (status != SPECRT_STATUS_OK) return status;
    w->ended = got < need - w->n;
    w->n += got;
    memset(w->bytes + w->n, 0, 4);
    return SPECRT_STATUS_OK;
}

void sl_corpus_window_drop(corpus_window *w, uint64_t offset) {
    if (offset <= w->base) return;
    size_t n = (size_t)(offset - w->base);
    if (w->n < n) n = w->n;
    w->n_lines_before += sl_corpus_count_lines(w->bytes, n);
    memmove(w->bytes, w->bytes + n, w->n - n);
    w->n -= n;
    w->base += n;
}

void sl_corpus_window_free(corpus_window *w) {
    free(w->bytes);
    memset(w, 0, sizeof *w);
}

uint64_t sl_corpus_count_lines(const char *text, size_t n) {
    uint64_t lines = 0;
    const char *end = text + n;
    for (const char *p = text; n > 0 && p < end; p++, lines++) {
        p = (const char *)memchr(p, '\n', (size_t)(end - p));
        if (!p) break;
    }
    return lines;
}
