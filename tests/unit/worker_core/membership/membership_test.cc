// Membership of real peers in a small world: lineages that merge, seats lost by mistake,
// checkpoints.
#include "worker/core/membership/membership.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <vector>

#include "tests/unit/worker_core/world/peer_world.h"

namespace crowdsurf::worker {
namespace {

// `members` that are seated in one view; nobody comes to be due for an averaging.
std::unique_ptr<PeerWorld> WorldWithoutAveragings(uint64_t seed, size_t members) {
  AveragingConfig config = EveryTenSteps();
  config.interval = 1'000'000;
  auto world = std::make_unique<PeerWorld>(seed, config);
  for (size_t i = 0; i < members; ++i) world->Add();
  EXPECT_TRUE(world->UntilTogether(Seconds(5))) << world->Describe();
  world->RunFor(Milliseconds(500));
  return world;
}

size_t StewardOf(const PeerWorld& world) {
  size_t steward = 0;
  while (!world.Summary(steward).steward) ++steward;
  return steward;
}

TEST(MembershipTest, TwoLineagesThatMeetBecomeOneAndGoOn) {
  PeerWorld world(11, EveryTenSteps());
  for (int i = 0; i < 3; ++i) world.Add(Milliseconds(20), 0);
  for (int i = 0; i < 5; ++i) world.Add(Milliseconds(20), 1);
  world.RunFor(Seconds(2));
  EXPECT_EQ(world.Summary(0).view->members, 3U);
  EXPECT_EQ(world.Summary(4).view->members, 5U);
  const auto lesser = world.Summary(0).averaging;
  for (size_t i = 0; i < 3; ++i) world.node(i).island = 1;
  const auto took = world.UntilTogether(Seconds(10));
  ASSERT_TRUE(took);
  EXPECT_LT(took->seconds(), 4);
  world.RunFor(Seconds(1));
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(world.Summary(i).view->members, 8U);
    EXPECT_GT(world.Summary(i).averaging, lesser);
    EXPECT_EQ(world.Summary(i).divergence, 0U);
  }
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(world.node(i).fetches.empty());  // values are kept
}

// Two that are in their first round when they hear of a better lineage, at any instant of it.
TEST(MembershipTest, WhoGivesUpItsLineageFinishesItsRoundFirst) {
  size_t newcomers = 0;
  for (int64_t at = 90; at < 400; at += 10) {
    PeerWorld world(static_cast<uint64_t>(at), EveryTenSteps());
    for (int i = 0; i < 3; ++i) world.Add(Milliseconds(20), 0);
    world.RunFor(Seconds(1));
    world.jitter = 20;  // rounds take tens of milliseconds
    for (int i = 0; i < 2; ++i) world.Add(Milliseconds(20), 1);
    world.RunFor(Milliseconds(at));
    for (size_t i = 3; i < 5; ++i) world.node(i).island = 0;
    ASSERT_TRUE(world.UntilTogether(Seconds(10))) << at << world.Describe();
    for (size_t i = 0; i < 5; ++i)
      EXPECT_EQ(world.Summary(i).rounds.failed(), 0U) << at << " " << i;
    newcomers += !world.node(3).fetches.empty() && !world.node(4).fetches.empty();
  }
  EXPECT_GT(newcomers, 0U) << "nobody gave its lineage up: this tested nothing";
}

TEST(MembershipTest, EightThatDoNotSeeEachOtherAtFirstMergeInOneStep) {
  PeerWorld world(12, EveryTenSteps());
  for (int i = 0; i < 8; ++i) world.Add(Milliseconds(20), i);
  world.RunFor(Milliseconds(400));
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(world.Summary(i).view->members, 1U);
    world.node(i).island = 0;
  }
  ASSERT_TRUE(world.UntilTogether(Seconds(10)));
  EXPECT_EQ(world.Summary(0).view->members, 8U);
}

TEST(MembershipTest, OneThatIsTakenForDeadByMistakeSitsAgain) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    PeerWorld world(seed, EveryTenSteps());
    for (int i = 0; i < 6; ++i) world.Add();
    ASSERT_TRUE(world.UntilTogether(Seconds(5)));
    world.RunFor(Milliseconds(500) + Milliseconds(static_cast<int64_t>(seed * 13)));
    const size_t steward = StewardOf(world);
    const size_t victim = (steward + 3) % 6;
    world.Slander(steward, victim);
    EXPECT_EQ(world.Summary(steward).view->members, 5U) << seed;
    ASSERT_TRUE(world.UntilTogether(Seconds(5))) << seed;
    world.RunFor(Seconds(1));
    EXPECT_TRUE(world.Together());
    EXPECT_TRUE(world.Alive(victim));
    for (size_t i = 0; i < 6; ++i) EXPECT_EQ(world.Summary(i).divergence, 0U);
  }
}

