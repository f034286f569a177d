// HeapInUse: the bytes that this process holds on the heap through operator new.
//
// Replaces operator new of the program that links it. Used by the test of MemoryBytes: what a part
// says of its memory is compared with what the heap gave it. Single sequence.
#pragma once

#include <cstddef>

namespace crowdsurf {

// In bytes, with what the allocator adds to each block.
size_t HeapInUse();

}  // namespace crowdsurf
