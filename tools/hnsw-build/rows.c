/* rows.c : which rows are indexed, and the bytes of the section with its vectors. */
#include <stdlib.h>
#include <string.h>
#include "index.h"
#include "base/error.h"
#include "base/order.h"
#include "model/head_rows.h"

int index_by_hash(const void *a, const void *b) {
    const index_hashed *x = (const index_hashed *)a, *y = (const index_hashed *)b;
    int order = (x->hash > y->hash) - (x->hash < y->hash);
    return order ? order : sl_order_i32(&x->row, &y->row);
}

static bool is_zero(const float *row, int64_t n) {
    int64_t j = 0;
    while (j < n && row[j] == 0) j++;
    return j == n;
}

/* Of rows with equal bytes the first stays. */
static int32_t drop_duplicates(const specrt_head_desc *rows, index_hashed *found, int32_t n,
                               int32_t *ids) {
    size_t bytes = specrt_row_bytes(rows->dtype, rows->n_cols);
    int32_t n_ids = 0;
    qsort(found, (size_t)n, sizeof *found, index_by_hash);
    for (int32_t i = 0; i < n; i++) {
        bool again = false;
        for (int32_t k = i - 1; k >= 0 && found[k].hash == found[i].hash && !again; k--)
            again = memcmp(sl_head_row(rows, found[i].row), sl_head_row(rows, found[k].row),
                           bytes) == 0;
        if (!again) ids[n_ids++] = found[i].row;
    }
    qsort(ids, (size_t)n_ids, sizeof *ids, sl_order_i32);
    return n_ids;
}

specrt_status index_rows(const specrt_head_desc *rows, const uint8_t *skip, int32_t **ids,
                         int32_t *n, int32_t n_left_out[3], specrt_error *err) {
    size_t n_rows = (size_t)rows->n_rows, bytes = specrt_row_bytes(rows->dtype, rows->n_cols);
    index_hashed *found = (index_hashed *)malloc(n_rows * sizeof *found);
    float *row = (float *)malloc((size_t)rows->n_cols * sizeof *row);
    *ids = (int32_t *)malloc(n_rows * sizeof **ids);
    *n = 0;
    memset(n_left_out, 0, 3 * sizeof *n_left_out);
    specrt_status status = SPECRT_STATUS_OK;
    if (!found || !row || !*ids) status = sl_error_no_memory_for(err, "the rows");
    int32_t n_found = 0;
    for (int32_t i = 0; i < (int32_t)n_rows && !status; i++) {
        const void *at = sl_head_row(rows, i);
        status = specrt_row_decode(rows->dtype, at, rows->n_cols, row);
        bool is_reserved = skip && skip[i];
        if (is_reserved || is_zero(row, rows->n_cols))
            n_left_out[is_reserved ? 0 : 1]++;
        else
            found[n_found++] = (index_hashed){specrt_hash64(at, bytes, 0), i};
    }
    if (!status) *n = drop_duplicates(rows, found, n_found, *ids);
    n_left_out[2] = n_found - *n;
    free(found);
    free(row);
    if (!status && *n == 0)
        status = specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                  "expected rows to index, found only zero or reserved ones");
    if (status) {
        free(*ids);
        *ids = NULL;
    }
    return status;
}

/* ---- the section ---- */

static bool put_halves(const hnsw_index *index, const specrt_head_desc *rows, int64_t padded,
                       uint16_t *out) {
    float *row = (float *)calloc((size_t)padded, sizeof *row);
    for (int32_t i = 0; row && i < index->header.n_nodes; i++, out += padded) {
        specrt_row_decode(rows->dtype, sl_head_row(rows, index->ids[i]), rows->n_cols, row);
        specrt_to_f16(row, padded, out);
    }
    free(row);
    return row != NULL;
}

void *index_bytes(const hnsw_index *index, const specrt_head_desc *rows, size_t *n_bytes) {
    const specrt_hnsw_header *h = &index->header;
    size_t n = (size_t)h->n_nodes, m = (size_t)h->m, n_lists = (size_t)h->n_lists;
    size_t n_codes = h->vectors == SPECRT_HNSW_INT8 ? n * (size_t)index->n_cols : 0;
    size_t words = 2 * n + 1 + 2 * n * m + n_lists * m, end = sizeof *h + 4 * words;
    size_t vectors = (end + 63) / 64 * 64;
    int64_t padded = (h->dim + 31) / 32 * 32;
    const struct {
        const void *data;
        size_t at, n;
    } parts[] = {{h, 0, sizeof *h},
                 {index->ids, sizeof *h, 4 * n},
                 {index->starts, sizeof *h + 4 * n, 4 * (n + 1)},
                 {index->links0, sizeof *h + 4 * (2 * n + 1), 8 * n * m},
                 {index->links, sizeof *h + 4 * (2 * n + 1 + 2 * n * m), 4 * n_lists * m},
                 {index->codes, vectors, n_codes},
                 {index->scales, vectors + n_codes, n_codes ? 4 * n : 0}};
    if (h->vectors == SPECRT_HNSW_INT8) end = vectors + n_codes + 4 * n;
    if (h->vectors == SPECRT_HNSW_F16) end = vectors + n * (size_t)padded * 2;
    uint8_t *bytes = (uint8_t *)calloc(1, end);
    if (!bytes) return NULL;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (parts[i].n) memcpy(bytes + parts[i].at, parts[i].data, parts[i].n);
    *n_bytes = end;
    if (h->vectors != SPECRT_HNSW_F16 ||
        put_halves(index, rows, padded, (uint16_t *)(void *)(bytes + vectors)))
        return bytes;
    free(bytes);
    return NULL;
}
