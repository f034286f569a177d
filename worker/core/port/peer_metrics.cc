#include "worker/core/port/peer_metrics.h"

namespace crowdsurf::worker {
namespace {

Counter* Rounds(MetricRegistry& r, const char* outcome) {
  return &r.AddCounter("crowdsurf_round_total", "Rounds of this peer by how they ended.",
                       {{"outcome", outcome}});
}
Counter* Ballots(MetricRegistry& r, const char* cause) {
  return &r.AddCounter("crowdsurf_round_ballots_total", "Ballots opened or asked for, by cause.",
                       {{"cause", cause}});
}
Counter* Chunks(MetricRegistry& r, const char* how) {
  return &r.AddCounter("crowdsurf_round_chunks_total",
                       "Chunks of applied results, by how they came about.", {{"how", how}});
}
Counter* FramesRefused(MetricRegistry& r, std::string_view reason) {
  return &r.AddCounter("crowdsurf_round_frames_refused_total",
                       "Frames of rounds refused, by reason.", {{"reason", std::string(reason)}});
}
Counter* MessagesRefused(MetricRegistry& r, std::string_view reason) {
  return &r.AddCounter("crowdsurf_peer_messages_refused_total",
                       "Messages of peers refused, by reason.", {{"reason", std::string(reason)}});
}

std::map<SuspicionCause, Counter*> BallotsByCause(MetricRegistry& r) {
  return {{SuspicionCause::kReset, Ballots(r, "reset")},
          {SuspicionCause::kSilence, Ballots(r, "silence")},
          {SuspicionCause::kBye, Ballots(r, "bye")},
          {SuspicionCause::kAbsent, Ballots(r, "absent")},
          {SuspicionCause::kMismatch, Ballots(r, "mismatch")}};
}

}  // namespace

PeerMetrics::PeerMetrics(MetricRegistry& r) : mixing(r), registry_(r) {
  for (const Outcome outcome : {Outcome::kFast, Outcome::kRepaired, Outcome::kAdopted,
                                Outcome::kKept, Outcome::kAborted, Outcome::kOrphaned})
    rounds[outcome] = Rounds(r, NameOf(outcome));
  rounds_left = Rounds(r, NameOf(Outcome::kLeft));
  rounds[Outcome::kLeft] = rounds_left;
  rounds_branch = Rounds(r, "branch");
  ballots = BallotsByCause(r);
  ballots_late = Ballots(r, "late");
  chunks_first = Chunks(r, "first");
  chunks_adopted = Chunks(r, "adopted");
  chunks_reduced_again = Chunks(r, "reduced_again");
  round_seconds =
      &r.AddHistogram("crowdsurf_round_decision_seconds", "From opening a round to its decision.",
                      {.005, .01, .03, .1, .3, 1, 3, 10, 30, 100});
  send_window_bytes = &r.AddGauge(
      "crowdsurf_round_send_window_bytes",
      "The most bytes of inputs that may be under way to one owner, in the last round.");
  divergence = &r.AddCounter("crowdsurf_round_divergence_total",
                             "Members that applied different results; page on 1.");
  root_mismatch = &r.AddCounter("crowdsurf_round_root_mismatch_total", "HAVEs with another root.");
  witness_quorum_lost = &r.AddCounter("crowdsurf_round_witness_quorum_lost_total",
                                      "Views whose witnesses were lost.");
  branches = &r.AddCounter("crowdsurf_round_branches_total", "Branch views entered.");
  members_missing =
      &r.AddCounter("crowdsurf_round_members_missing_total", "Members left out of decided rounds.");
  lists_differed = &r.AddCounter("crowdsurf_round_lists_differed_total",
                                 "Rounds opened again because lists of seats differed.");
  averagings_delivered =
      &r.AddCounter("crowdsurf_averaging_delivered_total", "Averagings given to the trainer.");
  leases_committed = &r.AddGauge("crowdsurf_leases_committed_samples",
                                 "Samples of leases in the job's average, all epochs together.");
  leases_returned = &r.AddGauge("crowdsurf_leases_returned_samples",
                                "Samples of leases taken back from workers that are gone.");
  leases_void = &r.AddGauge("crowdsurf_leases_void_claims",
                            "Claims of leases that had been taken back; watch for above 0.");
  leases_crowded =
      &r.AddCounter("crowdsurf_leases_crowded_total",
                    "Averagings without room for the own claim of leases: too many members claim.");
  averagings_abandoned = &r.AddCounter("crowdsurf_averaging_abandoned_total",
                                       "Averagings that gave nothing: own values stay.");
  const auto outer = [&r](const char* kind) {
    return &r.AddCounter("crowdsurf_averaging_outer_total",
                         "Averagings with an outer optimizer: a step from the common base, a base "
                         "that begins anew, or one fetched after it was missed.",
                         {{"kind", kind}});
  };
  outer_steps = outer("step");
  outer_begins = outer("begin");
  outer_catch_ups = outer("fetched");
  const auto first = [&r](const char* result) {
    return &r.AddCounter("crowdsurf_first_parameters_total",
                         "First parameters of a job: given by its first member, not given in time, "
                         "or not fetched, so that the trainer started from its own.",
                         {{"result", result}});
  };
  first_given = first("given");
  first_none = first("none");
  first_own = first("own");
  views = &r.AddCounter("crowdsurf_view_changes_total", "Views entered.");
  seats = &r.AddCounter("crowdsurf_view_seats_total", "Seats given by this peer as steward.");
  vacancies = &r.AddCounter("crowdsurf_view_vacancies_total", "Cells this peer declared vacant.");
  joins_asked = &r.AddCounter("crowdsurf_view_join_requests_total", "Join requests sent.");
  members = &r.AddGauge("crowdsurf_view_members", "Members seated in the present view.");
  job_samples =
      &r.AddGauge("crowdsurf_averaging_job_samples", "Samples in committed averages, job-wide.");
  averaging = &r.AddGauge("crowdsurf_averaging_committed", "Number of the last committed average.");
}

void PeerMetrics::RefuseFrame(FrameRefusal reason, double count) {
  if (count <= 0) return;
  Counter*& counter = frames_refused_[static_cast<size_t>(reason)];
  if (counter == nullptr)
    counter = FramesRefused(registry_, kFrameRefusals[static_cast<size_t>(reason)]);
  counter->Add(count);
}

void PeerMetrics::RefuseMessage(MessageRefusal reason) {
  Counter*& counter = messages_refused_[static_cast<size_t>(reason)];
  if (counter == nullptr)
    counter = MessagesRefused(registry_, kMessageRefusals[static_cast<size_t>(reason)]);
  counter->Add();
}

void PeerMetrics::RefuseView(ViewFlaw flaw) {
  Counter*& counter = views_refused_[static_cast<size_t>(flaw)];
  if (counter == nullptr)
    counter = MessagesRefused(registry_, kViewFlaws[static_cast<size_t>(flaw)]);
  counter->Add();
}

}  // namespace crowdsurf::worker
