// Jobs that average gradients: real peers in virtual time, beside gradient descent in double.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "simulator/descent/descent.h"

namespace crowdsurf::simulator {
namespace {

DescentOptions OptionsOf(uint64_t seed) {
  DescentOptions options;
  options.averaging.strategy = worker::StrategyKind::kAllReduce;
  options.averaging.compression = worker::WireFormat::kFloat32;
  options.averaging.overlap = worker::Overlap::kBlocking;
  options.averaging.global_batch = 64;  // a batch has four samples
  options.members = 6;
  options.seed = seed;
  options.deaths = {};
  options.joins = {};
  return options;
}

// Steps after which two workers that took them had different parameters; and how many there were.
std::pair<size_t, size_t> UnequalSteps(const DescentResult& run) {
  std::map<worker::AveragingId, std::vector<float>> models;
  std::set<worker::AveragingId> unequal;
  for (const auto& worker : run.averages) {
    for (const auto& [averaging, average] : worker) {
      if (average.model.empty()) continue;
      if (average.model != models.emplace(averaging, average.model).first->second)
        unequal.insert(averaging);
    }
  }
  return {unequal.size(), models.size()};
}

// Equal to the bit after every step, and at the end at the optimum of those that are left.
void ExpectEqualBits(const DescentResult& run, int survivors) {
  EXPECT_TRUE(run.together) << run.words;
  EXPECT_EQ(run.survivors, survivors);
  EXPECT_LE(run.distance, 1e-5) << run.words;
  const auto [unequal, steps] = UnequalSteps(run);
  EXPECT_EQ(unequal, 0U);
  EXPECT_GE(steps, 50U);
}

// The weighted mean of gradients of shares is the gradient of the large batch: step by step the
// job's parameters are those of one loop in double over all losses, each with its samples.
TEST(GradientsTest, TheWeightedMeanStepIsThatOfTheLargeBatch) {
  for (const uint64_t seed : {1, 2, 3}) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const DescentOptions options = OptionsOf(seed);
    const DescentResult run = RunDescent(options);
    ExpectEqualBits(run, 6);
    std::vector<double> x(options.dimensions, 0);
    size_t steps = 0, full = 0;
    for (const auto& [averaging, average] : run.averages.front()) {
      if (average.result.empty()) continue;
      std::vector<double> gradient(x.size(), 0);
      double samples = 0;
      for (size_t worker = 0; worker < run.losses.size(); ++worker) {
        const auto own = run.averages[worker].find(averaging);
        if (own == run.averages[worker].end() || own->second.result.empty()) continue;
        const auto weight = static_cast<double>(own->second.gathered);
        samples += weight;
        const Quadratic& loss = run.losses[worker];
        for (size_t k = 0; k < x.size(); ++k)
          gradient[k] += weight * loss.h[k] * (x[k] - loss.c[k]);
      }
      full += samples >= 64;
      for (size_t k = 0; k < x.size(); ++k) {
        gradient[k] /= samples;
        EXPECT_NEAR(static_cast<double>(average.result[k]), gradient[k], 1e-5);
        x[k] -= options.learning_rate * gradient[k];
      }
      ++steps;
    }
    EXPECT_GE(steps, 50U);
    // While the workers begin, one after the other, not all know of all.
    EXPECT_GE(full + 6, steps) << "a step has the global batch";
  }
}

// The steward dies, another member too, and two join: those that are left and those that came stand
// at the optimum of their losses, at equal parameters.
TEST(GradientsTest, WorkersComeAndGo) {
  for (const uint64_t seed : {1, 2, 3, 4}) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    DescentOptions options = OptionsOf(seed);
    options.deaths = {Seconds(1.5), Seconds(2.2)};
    options.joins = {Seconds(2), Seconds(3)};
    options.end = Seconds(20);
    ExpectEqualBits(RunDescent(options), 6);
  }
}

// A worker whose optimizer does something else is seen, and takes the others' state each time.
TEST(GradientsTest, AWorkerThatStepsTwiceTurnsTheCheckerRed) {
  DescentOptions options = OptionsOf(6);
  options.plant_second_step = true;
  const DescentResult run = RunDescent(options);
  EXPECT_GE(UnequalSteps(run).first, 10U) << run.words;
}

// A lost message is no lost step: frames travel on links that drop nothing here, so a worker that
// is cut off for good is what is tried. The others go on without its share.
TEST(GradientsTest, AWorkerThatIsCutOffDoesNotHoldTheOthers) {
  DescentOptions options = OptionsOf(5);
  options.plant_alone = true;  // worker 1, from the first second on
  options.end = Seconds(10);
  const DescentResult run = RunDescent(options);
  size_t late = 0;
  for (const auto& [averaging, average] : run.averages.front()) late += !average.result.empty();
  EXPECT_GE(late, 50U) << run.words;
}

}  // namespace
}  // namespace crowdsurf::simulator
