#include "operator/core/pods/order_watch.h"

#include <absl/strings/str_cat.h>

namespace crowdsurf::controller {

std::optional<std::string> OrderWatch::See(const std::string& worker, int index,
                                           const std::string& order) {
  if (order.empty() || warned_) return std::nullopt;
  if (said_.size() >= kMostWorkers && !said_.contains(worker)) return std::nullopt;
  said_[worker] = {index, order};
  for (const auto& [name, other] : said_) {
    if (name == worker || other.index == index || other.order != order) continue;
    warned_ = true;
    said_.clear();
    return absl::StrCat("trains on the same batches in the same order as ", name,
                        ": shuffle by random numbers without a fixed seed, shard the data by "
                        "worker, or take job.shard(loader)");
  }
  return std::nullopt;
}

void OrderWatch::Retain(const std::set<std::string>& workers) {
  std::erase_if(said_, [&](const auto& item) { return !workers.contains(item.first); });
}

}  // namespace crowdsurf::controller
