/* sl_bundle_write.c : see sl_bundle_write.h.
 *
 * The folder is the lock: a file that is replaced by a rename cannot be one, and a lock file would be
 * left behind. The new file is read back by the runtime before it takes its name. */
#include "formats/bundle_write.h"
#include "specrt_tools.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>
#include <zstd.h>
#include "base/error.h"
#include "base/io.h"
#include "base/json.h"

enum { ZSTD_LEVEL = 15 };

/* A section of the file to be: its table entry and its stored bytes. */
typedef struct piece {
    specrt_bundle_section entry;
    const void *stored;
    void *owned; /* stored, when it was compressed here */
} piece;

typedef struct job {
    const char *path;
    const bundle_update *update;
    file_view old_file;
    specrt_bundle *old; /* NULL: none, or one to be replaced whole */
    specrt_ident ident;
    json_object *provenance; /* by tag */
    char *provenance_text;
    piece pieces[SPECRT_BUNDLE_MAX_SECTIONS];
    int n_pieces;
} job;

/* Whether the stored tag, padded with NULs, is `tag`. */
static bool tag_is(const char stored[8], const char *tag) {
    return strncmp(stored, tag, 8) == 0 && strlen(tag) <= 8;
}

/* --- the bundle that is there --- */

/* A file that is no bundle, or a damaged one, gives way to --force only. */
static specrt_status open_old(job *j, specrt_error *err) {
    if (!sl_io_is_file(j->path)) return SPECRT_STATUS_OK;
    if (j->update->whole) return sl_out_check(j->path, j->update->force, err);
    TRY(sl_file_map(j->path, &j->old_file, err));
    specrt_status status =
        specrt_bundle_open_memory(j->old_file.bytes, j->old_file.n, j->path, NULL, &j->old, err);
    if (status == SPECRT_STATUS_OK || status == SPECRT_STATUS_NO_MEMORY) return status;
    if (j->update->force) return SPECRT_STATUS_OK;
    specrt_error why = err ? *err : (specrt_error){0};
    return specrt_error_set(err, status, "%.400s; use -f to replace the file", why.msg);
}

static bool is_dropped(const bundle_update *u, const char tag[8]) {
    for (int i = 0; i < u->n_drop; i++)
        if (tag_is(tag, u->drop[i])) return true;
    return false;
}

static bool is_replaced(const bundle_update *u, const char tag[8]) {
    for (int i = 0; i < u->n_parts; i++)
        if (tag_is(tag, u->parts[i].tag)) return true;
    return false;
}

/* --- ident --- */

static bool has_tokenizer(const specrt_ident *d) {
    static const uint8_t unknown[32];
    return memcmp(d->tokenizer_sha256, unknown, 32) != 0;
}

static specrt_status merge_tokenizer(const char *path, specrt_ident *into, const specrt_ident *from,
                                     specrt_error *err) {
    if (has_tokenizer(into) && has_tokenizer(from) &&
        memcmp(into->tokenizer_sha256, from->tokenizer_sha256, 32) != 0)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_MISMATCH,
                                "%s: tokenizer: expected '%s' (%d tokens), as in the bundle, found "
                                "'%s' (%d tokens); write to another file",
                                path, into->tokenizer_name, into->n_vocab, from->tokenizer_name,
                                from->n_vocab);
    if (has_tokenizer(into) || (!has_tokenizer(from) && into->n_vocab > 0)) return SPECRT_STATUS_OK;
    memcpy(into->tokenizer_sha256, from->tokenizer_sha256, sizeof into->tokenizer_sha256);
    memcpy(into->tokenizer_name, from->tokenizer_name, sizeof into->tokenizer_name);
    into->n_vocab = from->n_vocab;
    into->n_normal = from->n_normal;
    return SPECRT_STATUS_OK;
}

