// Link client: the trainer's side of the trainer link, for C++ trainers (docs/trainer-link.md).
//
// Purpose: register tensors, then one call a step; snapshots are published and results applied
// inside it, by memcpy and add, with no socket and no lock (a socket is used only at registration,
// for the opaque state, and when the agent was restarted). Used by crowdsurf-trainer; depends on
// base, the pure layout and nlohmann-json only. One thread owns a client. Parameters are one flat
// float32 vector: the shared tensors in table order, packed.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "base/time.h"
#include "worker/core/link/link_layout.h"
#include "worker/core/shard/lease.h"
#include "worker/core/subnet/unit_schema.h"

namespace crowdsurf::worker {

struct LinkRegistration {
  uint64_t seed = 0;        // job-wide: make the first parameters from it, they are then equal
  std::string job, worker;  // for messages and data order
  uint64_t elements = 0;    // length of the vector that StepDone expects
  std::vector<LinkTensor> tensors;  // with offsets; kNotShared: not averaged in this job
  bool gradients = false;  // the job averages gradients: GradientDone takes the place of StepDone
};

// What a call to StepDone (or Start) found.
struct StepOutcome {
  bool published = false;   // a snapshot was taken
  bool applied = false;     // parameters changed: a result was added
  bool adopted = false;     // parameters were replaced (and the opaque state was loaded)
  bool stop = false;        // target met: leave the loop, then call AcknowledgeStop, exit 0
  bool leaving = false;     // this worker is about to be taken
  bool agent_lost = false;  // no agent for now: training goes on alone, calls keep trying
  double lr_scale = 1.0;    // multiply the learning rate by this
  uint64_t averaging = 0;   // number of the last result applied or adopted
  double job_samples = 0;   // job-wide sample count
  Duration stall;           // time this call held the trainer
};

struct LinkClientOptions {
  Duration agent_patience =
      Seconds(5);  // Blocking: an agent without a sign of life for so long is lost
  std::vector<std::string> metrics;  // names of the slots, at most kLinkMetrics
  bool gradients = false;            // the trainer can call GradientDone
};

class LinkClient {
 public:
  // The opaque state (optimizer moments, data position, rng): made and loaded at step boundaries.
  using OpaqueSource = std::function<Bytes()>;
  using OpaqueSink = std::function<Status(ByteView)>;

  // Waits until the agent in `dir` answers. Error: DeadlineExceeded naming the socket.
  static StatusOr<std::unique_ptr<LinkClient>> Connect(std::string dir, Duration patience,
                                                       LinkClientOptions options = {});
  ~LinkClient();
  LinkClient(const LinkClient&) = delete;
  LinkClient& operator=(const LinkClient&) = delete;

  // Declares the tensors and maps the file. Errors carry the agent's words: FailedPrecondition
  // (another trainer, another schema), InvalidArgument (bad tensor), ResourceExhausted (no memory:
  // names spec.agent.sharedMemory).
  StatusOr<LinkRegistration> Register(std::vector<LinkTensor> tensors);

  void SetOpaque(OpaqueSource source, OpaqueSink sink);

  // Before the first step, after filling `params` from the seed: waits while the agent holds (it is
  // fetching the job's state), adopts that state if there is one. Error: Unavailable when the agent
  // disappears for `patience`; DataLoss when the opaque state does not verify.
  StatusOr<StepOutcome> Start(std::span<float> params, Duration patience);

  // After every optimizer step: counts `samples`, then publishes, applies or adopts as asked. Pre:
  // params.size() == elements. Costs two atomic stores and a few loads, plus a pass over the vector
  // when there is something to do; in Blocking mode it waits for the result.
  StepOutcome StepDone(uint64_t samples, double loss, std::span<float> params);

  // Takes the optimizer's step with that gradient, in the parameters given to GradientDone. The
  // same input must give the same bits at all workers.
  using OptimizerStep = std::function<void(std::span<const float> gradient)>;
  // Jobs that average gradients (docs/gradients.md), after every batch: `gradient` is its mean over
  // `samples`. Gathers it; with the share gathered it waits for the step of all workers, and calls
  // `step` once with the gradient of the large batch (outcome.applied). A gradient that is not
  // finite is left out. Pre: both spans have `elements`; LinkRegistration::gradients.
  StepOutcome GradientDone(uint64_t samples, double loss, std::span<const float> gradient,
                           std::span<float> params, const OptimizerStep& step);

  // The trainer draws its samples from a data set of that length, in batches of `unit`, by the
  // leases that the job grants it (docs/shard.md). The same at all workers. Pre: Start has passed,
  // no Draw has succeeded, unit >= 1. Errors: FailedPrecondition, InvalidArgument with the agent's
  // words; Unavailable.
  Status Draw(uint64_t samples, uint32_t unit);
  // What to train next: positions of an epoch's order (epoch_order.h), at most a unit. The StepDone
  // after it counts it, and a call before that may give other leases in its place. nullopt: there
  // is none; call Pause and look again, or end where leases_closed(). FailedPrecondition: the job's
  // leases are of another data set.
  StatusOr<std::optional<Lease>> NextBatch();
  // A step boundary without a step, for a trainer that waits for leases: as StepDone, and sleeps
  // until the agent rings, a tenth of a second at most.
  StepOutcome Pause(std::span<float> params);
  bool leases_closed() const;  // this worker leaves: nothing more is to be trained

  // The units to train from here on (IST), when they have changed; nullopt: they have not. Call it
  // at a step boundary, after Start and after StepDone: what StepDone published was trained under
  // the earlier ones. DataLoss: the agent wrote no index sets; they are not taken.
  StatusOr<std::optional<IndexSets>> TakeIndexSets();

  // No step may come for so long, and the trainer lives: it is not ended as one that hangs. Before
  // an evaluation, a slow checkpoint, a first step that compiles. The next StepDone ends it.
  // Errors: NotFound (the agent is of an older version), InvalidArgument (above a week),
  // Unavailable.
  Status Busy(Duration most);
  // Slot `index` of LinkClientOptions::metrics. Cheap.
  void SetMetric(size_t index, double value);
  void AcknowledgeStop();
  // POST /v1/leave, waits for the answer at most `patience`.
  Status Leave(std::string_view reason, Duration patience);

 private:
  struct Impl;
  explicit LinkClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace crowdsurf::worker
