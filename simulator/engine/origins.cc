#include "simulator/engine/origins.h"

#include <algorithm>
#include <iterator>
#include <utility>

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

std::set<SnapshotId> Origins::Throughout(const std::vector<OriginId>& vector) const {
  if (vector.empty()) return {};
  std::vector<SnapshotId> all = In(vector.front());
  for (const OriginId set : std::set<OriginId>(vector.begin(), vector.end())) {
    std::vector<SnapshotId> both;
    std::set_intersection(all.begin(), all.end(), In(set).begin(), In(set).end(),
                          std::back_inserter(both));
    all = std::move(both);
  }
  return {all.begin(), all.end()};
}

}  // namespace crowdsurf::simulator
