#include "simulator/chaos/turn_checkers.h"

#include <absl/strings/str_cat.h>

#include <algorithm>

namespace crowdsurf::simulator {

void TurnCheckers::OnGroupMean(int node, const RegionBuffer& mean, SnapshotId own) {
  ++means_;
  const bool inside = std::any_of(mean.origins.begin(), mean.origins.end(), [&](OriginId set) {
    const auto& snapshots = origins_.In(set);
    return std::find(snapshots.begin(), snapshots.end(), own) != snapshots.end();
  });
  if (!inside)
    violations_.Add("own", absl::StrCat("node ", node, " took a mean without its own values"));
}

void TurnCheckers::OnCounted(int node, double job_samples, double made, bool whole) {
  ++counts_;
  if (job_samples > made)
    violations_.Add("samples", absl::StrCat("node ", node, ": ", job_samples,
                                            " samples are counted, and ", made, " are made"));
  const auto [at, fresh] = made_.try_emplace(node, made, 0);
  if (fresh) return;
  auto& [last, before] = at->second;
  if (whole && job_samples < before)
    violations_.Add("samples", absl::StrCat("node ", node, ": ", job_samples,
                                            " samples are counted, and two counts before ", before,
                                            " were made"));
  before = std::exchange(last, made);
}

}  // namespace crowdsurf::simulator
