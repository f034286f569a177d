// AllocationWatch: the greatest single allocation of this process while one of them lives.
//
// Replaces operator new of the program that links it. The worlds of the contract put one around
// each call of a core, a kernel or a reducer: a copy of the vector would show. One thread;
// allocations of others are not told apart.
#pragma once

#include <cstddef>

namespace crowdsurf {

class AllocationWatch {
 public:
  AllocationWatch();
  ~AllocationWatch();
  AllocationWatch(const AllocationWatch&) = delete;
  AllocationWatch& operator=(const AllocationWatch&) = delete;
};

size_t GreatestAllocation();  // since the last ForgetAllocations, in bytes
void ForgetAllocations();

}  // namespace crowdsurf
