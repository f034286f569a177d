// The clock of averagings between the threads that work and what is shown of it.
#include "worker/edge/metrics/averaging_clock.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>

namespace crowdsurf::worker {
namespace {

constexpr char kPartSeconds[] = "crowdsurf_worker_averaging_part_seconds_total";

struct AveragingClockTest : testing::Test {
  double Seconds(std::string_view part) const {
    return registry.Value(kPartSeconds, {{"part", std::string(part)}});
  }
  void Pass(int64_t ms) { now = now + Milliseconds(ms); }
  void RunOne(AveragingId averaging) {
    clock.OnAsked(averaging);
    Pass(100);
    clock.OnPublished(averaging);
    {
      const AveragingWork work(&clock, AveragingPart::kSend);
      Pass(250);
      const AveragingWork other(&clock, AveragingPart::kFold);
      Pass(50);
    }
    Pass(1000);
    clock.OnDelivered(averaging);
  }

  Time now = Time() + Milliseconds(5000);
  MetricRegistry registry;
  AgentMetrics metrics{registry};
  AveragingClock clock{[this] { return now; }, metrics};
};

TEST_F(AveragingClockTest, AFinishedAveragingGoesIntoMetricsAndTotals) {
  for (const std::string_view part : kAveragingParts) EXPECT_EQ(Seconds(part), 0) << part;
  RunOne(AveragingId(1));
  RunOne(AveragingId(2));
  EXPECT_NEAR(Seconds("wait_trainer"), .2, 1e-9);
  EXPECT_NEAR(Seconds("wait_peers"), 2, 1e-9);
  EXPECT_NEAR(Seconds("send"), .6, 1e-9);
  EXPECT_NEAR(Seconds("fold"), .1, 1e-9);
  EXPECT_EQ(Seconds("receive"), 0);
  EXPECT_EQ(Seconds("copy"), 0);
  EXPECT_NEAR(metrics.averaging_seconds.value(), 2.8, 1e-9);
  const AveragingTotals totals = clock.totals();
  EXPECT_EQ(totals.number, 2u);
  EXPECT_NEAR(totals.whole, 2.8, 1e-9);
  for (size_t part = 0; part < kAveragingParts.size(); ++part)
    EXPECT_NEAR(totals.parts[part], Seconds(kAveragingParts[part]), 1e-9);
}

TEST_F(AveragingClockTest, OneThatWasGivenUpIsNotShown) {
  clock.OnAsked(AveragingId(1));
  Pass(10);
  clock.OnPublished(AveragingId(1));
  Pass(10);
  clock.OnGivenUp();
  clock.OnDelivered(AveragingId(1));
  EXPECT_EQ(clock.totals().number, 0u);
  EXPECT_EQ(Seconds("wait_peers"), 0);
  const AveragingWork nowhere(nullptr, AveragingPart::kSend);  // as without an agent
}

// Two threads mark their work while a third begins and ends averagings, with a real clock.
TEST(AveragingClockThreadsTest, NoPartExceedsTheWhole) {
  const auto now = [] {
    return Time() + Nanoseconds(std::chrono::steady_clock::now().time_since_epoch().count());
  };
  MetricRegistry registry;
  AgentMetrics metrics(registry);
  AveragingClock clock(now, metrics);
  std::atomic<bool> done{false};
  const auto works = [&](AveragingPart one, AveragingPart two) {
    while (!done) {
      { const AveragingWork work(&clock, one); }
      { const AveragingWork work(&clock, two); }
    }
  };
  std::thread io(works, AveragingPart::kSend, AveragingPart::kReceive);
  std::thread host(works, AveragingPart::kFold, AveragingPart::kCopy);
  for (uint64_t number = 1; number <= 2000; ++number) {
    clock.OnAsked(AveragingId(number));
    clock.OnPublished(AveragingId(number));
    clock.OnDelivered(AveragingId(number));
  }
  done = true;
  io.join();
  host.join();
  const AveragingTotals totals = clock.totals();
  EXPECT_EQ(totals.number, 2000u);
  const auto of = [&](AveragingPart part) { return totals.parts[static_cast<size_t>(part)]; };
  const double waits = of(AveragingPart::kWaitTrainer) + of(AveragingPart::kWaitPeers);
  const double io_works = of(AveragingPart::kSend) + of(AveragingPart::kReceive);
  const double host_works = of(AveragingPart::kFold) + of(AveragingPart::kCopy);
  EXPECT_LE(waits + std::max(io_works, host_works), totals.whole + 1e-9);
  EXPECT_GE(waits + io_works + host_works, totals.whole - 1e-9);
}

}  // namespace
}  // namespace crowdsurf::worker
