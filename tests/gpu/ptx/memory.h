/* memory.h : what the stand-in for CUDA's runtime tells memory.cc. */
#ifndef PTX_MEMORY_H
#define PTX_MEMORY_H

#include <stddef.h>
#include <stdint.h>
#include <vector>

namespace ptx {

void allocate(void *p, size_t bytes, bool mapped);
/* @return false where p was not allocated. */
bool release(void *p);
/* What runs from now on comes after these operations of each lane, and is the last of its own lane. */
void begin_operation(size_t lane, const std::vector<uint32_t> &past);
void host_writes(void *p, size_t bytes);

} // namespace ptx

#endif
