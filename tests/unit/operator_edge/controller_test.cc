// The deciding loop: when it is ready, when it decides, and what agents tell it of their job.
#include "operator/edge/controller.h"

#include <gtest/gtest.h>
#include <httplib.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "tests/support/eventually.h"
#include "tests/unit/operator_edge/living_cluster.h"

namespace crowdsurf::controller {
namespace {

class ControllerTest : public LivingCluster {
 protected:
  // The loop on a thread of its own, until the test ends.
  void Run(ControllerOptions options) {
    controller_.emplace(*cluster_, std::move(options), *metrics_, Logger());
    loop_ = std::thread([this] { controller_->Run(); });
  }
  // Before what its options use.
  void End() {
    if (controller_) controller_->Stop();
    if (loop_.joinable()) loop_.join();
  }
  void TearDown() override {
    End();
    controller_.reset();
    LivingCluster::TearDown();
  }
  bool HasPods(size_t count) {
    return EventuallyHolds([&] { return api_.Keys("pods").size() == count; });
  }
  std::optional<Controller> controller_;
  std::thread loop_;
};

TEST_F(ControllerTest, AReplicaThatDoesNotLeadIsReadyAndDecidesNothing) {
  std::atomic<bool> leads{false};
  std::atomic<int> turns{0};
  Start();
  ControllerOptions options;
  options.ask_agents = false;
  options.leading = [&] { return leads.load(); };
  options.progress = [&] { ++turns; };
  Run(options);
  EXPECT_TRUE(EventuallyHolds([&] { return controller_->ready() && turns > 5; }));
  EXPECT_TRUE(api_.Keys("pods").empty());
  leads = true;
  EXPECT_TRUE(HasPods(4)) << "no news tell it, but every job is looked at";
  EXPECT_TRUE(EventuallyHolds([&] { return Shown().contains("conditions"); }));
  End();
}

TEST_F(ControllerTest, AnIdleLoopTakesATenthOfASecondForATurn) {
  using std::chrono::steady_clock;
  std::atomic<int> turns{0};
  steady_clock::time_point first, sixth;  // of the loop's thread, until it ends
  Start();
  ControllerOptions options;
  options.ask_agents = false;
  options.leading = [] { return false; };  // it has nothing to decide
  options.progress = [&] {
    const int turn = ++turns;
    if (turn == 1) first = steady_clock::now();
    if (turn == 6) sixth = steady_clock::now();
  };
  Run(options);
  EXPECT_TRUE(EventuallyHolds([&] { return turns >= 6; }));
  End();
  // News may end two of the five turns; a slow machine only lengthens them.
  EXPECT_GE(sixth - first, std::chrono::milliseconds(300));
}

TEST_F(ControllerTest, AJobThatIsOverGoesWhenItsTimeIsOver) {
  Json job = Job();
  job["spec"]["runPolicy"] = {{"ttlSecondsAfterFinished", 0}};
  job["status"] = {{"completionTime", "2026-01-01T00:00:00Z"},
                   {"conditions", {{{"type", "Succeeded"}, {"status", "True"}}}}};
  api_.Put("trainingjobs", job);
  Start();
  ControllerOptions options;
  options.ask_agents = false;
  Run(options);
  EXPECT_TRUE(EventuallyHolds([&] { return api_.Find("trainingjobs", kJob).is_null(); }));
}

// An agent answers at the port that every agent has, so its address is one of its own on loopback.
class AskedAgent {
 public:
  explicit AskedAgent(
      const std::string& says = R"({"job_samples": 432, "step": 9, "samples_per_second": 5})") {
    server_.Get("/summary", [this, says](const httplib::Request&, httplib::Response& response) {
      ++asked;
      response.set_content(says, "application/json");
    });
    for (int host = getpid(); port_ <= 0 && host < getpid() + 100; ++host) {
      address =
          "127.77." + std::to_string(host / 200 % 200 + 1) + "." + std::to_string(host % 200 + 1);
      if (server_.bind_to_port(address, kHttpPort)) port_ = kHttpPort;
    }
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    while (!server_.is_running()) std::this_thread::yield();
  }
  ~AskedAgent() {
    server_.stop();
    thread_.join();
  }
  std::string address;
  std::atomic<int> asked{0};

