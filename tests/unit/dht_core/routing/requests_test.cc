// Requests under way: when one is slow, failed and forgotten, who may answer it, and how many there
// are.
#include "coordinator-free-dht/core/routing/requests.h"

#include <gmock/gmock.h>

namespace crowdsurf::dht {
namespace {

constexpr Time kStart = Time::FromNanoseconds(1'000'000'000);

Contact Peer(uint8_t number) {
  std::array<uint8_t, 32> bytes{};
  bytes[0] = number;
  return {PeerId(bytes), "peer-" + std::to_string(number) + ":1"};
}
Contact Seed(const std::string& endpoint) { return {PeerId(), endpoint}; }

class RequestsTest : public testing::Test {
 protected:
  RequestsTest() { config_.requests_in_flight = 4; }
  // Slow after 10 ms, failed after 30.
  uint64_t Ask(const Contact& to, Purpose purpose = FireAndForget{}) {
    const auto id = requests_.Add(kStart, to, purpose, Milliseconds(10), Milliseconds(30));
    EXPECT_TRUE(id.has_value());
    return id.value_or(0);
  }
  void Fail() {
    while (requests_.NextDue(kStart + Milliseconds(30))) {
    }
  }
  NodeConfig config_;
  Requests requests_{config_, 100};
};

TEST_F(RequestsTest, WithoutAnAnswerItIsSlowThenFailedThenForgotten) {
  const uint64_t id = Ask(Peer(1));
  EXPECT_EQ(requests_.NextDeadline(), kStart + Milliseconds(10));
  EXPECT_FALSE(requests_.NextDue(kStart + Milliseconds(10) - Nanoseconds(1)));
  const auto slow = requests_.NextDue(kStart + Milliseconds(10));
  ASSERT_TRUE(slow);
  EXPECT_FALSE(slow->failed);
  EXPECT_EQ(slow->request.to, Peer(1));
  EXPECT_EQ(slow->request.sent, kStart);
  EXPECT_FALSE(requests_.NextDue(kStart + Milliseconds(10)));
  EXPECT_EQ(requests_.NextDeadline(), kStart + Milliseconds(30));
  const auto failed = requests_.NextDue(kStart + Milliseconds(30));
  ASSERT_TRUE(failed);
  EXPECT_TRUE(failed->failed);
  EXPECT_FALSE(failed->request.failed) << "it was not reported before";
  const Time forgotten = kStart + Milliseconds(30) + config_.late_replies;
  EXPECT_EQ(requests_.NextDeadline(), forgotten);
  EXPECT_FALSE(requests_.NextDue(forgotten - Nanoseconds(1)));
  EXPECT_EQ(requests_.size(), 1u);
  EXPECT_FALSE(requests_.NextDue(forgotten));
  EXPECT_EQ(requests_.size(), 0u);
  EXPECT_TRUE(requests_.NextDeadline().infinite());
  EXPECT_FALSE(requests_.Take(id, Peer(1).id));
}

TEST_F(RequestsTest, ALateTimerReportsBothStepsInTheirOrder) {
  Ask(Peer(1));
  const Time late = kStart + Seconds(1);
  EXPECT_FALSE(requests_.NextDue(late)->failed);
  EXPECT_TRUE(requests_.NextDue(late)->failed);
  EXPECT_FALSE(requests_.NextDue(late));
}

TEST_F(RequestsTest, OnlyWhoWasAskedAnswersAndOnce) {
  const uint64_t id = Ask(Peer(1));
  EXPECT_EQ(Ask(Peer(2)), id + 1);
  EXPECT_EQ(id, 100u);
  EXPECT_FALSE(requests_.Take(id, Peer(2).id));
  const auto taken = requests_.Take(id, Peer(1).id);
  ASSERT_TRUE(taken);
  EXPECT_FALSE(taken->failed);
  EXPECT_FALSE(requests_.Take(id, Peer(1).id));
  EXPECT_EQ(requests_.size(), 1u);
  Fail();
  const auto late = requests_.Take(id + 1, Peer(2).id);
  ASSERT_TRUE(late);
  EXPECT_TRUE(late->failed) << "only a late answer could come";
  EXPECT_TRUE(requests_.NextDeadline().infinite());
}

TEST_F(RequestsTest, ASeedIsKnownByItsAddressAlone) {
  const uint64_t id = Ask(Seed("a:1"), SeedProbe{});
  Ask(Seed("b:1"), SeedProbe{});
  Ask(Peer(1));
  EXPECT_TRUE(requests_.Take(id, Peer(9).id));
  EXPECT_FALSE(requests_.TakeSeed("a:1"));
  EXPECT_FALSE(requests_.TakeSeed(Peer(1).endpoint)) << "that one has an id";
  ASSERT_TRUE(requests_.TakeSeed("b:1"));
  EXPECT_FALSE(requests_.TakeSeed("b:1"));
  EXPECT_EQ(requests_.size(), 1u);
  Ask(Seed("c:1"), SeedProbe{});
  Fail();
  EXPECT_FALSE(requests_.TakeSeed("c:1")) << "its end was reported";
}

TEST_F(RequestsTest, ThoseToALostPeerEndInTheOrderOfSending) {
  Ask(Peer(1));
  Fail();
  Ask(Peer(1), WatchAsk{KeyOf("first")});
  Ask(Peer(2));
  Ask(Peer(1), WatchAsk{KeyOf("second")});
  const std::vector<Request> lost = requests_.TakeAllTo(Peer(1).id);
  ASSERT_EQ(lost.size(), 2u) << "the failed one was reported";
  EXPECT_EQ(std::get<WatchAsk>(lost[0].purpose).key, KeyOf("first"));
  EXPECT_EQ(std::get<WatchAsk>(lost[1].purpose).key, KeyOf("second"));
  EXPECT_EQ(requests_.size(), 1u);
  EXPECT_EQ(requests_.NextDue(kStart + Milliseconds(10))->request.to, Peer(2));
}

TEST_F(RequestsTest, PingsAreCountedUntilTheyEnd) {
  const uint64_t first = Ask(Peer(1), Ping{});
  Ask(Peer(2), Ping{});
  Ask(Peer(3));
  EXPECT_EQ(requests_.pings(), 2u);
  EXPECT_TRUE(requests_.Pinging(Peer(1).id));
  EXPECT_FALSE(requests_.Pinging(Peer(3).id)) << "asked, but no ping";
  requests_.Take(first, Peer(1).id);
  EXPECT_EQ(requests_.pings(), 1u);
  EXPECT_FALSE(requests_.Pinging(Peer(1).id));
  requests_.TakeAllTo(Peer(2).id);
  EXPECT_EQ(requests_.pings(), 0u);
  EXPECT_FALSE(requests_.Pinging(Peer(2).id));
}

TEST_F(RequestsTest, TheyAreBounded) {
  const uint64_t first = Ask(Peer(1));
  for (uint8_t i = 2; i <= 4; ++i) Ask(Peer(i));
  const auto more = [&] {
    return requests_.Add(kStart, Peer(5), Ping{}, Milliseconds(10), Milliseconds(30));
  };
  EXPECT_FALSE(more());
  EXPECT_EQ(requests_.pings(), 0u);
  requests_.Take(first, Peer(1).id);
  EXPECT_TRUE(more());
}

}  // namespace
}  // namespace crowdsurf::dht
