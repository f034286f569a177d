#include "operator/core/decide/outages.h"

#include <gtest/gtest.h>

// A killed trainer whose kubelet could not say so for an outage's sake is a failure, not a lost
// machine (cluster test 06 has the real thing).
namespace crowdsurf::controller {
namespace {

Time At(double seconds) { return Time::FromNanoseconds(1'000'000'000) + Seconds(seconds); }

TEST(OutagesTest, LingersUntilKubeletsAreBack) {
  Outages outages;
  outages.Answered(At(0));
  EXPECT_FALSE(outages.Linger(At(1)));
  outages.Unanswered(At(2));
  EXPECT_FALSE(outages.Linger(At(6.9)));
  EXPECT_TRUE(outages.Linger(At(7))) << "it is away still";
  outages.Unanswered(At(15));
  outages.Answered(At(22));
  EXPECT_TRUE(outages.Linger(At(22)));
  EXPECT_TRUE(outages.Linger(At(81.9))) << "kubelets take up to 43 s";
  EXPECT_FALSE(outages.Linger(At(82)));
}

TEST(OutagesTest, ARestartOfTheServerIsNone) {
  Outages outages;
  outages.Answered(At(0));
  outages.Unanswered(At(1));
  outages.Answered(At(5.9));
  EXPECT_FALSE(outages.Linger(At(5.9)));
  EXPECT_FALSE(outages.Linger(At(20))) << "time without a request is not silence";
}

TEST(OutagesTest, ASlowRequestAmongAnsweredOnesIsNone) {
  Outages outages;
  outages.Answered(At(4));
  outages.Unanswered(At(3));
  EXPECT_FALSE(outages.Linger(At(60)));
}

TEST(OutagesTest, ARequestThatHangsCountsFromItsBeginning) {
  Outages outages;
  outages.Answered(At(0));
  outages.Unanswered(At(1));  // a frozen server: told at 11, when its time was over
  EXPECT_TRUE(outages.Linger(At(11)));
  outages.Answered(At(12));
  EXPECT_TRUE(outages.Linger(At(71)));
}

TEST(OutagesTest, AnOperatorThatStartsInAnOutageSeesItsEnd) {
  Outages outages;
  EXPECT_FALSE(outages.Linger(At(0)));
  outages.Unanswered(At(0));
  outages.Answered(At(30));
  EXPECT_TRUE(outages.Linger(At(31)));
}

}  // namespace
}  // namespace crowdsurf::controller
