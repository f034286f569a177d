// A state with a velocity from one agent's exchange to another's.
#include <gtest/gtest.h>

#include <algorithm>

#include <deque>

#include "base/rng.h"
#include "tests/unit/worker_core/world/numbered_peers.h"
#include "worker/edge/state/state_exchange.h"

namespace crowdsurf::worker {
namespace {

constexpr size_t kElements = 100'000;  // the velocity begins in the middle of a chunk

std::vector<float> Draw(uint64_t seed) {
  Rng rng(seed);
  std::vector<float> values(kElements);
  for (float& value : values) value = static_cast<float>(rng.Normal());
  return values;
}

class StateVelocityTest : public testing::Test {
 protected:
  struct Agent {
    std::vector<float> inbox = std::vector<float>(kElements);
    std::vector<float> velocity;
    MetricRegistry registry;
    AgentMetrics metrics{registry};
    std::unique_ptr<StateExchange> exchange;
  };
  struct Frame {
    uint8_t from, to;
    Bytes body;
  };

  void SetUp() override {
    for (const uint8_t id : {uint8_t{1}, uint8_t{2}}) {
      Agent& agent = agents_[id];
      const auto send = [this, id](const PeerId& to, const SharedBytes& body) {
        frames_.push_back({id, static_cast<uint8_t>(to == Id(1) ? 1 : 2), *body});
        return true;
      };
      agent.exchange = std::make_unique<StateExchange>(
          StateExchangeHost{
              .inbox = [&agent](int) { return std::span<float>(agent.inbox); },
              .velocity = [&agent] { return std::span<const float>(agent.velocity); },
              .send = send,
              .request_opaque = [] { return false; },
              .make_room = [](uint64_t) { return absl::ResourceExhaustedError("none"); },
              .hash = [](const auto&, uint64_t) { return false; }},
          agent.metrics, agent.registry, Logger());
    }
  }

  Digest Offer(const std::vector<float>& average, const std::vector<float>& velocity) {
    Agent& donor = agents_[1];
    donor.inbox = average;
    donor.velocity = velocity;
    return donor.exchange->Offer(
        0, StateExchange::Describe({.average = donor.inbox, .velocity = donor.velocity},
                                   AveragingId(7), 100, Digest()));
  }
  StateExchange::Fetched Fetch(const Digest& root) {
    StateExchange& joiner = *agents_[2].exchange;
    const FetchState request{.averaging = AveragingId(7),
                             .root = root,
                             .donors = {Id(1)},
                             .region = Region::kInboxB,
                             .adopt = false};
    joiner.Fetch(now_, request, Digest(), kElements);
    while (!frames_.empty()) {
      const Frame frame = std::move(frames_.front());
      frames_.pop_front();
      agents_[frame.to].exchange->OnFrame(now_, Id(frame.from), frame.body);
    }
    const auto fetched = joiner.TakeFetched();
    EXPECT_TRUE(fetched.has_value());
    return fetched.value_or(StateExchange::Fetched());
  }

  Time now_ = Time::FromNanoseconds(1'000'000'000);
  std::map<uint8_t, Agent> agents_;
  std::deque<Frame> frames_;
};

TEST_F(StateVelocityTest, BothHalvesArriveAsTheyWere) {
  const std::vector<float> average = Draw(1), velocity = Draw(2);
  const Digest root = Offer(average, velocity);
  const auto fetched = Fetch(root);
  ASSERT_TRUE(fetched.ok);
  EXPECT_EQ(fetched.content, root);
  EXPECT_EQ(fetched.averaging, AveragingId(7));
  EXPECT_EQ(agents_[2].inbox, average);
  ASSERT_NE(fetched.velocity, nullptr);
  EXPECT_TRUE(std::ranges::equal(*fetched.velocity, velocity));
}

TEST_F(StateVelocityTest, WithoutAVelocityNoneArrives) {
  const std::vector<float> average = Draw(1);
  const Digest root = Offer(average, {});
  const auto fetched = Fetch(root);
  ASSERT_TRUE(fetched.ok);
  EXPECT_EQ(agents_[2].inbox, average);
  EXPECT_EQ(fetched.velocity, nullptr);
}

// Its agent voids the velocity and not the offer: nothing beyond what is there is read.
TEST_F(StateVelocityTest, AVelocityThatIsGoneIsNotServed) {
  const Digest root = Offer(Draw(1), Draw(2));
  agents_[1].velocity.clear();
  StateExchange& joiner = *agents_[2].exchange;
  joiner.Fetch(now_, {AveragingId(7), root, {Id(1)}, Region::kInboxB, false}, Digest(), kElements);
  while (!frames_.empty()) {
    const Frame frame = std::move(frames_.front());
    frames_.pop_front();
    agents_[frame.to].exchange->OnFrame(now_, Id(frame.from), frame.body);
  }
  EXPECT_FALSE(joiner.TakeFetched().has_value()) << "it still waits, or asks others";
  EXPECT_TRUE(joiner.fetching());
}

}  // namespace
}  // namespace crowdsurf::worker
