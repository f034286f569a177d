// When a job counts as one that trains in two lineages.
#include "operator/core/pods/lineage_watch.h"

#include <gtest/gtest.h>

namespace crowdsurf::controller {
namespace {

class LineageWatchTest : public testing::Test {
 protected:
  // The worker is of `own` and sees `seen` besides, for so many looks a second apart; the last.
  int See(int seconds, const std::vector<std::pair<std::string, std::string>>& workers,
          const std::vector<std::string>& seen = {}) {
    int count = 0;
    for (int i = 0; i < seconds; ++i) {
      now_ = now_ + Seconds(1);
      for (const auto& [worker, own] : workers) {
        AgentSummary summary;
        summary.view = SummaryView{};
        summary.view->lineage = own;
        summary.lineages = seen;
        watch_.See(now_, worker, summary);
      }
      count = watch_.Look(now_);
    }
    return count;
  }
  WallTime now_ = WallTime::FromNanoseconds(1'700'000'000'000'000'000);
  LineageWatch watch_{Seconds(2.5)};
};

TEST_F(LineageWatchTest, OneLineageIsOneAndNobodyNone) {
  EXPECT_EQ(watch_.Look(now_), 0);
  EXPECT_EQ(See(100, {{"a", "x"}, {"b", "x"}}, {"x"}), 1);
}

TEST_F(LineageWatchTest, WorkersThatSeeNobodyElseAreComparedWithEachOther) {
  EXPECT_EQ(See(10, {{"a", "x"}, {"b", "x"}, {"c", "y"}}), 1) << "lines that meet merge";
  EXPECT_EQ(See(1, {{"a", "x"}, {"b", "x"}, {"c", "y"}}), 2);
  EXPECT_EQ(See(1, {{"a", "x"}, {"b", "z"}, {"c", "y"}}), 3);
  EXPECT_EQ(See(1, {{"a", "x"}, {"b", "x"}, {"c", "x"}}), 1);
  EXPECT_EQ(See(10, {{"a", "x"}, {"c", "y"}}), 1) << "apart anew: the time begins anew";
}

TEST_F(LineageWatchTest, OneWorkerThatSeesTwoIsEnough) {
  EXPECT_EQ(See(11, {{"a", "x"}}, {"x", "y"}), 2);
}

TEST_F(LineageWatchTest, WhoSaysNothingAnyMoreDoesNotCount) {
  EXPECT_EQ(See(11, {{"a", "x"}, {"b", "y"}}), 2);
  EXPECT_EQ(See(2, {{"a", "x"}}), 2) << "it may be busy";
  EXPECT_EQ(See(1, {{"a", "x"}}), 1);
  EXPECT_EQ(See(11, {{"a", "x"}, {"b", "y"}}), 2);
  watch_.Forget("b");
  EXPECT_EQ(watch_.Look(now_), 1);
}

TEST_F(LineageWatchTest, WhoHasNoViewIsOfNoLineage) {
  watch_.See(now_, "a", AgentSummary());
  EXPECT_EQ(watch_.Look(now_), 0);
}

TEST_F(LineageWatchTest, WorkersAreBounded) {
  AgentSummary summary;
  LineageWatch fresh(Seconds(60));
  for (size_t i = 0; i < 2 * LineageWatch::kMostWorkers; ++i) {
    summary.lineages = {std::to_string(i)};
    fresh.See(now_, std::to_string(i), summary);
  }
  fresh.Look(now_);
  EXPECT_EQ(fresh.Look(now_ + LineageWatch::kSettled),
            static_cast<int>(LineageWatch::kMostWorkers));
}

}  // namespace
}  // namespace crowdsurf::controller
