// Metrics of mixing, against totals that the tests count up themselves.
#include "worker/core/port/mixing_metrics.h"

#include <gtest/gtest.h>

#include <string>

namespace crowdsurf::worker {
namespace {

// The cores count from their start; a metric gets what came since it looked last, once.
TEST(MixingMetricsTest, AMetricIsTheSumOfWhatGrew) {
  MetricRegistry registry;
  MixingMetrics metrics(registry);
  PairExchange::Counters pairs;
  EdgeMailbox::Counters edges;
  uint64_t foreign = 0;
  for (int i = 0; i < 3; ++i) {
    pairs.committed += 2;
    pairs.aborted += 5;
    pairs.one_sided += 1;
    pairs.skipped += 3;
    pairs.resent += 8;
    pairs.repeated += 6;
    pairs.strange += 7;
    edges.strange += 1;
    edges.taken += 11;
    edges.stale += 9;
    foreign += 13;
    metrics.Count(pairs, edges, foreign);
    metrics.Count(pairs, edges, foreign);  // nothing new
  }
  const auto outcome = [&](const char* how) {
    return registry.Value("crowdsurf_mix_exchanges_total", {{"outcome", how}});
  };
  const auto fate = [&](const char* how) {
    return registry.Value("crowdsurf_mix_chunks_total", {{"fate", how}});
  };
  EXPECT_EQ(outcome("committed"), 6);
  EXPECT_EQ(outcome("aborted"), 15);
  EXPECT_EQ(outcome("one_sided"), 3);
  EXPECT_EQ(outcome("skipped"), 9);
  EXPECT_EQ(registry.Value("crowdsurf_mix_frames_resent_total"), 24);
  EXPECT_EQ(fate("repeated"), 18);
  EXPECT_EQ(fate("strange"), 24);
  EXPECT_EQ(fate("taken"), 33);
  EXPECT_EQ(fate("stale"), 27);
  EXPECT_EQ(fate("other_view"), 39);
}

TEST(MixingMetricsTest, FramesOfFactorsCountBesideTheOthers) {
  MetricRegistry registry;
  MixingMetrics metrics(registry);
  PowerExchange::Counters power;
  for (int i = 0; i < 3; ++i) {
    power.taken += 4;
    power.resent += 2;
    power.cut += 1;
    power.one_sided += 5;
    metrics.Count(power);
  }
  EXPECT_EQ(registry.Value("crowdsurf_mix_chunks_total", {{"fate", "taken"}}), 12);
  EXPECT_EQ(registry.Value("crowdsurf_mix_frames_resent_total"), 6);
  EXPECT_EQ(registry.Value("crowdsurf_mix_edges_cut_total"), 3);
  EXPECT_EQ(registry.Value("crowdsurf_mix_one_sided_total"), 15);
}

}  // namespace
}  // namespace crowdsurf::worker
