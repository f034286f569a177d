// Averaging: from "half of us are due" to "the trainer has the mean", over and over.
//
// Owner: Peer, single sequence. It counts who is due, opens averaging k when half of the members
// are, asks the trainer for its snapshot, lets the strategy open one round after the other
// (group_rounds.h), delivers, and keeps the job-wide sample count. Membership tells it the view and
// its seats; it changes view only between averagings. Bounds: due lists of two averagings, one
// doubtful weight. Source: docs/averaging.md.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "worker/core/averaging/adopted_start.h"
#include "worker/core/averaging/catch_up.h"
#include "worker/core/averaging/group_rounds.h"
#include "worker/core/averaging/ledger_sync.h"
#include "worker/core/averaging/left_behind.h"
#include "worker/core/averaging/mixing.h"
#include "worker/core/averaging/turn_weight.h"
#include "worker/core/port/actions.h"
#include "worker/core/port/inputs.h"
#include "worker/core/port/messages.h"
#include "worker/core/round/arrived_chunk.h"
#include "worker/core/shard/lease_holder.h"
#include "worker/core/strategy/strategy.h"
#include "worker/core/view/averaging_id.h"
#include "worker/core/view/turns.h"

namespace crowdsurf::worker {

struct PeerConfig;
struct PeerMetrics;

// Up to this many members everybody is told of everything directly; above, group mates are, and the
// roster tells the rest.
inline constexpr size_t kTellEverybody = 64;
// How long a promise, or an own proposal, holds averagings back when no more is heard of it.
inline constexpr Duration kProposalPatience = Milliseconds(500);

// Gradients: how long members that have their share wait for those that have not. Halved, a worker
// that fetches a large state is left behind by the others' steps; doubled, one that hangs holds the
// job for as long.
inline constexpr Duration kSharePatience = Seconds(60);
// Averagings that a member sits out while nobody serves the base that they are from. Fewer,
// and a lost word costs a view its base; more, and a job whose holders died stands still longer.
inline constexpr int kMaxWithoutBase = 3;

class Averaging {
 public:
  Averaging(const PeerConfig& config, PeerMetrics& metrics, Logger log, Rng rng);

  // ---- membership ----
  // This peer is seated in `seating` from averaging `next` on. Pre: no round is open, or `parent`
  // broke up.
  void OnView(Time now, const Seating& seating, AveragingId next, ParentEnd parent, Actions& out);
  void OnSeating(Time now, const Seating& seating, Actions& out);  // seats of the same view changed
  void OnUnseated(Time now, Actions& out);
  void SetDown(const std::set<PeerId>& down) { down_ = down; }
  void OnPeerDown(Time now, const PeerId& peer, SuspicionCause cause, Actions& out);
  void OnRenewed(Time now, const PeerId& peer, Actions& out);  // its link
  void Drain(Time now, Actions& out);     // open no averaging any more; idle() says when it is done
  void LeaveNow(Time now, Actions& out);  // BYE to the round under way
  void Depart(Time now, Actions& out);    // the same when this peer leaves, or its trainer is gone
  // A successor of the view is being decided, or is decided: averagings from `barrier` on are its
  // own. They are held back here, at most `patience`; a round of one that moved no bytes is undone.
  void HoldFrom(Time now, AveragingId barrier, Duration patience, Actions& out);
  // A successor is decided. A round of changes from its barrier on gets no quorum in the parent any
  // more (IsLone): it is left, also where bytes have moved.
  void Yield(Time now, AveragingId barrier, Actions& out);
  // Highest averaging with bytes under way, or over.
  AveragingId bytes_begun() const;
  // True when a view whose parent keeps the averagings below `barrier` can be entered now.
  bool MayMove(AveragingId barrier) const;
  // What others have committed: their count is ours when they are ahead.
  void Learn(const Committed& theirs);
  // This peer enters another lineage, whose count is `theirs`: its own is left behind with what it
  // held of its lineage's averages. Averagings of two lineages have the same numbers, so neither is
  // compared.
  void OnLineage(const Committed& theirs);
  // A state will be fetched into `region`.
  void OnFetch(Time now, Region region, Actions& out);
  // A fetch of this class's own is over (averaging_outer.cc).
  void OnFetched(Time now, const StateFetched& fetched, Actions& out);
  // The region holds `committed` (fetched or restored): this peer is a donor of it.
  void OnHolds(const Committed& committed);
  // ---- snapshots in parts (averaging_filling.cc)
  bool SendsInParts() const;
  void FillUpTo(Time now, uint64_t elements, Actions& out);
  void FinishFilling(Time now, Actions& out);
  void LoseFilling(Time now, Actions& out);
  Time PartDeadline() const;

