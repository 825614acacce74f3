/* corpus_ids.c : token ids in .bin and .npy files. */
#include "corpus_impl.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- .npy header: magic, version, length, then a Python dict in ASCII ------------------------------- */

static specrt_status bad_npy(const char *name, const char *what, specrt_error *err) {
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                            "%s: .npy %s; expected a 1- or 2-dimensional C-order little-endian "
                            "integer array of 2, 4 or 8 bytes",
                            name, what);
}

/* npy_value() : what follows 'key': in the dict, NULL if it is not there. */
static const char *npy_value(const char *dict, const char *key) {
    const char *p = strstr(dict, key);
    p = p ? strchr(p + strlen(key), ':') : NULL;
    while (p && isspace((unsigned char)*++p)) continue;
    return p;
}

static bool npy_type(corpus_format *f, const char *dict) {
    static const char *const names[] = {"'<u2'", "'<u4'", "'<u8'", "'<i2'", "'<i4'", "'<i8'"};
    const char *value = npy_value(dict, "'descr'");
    for (int i = 0; value && i < 6; i++)
        if (strncmp(value, names[i], 5) == 0) {
            f->id = (id_type)i;
            f->id_bytes = 2u << i % 3;
            return true;
        }
    return false;
}

static bool npy_shape(const char *dict, uint64_t shape[2], int *n_dims) {
    const char *p = npy_value(dict, "'shape'");
    *n_dims = 0;
    if (!p || *p++ != '(') return false;
    while (*p && *p != ')') {
        if (isspace((unsigned char)*p) || *p == ',') {
            p++;
            continue;
        }
        char *end;
        if (!isdigit((unsigned char)*p) || *n_dims == 2) return false;
        shape[*n_dims] = strtoull(p, &end, 10);
        if (shape[(*n_dims)++] > INT64_MAX / 16) return false;
        p = end;
    }
    return *p == ')' && *n_dims > 0;
}

/* A row of a 2-dimensional array is a document; a batch is as many of them as fit. */
static specrt_status npy_layout(corpus_format *f, const char *name, const uint64_t shape[2],
                                int n_dims, specrt_error *err) {
    uint64_t n_ids = shape[0];
    f->unit_bytes = CORPUS_UNIT_BYTES;
    if (n_dims == 2) {
        if (shape[1] > CORPUS_CAP_BYTES / f->id_bytes)
            return bad_npy(name, "rows are longer than 64 MiB", err);
        if (__builtin_mul_overflow(shape[0], shape[1], &n_ids) || n_ids > INT64_MAX / 16)
            return bad_npy(name, "shape is too large", err);
        if (shape[1] > 0) f->unit_bytes = shape[1] * f->id_bytes;
    }
    f->group_bytes = f->unit_bytes < CORPUS_BATCH_BYTES
                         ? CORPUS_BATCH_BYTES / f->unit_bytes * f->unit_bytes
                         : f->unit_bytes;
    f->end = f->first + n_ids * f->id_bytes;
    return SPECRT_STATUS_OK;
}

specrt_status npy_header(corpus_format *f, const char *name, const char *head, size_t n,
                         specrt_error *err) {
    const uint8_t *u = (const uint8_t *)head;
    char dict[1024];
    if (n < 12 || memcmp(head, "\x93NUMPY", 6) != 0 || u[6] < 1 || u[6] > 3)
        return bad_npy(name, "header is missing or of an unknown version", err);
    size_t at = u[6] == 1 ? 10 : 12, length = (size_t)u[8] | (size_t)u[9] << 8;
    if (u[6] > 1) length |= (size_t)u[10] << 16 | (size_t)u[11] << 24;
    if (length >= sizeof dict || length > n - at) return bad_npy(name, "header is cut short", err);
    memcpy(dict, head + at, length);
    dict[length] = '\0';
    f->first = at + length;
    uint64_t shape[2] = {0};
    int n_dims;
    const char *fortran = npy_value(dict, "'fortran_order'");
    if (!npy_type(f, dict)) return bad_npy(name, "holds another type", err);
    if (!npy_shape(dict, shape, &n_dims)) return bad_npy(name, "has another shape", err);
    if (n_dims == 2 && (!fortran || strncmp(fortran, "False", 5) != 0))
        return bad_npy(name, "is in Fortran order", err);
    return npy_layout(f, name, shape, n_dims, err);
}

/* ---- ids ------------------------------------------------------------------------------------------- */

/* Negative ids are sign-extended, hence huge, so that one test refuses them. */
static uint64_t load_id(const corpus_format *f, const uint8_t *p) {
    uint64_t value = 0, sign = UINT64_C(1) << (8 * f->id_bytes - 1);
    memcpy(&value, p, f->id_bytes);
    return f->id >= ID_I16 && (value & sign) ? value | ~(2 * sign - 1) : value;
}

static specrt_status decode(const corpus_format *f, const char *name, const uint8_t *bytes,
                            uint64_t offset, size_t n, uint64_t limit, int32_t *out,
                            specrt_error *err) {
    for (size_t i = 0; i < n; i++) {
        uint64_t id = load_id(f, bytes + i * f->id_bytes);
        if (id >= limit)
            return specrt_error_set(
                err, SPECRT_STATUS_BAD_INPUT,
                "%s: id %lld at index %llu; expected 0 to %llu (is it another tokenizer's, or of "
                "another --id-bytes?)",
                name, (long long)id, (unsigned long long)((offset - f->first) / f->id_bytes + i),
                (unsigned long long)limit - 1);
        out[i] = (int32_t)id;
    }
    return SPECRT_STATUS_OK;
}

specrt_status ids_add(struct corpus_arena *a, const corpus_format *f, const char *name,
                      const corpus_range *range, const corpus_options *options,
                      const corpus_doc *base, specrt_error *err) {
    size_t bytes = (size_t)(range->end - range->start), n = bytes / f->id_bytes;
    if (bytes % f->id_bytes)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: the last id is cut short; expected a multiple of %u bytes, "
                                "found %llu",
                                name, f->id_bytes, (unsigned long long)(range->end - f->first));
    if (n > a->ids_capacity) {
        int32_t *grown = (int32_t *)realloc(a->ids, n * sizeof *grown);
        if (!grown)
            return specrt_error_set(err, SPECRT_STATUS_NO_MEMORY, "%s: out of memory", name);
        a->ids = grown;
        a->ids_capacity = n;
    }
    const uint8_t *from = (const uint8_t *)a->window.bytes + (range->start - a->window.base);
    uint64_t limit = options->n_vocab > 0 ? (uint64_t)options->n_vocab : (uint64_t)INT32_MAX + 1;
    specrt_status status = decode(f, name, from, range->start, n, limit, a->ids, err);
    size_t per_doc = (size_t)f->unit_bytes / f->id_bytes;
    for (size_t i = 0; i < n && status == SPECRT_STATUS_OK; i += per_doc) {
        corpus_doc doc = *base;
        doc.ids = a->ids + i;
        doc.n_ids = n - i < per_doc ? n - i : per_doc;
        doc.unit_hash =
            specrt_hash64(from + i * f->id_bytes, doc.n_ids * f->id_bytes, options->seed);
        status = arena_add_doc(a, &doc, true);
        if (status == SPECRT_STATUS_NO_MEMORY)
            specrt_error_set(err, status, "%s: out of memory", name);
    }
    return status;
}
