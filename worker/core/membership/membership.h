// Membership: the view this peer is in, and how it changes.
//
// Owner: Peer, single sequence. As a newcomer it asks for a seat, fetches state, or forms a first
// view (joining.h). Seated, it merges seats and vacancies, takes decided views between rounds, and
// answers who speaks of older ones. As the steward (the longest-lived live witness) it gives seats,
// declares vacancies and has successors decided (successor.h). When the witnesses' quorum is gone
// it leads or follows a branch (branching.h); a member of a lineage that loses against another asks
// the winner for a seat. A view that one member names waits until others name it
// (confirmation.h). Bounds: kMaxJoiners waiting, kMaxPast remembered views, kMaxHints named
// ones. Source: docs/views.md.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/down_evidence.h"
#include "base/log.h"
#include "base/rng.h"
#include "worker/core/membership/branching.h"
#include "worker/core/membership/confirmation.h"
#include "worker/core/membership/job_clock.h"
#include "worker/core/membership/joining.h"
#include "worker/core/membership/lineages.h"
#include "worker/core/membership/roster.h"
#include "worker/core/membership/seat_rumors.h"
#include "worker/core/membership/successor.h"
#include "worker/core/membership/waiting_joiners.h"
#include "worker/core/port/actions.h"
#include "worker/core/port/config.h"
#include "worker/core/port/inputs.h"
#include "worker/core/port/messages.h"
#include "worker/core/port/peer_summary.h"
#include "worker/core/view/averaging_id.h"

namespace crowdsurf::worker {

class Averaging;
struct PeerMetrics;

class Membership {
 public:
  static constexpr size_t kMaxJoiners = 4096;
  static constexpr size_t kMaxPast = 16;
  static constexpr size_t kMaxHints = 8;
  static constexpr size_t kMaxStrangersDown = 4096;
  static constexpr std::string_view kAnotherTable = "another tensor table";

  struct Uses {  // the parts of the peer that it calls; they outlive it
    Roster& roster;
    Averaging& averaging;
  };
  Membership(const PeerConfig& config, PeerMetrics& metrics, Logger log, Rng rng, Uses uses);

  // ---- local ----
  void OnTrainer(Time now, const TrainerRegistered& trainer);
  void OnTrainerGone(Time now, Actions& out);
  void OnRestored(const RestoredCheckpoint& checkpoint);
  void OnConfig(const AveragingConfig& config);
  void OnStateFetched(Time now, const StateFetched& fetched, Actions& out);
  void OnPeerDown(Time now, const PeerId& peer, DownEvidence evidence, Actions& out);
  void OnHeard(Time now, const PeerId& peer);
  void OnRecord(Time now, const PeerId& peer);  // that says something new
  void StartLeaving(Time now);
  // After every input: enter what was decided, govern, ask for a seat.
  void Settle(Time now, Actions& out);
  Time NextDeadline() const;

