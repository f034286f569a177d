// Seats and vacancies that a member tells and the steward did not give.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/unit/worker_core/world/numbered_peers.h"
#include "tests/unit/worker_core/world/peer_world.h"

namespace crowdsurf::worker {
namespace {

constexpr size_t kMembers = 7;
constexpr size_t kLiar = 3;
constexpr size_t kVictim = 4;

// Seven members on a grid of eight cells. Nobody of them tells anything about seats on its own
// account, for nobody comes or goes: what is heard is the liar's.
class HostileSeatsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (size_t i = 0; i < kMembers; ++i) world_.Add();
    ASSERT_TRUE(world_.UntilTogether(Seconds(5)));
    world_.RunFor(Seconds(1));
    ASSERT_FALSE(world_.Summary(kLiar).steward);
    ASSERT_FALSE(world_.Summary(kVictim).steward);
    view_ = world_.Summary(0).view->hash;
    const PeerSummary summary = world_.Summary(0);
    for (const auto& member : summary.members) {
      CellIndex cell = 0;
      for (size_t axis = 0; axis < summary.view->radices.size(); ++axis)
        cell = static_cast<CellIndex>(cell * summary.view->radices[axis] + member.cell[axis]);
      taken_.insert(cell);
    }
    while (taken_.contains(free_)) ++free_;
    ASSERT_LT(free_, 8U);
  }

  message::SeatingNews News(std::vector<Seat> seats, std::vector<Vacancy> vacancies) const {
    return {.view = view_,
            .seats = std::move(seats),
            .vacancies = std::move(vacancies),
            .contacts = {},
            .all = {}};
  }
  Vacancy Gone() {
    return {.peer = world_.node(kVictim).id(), .sitting = 0, .first_averaging = AveragingId(1)};
  }
  // `peer` in the free cell.
  Seat For(const PeerId& peer) {
    Seat seat{.member = {.id = peer, .cell = free_, .joined_unix_ms = 1},
              .steward = world_.node(kLiar).id(),
              .steward_joined_ms = 0,
              .sitting = 1,
              .first_averaging = AveragingId(1)};
    return seat;
  }
  void ExpectSevenMembers(const std::string& when) {
    for (size_t i = 0; i < kMembers; ++i) {
      const PeerSummary summary = world_.Summary(i);
      ASSERT_TRUE(summary.view) << when << i;
      EXPECT_EQ(summary.members.size(), kMembers) << when << " at " << i;
      EXPECT_FALSE(summary.cell.empty()) << when << " at " << i;
      EXPECT_EQ(summary.rounds.failed(), 0U) << when << " at " << i;
    }
  }
  double Refused(size_t i, const std::string& reason) {
    return world_.node(i).metrics().Value("crowdsurf_peer_messages_refused_total",
                                          {{"reason", reason}});
  }

  PeerWorld world_{31, EveryTenSteps()};
  ViewHash view_;
  std::set<CellIndex> taken_;
  CellIndex free_ = 0;
};

TEST_F(HostileSeatsTest, AVacancyThatTheStewardDidNotDeclareUnseatsNobody) {
  for (int again = 0; again < 20; ++again) {
    for (size_t i = 0; i < kMembers; ++i)
      if (i != kLiar) world_.Tell(i, kLiar, News({}, {Gone()}));
    world_.RunFor(Milliseconds(20));
    ExpectSevenMembers("told " + std::to_string(again + 1) + " times,");
  }
  world_.RunFor(Seconds(8));
  ExpectSevenMembers("in the end,");
  EXPECT_GE(Refused(0, "seat_of_another"), 1);
  ExpectAgreement(world_);
}

// Others may have missed what the steward said: it waits for two of its patiences, and no longer.
TEST_F(HostileSeatsTest, WhatTheStewardCannotBelieveEndsInANewViewAfterASecond) {
  world_.RunFor(Seconds(3));  // the view is no new one
  size_t steward = 0;
  while (!world_.Summary(steward).steward) ++steward;
  world_.Tell(steward, kLiar, News({}, {Gone()}));
  world_.RunFor(Milliseconds(950));
  EXPECT_EQ(world_.Summary(steward).view->hash, view_);
  world_.RunFor(Seconds(2));
  EXPECT_NE(world_.Summary(steward).view->hash, view_);
  ExpectSevenMembers("in the new view,");
}

// One that could not reach the victim itself needs no second word.
TEST_F(HostileSeatsTest, AVacancyOfAMemberThatIsDownHereIsBelieved) {
  size_t hearer = 0;
  while (world_.Summary(hearer).steward || hearer == kLiar || hearer == kVictim) ++hearer;
  world_.Tell(hearer, kLiar, News({}, {Gone()}));
  EXPECT_EQ(world_.Summary(hearer).members.size(), kMembers);
  world_.Slander(hearer, kVictim);
  world_.Tell(hearer, kLiar, News({}, {Gone()}));
  EXPECT_EQ(world_.Summary(hearer).members.size(), kMembers - 1);
}

