#include "operator/core/pods/order_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crowdsurf::controller {
namespace {

TEST(OrderWatchTest, TwoWorkersThatDrawTheSameBatchesAreSaidOnceAJob) {
  OrderWatch watch;
  EXPECT_EQ(watch.See("job-0-1", 0, "aa"), std::nullopt);
  EXPECT_EQ(watch.See("job-1-1", 1, "bb"), std::nullopt);
  const auto words = watch.See("job-2-1", 2, "aa");
  ASSERT_TRUE(words.has_value());
  EXPECT_THAT(*words,
              testing::StartsWith("trains on the same batches in the same order as job-0-1:"));
  EXPECT_EQ(watch.See("job-3-1", 3, "bb"), std::nullopt) << "the script's fault is said";
}

TEST(OrderWatchTest, AWorkerIsNotComparedWithTheOneThatItReplaces) {
  OrderWatch watch;
  EXPECT_EQ(watch.See("job-0-1", 0, "aa"), std::nullopt);
  EXPECT_EQ(watch.See("job-0-2", 0, "aa"), std::nullopt);
  EXPECT_EQ(watch.See("job-0-2", 0, "aa"), std::nullopt);
}

TEST(OrderWatchTest, WhoHasGoneOrSaysNothingIsComparedWithNobody) {
  OrderWatch watch;
  EXPECT_EQ(watch.See("job-0-1", 0, "aa"), std::nullopt);
  watch.Retain({"job-1-1"});
  EXPECT_EQ(watch.See("job-1-1", 1, "aa"), std::nullopt);
  EXPECT_EQ(watch.See("job-2-1", 2, ""), std::nullopt);
  EXPECT_EQ(watch.See("job-3-1", 3, ""), std::nullopt);
}

}  // namespace
}  // namespace crowdsurf::controller
