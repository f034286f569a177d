// Peer: everything an agent decides, as one state machine: roster, view, joins, averagings, rounds,
// stand-ins.
//
// The host (agent, simulator, tests) feeds inputs with `now` and executes the actions of each, in
// order, before the next input. It composes: roster.h (who is alive), membership.h (steward, seats,
// successor views, branches), averaging.h (due, publish, rounds, catch-up, stand-ins, sample
// count), witness.h, strategy.h. Tensor bytes never pass through: chunks are named by (RoundHandle,
// rank, chunk, assigned ballot) and held by the host (reducer.h). Single sequence. Every map here
// is bounded by the view's size or a constant with a counter.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/id.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/rng.h"
#include "base/time.h"
#include "worker/core/averaging_config.h"
#include "worker/core/peer_summary.h"
#include "worker/core/round.h"
#include "worker/core/strategy.h"
#include "worker/core/view.h"

namespace crowdsurf::worker {

struct PeerConfig {
  std::string job;
  std::string worker;  // the pod's name, for people
  PeerId id;
  std::string peer_endpoint;  // host:port of the gRPC server
  std::string tensor_endpoint;
  std::string http_endpoint;
  bool on_demand = false;
  std::string zone;
  int64_t started_unix_ms = 0;  // wall clock when the agent started: seniority in the job
  AveragingConfig averaging;    // what the config file says; a newer one comes as ConfigChanged
  // Protocol timing; the simulator shrinks or stretches them.
  Duration heartbeat = Seconds(1);
  Duration form_delay = Milliseconds(150);     // before a fresh agent forms a view of one
  Duration view_debounce = Milliseconds(100);  // joiners that come together share a view
  Duration least_silence = Milliseconds(50);   // round-protocol.md 9: max(50 ms, median + 6 MAD)
  Duration most_silence = Seconds(1);
  size_t chunk_elements = 32'768;             // 128 KiB of float32: reduced while in L2
  StrategyFactory strategies = MakeStrategy;  // what opens rounds; only tests give another
};

// ---- inputs that are not messages

// The link is there; the trainer is held until LetStart or an adopted FetchState.
struct TrainerRegistered {
  Digest schema;
  uint64_t elements = 0;
  bool fresh = true;  // false: it has trained already (the agent was restarted beside it)
  // Of its total of samples: in some average already, or maybe; they are not counted again.
  double counted = 0;
};
struct TrainerGone {};
// The outbox holds the snapshot. `samples` and `step` are the trainer's totals since it registered.
struct Published {
  uint64_t averaging = 0;
  double samples = 0;
  uint64_t step = 0;
};
// The trainer will not give a snapshot for this averaging: NaN in it.
struct PublishRefused {
  uint64_t averaging = 0;
};
// Totals since it registered. The host sends it when WakeAt's mark is passed, and at leisure
// (about twice a second) for the screen and the target.
struct Progress {
  uint64_t step = 0;
  double samples = 0;
  std::optional<double> loss;
  std::map<std::string, double> metrics;
};
// FetchState ended. ok: the region holds the average (adopt: the trainer starts from it), the one
// asked for or a newer one that its donors had committed since.
struct StateFetched {
  uint64_t averaging = 0;
  Digest root;
  bool ok = false;
  double job_samples = 0;  // of a newer average
};
// The host's content hash (state_fetch) of the region that was delivered or restored: from now on
// this peer can be a donor of (averaging, root).
struct StateHashed {
  uint64_t averaging = 0;
  Digest root;
};
// A checkpoint was found at start and its average lies in kInboxA, before TrainerRegistered.
struct RestoredCheckpoint {
  uint64_t averaging = 0;
  double job_samples = 0;
  Digest root;  // content hash, as in StateHashed
  double job_seconds = 0;
};
struct NoticeGiven {
  Time deadline;
};  // the platform will take this worker
struct LeaveAsked {};
struct ConfigChanged {
  AveragingConfig config;
};
// All chunks of a MixSend were given to the transport (or had become void).
struct MixSent {
  PeerId to;
  MixTag tag = kPairTag;
  uint64_t sequence = 0;
};
using LocalEvent =
    std::variant<TrainerRegistered, TrainerGone, Published, PublishRefused, Progress, StateFetched,
                 StateHashed, RestoredCheckpoint, NoticeGiven, LeaveAsked, ConfigChanged, MixSent>;

// ---- actions

using RoundHandle = uint64_t;  // local number of an open round

struct Send {
  PeerId to;
  Bytes body;
};  // WORKER channel
struct Introduce {
  PeerId peer;
  std::string peer_endpoint;
  std::string tensor_endpoint;
};  // how to reach a peer
struct PutRecord {
  std::string key;
  Bytes value;
  Duration ttl;
};  // DHT, subkey = own id, signed by the edge
struct WatchKey {
  std::string key;
};
struct UnwatchKey {
  std::string key;
};
// The host makes buffers for an instance: input region -> output region, chunked as spec.chunks, in
// the view's format.
struct OpenBuffers {
  RoundHandle round;
  InstanceId instance;
  int self;  // own rank
  std::vector<ChunkSpan> chunks;
  Region from;
  Region to;  // what it held before is void from now on
  WireFormat wire;
  double weight;        // own
  CoordinateMask mask;  // own coordinates that go in
};
// The instance is closed: nobody will ask for its chunks any more. The output region stays as it
// is.
struct CloseBuffers {
  RoundHandle round;
};
// SendInput, SendResult, FoldChunk, StoreResult, EmptySlot, DropInputs; never SendFrame or
// RoundOver.
struct Chunk {
  RoundHandle round;
  RoundAction action;
};
// As a stand-in: own values of `region` as the input of `rank` in somebody else's instance.
struct SpeakChunk {
  InstanceId instance;
  Region region;
  PeerId to;
  int rank;
  uint32_t chunk;
  Ballot assigned;
  ChunkSpan span;
  WireFormat wire;
};
struct RequestPublish {
  uint64_t averaging;
};
// Wake me with Progress when the trainer's totals pass either mark (0: never). Replaces the last.
struct WakeAt {
  uint64_t steps;
  double samples;
};
struct LetStart {};  // the held trainer starts from its own first parameters
// The averaging is complete in `region`; the trainer gets region - outbox; the outbox is free once
// that is applied. The host answers with StateHashed when it has hashed the region.
struct Deliver {
  uint64_t averaging;
  Region region;
  double samples;      // in this averaging, job-wide
  double job_samples;  // in all up to now
  Digest root;         // of the last round's value: equal within its group
};
struct ReleaseOutbox {
  uint64_t averaging;
};
// Fetch the committed average `averaging` with content hash `root` from any of `donors` into
// `region`; adopt: the trainer takes it (and a donor's opaque state) in place of its own, and
// starts. Ends with StateFetched. A newer FetchState replaces it.
struct FetchState {
  uint64_t averaging;
  Digest root;
  std::vector<PeerId> donors;
  Region region;
  bool adopt;
};
struct WriteCheckpoint {
  bool final_model;
};  // this peer is the steward

// ---- strategies on graphs (mix.h)

// ReserveRegions and RunKernel of strategy.h are actions too: the first says which regions from
// kExtra0 on there must be from now on (their contents are void), the second runs at once.

// Sends chunks 0..chunks-1 of a message: for each, when the transport has room, DescribeMix says
// what it is made of. Ends with MixSent, unless the peer is found dead.
struct MixSend {
  PeerId to;
  MixTag tag = kPairTag;
  uint64_t sequence = 0;
  uint32_t chunks = 0;
};
struct DeliverMix {     // the trainer adds region - outbox
  uint64_t number = 0;  // of the RequestPublish
  Region region = Region::kInboxA;
};
struct TellLrScale {
  double scale = 1;  // the trainer multiplies its learning rate by it
};
struct JobCounted {  // an averaging that counts samples and moves no parameters is over
  uint64_t averaging = 0;
  double job_samples = 0;
};
struct RaiseStop {};
struct Leave {
  std::string reason;
};  // everything is handed over: the host may exit
using Action =
    std::variant<Send, Introduce, PutRecord, WatchKey, UnwatchKey, OpenBuffers, CloseBuffers, Chunk,
                 SpeakChunk, RequestPublish, WakeAt, LetStart, Deliver, ReleaseOutbox, FetchState,
                 WriteCheckpoint, RaiseStop, Leave, ReserveRegions, RunKernel, MixSend, DeliverMix,
                 TellLrScale, JobCounted>;
using Actions = std::vector<Action>;

// A chunk that arrived on the tensor plane; the host holds its bytes until the call returns.
struct ChunkArrived {
  enum class Kind : uint8_t { kInput, kResult } kind;
  InstanceId instance;
  PeerId from;
  int rank = 0;  // kInput: whose values
  uint32_t chunk = 0;
  Ballot assigned = 0;
  Mask mask = 0;       // kResult
  uint64_t hash = 0;   // kResult, verified by the host over the wire bytes
  bool finite = true;  // kInput: size is right and no NaN or Inf
};

struct PeerRecord {  // one DHT record of a watched key, signature verified
  std::string key;
  PeerId owner;
  Bytes value;
  Duration ttl;  // left
};

class Peer {
 public:
  Peer(PeerConfig config, Rng rng, Logger log, MetricRegistry& metrics);
  ~Peer();

