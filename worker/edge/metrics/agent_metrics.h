// Agent metrics: every name that the agent's edge counts, once. (crowdsurf_round_* come from the
// core, crowdsurf_tensor_* from tensor_metrics.h, crowdsurf_dht_* and transport from the DHT room.)
//
// Handles are shared and thread-safe.
#pragma once

#include "base/metrics.h"

namespace crowdsurf::worker {

struct AgentMetrics {
  explicit AgentMetrics(MetricRegistry& registry)
      : steps(
            registry.AddCounter("crowdsurf_worker_steps_total", "Optimizer steps of the trainer.")),
        samples(registry.AddCounter("crowdsurf_worker_samples_total",
                                    "Samples that the trainer has processed.")),
        stall_seconds(registry.AddCounter("crowdsurf_worker_stall_seconds_total",
                                          "Time the trainer was held by averaging.")),
        loss(registry.AddGauge("crowdsurf_worker_loss", "Last loss the trainer reported.")),
        view_epoch(registry.AddGauge("crowdsurf_worker_view_epoch", "Epoch of the view.")),
        branch(registry.AddGauge("crowdsurf_worker_view_branch", "1 while the view is a branch.")),
        ready(registry.AddGauge("crowdsurf_worker_ready", "1 when the agent is ready.")),
        delivered(registry.AddCounter("crowdsurf_worker_results_delivered_total",
                                      "Averages given to the trainer.")),
        refused_snapshots(registry.AddCounter("crowdsurf_worker_snapshots_refused_total",
                                              "Snapshots refused because of NaN or infinity.")),
        bad_inputs(registry.AddCounter(
            "crowdsurf_worker_inputs_bad_total",
            "Chunks from peers with a wrong size, NaN or infinity, or beyond the byte bound.")),
        strange_chunks(registry.AddCounter("crowdsurf_worker_chunks_unknown_total",
                                           "Chunks of instances that are not open here.")),
        waiting_sends(registry.AddGauge("crowdsurf_worker_sends_waiting_frames",
                                        "Chunks that wait for room in a peer's queue.")),
        sends_dropped_full(SendsDropped(registry, "full")),
        sends_dropped_dead(SendsDropped(registry, "peer_dead")),
        send_retries(registry.AddCounter(
            "crowdsurf_worker_send_retries_total",
            "Times a peer's waiting chunks were tried again though its queue did not say that it "
            "had drained.")),
        held_bytes(registry.AddGauge("crowdsurf_worker_inputs_held_bytes",
                                     "Inputs held until they are folded.")),
        trainer_silences(registry.AddCounter(
            "crowdsurf_worker_trainer_silences_total",
            "Times the trainer made no step for so long that its seat was given back.")),
        trainer_hangs(registry.AddCounter("crowdsurf_worker_trainer_hangs_total",
                                          "Times the trainer was found to hang.")),
        agent_crashes(registry.AddCounter("crowdsurf_worker_agent_crashes_total",
                                          "Crashes of this worker's agents before this one.")),
        deaths_dropped(
            registry.AddCounter("crowdsurf_worker_deaths_dropped_total",
                                "Lost workers that were not noted because too many are.")),
        config_refused(registry.AddCounter("crowdsurf_worker_config_refused_total",
                                           "New versions of the config file that were wrong.")),
        seats_refused_tensors(SeatsRefused(registry, "other_tensors")),
        seats_refused_other(SeatsRefused(registry, "other")),
        state_fetches_ok(StateFetches(registry, "ok")),
        state_fetches_failed(StateFetches(registry, "failed")),
        checkpoints(registry.AddCounter("crowdsurf_worker_checkpoints_total",
                                        "Checkpoints written by this agent as steward.")),
        checkpoints_failed(registry.AddCounter("crowdsurf_worker_checkpoints_failed_total",
                                               "Checkpoints that could not be written.")) {}

  static Counter& StateFetches(MetricRegistry& registry, const char* result) {
    return registry.AddCounter("crowdsurf_worker_state_fetches_total",
                               "Transfers of a committed average, by end.", {{"result", result}});
  }

  static Counter& SendsDropped(MetricRegistry& registry, const char* reason) {
    return registry.AddCounter("crowdsurf_worker_sends_dropped_total",
                               "Chunks that waited for room in a peer's queue and were dropped.",
                               {{"reason", reason}});
  }

  static Counter& SeatsRefused(MetricRegistry& registry, const char* reason) {
    return registry.AddCounter("crowdsurf_worker_seats_refused_total",
                               "Times this worker was refused a seat for long, by reason.",
                               {{"reason", reason}});
  }

  Counter& steps;
  Counter& samples;
  Counter& stall_seconds;
  Gauge& loss;
  Gauge& view_epoch;
  Gauge& branch;
  Gauge& ready;
  Counter& delivered;
  Counter& refused_snapshots;
  Counter& bad_inputs;
  Counter& strange_chunks;
  Gauge& waiting_sends;
  Counter& sends_dropped_full;
  Counter& sends_dropped_dead;
  Counter& send_retries;
  Gauge& held_bytes;
  Counter& trainer_silences;
  Counter& trainer_hangs;
  Counter& agent_crashes;
  Counter& deaths_dropped;
  Counter& config_refused;
  Counter& seats_refused_tensors;
  Counter& seats_refused_other;
  Counter& state_fetches_ok;
  Counter& state_fetches_failed;
  Counter& checkpoints;
  Counter& checkpoints_failed;
};

}  // namespace crowdsurf::worker
