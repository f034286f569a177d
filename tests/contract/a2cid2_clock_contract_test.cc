// A2CiD2's clock and its proposals against the paper's closed forms (arXiv 2306.08289, section 3),
// without a world: one strategy is fed what its peer would feed it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/digest.h"
#include "worker/core/strategy/a2cid2.h"
#include "worker/core/strategy/edge_mailbox.h"
#include "worker/core/view/view_plan.h"

namespace crowdsurf::worker {
namespace {

AveragingConfig Config(GraphKind graph) {
  AveragingConfig config;
  config.strategy = StrategyKind::kA2CiD2;
  config.mixing.graph = graph;
  config.interval = 2;
  config.compression = WireFormat::kFloat32;
  return config;
}

// Factors of the momentum among `actions`.
std::vector<double> Swaps(const StrategyActions& actions) {
  std::vector<double> found;
  for (const StrategyAction& action : actions)
    if (const auto* kernel = std::get_if<RunKernel>(&action);
        kernel != nullptr && kernel->kernel == MixKernel::kMomentum)
      found.push_back(kernel->scalars.at(0));
  return found;
}

// A worker whose mixing with one other, on a ring of the two, has begun.
struct OneOfTwo {
  OneOfTwo(uint64_t seed, double rate_com, double seconds_a_step) : strategy{Rng(seed)} {
    strategy.SetVector(8, edges);
    AveragingConfig config = Config(GraphKind::kRing);
    config.mixing.rate_com = rate_com;
    const Member self{.id = *PeerId::From(Sha256(AsBytes("a")).view())};
    const View first = FirstView(self, {.config = config});
    const View view = NextView(Seating(first, ViewHash()), {}, {other}, {.config = config});
    strategy.OnView(now, view, self.id, actions);
    strategy.OnEvent(now, PaceTold{1, 1, seconds_a_step, 0}, actions);
    strategy.OnEvent(now, MixingStarted{Region::kInboxB}, actions);
  }

