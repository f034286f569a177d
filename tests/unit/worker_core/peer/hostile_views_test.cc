// What one member may not decide alone: forged views, branches, ballots and vacancies.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "coordinator-free-dht/core/routing/latest_boots.h"
#include "tests/unit/worker_core/world/numbered_peers.h"
#include "tests/unit/worker_core/world/peer_world.h"
#include "worker/core/membership/roster.h"

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
  // A lineage of its own that beats ours: everybody, those ids, and ten names more.
  View BetterLineage(const std::vector<PeerId>& ids) const {
    View view = view_;
    view.parent = ViewHash();
    view.origin = ViewHash();
    view.seed ^= 1;
    for (const PeerId& id : ids) view.members.push_back({.id = id});
    for (uint8_t n = 1; n <= 10; ++n) view.members.push_back({.id = Id(n)});
    std::sort(view.members.begin(), view.members.end(),
              [](const Member& a, const Member& b) { return a.id < b.id; });
    return Without(view, PeerId());
  }
  // As the transport has it: a higher boot of a key is another peer, and the one before is dead.
  void Say(size_t at, const dht::PublicKey& key, uint64_t boot, const Message& message) {
    const auto answer = boots_[at].OnProof(key, boot);
    if (answer.verdict == dht::LatestBoots::Verdict::kOld) return;
    if (answer.verdict == dht::LatestBoots::Verdict::kReplaces)
      world_.node(at).OnDown(answer.replaced, DownEvidence::kReplaced);
    world_.node(at).OnBody(dht::PeerIdOf(key, boot),
                           std::make_shared<const Bytes>(EncodeMessage(message)));
  }
  // What the DHT reports of an id that says that it sits in this view.
  void Publish(size_t at, const dht::PublicKey& key, uint64_t boot, const View& view) {
    const PeerId id = dht::PeerIdOf(key, boot);
    RosterRecord record;
    record.contact = {id, "w", "127.0.0.1:1", "127.0.0.1:2"};
    record.member.id = id;
    record.seated = true;
    record.view = HashOf(view, "job");
    record.epoch = view.epoch;
    record.lineage = {view.fork_members, OriginOf(view, record.view)};
    const PeerRecord published{.key = "crowdsurf/job/roster/0",
                               .owner = id,
                               .value = Encode(record),
                               .ttl = Seconds(3),
                               .key_of_owner = key,
                               .boot = boot};
    world_.node(at).OnRecords({published});
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
  std::map<size_t, dht::LatestBoots> boots_;  // by the member that proves keys
  bool lost_ = false;                         // nothing arrives any more
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
}

// Two steps would end a job: a lineage of its own that draws the members, and there a view that
// says so, decided by witnesses of its choice. Records under keys that it made itself make the
// lineage as big as it likes. It has one certificate, so one of them speaks.
TEST_F(HostileViewsTest, OneKeyDrawsNobodyIntoALineageOfItsOwn) {
  Start(6);
  std::vector<PeerId> ids;
  for (uint8_t n = 1; n <= 20; ++n) ids.push_back(dht::PeerIdOf({n}, 1));
  const View view = BetterLineage(ids);
  for (int second = 0; second < 6; ++second) {
    for (size_t i = 0; i < 6; ++i) {
      for (uint8_t n = 1; n <= 20; ++n) Publish(i, {n}, 1, view);
      Say(i, {1}, 1, News(view));
    }
    world_.RunFor(Seconds(1));
  }
  ExpectUnmoved();
  for (size_t i = 0; i < 6; ++i) EXPECT_GE(Refused(world_, i, "view_unconfirmed"), 1) << i;
}

// One certificate under many boots. None of its ids is a member. The view that they name has them.
TEST_F(HostileViewsTest, ManyIdsOfOneKeyEndNoJob) {
  Start(6);
  const dht::PublicKey key{7};
  for (const uint64_t ids : {2, 10, 1000}) {
    std::vector<PeerId> all;
    for (uint64_t boot = 1; boot <= ids; ++boot) all.push_back(dht::PeerIdOf(key, boot));
    View view = BetterLineage(all);
    view.target_met = true;
    const size_t hearers = ids > 100 ? 2 : 6;  // a view of a thousand takes long to read
    for (size_t i = 0; i < hearers; ++i) {
      // To every second member they also show records that say that they sit in that lineage.
      boots_.erase(i);
      for (uint64_t boot = 1; boot <= ids; ++boot) {
        if (i % 2 == 0) Publish(i, key, boot, view);
        Say(i, key, boot, News(view));
      }
    }
    world_.RunFor(Seconds(4));
    ExpectUnmoved();
  }
}

// Two strangers with a certificate each. Neither sits in the job's view.
TEST_F(HostileViewsTest, StrangersEndNoJobHoweverManyTheyAre) {
  Start(6);
  std::vector<PeerId> all;
  for (uint8_t n = 1; n <= 3; ++n) all.push_back(dht::PeerIdOf({n}, 1));
  View view = BetterLineage(all);
  view.target_met = true;
  for (size_t i = 0; i < 6; ++i) {
    for (uint8_t n = 1; n <= 3; ++n) {
      Publish(i, {n}, 1, view);
      Say(i, {n}, 1, News(view));
    }
  }
  world_.RunFor(Seconds(4));
  ExpectUnmoved();
}

// Nor does a newcomer believe the end of a job that others, who are seated, go on with.
TEST_F(HostileViewsTest, OneKeyEndsNoNewcomer) {
  Start(3);
  lost_ = true;  // so that it gets no seat; it sees three records of seated peers
  const size_t newcomer = world_.Add();
  world_.RunFor(Milliseconds(100));
  const dht::PublicKey key{7};
  std::vector<PeerId> ids{world_.node(newcomer).id()};
  for (uint64_t boot = 1; boot <= 10; ++boot) ids.push_back(dht::PeerIdOf(key, boot));
  View view = BetterLineage(ids);
  view.target_met = true;
  for (uint64_t boot = 1; boot <= 10; ++boot) {
    Publish(newcomer, key, boot, view);
    Say(newcomer, key, boot, News(view));
  }
  world_.RunFor(Seconds(2.8));
  EXPECT_FALSE(world_.node(newcomer).stopped);
  EXPECT_GE(Refused(world_, newcomer, "view_unconfirmed"), 1);
}

// A member with a seat makes another of itself. No quorum answers, for nothing arrives any more.
TEST_F(HostileViewsTest, AMemberIsNoSecondVoiceForItselfInSilenceEither) {
  Start(6);
  lost_ = true;
  const dht::PublicKey key{7};
  View view = Successor();
  view.members.push_back({.id = dht::PeerIdOf(key, 1)});
  std::sort(view.members.begin(), view.members.end(),
            [](const Member& a, const Member& b) { return a.id < b.id; });
  view = Without(view, PeerId());
  view.target_met = true;
  ASSERT_FALSE(world_.Summary(5).steward);
  world_.Tell(0, 5, News(view));
  Say(0, key, 1, News(view));
  world_.RunFor(Seconds(6));  // the quorum is silent after 2.5, and a round is waited for
  EXPECT_FALSE(world_.node(0).stopped);
  EXPECT_EQ(Refused(world_, 0, "view_no_quorum"), 1);
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
