/* test_bundle.c : the container and its sections, good, damaged and hostile. Files of
 * tests/golden/bundles and golden-errors/bundles must open, or be refused, for ever: add, never replace. */
#include "bundle_content.h"
#include "folder.h"
#include "opened.h"

#include <dirent.h>
#include <float.h>
#include <sys/stat.h>
#include "base/io.h"
#include "sources/sketch.h"

static specrt_status open_status(const uint8_t *bytes, size_t n, specrt_error *err) {
    specrt_bundle *bundle;
    uint8_t *copy = (uint8_t *)malloc(n + 1); /* of exactly n bytes for the sanitizer to guard */
    copy = (uint8_t *)realloc(copy, n ? n : 1);
    if (n > 0) memcpy(copy, bytes, n);
    specrt_status status = specrt_bundle_open_memory(copy, n, "test.specb", NULL, &bundle, err);
    CHECK((status == SPECRT_STATUS_OK) == (bundle != NULL));
    specrt_bundle_close(bundle);
    free(copy);
    return status;
}

/* --- layout --- */

/* docs/FORMAT.md has a row "| offset | type | `field` |" for every field of every struct. */
TEST(layout, "every field stands where docs/FORMAT.md says") {
    const struct {
        size_t offset;
        const char *type, *field;
    } rows[] = {
#define FIELD(s, type, field) {offsetof(s, field), type, #field}
        FIELD(specrt_bundle_header, "u8[8]", magic),
        FIELD(specrt_bundle_header, "u32", version_major),
        FIELD(specrt_bundle_header, "u32", version_minor),
        FIELD(specrt_bundle_header, "u32", n_sections),
        FIELD(specrt_bundle_header, "u32", flags),
        FIELD(specrt_bundle_header, "u64", table_offset),
        FIELD(specrt_bundle_header, "u64", file_bytes),
        FIELD(specrt_bundle_header, "u64", table_checksum),
        FIELD(specrt_bundle_header, "u64", reserved),
        FIELD(specrt_bundle_header, "u64", header_checksum),
        FIELD(specrt_bundle_section, "u8[8]", tag),
        FIELD(specrt_bundle_section, "u32", version),
        FIELD(specrt_bundle_section, "u32", flags),
        FIELD(specrt_bundle_section, "u64", offset),
        FIELD(specrt_bundle_section, "u64", stored_bytes),
        FIELD(specrt_bundle_section, "u64", raw_bytes),
        FIELD(specrt_bundle_section, "u64", checksum),
        FIELD(specrt_bundle_section, "u64[2]", reserved),
        FIELD(specrt_ident, "u8[32]", tokenizer_sha256),
        FIELD(specrt_ident, "i32", n_vocab),
        FIELD(specrt_ident, "i32", n_normal),
        FIELD(specrt_ident, "i32", head_rows),
        FIELD(specrt_ident, "i32", head_cols),
        FIELD(specrt_ident, "f32[64][4]", head_digest),
        FIELD(specrt_ident, "u8[64]", tokenizer_name),
        FIELD(specrt_ident, "u8[64]", head_name),
        FIELD(specrt_ranks_header, "i32", n_vocab),
        FIELD(specrt_ranks_header, "i32", n_ranked),
        FIELD(specrt_ranks_header, "i32", n_forced),
        FIELD(specrt_ranks_header, "i32", n_terminators),
        FIELD(specrt_ranks_header, "i32", n_valid),
        FIELD(specrt_ranks_header, "i32", n_default),
        FIELD(specrt_ranks_header, "u64", n_tokens),
#undef FIELD
    };
    CHECK_INT(sizeof(specrt_bundle_header), 64);
    CHECK_INT(sizeof(specrt_bundle_section), 64);
    CHECK_INT(sizeof(specrt_ident), 1200);
    CHECK_INT(sizeof(specrt_ranks_header), 32);
    file_view doc;
    REQUIRE(sl_file_map("docs/FORMAT.md", &doc, NULL) == SPECRT_STATUS_OK);
    char *text = (char *)calloc(1, doc.n + 1);
    memcpy(text, doc.bytes, doc.n);
    sl_file_unmap(&doc);
    const char *at = text; /* rows come in the order of the fields */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char row[96];
        snprintf(row, sizeof row, "| %d | %s | `%s` |", (int)rows[i].offset, rows[i].type,
                 rows[i].field);
        const char *found = strstr(at, row);
        CHECK_HAS(at, row);
        if (found) at = found;
    }
    free(text);
}

/* --- good bundles --- */

