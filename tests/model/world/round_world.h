// A world of one instance: members, holes, stand-ins and witnesses under delays, loss, duplication,
// reordering, crashes and false suspicion; then it is healed and must finish.
//
// Everything follows from the seed. The checkers look at what hosts applied and at the frames on
// the wire, never into a Round. `Bug` plants a fault from outside: in a host, on the wire, or as
// another plan rule.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "base/status.h"
#include "tests/model/world/round_host.h"

namespace crowdsurf::worker::testing {

enum class Bug : uint8_t {
  kNone,
  kApplyEarly,           // flips when all slots are filled, no HAVE wait
  kFastOnMajority,       // HAVE(0) of a majority counts as everybody's
  kWitnessForgets,       // outside witnesses and their records: every answer is the first
  kIgnorePromises,       // the coordinator does not wait for its witnesses
  kIgnoreAccepted,       // PROMISE without what was accepted
  kStoreUntold,          // results are written though the round did not say so
  kTwoMasks,             // an owner serves another mask to one member, and roots are not compared
  kAcceptEarly,          // ACCEPT before all of S hold the value
  kFoldBackwards,        // one member folds in another order
  kFlagEarly,            // the flag flips before the last chunk
  kPlanIgnoresComplete,  // plan rule: without rule 3, and slots are not adopted
  kNoWitnesses,          // committed as soon as all of the plan hold it: no quorum accepts it
  kHalfIsEnough,         // half of the witnesses are a quorum, whichever half
  kFastAfterStatus,      // HAVE(0) is sent by members that answered a ballot without it
  kTwoWeights,           // a member tells one other another weight; roots are as they should be
  kRootWithoutWeights,   // ... and weights are left out of the root
  kFoldOnArrival,        // one member folds in the order in which inputs came
};

struct WorldOptions {
  uint64_t seed = 0;
  Bug bug = Bug::kNone;
  int members = 0;             // 0: by the seed, 2..6
  int holes = -1;              // -1: by the seed
  int outside_witnesses = -1;  // -1: by the seed; 0: the members are the witnesses
  bool later_round = true;     // members have stand-ins too (half of the seeds)
  double loss = -1;            // -1: by the seed
  double crash = 0.4;          // share of members that may crash
  double false_suspicion = 0.3;
  bool calm = false;   // no faults but delays
  bool codec = false;  // every frame through bytes
  bool trace = false;  // prints what is sent, suspected and decided
};

// Plan rules with a planted flaw.
std::optional<Plan> RuleIgnoringComplete(const PlanQuestion& question);
PlanRule RuleOf(Bug bug);

class RoundWorld {
 public:
  explicit RoundWorld(WorldOptions options);

  // Faults, then healing. Empty when all statements held; else what broke.
  std::string Run();

  struct Tally {
    int fast = 0, repaired = 0, adopted = 0, kept = 0, aborted = 0, orphaned = 0;
    int dead = 0, quorum_lost = 0, whole = 0;  // whole: every rank's value is in the result
    int late = 0;                              // nudges that the healed world needed
    size_t events = 0, bytes = 0, waiting_by_rank = 0;
  };
  const Tally& tally() const { return tally_; }

 private:
  void MakeGroup();
  RoundSpec SpecOf(int rank) const;
  void At(uint64_t delay, std::function<void()> run) {
    queue_[{now_ + delay, order_++}] = std::move(run);
  }
  void Post(const PeerId& from, const PeerId& to, Payload payload);
  void Deliver(const PeerId& from, const PeerId& to, const Payload& payload);
  void DeliverToMember(RoundHost& host, const PeerId& from, const Payload& payload);
  void DeliverToSpeaker(const PeerId& self, const PeerId& from, const Payload& payload);
  void DeliverToWitness(const PeerId& self, const PeerId& from, const Payload& payload);
  void Run(RoundHost& host, const RoundActions& actions);
  bool Tamper(const PeerId& from, const PeerId& to, Payload& payload);
  bool TamperMore(const PeerId& from, const PeerId& to, Frame& frame);
  void CommitAtOnce(const PeerId& coordinator, const Accept& accept);
  void MakeHalfEnough(const PeerId& from, const PeerId& to, const Frame& frame);
  void HaveAfterStatus(const RoundHost& host);
  bool CompareWithoutWeights(const PeerId& from, const PeerId& to, const Have& have);
  std::optional<RoundValue> HeldBy(const RoundHost& host) const;
  void Watch(const PeerId& from, const Payload& payload);
  void Chaos();
  void Suspect(int observer, const PeerId& peer, SuspicionCause cause);
  void Crash(const PeerId& peer);
  void Heal();
  bool Settled() const;
  void Fail(const std::string& what) {
    if (failure_.empty())
      failure_ = absl::StrCat(what, " (seed ", options_.seed, ", at ", now_, ")");
  }
  void CheckDecision(const Digest& root, RankSet members);
  void CheckEnd();
  void CheckApplied(const RoundHost& host);
  void CheckWaiting(const RoundHost& host);
  bool QuorumLives() const;
  RoundHost& HostAt(int rank) { return *hosts_.at(rank); }
  bool SlotsFull(const RoundHost& host, size_t but) const;
  RankSet AcceptedMembers() const;
  void Late(int rank);
  void SetWindow(int rank, const PeerId& owner, uint32_t chunks);
  void Trace(const std::string& what) const;

  WorldOptions options_;
  Rng rng_;
  std::map<std::pair<uint64_t, uint64_t>, std::function<void()>> queue_;
  uint64_t now_ = 0, order_ = 0;
  bool healing_ = false;
  double loss_ = 0, duplicate_ = 0;
  uint64_t slow_ = 1;

  std::vector<RoundCell> cells_;
  std::vector<PeerId> witnesses_;
  std::vector<ChunkSpan> chunks_;
  std::vector<std::vector<double>> values_;  // by rank, holes too
  std::vector<double> weights_;
  std::map<int, std::unique_ptr<RoundHost>> hosts_;
  std::map<PeerId, int> rank_of_;
  std::map<PeerId, std::unique_ptr<Speaker>> speakers_;
  std::map<PeerId, int> spoken_;  // rank a speaker holds
  std::map<PeerId, WitnessTable> tables_;
  std::set<PeerId> dead_;
  std::set<std::pair<int, PeerId>> doubts_;  // (observer, suspect) in force
  InstanceId instance_;
  Digest schema_;

  // Seen on the wire.
  std::map<int, Digest> have0_;
  std::map<std::pair<Ballot, Digest>, std::pair<std::set<PeerId>, Bytes>> accepted_;
  std::optional<Digest> decided_;
  std::optional<RoundValue> decided_value_;
  RankSet decided_members_ = {};
  std::map<PeerId, Digest> own_root_;  // planted kTwoMasks
  std::set<PeerId> heard_;             // planted kFastOnMajority
  // Planted kHalfIsEnough: witnesses whose answer came, by (coordinator or learner, ballot, value).
  std::map<std::tuple<PeerId, Ballot, Digest>, std::set<PeerId>> answered_;
  std::map<PeerId, Digest> bare_root_;  // planted kRootWithoutWeights
  std::string failure_;
  Tally tally_;
};

}  // namespace crowdsurf::worker::testing
