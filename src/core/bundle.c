/* bundle.c : owns the container: header, section table, checksums, decompression, and views of the sections
 * "ident" and "ranks", whose content is checked once at open so that users of the views need not.
 * Refuses whatever it would have to trust: every size, offset and count is checked before use, a
 * section is never larger than the cap of its kind, a frame's own idea of its size is not asked.
 * Invariants of an open bundle: immutable; sections[i] has data[i], NULL when it was skipped. */
#include "core/bundle.h"
#include "core/base.h"
#include "core/os.h"

#if !defined(SPECRT_NO_ZSTD)
#include <zstd.h>
#endif

/* The sections this runtime knows; the caps bound what a hostile file can make it allocate. */
typedef struct specrt__bundle_kind {
    char tag[9];        /* of up to 8 characters, padded with NULs */
    uint32_t version;   /* the newest it reads, as all before it */
    uint64_t max_bytes; /* decompressed */
    const char *tool;   /* that builds it */
} specrt__bundle_kind;

#define SPECRT__BUNDLE_FLAGS                                                                       \
    (SPECRT_SECTION_ZSTD | SPECRT_SECTION_OPTIONAL | SPECRT_SECTION_DEPENDS_TOKENIZER |            \
     SPECRT_SECTION_DEPENDS_HEAD | SPECRT_SECTION_DEPENDS_DRAFTER)

static const specrt__bundle_kind specrt__bundle_kinds[] = {
    {"centroid", 1, 1ull << 30, "cluster-build --router centroid"},
    {"cluster", 1, 1ull << 30, "cluster-build --router dynaspec"},
    {"cograph", 1, 4ull << 30, "cograph-build"},
    {"group", 1, 1ull << 30, "cluster-build --router coral"},
    {"hnsw", 1, 64ull << 30, "hnsw-build"},
    {"ident", 1, sizeof(specrt_ident), "any builder"},
    {"prov", 1, 16u << 20, "any builder"},
    {"ranks", 1, sizeof(specrt_ranks_header) + 12ull * SPECRT_MAX_VOCAB, "vocabtrim-calibrate"},
    {"sketch", 4, 64ull << 30, "sketch-build"},
    {"", 0, 0, ""}, /* the end */
};

static const specrt__bundle_kind *specrt__bundle_kind_of(const char tag[8]) {
    const specrt__bundle_kind *kind = specrt__bundle_kinds;
    while (kind->version && memcmp(kind->tag, tag, 8) != 0) kind++;
    return kind->version ? kind : NULL;
}

/* --- the container --- */

static bool specrt__bundle_all_zero(const uint8_t *p, uint64_t n) {
    while (n > 0 && *p == 0) p++, n--;
    return n == 0;
}

static specrt_status specrt__bundle_check_magic(const specrt_bundle *b, specrt_error *err) {
    size_t n = b->n_bytes < 8 ? (size_t)b->n_bytes : 8;
    if (n == 0 || memcmp(b->bytes, SPECRT_BUNDLE_MAGIC, n) != 0)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_MAGIC,
                                "%s: not a specrt bundle; expected the magic \\x89SPECB, found %s",
                                b->name, n ? "other bytes" : "an empty file");
    if (b->n_bytes < sizeof(specrt_bundle_header))
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_TRUNCATED,
                                "%s: truncated; expected a header of 64 bytes, found %d", b->name,
                                (int)b->n_bytes);
    return SPECRT_STATUS_OK;
}

static specrt_status specrt__bundle_check_header(const specrt_bundle *b, specrt_error *err) {
    specrt_bundle_header h;
    memcpy(&h, b->bytes, sizeof h);
    if (h.version_major != SPECRT_BUNDLE_VERSION_MAJOR)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_VERSION,
                                "%s: format version: expected %d.x, found %u.%u; update specrt or "
                                "rebuild the bundle",
                                b->name, SPECRT_BUNDLE_VERSION_MAJOR, (unsigned)h.version_major,
                                (unsigned)h.version_minor);
    uint64_t sum = specrt_hash64(&h, offsetof(specrt_bundle_header, header_checksum), 0);
    if (sum != h.header_checksum)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_CHECKSUM,
                                "%s: header: checksum expected %016llx, found %016llx; the file is "
                                "damaged",
                                b->name, (unsigned long long)h.header_checksum,
                                (unsigned long long)sum);
    if (h.flags != 0)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_VERSION,
                                "%s: header: flags %#x are unknown to specrt %s; update specrt",
                                b->name, (unsigned)h.flags, SPECRT_VERSION_STRING);
    if (h.file_bytes != b->n_bytes)
        return specrt_error_set(
            err,
            h.file_bytes > b->n_bytes ? SPECRT_STATUS_BUNDLE_TRUNCATED : SPECRT_STATUS_BUNDLE_TABLE,
            "%s: header: expected a file of %llu bytes, found %llu; copy it again", b->name,
            (unsigned long long)h.file_bytes, (unsigned long long)b->n_bytes);
    return SPECRT_STATUS_OK;
}

