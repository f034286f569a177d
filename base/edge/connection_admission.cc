#include "base/edge/connection_admission.h"

#include "base/check.h"

namespace crowdsurf {
namespace {

using Phase = ConnectionAdmission::Phase;

bool IsStranger(Phase phase) { return phase < Phase::kIdle; }

}  // namespace

size_t ConnectionAdmission::Source::displaceable() const {
  return strangers() + phases[2].size() + phases[3].size();
}

std::optional<ConnectionAdmission::Id> ConnectionAdmission::Source::First(Phase end) const {
  for (size_t phase = 0; phase < static_cast<size_t>(end); ++phase) {
    if (!phases[phase].empty()) return phases[phase].front();
  }
  return std::nullopt;
}

template <class Count>
const ConnectionAdmission::Source* ConnectionAdmission::Most(Count count) const {
  const Source* most = nullptr;
  Phase first{};
  Time since;
  for (const auto& [address, source] : sources_) {
    if (count(source) == 0) continue;
    const Place& place = places_.at(*source.First(Phase::kHeld));
    const bool before = most == nullptr || count(source) > count(*most) ||
                        (count(source) == count(*most) &&
                         (place.phase < first || (place.phase == first && place.since < since)));
    if (!before) continue;
    most = &source;
    first = place.phase;
    since = place.since;
  }
  return most;
}

ConnectionAdmission::Room ConnectionAdmission::Displace(Time now, Bound bound, const Source* source,
                                                        const Source* own) const {
  if (source == nullptr) return {bound, std::nullopt};
  const Id victim = *source->First(Phase::kHeld);
  const Place& place = places_.at(victim);
  const size_t mine = own == nullptr ? 0 : own->strangers();
  // Who floods makes room at once, and so do those that say nothing. The others were here before.
  const bool waits = place.phase == Phase::kUnfinished && source->strangers() <= mine + 1 &&
                     now - place.since < limits_.patience;
  if (!waits) return {bound, victim};
  const Source* silent = Most([](const Source& one) { return one.phases[0].size(); });
  if (silent == nullptr) return {bound, std::nullopt};
  return {bound, silent->phases[0].front()};
}

ConnectionAdmission::Room ConnectionAdmission::MakeRoom(Time now,
                                                        const std::string& address) const {
  const auto it = sources_.find(address);
  const Source* own = it == sources_.end() ? nullptr : &it->second;
  const auto strangers = [](const Source& source) { return source.strangers(); };
  const auto displaceable = [](const Source& source) { return source.displaceable(); };
  if (own != nullptr && own->strangers() >= limits_.strangers_of_address) {
    return Displace(now, Bound::kAddress, own, own);
  }
  if (strangers_ >= limits_.strangers) {
    return Displace(now, Bound::kStrangers, Most(strangers), own);
  }
  if (places_.size() < limits_.connections) return {};
  // An address that holds more than strangers of it might gives one up, in whatever phase.
  const Source* most = Most(displaceable);
  if (most != nullptr && most->displaceable() <= limits_.strangers_of_address && strangers_ > 0) {
    most = Most(strangers);
  }
  return Displace(now, Bound::kConnections, most, own);
}

void ConnectionAdmission::Add(Time now, Id id, const std::string& address) {
  CHECK(!places_.contains(id));
  const auto source = sources_.try_emplace(address).first;
  std::list<Id>& list = source->second.phases[0];
  places_.emplace(id, Place{Phase::kSilent, source, list.insert(list.end(), id), now});
  ++strangers_;
}

void ConnectionAdmission::Enter(Id id, Phase phase) {
  const auto it = places_.find(id);
  if (it == places_.end()) return;
  Place& place = it->second;
  std::list<Id>& from = place.source->second.phases[static_cast<size_t>(place.phase)];
  std::list<Id>& to = place.source->second.phases[static_cast<size_t>(phase)];
  to.splice(to.end(), from, place.at);  // also within one list: it is the youngest of its phase
  if (IsStranger(place.phase)) --strangers_;
  if (IsStranger(phase)) ++strangers_;
  place.phase = phase;
}

std::optional<ConnectionAdmission::Id> ConnectionAdmission::Own(Id id, const std::string& owner) {
  const auto it = places_.find(id);
  if (it == places_.end() || !it->second.owner.empty() || owner.empty()) return std::nullopt;
  Enter(id, Phase::kHeld);
  it->second.owner = owner;
  std::list<Id>& ids = owners_[owner];
  ids.push_back(id);
  if (ids.size() <= limits_.of_owner) return std::nullopt;
  return ids.front();
}

void ConnectionAdmission::Leave(Id id) {
  const auto it = places_.find(id);
  if (it == places_.end()) return;
  Remove(it->second);
  if (const auto owner = owners_.find(it->second.owner); owner != owners_.end()) {
    owner->second.remove(id);
    if (owner->second.empty()) owners_.erase(owner);
  }
  places_.erase(it);
}

void ConnectionAdmission::Remove(const Place& place) {
  Source& source = place.source->second;
  source.phases[static_cast<size_t>(place.phase)].erase(place.at);
  if (IsStranger(place.phase)) --strangers_;
  for (const std::list<Id>& list : source.phases) {
    if (!list.empty()) return;
  }
  sources_.erase(place.source);
}

std::optional<ConnectionAdmission::Id> ConnectionAdmission::Victim() const {
  const auto strangers = [](const Source& source) { return source.strangers(); };
  const auto displaceable = [](const Source& source) { return source.displaceable(); };
  const Source* source = strangers_ > 0 ? Most(strangers) : Most(displaceable);
  if (source == nullptr) return std::nullopt;
  return source->First(Phase::kHeld);
}

std::vector<ConnectionAdmission::Id> ConnectionAdmission::Overdue(Phase phase, Time since) const {
  std::vector<Id> overdue;
  for (const auto& [id, place] : places_) {
    if (place.phase == phase && place.since < since) overdue.push_back(id);
  }
  return overdue;
}

}  // namespace crowdsurf
