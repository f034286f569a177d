// State exchange: hosts the two cores that hand the last committed average to a joiner.
//
// Purpose: StateFetch (this agent joins) and StateDonor (others join) decide; this moves the bytes
// between the link's inboxes, the trainer's opaque state and state frames of the tensor plane. An
// average is named by the content digest of its values (its root in the roster), so members of
// different groups are donors of one average. The opaque state is asked of the trainer only when a
// joiner wants a manifest; the joiner waits for it a moment. Host thread only. Bounds: one fetch,
// kMaxWaiting held requests.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/status.h"
#include "worker/core/port/actions.h"
#include "worker/core/reduce/reducer.h"
#include "worker/core/state/state_donor.h"
#include "worker/core/state/state_fetch.h"
#include "worker/core/view/averaging_id.h"
#include "worker/edge/link/held_state.h"
#include "worker/edge/metrics/agent_metrics.h"
#include "worker/edge/state/outer_memory.h"

namespace crowdsurf::worker {

// What the exchange needs of the agent.
struct StateExchangeHost {
  std::function<std::span<float>(int inbox)> inbox;
  std::function<std::span<const float>()> velocity;  // of what an inbox holds; empty: none
  std::function<bool(const PeerId& to, SharedBytes payload)> send;  // false: no way to it
  std::function<bool()> request_opaque;  // false: no trainer to ask; else OnOpaque follows
  std::function<StatusOr<std::unique_ptr<HeldState>>(uint64_t bytes)> make_room;
  // Hashes elsewhere; the exchange's OnOpaqueHashed follows. False: too much is being done already.
  std::function<bool(std::shared_ptr<const HeldState> state, uint64_t number)> hash;
};

class StateExchange {
 public:
  static constexpr size_t kMaxWaiting = 16;
  // Opaque states and averages of one step go together (docs/gradients.md), or are not given.
  void SetExact(bool exact) {
    exact_ = exact;
    donor_.SetExact(exact);
  }

  StateExchange(StateExchangeHost host, AgentMetrics& metrics, MetricRegistry& registry,
                Logger log);

  // ---- as a donor ----
  // Values as a state of that number and schema. About 0.1 s a gigabyte. Any thread.
  static StateManifest Describe(const StateValues& values, AveragingId averaging,
                                double job_samples, const Digest& schema);
  // The same of values that lie as a round has decided them: hashes none of them. nullopt: its
  // chunks are no manifest's.
  static std::optional<StateManifest> Describe(const ResultHashes& hashes, AveragingId averaging,
                                               double job_samples, const Digest& schema);
  // Inbox `inbox` holds that average; with the velocity, if its manifest says so. Returns the
  // content digest.
  Digest Offer(int inbox, StateManifest manifest);
  void Retire(int inbox);  // it is about to be written
  // Counts up when the inbox is retired: what was described before is not there any more.
  uint64_t writes(int inbox) const { return writes_[static_cast<size_t>(inbox)]; }
  // The trainer's opaque state arrived.
  void OnOpaque(Time now, HeldOpaque opaque);

  // ---- as a joiner ----
  struct Fetched {
    FetchState request;
    bool ok = false;
    // What came: the number asked for or, when nobody had that, a newer one.
    AveragingId averaging = {};
    Digest content;      // none: of several averages
    bool mixed = false;  // chunks of several averages, that number's is the newest
    double job_samples = 0;
    std::optional<HeldOpaque> opaque;
    HeldVelocity velocity;  // that came with it
  };
  // Replaces a fetch in progress. Averages follow each other, and donors keep only the last: the
  // newest that is offered is taken. What a trainer adopts may be of several, as they follow each
  // other meanwhile. Pre: the region is an inbox.
  void Fetch(Time now, const FetchState& request, const Digest& schema, uint64_t elements);
  bool fetching() const { return fetch_.has_value(); }

  // ---- inputs for both; each may finish the fetch ----
  void OnFrame(Time now, const PeerId& from, ByteView payload);
  void OnPeerDown(Time now, const PeerId& peer);
  void OnTimer(Time now);
  void OnOpaqueHashed(Time now, uint64_t number, const Digest& hash);
  Time NextDeadline() const;
  // The fetch that has ended since the last call.
  std::optional<Fetched> TakeFetched() { return std::exchange(fetched_, std::nullopt); }

 private:
  struct Running {
    FetchState request;
    StateFetch core;
    std::shared_ptr<HeldState> opaque;
    HeldVelocity velocity;  // made by its first chunk
    std::optional<HeldOpaque> verified;
    Digest wanted;        // of what is being hashed
    uint64_t number = 0;  // of that
  };
  struct WaitingRequest {
    PeerId from;
    StateMessage message;
  };
  void Execute(Time now, const FetchActions& actions, ByteView payload);
  void Finish(const FetchDone* done);  // nullptr: failed
  void Answer(Time now, const PeerId& from, const StateMessage& message);
  bool AppendPart(const SendState& send, Bytes& body) const;
  void AnswerWaiting(Time now);
  void ForgetWaiting(const PeerId& peer);
  void Keep(const KeepChunk& chunk, ByteView payload);
  void KeepOpaquePart(const KeepOpaque& part, ByteView payload);

  const StateExchangeHost host_;
  AgentMetrics& metrics_;
  MetricRegistry& registry_;
  const Logger log_;
  bool exact_ = false;
  StateDonor donor_;
  std::array<uint64_t, 2> writes_{};
  uint64_t hashes_ = 0;  // asked for
  std::optional<Running> fetch_;
  std::optional<Fetched> fetched_;
  std::vector<WaitingRequest> waiting_;  // for the trainer's opaque state
  Time waiting_until_ = Time::Infinite();
  std::optional<HeldOpaque> opaque_;
};

}  // namespace crowdsurf::worker
