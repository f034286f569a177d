// What one peer with a certificate may say: numbers at their extremes, into the real Peer.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/rng.h"
#include "tests/unit/worker_core/world/numbered_peers.h"
#include "tests/unit/worker_core/world/peer_world.h"
#include "worker/core/membership/membership.h"

namespace crowdsurf::worker {
namespace {

PeerId StrangerAt(uint32_t n) {
  std::array<uint8_t, PeerId::kBytes> bytes{};
  for (size_t i = 0; i < 4; ++i) bytes[i] = static_cast<uint8_t>(n >> (8 * i));
  bytes[31] = 0xEE;
  return PeerId(bytes);
}

// A view of `count` made up members and `victim`.
View Forged(const PeerId& victim, size_t count) {
  View view;
  view.epoch = 7;
  for (uint32_t i = 0; i < count; ++i) view.members.push_back({.id = StrangerAt(i)});
  view.members.push_back({.id = victim});
  std::sort(view.members.begin(), view.members.end(),
            [](const Member& a, const Member& b) { return a.id < b.id; });
  for (size_t i = 0; i < view.members.size(); ++i) view.members[i].cell = static_cast<CellIndex>(i);
  view.grid = FitGrid(view.members.size(), view.config.group_size);
  view.witnesses = ChooseWitnesses(view.members);
  view.fork_members = view.members.size();
  return view;
}

message::ViewNews NewsOf(const View& view) {
  return {.view = Encode(view), .seats = {}, .vacancies = {}, .contacts = {}, .committed = {}};
}

uint64_t EpochOf(PeerWorld& world, size_t i) { return world.Summary(i).view->epoch; }

TEST(HostileMessagesTest, AnAllReduceViewOfTooManyMembersIsRefused) {
  PeerWorld world(1, EveryTenSteps());
  for (int i = 0; i < 3; ++i) world.Add();
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
  View view = Forged(world.node(0).id(), 69);
  view.config.strategy = StrategyKind::kAllReduce;
  world.Tell(0, 1, NewsOf(view));
  view.grid = Grid{{2, 35}};  // 70 cells, one group of 64 at most
  world.Tell(0, 1, NewsOf(view));
  world.RunFor(Seconds(3));
  EXPECT_TRUE(world.Together()) << world.Describe();
}

TEST(HostileMessagesTest, AViewThatClaimsToBeBiggerThanItIsIsRefused) {
  PeerWorld world(2, EveryTenSteps());
  for (int i = 0; i < 3; ++i) world.Add();
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
  View view = Forged(world.node(0).id(), 1);
  view.fork_members = UINT64_MAX;
  view.target_met = true;
  world.Tell(0, 1, NewsOf(view));
  world.RunFor(Seconds(1));
  EXPECT_FALSE(world.node(0).stopped);
  EXPECT_TRUE(world.Together()) << world.Describe();
}

TEST(HostileMessagesTest, EveryFieldOfAViewHasABound) {
  const View good = Forged(Id(1), 5);
  ASSERT_EQ(FlawOf(good), ViewFlaw::kNone);
  const auto flaw = [&](auto change) {
    View bad = good;
    change(bad);
    EXPECT_FALSE(DecodeView(Encode(bad)));
    return std::string(kViewFlaws[static_cast<size_t>(FlawOf(bad))]);
  };
  EXPECT_EQ(flaw([](View& v) { v.epoch = UINT64_MAX; }), "view_number");
  EXPECT_EQ(flaw([](View& v) { v.first_averaging = AveragingId(UINT64_MAX); }), "view_number");
  EXPECT_EQ(flaw([](View& v) { v.barrier = AveragingId(UINT64_MAX); }), "view_number");
  EXPECT_EQ(flaw([](View& v) { v.base_samples = 1e300; }), "view_number");
  EXPECT_EQ(flaw([](View& v) { v.config.generation = UINT64_MAX; }), "view_config");
  EXPECT_EQ(flaw([](View& v) { v.config.target.seconds = 1e300; }), "view_config");
  const auto in_groups = [](View& v) {
    v.config.strategy = StrategyKind::kIst;
    v.grid = Grid{{2, 4}};
  };
  EXPECT_EQ(flaw(in_groups), "view_size");
  EXPECT_EQ(flaw([](View& v) { v.grid = Grid{{0}}; }), "view_grid");
  EXPECT_EQ(flaw([](View& v) { v.grid = Grid{{64, 64, 64}}; }), "view_grid");
  EXPECT_EQ(flaw([](View& v) { v.grid = Grid{{2}}; }), "view_size");
  EXPECT_EQ(flaw([](View& v) { v.members.front().joined_unix_ms = INT64_MIN; }), "view_members");
  EXPECT_EQ(flaw([](View& v) { v.members.front().bandwidth_class = 65; }), "view_members");
  EXPECT_EQ(flaw([](View& v) { v.members[1].cell = v.members[0].cell; }), "view_members");
  EXPECT_EQ(flaw([](View& v) { v.witnesses.pop_back(); }), "view_witnesses");
  EXPECT_EQ(flaw([](View& v) { v.witnesses[0] = v.witnesses[1]; }), "view_witnesses");
  EXPECT_EQ(flaw([](View& v) { ++v.fork_members; }), "view_fork_members");
}

TEST(HostileMessagesTest, ASittingThatWouldWrapEndsNoSeatForGood) {
  const View view = Forged(Id(1), 4);
  Seating seating(view, HashOf(view, "job"));
  EXPECT_FALSE(seating.Add(Vacancy{Id(9), UINT32_MAX}));
  EXPECT_EQ(seating.NextSitting(Id(9)), 1U);
  // The last one: it is used up, and the next seat is refused rather than numbered from 0 again.
  EXPECT_TRUE(seating.Add(Vacancy{Id(9), kMaxSittings}));
  EXPECT_GT(seating.NextSitting(Id(9)), kMaxSittings);
}

// Whose sittings somebody used up is taken in by the next view.
TEST(HostileMessagesTest, WhoCannotSitInThisViewSitsInTheNext) {
  PeerWorld world(3, EveryTenSteps());
  for (int i = 0; i < 5; ++i) world.Add();  // a cell is free
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
  const size_t late = world.Add(Milliseconds(200));
  const ViewHash hash = world.Summary(0).view->hash;
  for (const uint32_t sitting : {UINT32_MAX, kMaxSittings})
    for (size_t i = 0; i < 5; ++i)
      world.Tell(
          i, (i + 1) % 5,
          message::SeatingNews{
              hash, {}, {Vacancy{world.node(late).id(), sitting, AveragingId(1)}}, {}, Digest()});
  EXPECT_TRUE(world.UntilTogether(Seconds(5))) << world.Describe();
}

TEST(HostileMessagesTest, ABallotIsTheWitnesssOwn) {
  PeerWorld world(4, EveryTenSteps());
  for (int i = 0; i < 3; ++i) world.Add();
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
  const ViewHash hash = world.Summary(0).view->hash;
  const uint64_t epoch = EpochOf(world, 0);
  for (size_t i = 0; i < 3; ++i)
    world.Tell(i, (i + 1) % 3, message::ViewOpen{hash, UINT16_MAX});  // none is above it
  world.Kill(2);
  EXPECT_TRUE(world.UntilTogether(Seconds(10))) << world.Describe();
  world.Add();
  EXPECT_TRUE(world.UntilTogether(Seconds(10))) << world.Describe();
  EXPECT_GE(EpochOf(world, 0), epoch);
}

TEST(HostileMessagesTest, PeersThatComeAndGoAreForgotten) {
  PeerWorld world(5, EveryTenSteps());
  for (int i = 0; i < 2; ++i) world.Add();
  ASSERT_TRUE(world.UntilTogether(Seconds(5)));
  const ViewHash hash = world.Summary(0).view->hash;
  constexpr uint32_t kBatch = 4000;  // contacts in a message are bounded
  for (uint32_t first = 0; first < 200'000; first += kBatch) {
    message::SeatingNews news{
        .view = hash, .seats = {}, .vacancies = {}, .contacts = {}, .all = {}};
    for (uint32_t n = first; n < first + kBatch; ++n)
      news.contacts.push_back({StrangerAt(n), "worker-" + std::to_string(n), "10.0.0.1:1", ""});
    world.Tell(0, 1, news);
    for (const Contact& contact : news.contacts)
      world.node(0).OnDown(contact.id, DownEvidence::kRefused);
  }
  EXPECT_LE(world.Summary(0).lost.size(), 2 * Membership::kMaxStrangersDown);
  world.Add();
  EXPECT_TRUE(world.UntilTogether(Seconds(5))) << world.Describe();
}

// Bytes of every kind that honest peers sent, with fields at their extremes: nothing may abort.
TEST(HostileMessagesTest, MutatedMessagesOfEveryKindAbortNothing) {
  Rng rng(6);
  std::vector<std::vector<Bytes>> said(std::variant_size_v<Message>);
  PeerWorld world(6, EveryTenSteps());
  world.lose = [&](size_t, size_t, const Message& message) {
    auto& kind = said[message.index()];
    if (kind.size() < 50) kind.push_back(EncodeMessage(message));
    return false;
  };
  for (int i = 0; i < 5; ++i) world.Add();
  world.RunFor(Seconds(2));
  world.Kill(4);
  world.RunFor(Seconds(2));
  world.Add();
  world.RunFor(Seconds(2));
  world.lose = nullptr;
  std::erase_if(said, [](const auto& kind) { return kind.empty(); });
  ASSERT_GE(said.size(), 8U);
  constexpr uint8_t kExtremes[] = {0x00, 0xFF, 0x7F, 0x80, 0x01};
  for (int i = 0; i < 4000; ++i) {
    const auto& kind = said[rng.Uniform(said.size())];
    Bytes bytes = kind[rng.Uniform(kind.size())];
    const uint8_t fill = kExtremes[rng.Uniform(std::size(kExtremes))];
    const size_t at = rng.Uniform(bytes.size());
    const size_t width = size_t{1} << rng.Uniform(4);
    for (size_t b = at; b < std::min(bytes.size(), at + width); ++b) bytes[b] = fill;
    const size_t to = rng.Uniform(4);
    const size_t from = (to + 1 + rng.Uniform(3)) % 4;
    world.TellBytes(to, from, bytes);
  }
  world.RunFor(Seconds(1));
}

}  // namespace
}  // namespace crowdsurf::worker
