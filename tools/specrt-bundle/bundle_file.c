/* bundle_file.c : see bundle_file.h. */
#include "bundle_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <zstd.h>
#include "verbs.h"
#include "base/error.h"

/* zstd packs at most 128 KiB into a block of 4 bytes. */
enum { MAX_ZSTD_RATIO = 1 << 16 };

specrt_status bundle_file_open(const char *path, bundle_file *out, specrt_error *err) {
    *out = (bundle_file){.path = path};
    TRY(sl_file_map(path, &out->file, err));
    specrt_status status =
        specrt_bundle_open_memory(out->file.bytes, out->file.n, path, NULL, &out->bundle, err);
    if (status != SPECRT_STATUS_OK) bundle_file_close(out);
    return status;
}

void bundle_file_close(bundle_file *b) {
    specrt_bundle_close(b->bundle);
    sl_file_unmap(&b->file);
    *b = (bundle_file){0};
}

static specrt_status unpack(const bundle_file *b, const specrt_bundle_section *s,
                            const uint8_t *stored, void **owned, specrt_error *err) {
    size_t n_stored = (size_t)s->stored_bytes;
    if (s->raw_bytes / MAX_ZSTD_RATIO > s->stored_bytes ||
        ZSTD_getFrameContentSize(stored, n_stored) != s->raw_bytes)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_ZSTD,
                                "%s: section '%s': no zstd frame of %" PRIu64 " bytes", b->path,
                                verb_tag(s), s->raw_bytes);
    *owned = malloc((size_t)s->raw_bytes + 1);
    if (!*owned) return sl_error_no_memory(err, b->path);
    size_t n = ZSTD_decompress(*owned, (size_t)s->raw_bytes, stored, n_stored);
    if (n == s->raw_bytes) return SPECRT_STATUS_OK;
    free(*owned);
    *owned = NULL;
    return specrt_error_set(err, SPECRT_STATUS_BUNDLE_ZSTD, "%s: section '%s': zstd: %s", b->path,
                            verb_tag(s), ZSTD_isError(n) ? ZSTD_getErrorName(n) : "too short");
}

specrt_status bundle_file_section(const bundle_file *b, const specrt_bundle_section *s,
                                  const void **data, void **owned, specrt_error *err) {
    static const uint32_t known = SPECRT_SECTION_ZSTD | SPECRT_SECTION_OPTIONAL |
                                  SPECRT_SECTION_DEPENDS_TOKENIZER | SPECRT_SECTION_DEPENDS_HEAD |
                                  SPECRT_SECTION_DEPENDS_DRAFTER;
    size_t n;
    *owned = NULL;
    *data = specrt_bundle_data(b->bundle, verb_tag(s), &n);
    if (*data) return SPECRT_STATUS_OK;
    const uint8_t *stored = b->file.bytes + s->offset; /* inside the file: checked at opening */
    uint64_t sum = specrt_hash64(stored, (size_t)s->stored_bytes, 0);
    if (sum != s->checksum)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_CHECKSUM,
                                "%s: section '%s': checksum expected %016" PRIx64
                                ", found %016" PRIx64 "; the file is damaged",
                                b->path, verb_tag(s), s->checksum, sum);
    if (s->flags & ~known)
        return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                                "%s: section '%s': flags %#" PRIx32 " are of a later version",
                                b->path, verb_tag(s), s->flags & ~known);
    *data = stored;
    if (!(s->flags & SPECRT_SECTION_ZSTD)) return SPECRT_STATUS_OK;
    TRY(unpack(b, s, stored, owned, err));
    *data = *owned;
    return SPECRT_STATUS_OK;
}
