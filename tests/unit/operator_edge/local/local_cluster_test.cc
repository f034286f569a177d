#include "operator/edge/local/local_cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

#include "base/edge/clock.h"
#include "base/edge/files.h"
#include "operator/core/job/failure_text.h"
#include "operator/edge/local/run_cleanup.h"
#include "operator/edge/reconcile/reconciler.h"

// The reconciler over real processes: agents and trainers are tests/support/fake_worker.py.
namespace crowdsurf::controller {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr Duration kPatience = Seconds(60);  // a test fails by it, and never waits for it

class LocalClusterTest : public ::testing::Test {
 protected:
  void Make(int replicas, std::vector<std::string> trainer,
            std::vector<std::string> environment = {}, bool market = false,
            const nlohmann::json& discovery = nlohmann::json::object()) {
    const std::string fake = std::filesystem::current_path() / "tests/support/fake_worker.py";
    trainer.insert(trainer.begin(), {fake, "train"});
    job_.name = "job";
    job_.uid = "uid";
    job_.spec = SpecFromJson(WithDefaults(
        {{"replicas", replicas},
         {"target", {{"samples", 1000}}},
         {"runPolicy", {{"backoffLimit", 2}}},
         {"discovery", discovery},
         {"template",
          {{"spec", {{"containers", {{{"name", "trainer"}, {"command", trainer}}}}}}}}}));
    state_ = ::testing::TempDir() + "local_cluster_test" + std::to_string(getpid());
    std::filesystem::create_directories(state_);
    authority_ = std::make_unique<CertificateAuthority>(
        std::move(CertificateAuthority::Create("job", WallNow()).value()));
    signer_ = std::move(Signer::Start(*authority_, {}, WallNow(), metrics_).value());
    environment.push_back("PATH=/usr/bin:/bin");
    LocalClusterOptions options;
    options.pods = {run_, state_,         state_ + "/link",  "/usr/bin",
                    fake, signer_->url(), authority_->pem(), environment};
    options.nodes_from_market = market;
    options.poll_interval_ms = 50;
    cluster_ = std::make_unique<LocalCluster>(options, job_, *signer_, WallNow);
    DecideOptions decide;
    decide.crash_backoff = {Milliseconds(50), Milliseconds(200)};
    reconciler_ = std::make_unique<Reconciler>(*cluster_, decide, metrics_, Logger());
  }

  // Reconciles until `done`; false after kPatience.
  bool Until(const std::function<bool()>& done) {
    const WallTime end = WallNow() + kPatience;
    WallTime wake = WallNow();
    while (WallNow() < end) {
      if (cluster_->Wait(std::min(wake, end)) || WallNow() >= wake) {
        const auto plan = reconciler_->Reconcile("job", WallNow());
        EXPECT_TRUE(plan.ok()) << plan.status();
        wake = plan->requeue_at;
      }
      if (done()) return true;
    }
    return false;
  }

  void TearDown() override {
    if (!cluster_) return;
    reconciler_.reset();
    cluster_.reset();
    signer_.reset();
    EXPECT_EQ(KillRunProcesses(run_), 0) << "no process is left over";
    std::filesystem::remove_all(state_);
  }

  int Ready() { return cluster_->status().ready_replicas; }
  std::string Link(const std::string& pod) { return state_ + "/link/" + pod; }

