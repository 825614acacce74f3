/* sketch.cuh : owns the launches of a sketch. */
#ifndef CUDA_SKETCH_CUH
#define CUDA_SKETCH_CUH

#include "core/base.h"
#include "sources/sketch.h"
#include "cuda/launch.cuh"
#include "cuda/block.cuh"
#include "cuda/head_rows.cuh"
#include "cuda/head.cuh"
#include "cuda/scan.cuh"
#include "cuda/sketch_find.cuh"
#include "cuda/sketch_certify.cuh"

/* --- launches --- */

static bool specrt__sketch_is_certifiable(const specrt__cuda_sketch *s) {
    if (!s->bounds) return true;
    return s->mean && s->lift && s->head.rows && s->head.n_cols == s->n_cols &&
           specrt__head_stored_bytes(s->head.dtype, s->n_cols) > 0 && s->rank == s->stored_rank &&
           s->bound >= s->n_places;
}

static bool specrt__sketch_is_valid(const specrt__cuda_sketch *s) {
    if (!s || !s->basis || !s->rows || !s->scales || !s->codes) return false;
    if ((uintptr_t)s->codes % 16 || s->n_cols < 1 || s->n_cols > SPECRT__CUDA_MAX_COLS)
        return false;
    int32_t step = s->four_bits ? 8 : 4;
    if (s->rank < step || s->rank % step || s->rank > s->stored_rank || s->stored_rank % step ||
        s->stored_rank > SPECRT_MAX_SKETCH_RANK)
        return false;
    return s->n_places >= 1 && s->n_places <= SPECRT_MAX_VOCAB && s->size >= 1 &&
           s->size <= s->n_places && s->bound >= s->size && s->n_ids >= 1 &&
           s->n_ids <= SPECRT_MAX_VOCAB && specrt__sketch_is_certifiable(s);
}

/* Where the arrays of a level lie; memory NULL: to learn the bytes. */
static size_t specrt__sketch_lay_out(const specrt__cuda_sketch *s, int32_t n_batch, int32_t max_n,
                                     void *memory, specrt__sketch_level *level) {
    size_t b = (size_t)n_batch, rows = b * (size_t)max_n, size = (size_t)s->size;
    size_t n_groups = specrt__launch_blocks(s->n_places, SPECRT__SCAN_GROUP);
    size_t n_most = size < n_groups ? size : n_groups, proofs = s->bounds ? rows : 0;
    size_t n_parts = specrt__launch_blocks(s->n_places, SPECRT__SKETCH_PART);
    size_t marked = s->bounds ? b * n_parts : 0, named = rows - proofs;
    size_t n_weights = s->bounds ? 0 : b * (size_t)s->n_ids;
    specrt__launch_arena arena = {memory, 0};
    level->scan.n_groups = (int32_t)n_groups;
    level->n_most = (int32_t)n_most;
    level->n_parts = (int32_t)n_parts;
    specrt__launch_carve(&arena, rows * (size_t)s->rank, &level->scan.z);
    specrt__launch_carve(&arena, rows * SPECRT__SCAN_GROUP * n_groups, &level->scan.order);
    specrt__launch_carve(&arena, rows * n_groups, &level->scan.best);
    specrt__launch_carve(&arena, rows * n_most, &level->groups);
    specrt__launch_carve(&arena, rows * SPECRT__SCAN_GROUP * n_most, &level->keys);
    specrt__launch_carve(&arena, rows * size, &level->found);
    specrt__launch_carve(&arena, named * SPECRT__SCAN_BINS, &level->scan.counts);
    specrt__launch_carve(&arena, s->bounds ? 0 : b + rows, &level->tickets);
    specrt__launch_carve(&arena, named * SPECRT__SKETCH_NAMERS, &level->n_named);
    specrt__launch_carve(&arena, n_weights, &level->weights);
    specrt__launch_carve(&arena, n_weights, &level->finders);
    if (s->bounds) level->scan.counts = NULL;
    specrt__launch_carve(&arena, proofs * (size_t)s->n_cols, &level->rest);
    specrt__launch_carve(&arena, proofs * (size_t)s->rank, &level->y);
    specrt__launch_carve(&arena, proofs, &level->proofs);
    specrt__launch_carve(&arena, proofs, &level->segments);
    specrt__launch_carve(&arena, proofs * size, &level->rows);
    specrt__launch_carve(&arena, proofs, &level->n_found);
    specrt__launch_carve(&arena, proofs * size, &level->logits);
    specrt__launch_carve(&arena, marked * (SPECRT__SKETCH_PART / 32), &level->marks);
    specrt__launch_carve(&arena, marked, &level->taken);
    return arena.bytes;
}