// It believes that all others died, and forms a lineage of its own; they have vacated its cell. Its
// lineage's epoch is above theirs, and its record says that it sits elsewhere when its seat is
// given.
TEST(MembershipTest, ABranchOfOneBesideABiggerLineageComesBack) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    PeerWorld world(seed, EveryTenSteps());
    for (int i = 0; i < 5; ++i) world.Add();
    ASSERT_TRUE(world.UntilTogether(Seconds(5)));
    world.RunFor(Milliseconds(500) + Milliseconds(static_cast<int64_t>(seed * 17)));
    const std::string before = world.Summary(0).view->hash.brief();
    const size_t loner = seed % 5;
    for (size_t i = 0; i < 5; ++i)
      if (i != loner) world.Slander(loner, i);
    EXPECT_TRUE(world.Summary(loner).view->branch);
    EXPECT_EQ(world.Summary(loner).view->members, 1U);
    ASSERT_TRUE(world.UntilTogether(Seconds(5))) << "seed " << seed << world.Describe();
    // Not into the view that it left: its promises there are forgotten.
    EXPECT_NE(world.Summary(loner).view->hash.brief(), before);
    const AveragingId averaging = world.Summary(loner).averaging;
    world.RunFor(Seconds(1));
    EXPECT_TRUE(world.Together());
    EXPECT_GE(world.Summary(loner).averaging, averaging + 3);
    EXPECT_EQ(world.Summary(loner).divergence, 0U);
  }
}

// Of eight six live, which make no new view. The seven beside them are more.
TEST(MembershipTest, TheLineageInWhichMoreLiveWins) {
  PeerWorld world(31, EveryTenSteps());
  for (int i = 0; i < 8; ++i) world.Add(Milliseconds(20), 0);
  for (int i = 0; i < 7; ++i) world.Add(Milliseconds(20), 1);
  world.RunFor(Seconds(2));
  ASSERT_EQ(world.Summary(0).view->members, 8U);
  ASSERT_EQ(world.Summary(8).view->members, 7U);
  const size_t steward = StewardOf(world);
  for (size_t killed = 0, i = 0; killed < 2; ++i) {
    if (i == steward) continue;
    world.Kill(i);
    ++killed;
  }
  world.RunFor(Seconds(4));  // until their records are gone
  const ViewHash bigger = world.Summary(8).view->lineage;
  ASSERT_EQ(world.Summary(steward).view->members, 6U);
  for (size_t i = 8; i < 15; ++i) world.node(i).island = 0;
  ASSERT_TRUE(world.UntilTogether(Seconds(10))) << world.Describe();
  EXPECT_EQ(world.Summary(steward).view->lineage, bigger);
  EXPECT_EQ(world.Summary(8).view->members, 13U);
}

// The halves of a job that was cut in two take each other for dead. When one takes the others in,
// its new members may govern there, and know nothing of them yet.
TEST(MembershipTest, NobodyLosesItsSeatToAMemberThatComesFromAnotherLineage) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    PeerWorld world(seed, EveryTenSteps());
    for (int i = 0; i < 6; ++i) world.Add();
    ASSERT_TRUE(world.UntilTogether(Seconds(5)));
    for (size_t i = 0; i < 3; ++i) world.node(i).island = 1;
    world.RunFor(Seconds(12));
    ASSERT_NE(world.Summary(0).view->lineage, world.Summary(3).view->lineage) << seed;
    std::vector<ViewHash> before;
    for (size_t i = 0; i < 6; ++i) before.push_back(world.Summary(i).view->lineage);
    for (size_t i = 0; i < 3; ++i) world.node(i).island = 0;
    std::set<size_t> unseated;
    for (int ms = 0; ms < 10'000 && !world.Together(); ++ms) {
      world.RunFor(Milliseconds(1));
      for (size_t i = 0; i < 6; ++i)
        if (!world.Summary(i).view) unseated.insert(i);
    }
    ASSERT_TRUE(world.Together()) << seed << world.Describe();
    for (const size_t i : unseated)
      EXPECT_NE(world.Summary(i).view->lineage, before[i]) << seed << ": " << i;
  }
}

