// Who makes room at a full port: orders are written out by hand.
#include "base/edge/connection_admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crowdsurf {
namespace {

using Phase = ConnectionAdmission::Phase;
using Bound = ConnectionAdmission::Bound;
using Room = ConnectionAdmission::Room;

constexpr Time kNow = Time::FromNanoseconds(1'000'000'000'000);
constexpr ConnectionAdmission::Limits kWide = {
    .connections = 100, .strangers = 100, .strangers_of_address = 100};

class Port {
 public:
  explicit Port(const ConnectionAdmission::Limits& limits) : admission_(limits) {}
  ConnectionAdmission& operator*() { return admission_; }
  ConnectionAdmission* operator->() { return &admission_; }
  // One more, whatever the bounds say.
  void Add(uint64_t id, const std::string& address, Phase phase = Phase::kSilent, Time at = kNow) {
    admission_.Add(at, id, address);
    if (phase != Phase::kSilent) admission_.Enter(id, phase);
  }
  // Who goes for one more from there: "" there is room; "me": the new one.
  std::string Goes(const std::string& address, Time at = kNow) {
    const Room room = admission_.MakeRoom(at, address);
    if (!room.reached) return "";
    return room.victim ? std::to_string(*room.victim) : "me";
  }

 private:
  ConnectionAdmission admission_;
};

TEST(ConnectionAdmissionTest, WithoutADescriptorStrangersGoFirstThenTheLongestIdle) {
  Port open(kWide);
  EXPECT_FALSE(open->Victim());
  open.Add(1, "a", Phase::kHeld);
  EXPECT_FALSE(open->Victim()) << "what is being handled stays";
  open.Add(2, "a", Phase::kReplying);
  open.Add(3, "a", Phase::kIdle);
  open.Add(4, "a", Phase::kUnfinished);
  open.Add(5, "a", Phase::kUnfinished);
  open.Add(6, "a");
  std::vector<uint64_t> order;
  while (const auto victim = open->Victim()) {
    order.push_back(*victim);
    open->Leave(*victim);
  }
  EXPECT_THAT(order, testing::ElementsAre(6, 4, 5, 3, 2));
  EXPECT_EQ(open->size(), 1u);
}

TEST(ConnectionAdmissionTest, AConnectionIsAsOldAsItsPhase) {
  Port open(kWide);
  open.Add(1, "a", Phase::kUnfinished);
  open.Add(2, "a", Phase::kUnfinished);
  open->Enter(1, Phase::kIdle);
  open->Enter(1, Phase::kUnfinished);  // its next request began after the other's
  EXPECT_EQ(open->Victim(), 2u);
}

TEST(ConnectionAdmissionTest, AFloodFromOneAddressDisplacesItselfAndNobodyElse) {
  Port open({.connections = 100, .strangers = 4, .strangers_of_address = 3});
  for (uint64_t id = 1; id <= 3; ++id) open.Add(id, "flood");
  EXPECT_EQ(open.Goes("flood"), "1") << "its address has its share";
  EXPECT_EQ(open.Goes("good"), "");
  open.Add(4, "good");
  EXPECT_EQ(open.Goes("better"), "1") << "of who has most";
  EXPECT_EQ(open.Goes("good"), "1");
  open->Leave(1);
  open->Leave(2);
  open.Add(5, "other", Phase::kUnfinished);
  open.Add(6, "third", Phase::kUnfinished);
  EXPECT_EQ(open.Goes("fourth"), "3") << "among equals, who has said nothing for longest";
}

TEST(ConnectionAdmissionTest, AnAddressThatHoldsMoreThanItsShareGivesUpIdleOnesBeforeStrangersGo) {
  Port open({.connections = 4, .strangers = 4, .strangers_of_address = 2});
  for (uint64_t id = 1; id <= 3; ++id) open.Add(id, "hoards", Phase::kIdle);
  open.Add(4, "good", Phase::kUnfinished);
  EXPECT_EQ(open.Goes("good"), "1");
  open->Enter(1, Phase::kHeld);
  EXPECT_EQ(open.Goes("third"), "4") << "two are its share, and strangers go before them";
  for (uint64_t id = 2; id <= 4; ++id) open->Enter(id, Phase::kHeld);
  EXPECT_EQ(open.Goes("third"), "me");
}

TEST(ConnectionAdmissionTest, ABurstOfHonestOnesDoesNotDisplaceItself) {
  Port open(
      {.connections = 100, .strangers = 3, .strangers_of_address = 2, .patience = Seconds(5)});
  open.Add(1, "a", Phase::kUnfinished);
  open.Add(2, "b", Phase::kUnfinished);
  open.Add(3, "b", Phase::kUnfinished, kNow + Seconds(1));
  EXPECT_EQ(open.Goes("b"), "me") << "also at one address";
  EXPECT_EQ(open.Goes("a"), "me");
  EXPECT_EQ(open.Goes("c"), "2") << "who has more than the new one has no such time";
  EXPECT_EQ(open.Goes("a", kNow + Seconds(5)), "2") << "it was given its time";
  open->Enter(1, Phase::kSilent);
  EXPECT_EQ(open.Goes("a"), "1") << "who says nothing has no such time";
  EXPECT_EQ(open.Goes("c"), "2") << "but who has most goes before";
}

TEST(ConnectionAdmissionTest, AnOwnerWithTooManyLosesItsOldestAndNobodyElsesAre) {
  Port open({.connections = 100, .strangers = 9, .strangers_of_address = 9, .of_owner = 2});
  for (uint64_t id = 1; id <= 4; ++id) open.Add(id, "a");
  EXPECT_EQ(open->Own(1, "k"), std::nullopt);
  EXPECT_EQ(open->Own(1, "k"), std::nullopt) << "each call says so again";
  EXPECT_EQ(open->Own(2, "other"), std::nullopt);
  EXPECT_EQ(open->Own(3, "k"), std::nullopt);
  EXPECT_EQ(open->Own(4, "k"), 1u);
  open->Leave(1);
  open.Add(5, "a");
  EXPECT_EQ(open->Own(5, "k"), 3u);
  EXPECT_EQ(open->Own(99, "k"), std::nullopt) << "unknown";
}

TEST(ConnectionAdmissionTest, OverdueAreThoseThatCameBeforeWhateverTheyDidSince) {
  Port open(kWide);
  open.Add(1, "a");
  open.Add(2, "b", Phase::kUnfinished);
  open.Add(3, "b", Phase::kUnfinished, kNow + Seconds(1));
  EXPECT_THAT(open->Overdue(Phase::kSilent, kNow), testing::ElementsAre());
  EXPECT_THAT(open->Overdue(Phase::kSilent, kNow + Seconds(0.5)), testing::ElementsAre(1));
  EXPECT_THAT(open->Overdue(Phase::kUnfinished, kNow + Seconds(0.5)), testing::ElementsAre(2));
}

}  // namespace
}  // namespace crowdsurf
