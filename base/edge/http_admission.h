// HttpAdmission: which connection of a full server makes room for a new one.
//
// The oldest that has not sent a whole request, else the longest idle, else the one that has been
// reading its reply for longest; a request that is being handled stays. Pure; one thread; O(1) a
// call. Bound: the caller's, who adds at most as many as may be open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <unordered_map>

namespace crowdsurf {

enum class HttpPhase { kUnfinished, kIdle, kReplying, kHandled };  // in the order of who goes first

class HttpAdmission {
 public:
  using Id = uint64_t;

  // The connection is in `phase` from now on; a new id is a new connection.
  void Enter(Id id, HttpPhase phase) {
    Leave(id);
    std::list<Id>& list = phases_[static_cast<size_t>(phase)];
    places_[id] = {phase, list.insert(list.end(), id)};
  }
  void Leave(Id id) {
    const auto it = places_.find(id);
    if (it == places_.end()) return;
    phases_[static_cast<size_t>(it->second.phase)].erase(it->second.at);
    places_.erase(it);
  }
  size_t size() const { return places_.size(); }
  // Nullopt when all are being handled.
  std::optional<Id> Victim() const {
    for (const HttpPhase phase : {HttpPhase::kUnfinished, HttpPhase::kIdle, HttpPhase::kReplying}) {
      const std::list<Id>& list = phases_[static_cast<size_t>(phase)];
      if (!list.empty()) return list.front();
    }
    return std::nullopt;
  }

 private:
  struct Place {
    HttpPhase phase;
    std::list<Id>::iterator at;
  };
  std::list<Id> phases_[4];  // oldest first
  std::unordered_map<Id, Place> places_;
};

}  // namespace crowdsurf
