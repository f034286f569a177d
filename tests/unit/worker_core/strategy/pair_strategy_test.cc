// What a strategy of pairs orders: when a snapshot goes before an exchange, what a snapshot brings
// to the models, and how often exchanges come where messages are late.
#include "worker/core/strategy/pair_strategy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/digest.h"
#include "worker/core/strategy/edge_mailbox.h"
#include "worker/core/strategy/gossip.h"
#include "worker/core/view/view_plan.h"

namespace crowdsurf::worker {
namespace {

constexpr double kStep = 0.1;

// One of two workers that gossip every `interval` steps, as its owner drives it.
struct OneOfTwo {
  explicit OneOfTwo(double interval, uint64_t seed = 1) : strategy{Rng(seed)} {
    AveragingConfig config;
    config.strategy = StrategyKind::kGossip;
    config.mixing.graph = GraphKind::kRing;
    config.interval = interval;
    const Member self{.id = *PeerId::From(Sha256(AsBytes("a")).view())};
    const View first = FirstView(self, {.config = config});
    const View view = NextView(Seating(first, ViewHash()), {}, {other}, {.config = config});
    strategy.SetVector(8, edges);
    strategy.OnView(now, view, self.id, actions);
    Tell(PaceTold{1, 1, kStep, 0});
    Tell(MixingStarted{Region::kInboxB});
  }

  // The actions of this event alone.
  void Tell(const Event& event) {
    actions.clear();
    strategy.OnEvent(now, event, actions);
  }
  template <class Action>
  std::vector<Action> All() const {
    std::vector<Action> found;
    for (const StrategyAction& action : actions)
      if (const auto* one = std::get_if<Action>(&action)) found.push_back(*one);
    return found;
  }
  template <class Action>
  bool Has() const {
    return !All<Action>().empty();
  }
  template <class Action>
  size_t Position() const {  // of the first; none: how many there are
    size_t at = 0;
    while (at < actions.size() && !std::holds_alternative<Action>(actions[at])) ++at;
    return at;
  }
  // The next tick, at its time.
  void Tick() {
    now = next;
    Tell(StrategyTimer{});
    next = All<SetStrategyTimer>().at(0).at;
  }
  void Begin() {
    Tell(SnapshotTaken{});
    next = All<SetStrategyTimer>().at(0).at;
  }