static specrt_status merge_head(const char *path, specrt_ident *into, const specrt_ident *from,
                                specrt_error *err) {
    if (from->head_rows == 0) return SPECRT_STATUS_OK;
    bool same =
        into->head_rows == from->head_rows && into->head_cols == from->head_cols &&
        specrt_digest_distance(&into->head_digest, &from->head_digest) <= SPECRT_DIGEST_TOLERANCE;
    if (into->head_rows > 0 && !same)
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_MISMATCH,
                                "%s: head: expected '%s' [%d, %d], as in the bundle, found '%s' "
                                "[%d, %d] with other weights; write to another file",
                                path, into->head_name, into->head_rows, into->head_cols,
                                from->head_name, from->head_rows, from->head_cols);
    if (into->head_rows > 0) return SPECRT_STATUS_OK;
    into->head_rows = from->head_rows;
    into->head_cols = from->head_cols;
    into->head_digest = from->head_digest;
    memcpy(into->head_name, from->head_name, sizeof into->head_name);
    return SPECRT_STATUS_OK;
}

specrt_status sl_bundle_ident_head(specrt_ident *ident, const specrt_head_desc *head,
                                   const char *name, specrt_error *err) {
    ident->head_rows = (int32_t)head->n_rows;
    ident->head_cols = (int32_t)head->n_cols;
    snprintf(ident->head_name, sizeof ident->head_name, "%s", name);
    return specrt_head_digest(head, &ident->head_digest, err);
}

specrt_status sl_bundle_ident_merge(const char *path, specrt_ident *into, const specrt_ident *from,
                                    specrt_error *err) {
    TRY(merge_tokenizer(path, into, from, err));
    return merge_head(path, into, from, err);
}

static specrt_status merge_ident(job *j, specrt_error *err) {
    const specrt_ident *old = j->old ? specrt_bundle_ident(j->old) : NULL;
    if (old) j->ident = *old;
    if (!j->update->ident) return SPECRT_STATUS_OK;
    return sl_bundle_ident_merge(j->path, &j->ident, j->update->ident, err);
}

/* --- provenance --- */

static int by_key(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static json_object *sorted(json_object *value);

static json_object *sorted_object(json_object *value) {
    size_t n = (size_t)json_object_object_length(value), i = 0;
    const char **keys = (const char **)malloc((n + 1) * sizeof *keys);
    json_object *out = keys ? json_object_new_object() : NULL;
    if (out) {
        json_object_object_foreach(value, key, member) {
            (void)member;
            keys[i++] = key;
        }
        qsort((void *)keys, n, sizeof *keys, by_key);
        for (i = 0; i < n; i++)
            json_object_object_add(out, keys[i], sorted(json_object_object_get(value, keys[i])));
    }
    free((void *)keys);
    return out;
}

/* A copy with the keys of every object in order, so that equal content has equal bytes. */
static json_object *sorted(json_object *value) {
    if (json_object_is_type(value, json_type_object)) return sorted_object(value);
    if (!json_object_is_type(value, json_type_array)) return json_object_get(value);
    json_object *out = json_object_new_array();
    for (size_t i = 0; i < json_object_array_length(value); i++)
        json_object_array_add(out, sorted(json_object_array_get_idx(value, i)));
    return out;
}

/* NULL unless the text is exactly one JSON object. */
static json_object *parse_object(const char *text, size_t n) {
    size_t end;
    json_object *value = sl_json_parse(text, n, &end);
    if (end == n && json_object_is_type(value, json_type_object)) return value;
    json_object_put(value);
    return NULL;
}

static specrt_status old_provenance(job *j, specrt_error *err) {
    size_t n = 0;
    const char *text = j->old ? (const char *)specrt_bundle_data(j->old, "prov", &n) : NULL;
    j->provenance = text ? parse_object(text, n) : json_object_new_object();
    if (j->provenance) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BUNDLE_CONTENT,
                            "%s: section 'prov': expected one JSON object", j->path);
}

/* Entries of dropped and replaced sections go, those of new sections come. */
static specrt_status merge_provenance(job *j, specrt_error *err) {
    const bundle_update *u = j->update;
    TRY(old_provenance(j, err));
    for (int i = 0; i < u->n_drop; i++) json_object_object_del(j->provenance, u->drop[i]);
    for (int i = 0; i < u->n_parts; i++) {
        const bundle_part *part = &u->parts[i];
        json_object_object_del(j->provenance, part->tag);
        if (!part->provenance) continue;
        json_object *entry = parse_object(part->provenance, strlen(part->provenance));
        if (!entry)
            return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                    "%s: provenance of '%s': expected one JSON object", j->path,
                                    part->tag);
        json_object_object_add(j->provenance, part->tag, entry);
    }
    json_object *in_order = sorted(j->provenance);
    const char *text = json_object_to_json_string_ext(in_order, JSON_C_TO_STRING_PLAIN |
                                                                    JSON_C_TO_STRING_NOSLASHESCAPE);
    j->provenance_text = text ? strdup(text) : NULL;
    json_object_put(in_order);
    return j->provenance_text ? SPECRT_STATUS_OK : sl_error_no_memory(err, j->path);
}

