// Round: how one group finishes one all-reduce when members die (docs/round.md).
//
// The decision part of a member and of the coordinator it may become, as a value without a clock:
// no deadline lives here. Suspicion and deadlines are inputs (round_pacer.h says when), so
// tests/model can copy, hash and explore it. Tensor bytes stay with the host: Round moves chunk
// numbers, masks and hashes. One input at a time; the host executes the actions of an input, in
// order, before it gives the next input. The host keeps the object after over() until the next
// snapshot closes the instance: it still answers stragglers and witnesses. Owner: worker/core's
// Averaging, through the host's single thread. Bounds: 64 ranks, 16 ballots for each rank, one
// STATUS/PROMISE/HAVE per (peer, ballot). Source: docs/round.md. tests/model
// checks this very class. Beyond it: see round_frames.h.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "base/id.h"
#include "worker/core/round/asked_inputs.h"
#include "worker/core/round/chunk_index.h"
#include "worker/core/round/round_actions.h"
#include "worker/core/round/round_plan.h"
#include "worker/core/round/round_spec.h"

namespace crowdsurf::worker {

class Round {
 public:
  using Phase = RoundPhase;

  // CHECKs the spec: it is ours. `rule` decides the plans of own ballots; only tests give another.
  explicit Round(RoundSpec spec, PlanRule rule = MakePlan);

  void Start(RoundActions& out);  // READY to the group, ASK to the speakers of holes

  // A control frame of this instance. `from` is authenticated by the transport. Frames that do not
  // fit (superseded, not from a member, speaker or witness, impossible ranks) change nothing but
  // counts().refused.
  void OnFrame(const PeerId& from, const Frame& frame, RoundActions& out);

  // The host holds all bytes of `rank`'s input for (chunk, assigned), finite and of the right size.
  // `from` sent them: the member itself or one of its speakers. false: refused, the host drops the
  // bytes; true: the host keeps them until FoldChunk or DropInputs.
  bool OnInput(const PeerId& from, int rank, ChunkIndex chunk, Ballot assigned, RoundActions& out);
  // A bad input (NaN, Inf, wrong size): the sender is left out of that chunk.
  void OnBadInput(const PeerId& from, int rank, ChunkIndex chunk, Ballot assigned,
                  RoundActions& out);
  // The own input of the first `chunks` chunks is there. Until it is, a chunk is neither sent nor
  // folded. Less than before changes nothing.
  void OnFilled(size_t chunks, RoundActions& out);
  // So many inputs may be ahead of the results of `owner`, between the spec's least and most. More
  // than before: more go out now. Fewer: those that are out stay. Pre: `owner` is a member.
  void OnWindow(const PeerId& owner, uint32_t chunks, RoundActions& out);
  // FoldChunk is done; `hash` is the ContentHash of the result's wire bytes.
  void OnFolded(ChunkIndex chunk, Ballot assigned, uint64_t hash, RoundActions& out);
  // A result arrived and its hash was verified over the wire bytes; StoreResult follows if it is
  // wanted.
  void OnResult(const PeerId& from, ChunkIndex chunk, const ChunkValue& value, RoundActions& out);

  void OnSuspect(const PeerId& peer, SuspicionCause cause, RoundActions& out);  // anybody awaited
  void OnTrusted(const PeerId& peer, RoundActions& out);  // it was alive after all
  // Its link broke and is there again: chunks that were on their way from it may be lost, and what
  // is not here is asked for at once. Of others than members nothing is known.
  void OnRenewed(const PeerId& peer, RoundActions& out);
  // Whatever is awaited is late though nobody is suspected: next coordinator, or own next ballot.
  void OnCoordinatorLate(RoundActions& out);
  // The witnesses' quorum is gone (hard evidence, or the roster's TTL passed): branch (section 6).
  void OnQuorumLost(RoundActions& out);
  void OnSitOut(RoundActions& out);  // the round's budget is spent: KEPT
  void OnLeave(RoundActions& out);   // results are served: BYE, KEPT
  // BEAT to the members that may be waiting for this one, but for those that `hear` it anyway. ASK
  // to members that have opened the round and whose READY has not come.
  void OnBeat(const std::set<PeerId>& hear, RoundActions& out);

