// How a job's status gets to the API server when others change the object too.
#include <gtest/gtest.h>

#include "operator/edge/kube/kube_cluster.h"
#include "tests/unit/operator_edge/living_cluster.h"

namespace crowdsurf::controller {
namespace {

class StatusWriteTest : public LivingCluster {};

TEST_F(StatusWriteTest, ALabelOnTheJobDoesNotFreezeItsStatus) {
  Start();
  JobSnapshot before = Observe();
  api_.Change("trainingjobs", "team/crowd", {{"metadata", {{"labels", {{"team", "x"}}}}}});
  AwaitVersion();
  before.status.failures = 1;
  EXPECT_EQ(cluster_->WriteStatus(before.job, before.status), absl::OkStatus());
  EXPECT_EQ(Shown()["failures"]["total"], 1);
}

// The label comes between the last look at the job and the write.
TEST_F(StatusWriteTest, AConflictOverALabelIsWrittenAgainUponTheNewestVersion) {
  Start();
  JobSnapshot before = Observe();
  api_.Change("trainingjobs", "team/crowd", {{"metadata", {{"labels", {{"team", "x"}}}}}});
  before.status.failures = 1;
  EXPECT_EQ(cluster_->WriteStatus(before.job, before.status), absl::OkStatus());
  EXPECT_EQ(Shown()["failures"]["total"], 1);
}

TEST_F(StatusWriteTest, AConflictOverTheStatusIsDecidedAnew) {
  Start();
  JobSnapshot before = Observe();
  api_.Change("trainingjobs", "team/crowd", {{"status", {{"failures", {{"total", 7}}}}}});
  before.status.failures = 1;
  EXPECT_TRUE(absl::IsAborted(cluster_->WriteStatus(before.job, before.status)));
  EXPECT_EQ(Observe().status.failures, 7u);
  EXPECT_TRUE(Touched().contains("team/crowd"));
}

}  // namespace
}  // namespace crowdsurf::controller
