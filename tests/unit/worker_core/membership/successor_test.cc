// Two stewards at once: each takes itself for the one that names the next view. The witnesses'
// register must give one successor, whatever comes late, twice or never, and whoever dies.
#include "worker/core/membership/successor.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "tests/unit/worker_core/world/numbered_peers.h"

namespace crowdsurf::worker {
namespace {

// `witnesses` members, all witnesses; the first `stewards` of them propose, each a view of its own.
class Register {
 public:
  Register(size_t witnesses, size_t stewards, uint64_t seed)
      : rng_(seed), tables_(witnesses, SuccessorWitness("job")) {
    parent_.epoch = 4;
    parent_.grid = Grid{{static_cast<uint16_t>(witnesses)}};
    for (size_t i = 0; i < witnesses; ++i) {
      parent_.members.push_back({.id = PeerAt(i), .cell = static_cast<CellIndex>(i)});
      parent_.witnesses.push_back(PeerAt(i));
    }
    parent_.fork_members = witnesses;
    hash_ = HashOf(parent_, "job");
    for (size_t s = 0; s < stewards; ++s) {
      View next = parent_;
      ++next.epoch;
      next.parent = hash_;
      next.seed = 100 + s;
      EXPECT_TRUE(DecodeView(Encode(next))) << "a witness could not hand this on";
      proposers_.push_back(std::make_unique<SuccessorProposer>(
          PeerAt(s), Seating(parent_, hash_), next,
          std::set<PeerId>(parent_.witnesses.begin(), parent_.witnesses.end()),
          rng_.Fork("s" + std::to_string(s))));
      proposers_.back()->local = &tables_[s];
    }
    dead_.resize(witnesses, false);
  }

  struct Letter {
    size_t from, to;
    Message message;
  };

  void Start(size_t steward) {
    Actions out;
    proposers_[steward]->Start(now_, out);
    Post(steward, out);
  }
  // Its next timer, or one some time later when that one is over already.
  void Fire(size_t steward) {
    const Time due = proposers_[steward]->NextDeadline();
    if (dead_[steward] || due.infinite()) return;
    now_ = std::max(now_ + Milliseconds(200), due);
    Actions out;
    proposers_[steward]->OnTimer(now_, out);
    Post(steward, out);
  }
  // Its next timer, at the instant that it asked for. False: it asked for one that is over.
  bool FireOnTime(size_t steward) {
    const Time due = proposers_[steward]->NextDeadline();
    if (due <= now_ || due.infinite()) return false;
    now_ = due;
    Actions out;
    proposers_[steward]->OnTimer(now_, out);
    Post(steward, out);
    return true;
  }
  // The letter is gone after this, delivered or not.
  Letter Take(size_t at) {
    Letter letter = letters_[at];
    letters_.erase(letters_.begin() + static_cast<std::ptrdiff_t>(at));
    return letter;
  }
  void Deliver(const Letter& letter) {
    if (dead_[letter.to]) return;
    const auto reply = [&](Message message) {
      letters_.push_back({letter.to, letter.from, std::move(message)});
    };
    Actions out;
    if (const auto* open = std::get_if<message::ViewOpen>(&letter.message)) {
      reply(tables_[letter.to].OnOpen(parent_.epoch, *open));
    } else if (const auto* accept = std::get_if<message::ViewAccept>(&letter.message)) {
      reply(tables_[letter.to].OnAccept(parent_.epoch, *accept));
    } else if (const auto* promise = std::get_if<message::ViewPromise>(&letter.message)) {
      proposers_[letter.to]->OnPromise(now_, PeerAt(letter.from), *promise, out);
    } else {
      proposers_[letter.to]->OnAccepted(now_, PeerAt(letter.from),
                                        std::get<message::ViewAccepted>(letter.message), out);
    }
    Post(letter.to, out);
  }
  // Delivers everything between `steward` and the given witnesses, drops what is for the others.
  void Settle(size_t steward, const std::set<size_t>& witnesses) {
    while (!letters_.empty()) {
      const Letter letter = Take(0);
      if (witnesses.contains(letter.to == steward ? letter.from : letter.to)) Deliver(letter);
    }
  }
  void Kill(size_t node) { dead_[node] = true; }
  bool dead(size_t node) const { return dead_[node]; }
  // The seed in the view that this steward knows to be decided: 100 + whose proposal it was.
  std::optional<uint64_t> Decided(size_t steward) const {
    const auto& decided = proposers_[steward]->decided();
    return decided ? std::optional(decided->seed) : std::nullopt;
  }
  size_t letters() const { return letters_.size(); }
  Rng& rng() { return rng_; }

 private:
  void Post(size_t from, const Actions& out) {
    for (const Action& action : out) {
      const auto* send = std::get_if<Send>(&action);
      if (send == nullptr) continue;
      const auto message = DecodeMessage(send->body);
      ASSERT_TRUE(message);
      letters_.push_back({from, static_cast<size_t>(send->to.bytes()[0]) - 1, *message});
    }
  }

