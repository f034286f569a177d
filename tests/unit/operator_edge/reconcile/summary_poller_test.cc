// Who is asked for its summary, and how often at most.
#include "operator/edge/reconcile/summary_poller.h"

#include <gtest/gtest.h>
#include <httplib.h>
#include <poll.h>

#include <atomic>
#include <future>
#include <memory>
#include <set>
#include <vector>

#include "tests/support/eventually.h"
#include "tests/support/hostile_server.h"
#include "tests/support/loopback_server.h"

namespace crowdsurf::controller {
namespace {

using std::chrono::steady_clock;

constexpr int kPatience_ms = 30'000;  // a test fails by it, and never waits for it

class SummaryPollerTest : public testing::Test {
 protected:
  SummaryPollerTest() {
    server_.Get("/summary", [this](const httplib::Request&, httplib::Response& response) {
      ++answers_;
      response.set_content(R"({"worker": "w", "step": 7)" + std::string(padding_, ' ') + "}",
                           "application/json");
    });
    loopback_.emplace(server_);
  }
  // The next news; fails when none come.
  std::optional<SummaryNews> Next(SummaryPoller& poller) {
    for (;;) {
      if (auto news = poller.Take()) return news;
      poller.Acknowledge();
      if (auto news = poller.Take()) return news;  // it came between the two
      pollfd waiting = {poller.descriptor(), POLLIN, 0};
      if (poll(&waiting, 1, kPatience_ms) <= 0) {
        ADD_FAILURE() << "no news";
        return std::nullopt;
      }
    }
  }

  std::atomic<size_t> padding_{0};
  std::atomic<int> answers_{0};
  httplib::Server server_;
  std::optional<LoopbackServer> loopback_;
};

// No agent fills the memory of the operator.
TEST_F(SummaryPollerTest, AnAnswerIsReadUpTo256KiB) {
  constexpr size_t kWords = 26;  // around the padding
  SummaryPoller poller(1);
  padding_ = (size_t{256} << 10) - kWords;
  poller.SetTarget("w", loopback_->address());
  ASSERT_TRUE(Next(poller));
  padding_ = (size_t{256} << 10) + 1;
  const int before = answers_;
  EXPECT_TRUE(EventuallyHolds([&] { return answers_ > before + 1; }));
  while (poller.Take()) {  // of answers that had begun before
  }
  const int then = answers_;
  EXPECT_TRUE(EventuallyHolds([&] { return answers_ > then + 3; }));
  EXPECT_FALSE(poller.Take());
}

// pod-lifecycle 8.5: at most 20 requests a second, however many jobs there are.
TEST_F(SummaryPollerTest, WithASpacingEverybodyHasATurnAndNoTwoComeSooner) {
  constexpr int kSpacing_ms = 20, kJobs = 6;
  const auto begun = steady_clock::now();
  SummaryPoller poller(1, kSpacing_ms);  // all are always due
  for (int i = 0; i < kJobs; ++i) {
    poller.SetTarget("job-" + std::to_string(i), loopback_->address());
  }
  std::map<std::string, int> asked;
  constexpr int kAsked = 3 * kJobs;
  for (int i = 0; i < kAsked; ++i) {
    const auto news = Next(poller);
    ASSERT_TRUE(news);
    EXPECT_EQ(news->summary.step, 7u);
    ++asked[news->worker];
  }
  EXPECT_GE(steady_clock::now() - begun, std::chrono::milliseconds((kAsked - 1) * kSpacing_ms));
  EXPECT_EQ(asked.size(), static_cast<size_t>(kJobs)) << "nobody starves";
}

TEST_F(SummaryPollerTest, WhoIsForgottenOrNoAddressGivesNoNews) {
  SummaryPoller poller(1);
  poller.SetTarget("nowhere", "no address");
  poller.SetTarget("gone", loopback_->address());
  poller.Forget("gone");
  while (poller.Take()) {
  }
  poller.SetTarget("there", loopback_->address());
  for (int i = 0; i < 3; ++i) {
    const auto news = Next(poller);
    ASSERT_TRUE(news);
    EXPECT_TRUE(i == 0 || news->worker == "there") << "one request may have been under way";
  }
}

// Two of each kind: as many as are asked at once.
TEST_F(SummaryPollerTest, OneIsAskedOnTimeBesideAgentsThatDripOrAnswerWithoutEnd) {
  std::vector<std::unique_ptr<HostileServer>> hostile;
  for (const Hostile how : kAllHostile) {
    for (int i = 0; i < 2; ++i) hostile.push_back(std::make_unique<HostileServer>(how));
  }
  SummaryPoller poller(10);
  for (size_t i = 0; i < hostile.size(); ++i) {
    poller.SetTarget("bad-" + std::to_string(i), hostile[i]->address());
  }
  poller.SetTarget("honest", loopback_->address());
  for (int i = 0; i < 20; ++i) {
    const auto news = Next(poller);
    ASSERT_TRUE(news);
    EXPECT_EQ(news->worker, "honest");
  }
  std::set<std::string> struck_out;
  EXPECT_TRUE(EventuallyHolds([&] {
    while (auto worker = poller.TakeStruckOut()) struck_out.insert(*std::move(worker));
    return struck_out.size() == hostile.size();
  })) << struck_out.size()
      << " of " << hostile.size() << " are struck out";
  EXPECT_FALSE(struck_out.contains("honest"));
}

TEST_F(SummaryPollerTest, ItEndsAtOnceWhileAgentsDrip) {
  auto drips = std::make_unique<HostileServer>(Hostile::kDripsBody);
  auto poller = std::make_unique<SummaryPoller>(1);
  poller->SetTarget("w", drips->address());
  ASSERT_TRUE(EventuallyHolds([&] { return drips->open() > 0; }));
  auto ended = std::async(std::launch::async, [&] { poller.reset(); });
  EXPECT_EQ(ended.wait_for(std::chrono::milliseconds(kPatience_ms)), std::future_status::ready);
  drips.reset();  // where it waits for its agents, this ends it
}

}  // namespace
}  // namespace crowdsurf::controller