/* Certified, states stand for sequences in a dimension of a grid. */
static bool specrt__sketch_is_batch(const specrt__cuda_sketch *s, int32_t n_batch, int32_t max_n) {
    if (n_batch < 1 || n_batch > SPECRT__CUDA_MAX_BATCH || max_n < 1) return false;
    return max_n <= SPECRT__CUDA_MAX_STATES && (!s->bounds || n_batch * max_n <= 65535);
}

SPECRT__KERNEL size_t specrt__cuda_sketch_bytes(const specrt__cuda_sketch *sketch, int32_t n_batch,
                                                int32_t max_n) {
    specrt__sketch_level level;
    if (!specrt__sketch_is_valid(sketch) || !specrt__sketch_is_batch(sketch, n_batch, max_n))
        return 0;
    return specrt__sketch_lay_out(sketch, n_batch, max_n, NULL, &level);
}

/* z = basis hidden. */
static specrt_status specrt__sketch_project(const specrt__cuda_sketch *s,
                                            const specrt__cuda_batch *batch, const void *hidden,
                                            specrt_dtype dtype, float *z, void *stream) {
    specrt__head_product p = specrt__head_of_rows(s->basis, s->rank, s->n_cols);
    specrt__head_take_states(&p, batch, hidden, dtype);
    p.logits = z;
    return specrt__head_run<SPECRT_DTYPE_F16>(p, batch->n_batch, stream);
}

template <bool kFourBits, int kTiles>
static specrt_status specrt__sketch_run_places(const specrt__cuda_sketch *s, int32_t n_batch,
                                               const specrt__scan_level *level, void *stream) {
    dim3 grid(specrt__launch_blocks(level->n_groups, 2 * SPECRT__SCAN_WARPS * SPECRT__SCAN_PAIRS),
              specrt__launch_blocks(level->max_n, 8 * kTiles), (unsigned)n_batch);
    size_t n_fours =
        (size_t)specrt__launch_blocks(s->rank, kFourBits ? 32 : 16) * (kFourBits ? 8 : 4);
    return SPECRT__LAUNCH((specrt__scan_places<kFourBits, kTiles>), grid, 32 * SPECRT__SCAN_WARPS,
                          n_fours * 8 * kTiles * sizeof(int32_t), stream, *s, *level);
}

/* More states read codes once, as far as shared memory goes. */
template <bool kFourBits>
static specrt_status specrt__sketch_run_scan(const specrt__cuda_sketch *s, int32_t n_batch,
                                             const specrt__scan_level *level, void *stream) {
    if (level->max_n <= 8 || s->rank > SPECRT_MAX_SKETCH_RANK / 2)
        return specrt__sketch_run_places<kFourBits, 1>(s, n_batch, level, stream);
    return specrt__sketch_run_places<kFourBits, 2>(s, n_batch, level, stream);
}

/* Sharpens projected states, before they are scanned. */
static specrt_status specrt__sketch_refine(const specrt__cuda_sketch *s, int32_t n_batch,
                                           const specrt__sketch_level *level, void *stream) {
    unsigned n = (unsigned)level->scan.max_n, threads = SPECRT__SKETCH_PART;
    dim3 columns(specrt__launch_blocks(s->n_cols, threads), n, (unsigned)n_batch);
    dim3 dimensions(specrt__launch_blocks(s->rank, threads / 32), n, (unsigned)n_batch);
    SPECRT__TRY(SPECRT__LAUNCH(specrt__sketch_leave, columns, threads, 0, stream, *s, *level));
    return SPECRT__LAUNCH(specrt__sketch_sharpen, dimensions, threads, 0, stream, *s, *level);
}

