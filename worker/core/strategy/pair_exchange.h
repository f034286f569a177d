// Pair exchange: the transport for strategies that average two members at a time.
//
// Owner: Mixing, single sequence. Pure. One exchange at a time: PROPOSE, ACCEPT or BUSY, then both
// ends take a snapshot of their trainer and send it whole. A peer that has proposed holds no
// promise: others get BUSY, so nobody waits in a circle; of two that propose to each other the
// lesser id's proposal stands. Commit rule: an end commits when the partner's whole snapshot is
// here and its own has left; so both commit or neither does, unless one dies in between, which
// moves the mean by at most half their difference over n, once. No progress for a patience (two
// steps of the slower trainer and some): aborted, counted, the partner is told. Bounds: one
// exchange; a bit per chunk. Source: docs/strategies; AD-PSGD (Lian et al.
// 2018), whose blocking hand-shake needs a bipartite graph: this one does not.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/time.h"
#include "worker/core/strategy/pair_word.h"
#include "worker/core/vector/mix.h"

namespace crowdsurf::worker {

class PairExchange {
 public:
  struct Counters {
    uint64_t proposed = 0, busy = 0, refused = 0, committed = 0, aborted = 0;
    uint64_t strange = 0, repeated = 0, not_finite = 0;
  };
  // What happens: the owner tells the strategy, sends the words, has the host send the snapshot.
  struct Say {
    PeerId to;
    PairWord word;
  };
  struct SendSnapshot {
    PeerId to;
    uint64_t sequence = 0;
    uint32_t chunks = 0;
  };
  struct Agreed {
    PeerId peer;
  };
  struct Done {
    PeerId peer;
    bool committed = false;
  };
  struct Out {  // emptied by the owner
    std::vector<Say> says;
    std::optional<SendSnapshot> send;
    std::optional<Agreed> agreed;
    std::optional<Done> done;
  };

  PairExchange(const PeerId& self, uint64_t first_number) : self_(self), number_(first_number) {}

  // A new view: what was under way is forgotten. `receive`: where the partner's snapshot goes.
  void Reset(uint64_t elements, uint32_t chunk_elements, WireFormat wire, Region receive);
  void SetStep(Duration step) { step_ = step; }  // of the own trainer
  bool idle() const { return stage_ == Stage::kIdle; }
  std::optional<PeerId> partner() const;

  // Pre: idle().
  void Propose(Time now, const PeerId& peer, Out& out);
  enum class Readiness : uint8_t { kBusy, kReady };  // does this peer take part in exchanges now?
  void OnWord(Time now, const PeerId& from, const PairWord& word, Readiness self, Out& out);
  // The own snapshot lies in `mine` and stays there until the end. Pre: agreed.
  void OnSnapshot(Time now, Region mine, Out& out);
  void OnSent(Time now, const PeerId& to, uint64_t sequence, Out& out);
  std::optional<MixPlace> Place(const MixArrived& chunk) const;
  void OnChunk(Time now, const MixArrived& chunk, Out& out);
  std::optional<MixChunk> Describe(const PeerId& to, uint32_t chunk) const;
  // Ends what is under way; the partner is told.
  void Abort(Out& out);
  void OnPeerDown(const PeerId& peer, Out& out);
  void OnTimer(Time now, Out& out);
  Time NextDeadline() const { return idle() ? Time::Infinite() : deadline_; }
  const Counters& counters() const { return counters_; }

 private:
  enum class Stage : uint8_t { kIdle, kProposed, kAgreed };
  void Agree(Time now, const PeerId& peer, uint64_t number, uint64_t step_nanoseconds, Out& out);
  void Progressed(Time now);
  void Commit(Out& out);
  void GiveUp(Out& out);
  void MaybeCommit(Out& out);
  uint32_t chunks() const;

  const PeerId self_;
  uint64_t number_;  // of the last exchange proposed here
  uint64_t elements_ = 0;
  uint32_t chunk_elements_ = 1;
  WireFormat wire_ = WireFormat::kFloat32;
  Region receive_ = Region::kExtra0;
  Duration step_;
  Duration partner_step_;

  Stage stage_ = Stage::kIdle;
  PeerId peer_;
  uint64_t exchange_ = 0;
  Time deadline_;
  std::optional<Region> mine_;
  bool sent_ = false;
  uint32_t arrived_ = 0;
  std::vector<bool> here_;
  Counters counters_;
  mutable std::vector<Region> sum_of_;  // scratch of Describe
};

}  // namespace crowdsurf::worker
