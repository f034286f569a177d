// RoundGroup: three real Rounds whose messages wait until the test delivers them.
//
// The hash of a result is 100 + its chunk. Used by the tests of Round. Owner: one test; single
// sequence. Bounds: none, a test sends few messages.
#pragma once

#include <functional>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "tests/unit/worker_core/world/numbered_peers.h"
#include "worker/core/round/round.h"

namespace crowdsurf::worker {

inline constexpr int kRoundMembers = 3;

// Members 0 to 2, who are also the witnesses; member `self` has the weight self + 1.
inline RoundSpec SpecOf(int self, int chunks = 3) {
  RoundSpec spec;
  spec.self = self;
  for (int rank = 0; rank < kRoundMembers; ++rank) {
    spec.cells.push_back({PeerAt(static_cast<size_t>(rank)), {}});
    spec.witnesses.push_back(PeerAt(static_cast<size_t>(rank)));
  }
  for (int c = 0; c < chunks; ++c)
    spec.chunks.push_back({static_cast<uint16_t>(c % kRoundMembers), static_cast<uint64_t>(c), 1});
  spec.stake.weight = self + 1;
  return spec;
}

struct RoundGroup {
  struct Sent {
    int from;
    RoundAction action;
  };
  std::vector<Round> rounds;
  std::vector<Sent> wire;
  std::vector<RoundActions> done;
  std::set<int> dead;

  explicit RoundGroup(const std::function<void(RoundSpec&)>& change = nullptr, int chunks = 3) {
    for (int i = 0; i < kRoundMembers; ++i) {
      RoundSpec spec = SpecOf(i, chunks);
      if (change) change(spec);
      rounds.emplace_back(spec);
      done.emplace_back();
    }
  }
  Round& at(int i) { return rounds[static_cast<size_t>(i)]; }
  void Take(int self, const RoundActions& actions) {
    for (const RoundAction& action : actions) {
      done[static_cast<size_t>(self)].push_back(action);
      if (const auto* fold = std::get_if<FoldChunk>(&action)) {
        RoundActions out;
        at(self).OnFolded(fold->chunk, fold->assigned, 100 + fold->chunk.value(), out);
        Take(self, out);
      } else {
        wire.push_back({self, action});
      }
    }
  }
  template <class Call>
  void Do(int self, Call call) {
    RoundActions out;
    call(at(self), out);
    Take(self, out);
  }
  void StartAll() {
    for (int i = 0; i < kRoundMembers; ++i)
      Do(i, [](Round& r, RoundActions& out) { r.Start(out); });
  }
  void Suspect(int observer, int whom) {
    Do(observer, [&](Round& r, RoundActions& out) {
      r.OnSuspect(PeerAt(static_cast<size_t>(whom)), SuspicionCause::kReset, out);
    });
  }
  bool Deliver(const Sent& sent, const std::function<bool(const RoundAction&)>& pass) {
    const PeerId from = PeerAt(static_cast<size_t>(sent.from));
    PeerId to;
    if (const auto* a = std::get_if<SendFrame>(&sent.action))
      to = a->to;
    else if (const auto* b = std::get_if<SendInput>(&sent.action))
      to = b->to;
    else if (const auto* c = std::get_if<SendResult>(&sent.action))
      to = c->to;
    else
      return true;
    const int self = to.bytes()[0] - 1;
    if (dead.count(self) > 0) return true;
    if (pass && !pass(sent.action)) return false;
    Do(self, [&](Round& r, RoundActions& out) {
      if (const auto* frame = std::get_if<SendFrame>(&sent.action)) {
        r.OnFrame(from, frame->frame, out);
      } else if (const auto* input = std::get_if<SendInput>(&sent.action)) {
        r.OnInput(from, sent.from, input->chunk, input->assigned, out);
      } else {
        const auto& result = std::get<SendResult>(sent.action);
        r.OnResult(from, result.chunk, {result.assigned, result.mask, result.hash}, out);
      }
    });
    return true;
  }
  // Delivers all that `pass` lets through, in order, until nothing moves.
  void Settle(const std::function<bool(const RoundAction&)>& pass = nullptr) {
    for (bool moved = true; moved;) {
      moved = false;
      std::vector<Sent> now;
      now.swap(wire);
      for (const Sent& sent : now) {
        if (Deliver(sent, pass))
          moved = true;
        else
          wire.push_back(sent);
      }
    }
  }
  template <class T>
  size_t Count(int self) const {
    size_t count = 0;
    for (const RoundAction& action : done[static_cast<size_t>(self)])
      count += std::holds_alternative<T>(action) ? 1 : 0;
    return count;
  }
};

// True when `action` sends a frame of that body.
template <class Body>
bool Is(const RoundAction& action) {
  const auto* send = std::get_if<SendFrame>(&action);
  return send != nullptr && std::holds_alternative<Body>(send->frame.body);
}

}  // namespace crowdsurf::worker