  // ---- the job's first parameters (averaging_first.cc)
  // The view that this peer forms next begins above a number that its trainer's first parameters
  // get. False: they are not the first, or cannot be asked for now.
  bool ReserveFirst();
  bool asks_for_first() const { return first_.stage == FirstStage::kAsked; }
  // Nobody can fetch them yet, but soon.
  bool gives_first() const { return asks_for_first() || first_.stage == FirstStage::kHashing; }
  // A checkpoint had this ledger (LeaseLedger); it counts in a view that this peer begins alone.
  void OnRestoredLedger(const Bytes& ledger);
  // The trainer took somebody's state in place of its own: its samples up to now count no more.
  void OnAdopted(const Committed& committed);
  // That was another peer's, and this peer has no seat yet.
  void SetStart(const AdoptedStart& start) { start_ = start; }

  // ---- messages ----
  void OnDue(Time now, const PeerId& from, AveragingId averaging, Actions& out);
  // `peer`, a member, says what it has committed.
  void OnCommitted(Time now, const PeerId& peer, const Committed& theirs, Actions& out);
  void OnBegin(Time now, AveragingId averaging, Actions& out);
  void OnFrame(Time now, const PeerId& from, const message::RoundFrame& frame, Actions& out);
  void OnListInUse(Time now, const message::ListInUse& list, Actions& out);
  void OnCountedAsk(const PeerId& from, const message::CountedAsk& ask, Actions& out);
  void OnCountedAnswer(const message::CountedAnswer& answer);
  void OnLeasesWanted(Time now, AveragingId averaging, Actions& out);
  void OnLedgerAsk(const PeerId& from, const message::LedgerAsk& ask, Actions& out);
  void OnLedgerNews(Time now, const PeerId& from, const message::LedgerNews& news, Actions& out);
  void OnPairWord(Time now, const PeerId& from, const PairWord& word, Actions& out);
  void OnEdgeWord(Time now, const PeerId& from, const EdgeWord& word, Actions& out);

  // ---- host ----
  void OnTrainer(Time now, const TrainerRegistered& trainer);
  void OnTrainerGone(Time now, Actions& out);
  void OnProgress(Time now, const Progress& progress, Actions& out);
  void OnPublished(Time now, const Published& published, Actions& out);
  void OnFilled(Time now, const Filled& filled, Actions& out);
  void OnPublishRefused(Time now, const PublishRefused& refused, Actions& out);
  void OnDataDeclared(Time now, const DataDeclared& declared, Actions& out);
  // This peer leaves: true while one more averaging is to take in what its trainer has trained.
  bool HandIn(Time now, Actions& out);
  void TellTrainer(Actions& out);  // of its leases, where they have changed
  void OnStateHashed(Time now, const StateHashed& hashed, Actions& out);
  bool OnChunk(Time now, const ChunkArrived& chunk, Actions& out);
  void OnFolded(Time now, const FoldedChunk& chunk, Actions& out);
  void OnMixChunk(Time now, const MixArrived& chunk, Actions& out);
  void OnMixSent(Time now, const MixSent& sent, Actions& out);
  void OnTimer(Time now, Actions& out);
  Time NextDeadline() const;
  // The job's time is up then; infinite: nobody knows. One more averaging is due shortly before, so
  // that what was trained since the last one is in the job's mean.
  void SetEnd(Time end) { end_ = end; }

