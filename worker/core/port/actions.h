// The actions of a peer: what its host has to do, in order, before it gives the next input.
//
// A core never acts: it appends to Actions. The host (agent, simulator, tests) visits every
// alternative. Plain values; regions and handles are names of what the host holds.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/id.h"
#include "base/time.h"
#include "worker/core/port/trainer_actions.h"
#include "worker/core/power/power_action.h"
#include "worker/core/round/arrived_chunk.h"
#include "worker/core/round/chunk_index.h"
#include "worker/core/round/round_actions.h"
#include "worker/core/round/round_spec.h"
#include "worker/core/vector/coordinate_mask.h"
#include "worker/core/vector/mix.h"
#include "worker/core/vector/wire_format.h"
#include "worker/core/view/averaging_id.h"

namespace crowdsurf::worker {

struct SubnetRound;

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
  // IST: the coordinates of the chunks, which then are no stretches of the region; what nobody
  // covers is kInboxA's (RoundBuffers::base). Null: chunks are stretches of the region.
  std::shared_ptr<const SubnetRound> subnet;
  // Int8: `from` is a snapshot, and what it has beyond kInboxA goes in (RoundBuffers::from_base);
  // kRest too, where it holds one.
  bool from_base = false;
  bool with_rest = false;
  uint32_t dither = 0;  // RoundBuffers'
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
  ChunkIndex chunk = {};
  Ballot assigned;
  ChunkSpan span;
  WireFormat wire;
};
// Fetch the committed average `averaging` with content hash `root` from any of `donors` into
// `region`, and its velocity, or zeros, into kVelocity when all of it is there; adopt: the trainer
// takes it (and a donor's opaque state) in place of its own, and starts; it may then be of several
// averages, where donors go on. Ends with StateFetched. A newer FetchState replaces it.
struct FetchState {
  AveragingId averaging = {};
  Digest root;
  std::vector<PeerId> donors;
  Region region;
  bool adopt;
};
struct WriteCheckpoint {
  bool final_model;
};  // this peer is the steward

// ---- strategies on graphs (mix.h)

// ReserveRegions and RunKernel of mix.h are actions too: the first says which regions from
// kExtra0 on there must be from now on (their contents are void), the second runs at once. So does
// PowerAction (power_action.h), on the host's PowerEdges.

// Sends all chunks of a message: for each, when the transport has room, DescribeMix says what it is
// made of. Ends with MixSent, unless the peer is found dead or a newer one of the peer and tag
// comes first: that takes its place, and goes on with the chunk that is next (chunk_turn.h).
struct MixSend {
  PeerId to;
  MixTag tag = kPairTag;
  uint64_t sequence = 0;
  uint32_t chunks = 0;
};
struct RaiseStop {};
struct Leave {
  std::string reason;
};  // everything is handed over: the host may exit
using Action =
    std::variant<Send, Introduce, PutRecord, WatchKey, UnwatchKey, OpenBuffers, CloseBuffers, Chunk,
                 SpeakChunk, RequestPublish, WakeAt, LetStart, Deliver, ReleaseOutbox, FetchState,
                 WriteCheckpoint, RaiseStop, Leave, ReserveRegions, RunKernel, MixSend, DeliverMix,
                 TellLrScale, JobCounted, PowerAction, MoveTrainer, TellTrainerUnits, GrantLeases,
                 OfferState, TellShare>;
using Actions = std::vector<Action>;

}  // namespace crowdsurf::worker
