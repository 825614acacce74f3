/* ids.c : token ids in .bin and .npy files. */
#include "specrt_tools.h"
#include "corpus/corpus_impl.h"

#include <string.h>
#include "base/error.h"
#include "base/memory.h"
#include "formats/npy.h"

/* ---- the layout of a .npy ---- */

static specrt_status bad_npy(const char *name, const char *what, specrt_error *err) {
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                            "%s: .npy %s; expected a 1- or 2-dimensional C-order little-endian "
                            "integer array of 2, 4 or 8 bytes",
                            name, what);
}

/* A row of a 2-dimensional array is a document; a batch is as many of them as fit. */
static specrt_status lay_out(corpus_format *f, const char *name, const npy_array *array,
                             specrt_error *err) {
    f->unit_bytes = CORPUS_UNIT_BYTES;
    if (array->n_dims == 2) {
        uint64_t row = (uint64_t)array->shape[1];
        if (row > CORPUS_CAP_BYTES / f->id_bytes)
            return bad_npy(name, "rows are longer than 64 MiB", err);
        if (row > 0) f->unit_bytes = row * f->id_bytes;
        f->rows = true;
    }
    if (array->n > INT64_MAX / 16) return bad_npy(name, "shape is too large", err);
    f->group_bytes = f->unit_bytes < CORPUS_BATCH_BYTES
                         ? CORPUS_BATCH_BYTES / f->unit_bytes * f->unit_bytes
                         : f->unit_bytes;
    f->end = f->first + (uint64_t)array->n * f->id_bytes;
    return SPECRT_STATUS_OK;
}

specrt_status sl_corpus_ids_npy(corpus_format *f, const char *name, const char *head, size_t n,
                                specrt_error *err) {
    npy_array array;
    specrt_status status = sl_npy_header(head, n, name, &array, err);
    if (status != SPECRT_STATUS_OK) return status;
    if ((array.kind != 'i' && array.kind != 'u') || array.item_bytes < 2)
        return bad_npy(name, "holds another type", err);
    if (array.n_dims < 1 || array.n_dims > 2) return bad_npy(name, "has another shape", err);
    if (array.n_dims == 2 && array.fortran) return bad_npy(name, "is in Fortran order", err);
    f->is_signed = array.kind == 'i';
    f->id_bytes = (unsigned)array.item_bytes;
    f->first = array.header_bytes;
    return lay_out(f, name, &array, err);
}

/* ---- ids ---- */

/* Negative ids are sign-extended, hence huge, so that one test refuses them. */
static uint64_t load_id(const corpus_format *f, const uint8_t *p) {
    uint64_t value = 0, sign = UINT64_C(1) << (8 * f->id_bytes - 1);
    memcpy(&value, p, f->id_bytes);
    return f->is_signed && (value & sign) ? value | ~(2 * sign - 1) : value;
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

specrt_status sl_corpus_ids_add(struct corpus_arena *a, const corpus_format *f, const char *name,
                                const corpus_range *range, const corpus_options *options,
                                const corpus_doc *base, specrt_error *err) {
    size_t bytes = (size_t)(range->end - range->start), n = bytes / f->id_bytes;
    if (bytes % f->id_bytes)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: the last id is cut short; expected a multiple of %u bytes, "
                                "found %llu",
                                name, f->id_bytes, (unsigned long long)(range->end - f->first));
    if (!sl_reserve(&a->ids, &a->ids_capacity, n, sizeof *a->ids))
        return sl_error_no_memory(err, name);
    const uint8_t *from = (const uint8_t *)a->window.bytes + (range->start - a->window.base);
    uint64_t limit = options->n_vocab > 0 ? (uint64_t)options->n_vocab : (uint64_t)INT32_MAX + 1;
    specrt_status status = decode(f, name, from, range->start, n, limit, a->ids, err);
    size_t per_doc = (size_t)f->unit_bytes / f->id_bytes;
    for (size_t i = 0; i < n && status == SPECRT_STATUS_OK; i += per_doc) {
        corpus_doc doc = *base;
        doc.ids = a->ids + i;
        doc.n_ids = n - i < per_doc ? n - i : per_doc;
        doc.continues = !f->rows && (i > 0 || range->start > f->first);
        doc.unit_hash =
            specrt_hash64(from + i * f->id_bytes, doc.n_ids * f->id_bytes, options->seed);
        status = sl_corpus_arena_add_doc(a, &doc, true);
        if (status == SPECRT_STATUS_NO_MEMORY) sl_error_no_memory(err, name);
    }
    return status;
}
