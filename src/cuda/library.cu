/* library.cu : the kernels of libspecrt_cuda, which has the objects of the runtime beside them. */
#if defined(__NVCC__)
#pragma nv_diag_suppress 1675 /* gcc's pragmas */
#pragma nv_diag_suppress 177  /* what of the implementation is not used */
#pragma nv_diag_suppress 128  /* what a template argument rules out */
#endif

#define SPECRT__KERNEL static __attribute__((unused)) /* some are for tests alone */
#include "cuda/all.inc"
