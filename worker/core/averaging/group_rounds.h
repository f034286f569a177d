// GroupRounds: the rounds that are open at a peer, the holes it speaks for, and the registers it
// witnesses.
//
// Owner: Averaging, single sequence. It makes Round, Speaker and WitnessTable out of the seating,
// gives them the frames, chunks and deadlines that are theirs, and turns their actions into the
// host's. Frames that come before their round wait here; frames of a list that differs from ours
// end in `differing`, so that the caller exchanges seats and calls Replan. An instance stays, over,
// until its output region is written again: stragglers are served until then. Bounds: five
// instances and the duties of one round; kMaxEarly frames; kMaxOutcomes remembered outcomes.
// Source: docs/averaging.md.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/log.h"
#include "worker/core/averaging/group_plan.h"
#include "worker/core/averaging/send_window.h"
#include "worker/core/port/actions.h"
#include "worker/core/port/averaging_messages.h"
#include "worker/core/port/peer_summary.h"
#include "worker/core/round/arrived_chunk.h"
#include "worker/core/round/round.h"
#include "worker/core/round/round_pacer.h"
#include "worker/core/round/speaker.h"
#include "worker/core/vector/result_hashes.h"
#include "worker/core/view/averaging_id.h"
#include "worker/core/view/view.h"
#include "worker/core/view/witness.h"

namespace crowdsurf::worker {

struct PeerConfig;
struct PeerMetrics;

enum class ParentEnd : uint8_t { kOrderly, kBrokeUp };  // how the view before the new one ended

class GroupRounds {
 public:
  static constexpr size_t kMaxEarly = 1024;           // frames; a round of 64 sends about 200
  static constexpr size_t kMaxEarlyBytes = 16 << 20;  // of them
  static constexpr size_t kMaxOutcomes = 64;
  static constexpr uint64_t kWhole = ~uint64_t{0};  // values of a snapshot that is whole

  // What a round is about, beside the seating.
  struct Opening {
    AveragingId averaging = {};
    uint32_t round = 0;  // rounds of this averaging that are done
    size_t axis = 0;
    bool stand_ins = true;
    Region from = Region::kOutbox;
    Region to = Region::kInboxA;
    Stake stake;
    Digest holds;           // root of the value in `from`; none in round 0
    bool counting = false;  // weights only: no vector travels (mixing.h)
    CoordinateMask mask;    // own coordinates that go in; whole in every round but the first
    std::shared_ptr<const SubnetRound> subnet;  // IST: the coordinates of the chunks
    bool one_base = false;                      // RoundSpec's
    bool leaves_when_behind = false;            // the same
    bool changes = false;      // Int8: `from` holds changes, or a snapshot to take them from
    bool with_rest = false;    // the snapshot's, OpenBuffers'
    uint64_t filled = kWhole;  // values of `from`, from the first on, that are there (OnFilled)
  };
  struct Vector {  // what is averaged
    Digest schema;
    uint64_t elements = 0;
  };
  struct Ended {
    AveragingId averaging = {};
    uint32_t round = 0;
    size_t axis = 0;
    RoundOver over;
    bool counted = false;  // the own samples are in the value's stake
    bool flowed = false;   // own values have left: a KEPT weight may have been counted
    InstanceId instance;
    std::vector<PeerId> group;           // the other members
    std::set<PeerId> seated = {};        // all members of the view, as of this averaging
    std::set<PeerId> contributors = {};  // of the value, by name
    // Of the applied value as it lies in the region `to`; nullptr: it may lie there otherwise.
    std::shared_ptr<const ResultHashes> hashes = nullptr;
    Region to = Region::kInboxA;
  };

  GroupRounds(const PeerConfig& config, PeerMetrics& metrics, Logger log);

  void SetVector(Vector vector) { vector_ = vector; }
  // A new view. A successor: rounds that are over keep serving stragglers of the parent, whose
  // registers are still witnessed. Another lineage, or a branch (kBrokeUp): everything is closed; a
  // round that is not over is left, counted as branch, and is in TakeEnded as one that was kept.
  void OnView(Time now, const View& view, const ViewHash& hash, ParentEnd parent, Actions& out);
  // True when a frame of another view than the present one is still of use here.
  bool Serves(const message::RoundFrame& frame) const;
  // Answers a frame of a view that is not served here. True: its averaging is over here, and
  // averaging numbers never go back. A member that waits for this peer's values gets a BYE.
  bool Declines(const PeerId& from, const message::RoundFrame& message, Actions& out);