  bool over() const;
  Phase phase() const;
  Ballot branch() const;    // the branch whose OPEN was answered: the parent view is left; 0 none
  bool all_ready() const;   // all members' READYs are in and agree
  bool all_opened() const;  // all have opened it, be it after it was over here (HasSpoken)
  const std::vector<ChunkValue>& slots() const { return slots_; }  // once applied: the value
  // It holds no result and took no plan: whatever it said so far (READY, promises, a STATUS of
  // nothing held) is still true when the same round is opened anew with this one's Promised().
  bool empty_handed() const;
  Ballot ballot() const;  // the highest answered; 0: the fast path is open
  const RoundSpec& spec() const;
  const std::optional<RoundOver>& outcome() const;
  WitnessRecord Promised() const;  // to WitnessTable::Retire when the instance is closed
  // Whom the round waits for now, ascending: members, speakers, witnesses; the failure detector
  // watches these.
  std::set<PeerId> WaitingFor() const;
  // The same by rank, as long as it waits for members alone, for who asks at each chunk; nullopt:
  // for a stand-in, too, or for a witness that is no member.
  std::optional<RankSet> WaitingForMembers() const;
  // An awaited peer that must answer at once: a member, or a witness of the own ballot. A stand-in
  // owes nothing before its own last round is done, be it a witness or not.
  bool MustReply(const PeerId& peer) const;
  // Members that have not said READY and are not suspected: absent at the start deadline.
  std::set<PeerId> Absent() const;
  // What must be kept (a decided value, or one that may be) is with suspected members alone.
  bool AwaitsSuspects() const;
  // It is a member, a witness or a stand-in of this round.
  bool Involves(const PeerId& peer) const;
  // It is suspected, or has gone: nothing is expected of it now.
  bool Distrusts(const PeerId& peer) const;
  // The own input of `chunk` went to `owner`, and its result is not here.
  bool AwaitsResult(const PeerId& owner, ChunkIndex chunk) const;
  uint32_t window(const PeerId& owner) const;  // of OnWindow; pre: a member
  uint32_t widest() const;                     // of the windows
  // That member has opened the round: a frame of it came that nobody else sends.
  bool HasSpoken(const PeerId& peer) const;
  // Grows whenever something that was awaited came: a round that does not is stuck.
  uint64_t progress() const;
  // The same without what ballots say: it grows with READYs, inputs, results, HAVEs and votes, and
  // where another member says that it lacks fewer results than before. Ballots may follow each
  // other without end in sight; these lead to the end.
  uint64_t advances() const;
  // True while an own ballot cannot get promises from a quorum of unsuspected witnesses.
  bool witness_quorum_lost() const;
  const RoundCounts& counts() const;
  uint64_t Fingerprint() const;  // of the whole state but counts, for tests/model

