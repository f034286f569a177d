// Keys of deleted jobs go, off the deciding thread, and none is lost.
#include "operator/edge/reconcile/key_collector.h"

#include <gtest/gtest.h>

#include <future>
#include <stdexcept>
#include <vector>

#include "tests/support/eventually.h"

namespace crowdsurf::controller {
namespace {

class KeyCollectorTest : public testing::Test {
 protected:
  // answer: to a uid.
  std::unique_ptr<KeyCollector> Make(std::function<Status(const std::string&)> answer) {
    KeyCollector::Ports ports;
    ports.forget = [this, answer = std::move(answer)](const std::string& uid) {
      {
        const std::lock_guard lock(mutex_);
        asked_.push_back(uid);
      }
      return answer(uid);
    };
    ports.sweep = [this](const std::set<std::string>& alive) {
      const std::lock_guard lock(mutex_);
      swept_.push_back(alive);
      return sweep_answer_;
    };
    ports.again = Milliseconds(1);
    return std::make_unique<KeyCollector>(std::move(ports), metrics_, Logger());
  }
  std::vector<std::string> Asked() {
    const std::lock_guard lock(mutex_);
    return asked_;
  }
  std::vector<std::set<std::string>> Swept() {
    const std::lock_guard lock(mutex_);
    return swept_;
  }
  double Collected(const char* result) {
    return metrics_.Value("crowdsurf_operator_keys_collected_total", {{"result", result}});
  }

  MetricRegistry metrics_;
  std::mutex mutex_;
  std::vector<std::string> asked_;
  std::vector<std::set<std::string>> swept_;
  Status sweep_answer_;
};

TEST_F(KeyCollectorTest, WhoeverHandsAKeyOverDoesNotWaitForIt) {
  std::promise<void> open;
  const std::shared_future<void> gate = open.get_future().share();
  const auto keys = Make([gate](const std::string&) {
    gate.wait();
    return absl::OkStatus();
  });
  for (int i = 0; i < 300; ++i) keys->Forget("job-" + std::to_string(i));
  EXPECT_LE(Asked().size(), 1u) << "the first is under way, and nobody waits for it";
  open.set_value();
  EXPECT_TRUE(EventuallyHolds([&] { return Collected("collected") == 300; }));
}

TEST_F(KeyCollectorTest, WhatFailsIsTriedAgainAndHoldsNoOtherBack) {
  int left = 3;
  const auto keys = Make([&left](const std::string& uid) -> Status {
    if (uid != "bad") return absl::OkStatus();
    if (--left == 0) throw std::runtime_error("hostile JSON");
    return left > 0 ? absl::UnavailableError("the server is away") : absl::OkStatus();
  });
  keys->Forget("bad");
  keys->Forget("good");
  EXPECT_TRUE(EventuallyHolds([&] { return Collected("collected") == 2; }));
  EXPECT_EQ(Collected("failed"), 3);
  EXPECT_EQ(metrics_.Value("crowdsurf_operator_exceptions_total", {{"thread", "keys"}}), 1);
}

TEST_F(KeyCollectorTest, ASweepThatFailsComesAgainAndTakesNobodyForAliveWhoWent) {
  sweep_answer_ = absl::UnavailableError("the server is away");
  const auto keys = Make([](const std::string&) { return absl::OkStatus(); });
  keys->Sweep({"a", "b"});
  ASSERT_TRUE(EventuallyHolds([&] { return !Swept().empty(); }));
  keys->Forget("a");
  EXPECT_TRUE(EventuallyHolds([&] { return Swept().back() == std::set<std::string>{"b"}; }));
  {
    const std::lock_guard lock(mutex_);
    sweep_answer_ = absl::OkStatus();
  }
  keys->Sweep({"c"});
  EXPECT_TRUE(EventuallyHolds([&] { return Swept().back() == std::set<std::string>{"c"}; }));
}

TEST_F(KeyCollectorTest, WhatFindsNoRoomIsFoundByASweep) {
  std::promise<void> open;
  const std::shared_future<void> gate = open.get_future().share();
  const auto keys = Make([gate](const std::string&) {
    gate.wait();
    return absl::OkStatus();
  });
  keys->Forget("first");
  ASSERT_TRUE(EventuallyHolds([&] { return Asked().size() == 1; }));
  for (size_t i = 0; i < KeyCollector::kMaxWaiting + 2; ++i) {
    keys->Forget("job-" + std::to_string(i));
  }
  EXPECT_EQ(Collected("no_room"), 2);
  EXPECT_EQ(metrics_.Value("crowdsurf_operator_keys_waiting"), KeyCollector::kMaxWaiting);
  open.set_value();
  EXPECT_TRUE(EventuallyHolds([&] { return Swept().size() == 1; }));
}

}  // namespace
}  // namespace crowdsurf::controller
