// Joining: whom a peer without a seat asks for one, and when it forms a view of its own.
//
// A fresh agent joins any view it finds; else the best of the fresh ones (highest restored
// checkpoint, then longest-lived) forms a view of one, the others ask it. Owner: Membership, single
// sequence. Decides only; Membership sends. Source: docs/views.md, First view.
#pragma once

#include <optional>
#include <set>

#include "base/id.h"
#include "base/rng.h"
#include "base/time.h"
#include "worker/core/port/seat_messages.h"
#include "worker/core/view/averaging_id.h"

namespace crowdsurf::worker {

class Roster;
struct PeerConfig;

class Joining {
 public:
  Joining(const PeerConfig& config, const Roster& roster, Rng rng)
      : config_(config), roster_(roster), rng_(rng) {}

  struct Step {
    std::optional<PeerId> ask;
    bool form = false;
  };
  // What to do now. Pre: this peer has a trainer, no seat, and no fetch under way. `holds`: the
  // average its restored checkpoint is of, 0 none.
  Step Next(Time now, AveragingId holds);
  Time NextDeadline() const { return wake_; }

  void OnAnswer(Time now, const PeerId& from, const message::JoinAnswer& answer);
  void OnPeerDown(const PeerId& peer);
  void AskSoon() { quiet_until_ = Time(); }
  // Why the last request was refused; empty: it was not.
  const std::string& refusal() const { return refusal_; }

 private:
  std::optional<PeerId> BestSeated() const;
  // Fresh peers that should form before this one.
  std::vector<PeerId> Better(AveragingId holds) const;
  Step Ask(Time now, const PeerId& peer, Duration patience);

  const PeerConfig& config_;
  const Roster& roster_;
  Rng rng_;
  Time answered_at_;
  Time quiet_until_;
  Time wake_ = Time::Infinite();   // as of the last Next
  std::optional<PeerId> steward_;  // somebody named it
  std::set<PeerId> silent_;        // asked, no answer yet
  uint32_t hops_ = 0;              // from one named peer to the next, since the last pause
  std::string refusal_;
};

}  // namespace crowdsurf::worker
