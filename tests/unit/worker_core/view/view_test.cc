// Views as bytes and as rules: what decodes is sound. Witnesses and quorums are those of
// docs/views.md.
#include "worker/core/view/view.h"
#include "worker/core/strategy/edge_mailbox.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/digest.h"
#include "base/rng.h"
#include "tests/unit/worker_core/world/numbered_peers.h"
#include "worker/core/strategy/strategy.h"
#include "worker/core/strategy/strategy_factory.h"
#include "worker/core/view/view_plan.h"

namespace crowdsurf::worker {
namespace {

View EightInTwoByFour() {
  View view;
  view.epoch = 3;
  view.grid = Grid{{2, 4}};
  for (uint8_t i = 0; i < 8; ++i)
    view.members.push_back({.id = Id(static_cast<uint8_t>(i + 1)),
                            .cell = static_cast<CellIndex>(7 - i),
                            .joined_unix_ms = 1000 - i,
                            .on_demand = i == 0,
                            .bandwidth_class = i});
  view.witnesses = ChooseWitnesses(view.members);
  view.fork_members = 8;
  view.first_averaging = AveragingId(12);
  view.base_samples = 345.5;
  view.config.target.samples = 1e6;
  view.config.target.metric = "loss";
  view.config.target.metric_bound = -2;
  return view;
}

TEST(ViewTest, EncodesAndDecodesTheSameView) {
  const View view = EightInTwoByFour();
  const auto back = DecodeView(Encode(view));
  ASSERT_TRUE(back);
  EXPECT_EQ(Encode(*back), Encode(view));
  EXPECT_EQ(back->members, view.members);
  EXPECT_EQ(back->config, view.config);
  EXPECT_EQ(HashOf(*back, "job"), HashOf(view, "job"));
  EXPECT_NE(HashOf(view, "job"), HashOf(view, "other"));
}

TEST(ViewTest, PowerGossipsFieldsTravelWithItsViewsAlone) {
  View view = EightInTwoByFour();
  const size_t others = Encode(view).size();
  view.config.mixing.rank = 3;
  view.config.mixing.iterations = 5;
  view.config.mixing.dense_every = 7;
  EXPECT_EQ(Encode(view).size(), others);
  view.config.strategy = StrategyKind::kPowerGossip;
  const auto back = DecodeView(Encode(view));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->config, view.config);
  view.config.mixing.rank = 0;
  EXPECT_FALSE(DecodeView(Encode(view)));
}

TEST(ViewTest, GarbledViewsAreRefusedAndNeverCrash) {
  Rng rng(11);
  const Bytes good = Encode(EightInTwoByFour());
  for (int i = 0; i < 20'000; ++i) {
    Bytes bad = good;
    const size_t edits = 1 + rng.Uniform(3);
    for (size_t e = 0; e < edits; ++e)
      bad[rng.Uniform(bad.size())] = static_cast<uint8_t>(rng.Next());
    if (rng.Bernoulli(0.2)) bad.resize(rng.Uniform(bad.size()));
    const auto view = DecodeView(bad);
    // Canonical: what decodes is what was written.
    if (view) {
      EXPECT_EQ(Encode(*view), bad);
    }
  }
}

PeerId Numbered(size_t i) {
  return *PeerId::From(Sha256(AsBytes("member" + std::to_string(i))).view());
}

// What admission says of graphs is true of the ones that agents make: fewer workers than the least
// make none of them, and above the most a worker would have more neighbours than it can hold.
TEST(ViewTest, TheBoundsOfAdmissionAreThoseOfTheGraphs) {
  for (const manifest::Needs& needs : manifest::kNeeds) {
    if (needs.graph.empty()) continue;
    for (int kind = 0; kind <= static_cast<int>(kLastGraphKind); ++kind) {
      const auto graph = static_cast<GraphKind>(kind);
      const auto [min, max] = manifest::WorkersOf(needs, NameOf(graph));
      int made = 0;
      for (int n = 1; n < min; ++n) made += MakeGraph(graph, static_cast<uint32_t>(n)).ok();
      EXPECT_LE(made, 1) << NameOf(graph);  // one worker is any graph
      EXPECT_TRUE(MakeGraph(graph, static_cast<uint32_t>(min)).ok()) << NameOf(graph);
      if (!needs.per_neighbour || graph == GraphKind::kTorus || graph == GraphKind::kHypercube)
        continue;
      size_t most = 0;
      for (const auto& list : MakeGraph(graph, static_cast<uint32_t>(max))->Neighbours())
        most = std::max(most, list.size());
      EXPECT_LE(most, kMaxExtraRegions) << NameOf(graph) << " " << max;
    }
  }
}

// Where all others can be one member's neighbours, a view holds as many as it has regions for.
TEST(ViewTest, AViewIsNoLargerThanItsGraphCanMix) {
  AveragingConfig complete, star, power, chain;
  complete.strategy = StrategyKind::kGossip;
  complete.mixing = {.graph = GraphKind::kComplete, .gossip = GossipMode::kNeighbours};
  star.strategy = StrategyKind::kRelaySum;
  star.mixing.graph = GraphKind::kStar;
  power.strategy = StrategyKind::kPowerGossip;
  power.mixing.graph = GraphKind::kComplete;
  for (const AveragingConfig& config : {complete, star, power}) {
    const ViewFacts facts{.config = config};
    std::vector<Member> newcomers;
    for (size_t i = 1; i < 300; ++i) newcomers.push_back({.id = Numbered(i), .joined_unix_ms = 1});
    const View first = FirstView({.id = Numbered(0)}, facts);
    View view = NextView(Seating(first, HashOf(first, "job")), {}, newcomers, facts);
    ASSERT_EQ(view.members.size(), manifest::kMaxNeighbours);
    EXPECT_TRUE(DecodeView(Encode(view)));
    StrategyActions actions;
    MakeGraphStrategy(config, Rng(1))->OnView(Time(), view, Numbered(0), actions);
    const auto* reserve = std::get_if<ReserveRegions>(&actions.at(0));
    ASSERT_NE(reserve, nullptr);
    EXPECT_EQ(reserve->extents.size(), view.members.size() - 1);  // the hub; of Complete, anybody
    if (const auto* use = std::get_if<UseEdges>(&actions.at(1))) {
      EdgeMailbox edges;
      edges.Reset(use->links, 300, 1, WireFormat::kFloat32, EdgeOrder::kLatestWins);
    }
    // A view of 300 for a graph that can hold them is none of this one's.
    const ViewFacts wide{.config = chain};
    view = NextView(Seating(first, HashOf(first, "job")), {}, newcomers, wide);
    ASSERT_EQ(view.members.size(), 300u);
    EXPECT_TRUE(DecodeView(Encode(view)));
    view.config = config;
    EXPECT_FALSE(DecodeView(Encode(view)));
  }
}

TEST(ViewTest, RefusesDuplicateCellsStrangersAsWitnessesAndWrongOrder) {
  View view = EightInTwoByFour();
  view.members[1].cell = view.members[0].cell;
  EXPECT_FALSE(DecodeView(Encode(view)));
  view = EightInTwoByFour();
  std::swap(view.members[0], view.members[1]);
  EXPECT_FALSE(DecodeView(Encode(view)));
  view = EightInTwoByFour();
  view.witnesses[2] = Id(99);
  EXPECT_FALSE(DecodeView(Encode(view)));
  view = EightInTwoByFour();
  view.members[0].cell = 8;
  EXPECT_FALSE(DecodeView(Encode(view)));
  view = EightInTwoByFour();
  view.base_samples = NAN;
  EXPECT_FALSE(DecodeView(Encode(view)));
}

TEST(ViewTest, WitnessesAreOnDemandFirstThenLongestLived) {
  std::vector<Member> members;
  for (uint8_t i = 0; i < 20; ++i)
    members.push_back(
        {.id = Id(static_cast<uint8_t>(i + 1)), .joined_unix_ms = 100 - i, .on_demand = i == 3});
  const auto witnesses = ChooseWitnesses(members);
  ASSERT_EQ(witnesses.size(), kMaxWitnesses);
  EXPECT_EQ(witnesses[0], Id(4));
  EXPECT_EQ(witnesses[1], Id(20));
  EXPECT_EQ(witnesses[2], Id(19));
}

TEST(ViewTest, AnyTwoQuorumsMeetForEveryWitnessCount) {
  for (uint8_t n = 1; n <= 9; ++n) {
    std::vector<PeerId> witnesses;
    for (uint8_t i = 0; i < n; ++i) witnesses.push_back(Id(static_cast<uint8_t>(i + 1)));
    std::vector<uint32_t> quorums;
    for (uint32_t mask = 0; mask < (1U << n); ++mask) {
      std::set<PeerId> present;
      for (uint8_t i = 0; i < n; ++i)
        if (mask >> i & 1) present.insert(witnesses[i]);
      if (IsQuorum(witnesses, present)) quorums.push_back(mask);
    }
    EXPECT_FALSE(quorums.empty());
    for (uint32_t a : quorums)
      for (uint32_t b : quorums) EXPECT_NE(a & b, 0U) << int{n};
  }
  EXPECT_FALSE(IsQuorum({}, {}));
}

}  // namespace
}  // namespace crowdsurf::worker