 private:
  int port_ = 0;
  httplib::Server server_;
  std::thread thread_;
};

TEST_F(ControllerTest, TheProgressThatAReadyAgentTellsIsShown) {
  AskedAgent agent;
  Start();
  Run({});
  ASSERT_TRUE(HasPods(4));
  api_.Put("nodes", {{"metadata", {{"name", "node-0"}}}});
  api_.Change("pods", "team/crowd-2-1",
              {{"spec", {{"nodeName", "node-0"}}},
               {"status",
                {{"phase", "Running"},
                 {"podIP", agent.address},
                 {"conditions", {{{"type", "Ready"}, {"status", "True"}}}}}}});
  EXPECT_TRUE(EventuallyHolds([&] {
    const Json shown = Shown();
    return shown.contains("progress") && shown["progress"].value("samples", 0) == 432;
  }));
  EXPECT_EQ(Shown()["progress"]["step"], 9);
  EXPECT_EQ(Shown()["progress"]["percent"], "43%") << "of 1000 samples";
}

// The one that trains knows nothing of the other's volume.
TEST_F(ControllerTest, ASecondAgentIsAskedAndHeard) {
  AskedAgent trains(R"({"worker": "crowd-2-1", "step": 9, "trainer": {"order": "a1"}})");
  AskedAgent waits(R"({"worker": "crowd-1-1", "waitingFor": "volume", "waitingSeconds": 50,
                       "trainer": {"order": "a1"}})");
  Start();
  ControllerOptions options;
  options.ask_every_ms = 10;
  Run(options);
  ASSERT_TRUE(HasPods(4));
  api_.Put("nodes", {{"metadata", {{"name", "node-0"}}}});
  const auto start = [&](const char* pod, const AskedAgent& agent, const char* ready) {
    const Json runs = {{"running", {{"startedAt", "2026-01-01T00:00:00Z"}}}};
    api_.Change("pods", pod,
                {{"spec", {{"nodeName", "node-0"}}},
                 {"status",
                  {{"phase", "Running"},
                   {"podIP", agent.address},
                   {"containerStatuses", {{{"name", "trainer"}, {"state", runs}}}},
                   {"conditions", {{{"type", "Ready"}, {"status", ready}}}}}}});
  };
  start("team/crowd-1-1", waits, "False");
  start("team/crowd-2-1", trains, "True");
  EXPECT_TRUE(EventuallyHolds([&] { return trains.asked > 3 && waits.asked > 3; }));
  EXPECT_TRUE(EventuallyHolds([&] {
    return Shown().dump().find("\"reason\":\"VolumeNotReady\"") != std::string::npos;
  })) << Shown();
  const auto said = [&] {
    const std::vector<Json> events = api_.Events();
    return std::count_if(events.begin(), events.end(),
                         [](const Json& event) { return event["reason"] == "SameBatches"; });
  };
  EXPECT_TRUE(EventuallyHolds([&] { return said() > 0; })) << "both draw the same batches";
  const int asked = waits.asked;
  EXPECT_TRUE(EventuallyHolds([&] { return waits.asked > asked + 3; }));
  EXPECT_EQ(said(), 1) << "once a job";
}

// The new leader asks them, and their addresses may be others' by now.
TEST_F(ControllerTest, AReplicaThatLostTheLeadAsksNoAgentAnyMore) {
  AskedAgent agent;
  std::atomic<bool> leads{true};
  std::atomic<int> turns{0};
  Start();
  ControllerOptions options;
  options.leading = [&] { return leads.load(); };
  options.progress = [&] { ++turns; };
  options.ask_every_ms = 10;
  Run(options);
  ASSERT_TRUE(HasPods(4));
  api_.Put("nodes", {{"metadata", {{"name", "node-0"}}}});
  api_.Change("pods", "team/crowd-2-1",
              {{"spec", {{"nodeName", "node-0"}}},
               {"status",
                {{"phase", "Running"},
                 {"podIP", agent.address},
                 {"conditions", {{{"type", "Ready"}, {"status", "True"}}}}}}});
  ASSERT_TRUE(EventuallyHolds([&] { return agent.asked > 3; }));
  leads = false;
  const int lost = turns;
  ASSERT_TRUE(EventuallyHolds([&] { return turns > lost + 2; }));
  const int asked = agent.asked;
  ASSERT_TRUE(EventuallyHolds([&] { return turns > lost + 12; }));  // a second
  EXPECT_LE(agent.asked, asked + 1) << "one may have been under way";
  leads = true;
  EXPECT_TRUE(EventuallyHolds([&] { return agent.asked > asked + 3; })) << "it leads again";
  End();
}

}  // namespace
}  // namespace crowdsurf::controller