  // ---- messages ----
  void OnJoinRequest(Time now, const PeerId& from, const message::JoinRequest& request,
                     Actions& out);
  void OnJoinAnswer(Time now, const PeerId& from, const message::JoinAnswer& answer, Actions& out);
  void OnViewNews(Time now, const PeerId& from, const message::ViewNews& news, Actions& out);
  void OnViewAsk(Time now, const PeerId& from, const message::ViewAsk& ask, Actions& out);
  void OnViewVoteAsk(Time now, const PeerId& from, const message::ViewVoteAsk& ask, Actions& out);
  void OnViewVote(Time now, const PeerId& from, const message::ViewVote& vote, Actions& out);
  void OnSeatingNews(Time now, const PeerId& from, const message::SeatingNews& news, Actions& out);
  void OnViewOpen(Time now, const PeerId& from, const message::ViewOpen& open, Actions& out);
  void OnViewPromise(Time now, const PeerId& from, const message::ViewPromise& promise,
                     Actions& out);
  void OnViewAccept(Time now, const PeerId& from, const message::ViewAccept& accept, Actions& out);
  void OnViewAccepted(Time now, const PeerId& from, const message::ViewAccepted& accepted,
                      Actions& out);
  void OnBranchOpen(Time now, const PeerId& from, const message::BranchOpen& open, Actions& out);
  void OnBranchJoin(Time now, const PeerId& from, const message::BranchJoin& join, Actions& out);
  void OnBranchView(Time now, const PeerId& from, const message::BranchView& view, Actions& out);
  void OnBranchHeld(Time now, const PeerId& from, const message::BranchHeld& held, Actions& out);
  void OnLeaving(Time now, const PeerId& from, const message::Leaving& leaving, Actions& out);
  // A member of our view knows these seats: if they differ from ours, it is told ours (and tells us
  // its own when it hears from us).
  void CompareSeats(Time now, const PeerId& peer, const Digest& seats, Actions& out);
  // It sat in that view, and does no more.
  bool HasLeft(const ViewHash& view) const;
  // A message names `view`: true when it is ours. Else the one that is behind is told, in either
  // direction.
  bool IsOurs(Time now, const PeerId& from, const ViewHash& view, Actions& out);

  // ---- state ----
  bool seated() const { return seating_ && seating_->CellOf(config_.id).has_value(); }
  const std::optional<Seating>& seating() const { return seating_; }
  std::optional<PeerId> steward() const;
  bool is_steward() const { return seated() && steward() == config_.id; }
  const std::set<PeerId>& down() const { return down_; }
  // Down, and neither said that it leaves: its machine or its process died, or cannot be reached.
  std::vector<PeerId> Lost() const;
  LineageRank lineage() const;  // members: of the view at its making
  AveragingId holds() const { return holds_; }
  double job_seconds() const { return clock_.seconds(settled_at_); }  // as of the last input
  bool target_met() const { return job_over_ || (seating_ && seating_->view().target_met); }
  bool left() const { return left_job_; }
  bool asked_to_leave() const { return leaving_since_.has_value(); }
  // It goes, and takes part in no averaging that has not begun.
  bool leaving() const { return leaving_since_ && handed_in_; }
  bool joined_with_state() const { return joined_with_state_; }
  // Why the better lineage that was asked last gives no seat, seated in a lesser one or not.
  const std::optional<SeatRefusal>& seat_refused() const { return seat_refused_; }
  Member Self() const;

 private:
  struct Joiner {
    message::JoinRequest request;
    Time since;
    Time heard;
  };
  // For an averaging of the parent that others were in and that does not reach this peer.
  static constexpr Duration kBarrierPatience = Seconds(1);

  // entering and leaving views (membership_views.cc)
  void TakePending(Time now, Actions& out);
  void SetPending(Time now, Seating next, Actions& out);
  void Enter(Time now, Seating seating, Actions& out);
  void Unseat(Time now, Actions& out);
  void GiveSeatBack(Time now, Actions& out);  // the others are told
  bool Wants(const Seating& next) const;
  bool IsOwnBranch(const View& view) const;
  bool BreaksUpFor(const View& view) const;
  struct Entered;
  bool Forsaken(const ViewHash& view) const;
  bool Forsaken(const View& view, const ViewHash& hash) const;  // it, or a later one of its lineage
  void Forsake(const Entered& view);
  void SeatsChanged(Time now, Actions& out);
  void EndJob(Time now, Actions& out);

