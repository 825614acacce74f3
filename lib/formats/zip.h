/* zip.h : ZIP archives as torch.save writes them: stored entries, ZIP64 where needed. */
#ifndef FORMATS_ZIP_H
#define FORMATS_ZIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/io.h"
#include "specrt.h"

typedef struct zip_entry {
    const char *name; /* borrowed from the archive, not NUL-terminated */
    size_t name_bytes;
    const uint8_t *data; /* as stored */
    size_t bytes;
    uint32_t crc;
    uint16_t method; /* 0: stored */
} zip_entry;

typedef struct zip_reader {
    const char *path; /* for messages, borrowed */
    zip_entry *entries;
    int64_t n;
} zip_reader;

bool sl_zip_probe(const void *bytes, size_t n); /* starts like a ZIP archive */

/* sl_zip_open() : list an archive held in memory (borrowed). Only the directory and the bounds of the
 * entries are checked; sl_zip_check() does the rest for those that are used. */
specrt_status sl_zip_open(const void *bytes, size_t n, const char *path, zip_reader *out,
                          specrt_error *err);
void sl_zip_close(zip_reader *zip);

/* sl_zip_find() : the entry FOLDER/NAME; NULL: absent. */
const zip_entry *sl_zip_find(const zip_reader *zip, const char *folder, size_t folder_bytes,
                             const char *name, size_t name_bytes);

/* sl_zip_check() : the entry is stored plainly and its CRC is right. */
specrt_status sl_zip_check(const zip_reader *zip, const zip_entry *entry, specrt_error *err);

#define ZIP_MAX_WRITTEN 8
typedef struct zip_writer {
    out_file *out;
    uint64_t offset;
    struct {
        const char *name;
        uint32_t crc, bytes, offset;
    } entries[ZIP_MAX_WRITTEN];
    int n;
} zip_writer;

/* sl_zip_add() : append a stored entry whose data starts at a multiple of 64, as torch aligns them.
 *   w    : {.out = file at its start}
 *   name : borrowed until sl_zip_finish() */
specrt_status sl_zip_add(zip_writer *w, const char *name, const void *data, size_t bytes,
                         specrt_error *err);
specrt_status sl_zip_finish(zip_writer *w, specrt_error *err);

#endif