TEST(open, "raw and zstd bundles give their content") {
    for (int zstd = 0; zstd < 2; zstd++) {
        size_t n;
        int32_t n_sections;
        uint8_t *bytes = bundle_make(zstd, &n);
        specrt_bundle *bundle;
        specrt_error err;
        CHECK_INT(specrt_bundle_open_memory(bytes, n, "x", NULL, &bundle, &err), SPECRT_STATUS_OK);
        REQUIRE(bundle);
        check_content(bundle);
        const specrt_bundle_section *s = specrt_bundle_sections(bundle, &n_sections);
        CHECK_INT(n_sections, 3);
        CHECK_STR(s[2].tag, "ranks");
        CHECK_INT(s[2].raw_bytes, 32 + 12 * N_VOCAB);
        specrt_bundle_close(bundle);
        free(bytes);
    }
    specrt_bundle_close(NULL);
}

TEST(empty_bundle, "a bundle without sections; what is missing names its tool") {
    size_t n;
    uint8_t *bytes = fixture_bundle(NULL, 0, &n);
    specrt_ranks ranks;
    specrt_error err;
    uint8_t digest[32] = {1};
    CHECK_INT(n, 64);
    specrt_bundle *bundle = open_memory(bytes, n);
    CHECK(!specrt_bundle_ident(bundle));
    CHECK_INT(specrt_bundle_check_tokenizer(bundle, digest, NULL), SPECRT_STATUS_OK);
    CHECK_INT(specrt_bundle_ranks(bundle, &ranks, &err), SPECRT_STATUS_BUNDLE_SECTION_MISSING);
    CHECK_HAS(err.msg, "vocabtrim-calibrate");
    CHECK(!ranks.header && !ranks.ids && !ranks.counts);
    specrt_bundle_close(bundle);
    free(bytes);
}

/* As many sections as a bundle may have. Bytes behind the table that look like another entry are none. */
TEST(most_sections, "as many sections as there may be, and not one more") {
    static char tags[SPECRT_BUNDLE_MAX_SECTIONS][9];
    static fixture_section sections[SPECRT_BUNDLE_MAX_SECTIONS];
    specrt_bundle_section entry = {.tag = "zz", .version = 1, .offset = 64, .stored_bytes = 8};
    size_t n;
    for (int i = 0; i < SPECRT_BUNDLE_MAX_SECTIONS; i++) {
        snprintf(tags[i], sizeof tags[i], "a%03d", i);
        sections[i] = (fixture_section){tags[i],      1,           SPECRT_SECTION_OPTIONAL, &entry,
                                        sizeof entry, sizeof entry};
    }
    char frame[64]; /* decoded: behind what is known of the sections lies a pointer */
    n = ZSTD_compress(frame, sizeof frame, "{}", 2, 1);
    sections[SPECRT_BUNDLE_MAX_SECTIONS - 1] =
        (fixture_section){"prov", 1, SPECRT_SECTION_ZSTD, frame, n, 2};
    uint8_t *bytes = fixture_bundle(sections, SPECRT_BUNDLE_MAX_SECTIONS, &n);
    specrt_bundle *bundle = open_memory(bytes, n);
    CHECK(!specrt_bundle_data(bundle, "zz", &n));
    specrt_bundle_close(bundle);
    free(bytes);
}

TEST(tokenizer, "another tokenizer is refused, both named") {
    size_t n;
    uint8_t *bytes = bundle_make(false, &n), digest[32];
    specrt_error err;
    specrt_bundle *bundle = open_memory(bytes, n);
    for (int i = 0; i < 32; i++) digest[i] = (uint8_t)(i + 1);
    CHECK_INT(specrt_bundle_check_tokenizer(bundle, digest, &err), SPECRT_STATUS_OK);
    digest[31] ^= 1, digest[0] = 0xab;
    CHECK_INT(specrt_bundle_check_tokenizer(bundle, digest, &err), SPECRT_STATUS_BUNDLE_MISMATCH);
    CHECK_HAS(err.msg, "b.specb: tokenizer: expected 'golden' (sha256 0102030405060708...)");
    CHECK_HAS(err.msg, "ab02030405060708");
    specrt_bundle_close(bundle);
    free(bytes);
}

TEST(bad_arguments, "unaligned memory") {
    size_t n;
    uint8_t *bytes = bundle_make(false, &n), *off = (uint8_t *)malloc(n + 8);
    specrt_bundle *bundle = (specrt_bundle *)(void *)bytes;
    specrt_error err;
    memcpy(off + 8, bytes, n);
    CHECK_INT(specrt_bundle_open_memory(off + 8, n, "x", NULL, &bundle, &err),
              SPECRT_STATUS_BAD_ARG);
    CHECK(!bundle);
    free(bytes);
    free(off);
}

