/* memory.h : what the stand-in for CUDA's runtime tells memory.cc. */
#ifndef PTX_MEMORY_H
#define PTX_MEMORY_H

#include <stddef.h>

namespace ptx {

void allocate(void *p, size_t bytes, bool mapped);
/* @return false where p was not allocated. */
bool release(void *p);
void host_writes(void *p, size_t bytes);

} // namespace ptx

#endif
