// PowerGossip in the contract's world: what it promises beyond what all strategies do.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/contract/world/mixing_world.h"
#include "worker/core/power/power_edges.h"
#include "worker/core/power/power_frames.h"
#include "worker/core/power/power_layout.h"

namespace crowdsurf::worker {
namespace {

MixingWorldOptions PowerOptions(uint64_t seed, double loss) {
  AveragingConfig config;
  config.strategy = StrategyKind::kPowerGossip;
  config.mixing.graph = GraphKind::kRing;
  config.interval = 2;
  config.compression = WireFormat::kFloat32;
  return {.config = config,
          .elements = 128,
          .chunk_elements = 16,
          .loss = loss,
          .repeat = loss / 2,
          .seed = seed};
}

void DrawParameters(MixingWorld& world, uint64_t seed) {
  for (const int i : world.Living()) {
    Rng rng = Rng(seed).Fork("values " + std::to_string(i));
    for (double& p : world.parameters(i)) p = rng.Normal();
  }
}

// A frame counts when it is whole, and once: losses, repeats and overtaking cost time and nothing
// else, so that the mean stays to the last bits.
TEST(PowerGossipTest, KeepsTheMeanWhateverIsLost) {
  constexpr uint64_t kSteps = 100;
  for (const uint64_t seed : {1U, 2U, 3U}) {
    MixingWorld world(PowerOptions(seed, 0.1));
    for (int i = 0; i < 8; ++i) world.Add(i);
    world.MakeView();
    DrawParameters(world, seed);
    const double mean = world.Mean(), spread = world.Spread();
    world.StopAfter(kSteps);  // after each step of all, the mean is what it was
    world.RunFor(Seconds(300));
    uint64_t resent = 0;
    for (const int i : world.Living()) {
      EXPECT_EQ(world.mixing(i).delivered(), kSteps) << "seed " << seed << " worker " << i;
      resent += world.mixing(i).power().resent;
    }
    EXPECT_GT(resent, 20u) << "seed " << seed;
    EXPECT_LT(world.Spread(), spread / 3) << "seed " << seed;
    EXPECT_NEAR(world.Mean(), mean, 1e-12) << "seed " << seed;
  }
}

// A view begins in the middle of steps, at some moment: a worker whose neighbours' frames are here
// ends its step, as they do. Messages take no time, so none is on its way right then.
TEST(PowerGossipTest, AViewInMidStepLeavesNothingAtOneEnd) {
  uint64_t moments = 0;
  for (const int iterations : {1, 3}) {
    for (int moment = 0; moment < 40; ++moment) {
      MixingWorldOptions options = PowerOptions(8, 0);
      options.config.mixing.iterations = static_cast<uint16_t>(iterations);
      options.delay = Nanoseconds(1);
      options.stagger = Milliseconds(1);
      MixingWorld world(options);
      for (int i = 0; i < 8; ++i) world.Add(i);
      world.MakeView();
      DrawParameters(world, 8);
      const double mean = world.Mean();
      world.RunFor(Milliseconds(100) + Microseconds(517) * moment);
      std::vector<uint64_t> steps;
      for (const int i : world.Living()) steps.push_back(world.mixing(i).delivered());
      moments += std::ranges::min(steps) != std::ranges::max(steps) ? 1 : 0;
      world.MakeView();
      world.Settle();
      EXPECT_NEAR(world.Mean(), mean, 1e-12) << iterations << " iterations, moment " << moment;
    }
  }
  EXPECT_GT(moments, 10U) << "all were at the same step";
}

// The workers of a ring by hand: at each step all project, then frames are carried, then all apply.
class LockStep {
 public:
  LockStep(const MixingWorld& world, std::vector<std::vector<double>> values)
      : values_(std::move(values)), edges_(values_.size()), regions_(2 * values_.size()) {
    const auto n = static_cast<uint32_t>(values_.size());
    neighbours_ = MakeGraph(GraphKind::kRing, n).value().Neighbours();
    const uint64_t elements = values_[0].size();
    frames_ = std::make_shared<const PowerFrames>(
        std::make_shared<const PowerLayout>(ViewsOfContract(elements), elements, 1), 0);
    for (size_t i = 0; i < n; ++i) {
      UsePowerEdges use{.self = world.id(static_cast<int>(i)), .ends = {}, .frames = frames_};
      for (size_t e = 0; e < 2; ++e) {
        regions_[2 * i + e].resize(frames_->RegionSize());
        const PeerId& peer = world.id(static_cast<int>(neighbours_[i][e]));
        use.ends.push_back({peer, ExtraRegion(e), 1.0 / 3});
      }
      ends_.push_back({use.ends[0].peer, use.ends[1].peer});
      Run(i, use);
    }
  }

