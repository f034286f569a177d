// Successor: how a view gets its next one: Paxos on the register "successor of this view".
//
// The steward proposes, the view's witnesses accept at most one value, however many propose.
// Owner: Membership, single sequence. Proposer: one attempt at a time, ballot k * 16 + witness
// index + 1, so only witnesses propose and ballots are unique. Witness: WitnessTable under
// RegisterId::SuccessorOf. Source: docs/views.md; Paxos (Lamport 2001). Differs: no
// learners, the proposer tells everybody.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "base/time.h"
#include "worker/core/port/actions.h"
#include "worker/core/port/messages.h"
#include "worker/core/view/averaging_id.h"
#include "worker/core/view/view.h"
#include "worker/core/view/witness.h"

namespace crowdsurf::worker {

// `ballot` is one that `from` may open as a witness of `parent`: nobody takes another's, or a
// number so high that none is left above it.
bool OwnsBallot(const View& parent, const PeerId& from, Ballot ballot);

// The witness's answers, for any parent this peer is a witness of.
class SuccessorWitness {
 public:
  struct AcceptedView {
    ViewHash view;
    Ballot ballot = 0;
    uint64_t epoch = 0;  // of the parent
  };

  explicit SuccessorWitness(std::string job) : job_(std::move(job)) {}
  message::ViewPromise OnOpen(uint64_t epoch, const message::ViewOpen& open);
  message::ViewAccepted OnAccept(uint64_t epoch, const message::ViewAccept& accept);
  void OnEpoch(uint64_t epoch);
  // It promised a ballot on the successor of `parent`: some steward proposes one, or did and died.
  bool Promised(const ViewHash& parent) const;
  // What it accepted last as the successor of `parent`.
  std::optional<AcceptedView> Accepted(const ViewHash& parent) const;

 private:
  std::string job_;
  std::map<ViewHash, AcceptedView> accepted_;  // of parents whose registers are kept
  WitnessTable table_{256};  // registers of two epochs of one lineage, a few lineages at most
};

class SuccessorProposer {
 public:
  // Proposes `next` as successor of `parent`'s view. Pre: self is one of its witnesses.
  // `live`: the witnesses believed alive; their promises are waited for a moment beyond the quorum,
  // because they say which averagings are under way.
  SuccessorProposer(const PeerId& self, const Seating& parent, View next, std::set<PeerId> live,
                    Rng rng);

  void Start(Time now, Actions& out);
  void OnPromise(Time now, const PeerId& from, const message::ViewPromise& promise, Actions& out);
  void OnAccepted(Time now, const PeerId& from, const message::ViewAccepted& accepted,
                  Actions& out);
  void OnTimer(Time now, Actions& out);
  // Pre: OnTimer had every instant that this returned.
  Time NextDeadline() const;
  // What the witnesses chose: not always what was proposed.
  const std::optional<View>& decided() const { return decided_; }
  const ViewHash& parent() const { return parent_; }

  // The own witness vote goes through the same object as everybody's.
  SuccessorWitness* local = nullptr;
  AveragingId local_begun;

 private:
  void OpenBallot(Time now, Actions& out);
  void Broadcast(Time now, const Message& message, Actions& out);
  void Refuse(Time now, Ballot promised);
  void MaybeAccept(Time now, Actions& out);

  const PeerId self_;
  const uint64_t epoch_;
  const ViewHash parent_;
  const std::vector<PeerId> witnesses_;
  const View proposal_;
  const std::set<PeerId> live_;
  Rng rng_;
  Time grace_;  // until then all of live_ are waited for
  bool grace_over_ = false;
  AveragingId begun_;  // as the promises say
  uint32_t attempt_ = 0;
  Ballot ballot_ = 0;
  bool accepting_ = false;
  std::set<PeerId> yes_;
  Ballot best_ = 0;
  View value_;
  Time deadline_;
  std::optional<View> decided_;
};

}  // namespace crowdsurf::worker
