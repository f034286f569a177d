// Pair exchange: the transport for strategies that average two members at a time.
//
// An end begins by pushing its own model, chunk by chunk, as each is when it leaves. The other end
// applies the difference d once the whole model is here, and replies with d, which stays until it
// is acknowledged; then the first end applies -d. Both go by one d, so the sum over both is kept
// exactly, whatever either has taken in meanwhile. What else they move by it needs one weight at
// both: a push says how much restraint its end asks for, and the reply says the greater of both
// ends' (as the lag of the chunks). Nobody waits for a promise, so there is no
// deadlock and no refusal: a push that finds no room waits at its end until it is asked for (kGo).
// Each end has places for exchanges that it began, and others for those it was pushed: the second
// wait for nobody but a neighbour whose place for the reply is its own. One exchange a neighbour
// and direction. What is lost is sent again after a patience that doubles, four times in all; then
// the exchange is over and the other end is told. If d was applied here and its reply was never
// acknowledged, the exchange may be one-sided: the mean moves by at most half the difference over
// n, once, and it is counted. Owner: Mixing, single sequence. Pure. Bounds: the places; kMaxPutOff
// own exchanges that wait; neighbours. Source: docs/strategies/gossip.md; AD-PSGD (Lian et al.
// 2018), whose blocking hand-shake needs a bipartite graph.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "base/time.h"
#include "worker/core/strategy/pair_word.h"
#include "worker/core/strategy/strategy_actions.h"
#include "worker/core/vector/mix.h"

namespace crowdsurf::worker {

class PairExchange {
 public:
  static constexpr size_t kMaxPutOff = 32;
  static constexpr int64_t kMostRestraint = 500;  // thousandths of a weight that are left out

  // Ends of exchanges at this peer: `committed` moved its model, `aborted` did not, `one_sided`
  // moved it and may not have moved the other end's. `skipped`: never begun, too many waited.
  struct Counters {
    uint64_t committed = 0, aborted = 0, one_sided = 0, skipped = 0;
    uint64_t resent = 0;  // whole messages
    uint64_t strange = 0, repeated = 0, not_finite = 0;
  };
  struct Say {
    PeerId to;
    PairWord word;
  };
  struct SendModel {
    PeerId to;
    MixTag tag = kPairTag;
    uint64_t number = 0;
    uint32_t chunks = 0;
  };
  struct Replied {  // d lies in `region` until the next input
    Region region = Region::kExtra0;
    Duration took;  // from the push to the whole reply; 0: not known, something was sent twice
    int64_t restraint = 0;
  };
  struct Out {  // emptied by the owner
    std::vector<Say> says;
    std::vector<SendModel> sends;
    bool whole = false;  // a push is whole: TakeWhole has it
    std::optional<Replied> replied;
  };

  explicit PairExchange(uint64_t first_number) : number_(first_number) {}

  // A new view: what was under way is forgotten. Pre: chunk_elements > 0.
  void Reset(const UsePairs& use, uint64_t elements, uint32_t chunk_elements, WireFormat wire);
  void Clear();                                  // no view, or no strategy with pairs
  void SetStep(Duration step) { step_ = step; }  // of the own trainer
  // That this end asks for, from the next exchange on.
  void SetRestraint(int64_t restraint) { restraint_ = restraint; }
  // The own model is there: neighbours may push theirs.
  void Open(Time now, Out& out);
  // Begin nothing any more; pushes are answered with kGone.
  void Drain() { draining_ = true; }
  bool idle() const;

  // An exchange with `peer` is to begin, with the next Start. Skipped: too many wait already.
  void Push(const PeerId& peer);
  // Begins what waits and has a place.
  void Start(Time now, Out& out);
  // A push that is whole and was not taken: the strategy puts d there, and then calls Reply.
  std::optional<Region> TakeWhole();
  int64_t RestraintOf(Region region) const;  // of the push that lies there
  void Reply(Time now, Region region, Out& out);

  void OnWord(Time now, const PeerId& from, const PairWord& word, Out& out);
  void OnSent(Time now, const PeerId& to, MixTag tag, uint64_t number);
  std::optional<MixPlace> Place(const MixArrived& chunk) const;
  void OnChunk(Time now, const MixArrived& chunk, Out& out);
  std::optional<MixChunk> Describe(const PeerId& to, MixTag tag, uint64_t number,
                                   uint32_t chunk) const;
  void OnPeerDown(Time now, const PeerId& peer, Out& out);
  void OnTimer(Time now, Out& out);
  Time NextDeadline() const;
  const Counters& counters() const { return counters_; }

 private:
  // Of an exchange begun here: kFilling, with the reply. Of one that was pushed: kFilling, with the
  // model; kWhole; kReplying.
  enum class Stage : uint8_t { kFree, kFilling, kWhole, kReplying };
  enum class Side : uint8_t { kOwn, kServed };
  struct Slot {
    Region region = Region::kExtra0;
    Stage stage = Stage::kFree;
    PeerId peer;
    uint64_t number = 0;
    std::vector<bool> here;  // by chunk
    uint32_t arrived = 0;
    bool sent = false;  // the message that leaves has left
    int tries = 0;
    int64_t restraint = 0;  // of the exchange, as far as it is known here
    Time deadline;
    Time began;  // unset: something was sent twice
  };
  struct Neighbour {
    uint64_t served = 0;     // the last exchange that it began and whose model was whole here
    uint64_t committed = 0;  // the last one begun here and applied
    uint64_t waits = 0;      // its push that found no slot; 0: none
  };

  static Slot* Find(std::vector<Slot>& slots, const PeerId& peer);
  // The slot that a chunk goes to; nullptr: none.
  Slot* TakerOf(const MixArrived& chunk);
  Slot* PushTaker(const Neighbour& from, const MixArrived& chunk);
  void Begin(Time now, Slot& slot, const PeerId& peer, uint64_t number);
  bool Fill(Time now, Slot& slot, Side side);  // true: it is whole
  void OnPush(Time now, Slot* slot, const MixArrived& chunk, Out& out);
  void OnReply(Time now, Slot* slot, const MixArrived& chunk, Out& out);
  void SendFrom(Time now, Slot& slot, Side side, Out& out);
  void EndOwn(Time now, Slot& slot, Out& out);
  void EndServed(Time now, Slot& slot, Out& out);
  void ServeNext(Time now, Out& out);
  void SayOver(const PeerId& peer, uint64_t number, Out& out) const;
  void OnLate(Time now, Slot& slot, Side side, Out& out);
  void Forget();
  Time Patience(Time now, const Slot& slot, Side side) const;
  Extent RangeOf(uint32_t chunk) const;
  uint32_t chunks() const;

  uint64_t number_;  // of the last exchange begun here
  uint64_t elements_ = 0;
  uint32_t chunk_elements_ = 1;
  WireFormat wire_ = WireFormat::kFloat32;
  Region model_ = Region::kExtra0;
  Duration step_;
  Duration usual_;  // how long an exchange takes
  int64_t restraint_ = 0;
  bool open_ = false;
  bool draining_ = false;
  std::vector<Slot> own_, served_;
  std::map<PeerId, Neighbour> neighbours_;
  std::deque<PeerId> put_off_;  // own exchanges that wait
  std::deque<PeerId> waiting_;  // neighbours whose push found no slot, each once
  Counters counters_;
  mutable std::vector<Region> sum_of_;  // scratch of Describe
};

}  // namespace crowdsurf::worker
