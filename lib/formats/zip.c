/* zip.c : see zip.h. The central directory is the truth; local headers only tell where data starts,
 * since torch leaves their sizes 0. */
#include "specrt_tools.h"
#include "formats/zip.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include "base/error.h"

enum {
    LOCAL_BYTES = 30,
    CENTRAL_BYTES = 46,
    END_BYTES = 22,
    END64_BYTES = 56,
    LOCATOR64_BYTES = 20,
    MAX_COMMENT = 65535,
    ALIGN = 64,
    DATE = 0x21 /* 1 January 1980: the same bytes on every day */
};

static uint16_t u16(const uint8_t *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t u32(const uint8_t *p) {
    return u16(p) | (uint32_t)u16(p + 2) << 16;
}

static uint64_t u64(const uint8_t *p) {
    return u32(p) | (uint64_t)u32(p + 4) << 32;
}

static bool is(const uint8_t *p, char a, char b) {
    return p[0] == 'P' && p[1] == 'K' && p[2] == a && p[3] == b;
}

static specrt_status bad(const char *path, const char *what, specrt_error *err) {
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT, "%s: zip archive: %s", path, what);
}

bool sl_zip_probe(const void *bytes, size_t n) {
    return n >= 4 && is((const uint8_t *)bytes, 3, 4);
}

/* The end record is the last thing in the file but for a comment, whose length it tells. */
static const uint8_t *find_end(const uint8_t *b, size_t n) {
    if (n < END_BYTES) return NULL;
    size_t lowest = n - END_BYTES > MAX_COMMENT ? n - END_BYTES - MAX_COMMENT : 0;
    for (size_t i = n - END_BYTES + 1; i-- > lowest;)
        if (is(b + i, 5, 6) && u16(b + i + 20) == n - END_BYTES - i) return b + i;
    return NULL;
}

typedef struct directory {
    uint64_t count, bytes, offset;
} directory;

static bool find_directory(const uint8_t *b, size_t n, directory *out) {
    const uint8_t *end = find_end(b, n);
    if (!end) return false;
    *out = (directory){u16(end + 10), u32(end + 12), u32(end + 16)};
    if (out->count != UINT16_MAX && out->bytes != UINT32_MAX && out->offset != UINT32_MAX)
        return true;
    if (end - b < LOCATOR64_BYTES || !is(end - LOCATOR64_BYTES, 6, 7)) return true;
    uint64_t at = u64(end - LOCATOR64_BYTES + 8);
    if (n < END64_BYTES || at > n - END64_BYTES || !is(b + at, 6, 6)) return false;
    *out = (directory){u64(b + at + 32), u64(b + at + 40), u64(b + at + 48)};
    return true;
}

/* ZIP64 sizes stand in an extra field, only those that are saturated in the entry itself. */
static bool read_zip64(const uint8_t *extra, size_t n, uint64_t *const fields[3]) {
    while (n >= 4) {
        size_t size = u16(extra + 2);
        if (size > n - 4) return false;
        if (u16(extra) == 1) {
            const uint8_t *p = extra + 4, *end = p + size;
            for (int i = 0; i < 3; i++) {
                if (*fields[i] != UINT32_MAX) continue;
                if (end - p < 8) return false;
                *fields[i] = u64(p);
                p += 8;
            }
            return true;
        }
        extra += 4 + size, n -= 4 + size;
    }
    return true;
}

/* One entry of the directory at p; *length is how many bytes it takes there. */
static const char *read_entry(const uint8_t *b, size_t n, const uint8_t *p, uint64_t left,
                              zip_entry *out, uint64_t *length) {
    if (left < CENTRAL_BYTES || !is(p, 1, 2)) return "directory is cut off";
    uint64_t stored = u32(p + 20), bytes = u32(p + 24), offset = u32(p + 42);
    size_t name = u16(p + 28), extra = u16(p + 30);
    *length = CENTRAL_BYTES + name + extra + u16(p + 32);
    if (*length > left) return "directory is cut off";
    if (u16(p + 8) & 1) return "entry is encrypted";
    uint64_t *const fields[3] = {&bytes, &stored, &offset};
    if (!read_zip64(p + CENTRAL_BYTES + name, extra, fields)) return "bad ZIP64 field";
    if (n < LOCAL_BYTES || offset > n - LOCAL_BYTES || !is(b + offset, 3, 4))
        return "entry offset is outside the file";
    uint64_t data = offset + LOCAL_BYTES + u16(b + offset + 26) + u16(b + offset + 28);
    if (data > n || stored > n - data) return "entry data is outside the file";
    *out = (zip_entry){
        (const char *)p + CENTRAL_BYTES, name, b + data, (size_t)stored, u32(p + 16), u16(p + 10)};
    if (out->method == 0 && stored != bytes) return "stored entry has two sizes";
    return NULL;
}

specrt_status sl_zip_open(const void *bytes, size_t n, const char *path, zip_reader *out,
                          specrt_error *err) {
    const uint8_t *b = (const uint8_t *)bytes;
    directory d;
    *out = (zip_reader){.path = path};
    if (!find_directory(b, n, &d)) return bad(path, "no end record; the file is cut off", err);
    if (d.offset > n || d.bytes > n - d.offset || d.count > d.bytes / CENTRAL_BYTES)
        return bad(path, "directory is outside the file", err);
    out->entries = (zip_entry *)calloc((size_t)d.count + 1, sizeof *out->entries);
    if (!out->entries) return sl_error_no_memory(err, path);
    uint64_t at = d.offset, end = d.offset + d.bytes;
    for (uint64_t i = 0; i < d.count; i++) {
        uint64_t length;
        const char *wrong = read_entry(b, n, b + at, end - at, &out->entries[out->n], &length);
        if (wrong) {
            sl_zip_close(out);
            return bad(path, wrong, err);
        }
        at += length;
        out->n++;
    }
    return SPECRT_STATUS_OK;
}

