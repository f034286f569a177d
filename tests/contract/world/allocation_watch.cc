#include "tests/contract/world/allocation_watch.h"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace crowdsurf {
namespace {

size_t greatest = 0;
int watches = 0;

}  // namespace

AllocationWatch::AllocationWatch() { ++watches; }
AllocationWatch::~AllocationWatch() { --watches; }
size_t GreatestAllocation() { return greatest; }
void ForgetAllocations() { greatest = 0; }

namespace allocation_watch {
void Saw(size_t size) {
  if (watches > 0) greatest = std::max(greatest, size);
}
}  // namespace allocation_watch

}  // namespace crowdsurf

void* operator new(size_t size) {
  crowdsurf::allocation_watch::Saw(size);
  if (void* memory = std::malloc(size)) return memory;
  std::abort();
}
// The standard library sorts stably in a buffer of this one's. The sanitizers' own would pair it
// with the delete below, and call that a mismatch.
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  crowdsurf::allocation_watch::Saw(size);
  return std::malloc(size);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