/* What each state found, scored exactly: a state stands for a sequence. */
static specrt_status specrt__sketch_score(const specrt__cuda_sketch *s, int32_t n_batch,
                                          const specrt__sketch_level *level, void *stream) {
    specrt__head_product p;
    SPECRT__CLEAR(&p, 1);
    p.segments = level->segments;
    p.layout.n_segments = 1;
    p.layout.n_cols = s->n_cols;
    p.layout.dtypes[0] = s->head.dtype;
    p.layout.max_rows[0] = p.n_columns = s->size;
    p.hidden = level->hidden;
    p.dtype = level->dtype;
    p.max_n = 1;
    p.logits = level->logits;
    return specrt__head_run_all(p, n_batch * level->scan.max_n, stream);
}

/* The level's tokens, with proof, once places are scored. */
static specrt_status specrt__sketch_run_proof(const specrt__cuda_sketch *s, int32_t n_batch,
                                              const specrt__sketch_level *level,
                                              const specrt__cuda_choice *choice, void *stream) {
    dim3 states((unsigned)level->scan.max_n, (unsigned)n_batch);
    dim3 parts((unsigned)level->n_parts, (unsigned)n_batch);
    int threads = specrt__block_size(SPECRT__SKETCH_THREADS);
    SPECRT__TRY(
        SPECRT__LAUNCH(specrt__sketch_prove_kernel, states, threads, 0, stream, *s, *level));
    SPECRT__TRY(specrt__sketch_score(s, n_batch, level, stream));
    SPECRT__TRY(SPECRT__LAUNCH(specrt__sketch_least, states, specrt__block_size(256), 0, stream, *s,
                               *level));
    SPECRT__TRY(
        SPECRT__LAUNCH(specrt__sketch_mark, parts, SPECRT__SKETCH_PART, 0, stream, *s, *level));
    return SPECRT__LAUNCH(specrt__sketch_gather, parts, SPECRT__SKETCH_PART, 0, stream, *s, *level,
                          choice->ids, choice->places, choice->n_rows);
}

SPECRT__KERNEL specrt_status specrt__cuda_sketch_route(
    const specrt__cuda_sketch *sketch, const specrt__cuda_batch *batch, const void *hidden,
    specrt_dtype dtype, const float *logprobs, const specrt__cuda_taken *taken, void *scratch,
    const specrt__cuda_choice *choice, void *stream) {
    specrt__sketch_level level;
    SPECRT__CLEAR(&level, 1);
    SPECRT__TRY(specrt__head_check_batch(batch));
    int32_t n_batch = batch->n_batch, max_n = batch->max_n;
    if (!specrt__sketch_is_valid(sketch) || !specrt__sketch_is_batch(sketch, n_batch, max_n))
        return SPECRT_STATUS_BAD_ARG;
    if (taken) level.scan.taken = *taken;
    if (!hidden || !scratch || (uintptr_t)scratch % 16 || level.scan.taken.level < 0 ||
        level.scan.taken.level >= SPECRT_TREE_MAX_STEPS || !choice || !choice->ids ||
        !choice->places || !choice->n_rows || choice->max_rows != sketch->bound)
        return SPECRT_STATUS_BAD_ARG;
    if (!specrt__head_is_state(dtype)) return SPECRT_STATUS_UNSUPPORTED;
    specrt__sketch_lay_out(sketch, n_batch, max_n, scratch, &level);
    level.scan.max_n = max_n;
    level.scan.n = batch->n;
    level.scan.n_step = batch->n_step;
    level.hidden = hidden;
    level.dtype = dtype;
    SPECRT__TRY(specrt__sketch_project(sketch, batch, hidden, dtype, level.scan.z, stream));
    if (sketch->bounds) SPECRT__TRY(specrt__sketch_refine(sketch, n_batch, &level, stream));
    SPECRT__TRY(sketch->four_bits
                    ? specrt__sketch_run_scan<true>(sketch, n_batch, &level.scan, stream)
                    : specrt__sketch_run_scan<false>(sketch, n_batch, &level.scan, stream));
    if (sketch->bounds) return specrt__sketch_run_proof(sketch, n_batch, &level, choice, stream);
    return SPECRT__LAUNCH(
        specrt__sketch_name_all, dim3(SPECRT__SKETCH_NAMERS, (unsigned)max_n, (unsigned)n_batch),
        specrt__block_size(SPECRT__SKETCH_NAMING), 0, stream, *sketch, level, logprobs, *choice);
}

#endif
