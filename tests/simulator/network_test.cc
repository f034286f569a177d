// Bytes take time on a link, and values can be lost while all else arrives.
#include "simulator/engine/network.h"

#include <gtest/gtest.h>

#include <vector>

namespace crowdsurf::simulator {
namespace {

constexpr uint64_t kSeed = 11;
constexpr double kBytesPerSecond = 1e6;

// Seconds at which frames arrive, all of them sent at the start, in order.
std::vector<double> ArrivalsOf(const std::vector<FrameOnLink>& frames) {
  EventQueue queue;
  LinkOptions links;
  links.min_delay = Milliseconds(1);
  links.mean_extra_delay = Duration();
  links.bytes_per_second = kBytesPerSecond;
  Network network(queue, Rng(kSeed), links);
  std::vector<double> arrivals(frames.size());
  for (size_t i = 0; i < frames.size(); ++i)
    network.Send(frames[i], [&, i] { arrivals[i] = (queue.now() - kStartOfTime).seconds(); });
  while (queue.RunOne()) {
  }
  return arrivals;
}

constexpr double kTolerance = 1e-6;  // the extra delay is drawn: a nanosecond on average

TEST(NetworkTest, AFrameTakesItsBytesAndTheDelay) {
  EXPECT_NEAR(ArrivalsOf({{0, 1, Plane::kTensor, 10'000}})[0], 0.010 + 0.001, kTolerance);
}

TEST(NetworkTest, FramesQueueOnTheWayOut) {
  const auto at = ArrivalsOf({{0, 1, Plane::kTensor, 10'000},
                              {0, 2, Plane::kTensor, 20'000},
                              {3, 4, Plane::kTensor, 10'000}});
  EXPECT_NEAR(at[0], 0.011, kTolerance);
  EXPECT_NEAR(at[1], 0.031, kTolerance);
  EXPECT_NEAR(at[2], 0.011, kTolerance);  // another's way
}

TEST(NetworkTest, FramesQueueOnTheWayIn) {
  const auto at = ArrivalsOf({{0, 2, Plane::kTensor, 10'000}, {1, 2, Plane::kTensor, 10'000}});
  EXPECT_NEAR(at[0], 0.011, kTolerance);
  EXPECT_NEAR(at[1], 0.021, kTolerance);
}

TEST(NetworkTest, FramesGoBothWaysAtOnce) {
  const auto at = ArrivalsOf({{0, 1, Plane::kTensor, 10'000}, {1, 0, Plane::kTensor, 10'000}});
  EXPECT_NEAR(at[0], 0.011, kTolerance);
  EXPECT_NEAR(at[1], 0.011, kTolerance);
}

TEST(NetworkTest, ANodeCanHaveARateOfItsOwn) {
  EventQueue queue;
  LinkOptions links;
  links.min_delay = Milliseconds(1);
  links.mean_extra_delay = Duration();
  Network network(queue, Rng(kSeed), links);
  network.SetRate(1, kBytesPerSecond);
  std::vector<double> at;
  const auto send = [&](int from, int to) {
    network.Send({from, to, Plane::kTensor, 10'000},
                 [&] { at.push_back((queue.now() - kStartOfTime).seconds()); });
    while (queue.RunOne()) {
    }
  };
  send(0, 2);  // any number of bytes at once
  send(0, 1);  // its way in
  send(1, 2);  // its way out
  network.SetRate(1, kBytesPerSecond / 4);
  send(1, 2);
  const std::vector<double> took = {0.001, 0.011, 0.011, 0.041};
  double now = 0;
  for (size_t i = 0; i < took.size(); ++i) {
    EXPECT_NEAR(at.at(i), now += took[i], 4 * kTolerance) << i;
  }
}

TEST(NetworkTest, ValuesAreLostAndMessagesArrive) {
  EventQueue queue;
  LinkOptions links;
  links.tensor_loss = 0.1;
  Network network(queue, Rng(kSeed), links);
  int values = 0, messages = 0;
  constexpr int kFrames = 10'000;
  for (int i = 0; i < kFrames; ++i) {
    network.Send(0, 1, Plane::kTensor, [&] { ++values; });
    network.Send(0, 1, Plane::kControl, [&] { ++messages; });
  }
  while (queue.RunOne()) {
  }
  EXPECT_EQ(messages, kFrames);
  EXPECT_NEAR(values, 0.9 * kFrames, 4 * 30);  // four standard deviations
  network.Heal();
  values = 0;
  for (int i = 0; i < kFrames; ++i) network.Send(0, 1, Plane::kTensor, [&] { ++values; });
  while (queue.RunOne()) {
  }
  EXPECT_EQ(values, kFrames);
}

}  // namespace
}  // namespace crowdsurf::simulator
