// What waits for a socket ends when its time is over, also when nothing was watched for a while.
#include "operator/edge/kube/socket_deadlines.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>

#include "tests/support/eventually.h"

namespace crowdsurf::controller {
namespace {

using Clock = SocketDeadlines::Clock;
using Guard = SocketDeadlines::Guard;

class SocketDeadlinesTest : public testing::Test {
 protected:
  SocketDeadlinesTest() {
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_), 0);
    line_->Opened(ends_[0]);
  }
  ~SocketDeadlinesTest() override {
    close(ends_[0]);
    close(ends_[1]);
  }
  bool Ends(Clock::time_point until) {
    const Guard guard(deadlines_, line_, until);
    return EventuallyHolds([&] { return guard.over(); });
  }

  int ends_[2] = {-1, -1};
  std::shared_ptr<SocketLine> line_ = std::make_shared<SocketLine>();
  SocketDeadlines deadlines_;
};

TEST_F(SocketDeadlinesTest, AReadThatNothingComesToEnds) {
  const Guard guard(deadlines_, line_, Clock::now() + std::chrono::milliseconds(1));
  char byte;
  EXPECT_EQ(recv(ends_[0], &byte, 1, 0), 0);
  EXPECT_TRUE(guard.over());
}

TEST_F(SocketDeadlinesTest, ATimeIsKeptAlsoAfterAWhileWithoutAny) {
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(Ends(Clock::now())) << i;
}

TEST_F(SocketDeadlinesTest, WhatEndsInTimeIsNotCut) {
  {
    const Guard guard(deadlines_, line_, Clock::now() + std::chrono::hours(1));
    EXPECT_FALSE(guard.over());
  }
  EXPECT_TRUE(Ends(Clock::now() - std::chrono::hours(1))) << "of another request";
}

}  // namespace
}  // namespace crowdsurf::controller