  // ---- state ----
  bool idle() const { return stage_ == Stage::kIdle; }
  // The snapshot is asked for or there, but no round is open: it can go on in another view.
  bool movable() const { return stage_ == Stage::kPublishing || stage_ == Stage::kHolding; }
  AveragingId number() const { return number_; }  // of the averaging under way
  // The least averaging that has not begun here.
  AveragingId next() const { return idle() ? next_ : number_ + 1; }
  bool HasBegun(AveragingId averaging) const { return averaging <= begun_; }
  // The first averaging that a view made now can open: a snapshot under way serves it.
  AveragingId first_of_new_view() const { return movable() ? number_ : next(); }
  // The least averaging that nobody can have begun, as far as is known here: nobody is due for it.
  AveragingId first_unheard_of() const;
  bool due() const { return announced_; }
  // What this peer can serve. No root: it is being hashed, or overwritten by an averaging under
  // way.
  const Committed& committed() const { return committed_; }
  const Committed& job() const { return job_; }         // what the job has, as far as known
  bool took_part() const { return took_part_; }         // the present trainer, in some average
  const AdoptedStart& start() const { return start_; }  // what that began from
  uint64_t deliveries() const { return deliveries_; }
  uint64_t abandoned() const { return abandoned_; }
  const Mixing& mixing() const { return mixing_; }
  // It sits averagings out, and will for as long as it stays in this view.
  bool left_behind(Time now) const { return left_behind_.is(now) && !catch_up_.busy(); }
  // A newcomer that holds this average or a later one is near enough for a seat.
  AveragingId near_enough() const;
  // Averagings after a view's first leave members with values of their own.
  bool values_differ() const { return mixing_.on_graph() || turns_.taken(); }
  GroupRounds& rounds() { return rounds_; }
  const GroupRounds& rounds() const { return rounds_; }
  const Progress& progress() const { return progress_; }
  const std::optional<TrainerRegistered>& trainer() const { return trainer_; }
  const LeaseHolder& leases() const { return leases_; }

 private:
  // kPublishing: the snapshot is asked for. kHolding: it is there and waits for the next view.
  enum class Stage : uint8_t { kIdle, kPublishing, kHolding, kRounds };
  struct Hold {
    AveragingId from = {};
    Time until;
  };
  // Whose snapshot was asked for.
  enum class Asker : uint8_t { kAveraging, kMixing, kCatchUp, kFirst };
  // kReserved: the view is to be made. kAsked: for the snapshot. kHashing: it is copied.
  enum class FirstStage : uint8_t { kNone, kReserved, kAsked, kHashing };
  struct First {
    FirstStage stage = FirstStage::kNone;
    AveragingId number = {};
    Time until;  // then all start from their own
  };
  struct Mark {  // where the present interval began
    uint64_t step = 0;
    double samples = 0;
    Time time;
  };
  // Samples that may have been counted in an instance this peer did not see the end of.
  struct Doubt {
    InstanceId instance;
    double samples = 0;
  };

  // In a view that says that the target is met nothing begins: its trainers are told to stop, so
  // who stops first would leave the others in a round whose result reaches nobody.
  bool Ready() const { return seated_ && trainer_ && !draining_ && !seating_.view().target_met; }
  struct Interval {
    IntervalUnit unit;
    double length;
  };
  Interval IntervalNow() const;
  bool IntervalOver(Time now) const;
  Time LastDue() const;
  void CheckDue(Time now, Actions& out);
  void MaybeBegin(Time now, Actions& out);
  void BeginNow(Time now, AveragingId averaging, Actions& out);
  void StartPublish(Time now, AveragingId averaging, Actions& out);
  void GoOn(Time now, AveragingId averaging, Actions& out);
  void OpenTrip(Time now, Actions& out);
  void FixStake();
  void SetUnits();
  bool Held(Time now, AveragingId averaging) const;
  void Resume(Time now, Actions& out);
  void RequestSnapshot(Actions& out);
  bool AwaitsSnapshot(AveragingId averaging) const;
  void TakeSnapshot(Time now, const Published& published, Actions& out);
  void AskToBeWoken(Actions& out);
  void Advance(Time now, AveragingId next, Actions& out);
  std::vector<PeerId> Neighbours() const;
  void Tell(const Message& message, Actions& out) const;

  void Run(Time now, StrategyActions& actions, Actions& out);
  void OpenOne(Time now, const OpenRound& open, StrategyActions& more, Actions& out);
  void FinishDelivery(Time now, const DeliverResult& result, Actions& out);
  void FinishAbandon(Time now, AveragingId averaging, Actions& out);
  void FinishCount(Time now, AveragingId averaging, Actions& out);
  // Averagings that count samples only: on graphs all of a view but its first, with
  // `rounds: One` every second one.
  bool Counting(AveragingId averaging) const;
  void AskForOthers(Actions& out);
  void StartMixing(Time now, Actions& out);
  Region MixingInbox() const;
  bool MixSnapshot(Time now, const Published& published, Actions& out);

