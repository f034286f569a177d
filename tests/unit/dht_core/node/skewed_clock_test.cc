// Machines whose wall clocks are off: their records live as long as those of others, and no longer.
#include <gmock/gmock.h>

#include "tests/unit/dht_core/lone_node.h"
#include "tests/unit/dht_core/network.h"

namespace crowdsurf::dht {
namespace {

const Key kRoster = KeyOf("charlm/roster/0");
constexpr Duration kLife = Seconds(3);

// A roster as agents keep it: each puts its record every second and watches all.
class Job {
 public:
  // Peer 1's clock is ahead by `skew`.
  Job(size_t peers, Duration skew) : network_({.seed = 3}) {
    for (size_t i = 0; i < peers; ++i) {
      network_.AddPeer(
          i == 0 ? std::vector<std::string>() : std::vector<std::string>{network_.peer(0).endpoint},
          nullptr, i == 1 ? skew : Duration());
      network_.Do(i,
                  [&](Node& node, Actions& out) { node.Watch(network_.clocks(i), kRoster, out); });
    }
  }
  void Put(size_t peer) {
    network_.Do(peer, [&](Node& node, Actions& out) {
      ASSERT_EQ(node.Put(network_.clocks(peer), kRoster, BytesOf("here"), kLife, out),
                PutResult::kPublished);
    });
  }
  // A heartbeat of all but `silent`.
  void Beat(size_t silent = SIZE_MAX) {
    for (size_t i = 0; i < network_.size(); ++i)
      if (i != silent) Put(i);
    network_.Run(Seconds(1));
  }
  // What `reader` believes is left of the life of `author`'s record, in seconds; none: it has not
  // seen any.
  double Left(size_t reader, size_t author) {
    const auto& seen = network_.peer(reader).watched[kRoster];
    const auto record = seen.find(network_.id(author));
    if (record == seen.end()) return -1;
    return network_.node(reader).LifeLeft(network_.clocks(reader), *record->second).seconds();
  }
  Network& network() { return network_; }