/* Finds the table and checks its bounds and its checksum. */
static specrt_status specrt__bundle_check_table(specrt_bundle *b, specrt_error *err) {
    specrt_bundle_header h;
    memcpy(&h, b->bytes, sizeof h);
    if (h.n_sections > SPECRT_BUNDLE_MAX_SECTIONS)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_LIMIT,
                                "%s: header: expected at most %d sections, found %u", b->name,
                                SPECRT_BUNDLE_MAX_SECTIONS, (unsigned)h.n_sections);
    size_t bytes = h.n_sections * sizeof(specrt_bundle_section);
    if (h.table_offset != sizeof h || bytes > b->n_bytes - sizeof h)
        return specrt_error_set(
            err, SPECRT_STATUS_BUNDLE_TABLE,
            "%s: header: section table: expected %u sections at offset 64, found "
            "offset %llu in %llu bytes; copy the file again",
            b->name, (unsigned)h.n_sections, (unsigned long long)h.table_offset,
            (unsigned long long)b->n_bytes);
    b->sections = (const specrt_bundle_section *)(const void *)(b->bytes + sizeof h);
    b->n_sections = (int32_t)h.n_sections;
    if (specrt_hash64(b->sections, bytes, 0) != h.table_checksum)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_CHECKSUM,
                                "%s: section table: checksum mismatch; the file is damaged",
                                b->name);
    return SPECRT_STATUS_OK;
}

/* One to eight of [a-z0-9_-], padded with NULs. */
static bool specrt__bundle_tag_ok(const char tag[8]) {
    int n = 0;
    while (n < 8 && ((tag[n] >= 'a' && tag[n] <= 'z') || (tag[n] >= '0' && tag[n] <= '9') ||
                     tag[n] == '_' || tag[n] == '-'))
        n++;
    return n > 0 && specrt__bundle_all_zero((const uint8_t *)tag + n, (uint64_t)(8 - n));
}

/* NULL, or what is wrong with section i, whose bytes may not start before *end; moves *end on. */
static const char *specrt__bundle_check_section(const specrt_bundle *b, int32_t i, uint64_t *end) {
    const specrt_bundle_section *s = &b->sections[i];
    if (!specrt__bundle_tag_ok(s->tag)) return "its tag is no name";
    if (i > 0 && memcmp(s[-1].tag, s->tag, 8) >= 0) return "tags are not ascending and distinct";
    if (s->offset % SPECRT_BUNDLE_ALIGN != 0) return "its offset is not a multiple of 64";
    if (s->offset < *end) return "it overlaps what stands before it";
    if (s->offset > b->n_bytes || s->stored_bytes > b->n_bytes - s->offset)
        return "it reaches beyond the end of the file";
    if (!(s->flags & SPECRT_SECTION_ZSTD) && s->raw_bytes != s->stored_bytes)
        return "it is stored raw, yet its raw and stored sizes differ";
    if (!specrt__bundle_all_zero(b->bytes + *end, s->offset - *end))
        return "the padding before it is not zero";
    *end = s->offset + s->stored_bytes;
    return NULL;
}

static specrt_status specrt__bundle_check_sections(const specrt_bundle *b, specrt_error *err) {
    uint64_t end =
        sizeof(specrt_bundle_header) + (uint64_t)b->n_sections * sizeof(specrt_bundle_section);
    for (int32_t i = 0; i < b->n_sections; i++) {
        const char *wrong = specrt__bundle_check_section(b, i, &end);
        if (wrong)
            return specrt_error_set(err, SPECRT_STATUS_BUNDLE_TABLE, "%s: section %d: %s", b->name,
                                    (int)i, wrong);
    }
    if (end != b->n_bytes)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_TABLE,
                                "%s: expected the last section to end the file at %llu, found %llu",
                                b->name, (unsigned long long)b->n_bytes, (unsigned long long)end);
    return SPECRT_STATUS_OK;
}

