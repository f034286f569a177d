// The link's page is enough to write a client from: a small numpy trainer against the real server.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "tests/unit/worker_edge/link/link_fixture.h"

namespace crowdsurf::worker {
namespace {

struct LinkNumpy : LinkFixture {
  // Starts the client; its standard output is `out`.
  pid_t StartClient(int& out) {
    int ends[2];
    if (pipe(ends) != 0) abort();
    const pid_t pid = fork();
    if (pid == 0) {
      dup2(ends[1], 1);
      close(ends[0]);
      execl("/usr/bin/python3", "/usr/bin/python3", "tests/link/numpy_client.py", dir_.c_str(),
            "100000", nullptr);
      _exit(127);
    }
    close(ends[1]);
    out = ends[0];
    return pid;
  }
};

TEST_F(LinkNumpy, AThirtyLineClientTrainsAveragesAdoptsAndStops) {
  if (system("/usr/bin/python3 -c 'import numpy' 2>/dev/null") != 0) {
    GTEST_SKIP() << "needs /usr/bin/python3 with numpy (Debian: python3-numpy)";
  }
  StartServer();
  int out = -1;
  const pid_t pid = StartClient(out);
  const auto registered = Expect<link::TrainerRegistered>();
  ASSERT_EQ(registered.elements, 32u);
  EXPECT_TRUE(registered.fresh);
  // It joins with the job's parameters, all 3, which is where its own training leads: they stay 3.
  std::fill(server_->inbox(0).begin(), server_->inbox(0).end(), 3.0f);
  server_->OfferAdoption(0, 4, std::nullopt);
  Expect<link::Adopted>();
  // Its snapshot, 3, is averaged with a peer that has 5: the mean is 4, and the change is +1.
  server_->RequestPublish(5);
  const auto published = Expect<link::Published>();
  EXPECT_EQ(published.number, 5u);
  EXPECT_GT(published.steps, 0u);
  EXPECT_EQ(published.samples, 8 * published.steps);
  for (size_t i = 0; i < 32; ++i) {
    ASSERT_NEAR(server_->outbox()[i], 3.0f, 1e-3);
    server_->inbox(1)[i] = (server_->outbox()[i] + 5.0f) / 2;
  }
  server_->Deliver(5, 1);
  EXPECT_EQ(Expect<link::Applied>().number, 5u);
  // The next snapshot shows that the change went in: above 3, on its way back there.
  server_->RequestPublish(6);
  Expect<link::Published>();
  EXPECT_GT(server_->outbox()[0], 3.0f);
  EXPECT_LE(server_->outbox()[0], 4.0f);
  server_->ReleaseOutbox(6);
  EXPECT_LT(server_->counters().loss, 1.1);
  server_->RaiseStop();
  Expect<link::StopAcknowledged>();
  Expect<link::TrainerGone>();
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
  char text[100] = {};
  EXPECT_GT(read(out, text, sizeof text - 1), 0);
  EXPECT_THAT(text, testing::StartsWith("mean "));
  close(out);
}

}  // namespace
}  // namespace crowdsurf::worker