// What the operator reads: any agent of either part shows that there are two. Four of seven keep
// their view, and had taken the three for dead.
TEST(MembershipTest, BothPartsOfABrokenViewSayThatTheJobHasTwoLineages) {
  PeerWorld world(32, EveryTenSteps());
  for (int i = 0; i < 7; ++i) world.Add();
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
  for (size_t i = 0; i < 3; ++i) world.node(i).island = 1;
  world.RunFor(Seconds(12));
  ASSERT_NE(world.Summary(0).view->lineage, world.Summary(3).view->lineage);
  world.lose = [](size_t, size_t, const Message& message) {  // so that they do not merge
    return std::holds_alternative<message::JoinRequest>(message);
  };
  for (size_t i = 0; i < 3; ++i) world.node(i).island = 0;
  world.RunFor(Seconds(10));
  for (size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(world.Summary(i).lineages.size(), 2U) << i;
    EXPECT_TRUE(world.Summary(i).lost.empty()) << i << " calls a living worker dead";
  }
}

// One with a slow trainer is never due, so it never says which seats it knows; yet who hears from
// it learns that it missed one.
TEST(MembershipTest, ASeatThatOneMissedIsToldToIt) {
  PeerWorld world(21, EveryTenSteps(2));
  for (int i = 0; i < 3; ++i) world.Add();
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
  size_t deaf = 0;
  while (world.Summary(deaf).steward) ++deaf;
  world.node(deaf).step_time = Milliseconds(30);
  world.RunFor(Milliseconds(500));
  world.lose = [deaf](size_t, size_t to, const Message& message) {
    return to == deaf && (std::holds_alternative<message::SeatingNews>(message) ||
                          std::holds_alternative<message::ViewNews>(message));
  };
  world.Add();
  world.RunFor(Seconds(1));
  EXPECT_EQ(world.Summary(deaf).view->members, 3U) << "it heard of the seat: this tests nothing";
  world.lose = nullptr;
  EXPECT_TRUE(world.UntilTogether(Seconds(1))) << world.Describe();
}

// Where nobody is due for an averaging, nobody says which seats it knows: the records do.
TEST(MembershipTest, ASeatThatOneMissedIsToldToItThoughNobodyAverages) {
  for (const bool newcomer : {false, true}) {
    const auto world = WorldWithoutAveragings(24, 3);
    const size_t steward = StewardOf(*world), deaf = (steward + 1) % 3;
    world->lose = [deaf](size_t, size_t to, const Message& message) {
      const auto* seats = std::get_if<message::SeatingNews>(&message);
      return to == deaf && ((seats != nullptr && !seats->seats.empty()) ||
                            std::holds_alternative<message::ViewNews>(message));
    };
    // A new member, or one that sits again: its vacancy is told.
    if (newcomer)
      world->Add();
    else
      world->Slander(steward, (steward + 2) % 3);
    world->RunFor(Seconds(1));
    EXPECT_LT(world->Summary(deaf).view->members, world->size()) << "it heard: no test of this";
    world->lose = nullptr;
    EXPECT_TRUE(world->UntilTogether(Seconds(5))) << newcomer << world->Describe();
  }
}

// Its record says for a while yet that it sits here. Nobody knows more of it than that it is gone.
TEST(MembershipTest, TheRecordOfADeadMemberAsksForNoNews) {
  const auto world = WorldWithoutAveragings(25, 4);
  size_t asked = 0;
  world->lose = [&asked](size_t, size_t, const Message& message) {
    asked += std::holds_alternative<message::ViewAsk>(message);
    return false;
  };
  world->Kill(2);
  world->RunFor(Seconds(10));
  EXPECT_TRUE(world->Together()) << world->Describe();
  EXPECT_EQ(asked, 0U);
}

// What is not answered is asked again once in the time that a record lives: three seconds here.
TEST(MembershipTest, NewsThatDoNotComeAreAskedForNowAndThen) {
  const auto world = WorldWithoutAveragings(26, 3);
  const size_t deaf = (StewardOf(*world) + 1) % 3;
  size_t asked = 0;
  world->lose = [&](size_t from, size_t to, const Message& message) {
    asked += from == deaf && std::holds_alternative<message::ViewAsk>(message);
    return to == deaf;
  };
  world->Add();
  world->RunFor(Seconds(30));
  EXPECT_GE(asked, 5U);
  EXPECT_LE(asked, 11U);
}