/* --- section contents --- */

/* A zstd block takes 4 bytes or more, and gives 128 KiB or less. */
enum { SPECRT__BUNDLE_ZSTD_RATIO = 32768 };

/* Whether section i is one to read: sets *known, or refuses it unless it is marked optional. */
static specrt_status specrt__bundle_know(const specrt_bundle *b, int32_t i, bool *known,
                                         specrt_error *err) {
    const specrt_bundle_section *s = &b->sections[i];
    const specrt__bundle_kind *kind = specrt__bundle_kind_of(s->tag);
    *known = kind && s->version >= 1 && s->version <= kind->version &&
             (s->flags & ~SPECRT__BUNDLE_FLAGS) == 0;
    if (!*known && !(s->flags & SPECRT_SECTION_OPTIONAL))
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_VERSION,
                                "%s: section '%.8s' version %u is unknown to specrt %s and not "
                                "optional; update specrt",
                                b->name, s->tag, (unsigned)s->version, SPECRT_VERSION_STRING);
    if (!*known && b->env.log) {
        char line[96];
        snprintf(line, sizeof line, "skipping the unknown optional section '%.8s'", s->tag);
        b->env.log(b->env.user, SPECRT_LOG_INFO, "bundle", line);
    }
    if (*known && s->raw_bytes > kind->max_bytes)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_LIMIT,
                                "%s: section '%.8s': expected at most %llu bytes, found %llu",
                                b->name, s->tag, (unsigned long long)kind->max_bytes,
                                (unsigned long long)s->raw_bytes);
    if (*known && s->flags & SPECRT_SECTION_ZSTD &&
        s->raw_bytes / SPECRT__BUNDLE_ZSTD_RATIO > s->stored_bytes)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_ZSTD,
                                "%s: section '%.8s': expected %llu bytes, more than a zstd frame "
                                "of %llu can hold; the file is damaged",
                                b->name, s->tag, (unsigned long long)s->raw_bytes,
                                (unsigned long long)s->stored_bytes);
    return SPECRT_STATUS_OK;
}

#if defined(SPECRT_NO_ZSTD)

static specrt_status specrt__bundle_unzstd(const specrt_bundle *b, const specrt_bundle_section *s,
                                           uint8_t *out, specrt_error *err) {
    (void)out;
    return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                            "%s: section '%.8s' is compressed and this program was built without "
                            "zstd; run specrt-bundle unpack",
                            b->name, s->tag);
}

#else

/* Exactly one frame that gives exactly raw_bytes. */
static specrt_status specrt__bundle_unzstd(const specrt_bundle *b, const specrt_bundle_section *s,
                                           uint8_t *out, specrt_error *err) {
    const uint8_t *stored = b->bytes + s->offset;
    size_t n_stored = (size_t)s->stored_bytes, n = ZSTD_findFrameCompressedSize(stored, n_stored);
    if (!ZSTD_isError(n) && n != n_stored)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_ZSTD,
                                "%s: section '%.8s': expected one zstd frame, found more bytes",
                                b->name, s->tag);
    if (!ZSTD_isError(n)) n = ZSTD_decompress(out, (size_t)s->raw_bytes, stored, n_stored);
    if (ZSTD_isError(n))
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_ZSTD, "%s: section '%.8s': zstd: %s",
                                b->name, s->tag, ZSTD_getErrorName(n));
    if (n != s->raw_bytes)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_ZSTD,
                                "%s: section '%.8s': expected %llu bytes, found %llu", b->name,
                                s->tag, (unsigned long long)s->raw_bytes, (unsigned long long)n);
    return SPECRT_STATUS_OK;
}

#endif

