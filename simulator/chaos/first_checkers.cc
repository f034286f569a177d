#include "simulator/chaos/first_checkers.h"

#include <absl/strings/str_cat.h>

#include <bit>
#include <optional>

#include "base/bytes.h"
#include "base/digest.h"

namespace crowdsurf::simulator {
namespace {

Digest DigestOf(const std::vector<float>& values) {
  return Sha256({reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(float)});
}

}  // namespace

void FirstCheckers::OnOffered(int node, const std::vector<float>& values) {
  ++starts_.given;
  offered_.emplace(DigestOf(values), node);
  Keep(values);
}

void FirstCheckers::OnAverage(const std::vector<float>& values) {
  averages_.insert(DigestOf(values));
  Keep(values);
}

void FirstCheckers::Keep(const std::vector<float>& values) {
  if (seen_.size() < values.size()) seen_.resize(values.size());
  for (size_t at = 0; at < values.size(); ++at)
    seen_[at].insert(std::bit_cast<uint32_t>(values[at]));
}

bool FirstCheckers::IsMixed(const std::vector<float>& values) const {
  if (values.size() > seen_.size()) return false;
  for (size_t at = 0; at < values.size(); ++at)
    if (!seen_[at].contains(std::bit_cast<uint32_t>(values[at]))) return false;
  return true;
}

void FirstCheckers::OnStart(int node, const std::vector<float>& values) {
  const Start start{.values = DigestOf(values), .average = averages_.contains(DigestOf(values))};
  const auto known = start_of_.find(node);
  if (known != start_of_.end() && known->second.values == start.values) return;  // told twice
  start_of_[node] = start;
  if (start.average) return;
  const auto offered = offered_.find(start.values);
  if (offered != offered_.end()) {
    if (offered->second != node) ++starts_.taken;
    return;
  }
  if (IsMixed(values)) {
    start_of_[node].average = true;
    return;
  }
  ++starts_.own;
  if (mild_)
    violations_.Add("first", absl::StrCat("node ", node, " starts from parameters of its own"));
}

void FirstCheckers::OnMean(const std::set<SnapshotId>& inside) {
  std::optional<int> other;
  std::set<int> nodes;
  for (const SnapshotId snapshot : inside) nodes.insert(node_of_.at(snapshot));
  for (const int node : nodes) {
    if (!averaged_.insert(node).second) continue;
    const auto start = start_of_.find(node);
    if (start == start_of_.end() || start->second.average) continue;
    // Where donors failed for long it is on its own, which is counted.
    if (!offered_.contains(start->second.values)) continue;
    if (!other) {
      other = node;
      continue;
    }
    ++starts_.compared;
    if (start->second.values != start_of_.at(*other).values)
      violations_.Add("first", absl::StrCat("nodes ", *other, " and ", node,
                                            " average, and started from different parameters"));
  }
}

}  // namespace crowdsurf::simulator