// It answered the opening of a branch, so it never comes back into this view; all heard that but
// the steward, which gives it a cell.
TEST(MembershipTest, WhoLeftAViewComesIntoTheNextThoughTheStewardMissedItsLeaving) {
  PeerWorld world(22, EveryTenSteps());
  for (int i = 0; i < 6; ++i) world.Add();
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
  world.RunFor(Milliseconds(300));
  const size_t steward = StewardOf(world);
  const size_t victim = (steward + 3) % 6;
  const ViewHash left = world.Summary(victim).view->hash;
  world.Tell(victim, (steward + 1) % 6, message::BranchOpen{left, 1});
  size_t lost = 0;
  world.lose = [&](size_t, size_t to, const Message& message) {
    const bool missed = to == steward && std::holds_alternative<message::Leaving>(message);
    lost += missed;
    return missed;
  };
  world.Slander(steward, victim);
  world.RunFor(Seconds(2));
  EXPECT_GT(lost, 0U);
  world.lose = nullptr;
  ASSERT_TRUE(world.UntilTogether(Seconds(5))) << world.Describe();
  EXPECT_NE(world.Summary(victim).view->hash, left);
}

// The way back from a branch leads into a later view of the lineage. One before the view that was
// left for the branch would lead nowhere, for it leads into that one; somebody who is behind may
// still offer a seat in it.
TEST(MembershipTest, WhoLeftAViewTakesNoSeatInTheOneBefore) {
  PeerWorld world(23, EveryTenSteps());
  std::optional<message::ViewNews> before;
  world.lose = [&](size_t, size_t, const Message& message) {
    if (const auto* news = std::get_if<message::ViewNews>(&message)) before = *news;
    return false;
  };
  for (int i = 0; i < 3; ++i) world.Add();
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
  world.lose = nullptr;
  ASSERT_TRUE(before);
  const auto view = DecodeView(before->view);
  ASSERT_EQ(view->members.size(), 3U);
  const size_t loner = world.Add();
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
  world.node(loner).island = 1;
  world.RunFor(Seconds(10));
  ASSERT_EQ(world.Summary(loner).view->members, 1U);
  const Member& gone = view->members[2];
  before->vacancies = {Vacancy{gone.id, 0, AveragingId(1)}};
  before->seats = {Seat{.member = {.id = world.node(loner).id(), .cell = gone.cell},
                        .steward = view->members[0].id,
                        .sitting = 1,
                        .first_averaging = AveragingId(1)}};
  world.Tell(loner, 0, *before);
  world.RunFor(Seconds(1));
  EXPECT_EQ(world.Summary(loner).view->members, 1U);
  world.node(loner).island = 0;
  EXPECT_TRUE(world.UntilTogether(Seconds(10))) << world.Describe();
}

// A model takes seconds to fetch, an averaging may take less: what was the newest when the transfer
// began is near enough, or the newcomer would fetch for ever.
TEST(MembershipTest, ATransferThatTakesLongerThanAnAveragingIsMadeOnce) {
  PeerWorld world(16, EveryTenSteps());  // an averaging every 100 ms
  for (int i = 0; i < 4; ++i) world.Add();
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
  world.RunFor(Seconds(1));
  world.fetch_takes = Seconds(1);
  const size_t late = world.Add();
  ASSERT_TRUE(world.UntilTogether(Seconds(5))) << world.Describe();
  EXPECT_EQ(world.node(late).fetches.size(), 1U);
  world.RunFor(Seconds(1));
  ExpectAgreement(world);
  EXPECT_GE(world.node(late).deliveries.size(), 5U);
  for (size_t i = 0; i < world.size(); ++i) EXPECT_EQ(world.Summary(i).rounds.failed(), 0U) << i;
}

TEST(MembershipTest, ATrainerThatGoesAndComesBackFetchesTheState) {
  PeerWorld world(13, EveryTenSteps());
  for (int i = 0; i < 4; ++i) world.Add();
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
  world.RunFor(Milliseconds(700));
  world.node(2).running = false;
  world.Local(2, TrainerGone{});
  world.RunFor(Milliseconds(300));
  EXPECT_FALSE(world.Summary(2).view);
  EXPECT_EQ(world.Summary(0).view->members, 3U);
  world.node(2).steps = 0;
  world.Local(2, TrainerRegistered{Sha256(AsBytes("schema")), 64, true});
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
  EXPECT_EQ(world.node(2).fetches.size(), 1U);
}

