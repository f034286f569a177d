#include "coordinator-free-dht/core/routing/requests.h"

#include <algorithm>

namespace crowdsurf::dht {
namespace {

bool IsPing(const Request& request) { return std::holds_alternative<Ping>(request.purpose); }

}  // namespace

std::optional<uint64_t> Requests::Add(Time now, const Contact& to, Purpose purpose,
                                      Duration slow_after, Duration fail_after) {
  // Dead peers hold a request for its whole time-out: without a bound a storm of deaths fills
  // memory.
  if (open_.size() >= config_.requests_in_flight) return std::nullopt;
  const uint64_t id = next_id_++;
  const Time due = now + slow_after;
  Open open{{to, purpose, now}, Stage::kWaiting, due, now + fail_after};
  if (IsPing(open.request)) ++pings_;
  open_.emplace(id, std::move(open));
  due_.emplace(due, id);
  return id;
}

std::map<uint64_t, Requests::Open>::iterator Requests::Erase(
    std::map<uint64_t, Open>::iterator it) {
  due_.erase({it->second.due, it->first});
  if (IsPing(it->second.request)) --pings_;
  return open_.erase(it);
}

void Requests::Reschedule(uint64_t id, Open& open, Time due) {
  due_.erase({open.due, id});
  open.due = due;
  due_.emplace(due, id);
}

std::optional<Request> Requests::Take(uint64_t id, const PeerId& from) {
  const auto it = open_.find(id);
  if (it == open_.end()) return std::nullopt;
  // A seed is known by address alone: whoever answers there is it. Anybody else must be the one
  // that was asked.
  if (!it->second.request.to.id.none() && it->second.request.to.id != from) return std::nullopt;
  Request request = std::move(it->second.request);
  // Erase needs the purpose to keep count of pings.
  if (IsPing(request)) --pings_;
  due_.erase({it->second.due, id});
  open_.erase(it);
  return request;
}

std::optional<Requests::Due> Requests::NextDue(Time now) {
  while (!due_.empty() && due_.begin()->first <= now) {
    const uint64_t id = due_.begin()->second;
    const auto it = open_.find(id);
    Open& open = it->second;
    if (open.stage == Stage::kWaiting) {
      open.stage = Stage::kSlow;
      // A timer that comes late may find both deadlines past; slow is still said before failed.
      Reschedule(id, open, std::max(open.fail_at, open.due));
      return Due{open.request, false};
    }
    if (open.stage == Stage::kSlow) {
      open.stage = Stage::kFailed;
      const Request request = open.request;
      // It stays a while, unreported: a late answer proves its peer alive and corrects its
      // estimate.
      open.request.failed = true;
      Reschedule(id, open, now + config_.late_replies);
      return Due{request, true};
    }
    Erase(it);
  }
  return std::nullopt;
}

std::vector<Request> Requests::TakeAllTo(const PeerId& peer) {
  std::vector<Request> out;
  for (auto it = open_.begin(); it != open_.end();) {
    if (it->second.request.to.id != peer) {
      ++it;
      continue;
    }
    // Each request ends once, and a failed one has been reported.
    if (!it->second.request.failed) out.push_back(it->second.request);
    it = Erase(it);
  }
  return out;
}

std::optional<Request> Requests::TakeSeed(const std::string& endpoint) {
  for (auto it = open_.begin(); it != open_.end(); ++it) {
    const Request& request = it->second.request;
    if (!request.to.id.none() || request.to.endpoint != endpoint) continue;
    // That one's end was told before; a newer probe of the same address may still be open.
    if (request.failed) continue;
    const Request taken = request;
    Erase(it);
    return taken;
  }
  return std::nullopt;
}

bool Requests::Pinging(const PeerId& peer) const {
  return pings_ > 0 && std::any_of(open_.begin(), open_.end(), [&](const auto& item) {
           return IsPing(item.second.request) && item.second.request.to.id == peer;
         });
}

}  // namespace crowdsurf::dht