/* Checks section i's stored bytes and points data[i] at its content, unpacked at *decoded. */
static specrt_status specrt__bundle_load(specrt_bundle *b, int32_t i, uint8_t **decoded,
                                         specrt_error *err) {
    const specrt_bundle_section *s = &b->sections[i];
    uint64_t sum = specrt_hash64(b->bytes + s->offset, (size_t)s->stored_bytes, 0);
    if (sum != s->checksum)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_CHECKSUM,
                                "%s: section '%.8s': checksum expected %016llx, found %016llx; the "
                                "file is damaged",
                                b->name, s->tag, (unsigned long long)s->checksum,
                                (unsigned long long)sum);
    if (!(s->flags & SPECRT_SECTION_ZSTD)) {
        b->data[i] = b->bytes + s->offset;
        return SPECRT_STATUS_OK;
    }
    SPECRT__TRY(specrt__bundle_unzstd(b, s, *decoded, err));
    b->data[i] = *decoded;
    *decoded += specrt__base_align(s->raw_bytes, SPECRT_BUNDLE_ALIGN);
    return SPECRT_STATUS_OK;
}

static specrt_status specrt__bundle_load_all(specrt_bundle *b, specrt_error *err) {
    bool known[SPECRT_BUNDLE_MAX_SECTIONS];
    uint64_t total = 0;
    for (int32_t i = 0; i < b->n_sections; i++) {
        const specrt_bundle_section *s = &b->sections[i];
        SPECRT__TRY(specrt__bundle_know(b, i, &known[i], err));
        if (known[i] && s->flags & SPECRT_SECTION_ZSTD)
            total += specrt__base_align(s->raw_bytes, SPECRT_BUNDLE_ALIGN);
    }
    if (total > 0) {
        b->decoded = (uint8_t *)specrt__base_alloc(&b->env, total + SPECRT_BUNDLE_ALIGN);
        if (!b->decoded)
            return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY,
                                    "%s: out of memory for %llu bytes of sections", b->name,
                                    (unsigned long long)total);
    }
    uint8_t *decoded =
        (uint8_t *)(uintptr_t)specrt__base_align((uintptr_t)b->decoded, SPECRT_BUNDLE_ALIGN);
    for (int32_t i = 0; i < b->n_sections; i++)
        if (known[i]) SPECRT__TRY(specrt__bundle_load(b, i, &decoded, err));
    return SPECRT_STATUS_OK;
}

static specrt_status specrt__bundle_check_ident(const specrt_bundle *b, specrt_error *err) {
    size_t n;
    const specrt_ident *d = (const specrt_ident *)specrt_bundle_data(b, "ident", &n);
    if (!d) return SPECRT_STATUS_OK;
    if (n != sizeof *d)
        return specrt__bundle_bad(b, "ident", "size: expected 1200 bytes, found another", err);
    if (!memchr(d->tokenizer_name, 0, sizeof d->tokenizer_name) ||
        !memchr(d->head_name, 0, sizeof d->head_name))
        return specrt__bundle_bad(b, "ident", "names: expected a NUL at the end, found none", err);
    if (d->n_vocab < 0 || d->n_vocab > SPECRT_MAX_VOCAB || d->n_normal < 0 ||
        d->n_normal > d->n_vocab)
        return specrt__bundle_bad(
            b, "ident", "n_vocab, n_normal: expected 0 <= n_normal <= n_vocab, found others", err);
    if (d->head_rows < 0 || d->head_cols < 0 || (d->head_rows > 0) != (d->head_cols > 0))
        return specrt__bundle_bad(
            b, "ident", "head_rows, head_cols: expected both above 0, or both 0, found others",
            err);
    for (int i = 0; i < SPECRT_DIGEST_ROWS; i++)
        for (int k = 0; k < SPECRT_DIGEST_PROJECTIONS; k++)
            if (!(fabsf(d->head_digest.values[i][k]) <= FLT_MAX))
                return specrt__bundle_bad(
                    b, "ident", "head_digest: expected finite numbers, found others", err);
    return SPECRT_STATUS_OK;
}

/* The view of the section's bytes, which hold at least its header. */
static specrt_ranks specrt__bundle_ranks_view(const void *data) {
    specrt_ranks view;
    view.header = (const specrt_ranks_header *)data;
    view.counts = (const uint64_t *)(const void *)(view.header + 1);
    view.ids = (const int32_t *)(const void *)(view.counts + view.header->n_ranked);
    return view;
}

static bool specrt__bundle_ranks_sizes_ok(const specrt_ranks_header *h) {
    return 0 <= h->n_terminators && h->n_terminators <= h->n_forced &&
           h->n_forced <= h->n_default && 1 <= h->n_default && h->n_default <= h->n_valid &&
           h->n_valid <= h->n_ranked && h->n_ranked <= h->n_vocab && h->n_vocab <= SPECRT_MAX_VOCAB;
}

