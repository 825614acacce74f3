/* load.cuh : owns that all kernels of a session are on the device before it is used. The runtime loads each
 * when it is first asked for, which a capture of mode Global may refuse. */
#ifndef CUDA_LOAD_CUH
#define CUDA_LOAD_CUH

#include "cuda/launch.cuh"
#include "cuda/head.cuh"
#include "cuda/shortlist.cuh"
#include "cuda/window.cuh"
#include "cuda/cluster.cuh"
#include "cuda/successor.cuh"
#include "cuda/scan.cuh"
#include "cuda/sketch_find.cuh"
#include "cuda/tree.cuh"
#include "cuda/verify.cuh"
#include "cuda/ring.cuh"
#include "cuda/batch.cuh"
#include "cuda/shared.cuh"
#include "cuda/device.cuh"

#define SPECRT__LOAD(kernel) (const void *)kernel
/* Products of rows of a type. */
#define SPECRT__LOAD_TILES(dtype)                                                                  \
    SPECRT__LOAD((specrt__head_tiles<dtype, 2, false>)),                                           \
        SPECRT__LOAD((specrt__head_tiles<dtype, 2, true>)),                                        \
        SPECRT__LOAD((specrt__head_tiles<dtype, 8, false>)),                                       \
        SPECRT__LOAD((specrt__head_tiles<dtype, 8, true>))

/* Loads kernels on the current device. */
static specrt_status specrt__load_each(const void *const *kernels, size_t n, specrt_error *err) {
    cudaFuncAttributes attributes;
    for (size_t i = 0; i < n; i++) {
        cudaError_t error = cudaFuncGetAttributes(&attributes, kernels[i]);
        if (error != cudaSuccess) return specrt__device_fail(error, 0, err);
    }
    return SPECRT_STATUS_OK;
}

/* Products, rankings, and what routes. */
static specrt_status specrt__load_levels(specrt_error *err) {
    const void *const kernels[] = {
        SPECRT__LOAD_TILES(SPECRT_DTYPE_F16),       SPECRT__LOAD_TILES(SPECRT_DTYPE_BF16),
        SPECRT__LOAD_TILES(SPECRT_DTYPE_Q8_0),      SPECRT__LOAD(specrt__head_f32<2>),
        SPECRT__LOAD(specrt__head_f32<16>),         SPECRT__LOAD(specrt__shortlist_rank_kernel),
        SPECRT__LOAD(specrt__cluster_read_kernel),  SPECRT__LOAD(specrt__cluster_weigh_kernel),
        SPECRT__LOAD(specrt__cluster_total_kernel), SPECRT__LOAD(specrt__cluster_rank_kernel),
        SPECRT__LOAD(specrt__cluster_take_kernel),  SPECRT__LOAD(specrt__cluster_list_kernel),
        SPECRT__LOAD(specrt__successor_kernel),     SPECRT__LOAD(specrt__scan_places<1>),
        SPECRT__LOAD(specrt__scan_places<2>),       SPECRT__LOAD(specrt__sketch_name_all),
        SPECRT__LOAD(specrt__batch_claim_kernel),   SPECRT__LOAD(specrt__tree_rank_kernel),
        SPECRT__LOAD(specrt__tree_expand_kernel),   SPECRT__LOAD(specrt__tree_block_kernel),
        SPECRT__LOAD(specrt__verify_propose_kernel)};
    return specrt__load_each(kernels, sizeof kernels / sizeof kernels[0], err);
}

/* What comes once a cycle. */
static specrt_status specrt__load_cycles(specrt_error *err) {
    const void *const kernels[] = {SPECRT__LOAD(specrt__tree_finish_kernel),
                                   SPECRT__LOAD(specrt__verify_rank_kernel),
                                   SPECRT__LOAD(specrt__verify_best_kernel),
                                   SPECRT__LOAD(specrt__verify_distribution_kernel),
                                   SPECRT__LOAD(specrt__verify_candidates_kernel),
                                   SPECRT__LOAD(specrt__verify_filter_kernel),
                                   SPECRT__LOAD(specrt__verify_sum_kernel),
                                   SPECRT__LOAD(specrt__verify_pick_kernel),
                                   SPECRT__LOAD(specrt__verify_walk_kernel),
                                   SPECRT__LOAD(specrt__verify_chain_kernel),
                                   SPECRT__LOAD(specrt__batch_learn_kernel),
                                   SPECRT__LOAD(specrt__ring_tell_kernel),
                                   SPECRT__LOAD(specrt__window_observe_kernel),
                                   SPECRT__LOAD(specrt__shortlist_pack_rows<uint4>),
                                   SPECRT__LOAD(specrt__shortlist_pack_rows<uint32_t>),
                                   SPECRT__LOAD(specrt__shortlist_pack_rows<uint16_t>),
                                   SPECRT__LOAD(specrt__shortlist_split_rows),
                                   SPECRT__LOAD(specrt__shared_count_kernel),
                                   SPECRT__LOAD(specrt__shared_choose_kernel),
                                   SPECRT__LOAD(specrt__shared_split_kernel),
                                   SPECRT__LOAD(specrt__batch_stats_kernel)};
    return specrt__load_each(kernels, sizeof kernels / sizeof kernels[0], err);
}

/* What comes once a sequence. */
static specrt_status specrt__load_prompts(specrt_error *err) {
    const void *const kernels[] = {
        SPECRT__LOAD(specrt__batch_begin_kernel),    SPECRT__LOAD(specrt__ring_begin_kernel),
        SPECRT__LOAD(specrt__window_begin_kernel),   SPECRT__LOAD(specrt__batch_advance_kernel),
        SPECRT__LOAD(specrt__ring_ask_kernel),       SPECRT__LOAD(specrt__ring_match_kernel),
        SPECRT__LOAD(specrt__window_prefill_kernel), SPECRT__LOAD(specrt__batch_ask_kernel),
        SPECRT__LOAD(specrt__batch_answer_kernel),   SPECRT__LOAD(specrt__batch_start_kernel),
        SPECRT__LOAD(specrt__window_start_kernel)};
    return specrt__load_each(kernels, sizeof kernels / sizeof kernels[0], err);
}

/* All that sessions launch, whatever their policies. */
static specrt_status specrt__load_all(specrt_error *err) {
    SPECRT__TRY(specrt__load_levels(err));
    SPECRT__TRY(specrt__load_cycles(err));
    return specrt__load_prompts(err);
}

#endif
