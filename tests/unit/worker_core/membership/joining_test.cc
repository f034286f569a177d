// Whom a newcomer asks for a seat, and how often.
#include "worker/core/membership/joining.h"
#include "base/metrics.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/unit/worker_core/world/numbered_peers.h"
#include "worker/core/membership/roster.h"
#include "worker/core/port/actions.h"
#include "worker/core/port/config.h"
#include "worker/core/port/inputs.h"
#include "worker/core/port/peer_metrics.h"

namespace crowdsurf::worker {
namespace {

// The record of a newcomer that has a trainer and no seat.
PeerRecord FreshRecord(uint8_t n) {
  RosterRecord record;
  record.contact = {Id(n), "w" + std::to_string(n), "127.0.0.1:1", "127.0.0.1:2"};
  record.member = {.id = Id(n), .cell = 0, .joined_unix_ms = 900};
  record.ready = true;
  return {"k", Id(n), Encode(record), Seconds(60)};
}

PeerRecord SeatedRecord(uint8_t n) {
  RosterRecord record;
  record.contact = {Id(n), "w" + std::to_string(n), "127.0.0.1:1", "127.0.0.1:2"};
  record.member = {.id = Id(n), .cell = n, .joined_unix_ms = n};
  record.ready = record.seated = true;
  record.epoch = 4;
  record.lineage.members = 2;
  return {"k", Id(n), Encode(record), Seconds(60)};
}

// A peer without a seat, and what it knows of others.
struct Unseated {
  Unseated() {
    config_.job = "job";
    config_.id = Id(200);
  }
  Time now_ = Time() + Seconds(1);
  PeerConfig config_;
  MetricRegistry registry_;
  PeerMetrics metrics_{registry_};
  Roster roster_{config_, metrics_};
  Joining joining_{config_, roster_, Rng(3)};
};

// A newcomer whose requests are answered after half a millisecond, for `length`.
class Newcomer : Unseated {
 public:
  using Answerer = message::JoinAnswer (*)(const PeerId& asked);

  Newcomer() {
    Actions out;
    roster_.OnRecords(now_, {SeatedRecord(1), SeatedRecord(2), SeatedRecord(3)}, out);
  }

  void RunFor(Duration length, Answerer answer) {
    constexpr Duration kTick = Microseconds(500);
    for (const Time end = now_ + length; now_ < end; now_ = now_ + kTick) {
      const auto step = joining_.Next(now_, AveragingId());
      ASSERT_FALSE(step.form) << "there is a view";
      if (!step.ask) continue;
      ++asked_[*step.ask];
      joining_.OnAnswer(now_ + kTick, *step.ask, answer(*step.ask));
    }
  }
  size_t asked(uint8_t n) const {
    const auto at = asked_.find(Id(n));
    return at == asked_.end() ? 0 : at->second;
  }

 private:
  std::map<PeerId, size_t> asked_;
};

message::JoinAnswer Named(uint8_t n) {
  return {message::JoinAnswer::Kind::kAskSteward, {}, {{Id(n), "w", "", ""}}, {}};
}

TEST(JoiningTest, TheNamedStewardIsAskedAtOnce) {
  Newcomer newcomer;
  newcomer.RunFor(Milliseconds(100), [](const PeerId& asked) -> message::JoinAnswer {
    if (asked == Id(1)) return Named(2);
    if (asked == Id(2)) return Named(3);
    return {message::JoinAnswer::Kind::kWait, {}, {}, {}};
  });
  EXPECT_EQ(newcomer.asked(1), 1U);
  EXPECT_EQ(newcomer.asked(2), 1U);
  EXPECT_EQ(newcomer.asked(3), 1U);
}

// One has entered the next view and names that one's steward, who has not, and names this one. With
// links that bring some answers twice, the requests also grew without end.
TEST(JoiningTest, TwoThatNameEachOtherAreNotAskedAsFastAsTheNetworkIs) {
  Newcomer newcomer;
  newcomer.RunFor(Seconds(3), [](const PeerId& asked) { return Named(asked == Id(1) ? 2 : 1); });
  const size_t asked = newcomer.asked(1) + newcomer.asked(2);
  EXPECT_GE(asked, 10U) << "it gave up, though one of them may be the steward any moment";
  EXPECT_LE(asked, 44U);  // four in 300 ms
}

// The longest-lived of three newcomers: the others' records are there, and holders that may have
// those of a job have not answered. A view of its own would be a second job beside that one.
class FirstOfThree : Unseated {
 public:
  explicit FirstOfThree(bool whole) {
    config_.started_unix_ms = 1;
    Hear({FreshRecord(1), FreshRecord(2)}, whole);
  }
  void Hear(const std::vector<PeerRecord>& records, bool whole) {
    Actions out;
    roster_.OnRecords(now_, records, out, whole);
  }
  Joining::Step After(Duration time) {
    now_ = now_ + time;
    return joining_.Next(now_, AveragingId());
  }
  Duration wakes_in() const { return joining_.NextDeadline() - now_; }
};

TEST(JoiningTest, NoViewIsFormedBeforeTheHoldersHaveAnswered) {
  FirstOfThree first(/*whole=*/false);
  for (int i = 0; i < 29; ++i) {
    const Joining::Step step = first.After(Milliseconds(100));
    ASSERT_FALSE(step.form || step.ask) << i;
  }
  EXPECT_EQ(first.wakes_in(), Milliseconds(100)) << "it waits three seconds at most";
  first.Hear({SeatedRecord(3)}, /*whole=*/true);
  EXPECT_EQ(first.After(Duration()).ask, Id(3)) << "there is a job";
}

TEST(JoiningTest, TheLongestLivedFormsAViewSoonAfterTheHoldersHaveAnswered) {
  for (const bool whole : {false, true}) {
    FirstOfThree first(whole);
    EXPECT_FALSE(first.After(whole ? Duration() : Milliseconds(2900)).form);
    EXPECT_FALSE(first.After(Milliseconds(100)).form);
    EXPECT_TRUE(first.After(PeerConfig().form_delay).form) << whole;
  }
}

TEST(JoiningTest, WhoeverSitsIsAskedBeforeTheHoldersHaveAnswered) {
  FirstOfThree newcomer(/*whole=*/false);
  newcomer.Hear({SeatedRecord(3)}, /*whole=*/false);
  EXPECT_EQ(newcomer.After(Duration()).ask, Id(3));
}

}  // namespace
}  // namespace crowdsurf::worker
