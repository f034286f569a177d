#include "worker/core/port/mixing_metrics.h"

namespace crowdsurf::worker {
namespace {

Counter* Pairs(MetricRegistry& r, const char* how) {
  return &r.AddCounter("crowdsurf_mix_exchanges_total",
                       "Pair exchanges of this peer by how they ended here.", {{"outcome", how}});
}
Counter* ChunksThat(MetricRegistry& r, const char* fate) {
  return &r.AddCounter(
      "crowdsurf_mix_chunks_total",
      "Chunks of snapshots and edge messages that arrived, by what became of them.",
      {{"fate", fate}});
}

void Add(Counter* counter, uint64_t now, uint64_t before) {
  if (now > before) counter->Add(static_cast<double>(now - before));
}

}  // namespace

MixingMetrics::MixingMetrics(MetricRegistry& r) {
  delivered = &r.AddCounter("crowdsurf_mix_delivered_total",
                            "Results of mixing with neighbours given to the trainer.");
  snapshots_unused = &r.AddCounter("crowdsurf_mix_snapshots_unused_total",
                                   "Snapshots that came after their view had ended.");
  rate_share =
      &r.AddGauge("crowdsurf_mix_rate_share",
                  "Share of the pair exchanges that are asked for at which this peer begins "
                  "them; below 1 where messages take longer than the interval.");
  rate_share->Set(1);
  committed_ = Pairs(r, "committed");
  aborted_ = Pairs(r, "aborted");
  pair_one_sided_ = Pairs(r, "one_sided");
  skipped_ = Pairs(r, "skipped");
  taken_ = ChunksThat(r, "taken");
  stale_ = ChunksThat(r, "stale");
  strange_ = ChunksThat(r, "strange");
  repeated_ = ChunksThat(r, "repeated");
  not_finite_ = ChunksThat(r, "not_finite");
  foreign_ = ChunksThat(r, "other_view");
  resent_ = &r.AddCounter(
      "crowdsurf_mix_frames_resent_total",
      "Frames of PowerGossip and models of pairs sent again because a neighbour missed them.");
  cut_ = &r.AddCounter("crowdsurf_mix_edges_cut_total",
                       "Edges of PowerGossip given up for the view because one end was silent.");
  one_sided_ = &r.AddCounter(
      "crowdsurf_mix_one_sided_total",
      "Edges of PowerGossip that went down when this end alone may have applied its last update.");
}

// Adds what the totals have grown by since the last call.
void MixingMetrics::Count(const PairExchange::Counters& pairs, const EdgeMailbox::Counters& edges,
                          uint64_t foreign) {
  Add(committed_, pairs.committed, pairs_.committed);
  Add(aborted_, pairs.aborted, pairs_.aborted);
  Add(pair_one_sided_, pairs.one_sided, pairs_.one_sided);
  Add(skipped_, pairs.skipped, pairs_.skipped);
  Add(resent_, pairs.resent, pairs_.resent);
  Add(taken_, edges.taken, edges_.taken);
  Add(stale_, edges.stale, edges_.stale);
  Add(strange_, edges.strange + pairs.strange, edges_.strange + pairs_.strange);
  Add(repeated_, pairs.repeated, pairs_.repeated);
  Add(not_finite_, edges.not_finite + pairs.not_finite, edges_.not_finite + pairs_.not_finite);
  Add(foreign_, foreign, foreign_seen_);
  pairs_ = pairs;
  edges_ = edges;
  foreign_seen_ = foreign;
}

void MixingMetrics::Count(const PowerExchange::Counters& power) {
  Add(taken_, power.taken, power_.taken);
  Add(stale_, power.stale, power_.stale);
  Add(strange_, power.strange, power_.strange);
  Add(repeated_, power.repeated, power_.repeated);
  Add(not_finite_, power.not_finite, power_.not_finite);
  Add(resent_, power.resent, power_.resent);
  Add(cut_, power.cut, power_.cut);
  Add(one_sided_, power.one_sided, power_.one_sided);
  power_ = power;
}

}  // namespace crowdsurf::worker
