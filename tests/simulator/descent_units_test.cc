// Descents of jobs with IST: trainers are dealt units, train these alone, and their models meet.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "simulator/descent/descent.h"

namespace crowdsurf::simulator {
namespace {

constexpr uint64_t kSeed = 31;
constexpr int kMembers = 4;
constexpr uint32_t kUnits = 8, kGroup = 1;

using Dealt = std::vector<std::vector<uint32_t>>;  // the units of each deal, in order

// One parameter a unit, each pulled to its own number.
class UnitModel : public DescentModel {
 public:
  explicit UnitModel(Dealt& dealt) : dealt_(dealt) {}
  size_t elements() const override { return kUnits; }
  void Start(std::span<float> x) const override { std::fill(x.begin(), x.end(), 0.0F); }
  void TrainUnits(const worker::IndexSets& sets) override {
    active_ = sets.contains(kGroup) ? sets.at(kGroup) : All();
    dealt_.push_back(active_);
  }
  double step_share() const override { return static_cast<double>(active_.size()) / kUnits; }
  void Step(double, std::span<float> x) override {
    for (const uint32_t unit : active_) x[unit] += (static_cast<float>(unit) - x[unit]) / 2;
  }

 private:
  static std::vector<uint32_t> All() {
    std::vector<uint32_t> all(kUnits);
    for (uint32_t unit = 0; unit < kUnits; ++unit) all[unit] = unit;
    return all;
  }
  Dealt& dealt_;
  std::vector<uint32_t> active_ = All();
};

struct UnitJob {
  std::vector<Dealt> dealt = std::vector<Dealt>(kMembers);
  std::vector<std::vector<float>> models;  // as their last averages left them
  uint64_t steps = 0;
};

UnitJob RunUnits(worker::StrategyKind strategy) {
  UnitJob job;
  DescentOptions options;
  options.averaging = DescentAveraging(strategy, worker::GraphKind::kComplete);
  options.averaging.interval = 4;
  options.units =
      worker::UnitSchema::Of({{"weights", {kUnits}, {{.axis = 0, .group = kGroup}}}}).value();
  options.members = kMembers;
  options.deaths = {};
  options.victims = {};
  options.joins = {};
  options.seed = kSeed;
  options.end = Seconds(4);
  options.look_every = Seconds(4) - Milliseconds(1);
  options.worker = [&](int node) {
    return DescentWorker{std::make_unique<UnitModel>(job.dealt[static_cast<size_t>(node)]),
                         Milliseconds(20)};
  };
  options.on_look = [&](const DescentLook& look) {
    job.steps = look.steps;
    for (const auto& worker : look.living)
      job.models.emplace_back(worker.averaged.begin(), worker.averaged.end());
  };
  EXPECT_TRUE(RunDescent(options).together);
  return job;
}

TEST(DescentUnits, EachDealIsAPartitionAndAllUnitsAreLearnt) {
  const UnitJob job = RunUnits(worker::StrategyKind::kIst);
  ASSERT_GE(job.dealt[0].size(), 20U);
  std::set<std::vector<uint32_t>> of_first;
  for (size_t deal = 0; deal + 1 < job.dealt[0].size(); ++deal) {
    std::set<uint32_t> units;
    for (const Dealt& dealt : job.dealt) {
      ASSERT_GT(dealt.size(), deal);
      EXPECT_EQ(dealt[deal].size(), kUnits / kMembers);
      units.insert(dealt[deal].begin(), dealt[deal].end());
    }
    EXPECT_EQ(units.size(), kUnits) << "deal " << deal;
    of_first.insert(job.dealt[0][deal]);
  }
  EXPECT_GT(of_first.size(), 5U);  // dealt anew
  ASSERT_EQ(job.models.size(), static_cast<size_t>(kMembers));
  // A snapshot of other units than it says would leave the base's values: nothing would be learnt.
  for (const std::vector<float>& model : job.models)
    for (uint32_t unit = 0; unit < kUnits; ++unit)
      EXPECT_NEAR(model[unit], static_cast<float>(unit), 1e-3F);
}

TEST(DescentUnits, AStepOfFewerUnitsTakesLessTime) {
  const UnitJob subnets = RunUnits(worker::StrategyKind::kIst);
  const UnitJob whole = RunUnits(worker::StrategyKind::kAllReduce);
  EXPECT_TRUE(whole.dealt[0].empty());
  // A quarter of the time, and the averagings between.
  EXPECT_GT(subnets.steps, 2 * whole.steps);
  EXPECT_LT(subnets.steps, 4 * whole.steps);
}

}  // namespace
}  // namespace crowdsurf::simulator
