/* check_rows.c : a mapping of the same size with other content, told by the rows themselves: a head that was
 * copied from the target's must have at each place the target's row of the token that the list names. */
#include "check.h"

#include <inttypes.h>
#include <stdlib.h>
#include "base/error.h"
#include "model/head_rows.h"

#define LOOKED_AT 8   /* wrong rows whose tokens are sought, spread over the head */
#define N_COLS    256 /* of a row that are compared: a multiple of every type's block */

/* Both heads. */
typedef struct head_pair {
    specrt_head_desc cut, whole;
    int64_t n_cols;   /* that are compared */
    double tolerance; /* of near(): 0 where both heads have one type */
} head_pair;

static void decode(const head_pair *p, const specrt_head_desc *head, int64_t row, float *out) {
    specrt_row_decode(head->dtype, sl_head_row(head, row), p->n_cols, out);
}

/* Is one row the other's copy, as far as their types tell? Two tokens' rows are further apart than the
 * coarsest type is from f32. */
static bool near(const head_pair *p, const float *x, const float *y) {
    double apart = 0, both = 0;
    for (int64_t i = 0; i < p->n_cols; i++) {
        double a = x[i], b = y[i];
        apart += (a - b) * (a - b);
        both += a * a + b * b;
    }
    return apart <= p->tolerance * both;
}

/* Places of the rows that are not their token's. */
static int32_t find_wrong(const exam *e, const head_pair *p, int32_t *wrong) {
    int32_t n = 0;
    float row[N_COLS], listed[N_COLS];
    for (int32_t i = 0; i < e->map.n; i++) {
        bool there = e->map.ids[i] < p->whole.n_rows;
        decode(p, &p->cut, i, row);
        if (there) decode(p, &p->whole, e->map.ids[i], listed);
        if (!there || !near(p, row, listed)) wrong[n++] = i;
    }
    return n;
}

/* A trained head's rows are no token's; those of a head that was cut are. The first row is named. */
static void find_other(exam *e, const head_pair *p, const int32_t *wrong, int32_t n_wrong) {
    int32_t n = n_wrong < LOOKED_AT ? n_wrong : LOOKED_AT, rows[LOOKED_AT], first = n;
    float sought[LOOKED_AT][N_COLS], row[N_COLS];
    int64_t token = 0;
    for (int32_t i = 0; i < n; i++) {
        rows[i] = wrong[(int64_t)i * n_wrong / n];
        decode(p, &p->cut, rows[i], sought[i]);
    }
    for (int64_t id = 0; id < p->whole.n_rows && first > 0; id++) {
        int32_t i = 0;
        decode(p, &p->whole, id, row);
        while (i < first && !near(p, sought[i], row)) i++;
        if (i < first) first = i, token = id;
    }
    if (first < n)
        exam_find(e, "d2t-rows", NULL, "cut the head again, or take the list that it was cut with",
                  "%" PRId32 " of %" PRId32 " rows are not the target's rows of the listed tokens: "
                  "row %" PRId32 " is token %" PRId64 "'s, listed as %" PRId32,
                  n_wrong, e->map.n, rows[first], token, e->map.ids[rows[first]]);
}

/* A head of another width cannot be compared, nor one of weights that are not there. */
specrt_status exam_rows(exam *e, const model *m, const char *head, specrt_error *err) {
    head_pair p;
    model target;
    if (!e->q->target || e->map.n == 0) return SPECRT_STATUS_OK;
    if (sl_model_matrix(m, head, &p.cut, NULL) != SPECRT_STATUS_OK || p.cut.n_rows != e->map.n)
        return SPECRT_STATUS_OK;
    if (sl_model_open(e->q->target, &target, NULL) != SPECRT_STATUS_OK) return SPECRT_STATUS_OK;
    specrt_status status = SPECRT_STATUS_OK;
    if (sl_model_head(&target, NULL, &p.whole, NULL, NULL) == SPECRT_STATUS_OK &&
        p.whole.n_cols == p.cut.n_cols && p.whole.n_rows <= SPECRT_MAX_VOCAB) {
        int32_t *wrong = (int32_t *)malloc((size_t)e->map.n * sizeof *wrong);
        p.n_cols = p.cut.n_cols < N_COLS ? p.cut.n_cols : N_COLS;
        p.tolerance = p.whole.dtype == p.cut.dtype ? 0 : 0.05;
        if (wrong)
            find_other(e, &p, wrong, find_wrong(e, &p, wrong));
        else
            status = sl_error_no_memory(err, e->q->drafter);
        free(wrong);
    }
    sl_model_close(&target);
    return status;
}
