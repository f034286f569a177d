// Gradients over the trainer link: the real client against the agent's real side. A thread of the
// test is the agent, and acts on events alone.
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <span>
#include <thread>
#include <vector>

#include "tests/unit/worker_edge/link/link_fixture.h"
#include "worker/edge/link/link_http.h"

namespace crowdsurf::worker {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr uint64_t kElements = 4;

std::vector<float> Values(std::span<const float> region) { return {region.begin(), region.end()}; }

class GradientsLink : public LinkFixture {
 protected:
  void SetUp() override {
    LinkServerOptions options = Options();
    options.overlap = LinkOverlap::kBlocking;
    options.gradients = true;
    StartServer(options);
    client_ = Connect({.metrics = {}, .gradients = true});
  }

  // A trainer that has started, with a share of `share` samples.
  void Begin(uint64_t share) {
    client_->SetOpaque(
        [] {
          return Bytes{1, 2, 3};
        },
        [this](ByteView state) {
          taken_.assign(state.begin(), state.end());
          return absl::OkStatus();
        });
    const auto registered = client_->Register(Model(kElements));
    ASSERT_TRUE(registered.ok()) << registered.status();
    EXPECT_TRUE(registered->gradients);
    Expect<link::TrainerRegistered>();
    server_->SetShare(share);
    server_->LetStart();
    ASSERT_TRUE(client_->Start(params_, Seconds(20)).ok());
  }

  // A batch whose gradient is `value` everywhere; plain gradient descent with rate 1.
  StepOutcome Batch(uint64_t samples, float value) {
    const std::vector<float> gradient(kElements, value);
    return client_->GradientDone(samples, 0.5, gradient, params_, [this](auto mean) {
      for (size_t i = 0; i < kElements; ++i) params_[i] -= mean[i];
      ++steps_;
    });
  }
  // The last batch of a share, while the agent acts.
  StepOutcome Meet(uint64_t samples, float value, const std::function<void()>& agent) {
    std::thread beside(agent);
    const StepOutcome outcome = Batch(samples, value);
    beside.join();
    return outcome;
  }
  void Deliver(uint64_t number, float value) {
    std::ranges::fill(server_->inbox(1), value);
    server_->Deliver(number, 1);
  }

  std::unique_ptr<LinkClient> client_;
  std::vector<float> params_ = std::vector<float>(kElements, 10);
  Bytes taken_;
  int steps_ = 0;
};

TEST_F(GradientsLink, AStepHasTheMeanOfTheShareAndLeavesItsParametersInInboxZero) {
  Begin(10);
  EXPECT_FALSE(Batch(4, 1).published);
  EXPECT_FALSE(Batch(4, 3).published) << "eight of ten";
  const StepOutcome outcome = Meet(2, -4, [this] {
    Expect<link::ShareGathered>();
    EXPECT_EQ(server_->counters().gathered, 10U);
    EXPECT_TRUE(server_->counters().waits_for_agent);
    server_->RequestPublish(7);
    const auto published = Expect<link::Published>();
    EXPECT_EQ(published.gathered, 10U);
    EXPECT_EQ(published.samples, 10U);
    EXPECT_THAT(Values(server_->outbox()), Each(testing::FloatNear(0.8F, 1e-6F)));
    Deliver(7, 2);
    Expect<link::Applied>();
  });
  EXPECT_TRUE(outcome.applied);
  EXPECT_EQ(steps_, 1);
  EXPECT_THAT(params_, Each(8));
  EXPECT_THAT(Values(server_->inbox(0)), Each(8));
  EXPECT_EQ(server_->counters().step, 7U);
  EXPECT_EQ(server_->counters().gathered, 0U);
}

TEST_F(GradientsLink, AGradientThatNobodyTookGoesIntoTheNextAveraging) {
  Begin(4);
  Meet(4, 3, [this] {
    Expect<link::ShareGathered>();
    server_->RequestPublish(1);
    Expect<link::Published>();
    server_->ReleaseOutbox(1);
    server_->RequestPublish(2);
    EXPECT_EQ(Expect<link::Published>().gathered, 4U);
    EXPECT_THAT(Values(server_->outbox()), Each(3));
    Deliver(2, 1);
    Expect<link::Applied>();
  });
  EXPECT_EQ(steps_, 1);
  EXPECT_THAT(params_, Each(9));
}

TEST_F(GradientsLink, WhoMissedAStepTakesTheStateAndDropsItsGradient) {
  Begin(4);
  const Bytes opaque{9, 9};
  const HeldOpaque held = Held(opaque);
  const StepOutcome outcome = Meet(4, 3, [&] {
    Expect<link::ShareGathered>();
    std::ranges::fill(server_->inbox(1), 5.0F);
    server_->OfferAdoption(1, 12, held);
    Expect<link::Adopted>();
  });
  EXPECT_TRUE(outcome.adopted);
  EXPECT_EQ(steps_, 0);
  EXPECT_EQ(taken_, opaque);
  EXPECT_THAT(params_, Each(5));
  EXPECT_THAT(Values(server_->inbox(0)), Each(5)) << "the base of the next step";
  EXPECT_EQ(server_->counters().gathered, 0U);
  // What it gives from here on is of that step.
  server_->RequestOpaque();
  Batch(1, 1);
  EXPECT_EQ(Expect<link::OpaqueGiven>().opaque.step, 12U);
  EXPECT_EQ(server_->counters().step, 12U);
}

TEST_F(GradientsLink, AJoinerGetsTheOpaqueStateOfATrainerThatWaits) {
  Begin(4);
  Meet(4, 3, [this] {
    Expect<link::ShareGathered>();
    server_->RequestOpaque();
    EXPECT_EQ(Expect<link::OpaqueGiven>().opaque.step, 0U);
    server_->RequestPublish(1);
    Expect<link::Published>();
    Deliver(1, 1);
    Expect<link::Applied>();
  });
  EXPECT_EQ(Given(), (Bytes{1, 2, 3}));
}

TEST_F(GradientsLink, ABatchThatIsNotFiniteIsLeftOut) {
  Begin(4);
  Batch(4, std::numeric_limits<float>::quiet_NaN());
  Batch(4, std::numeric_limits<float>::infinity());
  EXPECT_EQ(server_->counters().gathered, 0U);
  EXPECT_EQ(server_->counters().samples, 8U);
}

TEST_F(GradientsLink, ALargerShareIsGatheredAndStopEndsTheWait) {
  Begin(4);
  const StepOutcome more = Meet(4, 1, [this] {
    Expect<link::ShareGathered>();
    server_->SetShare(8);
  });
  EXPECT_FALSE(more.applied);
  const StepOutcome last = Meet(4, 1, [this] {
    Expect<link::ShareGathered>();
    server_->RaiseStop();
  });
  EXPECT_TRUE(last.stop);
  EXPECT_FALSE(last.applied);
}

TEST_F(GradientsLink, ATrainerWithoutGradientsIsRefusedAndSoAreLeases) {
  auto old = Connect();
  EXPECT_THAT(std::string(old->Register(Model(kElements)).status().message()),
              HasSubstr("spec.averaging.what: Gradients needs a trainer"));
  Begin(4);
  auto http = HttpClient::Connect(dir_ + "/agent.sock");
  ASSERT_TRUE(http.ok());
  const auto reply = http->Do("POST", "/v1/data", R"({"samples": 10})", Seconds(20));
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply->code, 409);
  EXPECT_THAT(reply->body, HasSubstr("deals no leases"));
}

}  // namespace
}  // namespace crowdsurf::worker