/* --- sections --- */

static specrt_status add_piece(job *j, const specrt_bundle_section *entry, const void *stored,
                               void *owned, specrt_error *err) {
    if (j->n_pieces == SPECRT_BUNDLE_MAX_SECTIONS) {
        free(owned);
        return specrt_error_set(err, SPECRT_STATUS_BUNDLE_LIMIT,
                                "%s: expected at most %d sections, found more", j->path,
                                SPECRT_BUNDLE_MAX_SECTIONS);
    }
    j->pieces[j->n_pieces++] = (piece){*entry, stored, owned};
    return SPECRT_STATUS_OK;
}

/* What stays is copied as stored, so a section this program does not know survives too. */
static specrt_status keep_old(job *j, specrt_error *err) {
    int32_t n = 0;
    const specrt_bundle_section *s = j->old ? specrt_bundle_sections(j->old, &n) : NULL;
    for (int32_t i = 0; i < n; i++) {
        if (is_replaced(j->update, s[i].tag) && !j->update->force)
            return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                    "%s: has a section '%.8s' already; use -f to replace it",
                                    j->path, s[i].tag);
        if (is_replaced(j->update, s[i].tag) || is_dropped(j->update, s[i].tag) ||
            tag_is(s[i].tag, "ident") || tag_is(s[i].tag, "prov"))
            continue;
        const uint8_t *stored = j->old_file.bytes + s[i].offset;
        if (specrt_hash64(stored, (size_t)s[i].stored_bytes, 0) != s[i].checksum)
            return specrt_error_set(err, SPECRT_STATUS_BUNDLE_CHECKSUM,
                                    "%s: section '%.8s': checksum mismatch; the file is damaged",
                                    j->path, s[i].tag);
        TRY(add_piece(j, &s[i], stored, NULL, err));
    }
    return SPECRT_STATUS_OK;
}

/* Compressed unless asked otherwise or no smaller for it. */
static specrt_status add_part(job *j, const bundle_part *part, specrt_error *err) {
    specrt_bundle_section entry = {.version = part->version, .flags = part->depends};
    size_t n_tag = strlen(part->tag), n = 0;
    memcpy(entry.tag, part->tag, n_tag < 8 ? n_tag : 8);
    entry.raw_bytes = entry.stored_bytes = part->n_bytes;
    void *packed = NULL;
    if (!j->update->raw) {
        size_t capacity = ZSTD_compressBound(part->n_bytes);
        if (!(packed = malloc(capacity))) return sl_error_no_memory(err, j->path);
        n = ZSTD_compress(packed, capacity, part->data, part->n_bytes, ZSTD_LEVEL);
        if (ZSTD_isError(n) || n >= part->n_bytes) free(packed), packed = NULL;
    }
    if (packed) entry.stored_bytes = n, entry.flags |= SPECRT_SECTION_ZSTD;
    const void *stored = packed ? packed : part->data;
    entry.checksum = specrt_hash64(stored, (size_t)entry.stored_bytes, 0);
    return add_piece(j, &entry, stored, packed, err);
}

static specrt_status add_own_sections(job *j, specrt_error *err) {
    static const specrt_ident nothing;
    bundle_part ident = {
        .tag = "ident", .version = 1, .data = &j->ident, .n_bytes = sizeof j->ident};
    bundle_part provenance = {.tag = "prov",
                              .version = 1,
                              .depends = SPECRT_SECTION_OPTIONAL,
                              .data = j->provenance_text,
                              .n_bytes = strlen(j->provenance_text)};
    if (memcmp(&j->ident, &nothing, sizeof nothing) != 0) TRY(add_part(j, &ident, err));
    if (strcmp(j->provenance_text, "{}") != 0) TRY(add_part(j, &provenance, err));
    return SPECRT_STATUS_OK;
}

