// PeerMetrics: every metric of the peer core, declared once (docs/metrics.md).
//
// Made by Peer from its registry; components hold a reference. Counters are shared and thread-safe;
// making them is single sequence. No peer ids in labels.
#pragma once

#include <map>
#include <string>

#include "base/metrics.h"
#include "worker/core/port/mixing_metrics.h"
#include "worker/core/round/round.h"

namespace crowdsurf::worker {

struct PeerMetrics {
  explicit PeerMetrics(MetricRegistry& registry);

  std::map<Outcome, Counter*> rounds;  // crowdsurf_round_total{outcome}
  Counter* rounds_left;                // ... {outcome="left"}: this peer departed in the middle
  Counter* rounds_branch;              // ... {outcome="branch"}: left because the view broke up
  std::map<SuspicionCause, Counter*> ballots;
  Counter* ballots_late;
  Counter* chunks_first;
  Counter* chunks_adopted;
  Counter* chunks_reduced_again;
  Histogram* round_seconds;
  Counter* divergence;
  Counter* root_mismatch;
  Counter* witness_quorum_lost;
  Counter* branches;
  Counter* members_missing;
  Counter* lists_differed;
  Counter* averagings_delivered;
  Counter* averagings_abandoned;
  Counter* views;
  Counter* seats;
  Counter* vacancies;
  Counter* joins_asked;
  Gauge* members;
  Gauge* job_samples;
  Gauge* averaging;
  MixingMetrics mixing;  // strategies on graphs

  // crowdsurf_round_frames_refused_total{reason} and crowdsurf_peer_messages_refused_total{reason};
  // reasons are a closed set in the code.
  void RefuseFrame(const std::string& reason, double count = 1);
  void RefuseMessage(const std::string& reason);

 private:
  MetricRegistry& registry_;
};

}  // namespace crowdsurf::worker
