// PeerMetrics: every metric of the peer core, declared once (docs/metrics.md).
//
// Made by Peer from its registry; components hold a reference. Counters are shared and thread-safe;
// making them is single sequence. No peer ids in labels.
#pragma once

#include <array>
#include <map>

#include "base/metrics.h"
#include "worker/core/port/message_refusal.h"
#include "worker/core/port/mixing_metrics.h"
#include "worker/core/round/frame_refusal.h"
#include "worker/core/round/round_actions.h"
#include "worker/core/view/view.h"

namespace crowdsurf::worker {

struct PeerMetrics {
  explicit PeerMetrics(MetricRegistry& registry);

  std::map<Outcome, Counter*> rounds;  // crowdsurf_round_total{outcome}
  Counter* rounds_left;                // ... {outcome="left"}: it departed, or is a base behind
  Counter* rounds_branch;              // ... {outcome="branch"}: left because the view broke up
  std::map<SuspicionCause, Counter*> ballots;
  Counter* ballots_late;
  Counter* chunks_first;
  Counter* chunks_adopted;
  Counter* chunks_reduced_again;
  Histogram* round_seconds;
  Gauge* send_window_bytes;
  Counter* divergence;
  Counter* root_mismatch;
  Counter* witness_quorum_lost;
  Counter* branches;
  Counter* members_missing;
  Counter* lists_differed;
  Counter* averagings_delivered;
  Counter* averagings_abandoned;
  Gauge* leases_committed;
  Gauge* leases_returned;
  Gauge* leases_void;
  Counter* leases_crowded;
  Counter* outer_steps;
  Counter* outer_begins;
  Counter* outer_catch_ups;
  Counter* first_given;
  Counter* first_none;
  Counter* first_own;
  Counter* views;
  Counter* seats;
  Counter* vacancies;
  Counter* joins_asked;
  Gauge* members;
  Gauge* job_samples;
  Gauge* averaging;
  MixingMetrics mixing;  // strategies on graphs

  void RefuseFrame(FrameRefusal reason, double count = 1);
  void RefuseMessage(MessageRefusal reason);
  void RefuseView(ViewFlaw flaw);  // pre: not kNone

 private:
  // By reason: crowdsurf_round_frames_refused_total and crowdsurf_peer_messages_refused_total. Made
  // by the first refusal: at zero they would be a quarter of a worker's series (at most 250).
  MetricRegistry& registry_;
  std::array<Counter*, kFrameRefusals.size()> frames_refused_ = {};
  std::array<Counter*, kMessageRefusals.size()> messages_refused_ = {};
  std::array<Counter*, kViewFlaws.size()> views_refused_ = {};
};

}  // namespace crowdsurf::worker
