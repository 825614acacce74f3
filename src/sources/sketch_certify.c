/* sketch_certify.c : owns what `certified` adds: a bound of each scan's error, and every row that it
 * leaves in doubt. */
#include "sources/sketch.h"
#include "core/base.h"
#include "core/head.h"
#include "core/active.h"
#include "sources/source.h"
#include "sources/scan.h"

/* --- certified: every row that might be among a state's best topk --- */

static double specrt__sketch_length(const double *x, int64_t n) {
    double sum = 0;
    for (int64_t j = 0; j < n; j++) sum += x[j] * x[j];
    return sqrt(sum);
}

/* Sharpens z to basis (2 h - lift z), so that what is left of h meets no code, and rounds it. */
static void specrt__sketch_prove(specrt__sketch *s, int32_t i, const float *h,
                                 specrt__sketch_proof *proof) {
    const specrt_sketch *v = &s->shared->view;
    int64_t d = v->header->n_cols, rank = s->shared->rank;
    float *z = s->z + i * rank;
    double *rest = s->proof, *state = rest + d, *y = state + d, *off = y + rank;
    const specrt__scan_query *query = specrt__sketch_query(s, i);
    int at = i % query->n_states;
    proof->base = 0;
    for (int64_t j = 0; j < d; j++) {
        rest[j] = state[j] = (double)h[j];
        proof->base += (double)v->mean[j] * (double)h[j];
    }
    for (int64_t k = 0; k < rank; k++)
        for (int64_t j = 0; j < d; j++)
            rest[j] -= (double)specrt__base_f16(v->lift[k * d + j]) * (double)z[k];
    for (int64_t k = 0; k < rank; k++) {
        y[k] = (double)z[k];
        for (int64_t j = 0; j < d; j++)
            y[k] += (double)specrt__base_f16(v->basis[k * d + j]) * rest[j];
        z[k] = (float)y[k];
    }
    specrt__sketch_round(s, i);
    for (int64_t k = 0; k < rank; k++)
        off[k] = y[k] - (double)query->unit[at] * (double)*specrt__scan_at(query, at, (int32_t)k);
    double length = specrt__sketch_length(y, rank);
    proof->errors[0] = 1.000001 * specrt__sketch_length(rest, d);
    proof->errors[1] = 1.000001 * length;
    proof->errors[2] = 1.000001 * specrt__sketch_length(off, rank) + 1e-6 * length;
    proof->errors[3] = (double)(d + 64) * 1.2e-7 * specrt__sketch_length(state, d);
}

/* The k-th greatest exact logit of what a state found: no row below it is among its best. */
static double specrt__sketch_kth(specrt__sketch *s, int32_t i, const float *h, int32_t k) {
    const specrt__sketch_found *found = &s->found[i * SPECRT__SKETCH_PARTS];
    if (found->n < k) return -INFINITY;
    for (int32_t j = 0; j < found->n; j++) s->ids[j] = specrt__active_key_id(found->keys[j]);
    specrt_segment segment = specrt__sketch_segment(s, found->n);
    specrt__head_products(s->shared->head->compute.kernels, &segment, 0, found->n,
                          s->shared->head->desc.n_cols, h, 1, s->logits, (size_t)found->n);
    for (int32_t j = 0; j < found->n; j++)
        s->merged[j] = specrt__active_key(s->logits[j], s->ids[j]);
    specrt__active_select(s->merged, found->n, k);
    uint64_t least = UINT64_MAX;
    for (int32_t j = 0; j < k; j++) least = s->merged[j] < least ? s->merged[j] : least;
    return (double)specrt__active_key_logit(least);
}

/* Marks in `weights` the tokens whose logit may reach `kth` for a state: among what a scan hit. */
static void specrt__sketch_widen(specrt__sketch *s, const specrt__scan_hits *hits,
                                 const specrt__sketch_proof *proof) {
    const specrt__sketch_shared *shared = s->shared;
    for (int32_t j = 0; j < hits->n && hits->places[j] < shared->n_places; j++) {
        int32_t place = hits->places[j];
        const float *lengths = shared->view.bounds + 4 * (size_t)place;
        double most = proof->base + (double)hits->scores[j];
        for (int k = 0; k < 4; k++) most += proof->errors[k] * (double)lengths[k];
        if (shared->rows.bias) most += 1e-6 * fabs((double)shared->rows.bias[place]);
        if (most < proof->kth) continue;
        int32_t id = specrt__sketch_token(s, place);
        if (specrt__active_is_new(s->routed, id)) s->weights[id] = 1;
    }
}

/* All places once more, for the states of query `at`. */
static void specrt__sketch_widen_all(specrt__sketch *s, int32_t at,
                                     const specrt__sketch_proof *proofs) {
    const specrt__sketch_shared *shared = s->shared;
    specrt__scan_query *query = &s->queries[at];
    specrt__scan_hits hits[SPECRT__SCAN_STATES];
    int32_t n_blocks = (shared->n_places + 15) / 16, first = at * query->n_states;
    s->n_read += specrt__sketch_scanned(shared) + 16 * (int64_t)shared->n_places;
    for (int k = 0; k < query->n_states && first + k < s->n; k++) query->least[k] = -INFINITY;
    for (int32_t b = 0; b < n_blocks; b += SPECRT__SCAN_BLOCKS) {
        int32_t left = n_blocks - b;
        for (int k = 0; k < query->n_states; k++) hits[k].n = 0;
        shared->scan(&shared->rows, b, left < SPECRT__SCAN_BLOCKS ? left : SPECRT__SCAN_BLOCKS,
                     query, hits);
        for (int k = 0; k < query->n_states && first + k < s->n; k++)
            specrt__sketch_widen(s, &hits[k], &proofs[first + k]);
    }
}

/* The level's tokens, with proof. @return how many. */
SPECRT__INTERNAL int32_t specrt__sketch_certify(specrt__sketch *s,
                                                const specrt__active_level *level) {
    int64_t d = s->shared->head->desc.n_cols;
    specrt__sketch_proof proofs[SPECRT_TREE_MAX_TOPK];
    int32_t n = 0;
    for (int32_t i = 0; i < s->n; i++)
        specrt__sketch_prove(s, i, level->draft_hidden + i * d, &proofs[i]);
    specrt__sketch_search(s);
    for (int32_t i = 0; i < s->n; i++)
        proofs[i].kth = specrt__sketch_kth(s, i, level->draft_hidden + i * d, s->topk);
    for (int32_t i = 0; i < s->n_queries; i++) specrt__sketch_widen_all(s, i, proofs);
    for (int32_t id = 0; id < s->shared->head->n_ids; id++) {
        if (s->weights[id] > 0) s->ids[n++] = id;
        s->weights[id] = 0;
    }
    return n;
}
