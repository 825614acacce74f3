/* check_rows.c : a mapping of the same size with other content, told by the rows themselves: a head that was
 * copied from the target's must have at each place the target's row of the token that the list names. */
#include "check.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"

typedef struct hashed_row {
    uint64_t hash;
    int32_t id;
} hashed_row;

static int by_hash(const void *a, const void *b) {
    const hashed_row *x = (const hashed_row *)a, *y = (const hashed_row *)b;
    return x->hash < y->hash ? -1 : x->hash > y->hash;
}

/* Both heads, of the same kind of rows. */
typedef struct head_pair {
    specrt_head_desc cut, whole;
    size_t row_bytes;
} head_pair;

static const uint8_t *row_of(const head_pair *p, const specrt_head_desc *head, int64_t row) {
    size_t stride = head->row_stride ? head->row_stride : p->row_bytes;
    return (const uint8_t *)head->rows + (size_t)row * stride;
}

static hashed_row hash_row(const head_pair *p, const specrt_head_desc *head, int64_t row) {
    return (hashed_row){specrt_hash64(row_of(p, head, row), p->row_bytes, 0), (int32_t)row};
}

static bool is_right(const exam *e, const head_pair *p, int32_t row) {
    int32_t id = e->map.ids[row];
    return id < p->whole.n_rows &&
           memcmp(row_of(p, &p->cut, row), row_of(p, &p->whole, id), p->row_bytes) == 0;
}

/* Of the rows that are not their token's, those that are another token's. */
static void find_others(exam *e, const head_pair *p, const hashed_row *whole) {
    int32_t n = 0, row = 0, token = 0;
    for (int32_t i = e->map.n - 1; i >= 0; i--) {
        if (is_right(e, p, i)) continue;
        hashed_row key = hash_row(p, &p->cut, i);
        const hashed_row *found = (const hashed_row *)bsearch(&key, whole, (size_t)p->whole.n_rows,
                                                              sizeof *whole, by_hash);
        if (!found) continue;
        n++;
        row = i;
        token = found->id;
    }
    if (n > 0)
        exam_find(e, "d2t-rows", NULL, "cut the head again, or take the list that it was cut with",
                  "%" PRId32 " of %" PRId32 " rows are the target's rows of other tokens than the "
                  "list says: row %" PRId32 " is token %" PRId32 "'s, listed as %" PRId32,
                  n, e->map.n, row, token, e->map.ids[row]);
}

static specrt_status compare_rows(exam *e, const head_pair *p, specrt_error *err) {
    int32_t n_right = 0;
    for (int32_t i = 0; i < e->map.n; i++) n_right += is_right(e, p, i);
    if (n_right == e->map.n) return SPECRT_STATUS_OK;
    hashed_row *whole = (hashed_row *)malloc((size_t)p->whole.n_rows * sizeof *whole);
    if (!whole) return sl_error_no_memory(err, e->q->drafter);
    for (int64_t i = 0; i < p->whole.n_rows; i++) whole[i] = hash_row(p, &p->whole, i);
    qsort(whole, (size_t)p->whole.n_rows, sizeof *whole, by_hash);
    find_others(e, p, whole);
    free(whole);
    return SPECRT_STATUS_OK;
}

/* A head of another type or width cannot be compared, nor one of weights that are not there. */
specrt_status exam_rows(exam *e, const model *m, const char *head, specrt_error *err) {
    head_pair p;
    model target;
    if (!e->q->target || e->map.n == 0) return SPECRT_STATUS_OK;
    if (sl_model_matrix(m, head, &p.cut, NULL) != SPECRT_STATUS_OK || p.cut.n_rows != e->map.n)
        return SPECRT_STATUS_OK;
    if (sl_model_open(e->q->target, &target, NULL) != SPECRT_STATUS_OK) return SPECRT_STATUS_OK;
    specrt_status status = SPECRT_STATUS_OK;
    if (sl_model_head(&target, NULL, &p.whole, NULL, NULL) == SPECRT_STATUS_OK &&
        p.whole.dtype == p.cut.dtype && p.whole.n_cols == p.cut.n_cols &&
        p.whole.n_rows <= SPECRT_MAX_VOCAB) {
        p.row_bytes = specrt_row_bytes(p.cut.dtype, p.cut.n_cols);
        status = compare_rows(e, &p, err);
    }
    sl_model_close(&target);
    return status;
}
