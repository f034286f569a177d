// RoundPacer: which input a Round is due, and when: the clock beside the clockless Round.
//
// RoundTimes learns from all rounds of an agent (bounded windows): start delays, gaps between signs
// of life per peer, HAVE waits, round lengths. RoundPacer is one open round's deadlines. Owner:
// worker/core's Averaging. Single sequence. Source: docs/round.md (time-outs): start deadline
// = median + 6 MAD of recent starts; silence = median + 6 MAD of that peer's gaps, or 2.5 times the
// longest of the last 32 where that is more, from min_silence (and what own beats come late by) to
// max_silence; HAVE wait = median + 6 MAD; coordinator
// hand-over = twice that; sit-out = 4 x the longest pause between two things that lead to the end
// (Round::advances), however long the round takes, or 2 s once what must be kept is with silent
// members alone. While a round lasts everybody beats every min_silence/2, so an idle
// peer is not silent; a peer that chunks leave for all the time hears those and needs no beat.
// Deadlines double after a ballot that ended with everybody alive, or a round that was given up
// though a suspect lived, and halve again after each fast round. Each ballot of a round after its
// first doubles the silence that is suspicious in it (up to max_silence): where frames come in
// bursts, members that took each other for dead in turn would else open ballots against each other
// until the round has had all of its ballots.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/id.h"
#include "base/time.h"
#include "worker/core/round/round_actions.h"

namespace crowdsurf::worker {

class Round;

struct PacerConfig {
  Duration min_silence = Milliseconds(50);
  Duration max_silence = Seconds(1);
  Duration first_start = Seconds(1);       // start deadline while nothing is learnt
  Duration min_start = Milliseconds(250);  // ... at least: members are also late by their training
  Duration first_pause = Seconds(5);       // longest pause in a round while nothing is learnt
  Duration min_sit_out = Seconds(2);
};

// The last kWindow samples of a duration.
class DurationWindow {
 public:
  static constexpr size_t kWindow = 32;
  void Add(Duration sample);
  void RaiseNewest(Duration sample);  // to that, if it is longer; pre: not empty
  bool empty() const { return samples_.empty(); }
  size_t size() const { return samples_.size(); }
  Duration Largest() const { return ordered_.back(); }  // pre: not empty
  // Median + k * MAD; pre: not empty. O(kWindow), allocates nothing; O(1) while nothing is added.
  Duration Bound(double k) const;

 private:
  std::deque<Duration> samples_;                              // in the order they came
  std::vector<Duration> ordered_;                             // the same, ascending
  mutable std::optional<std::pair<double, Duration>> bound_;  // the last answer, by k
};

class RoundTimes {
 public:
  static constexpr size_t kMaxPeers = 4096;  // gaps kept; the longest unheard goes first
  explicit RoundTimes(PacerConfig config) : config_(config) {}

  // Any frame, chunk or heartbeat of that peer, once each. What comes within half a beat of the
  // sign before it is the same sign of life: a gap is learnt between signs, not within a burst.
  void OnHeard(Time now, const PeerId& peer);
  // This process runs, and a round is open; its pacer says so when it opens and every beat. What is
  // longer than the least silence is a stall of its own, or time without a round. Nobody is silent
  // because of that: from its end on everybody has the whole time again (Lifeguard, Dadgar et al.
  // 2018), and no gap is learnt in it or across it.
  void OnAwake(Time now);
  Time listening_since() const { return listening_since_; }
  // So long after its time came a beat of this process. Where processors are short, that of a peer
  // comes as late, and its frames take as long to be read: the least silence grows by that (median
  // + 6 MAD), as with Lifeguard's local health.
  void OnBeatLate(Duration late) { lates_.Add(late); }
  // So many chunks have left for that peer since the call before.
  void OnChunksLeft(const PeerId& peer, uint32_t chunks);
  // At a beat: the peers that hear this one by its chunks. At least kFlow of them have left in this
  // beat and in the one before: a burst into the buffers of a thin link does not go on so long.
  std::set<PeerId> TakeFlows();
  void Forget(const PeerId& peer);
  std::optional<Time> LastHeard(const PeerId& peer) const;

  Duration StartDeadline() const;
  // Of `peer`, that is suspicious; as long as max_silence at most, however often it is doubled.
  Duration Silence(const PeerId& peer, int doublings = 0) const;
  Duration HaveWait() const;
  Duration HandOver() const;
  // A round in which nothing came for so long is given up. `pause`: the longest in it so far.
  Duration SitOut(Duration pause) const;
  // ... : something that is awaited may be lost.
  Duration Stuck(Duration pause) const { return SitOut(pause) * 0.25; }
  // For silent members that alone hold what must be kept: one that was stopped may come back. They
  // are asked a few times meanwhile.
  Duration SuspectsPatience() const { return config_.min_sit_out; }
  Duration BeatEvery() const { return config_.min_silence * 0.5; }

