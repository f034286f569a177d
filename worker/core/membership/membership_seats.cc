// Whose word on seats and vacancies counts (membership.h, seat_rumors.h).
#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "worker/core/membership/membership.h"
#include "worker/core/port/peer_metrics.h"

namespace crowdsurf::worker {
namespace {

// For the steward to answer: three round trips over a continent.
constexpr Duration kStewardPatience = Milliseconds(500);
constexpr Duration kAskGap = Milliseconds(50);  // between two questions to it

const PeerId& PeerOf(const SeatRumors::Item& item) {
  const auto* seat = std::get_if<Seat>(&item);
  return seat != nullptr ? seat->member.id : std::get<Vacancy>(item).peer;
}

}  // namespace

// A vacancy ends a sitting that there was: one that nobody had yet would bar the peer from its next
// seats. News may come in any order; who knows the seat tells it once more.
void Membership::DropUngiven(const Seating& seating, const std::vector<Seat>& seats,
                             std::vector<Vacancy>& vacancies) {
  const size_t dropped = std::erase_if(vacancies, [&](const Vacancy& vacancy) {
    const auto given = [&](const Seat& seat) {
      return seat.member.id == vacancy.peer && seat.sitting >= vacancy.sitting;
    };
    return vacancy.sitting > 0 && std::none_of(seats.begin(), seats.end(), given) &&
           seating.SittingOf(vacancy.peer) < vacancy.sitting;
  });
  if (dropped > 0) metrics_.RefuseMessage(MessageRefusal::kVacancySitting);
}

// Into a view that is not entered yet. A newcomer knows too little to judge, and harms itself
// alone; what a member refuses here is told again once it is in the view.
void Membership::MergeGiven(Seating& seating, const PeerId& from, const std::vector<Seat>& seats,
                            std::vector<Vacancy> vacancies) {
  if (!IsNewcomer() && StewardOf(seating) != from) return;
  DropUngiven(seating, seats, vacancies);
  seating.Merge(seats, vacancies);
}

bool Membership::Believes(Time now, const SeatRumors::Item& item,
                          const SeatRumors::Rumor& rumor) const {
  const auto chief = steward();
  std::set<PeerId> members = rumor.tellers;
  members.erase(PeerOf(item));  // of itself it may speak, but as nobody's second
  if (members.size() >= 2 || (chief && rumor.tellers.contains(*chief))) return true;
  if (rumor.tellers.empty()) return false;
  const PeerId& teller = members.empty() ? PeerOf(item) : *members.begin();
  const auto* seat = std::get_if<Seat>(&item);
  if (seat == nullptr && down_.contains(PeerOf(item))) return true;  // it is gone, as known here
  size_t others = 0;
  for (const auto& [cell, member] : seating_->occupants())
    others += member.id != config_.id && member.id != teller && member.id != PeerOf(item) &&
              !down_.contains(member.id);
  if (others == 0) return true;  // nobody else can know
  if (!chief || *chief == config_.id || now - rumor.since < kStewardPatience) return false;
  const auto heard = heard_.find(*chief);
  return heard == heard_.end() || heard->second <= rumor.since;  // it does not answer
}

// True when the seating changed.
bool Membership::TakeSeats(Time now, const PeerId& from, std::vector<Seat> seats,
                           std::vector<Vacancy> vacancies, Actions& out) {
  DropUngiven(*seating_, seats, vacancies);
  bool held = false;
  const bool member = seating_->CellOf(from).has_value();
  const auto is_rumor = [&](const auto& item, const auto& known) {
    if (known.contains(item)) return true;  // no news
    // Of its own seat alone a peer that has none here may speak. The rest shows that the lists
    // differ, and makes nobody believe it.
    std::set<PeerId> tellers;
    if (member || PeerOf(item) == from) tellers.insert(from);
    if (Believes(now, item, {.tellers = tellers, .since = now})) return false;
    if (rumors_.Hold(now, tellers, item))
      held = true;
    else
      metrics_.RefuseMessage(MessageRefusal::kTooManySeatsTold);
    return true;
  };
  std::erase_if(seats, [&](const Seat& seat) { return is_rumor(seat, seating_->seats()); });
  std::erase_if(vacancies,
                [&](const Vacancy& gone) { return is_rumor(gone, seating_->vacancies()); });
  bool changed = seating_->Merge(seats, vacancies);
  if (held) {
    metrics_.RefuseMessage(MessageRefusal::kSeatOfAnother);  // for now
    changed |= JudgeRumors(now);
    AskSteward(now, out);
  }
  return changed;
}

// It answers in any case, with all seats that it knows.
void Membership::AskSteward(Time now, Actions& out) {
  const auto chief = steward();
  if (!chief || *chief == config_.id || now - asked_steward_ < kAskGap) return;
  asked_steward_ = now;
  SendAll({*chief}, message::ViewAsk{}, out);
}

// True when the seating changed.
bool Membership::JudgeRumors(Time now) {
  if (!seating_ || rumors_.empty()) return false;
  std::vector<Seat> seats;
  std::vector<Vacancy> vacancies;
  const auto believes = [&](const auto& item, const auto& rumor) {
    return Believes(now, item, rumor);
  };
  for (SeatRumors::Item& item : rumors_.Take(now, believes)) {
    if (auto* seat = std::get_if<Seat>(&item))
      seats.push_back(*seat);
    else
      vacancies.push_back(std::get<Vacancy>(item));
  }
  return seating_->Merge(seats, vacancies);
}

// What the steward cannot believe others go on saying: a new view has one list for all.
bool Membership::SeatsDiffer(Time now) const {
  return !rumors_.empty() && now - rumors_.oldest() >= kStewardPatience * 2 &&
         now - entered_at_ >= kStewardPatience * 6;
}

Time Membership::RumorDeadline() const {
  if (rumors_.empty()) return Time::Infinite();
  if (steward() == config_.id)
    return std::max(rumors_.oldest() + kStewardPatience * 2, entered_at_ + kStewardPatience * 6);
  return rumors_.oldest() + kStewardPatience;
}

// By its record it sits in a later view of this lineage, or in this view without a seat that is
// known here. The news are on their way, or got lost.
bool Membership::KnowsMore(const PeerId& peer) const {
  const RosterRecord* record = roster_.Find(peer);
  if (!seated() || record == nullptr || !record->seated || record->leaving) return false;
  if (record->lineage.origin != lineage().origin) return false;
  return record->epoch > seating_->view().epoch ||
         (record->view == seating_->hash() && !seating_->CellOf(peer));
}

// Members that are due tell each other which seats they know. Where nobody is due for a long time,
// records alone show that news got lost.
void Membership::OnRecord(Time now, const PeerId& peer) {
  if (!KnowsMore(peer)) return (void)ahead_.erase(peer);
  if (ahead_.empty()) ask_ahead_at_ = now + roster_.Ttl();
  ahead_.insert(peer);
}

// One at a time, after the news had as long as a record lives: a dead member's says nothing then.
void Membership::AskThoseAhead(Time now, Actions& out) {
  if (ahead_.empty() || now < ask_ahead_at_) return;
  std::erase_if(ahead_, [&](const PeerId& peer) { return !KnowsMore(peer); });
  if (ahead_.empty()) return;
  ask_ahead_at_ = now + roster_.Ttl();
  const auto drawn = static_cast<std::ptrdiff_t>(rng_.Uniform(ahead_.size()));
  SendAll({*std::next(ahead_.begin(), drawn)}, message::ViewAsk{}, out);
}

}  // namespace crowdsurf::worker
