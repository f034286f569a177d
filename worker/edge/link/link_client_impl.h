// Link client, inside: what its five files share (link_client.cc: the trainer's calls;
// link_client_agent.cc: finding the agent, registering, and noticing that it has gone;
// link_client_values.cc: snapshots out, results and adopted state in; link_client_gradients.cc:
// gradients gathered, and their steps; link_client_leases.cc: leases of data). One thread owns it
// all.
#pragma once

#include <absl/functional/function_ref.h>

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "worker/core/shard/lease_queue.h"
#include "worker/edge/link/link_client.h"
#include "worker/edge/link/link_http.h"
#include "worker/edge/link/link_mapping.h"

namespace crowdsurf::worker {

struct LinkClient::Impl {
  // Between tries to reach an agent that is starting.
  static constexpr Duration kRetry = Milliseconds(20);
  // Of a wait on the bell; between reconnections.
  static constexpr Duration kSlice = Milliseconds(100);
  // For one request; making `tensors` clears 3 x the model.
  static constexpr Duration kAnswer = Seconds(30);

  std::string dir;
  LinkClientOptions options;
  std::optional<HttpClient>
      http;  // the registration connection: its being open is our sign of life
  std::optional<LinkMapping> mapping;
  std::vector<LinkTensor> tensors;
  std::map<uint32_t, uint32_t> units;  // of each unit group of the averaged tensors
  OpaqueSource opaque_source;
  OpaqueSink opaque_sink;

  bool training = false;  // has made a step or passed Start: has state of its own
  uint64_t epoch = 0;     // of the agent we are registered with
  uint64_t steps = 0, samples = 0;
  uint64_t rung_steps = 0, rung_samples = 0;  // marks already rung for
  uint64_t beat = 0;
  Time beat_at;       // when the beat last moved, or the agent was last found connected
  Time beat_moved;    // when the beat last moved
  Time reconnect_at;  // not before, unless another agent has come
  uint64_t tried_epoch = 0;
  bool lost = false;
  uint64_t voided = 0;  // a snapshot from before an adoption: its result is acknowledged, not added

  bool gradients = false;   // the job averages gradients; then:
  std::vector<float> mean;  // of the samples gathered
  uint64_t gathered = 0;    // samples
  bool share_told = false;  // that the share is there

  DataSpec data;                        // that it draws from
  std::optional<LeaseQueue> leases;     // since Draw
  std::optional<uint64_t> leases_read;  // the leases_version that they are of

  LinkControl& control() { return mapping->control(); }

  // the agent (link_client_agent.cc)
  static Status StatusOf(const HttpReply& reply);  // its words in it
  StatusOr<LinkRegistration> Register();
  // True when we are registered with the same agent as before the call.
  bool WatchAgent(Time now);
  bool Reconnect(Time now);

  // values (link_client_values.cc)
  bool OutboxFree();
  void Publish(uint64_t ticket, std::span<const float> params);
  // Gives `take` the result of the snapshot that lies in the outbox: a change is against that one
  // alone. True: there was one, which counts as taken now.
  bool TakeResult(StepOutcome& outcome, absl::FunctionRef<void(std::span<const float>)> take);
  bool Apply(std::span<float> params, StepOutcome& outcome);
  // kWhole: the parameters and the opaque state, both or neither.
  enum class Adoption : uint8_t { kWhole, kParametersOnly };
  Status Adopt(std::span<float> params, Adoption adoption, StepOutcome& outcome);
  bool GiveOpaque();  // true when it was asked for
  void WaitForResult(std::span<float> params, StepOutcome& outcome);

  // gradients (link_client_gradients.cc)
  void Gather(uint64_t batch, std::span<const float> gradient);  // a mean over so many samples
  void TellShare();
  void AdoptIfAsked(std::span<float> params, StepOutcome& outcome);
  bool ApplyGradient(std::span<float> params, const OptimizerStep& step, StepOutcome& outcome);
  // The parameters are those of `averaging`: they lie in inbox 0 from here on.
  void TakeStep(std::span<const float> params, uint64_t averaging);
  void MeetOthers(std::span<float> params, const OptimizerStep& step, StepOutcome& outcome);

  // leases (link_client_leases.cc)
  Status DeclareData();
  Status ReadGrants();  // what was granted since
  void TellLeases();
  void TellWaits(bool waits);

  // steps (link_client.cc)
  StepOutcome Boundary(std::span<float> params, Time began);
  void RingMarks();
  void Count(uint64_t new_samples, double loss);
  void Finish(StepOutcome& outcome);
  void CountStall(Time began, StepOutcome& outcome);
};

}  // namespace crowdsurf::worker
