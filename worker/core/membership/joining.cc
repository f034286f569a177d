#include "worker/core/membership/joining.h"

#include "worker/core/membership/lineages.h"
#include "worker/core/membership/roster.h"
#include "worker/core/port/config.h"

#include <algorithm>
#include <tuple>

namespace crowdsurf::worker {
namespace {

constexpr Duration kAskPatience = Milliseconds(300);   // for an answer of a seated peer
constexpr Duration kFreshPatience = Milliseconds(60);  // for the one that is about to form
constexpr Duration kNewsPatience = Seconds(1);         // for the view after "wait"
constexpr Duration kRefusedPause = Seconds(5);
// Whom others name as the steward is asked at once so many times. Two changes of steward that not
// everybody knows of take three; more is two peers that name each other.
constexpr uint32_t kMaxHops = 3;
// A better fresh peer that does not form in this many form delays is as good as dead.
constexpr double kFormPatience = 8;

}  // namespace

std::optional<PeerId> Joining::BestSeated() const {
  const LineageCount lineages = CountLineages(roster_.live(), [](const PeerId&) { return false; });
  const RosterRecord* best = nullptr;
  for (const auto& [peer, record] : roster_.live()) {
    if (!record.seated || record.leaving || silent_.contains(peer)) continue;
    const bool same = best != nullptr && record.lineage.origin == best->lineage.origin;
    const bool better =
        best == nullptr ||
        (!same && lineages.Of(record.lineage.origin).Beats(lineages.Of(best->lineage.origin)));
    const bool older = same && std::tie(record.member.joined_unix_ms, peer) <
                                   std::tie(best->member.joined_unix_ms, best->member.id);
    if (better || older) best = &record;
  }
  if (best == nullptr) return std::nullopt;
  return best->member.id;
}

std::vector<PeerId> Joining::Better(AveragingId holds) const {
  std::vector<std::tuple<uint64_t, int64_t, PeerId>> better;  // most holds first
  const auto rank = [](AveragingId held, int64_t joined, const PeerId& id) {
    return std::tuple(~held.value(), joined, id);
  };
  const auto own = rank(holds, config_.started_unix_ms, config_.id);
  for (const auto& [peer, record] : roster_.live()) {
    if (!record.ready || record.leaving || record.seated) continue;
    const auto theirs = rank(record.holds, record.member.joined_unix_ms, peer);
    if (theirs < own) better.push_back(theirs);
  }
  std::sort(better.begin(), better.end());
  std::vector<PeerId> peers;
  peers.reserve(better.size());
  for (const auto& entry : better) peers.push_back(std::get<2>(entry));
  return peers;
}

Joining::Step Joining::Ask(Time now, const PeerId& peer, Duration patience) {
  // Patience varies by a fifth, so that newcomers do not ask in step.
  quiet_until_ = now + patience * (1.0 + 0.2 * rng_.UniformDouble());
  wake_ = quiet_until_;
  // Until it answers.
  silent_.insert(peer);
  return {.ask = peer, .form = false};
}

Joining::Step Joining::Next(Time now, AveragingId holds) {
  wake_ = Time::Infinite();
  if (roster_.answered(now) && answered_at_.unset()) answered_at_ = now;
  wake_ = quiet_until_;
  if (now < quiet_until_) return {};
  if (!quiet_until_.unset()) hops_ = 0;
  if (steward_ && !silent_.contains(*steward_)) return Ask(now, *steward_, kAskPatience);
  steward_.reset();
  auto seated = BestSeated();
  if (!seated && !silent_.empty()) {  // everybody was asked once: begin again
    silent_.clear();
    seated = BestSeated();
  }
  if (seated) return Ask(now, *seated, kAskPatience);
  // A seated peer shows that there is a job. Records of other newcomers show nothing.
  if (answered_at_.unset()) {
    wake_ = roster_.AnsweredBy();
    return {};
  }
  const auto better = Better(holds);
  const double patience = better.empty() ? 1 : kFormPatience * static_cast<double>(better.size());
  wake_ = answered_at_ + config_.form_delay * patience;
  if (now >= wake_) return {.ask = std::nullopt, .form = true};
  if (better.empty()) return {};
  return Ask(now, better.front(), kFreshPatience);
}

void Joining::OnAnswer(Time now, const PeerId& from, const message::JoinAnswer& answer) {
  silent_.erase(from);
  refusal_.clear();
  switch (answer.kind) {
    case message::JoinAnswer::Kind::kAskSteward:
      if (answer.contacts.empty()) return;
      steward_ = answer.contacts.front().id;
      silent_.erase(*steward_);
      // While a view is entered, the old steward and the new one may name each other for as long as
      // a round takes: asking in circles would be as fast as the network.
      if (hops_ < kMaxHops) {
        ++hops_;
        quiet_until_ = Time();
      }
      return;
    case message::JoinAnswer::Kind::kWait:
      steward_ = from;
      quiet_until_ = now + kNewsPatience;
      return;
    case message::JoinAnswer::Kind::kNoView:
      if (steward_ == from) steward_.reset();  // it has lost its seat since it was named
      quiet_until_ = now + kFreshPatience;
      return;
    case message::JoinAnswer::Kind::kFetchFirst:
      steward_ = from;
      quiet_until_ = Time();
      return;
    case message::JoinAnswer::Kind::kRefused:
      refusal_ = answer.reason;
      quiet_until_ = now + kRefusedPause;
      return;
  }
}

void Joining::OnPeerDown(const PeerId& peer) {
  if (steward_ == peer) steward_.reset();
  if (silent_.contains(peer)) quiet_until_ = Time();
}

}  // namespace crowdsurf::worker
