// What one member may not decide alone: forged views, branches, ballots and vacancies.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "tests/unit/worker_core/world/numbered_peers.h"
#include "tests/unit/worker_core/world/peer_world.h"

namespace crowdsurf::worker {
namespace {

double Refused(PeerWorld& world, size_t i, const std::string& reason) {
  return world.node(i).metrics().Value("crowdsurf_peer_messages_refused_total",
                                       {{"reason", reason}});
}

// A job of some members that are together, and the view they are in.
class HostileViewsTest : public ::testing::Test {
 protected:
  void Start(size_t members) {
    world_.lose = [this](size_t, size_t, const Message& message) {
      if (const auto* news = std::get_if<message::ViewNews>(&message)) {
        const auto view = DecodeView(news->view);
        if (view) seen_[HashOf(*view, "job")] = *view;
      }
      return lost_;
    };
    for (size_t i = 0; i < members; ++i) world_.Add();
    ASSERT_TRUE(world_.UntilTogether(Seconds(5)));
    world_.RunFor(Seconds(1));
    hash_ = world_.Summary(0).view->hash;
    view_ = seen_.at(hash_);
  }

  // A view that would follow the present one, as an honest proposer would shape it.
  View Successor() const {
    View next = view_;
    next.parent = hash_;
    next.origin = OriginOf(view_, hash_);
    ++next.epoch;
    next.seed ^= 1;
    return next;
  }
  View Without(View view, const PeerId& peer) const {
    std::erase_if(view.members, [&](const Member& m) { return m.id == peer; });
    for (size_t i = 0; i < view.members.size(); ++i)
      view.members[i].cell = static_cast<CellIndex>(i);
    view.grid = FitGrid(view.members.size(), view.config.group_size);
    view.witnesses = ChooseWitnesses(view.members);
    view.fork_members = view.members.size();
    return view;
  }
  static message::ViewNews News(const View& view) {
    return {.view = Encode(view), .seats = {}, .vacancies = {}, .contacts = {}, .committed = {}};
  }
  size_t Entered(size_t i) const {
    return static_cast<size_t>(
        const_cast<PeerWorld&>(world_).node(i).metrics().Value("crowdsurf_view_changes_total"));
  }
  void ExpectUnmoved() {
    for (size_t i = 0; i < world_.size(); ++i) {
      ASSERT_TRUE(world_.Summary(i).view) << i;
      EXPECT_EQ(world_.Summary(i).view->hash, hash_) << i;
      EXPECT_FALSE(world_.node(i).stopped) << i;
    }
  }

