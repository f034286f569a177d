// PairEnd: one end of exchanges in pairs, driven by a script: what it says, sends and takes.
//
// Owner: one test; single sequence. Its clock moves by Wait alone.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "worker/core/strategy/pair_exchange.h"

namespace crowdsurf::worker {

inline constexpr uint64_t kElements = 10;
inline constexpr uint32_t kChunk = 4, kChunks = 3;
inline constexpr Duration kLong = Seconds(3600);  // longer than any patience

inline PeerId Name(const std::string& name) { return *PeerId::From(Sha256(AsBytes(name)).view()); }
inline const PeerId kA = Name("a"), kB = Name("b"), kC = Name("c"), kD = Name("d");

inline MixArrived Chunk(const PeerId& from, MixTag tag, uint64_t number, uint32_t chunk) {
  MixArrived arrived;
  arrived.from = from;
  arrived.tag = tag;
  arrived.sequence = number;
  arrived.chunk = chunk;
  return arrived;
}

// One end, with one slot each way unless the test says otherwise.
struct PairEnd {
  explicit PairEnd(const PeerId& self, size_t slots = 1) : id(self), pairs(100) {
    UsePairs use{.model = Region::kExtra0, .own = {}, .served = {}, .neighbours = {}};
    for (const PeerId& peer : {kA, kB, kC, kD})
      if (peer != self) use.neighbours.push_back(peer);
    for (size_t i = 0; i < slots; ++i) {
      use.own.push_back(ExtraRegion(1 + i));
      use.served.push_back(ExtraRegion(1 + slots + i));
    }
    pairs.Reset(use, kElements, kChunk, WireFormat::kFloat32);
    pairs.Open(now, out);
  }

  // The one message that was to be sent, which has left by then.
  PairExchange::SendModel Sent() {
    EXPECT_EQ(out.sends.size(), 1u);
    if (out.sends.empty()) return {};
    const PairExchange::SendModel send = out.sends.front();
    out = {};
    pairs.OnSent(now, send.to, send.tag, send.number);
    return send;
  }
  std::vector<PairWord> Said() {
    std::vector<PairWord> words;
    for (const PairExchange::Say& say : std::exchange(out.says, {})) words.push_back(say.word);
    return words;
  }
  void Push(const PeerId& peer) {
    pairs.Push(peer);
    pairs.Start(now, out);
  }
  // True: it has a place.
  bool Take(MixArrived chunk, bool sound = true) {
    const auto place = pairs.Place(chunk);
    chunk.stored = place.has_value() && sound;
    pairs.OnChunk(now, chunk, out);
    return place.has_value();
  }
  // All chunks of a message, but for `lost`.
  void Take(const PeerId& from, const PairExchange::SendModel& message, int lost = -1) {
    for (uint32_t chunk = 0; chunk < message.chunks; ++chunk)
      if (static_cast<int>(chunk) != lost) Take(Chunk(from, message.tag, message.number, chunk));
  }
  void TakeWhole() {
    const auto region = pairs.TakeWhole();
    ASSERT_TRUE(region);
    pairs.Reply(now, *region, out);
  }
  void Wait(Duration time) {
    now = now + time;
    pairs.OnTimer(now, out);
  }
  const PairExchange::Counters& counters() const { return pairs.counters(); }

  PeerId id;
  PairExchange pairs;
  PairExchange::Out out;
  Time now = Time::FromNanoseconds(1);
};

}  // namespace crowdsurf::worker
