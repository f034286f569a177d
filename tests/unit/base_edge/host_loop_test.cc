// In which order a host runs events and timers, how late, and how it ends.
#include "base/edge/host_loop.h"

#include <gmock/gmock.h>

#include <thread>

namespace crowdsurf {
namespace {

// Due every `period` from the first call on; stops the loop after `times`.
class Ticker : public TimerSource {
 public:
  Ticker(HostLoop& host, Duration period, int times)
      : host_(host), period_(period), left_(times), next_(host.Now() + period) {}
  Time NextDeadline() const override { return next_; }
  void OnTimer(Time now, WallTime) override {
    EXPECT_GE(now, next_);
    late_ = std::max(late_, now - next_);
    next_ = now + period_;
    if (--left_ == 0) host_.RequestStop(Duration());
  }
  Duration late() const { return late_; }

 private:
  HostLoop& host_;
  const Duration period_;
  int left_;
  Time next_;
  Duration late_;
};

TEST(HostLoopTest, EventsRunInOrderOnOneThread) {
  MetricRegistry metrics;
  HostLoop host(100, metrics, Logger());
  std::vector<int> order;
  std::vector<std::thread::id> threads;
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(host.Post([&, i](Time now, WallTime wall) {
      EXPECT_GT(now.nanoseconds(), 0);
      EXPECT_GT(wall.nanoseconds(), 1'600'000'000'000'000'000);
      order.push_back(i);
      threads.push_back(std::this_thread::get_id());
      if (i == 9) host.RequestStop(Duration());
    }));
  }
  std::thread thread([&] { host.Run(); });
  const std::thread::id id = thread.get_id();
  thread.join();
  EXPECT_THAT(order, testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_THAT(threads, testing::Each(id));
}

TEST(HostLoopTest, AFullMailboxRefusesAndCounts) {
  MetricRegistry metrics;
  HostLoop host(2, metrics, Logger());
  EXPECT_TRUE(host.Post([](Time, WallTime) {}));
  EXPECT_TRUE(host.Post([](Time, WallTime) {}));
  EXPECT_FALSE(host.Post([](Time, WallTime) {}));
  EXPECT_EQ(metrics.Value("crowdsurf_host_refused_total"), 1);
}

TEST(HostLoopTest, TheLongestEventIsKnown) {
  MetricRegistry metrics;
  HostLoop host(10, metrics, Logger());
  Duration held;
  EXPECT_TRUE(host.Post([&](Time now, WallTime) {
    while (held < Milliseconds(5)) held = host.Now() - now;
  }));
  EXPECT_TRUE(host.Post([&](Time, WallTime) { host.RequestStop(Duration()); }));
  const Time start = host.Now();
  host.Run();
  const double longest = metrics.Value("crowdsurf_host_longest_event_seconds");
  EXPECT_GE(longest, held.seconds());
  EXPECT_LE(longest, (host.Now() - start).seconds());
}

TEST(HostLoopTest, TimersAreCalledWhenTheyAreDueAndNotBefore) {
  MetricRegistry metrics;
  HostLoop host(10, metrics, Logger());
  Ticker quick(host, Milliseconds(1), 20);
  Ticker slow(host, Milliseconds(3), 1000);
  host.AddSource(&quick);
  host.AddSource(&slow);
  const Time start = host.Now();
  host.Run();
  EXPECT_GE((host.Now() - start).milliseconds(), 20);
}

class Lingering : public TimerSource {
 public:
  Time NextDeadline() const override { return Time::Infinite(); }
  void OnTimer(Time, WallTime) override {}
  void OnStop(Time, WallTime, Time deadline) override { told_deadline = deadline; }
  bool Stopped() const override { return stopped; }
  bool stopped = false;
  Time told_deadline;
};

// Due at once and again; says how many events had run when it was called.
class Witness : public TimerSource {
 public:
  explicit Witness(HostLoop& host) : host_(host), next_(host.Now()) {}
  Time NextDeadline() const override { return next_; }
  void OnTimer(Time, WallTime) override {
    seen.push_back(events);
    next_ = Time::Infinite();
    if (seen.size() == 1) host_.RequestStop(Duration());
  }
  int events = 0;
  std::vector<int> seen;

 private:
  HostLoop& host_;
  Time next_;
};

// Frames that were queued while the thread was held up are evidence: timers see them first.
TEST(HostLoopTest, WhatWasPostedBeforeADeadlineIsRunBeforeItsTimer) {
  MetricRegistry metrics;
  HostLoop host(2000, metrics, Logger());
  Witness witness(host);
  host.AddSource(&witness);
  constexpr int kQueued = 500;
  EXPECT_TRUE(host.Post([&](Time, WallTime) {  // during this one the others queue up
    for (int i = 0; i < kQueued; ++i)
      EXPECT_TRUE(host.Post([&](Time, WallTime) { ++witness.events; }));
  }));
  host.Run();
  EXPECT_THAT(witness.seen, testing::ElementsAre(kQueued));
}

// An event that posts itself again, for ever: the mailbox is never empty.
TEST(HostLoopTest, AFloodDoesNotHoldTimersBack) {
  MetricRegistry metrics;
  HostLoop host(100, metrics, Logger());
  Witness witness(host);
  host.AddSource(&witness);
  std::function<void(Time, WallTime)> again = [&](Time, WallTime) {
    ++witness.events;
    (void)host.Post(again);
  };
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(host.Post(again));
  host.Run();
  ASSERT_EQ(witness.seen.size(), 1U);
  EXPECT_LE(witness.seen.front(), 4 * 100 + 1);
}

TEST(HostLoopTest, StoppingIsAnEventThatSourcesMayTakeTheirTimeFor) {
  MetricRegistry metrics;
  HostLoop host(10, metrics, Logger());
  Lingering source;
  host.AddSource(&source);
  host.RequestStop(Seconds(60));
  std::thread thread([&] { host.Run(); });
  // Still alive: it takes events, and ends when the source says so, long before the grace is over.
  EXPECT_TRUE(host.Post([&](Time now, WallTime) {
    EXPECT_GT(source.told_deadline, now);
    source.stopped = true;
  }));
  thread.join();
  EXPECT_FALSE(host.Post([](Time, WallTime) {}));
}

TEST(HostLoopTest, TheGraceEndsTheLoopWhateverSourcesSay) {
  MetricRegistry metrics;
  HostLoop host(10, metrics, Logger());
  Lingering source;
  host.AddSource(&source);
  host.RequestStop(Milliseconds(20));
  host.Run();
  EXPECT_FALSE(source.stopped);
}

}  // namespace
}  // namespace crowdsurf
