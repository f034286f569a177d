// The inputs of a peer that are not messages: what its host tells it.
//
// The host (agent, simulator, tests) makes these values and feeds each with `now`. Plain values;
// nothing here is owned by anybody else. Messages of other peers: messages.h. What a peer answers:
// actions.h.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>

#include "base/bytes.h"
#include "base/id.h"
#include "base/time.h"
#include "coordinator-free-dht/core/wire/record.h"
#include "worker/core/shard/lease.h"
#include "worker/core/subnet/unit_schema.h"
#include "worker/core/vector/mix.h"
#include "worker/core/vector/tensor_view.h"
#include "worker/core/view/averaging_config.h"
#include "worker/core/view/averaging_id.h"

namespace crowdsurf::worker {

// The link is there; the trainer is held until LetStart or an adopted FetchState.
struct TrainerRegistered {
  Digest schema;
  uint64_t elements = 0;
  bool fresh = true;  // false: it has trained already (the agent was restarted beside it)
  // Gradients: the step that its parameters in kInboxA are of, and the job's samples then, where it
  // goes on beside a new agent; 0: it has taken none. StateHashed follows.
  AveragingId step = {};
  double job_samples = 0;
  // Of its total of samples: in some average already, or maybe; they are not counted again.
  double counted = 0;
  TensorViews tensors = {};  // of the vector, as matrices; what none covers has no shape
  UnitSchema units = {};     // its tensors with their unit groups; no elements: not known
  // A mark of each of the first kMaxTableMarks tensors: tells which one another table has
  // otherwise.
  std::vector<uint32_t> marks = {};
  // Its first parameters are its own, and it gives a snapshot of them while it is held.
  bool gives_first = false;
};
struct TrainerGone {};
// The outbox holds the snapshot. `samples` and `step` are the trainer's totals since it registered.
struct Published {
  AveragingId averaging = {};
  double samples = 0;
  uint64_t step = 0;
  AveragingId units = {};      // TellTrainerUnits::by of those that it was trained on; 0: none
  StreamPosition leases = {};  // of the trainer at the snapshot
  double gathered = 0;         // samples that the gradient in the outbox is the mean of
};
// The trainer copies the snapshot into the outbox: its first `elements` values are there, finite.
// Comes any number of times, with ever more of them, before Published, or PublishRefused where a
// later value is not finite. A host may leave it out.
struct Filled {
  Published snapshot;
  uint64_t elements = 0;
};
// The trainer will not give a snapshot for this averaging: NaN in it.
struct PublishRefused {
  AveragingId averaging = {};
};
// Totals since it registered. The host sends it when WakeAt's mark is passed, and at leisure
// (about twice a second) for the screen and the target.
struct Progress {
  uint64_t step = 0;
  double samples = 0;
  std::optional<double> loss;
  std::map<std::string, double> metrics;
  StreamProgress leases = {};  // the host also sends it as soon as the trainer waits for leases
  // Gradients: samples gathered for the next step, and the step that the parameters are of. The
  // host also sends it when the share is there.
  double gathered = 0;
  AveragingId gathered_at = {};
};
// The trainer draws its samples from this data, by the leases that it is granted.
struct DataDeclared {
  DataSpec spec;
};
// FetchState ended. ok: the region holds the average (adopt: the trainer starts from it), the one
// asked for or a newer one that its donors had committed since.
struct StateFetched {
  AveragingId averaging = {};
  Digest root;
  bool ok = false;
  double job_samples = 0;  // of a newer average
  // Values of several averages, as donors went on; `averaging` is the newest, and there is no root.
  bool mixed = false;
};
// The host's content hash (state_fetch) of the state that was delivered, restored or offered: from
// now on this peer can be a donor of (averaging, root). No root: there was no time to hash it.
struct StateHashed {
  AveragingId averaging = {};
  Digest root;
};
// A checkpoint was found at start and its average lies in kInboxA, before TrainerRegistered.
struct RestoredCheckpoint {
  AveragingId averaging = {};
  double job_samples = 0;
  Digest root;  // content hash, as in StateHashed
  double job_seconds = 0;
  Bytes ledger = {};  // of the leases (Deliver); empty: none
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
using LocalEvent = std::variant<TrainerRegistered, TrainerGone, Published, Filled, PublishRefused,
                                Progress, StateFetched, StateHashed, RestoredCheckpoint,
                                NoticeGiven, LeaveAsked, ConfigChanged, MixSent, DataDeclared>;

struct PeerRecord {  // one DHT record of a watched key, signature verified
  std::string key;
  PeerId owner;
  Bytes value;
  Duration ttl;  // left
  // The key that signed it, and its boot. The owner is their hash. Zeros: not known, as in
  // simulations.
  dht::PublicKey key_of_owner = {};
  uint64_t boot = 0;
};

}  // namespace crowdsurf::worker