/* --- files --- */

TEST(files, "paths that are no bundles") {
    size_t n;
    specrt_error err;
    uint8_t *bytes = bundle_make(true, &n);
    CHECK_INT(sl_out_bytes(in_folder("a.specb"), false, bytes, n, &err), SPECRT_STATUS_OK);
    CHECK_INT(open_path(in_folder("a.specb"), &err), SPECRT_STATUS_OK);
    CHECK_INT(open_path(in_folder("missing"), &err), SPECRT_STATUS_IO);
    CHECK_HAS(err.msg, "missing: No such file");
    CHECK_INT(open_path(folder(), &err), SPECRT_STATUS_IO);
    CHECK_HAS(err.msg, "expected a regular file");
    CHECK_INT(mkfifo(in_folder("pipe"), 0600), 0);
    CHECK_INT(open_path(in_folder("pipe"), &err), SPECRT_STATUS_IO);
    CHECK_INT(sl_out_bytes(in_folder("empty"), false, "", 0, &err), SPECRT_STATUS_OK);
    CHECK_INT(open_path(in_folder("empty"), &err), SPECRT_STATUS_BUNDLE_MAGIC);
    CHECK_HAS(err.msg, "an empty file");
    CHECK_INT(clear_folder(), 3);
    free(bytes);
}

/* --- damage: each with its exact status --- */

TEST(truncated, "cut at every byte") {
    for (int zstd = 0; zstd < 2; zstd++) {
        size_t n;
        uint8_t *bytes = bundle_make(zstd, &n);
        CHECK_INT(open_status(bytes, n, NULL), SPECRT_STATUS_OK);
        CHECK_INT(open_status(bytes, 0, NULL), SPECRT_STATUS_BUNDLE_MAGIC);
        for (size_t k = 1; k < n; k++)
            CHECK_INT(open_status(bytes, k, NULL), SPECRT_STATUS_BUNDLE_TRUNCATED);
        free(bytes);
    }
}

TEST(flipped, "one bit flipped anywhere is seen, padding included") {
    for (int zstd = 0; zstd < 2; zstd++) {
        size_t n;
        uint8_t *bytes = bundle_make(zstd, &n);
        specrt_bundle_section s[3];
        memcpy(s, bytes + 64, sizeof s);
        for (size_t bit = 0; bit < 8 * n; bit++) {
            size_t at = bit / 8;
            bool padding = at >= 64 + sizeof s;
            for (int i = 0; i < 3; i++)
                if (at >= s[i].offset && at < s[i].offset + s[i].stored_bytes) padding = false;
            specrt_status expected = at < 8    ? SPECRT_STATUS_BUNDLE_MAGIC
                                     : at < 12 ? SPECRT_STATUS_BUNDLE_VERSION
                                     : padding ? SPECRT_STATUS_BUNDLE_TABLE
                                               : SPECRT_STATUS_BUNDLE_CHECKSUM;
            bytes[at] = (uint8_t)(bytes[at] ^ 1 << bit % 8);
            CHECK_INT(open_status(bytes, n, NULL), expected);
            bytes[at] = (uint8_t)(bytes[at] ^ 1 << bit % 8);
        }
        free(bytes);
    }
}

/* A field of the header (section -1) or of a table entry set to a value, checksums made right. */
typedef struct damage {
    const char *name;
    int section;
    size_t offset, bytes;
    uint64_t value;
    specrt_status expected;
    const char *message;
} damage;

#define HEADER(field)     -1, offsetof(specrt_bundle_header, field), sizeof(uint32_t)
#define HEADER64(field)   -1, offsetof(specrt_bundle_header, field), sizeof(uint64_t)
#define ENTRY(i, field)   i, offsetof(specrt_bundle_section, field), sizeof(uint32_t)
#define ENTRY64(i, field) i, offsetof(specrt_bundle_section, field), sizeof(uint64_t)