  PeerWorld world_{21, EveryTenSteps()};
  std::map<ViewHash, View> seen_;
  ViewHash hash_;
  View view_;
  bool lost_ = false;  // nothing arrives any more
};

TEST_F(HostileViewsTest, ASuccessorThatNoWitnessAcceptedIsNotFollowed) {
  Start(6);
  world_.Tell(0, 5, News(Successor()));
  world_.RunFor(Seconds(5));
  ExpectUnmoved();
  EXPECT_EQ(Refused(world_, 0, "view_unconfirmed"), 1);
}

TEST_F(HostileViewsTest, AForgedTargetStopsNoTrainer) {
  Start(6);
  View view = Successor();
  view.target_met = true;
  for (size_t i = 0; i < 5; ++i) world_.Tell(i, 5, News(view));
  world_.RunFor(Seconds(5));
  ExpectUnmoved();
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(Refused(world_, i, "view_unconfirmed"), 1) << i;
}

TEST_F(HostileViewsTest, AForgedViewWithoutThisMemberUnseatsItNot) {
  Start(6);
  const size_t entered = Entered(0);
  world_.Tell(0, 5, News(Without(Successor(), world_.node(0).id())));
  world_.RunFor(Seconds(5));
  ExpectUnmoved();
  EXPECT_EQ(Entered(0), entered);  // it never sat down anew
  EXPECT_EQ(Refused(world_, 0, "view_unconfirmed"), 1);
}

TEST_F(HostileViewsTest, AForgedBetterLineageDrawsNobody) {
  Start(6);
  View view = view_;
  view.parent = ViewHash();
  view.origin = ViewHash();
  view.seed ^= 1;
  for (uint8_t n = 1; n <= 10; ++n) view.members.push_back({.id = Id(n)});
  std::sort(view.members.begin(), view.members.end(),
            [](const Member& a, const Member& b) { return a.id < b.id; });
  view = Without(view, PeerId());
  view.target_met = true;
  for (size_t i = 0; i < 5; ++i) world_.Tell(i, 5, News(view));
  world_.RunFor(Seconds(5));
  ExpectUnmoved();
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(Refused(world_, i, "view_unconfirmed"), 1) << i;
}

// The others do not answer: nobody may say so for them.
TEST_F(HostileViewsTest, AForgedSuccessorIsNotFollowedInSilenceEither) {
  Start(6);
  lost_ = true;
  View view = Successor();
  view.target_met = true;
  world_.Tell(0, 5, News(view));
  world_.RunFor(Seconds(2));
  EXPECT_FALSE(world_.node(0).stopped);
}

// Whoever answered a branch follows its leader, not anybody that names a branch.
TEST_F(HostileViewsTest, ABranchIsTakenFromItsLeaderAlone) {
  Start(6);
  world_.Tell(0, 1, message::BranchOpen{hash_, 1});
  View forged = Successor();
  forged.branch = true;
  forged.origin = ViewHash();
  forged.target_met = true;
  world_.Tell(0, 5, News(forged));
  world_.RunFor(Milliseconds(500));
  EXPECT_FALSE(world_.node(0).stopped);
  EXPECT_NE(world_.Summary(0).view ? world_.Summary(0).view->hash : ViewHash(),
            HashOf(forged, "job"));
  EXPECT_EQ(Refused(world_, 0, "branch_of_another"), 1);
  EXPECT_TRUE(world_.UntilTogether(Seconds(20))) << world_.Describe();
}

// ... but a branch that the member itself held may be named by any of its members.
TEST_F(HostileViewsTest, AHeldBranchIsTakenFromAnyOfItsMembers) {
  Start(6);
  View branch = Successor();
  branch.branch = true;
  branch.origin = ViewHash();
  world_.Tell(0, 1, message::BranchOpen{hash_, 1});
  world_.Tell(0, 1, message::BranchView{hash_, 1, Encode(branch)});
  world_.Tell(0, 5, News(branch));
  world_.RunFor(Milliseconds(500));
  EXPECT_EQ(Refused(world_, 0, "branch_of_another"), 0);
  EXPECT_EQ(world_.node(0).metrics().Value("crowdsurf_round_branches_total"), 1);
}

TEST_F(HostileViewsTest, AVacancyOfASittingThatNobodyHadIsDropped) {
  Start(6);
  const PeerId victim = world_.node(0).id();
  world_.Tell(1, 5,
              message::SeatingNews{hash_, {}, {Vacancy{victim, 1, AveragingId(1)}}, {}, Digest()});
  world_.RunFor(Seconds(2));
  ExpectUnmoved();
  EXPECT_EQ(Refused(world_, 1, "vacancy_sitting"), 1);
}

TEST_F(HostileViewsTest, ABallotOfAnotherIsRefusedAndCounted) {
  Start(3);
  world_.Tell(0, 1, message::ViewOpen{hash_, UINT16_MAX});
  EXPECT_EQ(Refused(world_, 0, "ballot_of_another"), 1);
  world_.Tell(0, 1, message::ViewAccept{hash_, UINT16_MAX, Encode(Successor())});
  EXPECT_EQ(Refused(world_, 0, "ballot_of_another"), 2);
}

}  // namespace
}  // namespace crowdsurf::worker