static specrt_status collect(job *j, specrt_error *err) {
    TRY(merge_ident(j, err));
    TRY(merge_provenance(j, err));
    TRY(keep_old(j, err));
    TRY(add_own_sections(j, err));
    for (int i = 0; i < j->update->n_parts; i++) TRY(add_part(j, &j->update->parts[i], err));
    return SPECRT_STATUS_OK;
}

/* --- the file --- */

static int by_tag(const void *a, const void *b) {
    return memcmp(((const piece *)a)->entry.tag, ((const piece *)b)->entry.tag, 8);
}

static uint64_t aligned(uint64_t n) {
    return (n + SPECRT_BUNDLE_ALIGN - 1) / SPECRT_BUNDLE_ALIGN * SPECRT_BUNDLE_ALIGN;
}

static specrt_status write_pieces(job *j, out_file *out, specrt_error *err) {
    static const uint8_t zeros[SPECRT_BUNDLE_ALIGN];
    specrt_bundle_section table[SPECRT_BUNDLE_MAX_SECTIONS];
    qsort(j->pieces, (size_t)j->n_pieces, sizeof *j->pieces, by_tag);
    size_t n_table = (size_t)j->n_pieces * sizeof *table;
    uint64_t end = sizeof(specrt_bundle_header) + n_table;
    for (int i = 0; i < j->n_pieces; i++) {
        table[i] = j->pieces[i].entry;
        table[i].offset = aligned(end);
        end = table[i].offset + table[i].stored_bytes;
    }
    specrt_bundle_header header = {.version_major = SPECRT_BUNDLE_VERSION_MAJOR,
                                   .version_minor = SPECRT_BUNDLE_VERSION_MINOR,
                                   .n_sections = (uint32_t)j->n_pieces,
                                   .table_offset = sizeof header,
                                   .file_bytes = end,
                                   .table_checksum = specrt_hash64(table, n_table, 0)};
    memcpy(header.magic, SPECRT_BUNDLE_MAGIC, sizeof header.magic);
    header.header_checksum =
        specrt_hash64(&header, offsetof(specrt_bundle_header, header_checksum), 0);
    TRY(sl_out_write(out, &header, sizeof header, err));
    TRY(sl_out_write(out, table, n_table, err));
    end = sizeof header + n_table;
    for (int i = 0; i < j->n_pieces; i++) {
        TRY(sl_out_write(out, zeros, (size_t)(table[i].offset - end), err));
        TRY(sl_out_write(out, j->pieces[i].stored, (size_t)table[i].stored_bytes, err));
        end = table[i].offset + table[i].stored_bytes;
    }
    return SPECRT_STATUS_OK;
}

/* No tool ships what the runtime would refuse. */
static specrt_status read_back(const job *j, const out_file *out, specrt_error *err) {
    if (fflush(out->f) != 0)
        return specrt_error_set(err, SPECRT_STATUS_IO, "%s: cannot write: %s", j->path,
                                strerror(errno));
    if (!out->temp) return SPECRT_STATUS_OK; /* a pipe */
    file_view view;
    specrt_bundle *bundle;
    TRY(sl_file_map(out->temp, &view, err));
    specrt_status status =
        specrt_bundle_open_memory(view.bytes, view.n, j->path, NULL, &bundle, err);
    specrt_bundle_close(bundle);
    sl_file_unmap(&view);
    return status;
}

static specrt_status write_file(job *j, specrt_error *err) {
    out_file out;
    TRY(sl_out_open(&out, j->path, true, err));
    specrt_status status = write_pieces(j, &out, err);
    if (status == SPECRT_STATUS_OK) status = read_back(j, &out, err);
    if (status == SPECRT_STATUS_OK) return sl_out_commit(&out, err);
    sl_out_abort(&out);
    return status;
}

static void job_free(job *j) {
    for (int i = 0; i < j->n_pieces; i++) free(j->pieces[i].owned);
    json_object_put(j->provenance);
    free(j->provenance_text);
    specrt_bundle_close(j->old);
    sl_file_unmap(&j->old_file);
    free(j);
}

static specrt_status check_update(const char *path, const bundle_update *u, specrt_error *err) {
    for (int i = 0; i < u->n_parts; i++) {
        const char *tag = u->parts[i].tag;
        bool twice = false;
        for (int k = 0; k < i; k++) twice |= strcmp(u->parts[k].tag, tag) == 0;
        if (twice || strlen(tag) > 8 || strcmp(tag, "ident") == 0 || strcmp(tag, "prov") == 0)
            return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                    "%s: section '%s' cannot be added as a part", path, tag);
    }
    return SPECRT_STATUS_OK;
}

