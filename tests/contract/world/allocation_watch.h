// Allocation watch: the greatest single allocation of this process while it is switched on.
//
// Replaces operator new of the program that links it. One thread switches; allocations of others
// are not told apart. Used by the strategies' contract test: a copy of the vector would show.
#pragma once

#include <cstddef>

namespace crowdsurf {

void WatchAllocations();
void IgnoreAllocations();
size_t GreatestAllocation();  // since the last ForgetAllocations, in bytes
void ForgetAllocations();

}  // namespace crowdsurf