  // Opens the own round and speaks for holes. Pre: seating is AsOf(averaging) and seats this peer;
  // the previous round of this peer is over. `down`: known dead, suspected at once.
  void OpenRound(Time now, const Opening& opening, const Seating& seating,
                 const std::set<PeerId>& down, Actions& out);
  // Seats changed: a round that still gathers is opened anew if its list is another now.
  void Replan(Time now, const Seating& seating, const std::set<PeerId>& down, Actions& out);
  // The own cell in the rounds of `averaging` so far; nullopt before the first of them.
  std::optional<CellIndex> CellIn(AveragingId averaging) const;
  // Leaves the round that is not over, if any: BYE.
  void LeaveOpen(Time now, Actions& out);
  // The same of a peer that will not average any more: it keeps nothing that others could miss, so
  // its rounds count as left, not as failed.
  void Depart(Time now, Actions& out);
  // A member that is not in the open round by now does not come any more: as at the start deadline.
  void StopGathering(Time now, Actions& out);
  // Something else is written into `region`: this peer serves nothing from it any more, and speaks
  // for nobody in the rounds that it was in.
  void OnOverwritten(Time now, Region region, Actions& out);
  // The outbox will be overwritten: instances that read it and are not over are left.
  void OnSnapshot(Time now, Actions& out);

  // The first `elements` values of the outbox are there.
  void OnFilled(Time now, uint64_t elements, Actions& out);

  // Averagings below `averaging` are over here: a peer that asks for one that was not opened is
  // told.
  void SetMin(AveragingId averaging) { min_ = averaging; }
  // Answers what came early for averagings below that, and was kept for a round that is not opened
  // now: its sender must not wait for it.
  void AnswerPassed(Time now, Actions& out);
  void OnFrame(Time now, const PeerId& from, const message::RoundFrame& frame, Actions& out);
  void OnListAsk(const PeerId& from, const message::ListAsk& ask, Actions& out) const;
  // Opens the round under the list that others use already, if nothing has left this peer; or
  // speaks under it for a member of another group.
  void OnListInUse(Time now, const message::ListInUse& list, const std::set<PeerId>& down,
                   Actions& out);
  bool OnChunk(Time now, const ChunkArrived& chunk, Actions& out);
  void OnFolded(Time now, const FoldedChunk& chunk, Actions& out);
  void OnPeerDown(Time now, const PeerId& peer, SuspicionCause cause, Actions& out);
  void OnRenewed(Time now, const PeerId& peer, Actions& out);  // its link (Round::OnRenewed)
  // Called once for each message and chunk of `peer`, before it is given to anybody: frames that
  // waited here for their round or view say nothing about when their sender lived.
  void OnHeard(Time now, const PeerId& peer) { times_.OnHeard(now, peer); }
  // Peer's.
  void OnChunksLeft(const PeerId& to, uint32_t chunks, std::optional<Duration> round_trip);
  void OnTimer(Time now, Actions& out);
  Time NextDeadline() const;

  // Rounds that ended since the last call, in order.
  std::vector<Ended> TakeEnded();
  // The others use a list already that this peer is not in: since the last call.
  bool TakeUnlisted() { return std::exchange(unlisted_, false); }
  // Members whose list differs from ours since the last call: they need our seats.
  std::set<PeerId> TakeDiffering();
  // Was `peer`'s weight in the decided value? nullopt: this peer does not know the instance.
  std::optional<bool> Counted(const InstanceId& instance, const PeerId& peer) const;
  bool open() const;  // a round is not over
  // The open round has sent no values, holds nothing of others and took no plan: it can be dropped
  // and opened anew.
  bool pristine() const;
  // A round is open that only a quorum of its view's witnesses can still decide.
  bool in_ballot() const;
  // A round has answered the OPEN of a branch, so what it decides is not its view's.
  bool in_branch() const;
  // Forgets the pristine round, silently. What comes for it until the next Open is kept for that:
  // the same round may be opened again.
  void Suspend(Time now, Actions& out);
  const RoundTally& tally() const { return tally_; }
  uint64_t divergence() const { return divergence_; }
  const std::deque<Duration>& lengths() const { return lengths_; }  // of the last decided rounds

 private:
  struct KnownView {
    ViewHash hash;
    uint64_t epoch = 0;
    std::vector<PeerId> witnesses;
  };
  struct Instance {
    RoundHandle handle = 0;
    ViewHash view;
    uint64_t epoch = 0;
    Opening opening;
    CellIndex group = 0;
    CellIndex cell = 0;  // own
    Round round;
    RoundPacer pacer;
    Time opened;
    bool reported = false;
    bool broke_up = false;       // it ends by the view's breaking up, not by a decision of its own
    bool flowed = false;         // bytes were sent
    bool fed = false;            // others' inputs are here, or a mask is fixed
    Seating seating;             // its list follows from it
    bool pinned = false;         // its list is the one that others use: seats change it no more
    std::set<PeerId> told_list;  // members that opened it under another list
    RoundCounts counted;         // what the metrics have seen
  };
  struct Speaking {
    Speaker speaker;
    Region region;
    WireFormat wire;
    message::RoundFrame like;  // how its frames are wrapped
  };
  // The newest opening with its seating: for late duties and for telling early from stale.
  struct Current {
    Opening opening;
    Seating seating;
    CellIndex cell = 0;
    std::map<CellIndex, Seating> lists;  // in use in other groups, as their members said
  };
  struct Early {
    PeerId from;
    message::RoundFrame message;
  };
  struct Call {
    AveragingId averaging;
    Time at;
  };
  using Instances = std::map<InstanceId, Instance>;

