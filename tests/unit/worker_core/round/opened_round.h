// A round of two that the member of rank 0 has opened, for tests of its pacer: the other one says
// what a test lets it say. No clock runs: each call is given its instant. Both are witnesses, and
// there is one chunk, of rank 0.
#pragma once

#include <algorithm>
#include <vector>

#include "tests/unit/worker_core/round/awake_process.h"
#include "tests/unit/worker_core/world/numbered_peers.h"
#include "worker/core/round/round.h"
#include "worker/core/round/round_codec.h"
#include "worker/core/round/round_pacer.h"
#include "worker/core/round/round_spec.h"

namespace crowdsurf::worker {

inline RoundSpec PairSpec() {
  RoundSpec spec;
  for (int rank = 0; rank < 2; ++rank) {
    spec.cells.push_back({PeerAt(static_cast<size_t>(rank)), {}});
    spec.witnesses.push_back(PeerAt(static_cast<size_t>(rank)));
  }
  spec.chunks = {{0, 0, 1}};
  return spec;
}

// A round that this member, of rank 0, has opened, and what it has learnt of the other's times.
struct OpenedRound {
  explicit OpenedRound(const RoundSpec& spec = PairSpec()) : round(spec) { round.Start(out); }
  void Hear(const FrameBody& body) { round.OnFrame(PeerAt(1), {InstanceId(), body}, out); }
  void HearReady() {
    Hear(Ready{{}, {}, MemberListHash(PairSpec().cells), PartsHash(PairSpec().chunks)});
  }
  // Until 20 ms, every 20 ms one frame: the silence of `peer` is learnt to be the least, 50 ms.
  void HearOften(const PeerId& peer) {
    for (int64_t i = -40; i <= 1; ++i) {
      times.OnAwake(At(20 * i));
      times.OnHeard(At(20 * i), peer);
    }
  }
  RoundTimes times{PacerConfig()};
  Round round;
  RoundActions out;
};

inline bool Has(const std::vector<Due>& due, Due::Kind kind) {
  return std::any_of(due.begin(), due.end(), [&](const Due& d) { return d.kind == kind; });
}

}  // namespace crowdsurf::worker