/* NULL, or what is wrong with the ids; seen: scratch, zeroed, one bit per id of the vocabulary. */
static const char *specrt__bundle_check_ids(const specrt_ranks *r, uint8_t *seen) {
    for (int32_t i = 0; i < r->header->n_ranked; i++) {
        int32_t id = r->ids[i];
        if (id < 0 || id >= r->header->n_vocab)
            return "ids: expected ids below n_vocab, found another";
        if (seen[id >> 3] >> (id & 7) & 1) return "ids: expected distinct ids, found one twice";
        seen[id >> 3] = (uint8_t)(seen[id >> 3] | 1 << (id & 7));
    }
    return NULL;
}

static specrt_status specrt__bundle_check_ranks(const specrt_bundle *b, specrt_error *err) {
    size_t n;
    const void *data = specrt_bundle_data(b, "ranks", &n);
    if (!data) return SPECRT_STATUS_OK;
    if (n < sizeof(specrt_ranks_header))
        return specrt__bundle_bad(b, "ranks", "size: expected at least its header, found less",
                                  err);
    const specrt_ranks_header *h = (const specrt_ranks_header *)data;
    if (!specrt__bundle_ranks_sizes_ok(h))
        return specrt__bundle_bad(b, "ranks",
                                  "expected 0 <= n_terminators <= n_forced <= n_default <= n_valid "
                                  "<= n_ranked <= n_vocab <= 16777216",
                                  err);
    if (n - sizeof *h != (uint64_t)h->n_ranked * 12)
        return specrt__bundle_bad(
            b, "ranks", "size: expected 12 bytes per ranked id after the header, found another",
            err);
    size_t n_seen = ((size_t)h->n_vocab + 7) / 8;
    uint8_t *seen = (uint8_t *)specrt__base_alloc(&b->env, n_seen);
    if (!seen) return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "%s: out of memory", b->name);
    memset(seen, 0, n_seen);
    specrt_ranks view = specrt__bundle_ranks_view(data);
    const char *wrong = specrt__bundle_check_ids(&view, seen);
    specrt__base_free(&b->env, seen);
    return wrong ? specrt__bundle_bad(b, "ranks", wrong, err) : SPECRT_STATUS_OK;
}

/* --- opening --- */

static specrt_status specrt__bundle_read(specrt_bundle *b, specrt_error *err) {
    SPECRT__TRY(specrt__bundle_check_magic(b, err));
    SPECRT__TRY(specrt__bundle_check_header(b, err));
    SPECRT__TRY(specrt__bundle_check_table(b, err));
    SPECRT__TRY(specrt__bundle_check_sections(b, err));
    SPECRT__TRY(specrt__bundle_load_all(b, err));
    SPECRT__TRY(specrt__bundle_check_ident(b, err));
    return specrt__bundle_check_ranks(b, err);
}

/* Takes over the mapping, also on failure. */
static specrt_status specrt__bundle_open(specrt__os_map map, const void *bytes, size_t n_bytes,
                                         const char *name, const specrt_env *env,
                                         specrt_bundle **out, specrt_error *err) {
    specrt_env own = specrt__base_env(env);
    specrt_bundle *b = (specrt_bundle *)specrt__base_alloc(&own, sizeof *b);
    *out = NULL;
    if (!b) {
        specrt__os_map_close(&map);
        return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "%s: out of memory", name);
    }
    memset(b, 0, sizeof *b);
    b->env = own;
    b->map = map;
    b->bytes = (const uint8_t *)bytes;
    b->n_bytes = n_bytes;
    snprintf(b->name, sizeof b->name, "%s", name);
    specrt_status status = specrt__bundle_read(b, err);
    if (status == SPECRT_STATUS_OK)
        *out = b;
    else
        specrt_bundle_close(b);
    return status;
}

SPECRT_API specrt_status specrt_bundle_open(const char *path, const specrt_env *env,
                                            specrt_bundle **out, specrt_error *err) {
    specrt__os_map map;
    SPECRT__NEED(out);
    *out = NULL;
    SPECRT__NEED(path);
    SPECRT__TRY(specrt__os_map_open(path, &map, err));
    return specrt__bundle_open(map, map.bytes, map.n, path, env, out, err);
}