// Machines that are taken end their trainers at any moment: of a whole group, at once. What such a
// worker gives up is no failed round of a survivor (docs/local-mode.md).
TEST(MembershipTest, WhoseTrainerGoesInTheMiddleOfARoundHasLeftIt) {
  double left = 0;
  for (int offset = 0; offset < 100; offset += 4) {  // an averaging every 100 ms
    PeerWorld world(17, EveryTenSteps());
    for (int i = 0; i < 4; ++i) world.Add();
    ASSERT_TRUE(world.UntilTogether(Seconds(5)));
    world.jitter = 20;  // up to 6 ms a message: rounds take a good part of the time
    world.RunFor(Milliseconds(700 + offset));
    for (size_t i = 0; i < world.size(); ++i) {
      world.node(i).running = false;
      world.Local(i, TrainerGone{});
    }
    world.RunFor(Milliseconds(300));
    for (size_t i = 0; i < world.size(); ++i) {
      EXPECT_EQ(world.Summary(i).rounds.failed(), 0U) << i << " at " << offset;
      left += world.node(i).metrics().Value("crowdsurf_round_total", {{"outcome", "left"}});
    }
  }
  EXPECT_GT(left, 0) << "no trainer went in the middle of a round";
}

TEST(MembershipTest, TheHighestCheckpointWinsWhenAllComeBack) {
  PeerWorld world(14, EveryTenSteps());
  world.Add(Milliseconds(20));
  world.Add(Milliseconds(20), 0, RestoredCheckpoint{AveragingId(40), 1000, Sha256(AsBytes("old"))});
  const size_t best = world.Add(Milliseconds(20), 0,
                                RestoredCheckpoint{AveragingId(50), 2000, Sha256(AsBytes("new"))});
  world.node(best).At(Region::kInboxA).values.assign(64, 3.0);
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_GE(world.Summary(i).averaging, AveragingId(50)) << i;
    EXPECT_GE(world.Summary(i).job_samples, 2000) << i;
    EXPECT_EQ(world.node(i).x[0], 3.0) << i;
  }
  world.RunFor(Seconds(1));
  EXPECT_GT(world.Summary(0).averaging, AveragingId(51));
}

TEST(MembershipTest, AnotherTensorTableIsRefusedAndHarmsNobody) {
  PeerWorld world(15, EveryTenSteps());
  for (int i = 0; i < 3; ++i) world.Add();
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
  for (size_t i = 0; i < 3; ++i) {
    world.Local(i, TrainerRegistered{.schema = Sha256(AsBytes("schema")),
                                     .elements = 64,
                                     .fresh = false,
                                     .marks = {1, 2, 4}});
  }
  const size_t odd = world.Add(Seconds(1000));
  world.Local(odd, TrainerRegistered{
                       .schema = Sha256(AsBytes("another")), .elements = 64, .marks = {1, 3}});
  // Its table differs in what has no mark.
  const size_t unmarked = world.Add(Seconds(1000));
  world.Local(
      unmarked,
      TrainerRegistered{.schema = Sha256(AsBytes("a third")), .elements = 64, .marks = {1, 2, 4}});
  world.RunFor(Seconds(3));
  ASSERT_TRUE(world.Summary(unmarked).seat_refused);
  EXPECT_EQ(world.Summary(unmarked).seat_refused->reason, "another tensor table");
  EXPECT_FALSE(world.Summary(unmarked).seat_refused->tensor);
  EXPECT_FALSE(world.Summary(odd).view);
  ASSERT_TRUE(world.Summary(odd).seat_refused);
  EXPECT_EQ(world.Summary(odd).seat_refused->reason, "another tensor table");
  EXPECT_FALSE(world.Summary(odd).seat_refused->worker.empty());
  EXPECT_EQ(world.Summary(odd).seat_refused->tensor, 1u);
  EXPECT_FALSE(world.Summary(0).seat_refused);
  EXPECT_EQ(world.Summary(0).view->members, 3U);
  EXPECT_EQ(world.Summary(0).rounds.failed(), 0U);
}

}  // namespace
}  // namespace crowdsurf::worker
