// Descriptors: how many this process may have, and what of them a port may use.
//
// Containers often get a soft limit of 1,024 and a hard one of some hundred thousand. Whoever can
// connect uses descriptors up, so each port has a part of what there is. Any thread.
#pragma once

#include <algorithm>
#include <cstddef>

namespace crowdsurf {

// Raises this process's soft limit to its hard one. At start, before ports are opened. Where the
// system refuses, the limit stays: what it is, is returned in any case.
size_t RaiseDescriptorLimit();
size_t DescriptorLimit();  // the soft one, now

// At most `wanted`, and at most one `part`th of `descriptors`; at least one.
constexpr size_t PartOf(size_t descriptors, size_t part, size_t wanted) {
  return std::max<size_t>(1, std::min(wanted, descriptors / part));
}

// Parts of the limit. An agent has three ports and the operator four. Peers come first: an agent's
// strangers together have less than a third.
inline constexpr size_t kHttpPart = 8;        // connections of one HTTP server
inline constexpr size_t kStrangersPart = 16;  // at a port of peers, before they are known

}  // namespace crowdsurf
