// Messages in pieces: put together in order, or dropped.
#include "coordinator-free-dht/core/wire/frame_joiner.h"

#include <gtest/gtest.h>

#include <string>

namespace crowdsurf::dht {
namespace {

constexpr size_t kMessage = 10;

class FrameJoinerTest : public testing::Test {
 protected:
  // What comes of a piece: "..." it waits, "refused", or the whole message.
  std::string Take(FrameJoiner& joiner, uint32_t part, const std::string& body, bool more,
                   uint32_t channel = 1) {
    Bytes whole;
    const auto outcome =
        joiner.Take({channel, part, more, AsBytes(body)}, kMessage, budget_, whole);
    if (outcome == FrameJoiner::Outcome::kWaits) return "...";
    return outcome == FrameJoiner::Outcome::kWhole ? std::string(AsString(whole)) : "refused";
  }

  JoinBudget budget_{.most = 12};
  FrameJoiner joiner_;
};

TEST_F(FrameJoinerTest, OnePieceIsAMessage) {
  EXPECT_EQ(Take(joiner_, 0, "hello", false), "hello");
  EXPECT_EQ(Take(joiner_, 0, "", false), "");
  EXPECT_EQ(Take(joiner_, 0, std::string(11, 'x'), false), "refused");
  EXPECT_EQ(budget_.used, 0u);
}

TEST_F(FrameJoinerTest, SeveralAreJoinedInOrder) {
  EXPECT_EQ(Take(joiner_, 0, "abc", true), "...");
  EXPECT_EQ(Take(joiner_, 1, "def", true), "...");
  EXPECT_EQ(budget_.used, 6u);
  EXPECT_EQ(Take(joiner_, 2, "g", false), "abcdefg");
  EXPECT_EQ(budget_.used, 0u);
  EXPECT_EQ(Take(joiner_, 0, "next", false), "next");
}

TEST_F(FrameJoinerTest, APieceThatDoesNotFollowEndsTheMessage) {
  EXPECT_EQ(Take(joiner_, 1, "b", false), "refused") << "its beginning went with another stream";
  EXPECT_EQ(Take(joiner_, 0, "a", true), "...");
  EXPECT_EQ(Take(joiner_, 2, "c", false), "refused");
  EXPECT_EQ(Take(joiner_, 1, "b", false), "refused");
  EXPECT_EQ(Take(joiner_, 0, "a", true), "...");
  EXPECT_EQ(Take(joiner_, 1, "b", false, 2), "refused") << "of another channel";
  EXPECT_EQ(Take(joiner_, 0, "lost", true), "...");
  EXPECT_EQ(Take(joiner_, 0, "new", false), "new");
  EXPECT_EQ(Take(joiner_, 1, "rest", false), "refused");
  EXPECT_EQ(budget_.used, 0u);
}

TEST_F(FrameJoinerTest, AMessageAndAllThatWaitHaveABound) {
  EXPECT_EQ(Take(joiner_, 0, "12345678", true), "...");
  EXPECT_EQ(Take(joiner_, 1, "901", false), "refused");
  EXPECT_EQ(budget_.used, 0u);
  {
    FrameJoiner other;
    EXPECT_EQ(Take(joiner_, 0, "12345678", true), "...");
    EXPECT_EQ(Take(other, 0, "12345", true), "refused");
    EXPECT_EQ(Take(other, 0, "1234", true), "...");
    EXPECT_EQ(budget_.used, 12u);
  }
  EXPECT_EQ(budget_.used, 8u) << "its stream has ended";
  EXPECT_EQ(Take(joiner_, 1, "90", false), "1234567890") << "a last piece waits for nobody";
}

}  // namespace
}  // namespace crowdsurf::dht
