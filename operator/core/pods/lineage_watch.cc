#include "operator/core/pods/lineage_watch.h"

#include <algorithm>
#include <set>

namespace crowdsurf::controller {

void LineageWatch::See(WallTime now, const std::string& worker, const AgentSummary& summary) {
  if (said_.size() >= kMostWorkers && !said_.contains(worker)) return;
  Said said{now, summary.lineages};
  // Its own is among them, unless its roster is empty.
  if (summary.view && !summary.view->lineage.empty())
    said.lineages.push_back(summary.view->lineage);
  said_[worker] = std::move(said);
}

int LineageWatch::Look(WallTime now) {
  std::erase_if(said_, [&](const auto& item) { return now - item.second.at > fresh_; });
  std::set<std::string> lineages;
  for (const auto& [worker, said] : said_)
    lineages.insert(said.lineages.begin(), said.lineages.end());
  const int count = static_cast<int>(lineages.size());
  if (count < 2) {
    apart_since_.reset();
    return count;
  }
  if (!apart_since_) apart_since_ = now;
  return now - *apart_since_ >= kSettled ? count : 1;
}

}  // namespace crowdsurf::controller
