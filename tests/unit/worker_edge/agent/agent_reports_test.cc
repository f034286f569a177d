// What an agent tells of itself: its summary, its gauges and the file it leaves at its end.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <unistd.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "base/edge/files.h"
#include "base/edge/host_loop.h"
#include "tests/unit/worker_edge/agent/running_agent.h"
#include "worker/core/averaging/averaging_parts.h"
#include "worker/core/shard/lease_ledger.h"
#include "worker/edge/link/link_client.h"
#include "worker/edge/link/link_http.h"
#include "worker/edge/state/checkpoint_file.h"

namespace crowdsurf::worker {
namespace {

double Unix() { return static_cast<double>(HostLoop::Wall().nanoseconds()) * 1e-9; }

nlohmann::json SummaryOf(const RunningAgent& running) {
  const auto reply = httplib::Client("http://" + running.agent->http_endpoint()).Get("/summary");
  auto json = nlohmann::json::parse(reply ? reply->body : "", nullptr, false);
  return json.is_object() ? json : nlohmann::json::object();
}

LinkTensor Tensor(std::string name, uint32_t values) {
  LinkTensor tensor;
  tensor.name = std::move(name);
  tensor.shape = {values};
  return tensor;
}

struct AgentReports : testing::Test {
  nlohmann::json Summary() { return SummaryOf(running); }