  // views that others name (membership_hints.cc)
  struct Hint {
    Seating next;
    ViewHash held;  // the view this peer was in when it asked; none: in none
    Committed committed;
    std::set<PeerId> tellers;  // at most kMaxHints
    Confirmation confirmation;
  };
  std::deque<Hint>::iterator FindHint(const ViewHash& view);
  void Suppose(Time now, const PeerId& from, Seating next, const Committed& committed,
               Actions& out);
  void JudgeHints(Time now, Actions& out);
  void Renew(Hint& hint, Confirmation confirmation);
  void Follow(Time now, Seating next, const Committed& committed, Actions& out);
  Confirmation AskWitnesses(const Seating& next) const;
  Confirmation AskMembers(const Seating& next) const;
  Confirmation::Company CompanyFor(const Hint& hint) const;
  size_t LiveOthers() const;
  void Withdraw(const PeerId& peer);
  message::ViewVote VoteOn(const ViewHash& held, const ViewHash& named) const;
  bool GoesOnWithout(const Seating& next) const;
  bool IsNewcomer() const;
  bool IsStale(const Seating& next) const;

  // seats that others tell (membership_seats.cc)
  void DropUngiven(const Seating& seating, const std::vector<Seat>& seats,
                   std::vector<Vacancy>& vacancies);
  void MergeGiven(Seating& seating, const PeerId& from, const std::vector<Seat>& seats,
                  std::vector<Vacancy> vacancies);
  bool Believes(Time now, const SeatRumors::Item& item, const SeatRumors::Rumor& rumor) const;
  bool TakeSeats(Time now, const PeerId& from, std::vector<Seat> seats,
                 std::vector<Vacancy> vacancies, Actions& out);
  void AskSteward(Time now, Actions& out);
  bool JudgeRumors(Time now);
  bool SeatsDiffer(Time now) const;
  Time RumorDeadline() const;
  bool KnowsMore(const PeerId& peer) const;
  void AskThoseAhead(Time now, Actions& out);

  // telling (membership.cc)
  std::optional<PeerId> StewardOf(const Seating& seating) const;
  message::ViewNews NewsOf(Time now, const Seating& seating) const;
  std::vector<PeerId> Others(const Seating& seating) const;
  void SendAll(const std::vector<PeerId>& peers, const Message& message, Actions& out) const;
  void TellSeats(Time now, const PeerId& peer, Actions& out);
  void TellOwnSeat(Time now, Actions& out);
  bool Quiet(Time now, const PeerId& peer);
  std::optional<View> Take(const Bytes& encoded);
  ViewFacts Facts();
  const AveragingConfig& ConfigOfNext() const;
  bool Concerns(const Seating& seating, const PeerId& peer) const;
  void ForgetStrangers();

  // as the steward (stewardship.cc)
  void Govern(Time now, Actions& out);
  bool Vacate(Time now, Actions& out);
  void SeatJoiners(Time now, Actions& out);
  bool NeedsView(Time now);
  bool SomebodyFollows(Time now) const;
  bool StrictView() const;
  bool ComesWithView(const message::JoinRequest& request) const;
  bool SuccessorProposed() const;
  bool TargetMet(Time now) const;
  void Propose(Time now, Actions& out);
  void Announce(Time now, View view, Actions& out);
  std::set<PeerId> LiveWitnesses() const;
  bool WitnessesLive() const;
  void MaybeBranch(Time now, Actions& out);
  bool LivesElsewhere() const;
  void FindSilent(Time now);
  std::optional<message::JoinAnswer> Objection(const message::JoinRequest& request) const;
  void NoteFetch(const PeerId& peer, AveragingId averaging);
  void AnswerWaiting(Time now, Actions& out);
  bool FetchedAsTold(const message::JoinRequest& request) const;

  // as a newcomer (membership_joining.cc)
  void SeekSeat(Time now, Actions& out);
  void SeekBetterLineage(Time now, Actions& out);
  void AskForSeat(Time now, const PeerId& peer, Actions& out);
  // `refusal`: nullptr, it is refused no longer.
  void NoteRefusal(const PeerId& from, const message::JoinAnswer* refusal);
  void FormFirst(Time now, Actions& out);
  void AnswerJoiners(Actions& out);
  void TendFirst(Actions& out);
  void NoteFirstMissed(Time now);
  void LetStartOnce(Actions& out);
  bool LeavesByItsRecord(const PeerId& peer) const;
  bool Silent(Time now, const PeerId& peer) const;
  bool Gone(Time now, const PeerId& peer) const;
  bool SitsHere(const PeerId& peer) const;
  LineageCount OtherLineages() const;
  LineageRank RankHere() const;
  const RosterRecord* BestOtherLineage();
  void ForgetDoubts(const Seating& entered);
  void ListenAnew(Time now);
  bool Trained() const;