void sl_zip_close(zip_reader *zip) {
    free(zip->entries);
    *zip = (zip_reader){0};
}

const zip_entry *sl_zip_find(const zip_reader *zip, const char *folder, size_t folder_bytes,
                             const char *name, size_t name_bytes) {
    for (int64_t i = 0; i < zip->n; i++) {
        const zip_entry *e = &zip->entries[i];
        if (e->name_bytes == folder_bytes + 1 + name_bytes && e->name[folder_bytes] == '/' &&
            memcmp(e->name, folder, folder_bytes) == 0 &&
            memcmp(e->name + folder_bytes + 1, name, name_bytes) == 0)
            return e;
    }
    return NULL;
}

static uint32_t crc_of(const void *data, size_t bytes) {
    return (uint32_t)crc32_z(0, (const Bytef *)data, bytes);
}

specrt_status sl_zip_check(const zip_reader *zip, const zip_entry *e, specrt_error *err) {
    int name_bytes = (int)(e->name_bytes > 100 ? 100 : e->name_bytes);
    if (e->method != 0)
        return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                                "%s: entry %.*s is compressed (method %d); torch stores it plainly",
                                zip->path, name_bytes, e->name, e->method);
    uint32_t crc = crc_of(e->data, e->bytes);
    if (crc == e->crc) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                            "%s: entry %.*s: CRC is %08x, expected %08x; the file is damaged",
                            zip->path, name_bytes, e->name, crc, e->crc);
}

/* ---- writing ---------------------------------------------------------------------------------- */

static uint8_t *put16(uint8_t *p, uint32_t x) {
    p[0] = (uint8_t)x, p[1] = (uint8_t)(x >> 8);
    return p + 2;
}

static uint8_t *put32(uint8_t *p, uint32_t x) {
    return put16(put16(p, x), x >> 16);
}

/* What local and central headers share: version needed, flags, method, time, date, CRC, sizes, name. */
static uint8_t *put_common(uint8_t *p, uint32_t crc, uint32_t bytes, size_t name, size_t extra) {
    p = put16(p, 10);
    p = put16(put16(p, 0), 0);
    p = put16(put16(p, 0), DATE);
    p = put32(put32(put32(p, crc), bytes), bytes);
    return put16(put16(p, (uint32_t)name), (uint32_t)extra);
}

static specrt_status write_all(zip_writer *w, const void *data, size_t n, specrt_error *err) {
    w->offset += n;
    return sl_out_write(w->out, data, n, err);
}

specrt_status sl_zip_add(zip_writer *w, const char *name, const void *data, size_t bytes,
                         specrt_error *err) {
    uint8_t header[LOCAL_BYTES + 256 + 2 * ALIGN] = {'P', 'K', 3, 4};
    size_t n = strlen(name);
    if (w->n == ZIP_MAX_WRITTEN || n > 255 || w->offset + bytes > UINT32_MAX - 4096)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG, "%s: too large for a plain zip archive",
                                w->out->path);
    /* torch pads with a field "FB"; 4 bytes are its own header. */
    size_t extra = 4 + (ALIGN - (w->offset + LOCAL_BYTES + n + 4) % ALIGN) % ALIGN;
    uint32_t crc = crc_of(data, bytes);
    uint8_t *p = put_common(header + 4, crc, (uint32_t)bytes, n, extra);
    memcpy(p, name, n);
    p = put16(put16(p + n, 'F' | 'B' << 8), (uint32_t)(extra - 4));
    memset(p, 'Z', extra - 4);
    p += extra - 4;
    w->entries[w->n].name = name;
    w->entries[w->n].crc = crc;
    w->entries[w->n].bytes = (uint32_t)bytes;
    w->entries[w->n++].offset = (uint32_t)w->offset;
    specrt_status status = write_all(w, header, (size_t)(p - header), err);
    return status == SPECRT_STATUS_OK ? write_all(w, data, bytes, err) : status;
}

specrt_status sl_zip_finish(zip_writer *w, specrt_error *err) {
    uint32_t start = (uint32_t)w->offset;
    for (int i = 0; i < w->n; i++) {
        uint8_t header[CENTRAL_BYTES + 256] = {'P', 'K', 1, 2};
        size_t n = strlen(w->entries[i].name);
        uint8_t *p =
            put_common(put16(header + 4, 20), w->entries[i].crc, w->entries[i].bytes, n, 0);
        memset(p, 0, 10); /* comment, disk, attributes */
        put32(p + 10, w->entries[i].offset);
        memcpy(header + CENTRAL_BYTES, w->entries[i].name, n);
        specrt_status status = write_all(w, header, CENTRAL_BYTES + n, err);
        if (status != SPECRT_STATUS_OK) return status;
    }
    uint8_t end[END_BYTES] = {'P', 'K', 5, 6};
    uint8_t *p = put16(put16(end + 8, (uint32_t)w->n), (uint32_t)w->n);
    put32(put32(p, (uint32_t)w->offset - start), start);
    return write_all(w, end, sizeof end, err);
}
