// Jobs that send changes as Int8: real peers in virtual time, while workers die and join.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "simulator/descent/descent.h"

namespace crowdsurf::simulator {
namespace {

// Eight workers; one dies every quarter of a second, mostly in a round, and another comes for it.
DescentOptions OptionsOf(worker::StrategyKind strategy, uint64_t seed) {
  DescentOptions options;
  options.averaging = DescentAveraging(strategy, worker::GraphKind::kComplete);
  options.averaging.group_size = 8;
  options.averaging.compression = worker::WireFormat::kInt8;
  options.members = 8;
  options.dimensions = 2500;  // three blocks: several members reduce
  options.chunk_elements = 1024;
  options.links.mean_extra_delay = Milliseconds(5);
  options.seed = seed;
  options.victims = {};
  options.deaths = options.joins = {};
  for (double at = 1; at < 5; at += 0.25) {
    options.deaths.push_back(Seconds(at));
    options.joins.push_back(Seconds(at + 0.05));
  }
  options.end = Seconds(6);
  return options;
}

struct Averages {
  std::set<worker::AveragingId> unequal, of_changes;
  size_t given = 0, fetched = 0;
};

// Averagings that two workers ended, or fetched, with different bits.
Averages Compare(const DescentResult& run) {
  Averages all;
  std::map<worker::AveragingId, std::vector<float>> first;
  const auto compare = [&](worker::AveragingId averaging, const std::vector<float>& average) {
    if (first.emplace(averaging, average).first->second != average) all.unequal.insert(averaging);
  };
  for (const auto& worker : run.averages) {
    for (const auto& [averaging, average] : worker) {
      if (average.changes) all.of_changes.insert(averaging);
      if (!average.result.empty()) ++all.given, compare(averaging, average.result);
      if (!average.fetched.empty()) ++all.fetched, compare(averaging, average.fetched);
    }
  }
  return all;
}

TEST(Int8Test, AllMembersHaveTheSameBitsWhileWorkersDie) {
  for (const auto strategy : {worker::StrategyKind::kMoshpit, worker::StrategyKind::kAllReduce}) {
    for (const uint64_t seed : {1, 2, 3}) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      const DescentResult run = RunDescent(OptionsOf(strategy, seed));
      const Averages all = Compare(run);
      EXPECT_EQ(all.unequal.size(), 0U);
      EXPECT_GE(all.of_changes.size(), 20U);
      EXPECT_GE(all.given, 200U);
      EXPECT_EQ(run.survivors, 8) << run.words;
    }
  }
}

// A worker that missed an averaging has its base to the bit, but its trainer was given another
// value: its own change since is in that.
TEST(Int8Test, AMovedTrainerHasNoAverageOfTheJob) {
  size_t fetched = 0;
  for (const uint64_t seed : {1, 2, 3, 4}) {
    const Averages all = Compare(RunDescent(OptionsOf(worker::StrategyKind::kMoshpit, seed)));
    EXPECT_EQ(all.unequal.size(), 0U) << seed;
    fetched += all.fetched;
  }
  EXPECT_GE(fetched, 1U);
}

// Why Int8 needs one group: where two groups of the last axis lose different members, an averaging
// ends with another mean in each of them. Whole values bear that, a base does not.
TEST(Int8Test, GroupsOfOneGridMayEndAnAveragingWithDifferentMeans) {
  size_t unequal = 0;
  for (const uint64_t seed : {1, 2, 3, 4}) {
    DescentOptions options = OptionsOf(worker::StrategyKind::kMoshpit, seed);
    options.averaging.group_size = 4;
    options.averaging.compression = worker::WireFormat::kFloat32;
    unequal += Compare(RunDescent(options)).unequal.size();
  }
  EXPECT_GE(unequal, 1U);
}

}  // namespace
}  // namespace crowdsurf::simulator