  void Step() {
    ++step_;
    for (size_t i = 0; i < values_.size(); ++i) Run(i, ProjectPower{step_, Region::kInboxA});
    const Extent own = frames_->Own(step_), arriving = frames_->Arriving(step_);
    for (size_t i = 0; i < values_.size(); ++i) {
      for (size_t e = 0; e < 2; ++e) {
        const size_t from = neighbours_[i][e];
        const auto& theirs = regions_[2 * from + (neighbours_[from][0] == i ? 0 : 1)];
        std::copy_n(theirs.begin() + static_cast<ptrdiff_t>(own.begin), own.count,
                    regions_[2 * i + e].begin() + static_cast<ptrdiff_t>(arriving.begin));
      }
    }
    for (size_t i = 0; i < values_.size(); ++i)
      Run(i, ApplyPower{step_, Region::kInboxA, ends_[i]});
  }
  const std::vector<double>& Of(size_t worker) const { return values_[worker]; }

 private:
  void Run(size_t i, const PowerAction& action) {
    edges_[i].Run(action, [&](Region region, const Extent& e) {
      auto& all = IsExtra(region) ? regions_[2 * i + ExtraIndex(region)] : values_[i];
      return std::span(all).subspan(e.begin, e.count);
    });
  }

  std::vector<std::vector<double>> values_;
  std::vector<PowerEdges<double>> edges_;
  std::vector<std::vector<double>> regions_;  // two edges a worker
  std::vector<std::vector<PeerId>> ends_;
  std::vector<std::vector<uint32_t>> neighbours_;
  std::shared_ptr<const PowerFrames> frames_;
  uint64_t step_ = 0;
};

// Nobody waits for anybody but neighbours, and yet what each has after its k-th step is what the
// lock-step algorithm gives.
TEST(PowerGossipTest, IsTheLockStepAlgorithmWhateverTheTiming) {
  constexpr uint64_t kSteps = 20;
  MixingWorld world(PowerOptions(4, 0.05));
  for (int i = 0; i < 6; ++i) world.Add(i);
  world.MakeView();
  DrawParameters(world, 4);
  std::vector<std::vector<double>> values;
  for (const int i : world.Living()) values.push_back(world.parameters(i));
  LockStep by_hand(world, values);
  while (world.mixing(0).delivered() < kSteps) world.RunFor(Milliseconds(100));
  world.Settle();  // neighbours are a step apart at most
  std::vector<int> left = world.Living();
  for (uint64_t step = 0; !left.empty(); ++step) {
    ASSERT_LE(step, kSteps + 100);
    for (const int i : left) {
      if (world.mixing(i).delivered() != step) continue;
      EXPECT_GE(step, kSteps - 5);
      for (size_t v = 0; v < values[0].size(); ++v)
        ASSERT_NEAR(world.parameters(i)[v], by_hand.Of(static_cast<size_t>(i))[v], 1e-12)
            << "worker " << i << " step " << step;
    }
    std::erase_if(left, [&](int i) { return world.mixing(i).delivered() == step; });
    by_hand.Step();
  }
}

// A death in mid-step: its neighbours go on without it, and from then on the others keep their
// mean.
TEST(PowerGossipTest, ADeathCostsItsEdgesAndNothingElse) {
  for (const uint64_t seed : {5U, 6U, 7U}) {
    MixingWorld world(PowerOptions(seed, 0.02));
    for (int i = 0; i < 8; ++i) world.Add(i);
    world.MakeView();
    DrawParameters(world, seed);
    world.RunFor(Milliseconds(333));
    world.Kill(3);
    const auto stop_together = [&](uint64_t more) {
      uint64_t most = 0;
      for (const int i : world.Living()) most = std::max(most, world.mixing(i).delivered());
      world.StopAfter(most + more);
      world.RunFor(Seconds(120));
      for (const int i : world.Living())
        EXPECT_EQ(world.mixing(i).delivered(), most + more) << "seed " << seed << " worker " << i;
    };
    stop_together(5);
    const double mean = world.Mean(), spread = world.Spread();
    stop_together(60);  // a chain of seven
    EXPECT_NEAR(world.Mean(), mean, 1e-12) << "seed " << seed;
    EXPECT_LT(world.Spread(), spread) << "seed " << seed;
    uint64_t one_sided = 0;
    for (const int i : world.Living()) one_sided += world.mixing(i).power().one_sided;
    EXPECT_LE(one_sided, 2u) << "seed " << seed;
  }
}

}  // namespace
}  // namespace crowdsurf::worker