  const std::string run_ = "cluster" + std::to_string(getpid());
  MetricRegistry metrics_;
  TrainingJob job_;
  std::string state_;
  std::unique_ptr<CertificateAuthority> authority_;
  std::unique_ptr<Signer> signer_;
  std::unique_ptr<LocalCluster> cluster_;
  std::unique_ptr<Reconciler> reconciler_;
};

TEST_F(LocalClusterTest, StartsWorkersAndTellsThemOfEachOther) {
  Make(2, {});
  ASSERT_TRUE(Until([&] { return Ready() == 2; }));
  ASSERT_TRUE(Until(
      [&] { return !ReadFile(state_ + "/workers/job-0-1/agent/seeds").value_or("").empty(); }));
  const json peer = json::parse(ReadFile(state_ + "/workers/job-1-1/agent/endpoints").value_or(""));
  EXPECT_EQ(ReadFile(state_ + "/workers/job-0-1/agent/seeds").value_or(""),
            peer["peer"].get<std::string>() + "\n");
  EXPECT_GT(cluster_->progress().samples, 0u);
  EXPECT_EQ(cluster_->Workers().size(), 2u);
}

TEST_F(LocalClusterTest, ASilentlyTakenMachineIsADisruptionAndIsReplacedAtOnce) {
  Make(2, {"--child", "--ignore-term"});
  ASSERT_TRUE(Until([&] { return Ready() == 2; }));
  cluster_->TakeNode(cluster_->TakeableNodes()[0], std::nullopt);
  ASSERT_TRUE(Until([&] { return cluster_->status().incarnations.at(0) == 2 && Ready() == 2; }));
  EXPECT_EQ(cluster_->status().disruptions, 1u);
  EXPECT_EQ(cluster_->status().failures, 0u);
  ASSERT_TRUE(Until([&] { return !std::filesystem::exists(Link("job-0-1")); }));
  EXPECT_EQ(KillRunProcesses(run_, "job-0-1"), 0) << "its escaped child is dead too";
}

// pod-lifecycle 1.6
TEST_F(LocalClusterTest, ANoticeReachesTheAgentAsAFileAndTheMachineGoesAtItsDeadline) {
  Make(1, {"--ignore-term"});
  ASSERT_TRUE(Until([&] { return Ready() == 1; }));
  cluster_->TakeNode(cluster_->TakeableNodes()[0], Seconds(2));
  ASSERT_TRUE(Until(
      [&] { return !ReadFile(state_ + "/workers/job-0-1/agent/notice").value_or("").empty(); }));
  EXPECT_EQ(json::parse(ReadFile(state_ + "/workers/job-0-1/agent/notice").value_or(""))["reason"],
            "SpotInterruption");
  EXPECT_EQ(cluster_->status().incarnations.at(0), 2) << "the replacement does not wait";
  ASSERT_TRUE(Until([&] { return !std::filesystem::exists(Link("job-0-1")) && Ready() == 1; }));
  EXPECT_EQ(cluster_->status().disruptions, 1u);
  EXPECT_EQ(cluster_->status().failures, 0u);
}

TEST_F(LocalClusterTest, AMachineOfTheMarketIsGoneWhenItsNoticeIsOver) {
  Make(1, {}, {}, /*market=*/true);
  cluster_->AddNode("node1");
  const auto there = [&] { return cluster_->Observe("job")->nodes.contains("node1"); };
  ASSERT_TRUE(Until([&] { return Ready() == 1; }));
  cluster_->TakeNode("node1", Seconds(1));
  EXPECT_TRUE(there());
  EXPECT_TRUE(Until([&] { return !there(); }));
}

// The report draws its cross there.
TEST_F(LocalClusterTest, TheEndOfAWorkerThatWasToldToGoIsSaid) {
  Make(2, {});
  ASSERT_TRUE(Until([&] { return Ready() == 2; }));
  cluster_->TakeNode(cluster_->TakeableNodes()[0], Seconds(3));
  bool left = false;
  EXPECT_TRUE(Until([&] {
    for (const ClusterEvent& event : cluster_->TakeEvents())
      left |= event.kind == ClusterEvent::Kind::kLeft && event.pod == "job-0-1";
    return left;
  }));
}

TEST_F(LocalClusterTest, ATrainerThatCrashesAtOnceBacksOffThenFailsTheJobWithItsLastOutput) {
  Make(2, {"--after", "0", "--exit", "3", "--print", "no such file: text"});
  ASSERT_TRUE(Until([&] { return cluster_->status().finished(); }));
  const TrainingJobStatus& status = cluster_->status();
  EXPECT_EQ(status.Find(ConditionType::kFailed)->reason, reason::kBackoffLimitExceeded);
  EXPECT_THAT(status.last_failure->output, HasSubstr("no such file: text"));
  EXPECT_EQ(status.last_failure->exit_code, 3);
  // The third failure that counts is of a pod that was made after the second, whosever it was.
  EXPECT_GE(status.incarnations.at(0) + status.incarnations.at(1), 4) << "they were tried again";
  EXPECT_EQ(status.disruptions, 0u);
  EXPECT_TRUE(Until([&] { return cluster_->idle() || cluster_->Workers().empty(); }) ||
              cluster_->Workers().size() <= 2u);
}

TEST_F(LocalClusterTest, ATrainerFindsTheProgramsOfCrowdsurfFirst) {
  Make(1, {});  // with /usr/bin for their folder
  TrainingJobSpec spec = job_.spec;
  spec.pod_template["spec"]["containers"][0]["command"] = {"sh", "-c", "echo \"<$PATH>\"; exit 3"};
  cluster_->Apply(spec);
  ASSERT_TRUE(Until([&] { return cluster_->status().last_failure.has_value(); }));
  EXPECT_THAT(cluster_->status().last_failure->output, HasSubstr("</usr/bin:/usr/bin:/bin>"));
}

TEST_F(LocalClusterTest, ATrainerThatHangsIsEndedReplacedAndCountedAsAFailure) {
  Make(1, {"--ignore-term", "--print", "waiting for a lock"}, {"FAKE_TRAINER=hung"});
  std::vector<std::string> said;
  const auto hung = [&] {
    for (ClusterEvent& event : cluster_->TakeEvents()) {
      if (event.kind == ClusterEvent::Kind::kHung) said.push_back(event.pod + " " + event.detail);
    }
    return cluster_->status().finished();
  };
  ASSERT_TRUE(Until(hung));
  const TrainingJobStatus& status = cluster_->status();
  EXPECT_EQ(status.last_failure->reason, reason::kTrainerHung);
  EXPECT_THAT(status.last_failure->output,
              ::testing::AllOf(HasSubstr("waiting for a lock"),
                               HasSubstr("it hung, no step for 7 s, and was ended")));
  EXPECT_EQ(status.failures, 3u) << "backoffLimit is 2";
  EXPECT_EQ(status.disruptions, 0u);
  EXPECT_THAT(said, ::testing::ElementsAre("job-0-1 no step for 7 s", "job-0-2 no step for 7 s",
                                           "job-0-3 no step for 7 s"));
}

TEST_F(LocalClusterTest, WhereATrainerHangsIsSaidAndKept) {
  Make(1, {"--ignore-term", "--print", "loading"},
       {"FAKE_TRAINER=hung",
        "FAKE_STACKS=Thread 0x1 (most recent call first):\n  File \"a.py\", line 3 in beat\n\n"
        "Thread 0x2 (most recent call first):\n  File \"a.py\", line 9 in load\x1b[2J\n"});
  const std::string where = "no step for 7 s, in File \"a.py\", line 9 in load";
  std::string said;
  ASSERT_TRUE(Until([&] {
    for (const ClusterEvent& event : cluster_->TakeEvents()) {
      if (event.kind == ClusterEvent::Kind::kHung) said = event.detail;
    }
    return cluster_->status().last_failure.has_value();
  }));
  EXPECT_EQ(said, where);
  const FailureNote& failure = *cluster_->status().last_failure;
  EXPECT_THAT(failure.output, ::testing::HasSubstr("loading\n\nThread 0x1 (most recent"));
  EXPECT_EQ(FailureLine(failure.reason, failure.output),
            "(crowdsurf: it hung, " + where + ", and was ended)");
}

TEST_F(LocalClusterTest, WhatAnAgentCannotWriteIsSaidOnceAndKept) {
  Make(2, {}, {"FAKE_WRITE_ERROR=write checkpoint/x: No space left on device"});
  int said = 0;
  ASSERT_TRUE(Until([&] {
    for (ClusterEvent& event : cluster_->TakeEvents()) {
      said += event.type == EventType::kWarning &&
              event.detail.find("No space left") != std::string::npos;
    }
    return Ready() == 2 && cluster_->progress().samples > 500;
  }));
  EXPECT_EQ(said, 1);
  EXPECT_EQ(cluster_->write_error(), "write checkpoint/x: No space left on device");
}

TEST_F(LocalClusterTest, WhatKeepsAWorkersTrainingOutOfTheAveragesIsSaidOnceForEach) {
  Make(2, {}, {"FAKE_TROUBLE=gets no seat: another tensor table"});
  std::vector<std::string> said;
  ASSERT_TRUE(Until([&] {
    for (ClusterEvent& event : cluster_->TakeEvents()) {
      if (event.type == EventType::kWarning && event.detail == "gets no seat: another tensor table")
        said.push_back(event.pod);
    }
    return Ready() == 2 && cluster_->progress().samples > 500;
  }));
  EXPECT_THAT(said, ::testing::UnorderedElementsAre("job-0-1", "job-1-1"));
}

TEST_F(LocalClusterTest, BootstrapPeersThatNeverAnswerAreNamedOnceAJob) {
  Make(2, {}, {"FAKE_SILENT_SEEDS=a.example:1 10.0.0.9:7 b.example:2"}, false,
       {{"bootstrapPeers", {"a.example:1", "b.example:2"}}});
  std::vector<std::string> said;
  ASSERT_TRUE(Until([&] {
    for (ClusterEvent& event : cluster_->TakeEvents()) {
      if (event.detail.find("bootstrapPeers") != std::string::npos) said.push_back(event.detail);
    }
    return Ready() == 2 && cluster_->progress().samples > 500;
  }));
  EXPECT_THAT(said, ::testing::ElementsAre(
                        "spec.discovery.bootstrapPeers: none answers (a.example:1, b.example:2), "
                        "so the job trains without them"));
}

TEST_F(LocalClusterTest, OneBootstrapPeerThatAnswersIsEnough) {
  Make(1, {}, {"FAKE_SILENT_SEEDS=a.example:1"}, false,
       {{"bootstrapPeers", {"a.example:1", "b.example:2"}}});
  ASSERT_TRUE(Until([&] { return Ready() == 1 && cluster_->progress().samples > 500; }));
  for (ClusterEvent& event : cluster_->TakeEvents())
    EXPECT_EQ(event.detail.find("bootstrapPeers"), std::string::npos) << event.detail;
}

TEST_F(LocalClusterTest, AWorkerThatCannotBeStartedIsSaidAndTriedAgain) {
  Make(1, {});
  WriteFileAtomically(state_ + "/workers", "a file where folders should be").IgnoreError();
  int said = 0;
  const auto count = [&] {
    for (ClusterEvent& event : cluster_->TakeEvents()) {
      said += event.type == EventType::kWarning &&
              event.detail.find("cannot make") != std::string::npos;
    }
  };
  ASSERT_TRUE(Until([&] {
    count();
    return said >= 1;
  }));
  EXPECT_EQ(Ready(), 0);
  std::filesystem::remove(state_ + "/workers");
  EXPECT_TRUE(Until([&] { return Ready() == 1; }));
}

TEST_F(LocalClusterTest, AProgramThatIsNotThereAndAnAgentThatCannotStartAreFailuresInWords) {
  Make(1, {});
  job_.spec.pod_template["spec"]["containers"][0]["command"] = {"no-such-trainer"};
  LocalClusterOptions options;
  options.pods = {run_,
                  state_,
                  state_ + "/link",
                  "/usr/bin",
                  std::filesystem::current_path() / "tests/support/fake_worker.py",
                  signer_->url(),
                  authority_->pem(),
                  {"PATH=/usr/bin:/bin"}};
  cluster_ = std::make_unique<LocalCluster>(options, job_, *signer_, WallNow);
  DecideOptions impatient;
  impatient.crash_backoff = {Milliseconds(10), Milliseconds(20)};
  reconciler_ = std::make_unique<Reconciler>(*cluster_, impatient, metrics_, Logger());
  ASSERT_TRUE(Until([&] { return cluster_->status().finished(); }));
  EXPECT_THAT(cluster_->status().last_failure->output,
              HasSubstr("there is no program no-such-trainer"));
}

TEST_F(LocalClusterTest, AnAgentThatNeverComesUpFailsTheJobWithItsOutput) {
  Make(1, {}, {"FAKE_AGENT=crash"});
  ASSERT_TRUE(Until([&] { return cluster_->status().finished(); }));
  EXPECT_EQ(cluster_->status().last_failure->reason, reason::kAgentNeverStarted);
  EXPECT_THAT(cluster_->status().last_failure->output, HasSubstr("agent: cannot go on"));
}

TEST_F(LocalClusterTest, WhenTheTargetIsMetTheJobSucceedsAndTheModelIsThere) {
  Make(2, {}, {"FAKE_TARGET=1000", "FAKE_WORKERS=2"});
  ASSERT_TRUE(Until([&] { return cluster_->status().finished(); }));
  EXPECT_TRUE(cluster_->status().Is(ConditionType::kSucceeded));
  EXPECT_EQ(cluster_->status().failures, 0u);
  EXPECT_TRUE(std::filesystem::exists(state_ + "/checkpoint/model.safetensors"));
}

// A job may be over before anybody has seen its workers train: they are no latecomers, and have
// their last word.
TEST_F(LocalClusterTest, WorkersOfAShortJobEndByThemselves) {
  for (const std::string seen : {"FAKE_STATE=Stopped", "FAKE_SLOW=1"}) {
    Make(2, {"--last-word", "goodbye"},
         {"FAKE_TARGET=300", "FAKE_WORKERS=2", "FAKE_LINGER=1", seen});
    ASSERT_TRUE(Until([&] { return cluster_->status().finished(); }));
    EXPECT_TRUE(cluster_->status().Is(ConditionType::kSucceeded));
    for (const std::string worker : {"job-0-1", "job-1-1"})
      EXPECT_THAT(ReadFile(state_ + "/workers/" + worker + "/trainer.log", 1024).value_or(""),
                  HasSubstr("goodbye"))
          << seen;
    TearDown();
  }
}

// An agent may end before anybody asks it once more.
TEST_F(LocalClusterTest, TheLastWordsOfAnAgentAreHeard) {
  Make(1, {},
       {"FAKE_TARGET=500", "FAKE_SUMMARY_TARGET=never",
        "FAKE_LAST_ERROR=write checkpoint/x: No space left on device"});
  ASSERT_TRUE(Until([&] { return cluster_->status().finished(); }));
  EXPECT_TRUE(cluster_->status().Is(ConditionType::kSucceeded));
  EXPECT_EQ(cluster_->status().failures, 0u) << "a good end before the target would be one";
  EXPECT_EQ(cluster_->write_error(), "write checkpoint/x: No space left on device");
}

TEST_F(LocalClusterTest, AJobWhoseTrainersTellNoLossHasNone) {
  Make(1, {}, {"FAKE_LOSS=none"});
  ASSERT_TRUE(Until([&] { return Ready() == 1 && cluster_->progress().samples > 500; }));
  EXPECT_FALSE(cluster_->progress().loss.has_value());
}

TEST_F(LocalClusterTest, WithAMarketPodsWaitForMachines) {
  Make(2, {}, {}, /*market=*/true);
  cluster_->AddNode("node1");
  ASSERT_TRUE(Until([&] { return Ready() == 1; }));
  EXPECT_EQ(cluster_->status().Find(ConditionType::kDegraded)->reason, reason::kNoSpotCapacity);
  cluster_->AddNode("node2");
  ASSERT_TRUE(Until([&] { return Ready() == 2; }));
  cluster_->TakeNode("node1", std::nullopt);
  cluster_->TakeNode("node2", std::nullopt);  // all at once
  ASSERT_TRUE(Until([&] { return cluster_->status().disruptions == 2; }));
  cluster_->AddNode("node3");
  cluster_->AddNode("node4");
  ASSERT_TRUE(Until([&] { return Ready() == 2; }));
  EXPECT_EQ(cluster_->status().failures, 0u);
}

TEST_F(LocalClusterTest, StopAllLetsWorkersLeaveAndKillsThoseThatWillNot) {
  Make(2, {"--ignore-term"});
  const std::string log = state_ + "/workers/job-0-1/trainer.log";
  // A log is made with its first line, and the trainer may be slower than 300 ms to say it.
  ASSERT_TRUE(Until([&] { return Ready() == 2 && std::filesystem::exists(log); }));
  cluster_->StopAll(Milliseconds(300));
  const WallTime end = WallNow() + kPatience;
  while (!cluster_->idle() && WallNow() < end) cluster_->Wait(end);
  EXPECT_TRUE(cluster_->idle());
  EXPECT_FALSE(std::filesystem::exists(Link("job-0-1")));
  EXPECT_FALSE(std::filesystem::exists(state_ + "/workers/job-0-1/agent")) << "no keys stay";
  EXPECT_TRUE(std::filesystem::exists(log)) << "what a program said stays";
}

}  // namespace
}  // namespace crowdsurf::controller
