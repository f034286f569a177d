#include "coordinator-free-dht/core/routing/lookup.h"

#include <algorithm>

namespace crowdsurf::dht {

Lookup::Lookup(const Key& target, const PeerId& self, const NodeConfig& config,
               const std::vector<Contact>& start)
    : target_(target),
      self_(self),
      k_(config.k),
      alpha_(config.alpha),
      queries_allowed_(static_cast<int>(config.queries_per_lookup)) {
  for (const Contact& contact : start) Add(contact, 1);
}

void Lookup::Add(const Contact& contact, int depth) {
  // Replies are not to be trusted: an id of none or an empty address could never be asked.
  if (contact.id == self_ || contact.id.none() || contact.endpoint.empty()) return;
  const Distance distance = DistanceBetween(target_, PointOf(contact.id));
  if (!candidates_.try_emplace(distance, Candidate{contact, State::kNew, depth}).second) return;
  // Keep four times what can be needed: failures among the nearest make room for the next.
  if (candidates_.size() <= 4 * k_) return;
  for (auto it = candidates_.rbegin(); it != candidates_.rend(); ++it) {
    // The farthest that nobody was asked for; dropping one in flight would lose count of it.
    if (it->second.state != State::kNew) continue;
    candidates_.erase(std::next(it).base());
    return;
  }
}

Lookup::Candidate* Lookup::Find(const PeerId& id) {
  const auto it = candidates_.find(DistanceBetween(target_, PointOf(id)));
  return it == candidates_.end() ? nullptr : &it->second;
}

std::optional<Contact> Lookup::Next() {
  // The bound on queries ends a search that liars feed with ever nearer peers that are not there.
  if (in_flight_ >= alpha_ || Exhausted()) return std::nullopt;
  size_t rank = 0;
  for (auto& [distance, candidate] : candidates_) {
    // A slow one is probably dead: its stand-in is asked now, not when that is certain.
    if (candidate.state == State::kFailed || candidate.state == State::kSlow) continue;
    if (rank++ >= k_) break;
    if (candidate.state != State::kNew) continue;
    candidate.state = State::kAsked;
    ++in_flight_;
    ++queries_;
    return candidate.contact;
  }
  return std::nullopt;
}

void Lookup::OnSuccess(const PeerId& id, const std::vector<Contact>& contacts) {
  Candidate* const candidate = Find(id);
  if (candidate == nullptr) return;
  if (candidate->state == State::kAsked) --in_flight_;
  candidate->state = State::kAnswered;
  const int depth = candidate->depth + 1;
  for (const Contact& contact : contacts) Add(contact, depth);
}

void Lookup::OnSlow(const PeerId& id) {
  Candidate* const candidate = Find(id);
  if (candidate == nullptr || candidate->state != State::kAsked) return;
  candidate->state = State::kSlow;
  --in_flight_;
}

void Lookup::OnFailure(const PeerId& id) {
  Candidate* const candidate = Find(id);
  // Its answer stays true even if something fails afterwards.
  if (candidate == nullptr || candidate->state == State::kAnswered) return;
  if (candidate->state == State::kAsked) --in_flight_;
  candidate->state = State::kFailed;
}

bool Lookup::Done() const {
  size_t answered = 0;
  for (const auto& [distance, candidate] : candidates_) {
    if (answered == k_) break;
    if (candidate.state == State::kFailed) continue;
    // With no query left nobody new is asked, and waiting for them would never end.
    if (candidate.state == State::kNew && Exhausted()) continue;
    if (candidate.state != State::kAnswered) return false;
    ++answered;
  }
  return true;
}

std::vector<Contact> Lookup::Nearest() const {
  std::vector<Contact> out;
  for (const auto& [distance, candidate] : candidates_) {
    if (out.size() == k_) break;
    if (candidate.state == State::kAnswered) out.push_back(candidate.contact);
  }
  return out;
}

int Lookup::hops() const {
  int deepest = 0;
  size_t answered = 0;
  for (const auto& [distance, candidate] : candidates_) {
    if (candidate.state != State::kAnswered || answered == k_) continue;
    ++answered;
    deepest = std::max(deepest, candidate.depth);
  }
  return deepest;
}

}  // namespace crowdsurf::dht
