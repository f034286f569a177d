// Who is lost, from summaries made by hand: silent, without a seat, seen again, forgotten.
#include "worker/edge/agent/lost_members.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crowdsurf::worker {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Time At(double seconds) { return Time::FromNanoseconds(1) + Seconds(seconds); }

PeerSummary Seated(const std::vector<std::string>& members,
                   const std::vector<std::string>& lost = {}) {
  PeerSummary summary;
  summary.view = PeerSummary::ViewSummary{};
  for (const std::string& worker : members) {
    summary.members.push_back({.id = PeerId(), .worker = worker, .cell = {}});
  }
  summary.lost = lost;
  return summary;
}

TEST(LostMembersTest, WhoIsDownOrHasLostItsSeatIsLostUntilItSitsAgain) {
  LostMembers members;
  EXPECT_THAT(members.Look(At(0), "w0", Seated({"w0", "w1", "w2", "w3", ""})), IsEmpty());
  EXPECT_THAT(members.Look(At(1), "w0", Seated({"w0", "w1", "w2", "w3"}, {"w1"})),
              ElementsAre("w1"))
      << "it has its seat yet, and does not answer";
  EXPECT_THAT(members.Look(At(2), "w0", Seated({"w0", "w3"}, {"w1"})), ElementsAre("w1", "w2"))
      << "the steward has found the other one silent";
  EXPECT_THAT(members.Look(At(3), "w0", Seated({"w0", "w2", "w3"}, {"w1"})), ElementsAre("w1"));
  EXPECT_THAT(members.Look(At(4), "w0", Seated({"w0", "w1", "w2", "w3"})), IsEmpty());
}

TEST(LostMembersTest, WithoutASeatItSaysNothing) {
  LostMembers members;
  members.Look(At(0), "w0", Seated({"w0", "w1"}));
  EXPECT_THAT(members.Look(At(1), "w0", PeerSummary()), IsEmpty());
  EXPECT_THAT(members.Look(At(2), "w0", Seated({"w0"})), ElementsAre("w1"));
}

TEST(LostMembersTest, ForgetsAfterAWhileAndIsBounded) {
  LostMembers members;
  std::vector<std::string> many;
  for (size_t i = 0; i < LostMembers::kMaxKnown + 10; ++i) many.push_back("w" + std::to_string(i));
  members.Look(At(0), "self", Seated(many));
  EXPECT_EQ(members.known(), LostMembers::kMaxKnown);
  EXPECT_EQ(members.dropped(), 10u);
  EXPECT_EQ(members.Look(At(180), "self", Seated({})).size(), LostMembers::kMaxKnown);
  EXPECT_THAT(members.Look(At(181), "self", Seated({})), IsEmpty());
  EXPECT_EQ(members.known(), 0u);
}

}  // namespace
}  // namespace crowdsurf::worker
