// LinkTrace: reads what the two sides of a trainer link did, in the order in which the agent saw
// it, and says which rule of docs/trainer-link.md a trainer broke. One checker for all clients.
//
// The trainers of a trace count in whole numbers, so that their vector says exactly what is in it.
// One that marches adds i + 1 to element i in each step of kTracedUnit samples. One that draws
// leases adds 1 to element p for each sample at position p of an epoch. Words and events come in no
// fixed order from two memory locations, so the checker keeps every state that the trace allows and
// drops those that a snapshot contradicts: none left is a broken rule. Pure; the test that feeds it
// owns it. Bounds: a few states, as many as there are things on their way.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "worker/core/shard/lease.h"
#include "worker/edge/link/link_event.h"

namespace crowdsurf::worker {

inline constexpr uint64_t kTracedUnit = 8;  // samples of a step

class LinkTrace {
 public:
  enum class Motion : uint8_t { kMarches, kDrawsLeases };
  // first: the parameters that the trainer makes. unit: samples of a step, of one that draws.
  LinkTrace(Motion motion, std::vector<float> first, uint64_t unit = kTracedUnit);

  // --- what the agent did, before the call that does it ------------------------------------------
  void LetStart() { may_train_ = true; }
  void Asked(uint64_t number);  // for a snapshot
  // change: inbox - outbox.
  void Delivered(uint64_t number, std::vector<float> change);
  void Released();
  void Offered(uint64_t sequence, std::vector<float> values);  // a state to adopt
  void AskedState() { state_asked_ = true; }                   // the opaque one
  void Granted(const LeasesGranted& leases);
  void Stopped() { stopped_ = true; }
  void Restarted();  // another agent serves the folder

  // --- what the trainer did: outbox as it is at that event ---------------------------------------
  void Saw(const LinkEvent& event, std::span<const float> outbox);

  // In words, in order; empty: it kept to the page.
  const std::vector<std::string>& broken() const { return broken_; }
  uint64_t snapshots() const { return snapshots_; }  // that were compared

 private:
  // What the parameters can be: those of the last snapshot or adoption, and what came since.
  struct State {
    std::vector<float> base;
    uint64_t least = 0, most = 0;  // steps at `base`: exact after a snapshot
    StreamPosition at = {};        // of `base`, where it draws leases
    uint64_t adopted = 0;          // sequence of its last adoption
    uint64_t voided = 0;           // the last snapshot before that
    uint64_t applied = 0;          // number of the last result that was met
  };
  struct Result {
    uint64_t number = 0;
    std::vector<float> change;
  };
  struct Offer {
    uint64_t sequence = 0;
    std::vector<float> values;
  };

  void OnRegistered(const link::TrainerRegistered& event);
  void OnPublished(const link::Published& event, std::span<const float> outbox);
  void OnApplied(const link::Applied& event);
  void OnAdopted(const link::Adopted& event);
  void Break(const std::string& what) { broken_.push_back(what); }
  void CheckCounts(const link::Published& event);
  void CheckLeases(const StreamPosition& at);
  State After(const Result& result, State state) const;
  State After(const Offer& offer, State state) const;
  // Also what may have happened, and was not told yet.
  std::vector<State> Possible() const;
  std::optional<State> Match(State state, const link::Published& event,
                             std::span<const float> outbox) const;
  std::optional<State> MatchMarch(State state, const link::Published& event,
                                  std::span<const float> outbox) const;
  std::optional<State> MatchLeases(State state, const link::Published& event,
                                   std::span<const float> outbox) const;
  // By samples of the streams from `at` to `to`, values can have become the outbox.
  bool Reaches(const std::vector<float>& values, const StreamPosition& at, const StreamPosition& to,
               std::span<const float> outbox) const;
  uint64_t EndOf(const StreamPosition& at) const;  // of its stream
  // `values` and the samples [from, to) of a stream.
  std::vector<float> Trained(std::vector<float> values, uint64_t stream, uint64_t from,
                             uint64_t to) const;

  Motion motion_;
  uint64_t unit_;
  std::vector<std::string> broken_;
  std::vector<State> states_;
  bool registered_ = false, may_train_ = false, gives_first_ = false;
  bool stopped_ = false, acknowledged_ = false, state_asked_ = false, restarted_ = false;
  std::optional<uint64_t> asked_;                             // and not published yet
  uint64_t published_ = 0;                                    // number of the last snapshot
  uint64_t steps_ = 0, samples_ = 0;                          // at it
  StreamPosition told_;                                       // at it
  std::optional<Result> delivered_;                           // and not applied yet
  std::optional<Offer> offered_;                              // and not adopted yet
  std::map<uint64_t, std::map<uint64_t, uint64_t>> streams_;  // element of each position
  std::map<uint64_t, uint64_t> begins_;                       // of each stream
  std::set<uint64_t> over_;                                   // streams that an adoption ended
  uint64_t snapshots_ = 0;
};

}  // namespace crowdsurf::worker
