// What an agent tells of itself: its summary, its gauges and the file it leaves at its end.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <set>

#include "base/edge/files.h"
#include "base/edge/host_loop.h"
#include "tests/unit/worker_edge/agent/running_agent.h"
#include "worker/edge/link/link_client.h"

namespace crowdsurf::worker {
namespace {

double Unix() { return static_cast<double>(HostLoop::Wall().nanoseconds()) * 1e-9; }

struct AgentReports : testing::Test {
  nlohmann::json Summary() {
    const auto reply = httplib::Client("http://" + running.agent->http_endpoint()).Get("/summary");
    auto json = nlohmann::json::parse(reply ? reply->body : "", nullptr, false);
    return json.is_object() ? json : nlohmann::json::object();
  }

  const double before = Unix();
  const dht::TestAuthority authority;
  RunningAgent running{authority, 0, "", {}};
};

TEST_F(AgentReports, TheSummaryTellsWhenItStartedAndWhenTheFirstStepWasMade) {
  ASSERT_NE(running.agent, nullptr);
  auto trainer = LinkClient::Connect(running.link(), Seconds(20));
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  LinkTensor tensor;
  tensor.name = "weights";
  tensor.shape = {8};
  std::vector<float> params(8, 1.0F);
  ASSERT_TRUE((*trainer)->Register({tensor}).ok());
  ASSERT_TRUE((*trainer)->Start(params, Seconds(20)).ok());
  nlohmann::json summary = Summary();
  EXPECT_GE(summary.value("started_unix", 0.0), before);
  EXPECT_LE(summary.value("started_unix", 0.0), Unix());
  EXPECT_TRUE(summary["first_step_unix"].is_null());
  const double stepped = Unix();
  (void)(*trainer)->StepDone(1, 1.0, params);  // one is enough
  ASSERT_TRUE(EventuallyHolds([&] { return Summary()["first_step_unix"].is_number(); }));
  EXPECT_GE(Summary()["first_step_unix"].get<double>(), stepped);
  EXPECT_LE(Summary()["first_step_unix"].get<double>(), Unix());
  ASSERT_TRUE(EventuallyHolds([&] { return Summary()["view"].is_object(); }));
  summary = Summary();
  EXPECT_GE(summary["view"]["epoch"].get<double>(), 1);
  EXPECT_EQ(running.agent->metrics().Value("crowdsurf_worker_view_epoch"),
            summary["view"]["epoch"]);
}

// A kubelet mounts the file into a folder that the agent cannot write: the file itself is written.
TEST_F(AgentReports, ATerminationLogThatIsThereIsWrittenInPlace) {
  ASSERT_NE(running.agent, nullptr);
  const int mounted =
      open((running.folder.path() / "end").c_str(), O_CREAT | O_RDONLY | O_CLOEXEC, 0600);
  ASSERT_GE(mounted, 0);
  running.agent->AskToLeave();
  running.thread.join();
  char text[4096];
  const ssize_t size = read(mounted, text, sizeof text);
  close(mounted);
  EXPECT_THAT(std::string(text, static_cast<size_t>(std::max<ssize_t>(size, 0))),
              testing::HasSubstr("\"reason\":\"left\""));
}

// The trainer gives its own state at the next boundary of a step, and the checkpoint waits for it.
TEST(AgentCheckpoint, TheFirstOneHoldsWhatTheTrainerGave) {
  const dht::TestAuthority authority;
  const dht::TemporaryDirectory checkpoints;
  JobConfig config;
  config.averaging.interval = 20;  // steps
  config.checkpoint_seconds = 0.01;
  config.checkpoint_retain = 1'000;
  AgentOptions options;
  options.checkpoint_dir = checkpoints.path().string();
  RunningAgent running(authority, 0, "", {.config = config, .options = options});
  ASSERT_NE(running.agent, nullptr);
  auto trainer = LinkClient::Connect(running.link(), Seconds(20));
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  const std::string own = "the state of the optimizer, as the trainer wrote it";
  (*trainer)->SetOpaque([&] { return Bytes(own.begin(), own.end()); },
                        [](ByteView) { return absl::OkStatus(); });
  LinkTensor tensor;
  tensor.name = "weights";
  tensor.shape = {8};
  std::vector<float> params(8, 1.0F);
  ASSERT_TRUE((*trainer)->Register({tensor}).ok());
  ASSERT_TRUE((*trainer)->Start(params, Seconds(20)).ok());
  std::set<std::string> written;
  ASSERT_TRUE(EventuallyHolds([&] {
    (void)(*trainer)->StepDone(1, 1.0, params);
    for (const auto& entry : std::filesystem::directory_iterator(checkpoints.path()))
      if (entry.path().extension() == ".crowdsurf") written.insert(entry.path().string());
    return !written.empty();
  }));
  EXPECT_THAT(ReadFile(*written.begin()).value_or(""), testing::HasSubstr(own));
}

}  // namespace
}  // namespace crowdsurf::worker