static const damage damages[] = {
    {"major", HEADER(version_major), 2, SPECRT_STATUS_BUNDLE_VERSION, "expected 1.x, found 2.0"},
    {"flags", HEADER(flags), 1, SPECRT_STATUS_BUNDLE_VERSION, "flags 0x1"},
    {"sections-over", HEADER(n_sections), 257, SPECRT_STATUS_BUNDLE_LIMIT, "at most 256"},
    {"sections-max", HEADER(n_sections), 0xffffffff, SPECRT_STATUS_BUNDLE_LIMIT, "at most 256"},
    {"sections-beyond", HEADER(n_sections), 200, SPECRT_STATUS_BUNDLE_TABLE,
     "section table: expected"},
    {"sections-fewer", HEADER(n_sections), 2, SPECRT_STATUS_BUNDLE_TABLE, "padding"},
    {"table-offset", HEADER64(table_offset), 128, SPECRT_STATUS_BUNDLE_TABLE, "offset 128"},
    {"table-offset-max", HEADER64(table_offset), UINT64_MAX, SPECRT_STATUS_BUNDLE_TABLE, "offset"},
    {"file-longer", HEADER64(file_bytes), 1 << 20, SPECRT_STATUS_BUNDLE_TRUNCATED, "1048576"},
    {"file-shorter", HEADER64(file_bytes), 1024, SPECRT_STATUS_BUNDLE_TABLE, "of 1024 bytes"},
    {"tag-empty", ENTRY64(0, tag), 0, SPECRT_STATUS_BUNDLE_TABLE, "no name"},
    {"tag-upper", ENTRY64(0, tag), 0x41, SPECRT_STATUS_BUNDLE_TABLE, "no name"},
    {"tag-after-nul", ENTRY64(0, tag), 0x610061, SPECRT_STATUS_BUNDLE_TABLE, "no name"},
    {"tag-twice", ENTRY64(0, tag), 0x766f7270, SPECRT_STATUS_BUNDLE_TABLE, "ascending"},
    {"tag-order", ENTRY64(2, tag), 0x6161, SPECRT_STATUS_BUNDLE_TABLE, "ascending"},
    {"version", ENTRY(2, version), 2, SPECRT_STATUS_BUNDLE_VERSION, "'ranks' version 2"},
    {"flag", ENTRY(2, flags), 4, SPECRT_STATUS_BUNDLE_VERSION, "'ranks'"},
    {"unaligned", ENTRY64(1, offset), 0x5b8, SPECRT_STATUS_BUNDLE_TABLE, "multiple of 64"},
    {"overlap", ENTRY64(1, offset), 256, SPECRT_STATUS_BUNDLE_TABLE, "overlaps"},
    {"in-header", ENTRY64(0, offset), 0, SPECRT_STATUS_BUNDLE_TABLE, "overlaps"},
    {"in-table", ENTRY64(0, offset), 192, SPECRT_STATUS_BUNDLE_TABLE, "overlaps"},
    {"beyond", ENTRY64(2, offset), 1 << 20, SPECRT_STATUS_BUNDLE_TABLE, "end of the file"},
    {"offset-max", ENTRY64(2, offset), UINT64_MAX - 63, SPECRT_STATUS_BUNDLE_TABLE, "end"},
    {"size-max", ENTRY64(2, stored_bytes), UINT64_MAX, SPECRT_STATUS_BUNDLE_TABLE, "end"},
    {"size-over", ENTRY64(2, stored_bytes), 1 << 20, SPECRT_STATUS_BUNDLE_TABLE, "end"},
    {"size-less", ENTRY64(2, stored_bytes), 8, SPECRT_STATUS_BUNDLE_TABLE, "sizes differ"},
    {"raw-size", ENTRY64(2, raw_bytes), 8, SPECRT_STATUS_BUNDLE_TABLE, "sizes differ"},
    {"raw-as-zstd", ENTRY(2, flags), SPECRT_SECTION_ZSTD, SPECRT_STATUS_BUNDLE_ZSTD, "'ranks'"},
};

static void damage_apply(const damage *d, uint8_t *bytes, size_t n) {
    size_t at = (d->section < 0 ? 0 : 64 + 64 * (size_t)d->section) + d->offset;
    memcpy(bytes + at, &d->value, d->bytes); /* little-endian, so the low bytes of the value */
    fixture_seal(bytes, n);
}

TEST(damaged, "structural damage under right checksums, exact status and field") {
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        const damage *d = &damages[i];
        size_t n;
        specrt_error err = {SPECRT_STATUS_OK, ""};
        uint8_t *bytes = bundle_make(false, &n);
        damage_apply(d, bytes, n);
        specrt_status status = open_status(bytes, n, &err);
        if (status != d->expected) fprintf(stderr, "%s: %s\n", d->name, err.msg);
        CHECK_INT(status, d->expected);
        CHECK_INT(err.status, d->expected);
        CHECK_HAS(err.msg, "test.specb: ");
        CHECK_HAS(err.msg, d->message);
        free(bytes);
    }
}

