#include "worker/core/port/mixing_metrics.h"

namespace crowdsurf::worker {
namespace {

Counter* Pairs(MetricRegistry& r, const char* how) {
  return &r.AddCounter("crowdsurf_mix_exchanges_total",
                       "Pair exchanges of this peer by how they ended.", {{"outcome", how}});
}
Counter* ChunksThat(MetricRegistry& r, const char* fate) {
  return &r.AddCounter(
      "crowdsurf_mix_chunks_total",
      "Chunks of snapshots and edge messages that arrived, by what became of them.",
      {{"fate", fate}});
}

}  // namespace

MixingMetrics::MixingMetrics(MetricRegistry& r) {
  delivered = &r.AddCounter("crowdsurf_mix_delivered_total",
                            "Results of exchanges and edge steps given to the trainer.");
  snapshots_unused = &r.AddCounter("crowdsurf_mix_snapshots_unused_total",
                                   "Snapshots that came after their exchange had ended.");
  committed_ = Pairs(r, "committed");
  aborted_ = Pairs(r, "aborted");
  busy_ = Pairs(r, "busy");
  refused_ = Pairs(r, "refused");
  taken_ = ChunksThat(r, "taken");
  stale_ = ChunksThat(r, "stale");
  strange_ = ChunksThat(r, "strange");
  repeated_ = ChunksThat(r, "repeated");
  not_finite_ = ChunksThat(r, "not_finite");
  foreign_ = ChunksThat(r, "other_view");
}

void MixingMetrics::Count(const PairExchange::Counters& pairs, const EdgeMailbox::Counters& edges,
                          uint64_t foreign) {
  const auto add = [](Counter* counter, uint64_t now, uint64_t before) {
    if (now > before) counter->Add(static_cast<double>(now - before));
  };
  add(committed_, pairs.committed, pairs_.committed);
  add(aborted_, pairs.aborted - pairs.busy, pairs_.aborted - pairs_.busy);
  add(busy_, pairs.busy, pairs_.busy);
  add(refused_, pairs.refused, pairs_.refused);
  add(taken_, edges.taken, edges_.taken);
  add(stale_, edges.stale, edges_.stale);
  add(strange_, edges.strange + pairs.strange, edges_.strange + pairs_.strange);
  add(repeated_, pairs.repeated, pairs_.repeated);
  add(not_finite_, edges.not_finite + pairs.not_finite, edges_.not_finite + pairs_.not_finite);
  add(foreign_, foreign, foreign_seen_);
  pairs_ = pairs;
  edges_ = edges;
  foreign_seen_ = foreign;
}

}  // namespace crowdsurf::worker
