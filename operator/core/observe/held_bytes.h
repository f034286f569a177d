// HeldBytes: about how much memory a projection takes, to bound what waits of it.
//
// Counts structures and their texts, not what an allocator adds: within a factor of two. Pure, any
// thread. O(its parts).
#pragma once

#include <cstddef>

#include "operator/core/observe/object_cache.h"
#include "operator/core/observe/observe.h"

namespace crowdsurf::controller {

size_t HeldBytes(const nlohmann::json& value);
size_t HeldBytes(const PodEntry& pod);
size_t HeldBytes(const NodeEntry& node);
size_t HeldBytes(const JobEntry& job);

template <class T>
size_t HeldBytes(const Sighting<T>& seen) {
  return sizeof seen + seen.key.size() + (seen.value ? HeldBytes(*seen.value) : 0);
}

template <class T>
size_t HeldBytes(const Listing<T>& list) {
  size_t bytes = sizeof list;
  for (const Sighting<T>& seen : list.objects) bytes += HeldBytes(seen);
  return bytes;
}

}  // namespace crowdsurf::controller
