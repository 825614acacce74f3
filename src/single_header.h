#include "specrt.h"
#include "specrt_block.h"
#include "specrt_tools.h"
#include "specrt_adapt.h"
#include "specrt_cuda.h"

/* =================================================================================================
 * Stop here if you only want the API.
 * ============================================================================================== */
#if defined(SPECRT_IMPLEMENTATION) && !defined(SPECRT_IMPLEMENTED)
#define SPECRT_IMPLEMENTED

#if defined(SPECRT_SMALL) && defined(SPECRT_TOOLS)
#error "specrt.h: SPECRT_SMALL leaves out what SPECRT_TOOLS needs; define one of them"
#endif

#if !defined(SPECRT__INTERNAL) && defined(SPECRT_SMALL) && defined(__GNUC__)
#define SPECRT__INTERNAL                                                                           \
    static __attribute__((unused)) /* some have callers in other sources only */
#elif !defined(SPECRT__INTERNAL)
#define SPECRT__INTERNAL static
#endif

#include "core/base.c"
#include "core/os.c"
#include "core/bundle.c"
#include "core/rows.c"
#include "core/simd_scalar.c"
#include "core/simd_x86.c"
#include "core/simd_arm64.c"
#include "core/simd_wasm.c"
#include "core/simd.c"
#include "core/blocks.c"
#include "core/head_products.c"
#include "core/head.c"
#include "core/shortlist.c"
#include "core/pool.c"
#include "sources/ranks.c"
#include "sources/window.c"
#if !defined(SPECRT_SMALL)
#include "sources/hnsw.c"
#include "sources/cograph.c"
#include "sources/cluster_section.c"
#include "sources/cluster.c"
#include "sources/successor.c"
#include "sources/scan_x86.c"
#include "sources/scan_arm64.c"
#include "sources/scan.c"
#include "sources/sketch_section.c"
#include "sources/sketch.c"
#include "sources/sketch_search.c"
#include "sources/arc.c"
#include "sources/retrieve.c"
#endif
#include "adapt/auto.c"
#include "decode/policy_text.c"
#include "decode/policy.c"
#include "decode/tree.c"
#include "decode/verify.c"
#include "decode/stock.c"
#include "decode/session_make.c"
#include "decode/session_order.c"
#include "decode/session.c"
#include "decode/block.c"
#include "decode/session_batch.c"
#include "decode/snapshot.c"
#include "decode/host.c"
#if defined(SPECRT_TOOLS)
#include "adapt/align.c"
#include "adapt/costs.c"
#include "adapt/costs_file.c"
#include "adapt/measure.c"
#include "adapt/meter.c"
#include "adapt/clock.c"
#include "adapt/advise.c"
#include "trace/trace.c"
#include "trace/writer.c"
#include "trace/reader.c"
#endif

#endif /* SPECRT_IMPLEMENTATION */
