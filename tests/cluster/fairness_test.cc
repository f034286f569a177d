// One big job beside many small ones, at a real API server without nodes. Durations are printed;
// what fails the test is a job that never gets its pods, or a deleted one that gets more.
#include "tests/cluster/operator_fixture.h"

namespace crowdsurf::controller {
namespace {

constexpr int kBig = 3000, kSmallJobs = 20;
constexpr int64_t kSmall = 2;

class FairnessTest : public OperatorTest {
 protected:
  void Make(const std::string& name, int replicas) {
    Json job = Job(replicas);
    job["metadata"]["name"] = name;
    const auto made = client_->Create(jobs_, job);
    ASSERT_TRUE(made.ok()) << made.status();
  }
  // Without reading them all.
  int64_t CountPods() {
    const auto page = client_->Get(core_ + "pods?limit=1");
    if (!page.ok() || (*page)["items"].empty()) return 0;
    return 1 + (*page)["metadata"].value("remainingItemCount", int64_t{0});
  }
  size_t CountSmall() {
    const auto pods = client_->List(core_ + "pods?labelSelector=crowdsurf.io/job-name!=big");
    return pods.ok() ? pods->items.size() : 0;
  }
};

TEST_F(FairnessTest, ABigJobHoldsUpNoOthersAndEndsWhenItIsDeleted) {
  StartOperator();
  Make("big", kBig);
  Eventually("the first pod of a job of 3,000", [&] { return CountPods() > 0; });
  for (int i = 0; i < kSmallJobs; ++i) Make(absl::StrCat("small-", i), kSmall);
  Eventually("the pods of 20 jobs of 2", [&] { return CountSmall() == kSmallJobs * kSmall; });
  const int64_t begun = CountPods();
  const auto at = std::chrono::steady_clock::now();
  Eventually("1,000 more pods",
             [&] { return CountPods() >= std::min<int64_t>(begun + 1000, kBig); });
  const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - at).count();
  std::cout << static_cast<double>(CountPods() - begun) / took << " pods a second\n";
  ASSERT_TRUE(client_->Delete(jobs_ + "/big").ok());
  // Nobody collects garbage here, so what is there stays; what comes after it is made by us.
  const auto deleted = std::chrono::steady_clock::now();
  auto changed = deleted;
  int64_t count = CountPods();
  Eventually("a second without new pods", [&] {  // while those there are collected
    const auto now = std::chrono::steady_clock::now();
    if (const int64_t seen = CountPods(); seen > std::exchange(count, seen)) changed = now;
    return now - changed > std::chrono::seconds(1);
  });
  const double creating = std::chrono::duration<double>(changed - deleted).count();
  std::cout << "pods for " << creating << " s after their job was deleted\n";
  EXPECT_LT(creating, 5);
}

}  // namespace
}  // namespace crowdsurf::controller
