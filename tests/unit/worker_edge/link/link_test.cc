// The link's protocol, agent's and trainer's real sides against each other, in one process.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <thread>

#include "base/digest.h"
#include "tests/support/eventually.h"
#include "tests/unit/worker_edge/link/link_fixture.h"
#include "worker/edge/link/link_mapping.h"

namespace crowdsurf::worker {
namespace {

using Link = LinkFixture;

TEST_F(Link, ATrainerRegistersAndLearnsWhatItNeeds) {
  StartServer();
  auto client = Connect();
  const auto registration = client->Register(Model(100));
  ASSERT_TRUE(registration.ok()) << registration.status();
  EXPECT_EQ(registration->seed, 42u);
  EXPECT_EQ(registration->job, "charlm");
  EXPECT_EQ(registration->elements, 100u);
  const auto event = Expect<link::TrainerRegistered>();
  EXPECT_TRUE(event.fresh);
  EXPECT_EQ(event.elements, 100u);
  EXPECT_EQ(server_->outbox().size(), 100u);
  struct stat info {};  // pod-lifecycle 5.1
  ASSERT_EQ(stat((dir_ + "/tensors").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0666u) << "trainers of any user open it";
  ASSERT_EQ(stat((dir_ + "/agent.sock").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0666u);
}

TEST_F(Link, ADelayedAveragingAddsTheChangeToWhatTheTrainerHasByThen) {
  StartServer();
  std::vector<float> params(100, 1.0f);
  auto client = Train(params);
  EXPECT_FALSE(client->StepDone(8, 2.5, params).published);
  server_->RequestPublish(7);
  EXPECT_TRUE(client->StepDone(8, 2.25, params).published);
  const auto published = Expect<link::Published>();
  EXPECT_EQ(published.number, 7u);
  EXPECT_EQ(published.steps, 2u);
  EXPECT_EQ(published.samples, 16u);
  EXPECT_EQ(server_->outbox()[99], 1.0f);
  for (float& p : params) p += 10;  // training went on
  EXPECT_FALSE(client->StepDone(8, 2, params).applied);
  std::fill(server_->inbox(1).begin(), server_->inbox(1).end(), 3.0f);
  server_->Deliver(7, 1);
  const StepOutcome outcome = client->StepDone(8, 1.5, params);
  EXPECT_TRUE(outcome.applied);
  EXPECT_EQ(outcome.averaging, 7u);
  EXPECT_EQ(params[0], 13.0f) << "11 plus (3 - 1)";
  EXPECT_EQ(Expect<link::Applied>().number, 7u);
  EXPECT_FALSE(client->StepDone(8, 1.5, params).applied) << "added once";
  EXPECT_EQ(server_->counters().samples, 40u);
  EXPECT_DOUBLE_EQ(server_->counters().loss, 1.5);
}

TEST_F(Link, ASnapshotStaysUntilTheAgentReleasesIt) {
  StartServer();
  std::vector<float> params(100, 1.0f);
  auto client = TrainAndPublish(params);
  params.assign(100, 2.0f);
  server_->RequestPublish(2);  // too early: the first is in use
  EXPECT_FALSE(client->StepDone(1, 1, params).published);
  EXPECT_EQ(server_->outbox()[0], 1.0f);
}

TEST_F(Link, NumbersMayRepeatOrFallWhenABranchJoinsAnother) {
  StartServer();
  std::vector<float> params(100, 1.0f);
  auto client = Train(params);
  for (const uint64_t number : {9U, 9U, 3U}) {
    server_->RequestPublish(number);
    EXPECT_TRUE(client->StepDone(1, 1, params).published);
    EXPECT_EQ(Expect<link::Published>().number, number);
    server_->ReleaseOutbox(number);
  }
}

TEST_F(Link, AnAveragingThatGaveNothingLeavesTheTrainerItsOwnValues) {
  StartServer(LinkOverlap::kBlocking);
  std::vector<float> params(100, 1.0f);
  auto client = Train(params);
  server_->RequestPublish(1);
  StepOutcome outcome;
  std::thread trainer([&] { outcome = client->StepDone(1, 1, params); });
  Expect<link::Published>();
  server_->ReleaseOutbox(1);
  trainer.join();
  EXPECT_FALSE(outcome.applied);
  EXPECT_EQ(params[0], 1.0f);
}

TEST_F(Link, ABlockingStepReturnsWithTheResult) {
  StartServer(LinkOverlap::kBlocking);
  std::vector<float> params(100, 1.0f);
  auto client = Train(params);
  server_->RequestPublish(1);
  StepOutcome outcome;
  std::thread trainer([&] { outcome = client->StepDone(1, 1, params); });
  Expect<link::Published>();
  std::fill(server_->inbox(0).begin(), server_->inbox(0).end(), 5.0f);
  server_->Deliver(1, 0);
  trainer.join();
  EXPECT_TRUE(outcome.published);
  EXPECT_TRUE(outcome.applied);
  EXPECT_EQ(params[0], 5.0f) << "own steps do not overlap: the mean itself";
  EXPECT_GT(server_->counters().stall_seconds, 0);
}

TEST_F(Link, ANotANumberIsCountedRefusedAndHarmsNothing) {
  StartServer();
  auto client = Connect();
  ASSERT_TRUE(client->Register(Model(10'000)).ok());
  Expect<link::TrainerRegistered>();
  server_->LetStart();
  std::vector<float> params(10'000, 1.0f);
  ASSERT_TRUE(client->Start(params, Seconds(20)).ok());
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    params[9'999] = bad;
    server_->RequestPublish(1);
    EXPECT_TRUE(client->StepDone(1, 1, params).published);
    const auto refused = Expect<link::PublishRefused>();
    EXPECT_EQ(refused.number, 1u);
    EXPECT_EQ(refused.element, 9'999u);
  }
  EXPECT_EQ(metrics_.Value("crowdsurf_link_snapshots_total", {{"result", "not_finite"}}), 2);
  params[9'999] = 1;
  server_->RequestPublish(2);
  EXPECT_TRUE(client->StepDone(1, 1, params).published) << "the outbox was released";
  EXPECT_EQ(Expect<link::Published>().number, 2u);
}

TEST_F(Link, AJoinerStartsFromTheOfferedStateAndItsOpaquePart) {
  StartServer();
  auto client = Connect();
  Bytes loaded;
  client->SetOpaque(
      [] {
        return Bytes{1, 2, 3};
      },
      [&](ByteView b) {
        loaded.assign(b.begin(), b.end());
        return absl::OkStatus();
      });
  ASSERT_TRUE(client->Register(Model()).ok());
  Expect<link::TrainerRegistered>();
  std::fill(server_->inbox(1).begin(), server_->inbox(1).end(), 0.5f);
  const Bytes opaque(100'000, 7);
  const uint64_t sequence = server_->OfferAdoption(1, 12, Held(opaque));
  std::vector<float> params(100, 1.0f);
  const auto outcome = client->Start(params, Seconds(20));
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_TRUE(outcome->adopted);
  EXPECT_EQ(outcome->averaging, 12u);
  EXPECT_EQ(params[42], 0.5f);
  EXPECT_EQ(loaded, opaque);
  EXPECT_EQ(Expect<link::Adopted>().sequence, sequence);
  server_->RequestOpaque();
  client->StepDone(1, 1, params);
  const auto given = Expect<link::OpaqueGiven>();
  EXPECT_EQ(given.opaque.hash, Sha256(Bytes{1, 2, 3}));
  EXPECT_EQ(Given(), (Bytes{1, 2, 3}));
}

TEST_F(Link, AResultOfParametersThatWereReplacedIsNotAdded) {
  StartServer();
  std::vector<float> params(100, 1.0f);
  auto client = TrainAndPublish(params);
  std::fill(server_->inbox(0).begin(), server_->inbox(0).end(), 8.0f);
  server_->OfferAdoption(0, 5, std::nullopt);
  EXPECT_TRUE(client->StepDone(1, 1, params).adopted);
  Expect<link::Adopted>();
  server_->Deliver(1, 1);
  EXPECT_FALSE(client->StepDone(1, 1, params).applied);
  EXPECT_EQ(params[0], 8.0f);
  Expect<link::Applied>();
}

TEST_F(Link, StopNoticeAndRateReachTheTrainerAtItsNextStep) {
  StartServer();
  std::vector<float> params(100, 1.0f);
  auto client = Train(params, {Seconds(5), {"heldout_bits_per_char"}});
  client->SetMetric(0, 2.9);
  EXPECT_DOUBLE_EQ(server_->counters().metrics.at("heldout_bits_per_char"), 2.9);
  server_->SetLrScale(0.25);
  server_->SetJob(12'345, 3, 2, 8);
  server_->SetNotice(true, 1'800'000'000'000'000'000, "spot");
  StepOutcome outcome = client->StepDone(1, 1, params);
  EXPECT_TRUE(outcome.leaving);
  EXPECT_DOUBLE_EQ(outcome.lr_scale, 0.25);
  EXPECT_DOUBLE_EQ(outcome.job_samples, 12'345);
  server_->RaiseStop();
  EXPECT_TRUE(client->StepDone(1, 1, params).stop);
  client->AcknowledgeStop();
  Expect<link::StopAcknowledged>();
}

// The agent has things to say before a trainer has come.
TEST_F(Link, WordsForATrainerThatIsNotThereYetChangeNothing) {
  StartServer();
  server_->SetLrScale(0.25);
  server_->SetJob(12'345, 3, 2, 8);
  server_->WakeAt(3, 8);
  std::vector<float> params(100, 1.0f);
  auto client = Train(params);
  const StepOutcome outcome = client->StepDone(1, 1, params);
  EXPECT_DOUBLE_EQ(outcome.lr_scale, 1);
  EXPECT_DOUBLE_EQ(outcome.job_samples, 0);
}

TEST_F(Link, AMarkOfStepsRingsOnceAlsoWhenItIsBehind) {
  StartServer();
  std::vector<float> params(100, 1.0f);
  auto client = Train(params);
  server_->WakeAt(3, 0);
  for (int i = 0; i < 5; ++i) client->StepDone(4, 1, params);
  EXPECT_GE(Expect<link::StepsReached>().steps, 3u);
  server_->WakeAt(0, 8);
  EXPECT_GE(Expect<link::StepsReached>().samples, 8u);
  EXPECT_FALSE(events_.TryTake().has_value());
}

TEST_F(Link, WithACadenceTheTrainerPublishesUnasked) {
  StartServer();
  auto client = Connect();
  ASSERT_TRUE(client->Register(Model()).ok());
  Expect<link::TrainerRegistered>();
  server_->SetMode(LinkOverlap::kDelayed, /*inbox_is_change=*/true, /*cadence_steps=*/2);
  server_->LetStart();
  std::vector<float> params(100, 1.0f);
  ASSERT_TRUE(client->Start(params, Seconds(20)).ok());
  for (uint64_t i = 1; i <= 3; ++i) {
    EXPECT_FALSE(client->StepDone(1, 1, params).published);
    EXPECT_TRUE(client->StepDone(1, 1, params).published);
    const uint64_t number = Expect<link::Published>().number;
    std::fill(server_->inbox(0).begin(), server_->inbox(0).end(), 1.0f);
    server_->Deliver(number, 0);
    EXPECT_TRUE(client->StepDone(1, 1, params).applied);
    EXPECT_EQ(params[0], 1.0f + static_cast<float>(i)) << "the inbox is the change";
    EXPECT_EQ(Expect<link::Applied>().number, number);
    client->StepDone(1, 1, params);  // due, and published: make it free again
    server_->ReleaseOutbox(Expect<link::Published>().number);
  }
}

// A live edit of the job may come before the trainer: it finds the mode that holds by then.
TEST_F(Link, AModeThatIsToldBeforeTheTrainerComesHoldsForIt) {
  AveragingConfig relay;
  relay.strategy = StrategyKind::kRelaySum;  // waits, whatever `overlap` says
  StartServer(LinkOverlapOf(AveragingConfig()));
  server_->SetMode(LinkOverlapOf(relay), false, 0);
  auto client = Connect();
  ASSERT_TRUE(client->Register(Model()).ok());
  auto seen = LinkMapping::Open(dir_ + "/tensors");
  ASSERT_TRUE(seen.ok()) << seen.status();
  const auto& overlap = seen->control().mode.overlap;
  EXPECT_EQ(overlap.load(), static_cast<uint32_t>(LinkOverlap::kBlocking));
  server_->SetMode(LinkOverlapOf(AveragingConfig()), false, 0);  // to Moshpit, delayed by default
  EXPECT_EQ(overlap.load(), static_cast<uint32_t>(LinkOverlap::kDelayed));
}

// docs/trainer-link.md: +1 at least every 500 ms. A busy machine can only make a beat late, so the
// shortest time of a few is the agent's own.
TEST_F(Link, AnIdleAgentBeatsTwiceASecond) {
  StartServer();
  auto client = Connect();
  ASSERT_TRUE(client->Register(Model()).ok());
  const auto link = LinkMapping::Open(dir_ + "/tensors");
  ASSERT_TRUE(link.ok()) << link.status();
  const auto& beat = link->control().agent_beat.value;
  const auto next = [&] {
    const uint64_t seen = beat.load();
    EXPECT_TRUE(EventuallyHolds([&] { return beat.load() != seen; }));
    return std::chrono::steady_clock::now();
  };
  auto shortest = std::chrono::nanoseconds::max();
  auto last = next();
  for (int i = 0; i < 10 && shortest >= std::chrono::milliseconds(700); ++i) {
    const auto now = next();
    shortest = std::min<std::chrono::nanoseconds>(shortest, now - last);
    last = now;
  }
  EXPECT_LT(shortest, std::chrono::milliseconds(700));
}

// pod-lifecycle 2.5

}  // namespace
}  // namespace crowdsurf::worker