TEST(trailing, "bytes after the last section, though the header counts them") {
    size_t n;
    uint8_t *bytes = bundle_make(false, &n);
    bytes = (uint8_t *)realloc(bytes, n + 64);
    memset(bytes + n, 0, 64);
    uint64_t n_all = n + 64;
    memcpy(bytes + offsetof(specrt_bundle_header, file_bytes), &n_all, 8);
    fixture_seal(bytes, n + 64);
    CHECK_INT(open_status(bytes, n + 64, NULL), SPECRT_STATUS_BUNDLE_TABLE);
    free(bytes);
}

/* --- hostile frames --- */

static specrt_status open_frame(const void *frame, size_t n_frame, uint64_t n_raw,
                                specrt_error *err) {
    size_t n;
    fixture_section s = {"ranks", 1, SPECRT_SECTION_ZSTD, frame, n_frame, (size_t)n_raw};
    uint8_t *bytes = fixture_bundle(&s, 1, &n);
    specrt_status status = open_status(bytes, n, err);
    free(bytes);
    return status;
}

TEST(frames, "zstd frames that lie, fail or follow") {
    size_t n_ranks;
    uint8_t *ranks = fixture_ranks(N_VOCAB, 2, 8, &n_ranks), frame[4096], two[8192];
    size_t n = ZSTD_compress(frame, sizeof frame, ranks, n_ranks, 3);
    specrt_error err;
    CHECK_INT(open_frame(frame, n, n_ranks, &err), SPECRT_STATUS_OK);
    CHECK_INT(open_frame(frame, n, n_ranks - 1, &err), SPECRT_STATUS_BUNDLE_ZSTD);
    CHECK_INT(open_frame(frame, n, n_ranks + 1, &err), SPECRT_STATUS_BUNDLE_ZSTD);
    CHECK_HAS(err.msg, "section 'ranks': expected 273 bytes, found 272");
    CHECK_INT(open_frame(frame, n - 1, n_ranks, &err), SPECRT_STATUS_BUNDLE_ZSTD);
    CHECK_INT(open_frame(frame, 0, n_ranks, &err), SPECRT_STATUS_BUNDLE_ZSTD);
    CHECK_INT(open_frame(frame, 0, 0, &err), SPECRT_STATUS_BUNDLE_ZSTD);
    memcpy(two, frame, n), memcpy(two + n, frame, n);
    CHECK_INT(open_frame(two, 2 * n, 2 * n_ranks, &err), SPECRT_STATUS_BUNDLE_ZSTD);
    CHECK_HAS(err.msg, "found more bytes");
    for (size_t i = 0; i < n; i++) { /* a frame damaged anywhere, with a right checksum */
        memcpy(two, frame, n);
        two[i] ^= 0x10;
        specrt_status status = open_frame(two, n, n_ranks, NULL);
        CHECK(status == SPECRT_STATUS_OK || status == SPECRT_STATUS_BUNDLE_ZSTD ||
              status == SPECRT_STATUS_BUNDLE_CONTENT);
    }
    /* The cap holds before anything is allocated. */
    uint64_t cap = 32 + 12ull * SPECRT_MAX_VOCAB;
    CHECK_INT(open_frame(frame, n, cap + 1, &err), SPECRT_STATUS_BUNDLE_LIMIT);
    CHECK_INT(open_frame(frame, n, UINT64_MAX, &err), SPECRT_STATUS_BUNDLE_LIMIT);
    CHECK_HAS(err.msg, "at most 201326624 bytes");
    /* So does what a frame can hold: a short one asks for no memory but its own. */
    CHECK_INT(open_frame(frame, n, 32768 * (n + 1), &err), SPECRT_STATUS_BUNDLE_ZSTD);
    CHECK_HAS(err.msg, "more than a zstd frame of");
    CHECK_INT(open_frame(frame, n, 32768 * (n + 1) - 1, &err), SPECRT_STATUS_BUNDLE_ZSTD);
    CHECK_HAS(err.msg, "found 272");
    free(ranks);
}

TEST(zeros, "nothing packs better than zeros, and no limit is in their way") {
    const size_t n_zeros = 64 << 20;
    uint8_t *zeros = (uint8_t *)calloc(n_zeros, 1), frame[16384];
    size_t n = ZSTD_compress(frame, sizeof frame, zeros, n_zeros, 19);
    CHECK(!ZSTD_isError(n));
    specrt_error err;
    CHECK_INT(open_frame(frame, n, n_zeros, &err), SPECRT_STATUS_BUNDLE_CONTENT);
    free(zeros);
}

