// A crowd that starts at once, on a network where a message takes 20 ms and a handshake six times
// that.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

#include "tests/unit/dht_core/network.h"

namespace crowdsurf::dht {
namespace {

const Key kRoster = KeyOf("crowdsurf/charlm/roster/0");
constexpr size_t kElders = 4;  // as many addresses an agent is given

struct Figures {
  double seconds = 0;     // until everybody knows of everybody
  uint64_t messages = 0;  // by then
};

// Agents as they are: each watches the roster and renews its record in it every heartbeat. They
// hear of the elders' addresses `late` after they began.
class Crowd {
 public:
  Crowd(size_t n, Duration late, uint64_t seed)
      : network_({.seed = seed,
                  .min_delay = Milliseconds(20),
                  .max_delay = Milliseconds(21),
                  .connect = Milliseconds(120)}),
        n_(n),
        heartbeat_(Seconds(1) * std::max(1.0, static_cast<double>(n) / 100)) {
    for (size_t i = 0; i < n; ++i) network_.AddPeer(late == Duration() ? Elders(i) : None());
    Time told = network_.now() + late;
    for (size_t i = 0; i < n; ++i) {
      network_.Do(i,
                  [&](Node& node, Actions& out) { node.Watch(network_.clocks(), kRoster, out); });
      beats_.push_back(network_.now() + heartbeat_ * (network_.rng().UniformDouble() * 0.1));
    }
    while (told > network_.now()) Step(told);
    if (late == Duration()) return;
    for (size_t i = 0; i < n; ++i) {
      network_.Do(
          i, [&](Node& node, Actions& out) { node.AddSeeds(network_.clocks(), Elders(i), out); });
    }
  }

  Figures Measure() {
    const Time start = network_.now();
    const Time limit = start + Seconds(10);
    while (!AllKnowAll() && network_.now() < limit) Step(limit);
    return {(network_.now() - start).seconds(), network_.messages()};
  }
  // Messages a second and node when everybody has long settled.
  double CalmRate() {
    const Time calm = network_.now() + Seconds(40);
    while (network_.now() < calm) Step(calm);
    const uint64_t before = network_.messages();
    const Time end = calm + Seconds(10);
    while (network_.now() < end) Step(end);
    return static_cast<double>(network_.messages() - before) / 10 / static_cast<double>(n_);
  }

 private:
  static std::vector<std::string> None() { return {}; }
  std::vector<std::string> Elders(size_t own) const {
    std::vector<std::string> elders;
    for (size_t i = 0; i < n_ && elders.size() < kElders; ++i) {
      if (i != own) elders.push_back(Network::EndpointOf(i));
    }
    return elders;
  }
  // A little, at most to the next heartbeat of anybody or to `limit`.
  void Step(Time limit) {
    const auto next = std::min_element(beats_.begin(), beats_.end());
    const Time until = std::min({limit, *next, network_.now() + Milliseconds(10)});
    network_.RunUntilDone(until - network_.now(), [] { return false; });
    if (until < *next) return;
    const auto index = static_cast<size_t>(next - beats_.begin());
    *next = until + heartbeat_;
    network_.Do(index, [&](Node& node, Actions& out) {
      node.Put(network_.clocks(), kRoster, BytesOf("here"), heartbeat_ * 3.0, out);
    });
  }
  bool AllKnowAll() {
    for (size_t i = 0; i < n_; ++i) {
      if (network_.peer(i).watched[kRoster].size() < n_) return false;
    }
    return true;
  }

  Network network_;
  const size_t n_;
  const Duration heartbeat_;
  std::vector<Time> beats_;
};

TEST(CrowdStartTest, WhoStartsTogetherKnowsEachOtherInAFewRoundTrips) {
  for (const size_t n : {16U, 64U}) {
    for (const Duration late : {Duration(), Milliseconds(300)}) {
      for (const uint64_t seed : {1U, 2U, 3U}) {
        const Figures figures = Crowd(n, late, seed).Measure();
        std::cout << n << " nodes, seeds after " << late.milliseconds() << " ms, seed " << seed
                  << ": " << figures.seconds << " s, " << figures.messages << " messages\n";
        EXPECT_LT(figures.seconds, 1) << n << " nodes, seed " << seed;
      }
    }
  }
}

TEST(CrowdStartTest, SoDoTwoHundred) {
  const Figures figures = Crowd(256, Milliseconds(300), 1).Measure();
  std::cout << figures.seconds << " s, " << figures.messages << " messages\n";
  EXPECT_LT(figures.seconds, 1);
}

TEST(CrowdStartTest, AndIsQuietAfterwards) {
  Crowd crowd(16, Milliseconds(300), 1);
  crowd.Measure();
  const double rate = crowd.CalmRate();
  std::cout << rate << " messages a second and node\n";
  EXPECT_LT(rate, 50);  // 15 stores and as many pushes and answers
}

}  // namespace
}  // namespace crowdsurf::dht