 private:
  Network network_;
};

class SkewedClockTest : public testing::TestWithParam<std::tuple<size_t, double>> {
 protected:
  size_t peers_ = std::get<0>(GetParam());
  Duration skew_ = Seconds(std::get<1>(GetParam()));
};

TEST_P(SkewedClockTest, EverybodySeesEverybodyFromTheFirstHeartbeatOn) {
  Job job(peers_, skew_);
  for (int beat = 0; beat < 4; ++beat) {
    job.Beat();
    for (size_t reader = 0; reader < peers_; ++reader) {
      for (size_t author = 0; author < peers_; ++author) {
        // A second after it was put.
        if (author != reader) {
          EXPECT_NEAR(job.Left(reader, author), 2, 0.05)
              << reader << " reads " << author << " after beat " << beat;
        }
      }
    }
  }
}

TEST_P(SkewedClockTest, ARecordLivesAsLongAsItsOwnerSaid) {
  Job job(peers_, skew_);
  for (int beat = 0; beat < 3; ++beat) job.Beat();
  // The last word of each of the two was heard a second ago.
  for (const size_t silent : {size_t{0}, size_t{1}}) {
    job.Beat();
    job.Put(silent);
    job.network().Run(Milliseconds(2950));
    for (size_t reader = 0; reader < peers_; ++reader)
      if (reader != silent) {
        EXPECT_NEAR(job.Left(reader, silent), 0.05, 0.03) << reader;
      }
    job.network().Run(Milliseconds(100));
    for (size_t reader = 0; reader < peers_; ++reader) {
      if (reader != silent) {
        EXPECT_NEAR(job.Left(reader, silent), -0.05, 0.03) << reader;
      }
      EXPECT_EQ(job.network()
                    .node(reader)
                    .store()
                    .Find(job.network().node(reader).JobTime(job.network().clocks(reader)), kRoster)
                    .size(),
                0u)
          << "holder " << reader;
    }
  }
}

TEST_P(SkewedClockTest, TheOneThatIsOffKnowsByHowMuch) {
  Job job(peers_, skew_);
  job.Beat();
  for (size_t reader = 0; reader < peers_; ++reader) {
    const double own = reader == 1 ? skew_.seconds() : 0;
    const double median = peers_ == 2 ? skew_.seconds() / 2 : 0;
    EXPECT_NEAR(job.network().node(reader).ClockOffset(job.network().clocks(reader)).seconds(),
                median - own, 0.01)
        << reader;
  }
}

INSTANTIATE_TEST_SUITE_P(Skews, SkewedClockTest,
                         testing::Combine(testing::Values(2, 3, 4, 8),
                                          testing::Values(3.5, -3.5, 2.2, -5.0, 60.0)));

TEST(SkewedClockNodeTest, AClockThatIsSetWhileTheJobRunsCostsNoRecord) {
  Job job(4, Duration());
  for (int beat = 0; beat < 3; ++beat) job.Beat();
  for (const double skew : {4.0, -4.0, 0.0}) {
    job.network().peer(1).skew = Seconds(skew);
    for (int beat = 0; beat < 3; ++beat) {
      job.Beat();
      for (size_t reader = 0; reader < 4; ++reader)
        for (size_t author = 0; author < 4; ++author)
          if (author != reader) {
            EXPECT_NEAR(job.Left(reader, author), 2, 0.05) << skew;
          }
    }
  }
}

// A certificate that makes a thousand ids moves the time of nobody: its key counts once.
TEST(SkewedClockNodeTest, ManyIdsOfOneKeyAreOneClock) {
  LoneNode lone;
  const auto reply = [&](const PublicKey& key, uint64_t boot, Duration skew) {
    const Contact from{PeerIdOf(key, boot), "peer:1"};
    lone.Forget();
    lone.Say({from, key}, FindRequest{lone.point(), false});  // it is pinged
    const auto ping = std::find_if(lone.sent.begin(), lone.sent.end(), [&](const auto& sent) {
      return sent.to == from && std::holds_alternative<FindRequest>(sent.message.body);
    });
    ASSERT_NE(ping, lone.sent.end());
    const uint64_t id = ping->message.id;
    lone.Do([&](Node& node, Actions& out) {
      node.OnMessage(lone.clocks(), from, Message{id, FindReply{}, {lone.wall() + skew, key, boot}},
                     out);
    });
  };
  const auto key = [](uint8_t n) {
    PublicKey out{};
    out.fill(n);
    return out;
  };
  for (uint8_t honest = 1; honest <= 2; ++honest) reply(key(honest), 1, Duration());
  for (uint64_t boot = 1; boot <= 10; ++boot) reply(key(9), boot, Seconds(300));
  EXPECT_EQ(lone.node().ClockOffset(lone.clocks()), Duration());
  EXPECT_EQ(lone.Count("crowdsurf_dht_clock_samples_total", {{"result", "taken"}}), 12);
}

TEST(SkewedClockNodeTest, AReplyWithTheKeyOfAnotherIsNoClock) {
  LoneNode lone;
  lone.Meet();  // says no key at all
  EXPECT_GT(lone.Count("crowdsurf_dht_clock_samples_total", {{"result", "left_out"}}), 0);
  EXPECT_EQ(lone.Count("crowdsurf_dht_clock_samples_total", {{"result", "taken"}}), 0);
  EXPECT_EQ(lone.node().contacts(), 1u) << "else it is a reply like any other";
  EXPECT_EQ(lone.node().ClockOffset(lone.clocks()), Duration());
}

// In a job of two, one may set its clock with each reply. The other does not write at that rate.
TEST(SkewedClockNodeTest, OwnRecordsAreWrittenAnewAtMostTenTimesASecond) {
  LoneNode lone;
  lone.Meet();
  lone.Put(kRoster, Seconds(60));
  lone.Run(Milliseconds(500));
  lone.Forget();
  const PublicKey key{};
  for (int i = 0; i < 1'000; ++i) {
    lone.Do([&](Node& node, Actions& out) {
      node.OnClock(lone.clocks(), key, lone.wall() + Seconds(i % 2 == 0 ? 5 : -5), Duration(), out);
    });
    lone.Run(Milliseconds(1));
  }
  const auto stores = lone.SentOf<StoreRequest>();
  EXPECT_GE(stores.size(), 2u);
  EXPECT_LE(stores.size(), 11u);
}

}  // namespace
}  // namespace crowdsurf::dht