/* --- versions --- */

static int n_logged;
static void count_log(void *user, int level, const char *section, const char *msg) {
    (void)user;
    n_logged += level == SPECRT_LOG_INFO && strcmp(section, "bundle") == 0 &&
                strstr(msg, "'zebra'") != NULL;
}

/* A bundle of tomorrow: minor version 9, an optional section and a new kind of an old one. */
TEST(newer_minor, "tomorrow's optional sections are skipped, others refused") {
    content c = content_make();
    size_t n;
    specrt_bundle *bundle;
    specrt_env env = {.log = count_log};
    fixture_section s[3] = {{"ident", 1, 0, &c.ident, sizeof c.ident, sizeof c.ident},
                            {"ranks", 2, SPECRT_SECTION_OPTIONAL, "new", 3, 3},
                            {"zebra", 1, SPECRT_SECTION_OPTIONAL | SPECRT_SECTION_ZSTD | 1u << 31,
                             "stripes", 7, 1ull << 60}};
    uint8_t *bytes = fixture_bundle(s, 3, &n);
    bytes[offsetof(specrt_bundle_header, version_minor)] = 9;
    bytes[offsetof(specrt_bundle_header, reserved)] = 1;
    fixture_seal(bytes, n);
    n_logged = 0;
    REQUIRE(specrt_bundle_open_memory(bytes, n, "x", &env, &bundle, NULL) == SPECRT_STATUS_OK);
    CHECK_INT(n_logged, 1);
    CHECK(specrt_bundle_ident(bundle) != NULL);
    CHECK(!specrt_bundle_data(bundle, "ranks", &n) && n == 0);
    CHECK(!specrt_bundle_data(bundle, "zebra", &n) && n == 0);
    specrt_bundle_close(bundle);
    free(bytes);
    fixture_section unknown = {"zebra", 1, 0, "stripes", 7, 7};
    specrt_error err;
    bytes = fixture_bundle(&unknown, 1, &n);
    CHECK_INT(open_status(bytes, n, &err), SPECRT_STATUS_BUNDLE_VERSION);
    CHECK_HAS(err.msg, "section 'zebra' version 1 is unknown");
    free(bytes);
    free(c.ranks);
}

TEST(tags, "tags are of a to z, 0 to 9, _ and -: each such byte in any place, and no other") {
    for (int c = 1; c < 256; c++)
        for (int at = 0; at < 8; at += 7) {
            char tag[9] = "aaaaaaaa";
            size_t n;
            bool allowed = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
            tag[at] = (char)c;
            /* of a version that reads as one more character */
            fixture_section s = {tag, 'a', SPECRT_SECTION_OPTIONAL, "new", 3, 3};
            uint8_t *bytes = fixture_bundle(&s, 1, &n);
            CHECK_INT(open_status(bytes, n, NULL) == SPECRT_STATUS_OK, allowed);
            free(bytes);
        }
}

TEST(long_tag, "a tag may have eight characters, and one of more is no section's") {
    fixture_section s = {"centroid", 1, SPECRT_SECTION_DEPENDS_HEAD, "bytes", 5, 5};
    size_t n, n_data;
    uint8_t *bytes = fixture_bundle(&s, 1, &n);
    specrt_bundle *bundle = open_memory(bytes, n);
    CHECK(specrt_bundle_data(bundle, "centroid", &n_data) != NULL);
    CHECK_INT(n_data, 5);
    CHECK(specrt_bundle_data(bundle, "centroids", &n_data) == NULL);
    CHECK(specrt_bundle_data(bundle, "centroi", &n_data) == NULL);
    CHECK_INT(n_data, 0);
    specrt_bundle_close(bundle);
    free(bytes);
}

TEST(last_section, "the last section's bytes end where the file ends, and not one behind") {
    fixture_section s = {"zebra", 1, SPECRT_SECTION_OPTIONAL, "stripes", 7, 7};
    specrt_bundle_section *row;
    specrt_error err;
    size_t n;
    uint8_t *bytes = fixture_bundle(&s, 1, &n);
    row = (specrt_bundle_section *)(void *)(bytes + sizeof(specrt_bundle_header));
    row->raw_bytes = row->stored_bytes = n - row->offset;
    fixture_seal(bytes, n);
    CHECK_INT(open_status(bytes, n, &err), SPECRT_STATUS_OK);
    row->raw_bytes = row->stored_bytes = n - row->offset + 1;
    fixture_seal(bytes, n);
    CHECK(open_status(bytes, n, &err) != SPECRT_STATUS_OK);
    CHECK_HAS(err.msg, "it reaches beyond the end of the file");
    free(bytes);
}

