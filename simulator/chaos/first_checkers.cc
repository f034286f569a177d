#include "simulator/chaos/first_checkers.h"

#include <absl/strings/str_cat.h>

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
}

void FirstCheckers::OnAverage(const std::vector<float>& values) {
  averages_.insert(DigestOf(values));
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