SPECRT_API specrt_status specrt_bundle_open_memory(const void *bytes, size_t n_bytes,
                                                   const char *name, const specrt_env *env,
                                                   specrt_bundle **out, specrt_error *err) {
    specrt__os_map none;
    memset(&none, 0, sizeof none);
    SPECRT__NEED(out);
    *out = NULL;
    if (n_bytes > 0) SPECRT__NEED(bytes); /* an empty file has none */
    SPECRT__NEED(name);
    if ((uintptr_t)bytes % 16 != 0)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "%s: expected bytes aligned to 16, found an address that is not",
                                name);
    return specrt__bundle_open(none, bytes, n_bytes, name, env, out, err);
}

SPECRT_API void specrt_bundle_close(specrt_bundle *bundle) {
    if (!bundle) return;
    specrt_env env = bundle->env;
    specrt__base_free(&env, bundle->decoded);
    specrt__os_map_close(&bundle->map);
    specrt__base_free(&env, bundle);
}

/* --- views --- */

SPECRT_API const specrt_bundle_section *specrt_bundle_sections(const specrt_bundle *bundle,
                                                               int32_t *n_sections) {
    if (n_sections) *n_sections = bundle ? bundle->n_sections : 0;
    return bundle && n_sections ? bundle->sections : NULL;
}

SPECRT_API const void *specrt_bundle_data(const specrt_bundle *bundle, const char *tag,
                                          size_t *n_bytes) {
    if (n_bytes) *n_bytes = 0;
    for (int32_t i = 0; bundle && tag && n_bytes && i < bundle->n_sections; i++) {
        if (strncmp(bundle->sections[i].tag, tag, 8) != 0 || strlen(tag) > 8) continue;
        if (bundle->data[i]) *n_bytes = (size_t)bundle->sections[i].raw_bytes;
        return bundle->data[i];
    }
    return NULL;
}

SPECRT_API const specrt_ident *specrt_bundle_ident(const specrt_bundle *bundle) {
    size_t n;
    return (const specrt_ident *)specrt_bundle_data(bundle, "ident", &n);
}

/* The first eight bytes of a digest in hex tell two of them apart. */
static const char *specrt__bundle_hex(const uint8_t *digest, char out[20]) {
    for (int i = 0; i < 8; i++) snprintf(out + 2 * i, 3, "%02x", digest[i]);
    return out;
}

SPECRT_API specrt_status specrt_bundle_check_tokenizer(const specrt_bundle *bundle,
                                                       const uint8_t sha256[32],
                                                       specrt_error *err) {
    const specrt_ident *ident = specrt_bundle_ident(bundle);
    char ours[20], theirs[20];
    SPECRT__NEED(bundle);
    SPECRT__NEED(sha256);
    if (!ident || specrt__bundle_all_zero(ident->tokenizer_sha256, 32) ||
        memcmp(ident->tokenizer_sha256, sha256, 32) == 0)
        return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BUNDLE_MISMATCH,
                            "%s: tokenizer: expected '%s' (sha256 %s...), found another (sha256 "
                            "%s...); use the bundle made for this model",
                            bundle->name, ident->tokenizer_name,
                            specrt__bundle_hex(ident->tokenizer_sha256, ours),
                            specrt__bundle_hex(sha256, theirs));
}

/* The error for a section a caller needs, with the name of the tool that builds it. */
SPECRT__INTERNAL specrt_status specrt__bundle_missing(const specrt_bundle *bundle, const char *tag,
                                                      specrt_error *err) {
    const specrt__bundle_kind *kind = specrt__bundle_kinds;
    while (strncmp(kind->tag, tag, 8) != 0) kind++;
    return specrt_error_set(err, SPECRT_STATUS_BUNDLE_SECTION_MISSING,
                            "%s: has no section '%s'; %s builds it", bundle->name, tag, kind->tool);
}

SPECRT_API specrt_status specrt_bundle_ranks(const specrt_bundle *bundle, specrt_ranks *out,
                                             specrt_error *err) {
    size_t n;
    SPECRT__NEED(out);
    memset(out, 0, sizeof *out);
    SPECRT__NEED(bundle);
    const void *data = specrt_bundle_data(bundle, "ranks", &n);
    if (!data) return specrt__bundle_missing(bundle, "ranks", err);
    *out = specrt__bundle_ranks_view(data);
    return SPECRT_STATUS_OK;
}