/* --- content --- */

static specrt_status open_section(const char *tag, const void *data, size_t n_data) {
    size_t n;
    fixture_section s = {tag, 1, 0, data, n_data, n_data};
    specrt_error err;
    uint8_t *bytes = fixture_bundle(&s, 1, &n);
    specrt_status status = open_status(bytes, n, &err);
    if (status != SPECRT_STATUS_OK) CHECK_HAS(err.msg, tag);
    free(bytes);
    return status;
}

TEST(ident_content, "every rule of section ident") {
    content c = content_make();
    specrt_ident d = c.ident;
#define IDENT_BAD(change)                                                                          \
    do {                                                                                           \
        d = c.ident;                                                                               \
        change;                                                                                    \
        CHECK_INT(open_section("ident", &d, sizeof d), SPECRT_STATUS_BUNDLE_CONTENT);              \
    } while (0)
    CHECK_INT(open_section("ident", &d, sizeof d), SPECRT_STATUS_OK);
    CHECK_INT(open_section("ident", &d, sizeof d - 1), SPECRT_STATUS_BUNDLE_CONTENT);
    IDENT_BAD(d.n_vocab = -1);
    IDENT_BAD(d.n_vocab = SPECRT_MAX_VOCAB + 1);
    d = c.ident;
    d.n_vocab = d.n_normal = SPECRT_MAX_VOCAB;
    CHECK_INT(open_section("ident", &d, sizeof d), SPECRT_STATUS_OK);
    d.n_vocab = d.n_normal = 0; /* of a head whose tokenizer is not known */
    d.head_digest.values[0][0] = -FLT_MAX;
    CHECK_INT(open_section("ident", &d, sizeof d), SPECRT_STATUS_OK);
    d.head_rows = d.head_cols = 0; /* of no head */
    CHECK_INT(open_section("ident", &d, sizeof d), SPECRT_STATUS_OK);
    IDENT_BAD(d.n_normal = -1);
    IDENT_BAD((d.head_rows = -1, d.head_cols = 0));
    IDENT_BAD((d.head_rows = 0, d.head_cols = -1));
    IDENT_BAD(d.n_normal = N_VOCAB + 1);
    IDENT_BAD(d.head_rows = -5);
    IDENT_BAD(d.head_cols = -5);
    IDENT_BAD(d.head_cols = 0);
    IDENT_BAD(d.head_digest.values[63][3] = NAN);
    IDENT_BAD(d.head_digest.values[0][0] = -INFINITY);
    IDENT_BAD(memset(d.tokenizer_name, 'a', sizeof d.tokenizer_name));
    IDENT_BAD(memset(d.head_name, 'a', sizeof d.head_name));
#undef IDENT_BAD
    free(c.ranks);
}

