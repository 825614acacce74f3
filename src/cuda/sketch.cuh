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

/* --- launches --- */

static bool specrt__sketch_is_valid(const specrt__cuda_sketch *s) {
    if (!s || !s->basis || !s->center || !s->rows || !s->records) return false;
    if ((uintptr_t)s->records % 16 || s->n_cols < 1 || s->n_cols > SPECRT__CUDA_MAX_COLS)
        return false;
    if (s->rank < 240 || s->rank % 256 != 240 || s->rank > SPECRT_MAX_SKETCH_RANK) return false;
    return s->n_places >= 1 && s->n_places <= SPECRT_MAX_VOCAB && s->size >= 1 &&
           s->size <= s->n_places && s->n_ids >= 1 && s->n_ids <= SPECRT_MAX_VOCAB;
}

/* Where the arrays of a level lie; memory NULL: to learn the bytes. */
static size_t specrt__sketch_lay_out(const specrt__cuda_sketch *s, int32_t n_batch, int32_t max_n,
                                     void *memory, specrt__sketch_level *level) {
    size_t b = (size_t)n_batch, rows = b * (size_t)max_n, size = (size_t)s->size;
    size_t n_groups = specrt__launch_blocks(s->n_places, SPECRT__SCAN_GROUP);
    size_t n_most = size < n_groups ? size : n_groups, n_weights = b * (size_t)s->n_ids;
    specrt__launch_arena arena = {memory, 0};
    level->scan.n_groups = (int32_t)n_groups;
    level->n_most = (int32_t)n_most;
    specrt__launch_carve(&arena, rows * (size_t)s->rank, &level->scan.z);
    specrt__launch_carve(&arena, rows * SPECRT__SCAN_GROUP * n_groups, &level->scan.order);
    specrt__launch_carve(&arena, rows * n_groups, &level->scan.best);
    specrt__launch_carve(&arena, rows * n_most, &level->groups);
    specrt__launch_carve(&arena, rows * SPECRT__SCAN_GROUP * n_most, &level->keys);
    specrt__launch_carve(&arena, rows * size, &level->found);
    specrt__launch_carve(&arena, rows * SPECRT__SCAN_BINS, &level->scan.counts);
    specrt__launch_carve(&arena, b + rows, &level->tickets);
    specrt__launch_carve(&arena, rows * SPECRT__SKETCH_NAMERS, &level->n_named);
    specrt__launch_carve(&arena, n_weights, &level->weights);
    specrt__launch_carve(&arena, n_weights, &level->finders);
    return arena.bytes;
}

static bool specrt__sketch_is_batch(int32_t n_batch, int32_t max_n) {
    return n_batch >= 1 && n_batch <= SPECRT__CUDA_MAX_BATCH && max_n >= 1 &&
           max_n <= SPECRT__CUDA_MAX_STATES;
}

SPECRT__KERNEL size_t specrt__cuda_sketch_bytes(const specrt__cuda_sketch *sketch, int32_t n_batch,
                                                int32_t max_n) {
    specrt__sketch_level level;
    if (!specrt__sketch_is_valid(sketch) || !specrt__sketch_is_batch(n_batch, max_n)) return 0;
    return specrt__sketch_lay_out(sketch, n_batch, max_n, NULL, &level);
}

/* z = basis hidden. */
static specrt_status specrt__sketch_project(const specrt__cuda_sketch *s,
                                            const specrt__cuda_batch *batch, const void *hidden,
                                            specrt_dtype dtype, float *z, void *stream) {
    specrt__head_product p = specrt__head_of_rows(s->basis, SPECRT_DTYPE_F16, s->rank, s->n_cols);
    specrt__head_take_states(&p, batch, hidden, dtype);
    p.logits = z;
    return specrt__head_run<SPECRT_DTYPE_F16>(p, batch->n_batch, stream);
}

template <int kTiles>
static specrt_status specrt__sketch_run_places(const specrt__cuda_sketch *s, int32_t n_batch,
                                               const specrt__scan_level *level, void *stream) {
    dim3 grid(specrt__launch_blocks(level->n_groups, SPECRT__SCAN_WARPS * SPECRT__SCAN_GROUPS),
              specrt__launch_blocks(level->max_n, 8 * kTiles), (unsigned)n_batch);
    size_t n_lines = (size_t)(s->rank + 16) / 256;
    return SPECRT__LAUNCH((specrt__scan_places<kTiles>), grid, 32 * SPECRT__SCAN_WARPS,
                          n_lines * 2048 * kTiles, stream, *s, *level);
}

/* More states read records once, as far as shared memory goes. */
static specrt_status specrt__sketch_run_scan(const specrt__cuda_sketch *s, int32_t n_batch,
                                             const specrt__scan_level *level, void *stream) {
    if (level->max_n <= 8 || s->rank > SPECRT_MAX_SKETCH_RANK / 2)
        return specrt__sketch_run_places<1>(s, n_batch, level, stream);
    return specrt__sketch_run_places<2>(s, n_batch, level, stream);
}

SPECRT__KERNEL specrt_status specrt__cuda_sketch_route(
    const specrt__cuda_sketch *sketch, const specrt__cuda_batch *batch, const void *hidden,
    specrt_dtype dtype, const float *logprobs, const specrt__cuda_taken *taken, void *scratch,
    const specrt__cuda_choice *choice, void *stream) {
    specrt__sketch_level level;
    SPECRT__CLEAR(&level, 1);
    SPECRT__TRY(specrt__head_check_batch(batch));
    int32_t n_batch = batch->n_batch, max_n = batch->max_n;
    if (!specrt__sketch_is_valid(sketch) || !specrt__sketch_is_batch(n_batch, max_n))
        return SPECRT_STATUS_BAD_ARG;
    if (taken) level.scan.taken = *taken;
    if (!hidden || !scratch || (uintptr_t)scratch % 16 || level.scan.taken.level < 0 ||
        level.scan.taken.level >= SPECRT_TREE_MAX_STEPS || !choice || !choice->ids ||
        !choice->places || !choice->n_rows || choice->max_rows != sketch->size)
        return SPECRT_STATUS_BAD_ARG;
    if (!specrt__head_is_state(dtype)) return SPECRT_STATUS_UNSUPPORTED;
    specrt__sketch_lay_out(sketch, n_batch, max_n, scratch, &level);
    level.scan.max_n = max_n;
    level.scan.n = batch->n;
    level.scan.n_step = batch->n_step;
    SPECRT__TRY(specrt__sketch_project(sketch, batch, hidden, dtype, level.scan.z, stream));
    SPECRT__TRY(specrt__sketch_run_scan(sketch, n_batch, &level.scan, stream));
    return SPECRT__LAUNCH(
        specrt__sketch_name_all, dim3(SPECRT__SKETCH_NAMERS, (unsigned)max_n, (unsigned)n_batch),
        specrt__block_size(SPECRT__SKETCH_NAMING), 0, stream, *sketch, level, logprobs, *choice);
}

#endif