  // A round is opened, after `earlier` ones of its averaging. What left before says nothing of it.
  void OnOpened(uint32_t earlier) {
    flows_.clear();
    if (earlier == 0) started_ = false;
  }
  // So long after the first member the last one has opened a round, in time or not: who is late
  // itself learns what the others wait for. `earlier`: rounds of this averaging before it. They
  // teach one start together, the longest: a member that comes late is late in some of them, and
  // whoever has waited for it opens the others in step.
  void OnStarted(Duration spread, uint32_t earlier = 0);
  void OnHaves(Duration since_own_have);  // fast round: from own HAVE to the last one
  // How a round went. kFast: without a ballot. kMistaken: a ballot was opened though everybody was
  // alive.
  enum class Course : uint8_t { kFast, kRepaired, kMistaken };
  // `pause`: the longest in it.
  void OnEnded(Duration pause, Course course);
  // A round was given up in which somebody was taken for dead that was not.
  void OnMistaken();

 private:
  struct Heard {
    Time last;
    Time sign;  // of the burst that `last` is of, its first
    DurationWindow gaps;
  };
  static constexpr uint32_t kFlow = 2;     // chunks a beat: above 10 MB/s where they are whole
  static constexpr size_t kFewStarts = 8;  // fewer tell nothing of how starts deviate
  static constexpr size_t kFewLates = 8;   // fewer are one stall, and not a lack of processors
  static constexpr int kMaxBackoff = 3;    // deadlines are at most 8 times as long
  Duration LeastSilence() const;
  Duration Backed(Duration d) const { return d * static_cast<double>(1 << backoff_); }
  bool Awake(Time now) const { return !awake_.unset() && now - awake_ <= config_.min_silence; }

  PacerConfig config_;
  Time awake_;  // at last
  Time listening_since_;
  std::map<PeerId, Heard> heard_;
  struct Flow {
    uint32_t left = 0;    // chunks, since the last beat
    bool flowed = false;  // in the beat before
  };
  std::map<PeerId, Flow> flows_;  // of peers with some: at most those that have a connection
  DurationWindow starts_, haves_, pauses_, lates_;
  bool started_ = false;  // the newest start is of this averaging
  int backoff_ = 0;       // deadlines are 2^backoff_ as long
};

// What to give the round. kTrust: a peer that had been suspected for its silence was heard again;
// one that was absent at the start must be heard in this round.
struct Due {
  enum class Kind : uint8_t { kSuspect, kTrust, kLate, kSitOut, kBeat } kind = Kind::kLate;
  PeerId peer;                                      // kSuspect, kTrust
  SuspicionCause cause = SuspicionCause::kSilence;  // kSuspect
  std::set<PeerId> hear = {};                       // kBeat: those that need none
  bool operator==(const Due&) const = default;
};
void Apply(const Due& due, Round& round, RoundActions& out);  // the call that `due` stands for

class RoundPacer {
 public:
  // `times` outlives it. `earlier`: rounds of this averaging before this one; each of them may have
  // cost the others a start deadline. `begun`: when the first member opened it, as far as is known.
  RoundPacer(Time now, RoundTimes& times, uint32_t earlier, Time begun);
  RoundPacer(Time now, RoundTimes& times) : RoundPacer(now, times, 0, now) {}

  // After every input that the round was given. Tells `times` what was learnt.
  void Observe(Time now, const Round& round);
  // The round was told that `peer` is down, by whoever owns its links. That may be wrong: it is
  // trusted when it is heard again, once frames that were on their way have come.
  void OnDown(Time now, const PeerId& peer);
  // Moves the start deadline forward to `when`: a member that is absent then is not on its way.
  void StartBy(Time when) { start_by_ = std::min(start_by_, when); }
  // Due by now; each is taken once. Observe after applying them. Called at each NextDeadline: that
  // it comes late tells `times` of a stall.
  std::vector<Due> TakeDue(Time now, const Round& round);
  Time NextDeadline(const Round& round) const;  // Infinite when the round is over

 private:
  // Gives every deadline with its time to `visit`, in a fixed order.
  template <class Visit>
  void Pending(const Round& round, Visit&& visit) const;
  void SeeAdvance(Time now, const Round& round);
  void SeeEnd(Time now, const Round& round);
  void SeeStart(Time now, const Round& round);
  Duration StartDeadline() const;
  Duration SitOut() const;
  Time LateAt(const Round& round) const;

  RoundTimes* times_;
  uint32_t earlier_;
  Time opened_;
  Time begun_;  // by the first member
  Time start_by_ = Time::Infinite();
  Time moved_;      // last progress, or last kLate
  Time advanced_;   // last Round::advances
  Duration pause_;  // longest between two of these
  int late_ = 0;    // kLate since the last progress
  Time held_;       // own HAVE(0)
  Time beat_;
  Time awaits_suspects_;  // since when; unset: it does not
  RoundPhase phase_ = RoundPhase::kGathering;
  Ballot ballot_ = 0;
  int lates_ = 0;          // kLate in ballots of this round
  int ballots_again_ = 0;  // ballots of this round after its first
  bool mistaken_ = false;  // somebody suspected was heard again
  uint64_t progress_ = 0;
  uint64_t advances_ = 0;
  bool started_ = false;
  struct Awaited {
    Time since;
    bool must_reply = false;  // Round::MustReply
  };
  std::map<PeerId, Awaited> awaited_;
  std::optional<RankSet> for_members_;  // awaited_ is as of these (Round::WaitingForMembers)
  std::map<PeerId, Time> suspected_;    // heard later than that it is trusted
  std::set<PeerId> found_absent_;       // at the start deadline
  size_t came_late_ = 0;                // of these, that have opened the round since
};

}  // namespace crowdsurf::worker