TEST(ranks_content, "every rule of section ranks") {
    size_t n;
    specrt_ranks_header h;
    uint8_t *good = fixture_ranks(N_VOCAB, 2, 8, &n), *bytes = (uint8_t *)malloc(n + 12);
    int32_t *ids = (int32_t *)(void *)(bytes + 32 + 8 * N_VOCAB);
#define RANKS_BAD(change, n_bytes)                                                                 \
    do {                                                                                           \
        memcpy(bytes, good, n);                                                                    \
        memcpy(&h, good, sizeof h);                                                                \
        change;                                                                                    \
        memcpy(bytes, &h, sizeof h);                                                               \
        CHECK_INT(open_section("ranks", bytes, n_bytes), SPECRT_STATUS_BUNDLE_CONTENT);            \
    } while (0)
    for (int32_t k = 1; k <= N_VOCAB; k++) { /* each size at both of its bounds */
        memcpy(bytes, good, n);
        memcpy(&h, good, sizeof h);
        h.n_terminators = h.n_forced = h.n_default = h.n_valid = k;
        memcpy(bytes, &h, sizeof h);
        CHECK_INT(open_section("ranks", bytes, n), SPECRT_STATUS_OK);
    }
    h.n_terminators = 0;
    h.n_vocab = SPECRT_MAX_VOCAB;
    memcpy(bytes, &h, sizeof h);
    CHECK_INT(open_section("ranks", bytes, n), SPECRT_STATUS_OK);
    CHECK_INT(open_section("ranks", good, n), SPECRT_STATUS_OK);
    CHECK_INT(open_section("ranks", good, 31), SPECRT_STATUS_BUNDLE_CONTENT);
    CHECK_INT(open_section("ranks", good, 0), SPECRT_STATUS_BUNDLE_CONTENT);
    memset(bytes, 0, n + 12);
    RANKS_BAD((void)0, n - 1);
    RANKS_BAD((void)0, n + 12);
    RANKS_BAD(h.n_vocab = SPECRT_MAX_VOCAB + 1, n);
    RANKS_BAD(h.n_ranked = h.n_valid = N_VOCAB + 1, n + 12);
    RANKS_BAD(h.n_ranked = INT32_MAX, n);
    RANKS_BAD(h.n_ranked = -1, n);
    RANKS_BAD(h.n_valid = N_VOCAB + 1, n);
    RANKS_BAD(h.n_forced = 9, n);
    RANKS_BAD(h.n_forced = -1, n);
    RANKS_BAD(h.n_terminators = 3, n);
    RANKS_BAD(h.n_terminators = -1, n);
    RANKS_BAD(h.n_default = N_VOCAB, n);
    RANKS_BAD(h.n_default = 0; h.n_forced = h.n_terminators = 0, n);
    RANKS_BAD(ids[3] = ids[4], n);
    RANKS_BAD(ids[N_VOCAB - 1] = ids[0], n);
    RANKS_BAD(ids[0] = N_VOCAB, n);
    RANKS_BAD(ids[0] = -1, n);
    RANKS_BAD(ids[0] = INT32_MIN, n);
    RANKS_BAD(ids[0] = INT32_MAX, n);
#undef RANKS_BAD
    free(good);
    free(bytes);
}

/* --- memory --- */

TEST(allocations, "every allocation fails once: clean, nothing leaks") {
    for (int zstd = 0; zstd < 2; zstd++) {
        size_t n;
        uint8_t *bytes = bundle_make(zstd, &n);
        specrt_bundle *bundle;
        int fail_at = 1;
        for (specrt_status status = SPECRT_STATUS_NO_MEMORY; status != SPECRT_STATUS_OK;
             fail_at++) {
            fixture_allocator a = {.fail_at = fail_at};
            specrt_env env = fixture_desc(&a);
            specrt_error err;
            REQUIRE(fail_at < 20);
            status = specrt_bundle_open_memory(bytes, n, "x", &env, &bundle, &err);
            CHECK(status == SPECRT_STATUS_OK || status == SPECRT_STATUS_NO_MEMORY);
            CHECK((bundle != NULL) == (status == SPECRT_STATUS_OK));
            specrt_bundle_close(bundle);
            CHECK_INT(a.n_live, 0);
        }
        CHECK_INT(fail_at, 4 + zstd); /* bundle, ids seen, and where sections are decoded these */
        free(bytes);
    }
}

/* --- golden files --- */

TEST(golden, "files of the first release open with the content they had") {
    CHECK_INT(open_path("tests/golden/bundles/v1.0-raw.specb", NULL), SPECRT_STATUS_OK);
    CHECK_INT(open_path("tests/golden/bundles/v1.0-zstd.specb", NULL), SPECRT_STATUS_OK);
}

/* Section sketch of version 4, which has clusters. */
TEST(golden_clusters, "the first release's bundle with clusters opens") {
    specrt_bundle *bundle;
    specrt_sketch view;
    REQUIRE(!specrt_bundle_open("tests/golden/bundles/v1.0-sketch4.specb", NULL, &bundle, NULL));
    REQUIRE(!specrt_bundle_sketch(bundle, &view, NULL));
    CHECK(view.header->n_rows == 40 && view.header->n_cols == 8 && view.header->n_signs == 32);
    CHECK_INT(view.header->n_clusters, 6);
    CHECK_INT(view.rows[0], 0);
    CHECK_INT(specrt__sketch_clusters_of(&view).starts[1], 3);
    specrt_bundle_close(bundle);
}

TEST(golden_errors, "the status of a damaged file is the number in its name: overlap.23.specb") {
    DIR *dir = opendir("tests/golden-errors/bundles");
    int n = 0;
    REQUIRE(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        char path[400];
        const char *dot = strchr(e->d_name, '.');
        if (!dot || !strstr(e->d_name, ".specb")) continue;
        snprintf(path, sizeof path, "tests/golden-errors/bundles/%s", e->d_name);
        CHECK_INT(open_path(path, NULL), atoi(dot + 1));
        n++;
    }
    closedir(dir);
    CHECK(n >= 20);
}
