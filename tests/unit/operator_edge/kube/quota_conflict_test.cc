// Parallel creates upon one ResourceQuota: an API server may answer 409 Conflict to some of them.
#include <atomic>

#include "tests/unit/operator_edge/living_cluster.h"

namespace crowdsurf::controller {
namespace {

class QuotaConflictTest : public LivingCluster {
 protected:
  // The first `conflicts` creates of pods are answered so.
  void Conflict(int conflicts) {
    api_.Intercept([this, conflicts](const std::string& method,
                                     const std::string& path) -> std::optional<int> {
      if (method != "POST" || !path.ends_with("/pods")) return std::nullopt;
      return ++creates_ <= conflicts ? std::optional(409) : std::nullopt;
    });
  }
  Status Create() {
    CreatePod create;
    create.name = "crowd-0-1";
    create.incarnation = 1;
    create.config = "{}";
    create.reason = reason::kFirstWorker;
    return cluster_->Create(cluster_->Observe(kJob)->job, create);
  }
  std::atomic<int> creates_{0};
};

TEST_F(QuotaConflictTest, IsTriedAgainAtOnceUnderTheSameName) {
  Start();
  Conflict(2);
  EXPECT_TRUE(Create().ok());
  EXPECT_EQ(creates_, 3);
  EXPECT_EQ(api_.Keys("pods"), std::vector<std::string>{"team/crowd-0-1"});
}

TEST_F(QuotaConflictTest, IsLeftToTheNextTurnWhereItGoesOn) {
  Start();
  Conflict(1000);
  EXPECT_TRUE(absl::IsAborted(Create()));
  EXPECT_EQ(creates_, 5);
}

}  // namespace
}  // namespace crowdsurf::controller
