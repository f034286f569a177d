#include "worker/edge/tensor/round_trip.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

namespace crowdsurf::worker {
namespace {

// As of a carried connection.
TEST(RoundTripTest, APairOfLocalSocketsHasNone) {
  std::array<int, 2> pair{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair.data()), 0);
  EXPECT_EQ(LeastRoundTripOf(pair[0]), std::nullopt);
  for (const int fd : pair) close(fd);
  EXPECT_EQ(LeastRoundTripOf(-1), std::nullopt);
}

TEST(RoundTripTest, ASocketThatIsNotConnectedHasNone) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(LeastRoundTripOf(fd), std::nullopt);
  close(fd);
}

}  // namespace
}  // namespace crowdsurf::worker
