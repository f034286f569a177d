// WaitingJoiners: newcomers that asked for a seat while there was no average to send them to.
//
// While an averaging writes over the last average there is nothing to fetch. They are told to wait,
// and their requests are looked at again as soon as there is an average. Owner: Membership; single
// sequence. Bounds: kMost, one request each, for as long as a newcomer waits for an answer. Source:
// docs/views.md, Join.
#pragma once

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "base/id.h"
#include "base/time.h"
#include "worker/core/port/seat_messages.h"

namespace crowdsurf::worker {

class WaitingJoiners {
 public:
  static constexpr size_t kMost = 4096;
  // A newcomer asks again, and perhaps somebody else, when it was told to wait for so long.
  static constexpr Duration kLife = Seconds(1);

  // False: there is no room. It asks again by itself.
  bool Add(Time now, const message::JoinRequest& request) {
    if (requests_.size() >= kMost && !requests_.contains(request.member.id)) return false;
    requests_[request.member.id] = {request, now};
    return true;
  }
  bool empty() const { return requests_.empty(); }
  // All that still wait.
  std::vector<message::JoinRequest> Take(Time now) {
    std::vector<message::JoinRequest> taken;
    for (auto& [peer, entry] : std::exchange(requests_, {}))
      if (now - entry.second < kLife) taken.push_back(std::move(entry.first));
    return taken;
  }

 private:
  std::map<PeerId, std::pair<message::JoinRequest, Time>> requests_;
};

}  // namespace crowdsurf::worker