  const double before = Unix();
  const dht::TestAuthority authority;
  RunningAgent running{authority, 0, "", {}};
};

TEST_F(AgentReports, TheSummaryTellsWhyThisWorkerDoesNotTrain) {
  ASSERT_NE(running.agent, nullptr);
  const nlohmann::json summary = Summary();
  EXPECT_EQ(summary["waitingFor"], "trainer");
  EXPECT_EQ(summary["trainer"]["tensors"], "") << "none has connected";
  EXPECT_GE(summary.value("waitingSeconds", -1.0), 0);
  EXPECT_LE(summary.value("waitingSeconds", 1e9), Unix() - before);
}

// A name that resolves to this machine is how a page of a stranger would ask.
TEST_F(AgentReports, TheSummaryIsAskedForByAnAddress) {
  ASSERT_NE(running.agent, nullptr);
  httplib::Client client("http://" + running.agent->http_endpoint());
  const auto reply = client.Get("/summary", {{"Host", "evil.example:80"}});
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 421);
  EXPECT_EQ(reply->body.find("worker"), std::string::npos);
}

TEST_F(AgentReports, TheSummaryTellsWhenItStartedAndWhenTheFirstStepWasMade) {
  ASSERT_NE(running.agent, nullptr);
  auto trainer = LinkClient::Connect(running.link(), Seconds(20));
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  std::vector<float> params(8, 1.0F);
  ASSERT_TRUE((*trainer)->Register({Tensor("weights", 8)}).ok());
  ASSERT_TRUE((*trainer)->Start(params, Seconds(20)).ok());
  // It makes no first step, and nothing else is missing.
  ASSERT_TRUE(EventuallyHolds([&] { return Summary()["waitingFor"] == "trainer"; }));
  nlohmann::json summary = Summary();
  EXPECT_NE(summary["trainer"]["tensors"], "");
  EXPECT_GE(summary.value("started_unix", 0.0), before);
  EXPECT_LE(summary.value("started_unix", 0.0), Unix());
  EXPECT_TRUE(summary["first_step_unix"].is_null());
  EXPECT_EQ(summary["averaging_seconds"]["number"], 0);
  for (const std::string_view part : kAveragingParts)
    EXPECT_EQ(summary["averaging_seconds"][std::string(part)], 0.0) << part;
  const double stepped = Unix();
  (void)(*trainer)->StepDone(1, 1.0, params);  // one is enough
  ASSERT_TRUE(EventuallyHolds([&] { return Summary()["first_step_unix"].is_number(); }));
  EXPECT_GE(Summary()["first_step_unix"].get<double>(), stepped);
  EXPECT_LE(Summary()["first_step_unix"].get<double>(), Unix());
  ASSERT_TRUE(EventuallyHolds([&] { return Summary()["view"].is_object(); }));
  summary = Summary();
  EXPECT_EQ(summary["waitingFor"], "");
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

// An agent alone that averages after each step, and its trainer.
struct AgentTrouble : testing::Test {
  AgentTrouble() : running(authority, 0, "", {.config = EachStep()}) {
    auto connected = LinkClient::Connect(running.link(), Seconds(20));
    EXPECT_TRUE(connected.ok()) << connected.status();
    trainer = *std::move(connected);
    EXPECT_TRUE(trainer->Register({Tensor("embedding", 8), Tensor("head", 16)}).ok());
    EXPECT_TRUE(trainer->Start(params, Seconds(20)).ok());
  }
  static JobConfig EachStep() {
    JobConfig config;
    config.averaging.interval = 1;  // step
    return config;
  }
  // Steps until it holds, looked at after each.
  template <class Condition>
  bool StepsUntil(Condition condition) {
    return EventuallyHolds([&] {
      (void)trainer->StepDone(1, 1.0, params);
      return condition();
    });
  }
  double Value(const char* metric) { return running.agent->metrics().Value(metric); }

  const dht::TestAuthority authority;
  RunningAgent running;
  std::unique_ptr<LinkClient> trainer;
  std::vector<float> params = std::vector<float>(24, 1.0F);
};

TEST_F(AgentTrouble, ASnapshotThatIsNotFiniteNamesItsTensor) {
  params[23] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(StepsUntil([&] {
    return SummaryOf(running).value("trouble", "").find("(tensor head)") != std::string::npos;
  })) << SummaryOf(running).dump();
}

// Several make a worker give its seat back for a while; here nobody else would go on.
TEST_F(AgentTrouble, WhoIsAloneKeepsItsSeatWhateverItsSnapshots) {
  const auto ready = [&] { return Value("crowdsurf_worker_ready") == 1; };
  ASSERT_TRUE(StepsUntil(ready));
  params[0] = std::numeric_limits<float>::quiet_NaN();
  bool stayed = true;
  ASSERT_TRUE(StepsUntil([&] {
    stayed = stayed && ready();
    return Value("crowdsurf_worker_snapshots_refused_total") >= 5;
  }));
  EXPECT_TRUE(stayed);
}

struct AgentCheckpoint : testing::Test {
  // An agent and its trainer, which starts from `params` unless the agent has a state for it.
  struct Worker {
    Worker(AgentCheckpoint& test, const std::string& own, std::vector<float>& params)
        : running(test.authority, 0, "", {.config = test.config, .options = test.options}) {
      auto connected = LinkClient::Connect(running.link(), Seconds(20));
      EXPECT_TRUE(connected.ok()) << connected.status();
      trainer = *std::move(connected);
      trainer->SetOpaque([own] { return Bytes(own.begin(), own.end()); },
                         [this](ByteView bytes) {
                           restored.assign(bytes.begin(), bytes.end());
                           return absl::OkStatus();
                         });
      EXPECT_TRUE(trainer->Register({Tensor("weights", 8)}).ok());
      EXPECT_TRUE(trainer->Start(params, Seconds(20)).ok());
    }
    std::string restored;
    RunningAgent running;
    std::unique_ptr<LinkClient> trainer;
  };

  AgentCheckpoint() {
    config.averaging.interval = 20;  // steps
    config.checkpoint_seconds = 0.01;
    config.checkpoint_retain = 1'000;
    options.checkpoint_dir = checkpoints.path().string();
  }
  std::set<std::string> Written() const {
    std::set<std::string> written;
    for (const auto& entry : std::filesystem::directory_iterator(checkpoints.path()))
      if (entry.path().extension() == ".crowdsurf") written.insert(entry.path().string());
    return written;
  }

  const std::string own = "the state of the optimizer, as the trainer wrote it";
  const dht::TestAuthority authority;
  const dht::TemporaryDirectory checkpoints;
  JobConfig config;
  AgentOptions options;
};

// The trainer gives its own state at the next boundary of a step, and the checkpoint waits for it.
TEST_F(AgentCheckpoint, TheFirstOneHoldsWhatTheTrainerGave) {
  std::vector<float> params(8, 1.0F);
  Worker worker(*this, own, params);
  ASSERT_TRUE(EventuallyHolds([&] {
    (void)worker.trainer->StepDone(1, 1.0, params);
    return !Written().empty();
  }));
  EXPECT_THAT(ReadFile(*Written().begin()).value_or(""), testing::HasSubstr(own));
}

// Without it the epochs would be trained anew.
TEST_F(AgentCheckpoint, OneOfAJobThatDealsLeasesHoldsTheirLedger) {
  std::vector<float> params(8, 1.0F);
  Worker worker(*this, own, params);
  auto http = HttpClient::Connect(worker.running.link() + "/agent.sock");
  ASSERT_TRUE(http.ok()) << http.status();
  const char* data = R"({"samples": 1000, "unit": 10, "seed": 7})";
  ASSERT_EQ(http->Do("POST", "/v1/data", data, Seconds(20))->code, 200);
  CheckpointInfo newest;
  ASSERT_TRUE(EventuallyHolds([&] {
    (void)worker.trainer->StepDone(1, 1.0, params);
    const std::set<std::string> written = Written();
    if (written.empty()) return false;
    const auto found = VerifyCheckpoint(*written.rbegin());
    if (found.ok()) newest = found->info;
    return !newest.ledger.empty();
  }));
  const auto ledger = LeaseLedger::Decode(newest.ledger);
  ASSERT_TRUE(ledger.has_value());
  EXPECT_EQ(ledger->spec(), (DataSpec{.samples = 1000, .unit = 10, .seed = 7}));
  EXPECT_EQ(newest.job, "job");
  EXPECT_GE(newest.view_epoch, 1U);
}

TEST_F(AgentCheckpoint, AStateThatNobodyAskedForIsNone) {
  config.checkpoint_seconds = 1e6;
  const RunningAgent running(authority, 0, "", {.config = config, .options = options});
  auto trainer = HttpClient::Connect(running.link() + "/agent.sock");
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  const char* table = R"({"tensors": [{"name": "w", "shape": [8]}], "fresh": true})";
  ASSERT_EQ(trainer->Do("POST", "/v1/register", table, Seconds(20))->code, 200);
  for (const char* state : {"a", "b"})
    EXPECT_EQ(trainer->Do("PUT", "/v1/opaque?sequence=1", state, Seconds(20))->code, 200);
  EXPECT_TRUE(EventuallyHolds([&] { return SummaryOf(running).contains("state"); }));
  EXPECT_TRUE(Written().empty());
}

TEST_F(AgentCheckpoint, ATrainerOfTheNextAgentStartsFromIt) {
  std::vector<float> params(8, 1.0F);
  {
    Worker worker(*this, own, params);
    params.assign(8, 7.0F);
    ASSERT_TRUE(EventuallyHolds([&] {
      (void)worker.trainer->StepDone(1, 1.0, params);
      return !Written().empty();
    }));
  }
  std::vector<float> fresh(8, 2.0F);
  const Worker next(*this, "", fresh);
  EXPECT_EQ(fresh, params);
  EXPECT_EQ(next.restored, own);
}

}  // namespace
}  // namespace crowdsurf::worker
