// What is slow runs beside the host's thread, and only so much of it may wait.
#include "worker/edge/agent/slow_work.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/log.h"

namespace crowdsurf::worker {
namespace {

using namespace std::chrono_literals;

// A gate that one thread waits at and another opens.
class Gate {
 public:
  void Open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  bool Wait(std::chrono::seconds most) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, most, [this] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

struct SlowWorkTest : testing::Test {
  Gate gate, begun;  // first: jobs wait at them until `slow` has ended
  MetricRegistry metrics;
  HostLoop host{100, metrics, Logger()};
  SlowWork slow{host, metrics};
};

// A donor's state of gigabytes is hashed and read there: the host's heartbeats must go on.
TEST_F(SlowWorkTest, TheHostRunsEventsWhileAJobIsInHand) {
  bool met = false;
  std::thread::id did, told;
  EXPECT_TRUE(host.Post([&](Time, WallTime) {
    EXPECT_TRUE(slow.Run([&]() -> HostLoop::Closure {
      met = gate.Wait(5s);
      did = std::this_thread::get_id();
      return [&](Time, WallTime) {
        told = std::this_thread::get_id();
        host.RequestStop(Duration());
      };
    }));
  }));
  EXPECT_TRUE(host.Post([&](Time, WallTime) { gate.Open(); }));
  host.Run();
  EXPECT_TRUE(met) << "the job held the host";
  EXPECT_NE(did, std::this_thread::get_id());
  EXPECT_EQ(told, std::this_thread::get_id());
}

TEST_F(SlowWorkTest, AJobTooManyIsRefusedAndCounted) {
  const auto job = [&]() -> HostLoop::Closure {
    begun.Open();
    gate.Wait(5s);
    return [](Time, WallTime) {};
  };
  ASSERT_TRUE(slow.Run(job));
  ASSERT_TRUE(begun.Wait(5s));  // it is in hand, and waits no more
  for (size_t i = 0; i < SlowWork::kMax; ++i) EXPECT_TRUE(slow.Run(job));
  EXPECT_FALSE(slow.Run(job));
  EXPECT_EQ(metrics.Value("crowdsurf_worker_slow_work_refused_total"), 1);
  gate.Open();
}

}  // namespace
}  // namespace crowdsurf::worker