  const PeerConfig& config_;
  PeerMetrics& metrics_;
  Logger log_;
  Rng rng_;
  Roster& roster_;
  Averaging& averaging_;
  Joining joining_;

  std::optional<Seating> seating_;
  std::optional<CellIndex> told_cell_;  // the own cell that the others were told of, or know
  std::optional<Seating> pending_;      // decided, to be entered when no round is open
  Time pending_since_;
  std::optional<Committed> lineage_count_;  // of the other lineage that pending_ belongs to
  std::deque<Hint> hints_;                  // at most kMaxHints, one a sender
  std::deque<ViewHash> past_;
  struct Entered {  // the view entered last, also after the seat in it was lost
    ViewHash view;
    ViewHash origin;
    uint64_t epoch = 0;
  } last_;
  std::deque<Entered> forsaken_;  // left for another lineage: never entered or witnessed again
  ViewHash left_;                 // the view that this peer left for a branch
  Time left_since_;
  SeatRumors rumors_;  // of the present view
  Time asked_steward_;
  std::set<PeerId> ahead_;    // know seats or views that are not known here, by their records
  Time ask_ahead_at_;         // one of them; of use where there are some
  std::set<PeerId> down_;     // ForgetStrangers bounds it
  std::set<PeerId> doubted_;  // those of down_ that were silent, or sat elsewhere by their records
  size_t forget_at_ = kMaxStrangersDown;  // ids in down_
  std::set<PeerId> departed_;  // gave their cells back: they may come again, but not into this view
  std::map<PeerId, Time> heard_;  // occupants: when last as members of this view
  std::map<PeerId, Time> told_;   // when a peer was last told of a view or of seats
  std::map<PeerId, Joiner> joiners_;
  WaitingJoiners waiting_;                    // for an average that they can be sent to
  std::map<PeerId, AveragingId> fetch_told_;  // sent to fetch that; at most kMaxJoiners
  std::optional<SuccessorProposer> proposer_;
  SuccessorWitness witness_;
  std::optional<BranchLeader> leader_;
  PeerId following_;                    // leader of the branch being made; none: nobody
  std::deque<ViewHash> branches_held_;  // of the view that this peer left; at most kMaxPast
  Time thin_since_;
  JobClock clock_;
  Time settled_at_;
  Time entered_at_;    // the present view
  Time follow_until_;  // the next view waits for members that are in the parent yet; unset: not
  AveragingConfig newest_;  // configuration

  std::optional<TrainerRegistered> trainer_;
  bool started_trainer_ = false;
  bool joined_with_state_ = false;
  std::optional<SeatRefusal> seat_refused_;
  AveragingId holds_;
  bool holds_first_ = false;   // what it holds are first parameters
  PeerId first_from_;          // the member that sent it to fetch them
  AveragingId highest_first_;  // number that first parameters are known to have; 0: none
  bool giving_first_ = false;  // its own, in the view that it formed
  Time first_sought_;          // since when others' are fetched; unset: not
  bool own_first_ = false;     // they could not be fetched
  std::optional<Committed> restored_;
  double restored_seconds_ = 0;  // of the job, in that checkpoint
  std::optional<Committed> fetching_;
  Time fetch_again_;
  Time seek_lineage_at_;
  std::set<PeerId> lineage_asked_;  // members of a better lineage that have not answered
  std::optional<Time> leaving_since_;
  bool handed_in_ = false;  // before it goes: what its trainer has trained of its leases
  bool left_job_ = false;
  bool job_over_ = false;
};

}  // namespace crowdsurf::worker
