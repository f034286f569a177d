#include "tests/unit/dht_core/heap/heap_use.h"

#include <malloc.h>

#include <cstdlib>
#include <new>

namespace crowdsurf {
namespace {

size_t in_use = 0;

size_t BlockOf(void* memory) { return memory == nullptr ? 0 : ::malloc_usable_size(memory) + 8; }

}  // namespace

size_t HeapInUse() { return in_use; }

namespace heap_use {
void* Allocate(size_t size) {
  void* const memory = std::malloc(size);
  if (memory == nullptr) std::abort();
  in_use += BlockOf(memory);
  return memory;
}
void Free(void* memory) {
  in_use -= BlockOf(memory);
  std::free(memory);
}
}  // namespace heap_use

}  // namespace crowdsurf

void* operator new(size_t size) { return crowdsurf::heap_use::Allocate(size); }
void operator delete(void* memory) noexcept { crowdsurf::heap_use::Free(memory); }
void operator delete(void* memory, size_t) noexcept { crowdsurf::heap_use::Free(memory); }