 private:
  struct Fixed {  // follows from the spec; shared by copies
    RoundSpec spec;
    PlanRule rule;
    PeerId self;
    RankSet members = {};
    std::map<PeerId, int> rank_of;
    std::map<PeerId, int> witness_of;
    int witness = -1;                           // own index, -1: none
    std::vector<std::vector<PeerId>> speakers;  // by rank, ascending
    Digest member_list, parts;
  };
  struct ChunkAssignment {  // what a chunk's slot is to hold now, and who makes it
    Ballot assigned = 0;
    uint8_t owner = 0;
    RankSet holders = {};  // not empty: finished, `want` is known
    ChunkValue want;
    bool sent_first = false;  // own input, at assignment 0
    bool sent_again = false;  // ... at this assignment, when it is not 0
    RankSet given = {};       // ranks that the own result of this assignment was sent to
    int fetching = -1;        // rank that was asked for the result
  };
  struct Gathering {  // inputs of one (chunk, assigned ballot) that this member owns
    RankSet in = {};
    RankSet own = {};  // of `in`: sent by the member itself, not by a stand-in
    RankSet bad = {};
    RankSet folding = {};  // not empty: fixed, FoldChunk is out
  };
  struct Lane {  // inputs for an owner, or results to fetch of a holder: a window ahead of results
    std::vector<ChunkIndex> chunks;  // in order
    size_t next = 0;
    uint32_t out = 0;  // sent or asked for, result not here yet
  };
  struct SpeakerReplies {  // of the speakers for one rank
    bool greeted = false;
    std::optional<Digest> root;      // of the first that answered
    std::map<PeerId, bool> speaker;  // who answered; true: with that root
  };
  struct BallotName {  // a ballot of the view, or of a branch
    Ballot ballot = 0;
    bool branch = false;
  };
  struct Coordination {  // of an own ballot
    Ballot ballot = 0;
    bool branch = false;
    std::map<uint8_t, StatusFrame> statuses;
    uint64_t promised = 0;  // by witness index
    Ballot accepted = 0;
    std::optional<HeldValue> accepted_value;
    std::optional<Plan> plan;
    std::map<uint8_t, Digest> haves;
    bool accepting = false;
  };

  // round.cc
  size_t ranks() const { return fixed_->spec.cells.size(); }
  const PeerId& PeerAt(int rank) const {
    return *fixed_->spec.cells[static_cast<size_t>(rank)].member;
  }
  Ready OwnReady() const;
  int RankOf(const PeerId& peer) const;
  int self() const { return fixed_->spec.self; }
  RankSet own_rank() const { return RankSet::Of(self()); }
  // The own input of it is there.
  bool HasOwn(ChunkIndex chunk) const { return chunk.value() < filled_; }
  // Its input goes into the chunk.
  bool Covers(int rank, ChunkIndex chunk) const {
    const std::vector<RankSet>& coverers = fixed_->spec.coverers;
    return coverers.empty() || coverers[chunk.value()].Contains(static_cast<size_t>(rank));
  }
  bool AwaitsReady() const;
  bool SameBase(const Stake& stake) const;
  bool IsBehind(const Ready& other) const;
  bool Trusts(int rank) const;
  void Refuse(FrameRefusal reason) { ++counts_.refused[reason]; }
  void Emit(const PeerId& to, FrameBody body, RoundActions& out);
  void Dispatch(const PeerId& from, const FrameBody& body, RoundActions& out);
  void Drain(RoundActions& out);
  void SendDecision(int rank, RoundActions& out);
  std::optional<RoundValue> CurrentValue() const;
  void Conclude(Outcome outcome, BallotName by, RankSet members, RoundActions& out);
  void GiveUp(Outcome outcome, ByeReason reason, RoundActions& out);
  void HearBeat(const PeerId& from, const Beat& frame);

  // round_reduce.cc: READY, inputs, folds, results
  void OnReady(const PeerId& from, const Ready& frame, RoundActions& out);
  void OnFetch(const PeerId& from, const Fetch& frame, RoundActions& out);
  void StartsAnew(int rank, RoundActions& out);
  bool Offers(const PeerId& from, int rank) const;
  bool Contribution(ChunkIndex chunk, const Gathering& inputs, int rank, RankSet& mask);
  void TryFold(ChunkIndex chunk, RoundActions& out);
  void TryFoldAll(RoundActions& out);
  void Give(ChunkIndex chunk, const ChunkValue& value, RoundActions& out);
  void GiveAll(RoundActions& out);
  void FillSlot(ChunkIndex chunk, const ChunkValue& value, RoundActions& out);
  void TryHave(RoundActions& out);
  void TryFast(RoundActions& out);
  void SendHave(const HeldValue& held, RoundActions& out);

