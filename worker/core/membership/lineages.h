// LineageCount: how many members live in each lineage, as one peer sees them.
//
// Of two lineages the one in which more members live wins, then the smaller origin. The size of a
// view at its making says nothing of who is left: a laggard would draw those who live away. A
// value; built when it is asked for, O(records). Source: docs/views.md, Merging.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>

#include "base/id.h"
#include "worker/core/port/contact.h"

namespace crowdsurf::worker {

struct RosterRecord;

class LineageCount {
 public:
  void Add(const ViewHash& origin) { ++live_[origin]; }
  // members 0: nobody is seen in it.
  LineageRank Of(const ViewHash& origin) const;
  // The best of those that beat `own`, its own lineage left out; nullopt: none does.
  std::optional<LineageRank> Better(const LineageRank& own) const;

 private:
  std::map<ViewHash, uint64_t> live_;
};

// Of the peers with a live record that sit somewhere and do not leave. `sits_here`: it has a seat
// in this peer's view, and its record is older than that seat.
LineageCount CountLineages(const std::map<PeerId, RosterRecord>& records,
                           const std::function<bool(const PeerId&)>& sits_here);

}  // namespace crowdsurf::worker
