// The link over the lives of its two sides: a second trainer, a restarted one, a restarted agent,
// and what a file that was left behind means.
#include <thread>

#include "tests/unit/worker_edge/link/link_fixture.h"
#include "worker/core/subnet/index_sets.h"
#include "worker/edge/link/link_mapping.h"

namespace crowdsurf::worker {
namespace {

using Link = LinkFixture;

TEST_F(Link, ASecondTrainerIsRefusedWhileTheFirstIsConnected) {
  StartServer();
  auto first = Connect();
  ASSERT_TRUE(first->Register(Model()).ok());
  Expect<link::TrainerRegistered>();
  auto second = Connect();
  const auto refused = second->Register(Model());
  EXPECT_TRUE(absl::IsFailedPrecondition(refused.status())) << refused.status();
  first.reset();
  Expect<link::TrainerGone>();
  EXPECT_TRUE(second->Register(Model()).ok());
  EXPECT_TRUE(Expect<link::TrainerRegistered>().fresh);
}

TEST_F(Link, ATrainerWithAnotherModelIsRefusedInWords) {
  StartServer();
  Connect()->Register(Model(100)).IgnoreError();
  Expect<link::TrainerRegistered>();
  Expect<link::TrainerGone>();
  const auto refused = Connect()->Register(Model(101));
  EXPECT_TRUE(absl::IsFailedPrecondition(refused.status()));
  EXPECT_NE(std::string(refused.status().message()).find("100 elements; now"), std::string::npos)
      << refused.status();
}

TEST_F(Link, ATrainerWithoutUnitGroupsIsRefusedInWordsWhereTheJobNeedsThem) {
  StartServer(LinkOverlap::kBlocking, true);
  const auto refused = Connect()->Register(Model());
  EXPECT_TRUE(absl::IsInvalidArgument(refused.status())) << refused.status();
  EXPECT_NE(std::string(refused.status().message())
                .find("spec.averaging.strategy: IST needs unit groups"),
            std::string::npos)
      << refused.status();
  std::vector<LinkTensor> model = Model();
  model[0].units = {{.axis = 0, .group = 0}};
  EXPECT_TRUE(Connect()->Register(model).ok());
}

// What was written for the trainer before is none of the new one's: it trains the whole model.
TEST_F(Link, ANewTrainerTakesNoUnitsOfTheOneBefore) {
  StartServer();
  std::vector<LinkTensor> model = Model();
  model[0].units = {{.axis = 0, .group = 0}};
  {
    auto first = Connect();
    ASSERT_TRUE(first->Register(model).ok());
    Expect<link::TrainerRegistered>();
    ASSERT_TRUE(server_->SetIndexSets(EncodeIndexSets({{0, {1, 2}}})));
  }
  Expect<link::TrainerGone>();
  auto second = Connect();
  ASSERT_TRUE(second->Register(model).ok());
  Expect<link::TrainerRegistered>();
  const auto sets = second->TakeIndexSets();
  ASSERT_TRUE(sets.ok());
  EXPECT_FALSE(sets->has_value());
  EXPECT_TRUE(server_->SetIndexSets(EncodeIndexSets({{0, {3}}})));
}

TEST_F(Link, ARestartedTrainerGetsNothingOfTheDeadOnesAveraging) {
  StartServer();
  {
    std::vector<float> params(100, 1.0f);
    auto client = Train(params);
    server_->RequestPublish(1);
    client->StepDone(1, 1, params);
    Expect<link::Published>();
  }
  Expect<link::TrainerGone>();
  EXPECT_EQ(server_->outbox()[0], 1.0f) << "its snapshot can still be averaged";
  auto client = Connect();
  ASSERT_TRUE(client->Register(Model()).ok());
  EXPECT_TRUE(Expect<link::TrainerRegistered>().fresh);
  server_->LetStart();
  std::vector<float> params(100, 9.0f);
  ASSERT_TRUE(client->Start(params, Seconds(20)).ok());
  server_->Deliver(1, 0);
  const StepOutcome outcome = client->StepDone(1, 1, params);
  EXPECT_FALSE(outcome.applied);
  EXPECT_FALSE(outcome.published);
  EXPECT_EQ(params[0], 9.0f);
}

TEST_F(Link, AnAgentRestartedBesideALivingTrainerFindsItThereWithTheSameMemory) {
  StartServer();
  std::vector<float> params(100, 1.0f);
  auto client = Train(params);
  client->StepDone(5, 1, params);
  server_->RequestPublish(4);
  client->StepDone(5, 1, params);
  Expect<link::Published>();
  struct stat before {
  }, after{};
  ASSERT_EQ(stat((dir_ + "/tensors").c_str(), &before), 0);
  server_.reset();
  EXPECT_FALSE(client->StepDone(5, 1, params).applied) << "training goes on alone";
  StartServer();
  EXPECT_TRUE(server_->mapped()) << "the file is re-opened, not made again";
  ASSERT_EQ(stat((dir_ + "/tensors").c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);
  client->StepDone(5, 1, params);  // sees the new epoch and registers again
  const auto event = Expect<link::TrainerRegistered>();
  EXPECT_FALSE(event.fresh);
  EXPECT_EQ(server_->counters().samples, 20u);
  server_->RequestPublish(2);
  EXPECT_TRUE(client->StepDone(5, 1, params).published) << "the old snapshot counts as released";
  EXPECT_EQ(Expect<link::Published>().number, 2u);
}

// A large model takes seconds to copy, and an agent starts in less.
TEST_F(Link, AnAdoptionThatEndsAfterItsAgentHasDiedIsNotThatOfTheNextAgent) {
  StartServer();
  std::vector<float> params(100, 1.0f);
  auto client = Train(params);
  const uint64_t first = server_->OfferAdoption(0, 1, std::nullopt);
  server_.reset();
  StartServer();
  auto trainer = LinkMapping::Open(dir_ + "/tensors");
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  trainer->control().adopted.value.store(first, std::memory_order_release);
  client->StepDone(5, 1, params);  // sees the new epoch and registers again
  EXPECT_FALSE(Expect<link::TrainerRegistered>().fresh);
  std::fill(server_->inbox(0).begin(), server_->inbox(0).end(), 3.0f);
  EXPECT_GT(server_->OfferAdoption(0, 2, std::nullopt), first);
  EXPECT_TRUE(client->StepDone(5, 1, params).adopted);
  EXPECT_EQ(params[0], 3.0f);
}

TEST_F(Link, ATrainerBlockedOnAnAgentThatDiesGoesOn) {
  StartServer(LinkOverlap::kBlocking);
  std::vector<float> params(100, 1.0f);
  auto client = Train(params);
  server_->RequestPublish(1);
  StepOutcome outcome;
  std::thread trainer([&] { outcome = client->StepDone(1, 1, params); });
  Expect<link::Published>();
  server_.reset();
  StartServer(LinkOverlap::kBlocking);
  trainer.join();
  EXPECT_FALSE(outcome.applied);
  EXPECT_EQ(params[0], 1.0f);
}

TEST_F(Link, ALinkFileOfGarbageIsSetAside) {
  FILE* f = fopen((dir_ + "/tensors").c_str(), "w");
  for (int i = 0; i < 10'000; ++i) fputc(i % 251, f);
  fclose(f);
  StartServer();
  EXPECT_FALSE(server_->mapped());
  EXPECT_TRUE(std::filesystem::exists(dir_ + "/tensors.bad"));
  EXPECT_EQ(metrics_.Value("crowdsurf_link_files_set_aside_total"), 1);
  EXPECT_TRUE(Connect()->Register(Model()).ok());
}

TEST_F(Link, AClientNeverMakesTheFileItself) {  // pod-lifecycle 5.3
  const std::string path = dir_ + "/not-there";
  EXPECT_TRUE(absl::IsNotFound(LinkMapping::Open(path).status()));
  struct stat info {};
  EXPECT_NE(stat(path.c_str(), &info), 0);
}

TEST_F(Link, TwoAgentsOnOneFolderAreOneTooMany) {
  StartServer();
  LinkServerOptions options;
  options.dir = dir_;
  options.require_memory = false;
  const auto second = LinkServer::Start(
      options, [](const LinkEvent&) {}, Logger(), metrics_);
  EXPECT_TRUE(absl::IsFailedPrecondition(second.status())) << second.status();
  EXPECT_TRUE(LinkClient::Connect(dir_, Seconds(20)).ok()) << "the first one still answers";
}

}  // namespace
}  // namespace crowdsurf::worker
