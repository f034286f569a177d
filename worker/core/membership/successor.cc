#include "worker/core/membership/successor.h"

#include <algorithm>

#include "base/check.h"

namespace crowdsurf::worker {
namespace {

constexpr uint32_t kSlots = 16;  // ballots a round of ballots has; witnesses are at most 15
constexpr uint32_t kMaxAttempts = 0xFFFF / kSlots - 1;
// A ballot that got no quorum in this time is opened again: two round trips over a continent.
constexpr Duration kPromisePatience = Milliseconds(300);
constexpr Duration kMaxBackoff = Seconds(3);
// For the promises beyond the quorum.
constexpr Duration kGrace = Milliseconds(50);

}  // namespace

bool OwnsBallot(const View& parent, const PeerId& from, Ballot ballot) {
  if (ballot == 0 || ballot > kMaxAttempts * kSlots + kSlots) return false;
  const size_t index = (ballot - 1U) % kSlots;
  return index < parent.witnesses.size() && parent.witnesses[index] == from;
}

message::ViewPromise SuccessorWitness::OnOpen(uint64_t epoch, const message::ViewOpen& open) {
  const WitnessAnswer answer =
      table_.OnOpen(RegisterId::SuccessorOf(open.parent),
                    {.epoch = epoch, .averaging = {}, .round = 0}, open.ballot);
  message::ViewPromise promise{.parent = open.parent,
                               .ballot = open.ballot,
                               .promised = answer.record.promised,
                               .accepted = answer.record.accepted,
                               .value = answer.record.value};
  // A number above the ballot says no, whatever the reason.
  if (answer.kind != WitnessAnswer::Kind::kYes)
    promise.promised = std::max<Ballot>(promise.promised, static_cast<Ballot>(open.ballot + 1));
  return promise;
}

message::ViewAccepted SuccessorWitness::OnAccept(uint64_t epoch,
                                                 const message::ViewAccept& accept) {
  const WitnessAnswer answer =
      table_.OnAccept(RegisterId::SuccessorOf(accept.parent),
                      {.epoch = epoch, .averaging = {}, .round = 0}, accept.ballot, accept.view);
  message::ViewAccepted accepted{
      .parent = accept.parent, .ballot = accept.ballot, .promised = answer.record.promised};
  if (answer.kind != WitnessAnswer::Kind::kYes)
    accepted.promised = std::max<Ballot>(accepted.promised, static_cast<Ballot>(accept.ballot + 1));
  else if (const auto view = DecodeView(accept.view))
    accepted_[accept.parent] = {HashOf(*view, job_), accept.ballot, epoch};
  return accepted;
}

// The parent's is kept, as in the table.
void SuccessorWitness::OnEpoch(uint64_t epoch) {
  table_.OnEpoch(epoch);
  std::erase_if(accepted_, [&](const auto& item) { return item.second.epoch + 1 < epoch; });
}

bool SuccessorWitness::Promised(const ViewHash& parent) const {
  return table_.Holds(RegisterId::SuccessorOf(parent));
}

std::optional<SuccessorWitness::AcceptedView> SuccessorWitness::Accepted(
    const ViewHash& parent) const {
  const auto at = accepted_.find(parent);
  if (at == accepted_.end()) return std::nullopt;
  return at->second;
}

SuccessorProposer::SuccessorProposer(const PeerId& self, const Seating& parent, View next,
                                     std::set<PeerId> live, Rng rng)
    : self_(self),
      epoch_(parent.view().epoch),
      parent_(parent.hash()),
      witnesses_(parent.view().witnesses),
      proposal_(std::move(next)),
      live_(std::move(live)),
      rng_(rng) {}

void SuccessorProposer::Start(Time now, Actions& out) { OpenBallot(now, out); }

void SuccessorProposer::OpenBallot(Time now, Actions& out) {
  const auto at = std::find(witnesses_.begin(), witnesses_.end(), self_);
  CHECK(at != witnesses_.end());
  attempt_ = std::min(attempt_, kMaxAttempts);
  ballot_ =
      static_cast<Ballot>(attempt_ * kSlots + static_cast<uint32_t>(at - witnesses_.begin()) + 1);
  ++attempt_;
  accepting_ = false;
  yes_.clear();
  best_ = 0;
  value_ = proposal_;
  grace_ = now + kGrace;
  grace_over_ = false;
  // Longer each time and by chance, so that rivals get out of step.
  Duration wait = std::min(kPromisePatience * static_cast<double>(attempt_), kMaxBackoff);
  deadline_ = now + wait * (1.0 + 0.5 * rng_.UniformDouble());
  Broadcast(now, message::ViewOpen{parent_, ballot_}, out);
}

void SuccessorProposer::Broadcast(Time now, const Message& message, Actions& out) {
  const Bytes body = EncodeMessage(message);
  bool own = false;
  for (const PeerId& witness : witnesses_) {
    if (witness == self_)
      own = true;
    else
      out.push_back(Send{witness, body});
  }
  if (!own || local == nullptr) return;
  if (const auto* open = std::get_if<message::ViewOpen>(&message)) {
    message::ViewPromise promise = local->OnOpen(epoch_, *open);
    promise.begun = local_begun;
    OnPromise(now, self_, promise, out);
  }
  if (const auto* accept = std::get_if<message::ViewAccept>(&message))
    OnAccepted(now, self_, local->OnAccept(epoch_, *accept), out);
}

// Somebody else proposes too: a higher ballot, after a moment of its own length.
void SuccessorProposer::Refuse(Time now, Ballot promised) {
  attempt_ = std::max(attempt_, promised / kSlots + 1);
  deadline_ = std::min(deadline_, now + Milliseconds(5) + Milliseconds(50) * rng_.UniformDouble());
}

void SuccessorProposer::OnPromise(Time now, const PeerId& from, const message::ViewPromise& promise,
                                  Actions& out) {
  if (decided_ || accepting_ || promise.parent != parent_ || promise.ballot != ballot_) return;
  if (promise.promised > ballot_) return Refuse(now, promise.promised);
  if (promise.accepted > best_) {
    auto view = DecodeView(promise.value);
    // A witness's garbage is no vote, nor is a view of another parent.
    if (!view || view->parent != parent_ || view->epoch != epoch_ + 1) return;
    best_ = promise.accepted;
    value_ = std::move(*view);
  }
  yes_.insert(from);
  begun_ = std::max(begun_, promise.begun);
  MaybeAccept(now, out);
}

void SuccessorProposer::MaybeAccept(Time now, Actions& out) {
  if (accepting_ || !IsQuorum(witnesses_, yes_)) return;
  const bool all = std::includes(yes_.begin(), yes_.end(), live_.begin(), live_.end());
  if (!all && now < grace_) return;
  accepting_ = true;
  yes_.clear();
  if (best_ == 0) {  // an averaging with bytes under way is finished in the parent
    value_.barrier = std::max(value_.barrier, begun_ + 1);
    value_.first_averaging = std::max(value_.first_averaging, value_.barrier);
  }
  Broadcast(now, message::ViewAccept{parent_, ballot_, Encode(value_)}, out);
}

void SuccessorProposer::OnAccepted(Time now, const PeerId& from,
                                   const message::ViewAccepted& accepted, Actions&) {
  if (decided_ || !accepting_ || accepted.parent != parent_ || accepted.ballot != ballot_) return;
  if (accepted.promised > ballot_) return Refuse(now, accepted.promised);
  yes_.insert(from);
  if (IsQuorum(witnesses_, yes_)) decided_ = value_;
}

void SuccessorProposer::OnTimer(Time now, Actions& out) {
  if (decided_) return;
  if (now >= deadline_) return OpenBallot(now, out);
  if (now < grace_) return;
  grace_over_ = true;
  MaybeAccept(now, out);
}

Time SuccessorProposer::NextDeadline() const {
  if (decided_) return Time::Infinite();
  return accepting_ || grace_over_ ? deadline_ : std::min(grace_, deadline_);
}

}  // namespace crowdsurf::worker
