// Power exchange: the transport for PowerGossip, whose neighbours exchange one whole frame each at
// every step, exactly once.
//
// Owner: Mixing, single sequence. Pure bookkeeping: bytes lie in regions that the host holds. A
// step ends when the frames of all neighbours that live are here, each with all its chunks. The own
// frames of this step and of the last one stay, for a neighbour that misses one: it asks (kMissing)
// and gets the whole frame again. A frame of step k + 1 says that its sender has that of k, so
// nothing else is acknowledged, and a slot is free again when it is needed. A neighbour that is not
// so far answers kNotYet: slow trainers are waited for. One that is silent for kSilence is left out
// until the view is renewed (kCut), as one that died: its weight stays with us.
// Source: docs/strategies (PowerGossip). Bounds: a frame of this step and one of the next an
// edge.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/time.h"
#include "worker/core/power/edge_word.h"
#include "worker/core/power/power_action.h"
#include "worker/core/vector/mix.h"

namespace crowdsurf::worker {

class PowerExchange {
 public:
  static constexpr Duration kFirstAsk = Milliseconds(500);  // then twice as long each time
  static constexpr Duration kSlowestAsk = Seconds(4);
  static constexpr Duration kSilence = Seconds(20);

  struct Counters {
    uint64_t taken = 0, stale = 0, strange = 0, repeated = 0, not_finite = 0;
    uint64_t resent = 0;     // frames, whole
    uint64_t cut = 0;        // edges that went down though their other end lives
    uint64_t one_sided = 0;  // edges that went down when this end alone may have ended a step
  };
  // What happens: the owner says the words, and has the host send the frames.
  struct Out {  // emptied by the owner
    struct Say {
      PeerId to;
      EdgeWord word;
    };
    struct SendFrame {
      PeerId to;
      uint64_t step = 0;
      uint32_t chunks = 0;
    };
    std::vector<Say> says;
    std::vector<SendFrame> sends;
  };

  // A new view: every edge is at step 0. Pre: chunk_elements > 0.
  void Reset(const UsePowerEdges& use, uint32_t chunk_elements);
  void Clear();  // no edges, nothing under way

  uint64_t step() const { return step_; }
  // The next step begins: the own frames of it lie in the regions. Pre: the last one was taken.
  void Begin(Time now, Out& out);
  // The neighbours whose frames of the present step are all here, once: then the step is over.
  std::optional<std::vector<PeerId>> TakeDone();
  // The view ends. Of a step that is not over: the neighbours whose frames of it are here; then it
  // is over. nullopt: none is open.
  std::optional<std::vector<PeerId>> TakeLast();

  void OnWord(Time now, const PeerId& from, const EdgeWord& word, Out& out);
  std::optional<MixPlace> Place(const MixArrived& chunk) const;
  void OnChunk(Time now, const MixArrived& chunk);
  std::optional<MixChunk> Describe(const PeerId& to, uint64_t step, uint32_t chunk) const;
  void OnSent(const PeerId& to, uint64_t step);
  void OnPeerDown(const PeerId& peer);
  void OnTimer(Time now, Out& out);
  Time NextDeadline() const;
  const Counters& counters() const { return counters_; }

 private:
  struct Arriving {          // a frame of the other end
    std::vector<bool> here;  // by chunk
    size_t arrived = 0;
  };
  struct Edge {
    PowerEnd end;
    bool down = false;
    uint64_t whole = 0;                // the last step up to which the other end's frames are here
    Arriving arriving[2];              // those of the two steps after it, by the parity of the step
    bool leaving[2] = {false, false};  // the own frame, by the parity of its step
    Time left_at[2];                   // when it was given to the host
    Time heard;                        // anything
    Time ask_at = Time::Infinite();
    Duration ask_after;
  };
  Edge* Find(const PeerId& peer);
  const Edge* Find(const PeerId& peer) const;
  bool Waits(const Edge& edge) const { return open_ && !edge.down && edge.whole < step_; }
  uint32_t ChunksOf(uint64_t step) const;
  void Expect(Edge& edge, uint64_t step) const;
  Extent ChunkOf(const Extent& frame, uint32_t chunk) const;
  void SendFrame(Time now, Edge& edge, uint64_t step, Out& out);
  void Answer(Time now, Edge& edge, uint64_t step, Out& out);
  void PutDown(Edge& edge);

  std::shared_ptr<const PowerFrames> frames_;
  WireFormat wire_ = WireFormat::kFloat32;
  uint32_t chunk_elements_ = 1;
  std::vector<Edge> edges_;
  uint64_t step_ = 0;
  bool open_ = false;  // the present step is not over
  Counters counters_;
  mutable std::vector<Region> sum_of_;  // scratch of Describe
};

}  // namespace crowdsurf::worker