TEST_F(HostileSeatsTest, ASeatThatTheStewardDidNotGiveSeatsNobody) {
  for (size_t i = 0; i < kMembers; ++i)
    if (i != kLiar) world_.Tell(i, kLiar, News({For(Id(77))}, {}));
  world_.RunFor(Milliseconds(400));
  ExpectSevenMembers("soon,");
  world_.RunFor(Seconds(8));
  ExpectSevenMembers("in the end,");
}

// As a newcomer tells its seat.
TEST_F(HostileSeatsTest, NewsOfTheViewCarryNoForgedSeatsEither) {
  const Bytes view = [&] {
    Bytes found;
    world_.lose = [&](size_t, size_t, const Message& message) {
      if (const auto* news = std::get_if<message::ViewNews>(&message)) found = news->view;
      return false;
    };
    world_.Tell(0, 1, message::ViewAsk{});
    world_.RunFor(Milliseconds(10));
    world_.lose = nullptr;
    return found;
  }();
  ASSERT_FALSE(view.empty());
  for (size_t i = 0; i < kMembers; ++i)
    if (i != kLiar)
      world_.Tell(i, kLiar,
                  message::ViewNews{.view = view,
                                    .seats = {For(Id(77))},
                                    .vacancies = {Gone()},
                                    .contacts = {},
                                    .committed = {}});
  world_.RunFor(Milliseconds(50));
  ExpectSevenMembers("soon,");
  world_.RunFor(Seconds(8));
  ExpectSevenMembers("in the end,");
}

TEST_F(HostileSeatsTest, WhatAStrangerTellsConfirmsNothing) {
  const size_t joiner = world_.Add(Seconds(100));  // its trainer never starts: it asks for no seat
  world_.RunFor(Milliseconds(100));
  for (size_t i = 0; i < kMembers; ++i) world_.Tell(i, joiner, News({For(Id(77))}, {Gone()}));
  for (size_t i = 0; i < kMembers; ++i)
    if (i != kLiar) world_.Tell(i, kLiar, News({For(Id(77))}, {Gone()}));
  world_.RunFor(Milliseconds(50));
  ExpectSevenMembers("soon,");
  world_.RunFor(Seconds(8));
  ExpectSevenMembers("in the end,");
}

// A peer may sit in a list of its own, which a partition left behind. One view more ends that.
TEST_F(HostileSeatsTest, AStrangerWhoseListDiffersMakesTheStewardRenewTheView) {
  const size_t joiner = world_.Add(Seconds(100));  // its trainer never starts: it asks for no seat
  world_.RunFor(Seconds(4));                       // a view is renewed for that after three seconds
  ASSERT_EQ(world_.Summary(0).view->hash, view_);
  for (size_t i = 0; i < kMembers; ++i) world_.Tell(i, joiner, News({}, {Gone()}));
  world_.RunFor(Seconds(2));
  ExpectSevenMembers("in the end,");
  for (size_t i = 0; i < kMembers; ++i) {
    EXPECT_NE(world_.Summary(i).view->hash, view_) << i;
    EXPECT_EQ(world_.Summary(i).view->hash, world_.Summary(0).view->hash) << i;
  }
}

// Two members that say the same are believed: the steward may have died while it told them.
TEST_F(HostileSeatsTest, TwoMembersThatSayTheSameAreBelieved) {
  size_t steward = 0;
  while (!world_.Summary(steward).steward) ++steward;
  const size_t second = steward == 0 ? 1 : 0;
  const size_t hearer = 5;
  ASSERT_NE(second, steward);
  world_.Tell(hearer, kLiar, News({For(Id(77))}, {}));
  world_.RunFor(Milliseconds(5));
  EXPECT_EQ(world_.Summary(hearer).members.size(), kMembers);
  world_.Tell(hearer, second, News({For(Id(77))}, {}));
  EXPECT_EQ(world_.Summary(hearer).members.size(), kMembers + 1);
}

// The steward of three has gone, says the second to the third. There is nobody else to ask.
TEST(SeatsOfThreeTest, TheOnlyOneThatCanKnowIsBelieved) {
  PeerWorld world(5, EveryTenSteps());
  for (int i = 0; i < 3; ++i) world.Add();
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
  size_t steward = 0;
  while (!world.Summary(steward).steward) ++steward;
  const size_t hearer = (steward + 1) % 3, teller = (steward + 2) % 3;
  world.Tell(hearer, teller,
             message::SeatingNews{.view = world.Summary(hearer).view->hash,
                                  .seats = {},
                                  .vacancies = {Vacancy{world.node(steward).id(), 0,
                                                        world.Summary(hearer).averaging + 2}},
                                  .contacts = {},
                                  .all = {}});
  EXPECT_EQ(world.Summary(hearer).members.size(), 2U);
}

}  // namespace
}  // namespace crowdsurf::worker