  // round_lanes.cc: own inputs
  void RebuildLanes();
  void SendInputs(int owner, RoundActions& out);
  void SendAllInputs(RoundActions& out);
  uint32_t WindowTo(int owner, Ballot assigned) const;

  // round_speakers.cc: ASK and SPEAK
  void OnAsk(const PeerId& from, const Ask& frame, RoundActions& out);
  void OnSpeak(const PeerId& from, const Speak& frame, RoundActions& out);
  bool SpokenFor(int rank) const;  // its inputs come from speakers now
  bool SpeakerLeft(int rank) const;
  void TakeSpeak(const PeerId& from, const Speak& frame);
  void HearLateSpeaks();
  void IgnoreSpeaker(const PeerId& speaker, RoundActions& out);
  void ContactSpeakers(RoundActions& out);
  void ForgetAsks();
  void AskSpeakers(RoundActions& out);
  const PeerId* SpeakerOf(int rank, ChunkIndex chunk) const;
  void AskMember(int rank, RoundActions& out);

  // round_ballots.cc: ballots as a member and witness
  void OnHave(const PeerId& from, const Have& frame, RoundActions& out);
  void OnBallotOpen(const PeerId& from, const BallotOpen& frame, RoundActions& out);
  void OnAccept(const PeerId& from, const Accept& frame, RoundActions& out);
  void OnAccepted(const PeerId& from, const Accepted& frame, RoundActions& out);
  void OnBye(const PeerId& from, const Bye& frame, RoundActions& out);
  void SuspectOther(const PeerId& peer, RoundActions& out);
  void SuspectRank(int rank, SuspicionCause cause, RoundActions& out);
  bool Needs(int rank) const;
  Ballot NextBallotOf(int rank) const;
  void StartBallot(int from, RoundActions& out);
  void AskForDecision(RoundActions& out);
  Ballot MaxBallot() const { return static_cast<Ballot>(kMaxBallots * ranks()); }
  // Its free plan proposes ABORT: so all give up by one decision, and nobody alone.
  bool MayAbort(Ballot ballot) const {
    return ballot > static_cast<size_t>(kMaxBallots - kAbortBallots) * ranks();
  }
  void Answer(BallotName name, RoundActions& out);
  StatusFrame MakeStatus(BallotName ballot) const;
  int CoordinatorOf(Ballot ballot) const { return static_cast<int>((ballot - 1) % ranks()); }

  // round_apply_plan.cc: plans, decisions, fetching
  void OnPlan(const PeerId& from, const Plan& frame, RoundActions& out);
  void OnDecided(const PeerId& from, const Decided& frame, RoundActions& out);
  bool IsValid(const Plan& plan) const;
  bool IsValid(const HeldValue& held) const;
  bool IsOfOthers(const HeldValue& held) const;
  bool InGroup(RankSet mask) const;
  void NotePlan(const Plan& plan);
  void DropStale(RoundActions& out);
  void JoinBranch(Ballot ballot, RankSet members, RoundActions& out);
  void Adopt(const Decided& decided, RoundActions& out);
  void TakePlan(const Plan& plan, RoundActions& out);
  void Assign(ChunkIndex chunk, const PlanChunk& to, RoundActions& out);
  RankSet TrustedHolders(const ChunkAssignment& assignment) const;
  bool HoldersDied() const;
  void SetFetching(ChunkAssignment& assignment, int rank);
  void FetchMissing(RoundActions& out);
  void FetchFrom(int holder, RoundActions& out);

  // round_coordinator.cc
  void OnStatus(const PeerId& from, const StatusFrame& frame, RoundActions& out);
  void OnPromise(const PeerId& from, const Promise& frame, RoundActions& out);
  void OnRefused(const PeerId& from, const Refused& frame, RoundActions& out);
  void OnForgotten(const PeerId& from, const Forgotten& frame, RoundActions& out);
  bool IsValid(const StatusFrame& status) const;
  void OpenBallot(BallotName name, RoundActions& out);
  void TryPlan(RoundActions& out);
  void CollectHave(int rank, const Have& frame, RoundActions& out);
  void TryAccept(RoundActions& out);
  void ConcludeBranch(Ballot ballot, RankSet members, RoundActions& out);

