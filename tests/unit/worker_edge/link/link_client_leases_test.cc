// A C++ trainer that draws leases, against the agent's side of the link.
#include <gmock/gmock.h>

#include <thread>

#include "tests/unit/worker_edge/link/link_fixture.h"

namespace crowdsurf::worker {
namespace {

using testing::HasSubstr;

struct LinkClientLeases : LinkFixture {
  // A trainer that draws from 100 samples in batches of 4.
  void Draw() {
    StartServer();
    trainer = Train(params);
    ASSERT_TRUE(trainer->Draw(100, 4).ok());
    EXPECT_EQ(Expect<link::DataDeclared>().spec, (DataSpec{.samples = 100, .unit = 4, .seed = 42}));
  }
  void Grant(uint64_t stream, uint64_t begin, const std::vector<Lease>& leases) {
    granted.stream = stream;
    granted.begin = begin;
    granted.leases = leases;
    server_->SetLeases(granted);
  }
  std::optional<Lease> Next() {
    const auto batch = trainer->NextBatch();
    EXPECT_TRUE(batch.ok()) << batch.status();
    return batch.ok() ? *batch : std::nullopt;
  }

  std::vector<float> params = std::vector<float>(100, 1.0f);
  LeasesGranted granted;
  std::unique_ptr<LinkClient> trainer;
};

TEST_F(LinkClientLeases, ItTrainsWhatIsGrantedAndSaysHowFarItIs) {
  Draw();
  Grant(3, 8, {{0, 20, 6}});
  EXPECT_EQ(Next(), (Lease{0, 20, 4}));
  EXPECT_EQ(server_->counters().leases.at, (StreamPosition{3, 8})) << "not trained yet";
  server_->RequestPublish(1);
  trainer->StepDone(4, 1, params);
  EXPECT_EQ(Expect<link::Published>().leases, (StreamPosition{3, 12}));
  EXPECT_EQ(Next(), (Lease{0, 24, 2}));
  trainer->StepDone(2, 1, params);
  EXPECT_EQ(server_->counters().leases.at, (StreamPosition{3, 14}));
  EXPECT_EQ(Next(), std::nullopt);
  EXPECT_FALSE(trainer->leases_closed());
}

TEST_F(LinkClientLeases, ItWaitsForLeasesAndAnswersTheAgentMeanwhile) {
  Draw();
  EXPECT_EQ(Next(), std::nullopt);
  server_->RequestPublish(1);
  EXPECT_TRUE(trainer->Pause(params).published);
  Expect<link::Published>();
  Expect<link::LeasesWaited>();
  EXPECT_TRUE(server_->counters().leases.waits);
  EXPECT_EQ(server_->counters().steps, 0u) << "a pause is no step";
  Grant(3, 0, {{0, 0, 4}});
  trainer->Pause(params);  // does not sleep: they are there
  EXPECT_EQ(Next(), (Lease{0, 0, 4}));
  EXPECT_FALSE(server_->counters().leases.waits);
}

TEST_F(LinkClientLeases, AnAdoptionEndsTheStreamAndAnotherOneBegins) {
  Draw();
  Grant(3, 0, {{0, 0, 8}});
  ASSERT_TRUE(Next().has_value());
  std::fill(server_->inbox(0).begin(), server_->inbox(0).end(), 7.0f);
  server_->OfferAdoption(0, 5, std::nullopt);
  EXPECT_TRUE(trainer->StepDone(4, 1, params).adopted);
  EXPECT_EQ(server_->counters().leases.at, StreamPosition());
  EXPECT_EQ(Next(), std::nullopt);
  Grant(4, 16, {{1, 0, 8}});
  EXPECT_EQ(Next(), (Lease{1, 0, 4}));
}

TEST_F(LinkClientLeases, ItSaysItsDataSetToARestartedAgentAndEndsWhereItIsClosed) {
  Draw();
  Grant(3, 0, {{0, 0, 8}});
  ASSERT_TRUE(Next().has_value());
  server_.reset();
  while (events_.TryTake()) continue;  // what the first agent still saw
  StartServer();
  trainer->StepDone(4, 1, params);
  EXPECT_FALSE(Expect<link::TrainerRegistered>().fresh);
  EXPECT_EQ(Expect<link::DataDeclared>().spec.samples, 100u);
  EXPECT_EQ(Next(), std::nullopt) << "the new agent has granted none";
  granted.closed = true;
  Grant(4, 0, {{0, 0, 4}});
  EXPECT_EQ(Next(), std::nullopt);
  EXPECT_TRUE(trainer->leases_closed());
}

TEST_F(LinkClientLeases, AStopIsTheLastThatItHears) {
  Draw();
  server_->RaiseStop();
  EXPECT_TRUE(trainer->Pause(params).stop);
  trainer->AcknowledgeStop();
  Expect<link::StopAcknowledged>();
  trainer.reset();
  Expect<link::TrainerGone>();
}

TEST_F(LinkClientLeases, AnotherDataSetIsAnErrorThatNamesBoth) {
  Draw();
  granted.other = {.samples = 99, .unit = 8, .seed = 42};
  Grant(0, 0, {});
  const auto batch = trainer->NextBatch();
  EXPECT_TRUE(absl::IsFailedPrecondition(batch.status()));
  EXPECT_THAT(std::string(batch.status().message()), HasSubstr("99 samples in batches of 8"));
  EXPECT_THAT(std::string(batch.status().message()), HasSubstr("100 samples in batches of 4"));
}

TEST_F(LinkClientLeases, WhatTheAgentRefusesIsSaidInItsWords) {
  StartServer();
  trainer = Train(params);
  const Status none = trainer->Draw(0, 4);
  EXPECT_TRUE(absl::IsInvalidArgument(none));
  EXPECT_THAT(std::string(none.message()), HasSubstr("\"samples\""));
  EXPECT_TRUE(trainer->Draw(100, 4).ok()) << "it may be tried again";
  Expect<link::DataDeclared>();
}

}  // namespace
}  // namespace crowdsurf::worker
