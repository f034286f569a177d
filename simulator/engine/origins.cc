#include "simulator/engine/origins.h"

#include <algorithm>

namespace crowdsurf::simulator {

OriginId Origins::Intern(const std::vector<SnapshotId>& set) {
  const auto [at, fresh] = ids_.try_emplace(set, static_cast<OriginId>(sets_.size()));
  if (fresh) sets_.push_back(set);
  return at->second;
}

Origins::Union Origins::Unite(const std::vector<OriginId>& parts) {
  std::vector<SnapshotId> all;
  for (const OriginId part : parts) all.insert(all.end(), sets_[part].begin(), sets_[part].end());
  std::sort(all.begin(), all.end());
  const auto end = std::unique(all.begin(), all.end());
  // Parts that share a snapshot have counted it twice.
  const bool twice = end != all.end();
  all.erase(end, all.end());
  return {Intern(all), twice};
}

}  // namespace crowdsurf::simulator