  // round_inspect.cc
  RankSet AwaitedMembers() const;
  void AwaitOthers(std::set<PeerId>& peers) const;
  void AwaitSpeakers(std::set<PeerId>& peers) const;
  bool AwaitsWitness(int index) const;
  void FingerprintChunks(ByteWriter& out) const;
  uint64_t FingerprintOver() const;

  std::shared_ptr<const Fixed> fixed_;
  // Who is there.
  RankSet ready_ = {};
  RankSet spoken_ = {};          // chooses nothing but at a beat: not part of Fingerprint
  RankSet suspected_ = {};       // members
  RankSet reset_ = {};           // of them, by a broken connection: as good as dead
  RankSet left_ = {};            // said BYE or do not fit: never trusted again
  RankSet doubted_ = {};         // were suspected once: their inputs may be lost
  std::set<PeerId> distrusted_;  // speakers and witnesses
  std::map<uint8_t, Stake> stakes_;
  RankSet own_word_ = {};  // members whose stake in stakes_ is what they said themselves
  std::map<uint8_t, SpeakerReplies> speaker_replies_;
  std::vector<std::pair<PeerId, Speak>> late_speaks_;  // heard between STATUS and PLAN
  // Reducing.
  size_t filled_ = 0;  // chunks, from the first on, of which the own input is there
  std::vector<ChunkAssignment> assignments_;
  std::vector<ChunkValue> slots_;
  size_t missing_ = 0;            // empty slots
  std::set<ChunkIndex> pending_;  // own chunks that are not finished
  std::map<std::pair<ChunkIndex, Ballot>, Gathering> inputs_;
  size_t early_ = 0;  // inputs kept for a plan that has not come
  AskedInputs asked_;
  std::set<ChunkIndex> served_;          // own chunks sent at assignment 0
  std::vector<Lane> lanes_;              // by owner
  std::vector<uint32_t> windows_;        // by owner
  RankSet follow_ = {};                  // owners that gave a result of the last plan: they have it
  std::vector<Lane> fetches_;            // by holder; out: assignments with that `fetching`
  std::map<uint8_t, uint32_t> lacking_;  // least that BEATs said since the last plan, by rank
  // Deciding.
  WitnessRecord record_;  // promised: the one ballot variable of both roles
  std::optional<Digest> have0_;
  std::map<uint8_t, Digest> haves0_;
  Ballot highest_ = 0;  // heard of in a REFUSED
  Ballot seen_ = 0;     // last plan taken
  std::map<Ballot, Digest> plans_;
  RankSet plan_members_ = {};
  RankSet excluded_ = {};
  bool plan_abort_ = false;
  std::optional<Ballot> complete_;
  bool complete_abort_ = false;
  Ballot have_sent_ = 0;  // HAVE(b), b > 0
  Digest have_value_;     // of what the witnesses would accept then
  uint64_t votes_ = 0;    // witnesses that accepted it
  Ballot branch_ = 0;
  std::optional<Coordination> coordination_;
  bool orphan_ = false;
  std::optional<Decided> target_;
  uint32_t fetch_turn_ = 0;
  std::optional<RoundOver> over_;
  bool over_branch_ = false;
  RankSet told_ = {};             // late READYs that were answered
  RankSet anew_ = {};             // said READY again
  std::vector<FrameBody> local_;  // frames to self, empty between inputs
  uint64_t progress_ = 0;         // advances()
  uint64_t ballot_progress_ = 0;  // what ballots said
  RoundCounts counts_;
};

}  // namespace crowdsurf::worker