  EdgeMailbox edges;
  A2CiD2 strategy;
  const Member other{.id = *PeerId::From(Sha256(AsBytes("b")).view())};
  Time now = Time::FromNanoseconds(1);
  StrategyActions actions;
};

// The clock of the momentum counts gradient steps (section 3: dt of the mixing): with exchanges as
// often as rate_com asks for, a step is one unit, whatever the rate and the length of a step.
TEST(A2CiD2Test, TheClockCountsOneUnitAGradientStep) {
  for (const double rate : {0.5, 1.0, 4.0}) {
    constexpr double kStep = 0.25;
    const double interval = kStep / rate;
    ExchangeClock clock(rate, interval);
    EXPECT_DOUBLE_EQ(clock.Units(kStep), 1);
    ExchangeClock late(rate, interval * 3);  // a wrong first guess is forgotten
    for (int exchange = 0; exchange < 1000; ++exchange) late.OnExchange(interval);
    EXPECT_NEAR(late.Units(kStep), 1, 1e-9);
  }
}

// What the strategy tells the kernel to mix by is exp(-2 eta units) of that clock.
TEST(A2CiD2Test, MixesByTheTimeSinceTheLastEvent) {
  constexpr double kStep = 0.1, kRate = 0.5, kSteps = 3;
  OneOfTwo one(1, kRate, kStep);
  A2CiD2& strategy = one.strategy;
  Time& now = one.now;
  StrategyActions& actions = one.actions;
  strategy.OnEvent(now, SnapshotTaken{}, actions);  // the first: both models begin there
  actions.clear();
  now = now + Seconds(kSteps * kStep);
  strategy.OnEvent(now, SnapshotTaken{}, actions);
  // A pair, each of whom proposes at kRate / 2 to its only neighbour.
  const Graph pair{.nodes = 2, .edges = {{0, 1}}};
  const double eta = AcidConstantsOf(pair, {kRate}).value().eta;
  ASSERT_EQ(Swaps(actions).size(), 1u);
  EXPECT_NEAR(Swaps(actions)[0], (1 - std::exp(-2 * eta * kSteps)) / 2, 1e-6);
}

// On a star of n the middle has n / 2 exchanges where rate_com asks for one, and a leaf has
// (1 + 1 / (n - 1)) / 2. Whose exchanges come that often counts one unit a gradient step, for eta
// is computed from these rates: with lambda = rate_com n / (2 (n - 1)) on every edge chi1 is 1 /
// lambda and chi2 half of it, so eta is lambda / sqrt(2).
TEST(A2CiD2Test, OnAStarTheClocksOfTheMiddleAndOfALeafAgree) {
  constexpr double kStep = 0.1, kRate = 0.5, kSteps = 3;
  constexpr int kMembers = 5;
  AveragingConfig config = Config(GraphKind::kStar);
  config.mixing.rate_com = kRate;
  std::vector<Member> members;
  for (int i = 0; i < kMembers; ++i) {
    const std::string name = "member " + std::to_string(i);
    members.push_back({.id = *PeerId::From(Sha256(AsBytes(name)).view()), .joined_unix_ms = i + 1});
  }
  const View first = FirstView(members[0], {.config = config});
  const View view = NextView(Seating(first, ViewHash()), {}, {members.begin() + 1, members.end()},
                             {.config = config});
  const double eta = kRate * kMembers / (2.0 * (kMembers - 1)) / std::sqrt(2.0);
  const auto swap_after_steps = [&](const Member& self, double rate) {
    A2CiD2 strategy{Rng(1)};
    EdgeMailbox edges;
    strategy.SetVector(8, edges);
    Time now = Time::FromNanoseconds(1);
    StrategyActions actions;
    strategy.OnView(now, view, self.id, actions);
    EXPECT_NEAR(strategy.constants().eta, eta, 1e-9);
    strategy.OnEvent(now, PaceTold{1, 1, kStep, 0}, actions);
    strategy.OnEvent(now, MixingStarted{Region::kInboxB}, actions);
    strategy.OnEvent(now, SnapshotTaken{}, actions);
    for (int exchange = 0; exchange < 1000; ++exchange) {
      now = now + Seconds(kStep / rate);
      strategy.OnEvent(now, PairArrived{Region::kExtra3}, actions);
    }
    actions.clear();
    strategy.OnEvent(now + Seconds(kSteps * kStep), SnapshotTaken{}, actions);
    const std::vector<double> swaps = Swaps(actions);
    return swaps.empty() ? -1.0 : swaps.front();
  };
  const double wanted = (1 - std::exp(-2 * eta * kSteps)) / 2;
  EXPECT_NEAR(swap_after_steps(members[0], kRate * kMembers / 2), wanted, 1e-6);
  EXPECT_NEAR(swap_after_steps(members[1], kRate / 2 * (1 + 1.0 / (kMembers - 1))), wanted, 1e-6);
}

// Intervals between a worker's proposals are exponential: chi-square over twenty equal bins.
TEST(A2CiD2Test, ProposalsArePoisson) {
  for (const uint64_t seed : {1U, 2U, 3U}) {
    OneOfTwo one(seed, 0.5, 0.1);
    A2CiD2& strategy = one.strategy;
    Time& now = one.now;
    StrategyActions& actions = one.actions;
    strategy.OnEvent(now, SnapshotTaken{}, actions);
    // Every worker is in 0.5 exchanges a step of 0.1 s; half of them it proposes itself.
    constexpr double kMean = 0.1 / 0.5 * 2;
    constexpr int kBins = 20, kDraws = 4000;
    std::vector<int> bins(kBins, 0);
    for (int draw = 0; draw < kDraws; ++draw) {
      const auto timer = std::find_if(actions.begin(), actions.end(), [](const auto& a) {
        return std::holds_alternative<SetStrategyTimer>(a);
      });
      ASSERT_NE(timer, actions.end());
      const Time at = std::get<SetStrategyTimer>(*timer).at;
      const double share = 1 - std::exp(-(at - now).seconds() / kMean);
      ++bins[static_cast<size_t>(std::min(kBins - 1, static_cast<int>(share * kBins)))];
      now = at;
      actions.clear();
      strategy.OnEvent(now, StrategyTimer{}, actions);
    }
    double chi = 0;
    constexpr double kExpected = static_cast<double>(kDraws) / kBins;
    for (const int bin : bins) chi += std::pow(bin - kExpected, 2) / kExpected;
    EXPECT_LT(chi, 36.19) << "seed " << seed;  // 1 % at 19 degrees of freedom
  }
}

// What the momentum and x-tilde's weight come to when an exchange takes `took`, in steps of a
// worker that asks for one a step; as shares of the published constants.
struct Caution {
  double eta = 0, alpha_tilde = 0;
};
Caution CautionAt(double took) {
  constexpr double kStep = 0.1;
  AveragingConfig config = Config(GraphKind::kRing);
  std::vector<Member> members;
  for (int i = 0; i < 16; ++i) {
    const std::string name = "member " + std::to_string(i);
    members.push_back({.id = *PeerId::From(Sha256(AsBytes(name)).view()), .joined_unix_ms = i + 1});
  }
  const View first = FirstView(members[0], {.config = config});
  const View view = NextView(Seating(first, ViewHash()), {}, {members.begin() + 1, members.end()},
                             {.config = config});
  A2CiD2 strategy{Rng(1)};
  EdgeMailbox edges;
  strategy.SetVector(8, edges);
  Time now = Time::FromNanoseconds(1);
  StrategyActions actions;
  strategy.OnView(now, view, members[0].id, actions);
  strategy.OnEvent(now, PaceTold{1, 1, kStep, 0}, actions);
  strategy.OnEvent(now, MixingStarted{Region::kInboxB}, actions);
  strategy.OnEvent(now, SnapshotTaken{}, actions);
  for (int exchange = 0; exchange < 100; ++exchange) {
    now = now + Seconds(kStep);
    strategy.OnEvent(now, PairReplied{Region::kExtra2, Seconds(took * kStep)}, actions);
  }
  // The tick after them goes by what they took.
  now = now + Seconds(100);
  actions.clear();
  strategy.OnEvent(now, StrategyTimer{}, actions);
  // With a neighbour that asks for no more than this end does.
  int64_t restraint = 0;
  for (const StrategyAction& action : actions)
    if (const auto* rate = std::get_if<TellPairRate>(&action)) restraint = rate->restraint;
  actions.clear();
  now = now + Seconds(kStep);
  strategy.OnEvent(now, PairReplied{Region::kExtra2, Duration(), restraint}, actions);
  Caution caution;
  caution.eta = -std::log(1 - 2 * Swaps(actions).at(0)) / 2 / strategy.constants().eta;
  for (const StrategyAction& action : actions)
    if (const auto* kernel = std::get_if<RunKernel>(&action);
        kernel != nullptr && kernel->kernel == MixKernel::kMoveTowards &&
        kernel->regions.at(0) == Region::kExtra1)
      caution.alpha_tilde = -kernel->scalars.at(0) / strategy.constants().alpha_tilde;
  return caution;
}

// The shares of the issue: all up to .05 exchanges in the time of a message, .7 up to .4, else .5.
TEST(A2CiD2Test, LateMessagesMakeTheMomentumCautious) {
  struct Row {
    double latency;  // one way, in steps
    double share;
  };
  for (const Row& row :
       {Row{0.04, 1}, Row{0.06, 0.7}, Row{0.39, 0.7}, Row{0.41, 0.5}, Row{3, 0.5}}) {
    const Caution caution = CautionAt(2 * row.latency);
    EXPECT_NEAR(caution.eta, row.share, 0.01) << row.latency;
    EXPECT_NEAR(caution.alpha_tilde, row.share, 1e-9) << row.latency;
  }
}

}  // namespace
}  // namespace crowdsurf::worker
