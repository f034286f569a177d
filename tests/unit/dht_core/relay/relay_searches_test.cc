// How a way to an agent that cannot be dialed is found, in a world of a few agents.
#include "coordinator-free-dht/core/relay/relay_searches.h"

#include <gmock/gmock.h>

#include "tests/unit/dht_core/relay/relay_world.h"

namespace crowdsurf::dht {
namespace {

double Refused(const RelayMetrics& metrics, const char* reason) {
  return metrics.registry.Value("crowdsurf_relay_refused_total", {{"reason", reason}});
}

TEST(RelaySearchesTest, TheEndsOfAChainAreJoinedThroughAllBetweenThemAndTheWayIsRemembered) {
  RelayWorld world(8);
  world.LinkChain();
  EXPECT_TRUE(world.Joined(0, world.Want(0, 7)));
  for (size_t i = 1; i < 7; ++i) EXPECT_EQ(world.all[i]->joined.size(), 1) << i;
  EXPECT_EQ(world.Questions(), 6);
  EXPECT_EQ(world.all[0]->paths.Route(End(7)), Peer(1));
  EXPECT_EQ(world.all[5]->paths.Route(End(7)), Peer(6));
  EXPECT_TRUE(world.all[0]->paths.Via(ContactOf(7)));
  EXPECT_TRUE(world.Joined(0, world.Want(0, 7)));
  EXPECT_EQ(world.Questions(), 12) << "the way alone";
  // Nobody but the last dials: the others had not heard of the end.
  EXPECT_THAT(world.dials, testing::Each(testing::Pair(6, End(7))));
}

TEST(RelaySearchesTest, ACircleEndsAndEachAgentWorksOnASearchOnce) {
  RelayWorld world(9);
  for (size_t i = 0; i < 8; ++i) world.Link(i, (i + 1) % 8);
  world.Link(0, 4);
  const uint64_t id = world.Want(0, 8);  // whom nobody can dial
  EXPECT_EQ(world.all[0]->no.at(id), RelayAnswer::kUnreachable);
  EXPECT_LE(world.Questions(), 18) << "twice the links";
  double circles = 0;
  for (const auto& node : world.all) {
    circles += Refused(node->metrics, "circle");
    EXPECT_EQ(node->searches.carried(), 0);
  }
  EXPECT_GT(circles, 0);
}

TEST(RelaySearchesTest, AWayIsAtMostSixtyFourHopsLong) {
  RelayWorld world(67);
  world.LinkChain();
  EXPECT_TRUE(world.Joined(0, world.Want(0, 65)));
  EXPECT_EQ(Refused(world.all[64]->metrics, "hops"), 0);
  world.Pass(2);
  const uint64_t id = world.Want(0, 66);
  EXPECT_EQ(world.all[0]->no.at(id), RelayAnswer::kUnreachable);
  EXPECT_EQ(Refused(world.all[64]->metrics, "hops"), 1);
  RelayActions out;
  world.all[5]->searches.OnQuestion(world.now, 1 << 20, {End(6), 1, 65, Peer(4)}, out);
  world.all[5]->searches.OnQuestion(world.now, 1 << 21, {End(6), 2, 0, Peer(4)}, out);
  ASSERT_EQ(out.size(), 2);
  for (const RelayAction& action : out) EXPECT_TRUE(std::holds_alternative<RelayNo>(action));
  EXPECT_EQ(Refused(world.all[5]->metrics, "hops"), 2);
}

TEST(RelaySearchesTest, AnEndThatNobodyHasIsNeverDialed) {
  RelayWorld world(3);
  world.LinkChain();
  world.dial = [](size_t, size_t) { return Dialed::kConnects; };
  const uint64_t id = world.Want(0, 99);  // an address of the cloud's, say
  EXPECT_EQ(world.all[0]->no.at(id), RelayAnswer::kUnreachable);
  EXPECT_TRUE(world.dials.empty());
  EXPECT_EQ(Refused(world.all[1]->metrics, "unknown_peer"), 1);
  world.all[1]->paths.Introduce(Peer(9), End(99), RelayPort::kPeer);
  world.Pass(2);
  EXPECT_TRUE(world.Joined(0, world.Want(0, 99)));
}

TEST(RelaySearchesTest, BytesGoOnlyToAnEndWhoseCertificateWasFoundThereAMomentAgo) {
  RelayWorld world(2);
  world.Link(0, 1);
  auto& node = *world.all[1];
  // As its hello says, and that may be the cloud's address of secrets.
  node.paths.Introduce(Peer(9), End(99), RelayPort::kTensor);
  uint64_t number = 1 << 20;
  const auto ask = [&] {
    RelayActions out;
    ++number;
    node.searches.OnQuestion(world.now, number, {End(99), number, 1, Peer(0)}, out);
    return out;
  };
  const auto dials = [](const RelayActions& actions) {
    return std::ranges::any_of(actions, [](const RelayAction& action) {
      return std::holds_alternative<RelayDial>(action);
    });
  };
  RelayActions out = ask();
  ASSERT_EQ(out.size(), 1);
  EXPECT_EQ(std::get<RelayProve>(out[0]).end, (Contact{Peer(9), End(99)}));
  EXPECT_EQ(std::get<RelayProve>(out[0]).port, RelayPort::kTensor);
  out.clear();
  node.searches.OnProof(world.now, End(99), DownEvidence::kUnreachable, out);
  EXPECT_FALSE(dials(out)) << "no certificate was found there";
  EXPECT_EQ(Refused(node.metrics, "unproved"), 1);
  (void)ask();
  node.paths.OnProved(world.now, {Peer(8), End(99)});
  out.clear();
  node.searches.OnProof(world.now, End(99), DownEvidence::kUnreachable, out);
  EXPECT_FALSE(dials(out)) << "somebody else's was";
  (void)ask();
  node.paths.OnProved(world.now, {Peer(9), End(99)});
  out.clear();
  node.searches.OnProof(world.now, End(99), DownEvidence::kUnreachable, out);
  EXPECT_TRUE(dials(out));
  EXPECT_TRUE(dials(ask())) << "still so";
  world.now = world.now + world.config.proof_lives;
  EXPECT_FALSE(dials(ask())) << "the address may be another's by now";
  node.paths.OnProved(world.now, {Peer(9), End(99)});
  node.paths.OnStreamDown(Peer(9));
  EXPECT_FALSE(dials(ask()));
  node.paths.OnProved(world.now, {Peer(9), End(99)});
  node.paths.OnUnproved(End(99));
  EXPECT_FALSE(dials(ask()));
}

TEST(RelaySearchesTest, OnlyWhoHadMetThePeerMaySayThatItIsDead) {
  RelayWorld world(4);
  world.LinkChain();
  EXPECT_TRUE(world.Joined(0, world.Want(0, 3)));
  world.all[2]->paths.OnStreamDown(Peer(3));  // it dies; the dial of it is refused from now on
  uint64_t id = world.Want(0, 3);
  EXPECT_EQ(world.all[0]->no.at(id), RelayAnswer::kDead);
  EXPECT_EQ(world.all[0]->metrics.dead.value(), 1);
  // Now the one who had met it goes, too: the firewall's refusals say nothing.
  world.all[1]->paths.Introduce(Peer(3), End(3), RelayPort::kPeer);
  world.all[1]->paths.OnStreamDown(Peer(2));
  world.Pass(2);
  id = world.Want(0, 3);
  EXPECT_EQ(world.dials.back(), std::pair(size_t{1}, End(3))) << "refused";
  EXPECT_EQ(world.all[0]->no.at(id), RelayAnswer::kUnreachable);
}

TEST(RelaySearchesTest, WhereNothingWasEverCarriedThatAllAreRefusedMeansDeath) {
  RelayWorld world(4);
  world.LinkChain();
  world.Link(0, 2);
  for (size_t i = 1; i < 4; ++i) world.all[i]->paths.Introduce(Peer(9), End(9), RelayPort::kPeer);
  uint64_t id = world.Want(0, 9);
  EXPECT_EQ(world.dials.size(), 3);
  EXPECT_EQ(world.all[0]->no.at(id), RelayAnswer::kDead);
  // One of them has seen a firewall: its refusal is no evidence.
  world.all[3]->paths.OnCarried();
  world.Pass(2);
  id = world.Want(0, 9);
  EXPECT_EQ(world.all[0]->no.at(id), RelayAnswer::kUnreachable);
}

TEST(RelaySearchesTest, ADialWithoutAnAnswerHasAHeadStartAndTheOthersPatience) {
  RelayWorld world(4);
  world.LinkChain();
  world.all[1]->paths.Introduce(Peer(3), End(3), RelayPort::kPeer);
  world.dial = [](size_t from, size_t) { return from == 2 ? Dialed::kConnects : Dialed::kSilent; };
  const uint64_t id = world.Want(0, 3);
  EXPECT_FALSE(world.Joined(0, id));
  EXPECT_EQ(world.all[1]->searches.NextDeadline(), world.now + world.config.head_start);
  world.Pass(0.1);
  EXPECT_TRUE(world.Joined(0, id));
  world.dial = [](size_t, size_t) { return Dialed::kSilent; };
  world.all[0]->paths.ForgetRoute(End(3));
  const uint64_t silent = world.Want(0, 3);
  world.Pass(0.1);
  world.Pass(3.8);
  EXPECT_FALSE(world.all[0]->no.contains(silent));
  world.Pass(0.2);
  EXPECT_EQ(world.all[0]->no.at(silent), RelayAnswer::kUnreachable);
  for (const auto& node : world.all) EXPECT_EQ(node->searches.searching(), 0);
}

TEST(RelaySearchesTest, ARouteIsForgottenWithItsNeighbourOrItsWordAndAnotherWayIsFound) {
  RelayWorld world(5);  // 0-1-2-4 and 0-3-4
  world.Link(0, 1);
  world.Link(1, 2);
  world.Link(2, 4);
  EXPECT_TRUE(world.Joined(0, world.Want(0, 4)));
  EXPECT_EQ(world.all[0]->paths.Route(End(4)), Peer(1));
  world.Link(0, 3);
  world.Link(3, 4);
  world.all[2]->paths.OnStreamDown(Peer(4));
  world.all[2]->paths.Introduce(Peer(4), "elsewhere:1", RelayPort::kPeer);
  world.dial = [](size_t from, size_t to) {
    return from == 3 && to == 4 ? Dialed::kConnects : Dialed::kSilent;
  };
  const uint64_t id = world.Want(0, 4);
  world.Pass(0.1);
  EXPECT_FALSE(world.Joined(0, id)) << "the route is asked first";
  RelayActions out;
  world.all[0]->searches.OnAnswer(world.now, id, Peer(1), RelayAnswer::kUnreachable, out);
  ASSERT_EQ(out.size(), 1);
  EXPECT_EQ(std::get<RelayAsk>(out[0]).neighbour, ContactOf(3));
  EXPECT_EQ(world.all[0]->paths.Route(End(4)), std::nullopt);
  world.all[0]->paths.Remember(End(4), Peer(3));
  world.all[0]->paths.OnStreamDown(Peer(3));
  EXPECT_EQ(world.all[0]->paths.Route(End(4)), std::nullopt);
}

TEST(RelaySearchesTest, SearchesAndCarriedConnectionsAreBoundedAndCounted) {
  RelayConfig config;
  config.searches = 3;
  config.carried = 5;
  config.numbers = 2;
  RelayWorld world(3, config);
  world.LinkChain();
  world.dial = [](size_t, size_t) { return Dialed::kSilent; };
  std::vector<uint64_t> ids;
  ids.reserve(6);
  for (int i = 0; i < 4; ++i) ids.push_back(world.Want(0, 2));
  EXPECT_EQ(world.all[0]->no.at(ids[3]), RelayAnswer::kUnreachable);
  EXPECT_EQ(Refused(world.all[0]->metrics, "searches"), 1);
  EXPECT_GT(world.all[0]->metrics.forgotten.value(), 0) << "numbers";
  world.Pass(5);
  EXPECT_EQ(world.all[0]->searches.carried(), 0);
  world.dial = [](size_t, size_t) { return Dialed::kConnects; };
  ids.clear();
  for (int i = 0; i < 6; ++i) ids.push_back(world.Want(0, 2));
  EXPECT_TRUE(world.Joined(0, ids[4]));
  EXPECT_FALSE(world.Joined(0, ids[5]));
  EXPECT_EQ(Refused(world.all[0]->metrics, "connections"), 1);
  EXPECT_EQ(world.all[0]->metrics.connections.value(), 5);
  for (size_t i = 0; i < 2; ++i) {
    for (const uint64_t joined : world.all[i]->joined) world.all[i]->searches.OnGone(joined);
  }
  EXPECT_TRUE(world.Joined(0, world.Want(0, 2)));
}

TEST(RelaySearchesTest, InAMeshAFewNeighboursAreAskedAtATime) {
  RelayWorld world(40);
  for (size_t i = 1; i < 39; ++i) {
    world.Link(0, i);
    world.Link(i, 39);
  }
  EXPECT_TRUE(world.Joined(0, world.Want(0, 39)));
  EXPECT_EQ(world.Questions(), world.config.asked_first);
  EXPECT_EQ(world.all[0]->searches.carried(), 1);
  double carried = 0;
  for (const auto& node : world.all) carried += static_cast<double>(node->searches.carried());
  EXPECT_EQ(carried, 2) << "who lost the race carries nothing";
}

// A newcomer hears of peers that died a moment ago, and never met them.
TEST(RelaySearchesTest, ADeadEndIsAskedForAtAFewNeighboursOnly) {
  RelayWorld world(12);
  for (size_t i = 0; i < 12; ++i) {
    for (size_t j = i + 1; j < 12; ++j) {
      if (i > 0 || j < 11) world.Link(i, j);
    }
  }
  for (size_t i = 1; i < 11; ++i) world.all[i]->paths.OnStreamDown(Peer(11));
  const uint64_t id = world.Want(0, 11);
  EXPECT_EQ(world.all[0]->no.at(id), RelayAnswer::kDead);
  EXPECT_EQ(world.Questions(), world.config.asked_first);
}

TEST(RelaySearchesTest, TheOthersAreAskedWhenTheFirstFewSayNoOrNothing) {
  RelayWorld world(12);
  for (size_t i = 1; i < 11; ++i) world.Link(0, i);
  for (const size_t knows : {9, 10}) world.Link(knows, 11);
  EXPECT_TRUE(world.Joined(0, world.Want(0, 11))) << "they know nothing of it";
  world.Pass(2);
  world.all[0]->paths.ForgetRoute(End(11));
  for (size_t i = 1; i < 9; ++i) {
    world.all[i]->paths.Introduce(Peer(11), End(11), RelayPort::kPeer);
  }
  world.dial = [](size_t from, size_t) { return from > 8 ? Dialed::kConnects : Dialed::kSilent; };
  const double before = world.Questions();
  const uint64_t id = world.Want(0, 11);
  EXPECT_EQ(world.Questions() - before, world.config.asked_first);
  world.Pass(0.1);
  EXPECT_EQ(world.Questions() - before, world.config.asked_at_once) << "the first dial on, in vain";
  EXPECT_FALSE(world.Joined(0, id));
}

TEST(RelaySearchesTest, TheEndOfADialConcernsOnlySearchesOfItsAddress) {
  RelayWorld world(4);
  world.Link(0, 1);
  world.Link(1, 2);
  world.Link(1, 3);
  world.dial = [](size_t, size_t) { return Dialed::kSilent; };
  world.Want(0, 2);
  world.Want(0, 3);
  RelayWorld::Node& middle = *world.all[1];
  const auto end = [&](size_t of) {
    RelayActions out;
    middle.searches.OnProof(world.now, End(of), DownEvidence::kUnreachable, out);
    return Refused(middle.metrics, "unproved");
  };
  EXPECT_EQ(end(9), 0);
  EXPECT_EQ(end(2), 1);
  EXPECT_EQ(end(2), 1) << "that dial has ended";
  EXPECT_TRUE(middle.searches.proving());
  EXPECT_EQ(end(3), 2);
  EXPECT_FALSE(middle.searches.proving());
}

TEST(RelaySearchesTest, ARouteWhoseNeighbourIsSilentIsForgottenByThoseBetween) {
  RelayWorld world(4);
  world.LinkChain();
  EXPECT_TRUE(world.Joined(0, world.Want(0, 3)));
  EXPECT_EQ(world.all[1]->paths.Route(End(3)), Peer(2));
  world.dial = [](size_t, size_t) { return Dialed::kSilent; };
  const uint64_t id = world.Want(0, 3);
  EXPECT_EQ(world.all[1]->paths.Route(End(3)), Peer(2));
  world.Pass(4.1);
  EXPECT_TRUE(world.all[0]->no.contains(id));
  EXPECT_EQ(world.all[1]->paths.Route(End(3)), std::nullopt);
}

}  // namespace
}  // namespace crowdsurf::dht
