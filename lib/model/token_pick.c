/* token_pick.c : see token_pick.h. */
#include "model/token_pick.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include "base/error.h"
#include "base/memory.h"

specrt_status sl_token_rows(const int32_t *d2t, int64_t n_rows, int64_t n_ids, const char *path,
                            int32_t **row_of, specrt_error *err) {
    TRY(sl_new(row_of, (size_t)n_ids, sizeof **row_of, path, err));
    for (int64_t id = 0; id < n_ids; id++) (*row_of)[id] = d2t || id >= n_rows ? -1 : (int32_t)id;
    for (int64_t row = 0; d2t && row < n_rows; row++)
        if (d2t[row] < n_ids) (*row_of)[d2t[row]] = (int32_t)row;
    return SPECRT_STATUS_OK;
}

specrt_status sl_token_pick(const specrt_ranks *ranks, int32_t size, const int32_t *row_of,
                            int32_t n_ids, const char *path, token_pick *out, specrt_error *err) {
    const specrt_ranks_header *h = ranks->header;
    int32_t asked = size;
    *out = (token_pick){0};
    if (size > 0 && size < h->n_forced)
        return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                                "size %" PRId32 ": expected at least %" PRId32 " (the forced ids)",
                                size, h->n_forced);
    if (size == 0) size = h->n_default;
    if (size > h->n_valid) size = h->n_valid;
    TRY(sl_new(&out->ids, (size_t)size, sizeof *out->ids, path, err));
    for (int32_t i = 0; i < h->n_valid && out->n < size; i++) {
        int32_t id = ranks->ids[i];
        if (id < n_ids && row_of[id] >= 0) {
            out->ids[out->n++] = id;
        } else {
            out->n_missing++;
            out->n_terminators += i < h->n_terminators;
        }
    }
    if (out->n > 0 && out->n >= asked) return SPECRT_STATUS_OK;
    free(out->ids);
    out->ids = NULL;
    return specrt_error_set(err, SPECRT_STATUS_BAD_ARG,
                            "size %" PRId32 ": expected at most %" PRId32
                            ", the ids of the bundle that have rows in %s",
                            asked, out->n, path);
}

specrt_status sl_token_coverage(const specrt_ranks *ranks, const int32_t *ids, int32_t n,
                                double *out, specrt_error *err) {
    const specrt_ranks_header *h = ranks->header;
    uint64_t listed = 0, all = 0;
    uint8_t *is_listed;
    TRY(sl_new(&is_listed, (size_t)h->n_vocab, 1, "tokens", err));
    for (int32_t i = 0; i < n; i++)
        if (ids[i] < h->n_vocab) is_listed[ids[i]] = 1;
    for (int32_t i = h->n_terminators; i < h->n_ranked; i++) {
        all += ranks->counts[i];
        if (is_listed[ranks->ids[i]]) listed += ranks->counts[i];
    }
    free(is_listed);
    *out = all ? (double)listed / (double)all : (double)NAN;
    return SPECRT_STATUS_OK;
}