  EdgeMailbox edges;
  GossipPairs strategy;
  const Member other{.id = *PeerId::From(Sha256(AsBytes("b")).view())};
  Time now = Time::FromNanoseconds(1);
  Time next;
  StrategyActions actions;
};

TEST(PairStrategyTest, TheModelBeginsAsTheTrainersAndThenTakesItsChanges) {
  OneOfTwo one(1);
  EXPECT_TRUE(one.Has<AskSnapshot>()) << "nothing is exchanged before the model is there";
  one.Begin();
  ASSERT_TRUE(one.Has<OpenPairs>());
  auto kernels = one.All<RunKernel>();
  ASSERT_EQ(kernels.size(), 2u);
  EXPECT_EQ(kernels[0].kernel, MixKernel::kCopy);
  EXPECT_EQ(kernels[0].regions, (std::vector{Region::kExtra0, Region::kOutbox}));
  EXPECT_EQ(kernels[1].regions, (std::vector{Region::kInboxB, Region::kExtra0})) << "L is x";
  one.now = one.now + Seconds(kStep);
  one.Tell(SnapshotTaken{});
  EXPECT_FALSE(one.Has<OpenPairs>());
  kernels = one.All<RunKernel>();
  ASSERT_EQ(kernels.size(), 2u);
  EXPECT_EQ(kernels[0].kernel, MixKernel::kAddChange);
  EXPECT_EQ(kernels[0].regions, (std::vector{Region::kExtra0, Region::kOutbox, Region::kInboxB}));
  EXPECT_EQ(kernels[1].regions, (std::vector{Region::kInboxB, Region::kExtra0}));
  EXPECT_EQ(one.All<DeliverMixed>().at(0).region, Region::kInboxB);
}

TEST(PairStrategyTest, AnExchangeAStepWaitsForNoTrainer) {
  OneOfTwo one(1);
  one.Begin();
  for (int tick = 0; tick < 20; ++tick) {
    one.Tick();
    EXPECT_EQ(one.All<PushPair>().size(), 1u);
    EXPECT_TRUE(one.Has<ExchangePairs>());
    EXPECT_FALSE(one.Has<AskSnapshot>());
  }
  one.Tell(PairWaits{});
  EXPECT_TRUE(one.Has<ExchangePairs>());
  // Each exchange is to reach the trainer, with one request.
  one.Tell(PairArrived{Region::kExtra2});
  EXPECT_TRUE(one.Has<AskSnapshot>());
  one.Tell(PairReplied{Region::kExtra1, Duration()});
  EXPECT_FALSE(one.Has<AskSnapshot>());
  EXPECT_EQ(one.All<RunKernel>().at(0).scalars.at(0), -0.5) << "against the other end's move";
}

TEST(PairStrategyTest, RareExchangesBeginWithASnapshotAtBothEnds) {
  OneOfTwo one(50);
  one.Begin();
  one.now = one.now + Seconds(10 * kStep);
  one.Tell(PairWaits{});
  EXPECT_FALSE(one.Has<ExchangePairs>());
  EXPECT_TRUE(one.Has<AskSnapshot>());
  one.now = one.now + Seconds(kStep);
  one.Tell(SnapshotTaken{});
  // The exchange, then its result to the trainer: no other snapshot is needed for that.
  EXPECT_LT(one.Position<ExchangePairs>(), one.Position<DeliverMixed>());
  EXPECT_LT(one.Position<DeliverMixed>(), one.actions.size());
  one.Tell(PairArrived{Region::kExtra2});
  EXPECT_FALSE(one.Has<AskSnapshot>());
  // Fresh enough now.
  one.now = one.now + Seconds(kStep);
  one.Tell(PairWaits{});
  EXPECT_TRUE(one.Has<ExchangePairs>());
}

TEST(PairStrategyTest, ARefusedSnapshotKeepsNobodyWaiting) {
  OneOfTwo one(50);
  one.Tell(SnapshotRefused{});
  EXPECT_TRUE(one.Has<AskSnapshot>()) << "without a model nothing begins";
  EXPECT_FALSE(one.Has<ExchangePairs>());
  one.Begin();
  one.now = one.now + Seconds(10 * kStep);
  one.Tell(PairWaits{});
  one.Tell(SnapshotRefused{});
  EXPECT_TRUE(one.Has<ExchangePairs>());
  EXPECT_FALSE(one.Has<DeliverMixed>());
}

// The mean of exponential intervals is twice the interval asked for, times what messages take of it
// if that is more than one.
TEST(PairStrategyTest, WhereMessagesTakeLongerThanTheIntervalExchangesComeMoreRarely) {
  for (const double latency : {0.5, 1.0, 3.0}) {
    OneOfTwo one(1);
    one.Begin();
    one.Tell(PairReplied{Region::kExtra1, Seconds(2 * latency * kStep)});
    one.Tick();
    double sum = 0;
    constexpr int kTicks = 4000;
    for (int tick = 0; tick < kTicks; ++tick) {
      one.Tick();
      sum += (one.next - one.now).seconds();
      EXPECT_NEAR(one.All<TellPairRate>().at(0).share, 1 / std::max(1.0, latency), 1e-6);
    }
    const double mean = sum / kTicks / (2 * kStep);
    EXPECT_NEAR(mean / std::max(1.0, latency), 1, 0.06) << latency;
  }
}

TEST(PairStrategyTest, NobodyPushesToTheDead) {
  OneOfTwo one(1);
  one.Begin();
  one.Tell(PeerDown{one.other.id});
  one.Tick();
  EXPECT_FALSE(one.Has<PushPair>());
  EXPECT_TRUE(one.Has<SetStrategyTimer>());
}

}  // namespace
}  // namespace crowdsurf::worker