  GroupQuestion QuestionOf(const Opening& opening) const;
  std::shared_ptr<const ResultHashes> HashesOf(const Instance& instance) const;
  WireFormat WireOf(const Opening& opening) const {
    return opening.changes ? WireFormat::kInt8 : wire_;
  }
  uint64_t ChunkBytes(const Opening& opening) const;
  uint32_t MaxWindow(size_t ranks, const Opening& opening) const;
  void SetWindows(Instance& instance, RoundActions& out);
  void SetWindow(Instance& instance, const PeerId& owner, RoundActions& out);
  void ShowWindow(const Instance& instance);
  void TakeResult(Time now, Instance& instance, const ChunkArrived& chunk, RoundActions& out);
  void OpenInstance(Time now, const std::set<PeerId>& down, Actions& out);
  void OpenDuties(Actions& out);
  void Speak(const GroupPlan& plan, int rank, Actions& out);
  void LateDuty(const PeerId& from, const message::RoundFrame& message, const Frame& frame,
                Actions& out);
  void ReplayEarly(Time now, Actions& out);
  std::deque<Early> TakeEarly();
  void Keep(const PeerId& from, const message::RoundFrame& message);
  Time BegunAt(Time now, const InstanceId& id) const;  // by its first member, as far as is known
  void Witness(const PeerId& from, const Frame& frame, const message::RoundFrame& message,
               Actions& out);
  void Unknown(Time now, const PeerId& from, const message::RoundFrame& message, const Frame& frame,
               Actions& out);

  void Perform(Time now, Instance& instance, RoundActions& actions, Actions& out);
  void Perform(const InstanceId& id, Speaking& speaking, SpeakerActions& actions, Actions& out);
  void CloseAll(Time now, ParentEnd parent, Actions& out);
  void DropPristine(Time now, Actions& out);
  static bool IsPristine(const Instance& instance) {
    return !instance.round.over() && !instance.flowed && !instance.fed &&
           instance.round.empty_handed();
  }
  bool InOtherList(const message::RoundFrame& message) const;
  void OtherList(const PeerId& from, Instance& instance, Actions& out);
  void SendList(const PeerId& to, const Instance& instance, Actions& out) const;
  // Wraps a frame as `like` is wrapped: same view, averaging, round and group.
  void SendTo(const PeerId& to, const Frame& frame, const message::RoundFrame& like,
              Actions& out) const;
  message::RoundFrame Wrapping(const Instance& instance) const;
  void End(Time now, Instance& instance, const RoundOver& over);
  void LogGivenUp(Time now, const Instance& instance, const RoundOver& over) const;
  void Tally(const Instance& instance, Outcome outcome);
  void Count(Instance& instance);
  void Close(Time now, Instances::iterator at, Actions& out);
  void CloseWriters(Time now, Region region, bool counting, Actions& out);
  Instances::iterator FindHandle(RoundHandle handle);

  const PeerConfig& config_;
  PeerMetrics& metrics_;
  Logger log_;
  Vector vector_;
  KnownView view_;
  KnownView previous_;                      // the parent; none after a change of lineage
  WireFormat wire_ = WireFormat::kFloat32;  // of whole values
  RoundTimes times_;
  SendWindows windows_;
  WitnessTable table_;
  RoundHandle last_handle_ = 0;
  Instances instances_;
  std::map<InstanceId, Speaking> speaking_;
  std::optional<Current> current_;
  std::optional<InstanceId> suspended_;  // may be opened again
  AveragingId min_;                      // averagings below it are not opened any more
  std::deque<Early> early_;
  size_t early_bytes_ = 0;
  // Rounds that others have opened before this peer: when their first READY came. kMaxEarly of
  // them; one beyond counts as begun when it is opened here.
  std::map<InstanceId, Call> calls_;
  std::vector<Ended> ended_;
  std::set<PeerId> differing_;
  bool unlisted_ = false;
  bool departing_ = false;
  std::deque<std::pair<InstanceId, std::set<PeerId>>> outcomes_;  // counted, newest last
  RoundTally tally_;
  uint64_t divergence_ = 0;
  std::deque<Duration> lengths_;
};

}  // namespace crowdsurf::worker
