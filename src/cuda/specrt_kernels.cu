/* specrt_kernels.cu : the decoding cycle on a GPU. Its calls are declared and documented in
 * specrt.h under >>cuda; a kernel stands in the file that is named as its CPU twin's.
 * Launches check their arguments, take a stream, and neither wait (but for prompts that retrieval reads)
 * nor allocate. Counts live on the device: a grid is sized for the bound and its blocks return early, so
 * that a cycle can be captured as a graph. Sums run in a fixed order and no float is added atomically:
 * results do not depend on scheduling.
 *
 * Compiles with nvcc, and with a C++11 compiler under SPECRT_HARNESS (tests/gpu/harness.h).
 *
 * Contents, each a file of src/cuda:
 *     device code      launch block | head active pool window cluster successor scan sketch tree verify, as
 *                      on the CPU | ring batch shared: retrieval's records, and what a session does with each
 *                      sequence
 *     host glue        device: what a policy shares | load: kernels, before a capture | side: the other
 *                      streams | order: of a batch's calls | session: what a batch allocates | cycle: its
 *                      calls
 *
 * Kernels:
 *     specrt__shortlist_pack_rows, _split_
 *                                    rows of the head to their places in packed segments
 *     specrt__head_tiles             logits, on tensor cores
 *     specrt__head_f32               logits of f32 rows
 *     specrt__shortlist_rank_kernel     the best k of rows of logits, and log-probabilities; the same goes
 *                                    before the next pass in specrt__tree_rank_kernel, before all levels
 *                                    of a block in specrt__tree_block_kernel, before the path in
 *                                    specrt__verify_rank_kernel
 *     specrt__window_begin_kernel, _prefill_, _start_, _observe_
 *                                    membership, the window, slots of packed rows and which to pack
 *     specrt__cluster_read_kernel, _weigh_, _total_
 *                                    probabilities of clusters; the layers are products of the head
 *     specrt__cluster_rank_kernel, _take_, _list_
 *                                    the clusters of a level, as rows
 *     specrt__successor_kernel       the tokens that follow those of a level
 *     specrt__scan_places            projected states in 8 bits times the sketch's codes, and how many
 *                                    groups of places have a best score of each magnitude
 *     specrt__sketch_name_all        the best of each state, and the tokens of a level
 *     specrt__tree_begin_kernel, _expand_, _finish_
 *                                    candidates, and of these nodes with masks and positions
 *     specrt__verify_best_kernel, _distribution_, _sum_, _pick_, _walk_
 *                                    what the target draws at every node, and the path
 *     specrt__verify_propose_kernel, _chain_
 *                                    sampled chains: a level's draw, and what of the draws is kept
 *     specrt__verify_remap_kernel    rows to target ids
 *     specrt__ring_tell_kernel       a cycle as a record for retrieval on the host, and what came of others
 *     specrt__ring_ask_kernel, _match_
 *                                    a part of a prompt to the host, and members as its cache has them
 *     specrt__shared_count_kernel, _choose_, _split_
 *                                    rows that several sequences hold, and what each holds besides
 *     specrt__batch_claim_kernel     which rows of a level no earlier source brought
 */
#if defined(__NVCC__)
#pragma nv_diag_suppress 1675 /* gcc's pragmas */
#pragma nv_diag_suppress 177  /* what of the implementation is not used */
#pragma nv_diag_suppress 128  /* what a template argument rules out */
#endif

/* The implementation too, for what kernels share with their twins and sessions with policies; all of it. */
#undef SPECRT_SMALL
#define SPECRT_STATIC
#define SPECRT_NO_ZSTD
#define SPECRT_IMPLEMENTATION
#include "specrt.h"

#if !defined(SPECRT__KERNEL)
#define SPECRT__KERNEL static __attribute__((unused)) /* some are for tests alone */
#endif

#include "cuda/all.inc"
