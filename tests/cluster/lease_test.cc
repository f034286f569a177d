// Leader election against a real API server, with short times.
#include "operator/edge/kube/lease.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <functional>

#include "operator/edge/kube/kubeconfig.h"

namespace crowdsurf::controller {
namespace {

struct Candidate {
  Candidate(const KubeEndpoint& endpoint, const std::string& lease, const std::string& who,
            Duration duration = Seconds(3), Duration retry = Milliseconds(200))
      : client(endpoint, {}),
        watch_client(endpoint, {}),
        election(client, watch_client,
                 {.space = "default",
                  .name = lease,
                  .identity = who,
                  .duration = duration,
                  .renew_deadline = duration - Seconds(1),
                  .retry = retry},
                 Logger(), metrics) {}
  MetricRegistry metrics;
  KubeClient client, watch_client;
  Lease election;
};

bool Within(double seconds, const std::function<bool()>& holds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > until) return false;
    // An election tells nobody that it leads: its flag is looked at again, until `until`.
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

TEST(LeaseTest, OneLeadsGivesBackAndAnotherTakesOverAtOnceOrAfterItsDeath) {
  signal(SIGPIPE, SIG_IGN);
  const auto endpoint = LoadDefaultKubeEndpoint();
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  const std::string name = absl::StrCat("lease-test-", getpid());
  Candidate a(*endpoint, name, "a"), b(*endpoint, name, "b"), c(*endpoint, name, "c");
  a.election.Start();
  ASSERT_TRUE(Within(30, [&] { return a.election.leading(); }));
  b.election.Start();
  EXPECT_FALSE(Within(4, [&] { return b.election.leading(); })) << "two lead";
  EXPECT_TRUE(a.election.leading());
  a.election.Stop();
  EXPECT_TRUE(Within(3, [&] { return b.election.leading(); })) << "it was given back";
  c.election.Start();
  b.client.Stop();  // cut off: it neither renews nor gives back
  EXPECT_TRUE(Within(10, [&] { return c.election.leading(); }));
  EXPECT_FALSE(b.election.leading());
  c.election.Stop();
  (void)a.client.Delete("/apis/coordination.k8s.io/v1/namespaces/default/leases/" + name);
}

// It asks every minute and believes a silent holder for two: only the watch can be that fast.
// pod-lifecycle 8.6
TEST(LeaseTest, AFollowerTakesALeaseThatIsGivenBackOrDeletedAtOnceByItsWatch) {
  signal(SIGPIPE, SIG_IGN);
  const auto endpoint = LoadDefaultKubeEndpoint();
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  const std::string name = absl::StrCat("lease-watch-test-", getpid());
  const Duration patience = Seconds(120), asks = Seconds(60);
  Candidate a(*endpoint, name, "a", patience, asks), b(*endpoint, name, "b", patience, asks);
  a.election.Start();
  ASSERT_TRUE(Within(30, [&] { return a.election.leading(); }));
  b.election.Start();
  ASSERT_TRUE(Within(30, [&] { return b.election.watching(); }));
  EXPECT_FALSE(b.election.leading()) << "two lead";
  a.election.Stop();
  EXPECT_TRUE(Within(5, [&] { return b.election.leading(); })) << "it was given back";
  Candidate c(*endpoint, name, "c", patience, asks);
  c.election.Start();
  // A watch that begins after the deletion hears nothing of it.
  ASSERT_TRUE(Within(30, [&] { return c.election.watching(); }));
  EXPECT_FALSE(c.election.leading()) << "two lead";
  b.client.Stop();  // it cannot renew, and nobody has given anything back
  KubeClient other(*endpoint, {});
  const std::string path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/" + name;
  ASSERT_TRUE(other.Delete(path).ok());
  EXPECT_TRUE(Within(5, [&] { return c.election.leading(); })) << "it was deleted";
  c.election.Stop();
  (void)other.Delete(path);
}

}  // namespace
}  // namespace crowdsurf::controller