static specrt_status write_locked(const char *path, const bundle_update *update,
                                  specrt_error *err) {
    job *j = (job *)calloc(1, sizeof *j);
    if (!j) return sl_error_no_memory(err, path);
    j->path = path;
    j->update = update;
    specrt_status status = open_old(j, err);
    if (status == SPECRT_STATUS_OK) status = collect(j, err);
    if (status == SPECRT_STATUS_OK) status = write_file(j, err);
    job_free(j);
    return status;
}

specrt_status sl_bundle_write(const char *path, const bundle_update *update, specrt_error *err) {
    TRY(check_update(path, update, err));
    int lock = sl_folder_open(path); /* a folder that cannot be opened is sl_out_open's error */
    while (lock >= 0 && flock(lock, LOCK_EX) != 0 && errno == EINTR) continue;
    specrt_status status = write_locked(path, update, err);
    if (lock >= 0) close(lock);
    return status;
}

specrt_status sl_bundle_ranks(const specrt_ranks_header *header, const int32_t *ids,
                              const uint64_t *counts, bundle_part *part, specrt_error *err) {
    size_t n = (size_t)header->n_ranked, n_counts = n * sizeof *counts, n_ids = n * sizeof *ids;
    uint8_t *bytes = (uint8_t *)malloc(sizeof *header + n_counts + n_ids);
    if (!bytes) return sl_error_no_memory(err, "ranks");
    memcpy(bytes, header, sizeof *header);
    memcpy(bytes + sizeof *header, counts, n_counts);
    memcpy(bytes + sizeof *header + n_counts, ids, n_ids);
    *part = (bundle_part){.tag = "ranks",
                          .version = 1,
                          .depends = SPECRT_SECTION_DEPENDS_TOKENIZER,
                          .data = bytes,
                          .n_bytes = sizeof *header + n_counts + n_ids};
    return SPECRT_STATUS_OK;
}

/* --- before the work --- */

specrt_status sl_bundle_write_check(const char *path, const char *tag, bool force,
                                    specrt_error *err) {
    specrt_bundle *bundle;
    size_t n;
    if (force || !sl_io_is_file(path)) return sl_out_check(path, force, err);
    TRY(specrt_bundle_open(path, NULL, &bundle, err));
    bool there = specrt_bundle_data(bundle, tag, &n) != NULL;
    specrt_bundle_close(bundle);
    return there ? specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                    "%s: has a section %s already; use -f to replace it", path, tag)
                 : SPECRT_STATUS_OK;
}

specrt_status sl_bundle_ident_check(const char *path, const specrt_ident *ident,
                                    specrt_error *err) {
    specrt_bundle *bundle;
    /* What is no bundle is refused by sl_bundle_write_check(), or is to be replaced whole. */
    if (!sl_io_is_file(path) || specrt_bundle_open(path, NULL, &bundle, NULL))
        return SPECRT_STATUS_OK;
    const specrt_ident *there = specrt_bundle_ident(bundle);
    specrt_ident merged = there ? *there : (specrt_ident){0};
    specrt_status status = sl_bundle_ident_merge(path, &merged, ident, err);
    specrt_bundle_close(bundle);
    return status;
}

specrt_status sl_bundle_check_section(const char *path, const char *tag, bool force,
                                      const specrt_ident *ident, specrt_error *err) {
    if (!path) return SPECRT_STATUS_OK;
    TRY(sl_bundle_write_check(path, tag, force, err));
    return ident ? sl_bundle_ident_check(path, ident, err) : SPECRT_STATUS_OK;
}

specrt_status sl_bundle_write_section(const char *path, bool force, const bundle_part *part,
                                      char *provenance, const specrt_ident *ident,
                                      specrt_error *err) {
    bundle_part whole = *part;
    whole.provenance = provenance;
    const bundle_update update = {.parts = &whole, .n_parts = 1, .ident = ident, .force = force};
    specrt_status status = part->data && provenance ? sl_bundle_write(path, &update, err)
                                                    : sl_error_no_memory_for(err, "the bundle");
    free(provenance);
    return status;
}