  // ---- leases (averaging_leases.cc)
  bool WantsOneAtOnce() const;
  std::optional<Time> HurryAt() const;
  bool Hurried(Time now) const { return HurryAt() && now >= *HurryAt(); }
  bool KeepsChange() const;
  bool IsCrowdedOut(const ClaimSet& decided) const;
  void CommitLeases(AveragingId averaging, Actions& out);
  bool AskForLedgers(Actions& out);  // true: there is nobody to ask
  void DoubtLedger(Time now, Actions& out);
  void SettleRestoredLedger();
  void AnswerLedgerAsks(Actions& out);
  void CountLeases();
  Bytes LedgerOf(AveragingId averaging) const;

  // ---- rounds: One (averaging_turns.cc)
  bool IsOneRound(AveragingId averaging) const { return turns_.Of(averaging) == Turn::kOneRound; }
  bool WeighsByTurns() const { return turns_.taken() || turn_weight_.apart(); }
  double WeightOfTurn() const;
  void FinishRound(Time now, const DeliverResult& result, Actions& out);

  // ---- the job's first parameters (averaging_first.cc)
  void AskForFirst(Time now, Actions& out);
  void DropFirst();
  void FailFirst(Time now, Actions& out);
  void OnFirstSnapshot(Time now, const Published& published, Actions& out);
  void OnFirstHashed(Time now, const StateHashed& hashed, Actions& out);

  // ---- IST (averaging_units.cc)
  bool HasUnits() const { return seated_ && seating_.view().config.strategy == StrategyKind::kIst; }
  bool OfThisView(AveragingId averaging) const {
    return averaging >= seating_.view().first_averaging;
  }
  // The base is an average of this view: units are dealt from it, and changes counted.
  bool IsDealt() const { return OfThisView(committed_.averaging) && !BaseRoot().none(); }
  // What is being fetched is the base that the others go on from: an averaging that begins
  // meanwhile is waited with, not sat out, or it would be behind again.
  bool FetchesItsBase() const;
  void DisownBase();
  void TellWhole(Actions& out);
  void LoseBase(Actions& out);
  void LearnCells(Time now, const Committed& theirs, Actions& out);
  void DealAnew(Time now, Actions& out);

  // ---- gradients (averaging_gradients.cc)
  bool Gathers() const;
  bool HasShare() const;
  uint64_t Share() const;
  void TellOfShare(Actions& out);
  void HoldStep(const TrainerRegistered& trainer);
  void ForgetHeld();
  bool IsLate(Time now, size_t due, size_t live);
  bool FinishGradient(Time now, Region mean, Actions& out);
  void OnFetchedStep(Time now, const StateFetched& fetched, Actions& out);

  // ---- with a base that all measure from: an outer optimizer's, IST's, Int8's, that of gradients
  // (averaging_outer.cc)
  bool KeepsBase() const { return HasOuter() || OneBase(); }
  // A member with another base than the others takes no part: units, changes or gradients are of
  // it.
  bool OneBase() const { return HasUnits() || HasChanges() || Gathers(); }
  bool HasChanges() const {
    return seated_ && seating_.view().config.compression == WireFormat::kInt8;
  }
  bool LacksBase() const;
  bool HasOuter() const { return seated_ && OuterOf().kind != OuterKind::kNone; }
  const OuterOptimizer& OuterOf() const { return seating_.view().config.outer; }
  // Until the job has its samples all average every step, and no average is a step.
  bool WarmsUp(double job_samples) const;
  Digest BaseRoot() const;  // of what kInboxA and kVelocity hold; none: no base that is known
  bool HoldsBase() const;
  Committed OwnBase() const { return HoldsBase() ? committed_ : Committed(); }
  // A step that this peer cannot make: from a base that it does not have.
  bool StepsFromElsewhere(const Stake& stake) const;
  StateParts PartsOf() const;
  Committed Announced() const;  // what this peer says that it has committed
  bool FinishStep(Time now, Region mean, Actions& out);
  RunKernel StepTo(Region mean);
  void TakePart(Time now, AveragingId averaging, Actions& out);
  void SitOut(Time now, AveragingId averaging, Actions& out);
  void GoWithoutBase(Actions& out);
  const Committed* Missed() const;
  bool GoCatchUp(Time now, Actions& out);
  void MoveToBase(Time now, const Published& published, Actions& out);
  void CollectEnded(Time now, Actions& out);
  // Others may have another value of this averaging: it counts for nobody.
  bool IsLone(const GroupRounds::Ended& ended) const;
  void SettleSamples(const GroupRounds::Ended& ended, Actions& out);

