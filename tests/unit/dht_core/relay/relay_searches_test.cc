// A world of agents that find ways to each other: who may dial whom is a function of the test.
#include "coordinator-free-dht/core/relay/relay_searches.h"

#include <gmock/gmock.h>

#include <deque>
#include <functional>
#include <memory>

namespace crowdsurf::dht {
namespace {

enum class Dialed { kConnects, kRefused, kSilent };

DownEvidence EvidenceOf(Dialed how) {
  return how == Dialed::kRefused ? DownEvidence::kRefused : DownEvidence::kUnreachable;
}

Time At(double seconds) { return Time::FromNanoseconds(1'000'000'000) + Seconds(seconds); }
PeerId Peer(size_t number) {
  std::array<uint8_t, 32> bytes{};
  bytes[0] = static_cast<uint8_t>(number >> 8);
  bytes[1] = static_cast<uint8_t>(number);
  bytes[31] = 1;  // none is nobody
  return PeerId(bytes);
}
std::string End(size_t number) { return "end:" + std::to_string(number); }
Contact ContactOf(size_t number) { return {Peer(number), End(number)}; }

class World {
 public:
  struct Node {
    Node(const RelayConfig& config, size_t number)
        : metrics(registry),
          paths(config, metrics),
          searches(config, Peer(number), paths, metrics, Rng(number + 1)) {}
    MetricRegistry registry;
    RelayMetrics metrics;
    RelayPaths paths;
    RelaySearches searches;
    std::map<uint64_t, std::pair<size_t, uint64_t>> askers;  // of others' questions
    std::map<uint64_t, std::string> ends;
    std::vector<uint64_t> joined;
    std::map<uint64_t, RelayAnswer> no;  // own ones
  };

  explicit World(size_t nodes, RelayConfig wanted = {}) : config(wanted) {
    for (size_t i = 0; i < nodes; ++i) all.push_back(std::make_unique<Node>(config, i));
    dial = [this](size_t from, size_t to) {
      return all[from]->paths.neighbours().contains(Peer(to)) ? Dialed::kConnects
                                                              : Dialed::kRefused;
    };
  }
  void Link(size_t a, size_t b) {
    all[a]->paths.OnStreamUp(ContactOf(b), StreamPath::kDirect);
    all[b]->paths.OnStreamUp(ContactOf(a), StreamPath::kDirect);
  }
  void LinkChain() {
    for (size_t i = 0; i + 1 < all.size(); ++i) Link(i, i + 1);
  }
  // Node `from` wants `to`; all that follows without time passing happens. Its question's number.
  uint64_t Want(size_t from, size_t to) {
    RelayActions out;
    const uint64_t id = ++ids;
    all[from]->ends[id] = End(to);
    all[from]->searches.OnWanted(now, id, End(to), out);
    Do(from, out);
    Settle();
    return id;
  }
  void Pass(double seconds) {
    now = now + Seconds(seconds);
    for (size_t i = 0; i < all.size(); ++i) {
      RelayActions out;
      all[i]->searches.OnTimer(now, out);
      Do(i, out);
    }
    Settle();
  }
  bool Joined(size_t node, uint64_t id) const {
    const auto& joined = all[node]->joined;
    return std::find(joined.begin(), joined.end(), id) != joined.end();
  }
  double Questions() const {
    double sum = 0;
    for (const auto& node : all) sum += node->metrics.questions.value();
    return sum;
  }

  RelayConfig config;
  std::vector<std::unique_ptr<Node>> all;
  std::function<Dialed(size_t from, size_t to)> dial;
  std::vector<std::pair<size_t, std::string>> dials;
  Time now = At(0);
  uint64_t ids = 0;

 private:
  void Do(size_t at, const RelayActions& actions) {
    for (const RelayAction& action : actions) Do(at, action);
  }
  void Do(size_t at, const RelayAction& action) {
    Node& node = *all[at];
    if (const auto* d = std::get_if<RelayDial>(&action)) {
      dials.emplace_back(at, d->endpoint);
      const Dialed how = dial(at, std::stoul(d->endpoint.substr(4)));
      if (how == Dialed::kSilent) return;
      events.push_back([this, at, id = d->question, how] {
        RelayActions out;
        if (how == Dialed::kConnects) {
          all[at]->searches.OnConnected(id, out);
        } else {
          all[at]->searches.OnDialFailed(now, id, EvidenceOf(how), out);
        }
        Do(at, out);
      });
    } else if (const auto* prove = std::get_if<RelayProve>(&action)) {
      const Contact end = prove->end;
      dials.emplace_back(at, end.endpoint);
      const Dialed how = dial(at, std::stoul(end.endpoint.substr(4)));
      if (how == Dialed::kSilent) return;
      events.push_back([this, at, end, how] {
        RelayActions out;
        if (how == Dialed::kConnects) all[at]->paths.OnProved(now, end);
        all[at]->searches.OnProof(now, end.endpoint, EvidenceOf(how), out);
        Do(at, out);
      });
    } else if (const auto* ask = std::get_if<RelayAsk>(&action)) {
      size_t to = 0;
      while (Peer(to) != ask->neighbour.id) ++to;
      const uint64_t id = ++ids;
      all[to]->askers[id] = {at, ask->question};
      events.push_back([this, to, id, question = ask->ask] {
        RelayActions out;
        all[to]->searches.OnQuestion(now, id, question, out);
        Do(to, out);
      });
    } else if (const auto* join = std::get_if<RelayJoin>(&action)) {
      node.joined.push_back(join->question);
      node.paths.OnCarried();  // the end answers
      Answer(at, join->question, RelayAnswer::kFound);
    } else {
      const auto& no = std::get<RelayNo>(action);
      if (!node.askers.contains(no.question)) node.no[no.question] = no.answer;
      Answer(at, no.question, no.answer);
    }
  }
  void Answer(size_t at, uint64_t question, RelayAnswer answer) {
    const auto it = all[at]->askers.find(question);
    if (it == all[at]->askers.end()) return;
    events.push_back([this, at, asker = it->second, question, answer] {
      RelayActions out;
      Node& node = *all[asker.first];
      node.searches.OnAnswer(now, asker.second, Peer(at), answer, out);
      Do(asker.first, out);
      // Who lost the race is told that nobody waits.
      const bool won = out.size() == 1 && std::holds_alternative<RelayJoin>(out[0]);
      if (answer == RelayAnswer::kFound && !won) all[at]->searches.OnGone(question);
    });
  }
  void Settle() {
    for (; !events.empty(); events.pop_front()) std::function(events.front())();
  }
  std::deque<std::function<void()>> events;
};

TEST(RelaySearchesTest, TheEndsOfAChainAreJoinedThroughAllBetweenThemAndTheWayIsRemembered) {
  World world(8);
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
  World world(9);
  for (size_t i = 0; i < 8; ++i) world.Link(i, (i + 1) % 8);
  world.Link(0, 4);
  const uint64_t id = world.Want(0, 8);  // whom nobody can dial
  EXPECT_EQ(world.all[0]->no.at(id), RelayAnswer::kUnreachable);
  EXPECT_LE(world.Questions(), 18) << "twice the links";
  double circles = 0;
  for (const auto& node : world.all) {
    circles += node->metrics.refused_circle.value();
    EXPECT_EQ(node->searches.carried(), 0);
  }
  EXPECT_GT(circles, 0);
}

TEST(RelaySearchesTest, AWayIsAtMostSixtyFourHopsLong) {
  World world(67);
  world.LinkChain();
  EXPECT_TRUE(world.Joined(0, world.Want(0, 65)));
  EXPECT_EQ(world.all[64]->metrics.refused_hops.value(), 0);
  world.Pass(2);
  const uint64_t id = world.Want(0, 66);
  EXPECT_EQ(world.all[0]->no.at(id), RelayAnswer::kUnreachable);
  EXPECT_EQ(world.all[64]->metrics.refused_hops.value(), 1);
  RelayActions out;
  world.all[5]->searches.OnQuestion(world.now, 1 << 20, {End(6), 1, 65, Peer(4)}, out);
  world.all[5]->searches.OnQuestion(world.now, 1 << 21, {End(6), 2, 0, Peer(4)}, out);
  ASSERT_EQ(out.size(), 2);
  for (const RelayAction& action : out) EXPECT_TRUE(std::holds_alternative<RelayNo>(action));
  EXPECT_EQ(world.all[5]->metrics.refused_hops.value(), 2);
}

TEST(RelaySearchesTest, AnEndThatNobodyHasIsNeverDialed) {
  World world(3);
  world.LinkChain();
  world.dial = [](size_t, size_t) { return Dialed::kConnects; };
  const uint64_t id = world.Want(0, 99);  // an address of the cloud's, say
  EXPECT_EQ(world.all[0]->no.at(id), RelayAnswer::kUnreachable);
  EXPECT_TRUE(world.dials.empty());
  EXPECT_EQ(world.all[1]->metrics.refused_unknown.value(), 1);
  world.all[1]->paths.Introduce(Peer(9), End(99), RelayPort::kPeer);
  world.Pass(2);
  EXPECT_TRUE(world.Joined(0, world.Want(0, 99)));
}

TEST(RelaySearchesTest, BytesGoOnlyToAnEndWhoseCertificateWasFoundThereAMomentAgo) {
  World world(2);
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
  EXPECT_EQ(node.metrics.refused_unproved.value(), 1);
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
  World world(4);
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
  World world(4);
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
  World world(4);
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
  World world(5);  // 0-1-2-4 and 0-3-4
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
  World world(3, config);
  world.LinkChain();
  world.dial = [](size_t, size_t) { return Dialed::kSilent; };
  std::vector<uint64_t> ids;
  for (int i = 0; i < 4; ++i) ids.push_back(world.Want(0, 2));
  EXPECT_EQ(world.all[0]->no.at(ids[3]), RelayAnswer::kUnreachable);
  EXPECT_EQ(world.all[0]->metrics.refused_searches.value(), 1);
  EXPECT_GT(world.all[0]->metrics.forgotten.value(), 0) << "numbers";
  world.Pass(5);
  EXPECT_EQ(world.all[0]->searches.carried(), 0);
  world.dial = [](size_t, size_t) { return Dialed::kConnects; };
  ids.clear();
  for (int i = 0; i < 6; ++i) ids.push_back(world.Want(0, 2));
  EXPECT_TRUE(world.Joined(0, ids[4]));
  EXPECT_FALSE(world.Joined(0, ids[5]));
  EXPECT_EQ(world.all[0]->metrics.refused_carried.value(), 1);
  EXPECT_EQ(world.all[0]->metrics.connections.value(), 5);
  for (size_t i = 0; i < 2; ++i) {
    for (const uint64_t joined : world.all[i]->joined) world.all[i]->searches.OnGone(joined);
  }
  EXPECT_TRUE(world.Joined(0, world.Want(0, 2)));
}

TEST(RelaySearchesTest, InAMeshAFewNeighboursAreAskedAtATime) {
  World world(40);
  for (size_t i = 1; i < 39; ++i) {
    world.Link(0, i);
    world.Link(i, 39);
  }
  EXPECT_TRUE(world.Joined(0, world.Want(0, 39)));
  EXPECT_EQ(world.Questions(), world.config.asked_at_once);
  EXPECT_EQ(world.all[0]->searches.carried(), 1);
  double carried = 0;
  for (const auto& node : world.all) carried += static_cast<double>(node->searches.carried());
  EXPECT_EQ(carried, 2) << "who lost the race carries nothing";
}

TEST(RelaySearchesTest, TheEndOfADialConcernsOnlySearchesOfItsAddress) {
  World world(4);
  world.Link(0, 1);
  world.Link(1, 2);
  world.Link(1, 3);
  world.dial = [](size_t, size_t) { return Dialed::kSilent; };
  world.Want(0, 2);
  world.Want(0, 3);
  World::Node& middle = *world.all[1];
  const auto end = [&](size_t of) {
    RelayActions out;
    middle.searches.OnProof(world.now, End(of), DownEvidence::kUnreachable, out);
    return middle.metrics.refused_unproved.value();
  };
  EXPECT_EQ(end(9), 0);
  EXPECT_EQ(end(2), 1);
  EXPECT_EQ(end(2), 1) << "that dial has ended";
  EXPECT_TRUE(middle.searches.proving());
  EXPECT_EQ(end(3), 2);
  EXPECT_FALSE(middle.searches.proving());
}

TEST(RelaySearchesTest, ARouteWhoseNeighbourIsSilentIsForgottenByThoseBetween) {
  World world(4);
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
