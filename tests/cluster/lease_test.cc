// Leader election against a real API server, with short times.
#include "operator/edge/lease.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <functional>

#include "operator/edge/kubeconfig.h"

namespace crowdsurf::controller {
namespace {

struct Candidate {
  Candidate(const KubeEndpoint& endpoint, const std::string& lease, const std::string& who)
      : client(endpoint, {}),
        election(client,
                 {.space = "default",
                  .name = lease,
                  .identity = who,
                  .duration = Seconds(3),
                  .renew_deadline = Seconds(2),
                  .retry = Milliseconds(200)},
                 Logger(), metrics) {}
  MetricRegistry metrics;
  KubeClient client;
  Lease election;
};

bool Within(double seconds, const std::function<bool()>& holds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > until) return false;
    // A pause between two looks at another thread's state, which has no event; bounded by `until`.
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
  ASSERT_TRUE(Within(10, [&] { return a.election.leading(); }));
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

}  // namespace
}  // namespace crowdsurf::controller
