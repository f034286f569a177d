// GrantBudget: how many certificates one pod may have.
//
// Each is a name among the peers of its job, and a token is good for an hour: without a bound one
// pod could be any number of peers. An agent keeps its key and certificate while its pod lives, and
// asks once at the start and once a day. Of each replica of the operator. Single sequence. Bound:
// kMaxPods; those forgotten first have their whole budget anyhow.
#pragma once

#include <map>
#include <string>

#include "base/token_bucket.h"

namespace crowdsurf::controller {

class GrantBudget {
 public:
  // An answer that is lost costs one, and an agent whose folder is lost asks again.
  static constexpr double kBurst = 16, kASecond = 1.0 / 900;
  static constexpr size_t kMaxPods = 65'536;  // 8 MiB

  bool Take(const std::string& pod_uid, Time now) {
    if (pods_.size() >= kMaxPods && !pods_.contains(pod_uid)) {
      std::erase_if(pods_, [&](const auto& one) { return one.second.full(now); });
      if (pods_.size() >= kMaxPods) pods_.erase(pods_.begin());
    }
    return pods_.try_emplace(pod_uid, kBurst, kASecond).first->second.Take(now);
  }

 private:
  std::map<std::string, TokenBucket> pods_;
};

}  // namespace crowdsurf::controller
