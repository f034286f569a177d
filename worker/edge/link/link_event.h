// Link events: what the trainer's side of the link tells the agent's host thread.
//
// Made by LinkServer's two threads and given to the sink that the host passed to it (which posts
// into the host's mailbox). Values only, nothing borrowed: an event may be handled any time later.
// At most one Published is outstanding at a time; all others are edge-triggered and rare.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "base/id.h"
#include "worker/core/link/link_layout.h"
#include "worker/core/shard/lease.h"
#include "worker/edge/link/held_state.h"

namespace crowdsurf::worker {
namespace link {  // the peer core has events of the same names: link::Published and Published
                  // differ

// A trainer registered and holds its connection. `fresh`: it has just started and has no state of
// its own, `hold` is raised and it waits for LetStart or OfferAdoption. Not fresh: the agent was
// restarted beside a living trainer, which goes on stepping.
struct TrainerRegistered {
  uint64_t session = 0;
  Digest schema;
  uint64_t elements = 0;  // length of the averaged vector
  bool fresh = true;
  std::vector<LinkTensor> tensors;
  bool gives_first = false;  // it answers a request for a snapshot also while it is held
};
struct TrainerGone {  // its connection ended
  uint64_t session = 0;
};
// The outbox holds the trainer's snapshot for averaging `number`, checked: all values are finite.
// It stays as it is until ReleaseOutbox or Deliver. steps and samples: since the trainer
// registered.
struct Published {
  uint64_t number = 0;
  uint64_t steps = 0;
  uint64_t samples = 0;
  bool units_taken = true;  // it was trained on the last index sets that were written
  StreamPosition leases = {};
  uint64_t gathered = 0;  // samples of the gradient, where gradients are averaged
};
// The trainer copies that snapshot: its first `elements` values are there, all finite. More of them
// follow, then Published, or PublishRefused. Only where the trainer says how far it is.
struct Filled {
  Published snapshot;
  uint64_t elements = 0;
};
// The snapshot had a NaN or an infinity (at flat index `element`); it was counted and released.
struct PublishRefused {
  uint64_t number = 0;
  uint64_t element = 0;
};
struct Applied {  // the delivered result is in the trainer's parameters
  uint64_t number = 0;
};
struct Adopted {  // the offered state is the trainer's
  uint64_t sequence = 0;
};
struct StepsReached {  // the mark of WakeAt was passed
  uint64_t steps = 0;
  uint64_t samples = 0;
};
struct OpaqueGiven {  // the trainer's opaque state asked for by RequestOpaque has arrived
  uint64_t sequence = 0;
  HeldOpaque opaque;  // of the step that the trainer says
};
struct DataDeclared {  // POST /v1/data: the trainer draws leases of it
  DataSpec spec;
};
struct LeasesWaited {};  // the trainer has come to the end of its leases, or has seen that they are
                         // closed
struct ShareGathered {};  // the trainer has its share of a step, and waits
struct StopAcknowledged {};
struct BusyDeclared {  // POST /v1/busy: no step may come for so long, and the trainer lives
  double seconds = 0;
};
struct CheckpointRequested {};  // POST /v1/checkpoint
struct LeaveRequested {         // POST /v1/leave; answered by LinkServer::LeaveDone
  std::string reason;
};

}  // namespace link

using LinkEvent = std::variant<link::TrainerRegistered, link::TrainerGone, link::Published,
                               link::Filled, link::PublishRefused, link::Applied, link::Adopted,
                               link::StepsReached, link::OpaqueGiven, link::StopAcknowledged,
                               link::CheckpointRequested, link::LeaveRequested, link::BusyDeclared,
                               link::DataDeclared, link::LeasesWaited, link::ShareGathered>;

// A relaxed reading of the words, for progress and scheduling.
struct LinkCounters {
  bool connected = false;  // a trainer holds its connection
  uint64_t steps = 0;
  uint64_t samples = 0;
  uint64_t published = 0;
  uint64_t applied = 0;
  uint64_t published_samples = 0;  // of the last snapshot: its total then
  bool waits_for_agent = false;    // held for state, or for a result in Blocking mode
  StreamProgress leases = {};
  uint64_t gathered = 0;  // samples of the gradient of the next step
  uint64_t step = 0;      // averaging that its parameters are of, where gradients are averaged
  uint64_t order = 0;     // hash of the first batches that it drew; 0: not known
  double stall_seconds = 0;
  double loss = 0;                        // NaN: not known
  std::map<std::string, double> metrics;  // by the names the trainer registered; NaN left out
};

}  // namespace crowdsurf::worker
