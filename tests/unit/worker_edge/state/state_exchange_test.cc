// Joiners whose requests wait for the trainer's opaque state, and who of them takes a donor's
// place.
#include "worker/edge/state/state_exchange.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/unit/worker_core/world/numbered_peers.h"

namespace crowdsurf::worker {
namespace {

constexpr uint8_t kPlaces = 4;  // of a donor

class StateExchangeTest : public testing::Test {
 protected:
  StateExchangeTest() {
    exchange_.Offer(0,
                    StateExchange::Describe({.average = average_}, AveragingId(7), 100, Digest()));
  }
  void Ask(uint8_t joiner) {
    exchange_.OnFrame(now_, Id(joiner), EncodeStateMessage(ManifestRequest{}));
  }
  // What the joiners were told when the trainer had its time to answer: refusals.
  std::map<PeerId, StateRefusal> Answers() {
    EXPECT_TRUE(answers_.empty()) << "nobody waited";
    now_ = exchange_.NextDeadline();
    exchange_.OnTimer(now_);
    return answers_;
  }

  Time now_ = Time::FromNanoseconds(1'000'000'000);
  std::vector<float> average_ = std::vector<float>(100, 1.0f);
  std::map<PeerId, StateRefusal> answers_;
  MetricRegistry registry_;
  AgentMetrics metrics_{registry_};
  StateExchange exchange_{
      {.inbox = [this](int) { return std::span<float>(average_); },
       .velocity = [] { return std::span<const float>(); },
       .send =
           [this](const PeerId& to, const SharedBytes& body) {
             const auto decoded = DecodeStateMessage(*body);
             answers_[to] = std::get<ManifestReply>(decoded->message).refusal;
             return true;
           },
       .request_opaque = [] { return true; },
       .make_room = [](uint64_t) { return absl::ResourceExhaustedError("none"); },
       .hash = [](const auto&, uint64_t) { return false; }},
      metrics_,
      registry_,
      Logger()};
};

TEST_F(StateExchangeTest, JoinersWaitForTheTrainerAndTheFirstOnesGetThePlaces) {
  for (uint8_t joiner = 1; joiner <= kPlaces + 1; ++joiner) Ask(joiner);
  const auto answers = Answers();
  ASSERT_EQ(answers.size(), kPlaces + 1u);
  for (uint8_t joiner = 1; joiner <= kPlaces; ++joiner)
    EXPECT_EQ(answers.at(Id(joiner)), StateRefusal::kNone);
  EXPECT_EQ(answers.at(Id(kPlaces + 1)), StateRefusal::kBusy);
}

TEST_F(StateExchangeTest, WhoDiesOrIsDoneWhileItWaitsTakesNoPlace) {
  for (uint8_t joiner = 1; joiner <= kPlaces + 1; ++joiner) Ask(joiner);
  exchange_.OnPeerDown(now_, Id(1));
  exchange_.OnFrame(now_, Id(2), EncodeStateMessage(FetchOver{}));
  const auto answers = Answers();
  EXPECT_EQ(answers.size(), kPlaces - 1u);
  EXPECT_EQ(answers.at(Id(kPlaces + 1)), StateRefusal::kNone);
}

}  // namespace
}  // namespace crowdsurf::worker
