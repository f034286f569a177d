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
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