  void Start(Time now, Actions& out);
  void OnMessage(Time now, const PeerId& from, ByteView body, Actions& out);
  // Also the first answer to a WatchKey when there is no record: then `records` is empty.
  void OnRecords(Time now, const std::vector<PeerRecord>& records, Actions& out);
  void OnPeerDown(Time now, const PeerId& peer, bool hard, Actions& out);
  // True when the host must keep an input's bytes for a later FoldChunk.
  bool OnChunk(Time now, const ChunkArrived& chunk, Actions& out);
  void OnFolded(Time now, RoundHandle round, uint32_t chunk, Ballot assigned, uint64_t hash,
                Actions& out);
  // Strategies on graphs: where a chunk that arrived is to be stored (nullopt: nowhere); then, when
  // it lies there or was refused, OnMixChunk. `stored`: it had a place, the right size and finite
  // values. DescribeMix: what a chunk of a MixSend is made of (nullopt: void by now).
  std::optional<MixPlace> PlaceMix(const MixArrived& chunk) const;
  void OnMixChunk(Time now, const MixArrived& chunk, bool stored, Actions& out);
  std::optional<MixChunk> DescribeMix(const PeerId& to, MixTag tag, uint64_t sequence,
                                      uint32_t chunk) const;
  void OnLocal(Time now, const LocalEvent& event, Actions& out);
  void OnTimer(Time now, Actions& out);  // pre: now >= NextDeadline()
  Time NextDeadline() const;             // Infinite when idle

  PeerSummary Summarize() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace crowdsurf::worker