  Rng rng_;
  Time now_ = Time() + Seconds(1);
  View parent_;
  ViewHash hash_;
  std::vector<SuccessorWitness> tables_;
  std::vector<std::unique_ptr<SuccessorProposer>> proposers_;
  std::vector<bool> dead_;
  std::vector<Letter> letters_;
};

TEST(SuccessorTest, OneStewardGetsItsOwnView) {
  Register world(3, 1, 1);
  world.Start(0);
  world.Fire(0);
  world.Settle(0, {0, 1, 2});
  world.Fire(0);
  world.Settle(0, {0, 1, 2});
  EXPECT_EQ(world.Decided(0), 100U);
}

// No input but its own timers tells it that nobody answered.
TEST(SuccessorTest, APromiseThatIsLostIsAskedForAgainInTime) {
  Register world(3, 1, 1);
  world.Start(0);
  while (world.letters() > 0) world.Take(0);
  for (int timers = 0; timers < 2 && world.letters() == 0; ++timers)
    ASSERT_TRUE(world.FireOnTime(0)) << "after " << timers << " timers nothing wakes it";
  EXPECT_EQ(world.letters(), 2U);
  world.Settle(0, {0, 1, 2});
  EXPECT_EQ(world.Decided(0), 100U);
}

// The first steward's view was accepted by a quorum, itself and witness 2, and it dies before it
// hears so: the second steward must name that view and not its own.
TEST(SuccessorTest, WhatAQuorumAcceptedIsWhatTheSecondStewardNames) {
  Register world(3, 2, 1);
  world.Start(0);
  world.Settle(0, {0, 2});
  world.Fire(0);  // the moment for the others' promises is over: ACCEPT goes out
  while (world.letters() > 0)
    if (const auto letter = world.Take(0); letter.to == 2) world.Deliver(letter);
  EXPECT_FALSE(world.Decided(0));
  world.Kill(0);
  world.Start(1);
  for (int tries = 0; tries < 20 && !world.Decided(1); ++tries) {
    world.Settle(1, {1, 2});
    world.Fire(1);
  }
  EXPECT_EQ(world.Decided(1), 100U);
}

// Members of the parent may ask for it until they have the successor.
TEST(SuccessorTest, WhatAWitnessAcceptedIsKnownInTheNextViewAndNotInTheOneAfter) {
  View parent;
  parent.epoch = 4;
  parent.grid = Grid{{1}};
  parent.members.push_back({.id = PeerAt(0), .cell = 0});
  parent.witnesses.push_back(PeerAt(0));
  parent.fork_members = 1;
  const ViewHash hash = HashOf(parent, "job");
  View next = parent;
  ++next.epoch;
  next.parent = hash;
  SuccessorWitness witness("job");
  witness.OnAccept(4, {.parent = hash, .ballot = 1, .view = Encode(next)});
  for (const uint64_t epoch : {4, 5}) {
    witness.OnEpoch(epoch);
    ASSERT_TRUE(witness.Accepted(hash)) << epoch;
    EXPECT_EQ(witness.Accepted(hash)->view, HashOf(next, "job"));
  }
  witness.OnEpoch(6);
  EXPECT_FALSE(witness.Accepted(hash));
}

TEST(SuccessorTest, StewardsAtOnceNameOneViewInWhateverOrderTheirMessagesCome) {
  size_t both = 0;
  std::set<uint64_t> named;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    const size_t witnesses = 3 + seed % 3;
    const size_t stewards = 2 + seed % 2;
    Register world(witnesses, stewards, seed);
    for (size_t s = 0; s < stewards; ++s) world.Start(s);
    std::set<uint64_t> decided;
    const auto note = [&] {
      for (size_t s = 0; s < stewards; ++s)
        if (const auto seen = world.Decided(s)) decided.insert(*seen);
    };
    // A storm: any order, some lost, some twice, timers at any moment, and perhaps one death. Then
    // calm: the living deliver everything and take turns.
    const uint64_t death = world.rng().Uniform(120);
    for (uint64_t step = 0; step < 80; ++step) {
      if (step == death) world.Kill(world.rng().Uniform(stewards));
      if (world.letters() == 0 || world.rng().Bernoulli(0.1)) {
        world.Fire(world.rng().Uniform(stewards));
      } else {
        const auto letter = world.Take(world.rng().Uniform(world.letters()));
        if (!world.rng().Bernoulli(0.15)) world.Deliver(letter);
        if (world.rng().Bernoulli(0.1)) world.Deliver(letter);
      }
      note();
    }
    for (int turn = 0; turn < 400; ++turn) {
      const size_t steward = static_cast<size_t>(turn / 40) % stewards;
      while (world.letters() > 0) world.Deliver(world.Take(0));
      world.Fire(steward);
      note();
    }
    for (size_t s = 0; s < stewards; ++s)
      if (!world.dead(s)) {
        EXPECT_TRUE(world.Decided(s)) << "seed " << seed << ": steward " << s << " never ended";
      }
    EXPECT_EQ(decided.size(), 1U) << "seed " << seed << ": two successors of one view";
    both += world.Decided(0) && world.Decided(1);
    named.insert(decided.begin(), decided.end());
  }
  EXPECT_GT(both, 300U);
  EXPECT_GE(named.size(), 2U) << "one steward always wins: the orders hardly differ";
}

}  // namespace
}  // namespace crowdsurf::worker
