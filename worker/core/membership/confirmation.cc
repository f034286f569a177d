#include "worker/core/membership/confirmation.h"

#include "worker/core/port/messages.h"

#include <algorithm>
#include <utility>

namespace crowdsurf::worker {
namespace {

using Kind = message::ViewVote::Kind;

constexpr Duration kFirstPause = Milliseconds(20);
constexpr Duration kMaxPause = Milliseconds(640);

}  // namespace

Confirmation::Confirmation(Rule rule, const ViewHash& held, const ViewHash& named,
                           std::vector<PeerId> voters, const PeerId& steward)
    : rule_(rule), held_(held), named_(named), voters_(std::move(voters)), steward_(steward) {}

bool Confirmation::IsVoter(const PeerId& peer) const {
  return std::find(voters_.begin(), voters_.end(), peer) != voters_.end();
}

void Confirmation::OnVote(const PeerId& from, const message::ViewVote& vote) {
  if (vote.named != named_) return;
  if (!IsVoter(from)) return;
  const auto at = votes_.try_emplace(from, vote).first;
  // A word only grows: "decided" stays, and "unknown" takes nothing back.
  if (at->second.kind != Kind::kDecided && vote.kind != Kind::kUnknown) at->second = vote;
}

bool Confirmation::Names(const PeerId& voter) const {
  const auto at = votes_.find(voter);
  if (at == votes_.end()) return false;
  return at->second.kind >= (rule_ == Rule::kNewcomer ? Kind::kHeld : Kind::kDecided);
}

bool Confirmation::Counts(const PeerId& voter, const Company& company) const {
  return rule_ == Rule::kQuorum || !company.counts || company.counts(voter);
}

void Confirmation::OnTimer(Time now, const PeerId& self, const Company& company, Actions& out) {
  if (asks_ >= kMaxAsks || (!deadline_.unset() && now < deadline_)) return;
  deadline_ = now + std::min(kFirstPause * static_cast<double>(1U << asks_), kMaxPause);
  ++asks_;
  const Bytes body = EncodeMessage(message::ViewVoteAsk{held_, named_});
  const size_t most = rule_ == Rule::kQuorum ? voters_.size() : kAskedAtOnce;
  size_t asked = 0;
  for (size_t i = 0; i < voters_.size() && asked < most; ++i, ++next_) {
    const PeerId& voter = voters_[next_ % voters_.size()];
    const auto vote = votes_.find(voter);
    const bool sure = vote != votes_.end() && vote->second.kind == Kind::kDecided;
    if (voter == self || sure || company.down.contains(voter) || !Counts(voter, company)) continue;
    out.push_back(Send{voter, body});
    ++asked;
  }
}

std::set<PeerId> Confirmation::Live(const Company& company) const {
  std::set<PeerId> live;
  for (const PeerId& voter : voters_)
    if (!company.down.contains(voter) && Counts(voter, company)) live.insert(voter);
  return live;
}

std::map<Ballot, std::set<PeerId>> Confirmation::Supporters() const {
  std::set<PeerId> decided;
  std::map<Ballot, std::set<PeerId>> supporters;
  for (const auto& [voter, vote] : votes_) {
    if (vote.kind == Kind::kDecided) decided.insert(voter);
    if (vote.kind == Kind::kAccepted) supporters[vote.ballot].insert(voter);
  }
  // Those that say "decided" count even where nobody names a ballot.
  supporters[0];
  for (auto& [ballot, peers] : supporters) peers.insert(decided.begin(), decided.end());
  return supporters;
}

bool Confirmation::Confirmed(const Company& company) const {
  if (rule_ != Rule::kQuorum) {
    const auto named =
        static_cast<size_t>(std::count_if(voters_.begin(), voters_.end(), [&](const PeerId& voter) {
          return Names(voter) && Counts(voter, company);
        }));
    return named >= company.least || (named == 1 && Names(steward_) && Counts(steward_, company));
  }
  const auto supporters = Supporters();
  return std::any_of(supporters.begin(), supporters.end(),
                     [&](const auto& entry) { return IsQuorum(voters_, entry.second); });
}

// Not enough that a quorum answers: those that knew it and died would then refute it.
Confirmation::Verdict Confirmation::Judge(Time now, const Company& company) const {
  if (Confirmed(company)) return Verdict::kConfirmed;
  std::set<PeerId> reachable = Live(company);
  std::set<PeerId> unknowing;
  for (const auto& [voter, vote] : votes_) {
    if (!Counts(voter, company)) continue;
    reachable.insert(voter);
    if (vote.kind == Kind::kUnknown) unknowing.insert(voter);
  }
  const bool enough = rule_ == Rule::kQuorum ? IsQuorum(voters_, reachable) : !reachable.empty();
  if (!enough) return Verdict::kSilent;
  if (asks_ < kMaxAsks || now < deadline_) return Verdict::kOpen;
  const bool refuted = rule_ != Rule::kQuorum || IsQuorum(voters_, unknowing);
  return refuted ? Verdict::kRefuted : Verdict::kSilent;
}

}  // namespace crowdsurf::worker
