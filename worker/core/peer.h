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
  AveragingConfig averaging;  // what the config file says; a newer one comes as ConfigChanged
  // Protocol timing; the simulator shrinks or stretches them.
  Duration heartbeat = Seconds(1);
  Duration form_delay = Milliseconds(150);     // before a fresh agent forms a view of one
  Duration view_debounce = Milliseconds(100);  // joiners that come together share a view
  Duration least_silence = Milliseconds(50);   // round-protocol.md 9: max(50 ms, median + 6 MAD)
  Duration most_silence = Seconds(1);
  size_t chunk_elements = 32'768;  // 128 KiB of float32: reduced while in L2
};

// ---- inputs that are not messages
// ----------------------------------------------------------------------------------
struct TrainerRegistered {
  Digest schema;
  uint64_t elements;
};
struct TrainerGone {};
struct Published {
  uint64_t averaging;
  double samples;
  uint64_t step;
};  // outbox filled; samples since the last one
struct PublishRefused {
  uint64_t averaging;
};  // NaN in the snapshot, or the trainer went away
struct Progress {
  uint64_t step;
  double samples;
  std::optional<double> loss;
  std::optional<double> metric;
};
struct StateFetched {
  uint64_t averaging;
  Digest root;
  bool ok;
};  // a joiner's (or a catch-up's) transfer ended
struct RestoredCheckpoint {
  uint64_t averaging;
  double job_samples;
  Digest root;
};  // found at start
struct NoticeGiven {
  Time deadline;
};  // the platform will take this worker
struct LeaveAsked {};
struct ConfigChanged {
  AveragingConfig config;
};
using LocalEvent =
    std::variant<TrainerRegistered, TrainerGone, Published, PublishRefused, Progress, StateFetched,
                 RestoredCheckpoint, NoticeGiven, LeaveAsked, ConfigChanged>;

// ---- actions
// -------------------------------------------------------------------------------------------------------
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
  std::vector<ChunkSpan> chunks;
  Region from;
  Region to;
  WireFormat wire;
  std::vector<double> weights;
};
struct CloseBuffers {
  RoundHandle round;
  bool keep_output;
};
struct Chunk {
  RoundHandle round;
  RoundAction action;
};  // SendInput, SendResult, FoldChunk, StoreResult, ...
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
struct Deliver {
  uint64_t averaging;
  Region region;
  double weight;
  double job_samples;
  Digest root;
};
struct ReleaseOutbox {
  uint64_t averaging;
};
// Fetch the committed average `averaging` with `root` from any of `donors` into an inbox, and the
// opaque state.
struct FetchState {
  uint64_t averaging;
  Digest root;
  std::vector<PeerId> donors;
  bool adopt;
};
struct WriteCheckpoint {
  bool final_model;
};  // this peer is the steward
struct RaiseStop {};
struct Leave {
  std::string reason;
};  // everything is handed over: the host may exit
using Action = std::variant<Send, Introduce, PutRecord, WatchKey, UnwatchKey, OpenBuffers,
                            CloseBuffers, Chunk, SpeakChunk, RequestPublish, Deliver, ReleaseOutbox,
                            FetchState, WriteCheckpoint, RaiseStop, Leave>;
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
  void OnRecords(Time now, const std::vector<PeerRecord>& records, Actions& out);
  void OnPeerDown(Time now, const PeerId& peer, bool hard, Actions& out);
  // True when the host must keep an input's bytes for a later FoldChunk.
  bool OnChunk(Time now, const ChunkArrived& chunk, Actions& out);
  void OnFolded(Time now, RoundHandle round, uint32_t chunk, Ballot assigned, uint64_t hash,
                Actions& out);
  void OnLocal(Time now, const LocalEvent& event, Actions& out);
  void OnTimer(Time now, Actions& out);  // pre: now >= NextDeadline()
  Time NextDeadline() const;             // Infinite when idle

  struct Summary;  // contracts of GET /summary; defined in peer_summary.h
  Summary Summarize() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace crowdsurf::worker