  const PeerConfig& config_;
  PeerMetrics& metrics_;
  Logger log_;
  Rng rng_;
  GroupRounds rounds_;
  std::unique_ptr<Strategy> strategy_;
  std::unique_ptr<Strategy> counter_;  // its trips move weights only
  Mixing mixing_;
  CatchUp catch_up_;
  StrategyKind kind_ = StrategyKind::kMoshpit;

  bool seated_ = false;
  bool draining_ = false;
  Seating seating_;
  std::set<PeerId> down_;
  std::optional<TrainerRegistered> trainer_;
  Progress progress_;
  Time end_ = Time::Infinite();

  Stage stage_ = Stage::kIdle;
  AveragingId number_;
  AveragingId next_{1};
  AveragingId begun_;  // highest averaging seen to begin
  std::optional<Hold> hold_;
  AveragingId held_;                  // highest averaging that began while it was held back
  std::optional<AveragingId> asked_;  // RequestPublish that was not answered yet
  Asker asker_ = Asker::kAveraging;   // of that
  AveragingId snapshot_units_;        // IST: that the last snapshot was trained on
  AveragingId told_units_;            // IST: that the trainer was told last; 0: the whole model
  RankSet contributors_;              // of the last round of this averaging that is over
  bool snapshotted_ = false;          // the outbox holds the snapshot of averaging number_
  // Of a snapshot that was taken before it was whole: its averaging, until Published comes.
  std::optional<AveragingId> filling_;
  Time part_at_;                               // when its last part came
  uint64_t filled_ = GroupRounds::kWhole;      // values of the outbox that are there
  Region committed_region_ = Region::kInboxA;  // holds committed_
  bool overwritten_ = false;  // a later averaging's round writes there: nothing to be fetched
  // Gradients: samples of that in the outbox; the share that the trainer was told; since when half
  // of the members have been due, for which averaging.
  double gathered_ = 0;
  uint64_t told_share_ = 0;
  std::pair<AveragingId, Time> half_due_;
  // With an outer optimizer: the host hashes the base that the next step is measured from, and
  // until then no averaging is taken part in. One that has begun meanwhile waits.
  bool hashing_ = false;
  std::optional<AveragingId> waits_;
  First first_;
  bool changes_ = false;   // the averaging under way is one of changes from kInboxA
  bool has_rest_ = false;  // kRest holds what this trainer's changes have left
  int without_base_ = 0;   // averagings sat out in a row because nobody serves the base
  AveragingId given_up_;   // of this view: bases up to it are not waited for any more
  AveragingId jump_;  // a member is due for this one, beyond the one after ours: follow when idle
  bool announced_ = false;
  Time announced_at_;
  std::map<AveragingId, std::set<PeerId>> due_;
  Mark mark_;

  double counted_ = 0;   // of the trainer's total: already in some average, or given up
  double snapshot_ = 0;  // the trainer's total in the outbox
  double returned_ = 0;  // samples that turned out not to be counted, in the present stake
  double answered_ = 0;  // others that did since it was fixed: for the next
  double settled_ = 0;   // of the own stake, as the first round has settled it
  Turns turns_;          // of the view
  TurnWeight turn_weight_;
  std::pair<AveragingId, ViewHash> staked_;          // averaging and view that stake_ was fixed for
  Stake stake_;                                      // of the value that the next round takes in
  Digest last_root_;                                 // of the previous round's value
  std::shared_ptr<const ResultHashes> last_hashes_;  // the same, and where it lies
  Region last_to_ = Region::kInboxA;
  std::optional<Doubt> doubt_;

  LeaseHolder leases_;
  LedgerSync ledger_sync_;
  bool ledger_restored_ = false;  // of a checkpoint; the first view says whether it counts
  AveragingId hurried_;           // a member waits for this one
  bool lone_ = false;             // too few were in the averaging's round for leases to count
  bool in_mean_ = false;          // the own input is in the value, and counted
  std::set<PeerId> seated_then_;  // as of the averaging whose round ended last

  Committed committed_;
  Committed job_;
  Committed ahead_;  // said by others while the averaging under way was open
  uint64_t deliveries_ = 0;
  bool took_part_ = false;
  AdoptedStart start_;
  LeftBehind left_behind_;  // of units and changes
  uint64_t abandoned_ = 0;
};

}  // namespace crowdsurf::worker
