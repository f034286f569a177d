// Agent metrics: every name that the agent's edge counts, once. (crowdsurf_round_* come from the
// core, crowdsurf_tensor_* from tensor_metrics.h, crowdsurf_dht_* and transport from the DHT room.)
//
// One row a metric: a handle, its name, its help. All begin at zero. Handles are shared and
// thread-safe.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "base/metrics.h"
#include "worker/core/averaging/averaging_parts.h"

namespace crowdsurf::worker {

struct AgentMetrics {
  explicit AgentMetrics(MetricRegistry& r) : registry(r) {
    for (size_t part = 0; part < kAveragingParts.size(); ++part)
      averaging_parts[part] = AveragingPartSeconds(kAveragingParts[part]);
  }

  MetricRegistry& registry;
  Counter& steps =
      registry.AddCounter("crowdsurf_worker_steps_total", "Optimizer steps of the trainer.");
  Counter& samples = registry.AddCounter("crowdsurf_worker_samples_total",
                                         "Samples that the trainer has processed.");
  Counter& stall_seconds = registry.AddCounter("crowdsurf_worker_stall_seconds_total",
                                               "Time the trainer was held by averaging.");
  Gauge& loss = registry.AddGauge("crowdsurf_worker_loss", "Last loss the trainer reported.");
  Gauge& view_epoch = registry.AddGauge("crowdsurf_worker_view_epoch", "Epoch of the view.");
  Gauge& branch =
      registry.AddGauge("crowdsurf_worker_view_branch", "1 while the view is a branch.");
  Gauge& ready = registry.AddGauge("crowdsurf_worker_ready", "1 when the agent is ready.");
  Counter& delivered = registry.AddCounter("crowdsurf_worker_results_delivered_total",
                                           "Averages given to the trainer.");
  Counter& refused_snapshots = registry.AddCounter("crowdsurf_worker_snapshots_refused_total",
                                                   "Snapshots refused because of NaN or infinity.");
  Counter& bad_inputs = registry.AddCounter(
      "crowdsurf_worker_inputs_bad_total",
      "Chunks from peers with a wrong size, NaN or infinity, or beyond the byte bound.");
  Counter& strange_chunks = registry.AddCounter("crowdsurf_worker_chunks_unknown_total",
                                                "Chunks of instances that are not open here.");
  Gauge& waiting_sends = registry.AddGauge("crowdsurf_worker_sends_waiting_frames",
                                           "Chunks, and messages of strategies on graphs, that "
                                           "wait for room in a peer's queue.");
  Counter& sends_dropped_full = SendsDropped("full");
  Counter& sends_dropped_dead = SendsDropped("peer_dead");
  Counter& send_retries = registry.AddCounter(
      "crowdsurf_worker_send_retries_total",
      "Times a peer's waiting chunks were tried again though its queue did not say that it "
      "had drained.");
  // Its series is made by the first: 200,000 peers have come before it.
  Counter& EndpointsForgotten() {
    return registry.AddCounter("crowdsurf_worker_endpoints_forgotten_total",
                               "Addresses of peers forgotten to make room for others.");
  }
  Counter& power_reseeds = registry.AddCounter(
      "crowdsurf_worker_power_reseeds_total",
      "Edges of PowerGossip whose factors differed at their ends and were drawn anew.");
  Gauge& held_bytes =
      registry.AddGauge("crowdsurf_worker_inputs_held_bytes", "Inputs held until they are folded.");
  Counter& trainer_silences = registry.AddCounter(
      "crowdsurf_worker_trainer_silences_total",
      "Times the trainer made no step for so long that its seat was given back.");
  Counter& trainer_hangs = registry.AddCounter("crowdsurf_worker_trainer_hangs_total",
                                               "Times the trainer was found to hang.");
  Counter& agent_crashes = registry.AddCounter("crowdsurf_worker_agent_crashes_total",
                                               "Crashes of this worker's agents before this one.");
  Counter& deaths_dropped =
      registry.AddCounter("crowdsurf_worker_deaths_dropped_total",
                          "Lost workers that were not noted because too many are.");
  Counter& config_refused = registry.AddCounter("crowdsurf_worker_config_refused_total",
                                                "New versions of the config file that were wrong.");
  Counter& seats_refused_tensors = SeatsRefused("other_tensors");
  Counter& seats_refused_other = SeatsRefused("other");
  Counter& state_fetches_ok = StateFetches("ok");
  Counter& state_fetches_failed = StateFetches("failed");
  Counter& checkpoints = registry.AddCounter("crowdsurf_worker_checkpoints_total",
                                             "Checkpoints written by this agent as steward.");
  Counter& checkpoints_failed = registry.AddCounter("crowdsurf_worker_checkpoints_failed_total",
                                                    "Checkpoints that could not be written.");

  Counter& averaging_seconds = registry.AddCounter(
      "crowdsurf_worker_averaging_seconds_total",
      "Seconds of delivered averagings, from the request for the snapshot to the mean.");
  std::array<Counter*, kAveragingParts.size()> averaging_parts;  // by AveragingPart

 private:
  Counter* AveragingPartSeconds(std::string_view part) {
    return &registry.AddCounter(
        "crowdsurf_worker_averaging_part_seconds_total",
        "Seconds of delivered averagings, by what this agent did; work overlaps, waits do not.",
        {{"part", std::string(part)}});
  }

  Counter& StateFetches(const char* result) {
    return registry.AddCounter("crowdsurf_worker_state_fetches_total",
                               "Transfers of a committed average, by end.", {{"result", result}});
  }

  Counter& SendsDropped(const char* reason) {
    return registry.AddCounter("crowdsurf_worker_sends_dropped_total",
                               "Chunks that waited for room in a peer's queue and were dropped.",
                               {{"reason", reason}});
  }

  Counter& SeatsRefused(const char* reason) {
    return registry.AddCounter("crowdsurf_worker_seats_refused_total",
                               "Times this worker was refused a seat for long, by reason.",
                               {{"reason", reason}});
  }
};

}  // namespace crowdsurf::worker
