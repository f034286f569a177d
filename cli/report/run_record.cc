#include "cli/report/run_record.h"

#include <algorithm>
#include <cmath>

namespace crowdsurf::cli {
namespace {

using controller::AgentSummary;
using controller::SummaryRounds;

constexpr size_t kMaxPoints = 2000;     // more than a screen has pixels
constexpr double kPeerLossWindow = 10;  // seconds after a loss in which a failed round is its doing
constexpr double kWarmUp = 3;           // seconds before a worker's own rate counts as nominal
constexpr double kMinPace = 2;          // seconds of training that tell a worker's own rate

// A counter may only grow; an agent that restarted counts from zero again.
uint64_t Grown(uint64_t before, uint64_t now) { return now >= before ? now - before : now; }

// The seconds of a summary go with its number: all of one look, or of an agent that began anew.
void AddGrown(const controller::SummaryAveragings& before, const controller::SummaryAveragings& now,
              controller::SummaryAveragings& sums) {
  const bool anew = now.number < before.number || now.whole < before.whole;
  const controller::SummaryAveragings from = anew ? controller::SummaryAveragings() : before;
  sums.number += now.number - from.number;
  sums.whole += now.whole - from.whole;
  for (size_t part = 0; part < now.parts.size(); ++part)
    sums.parts[part] += std::max(0.0, now.parts[part] - from.parts[part]);
}

}  // namespace

std::optional<double> Percentile(std::vector<double> values, double share) {
  if (values.empty()) return std::nullopt;
  std::sort(values.begin(), values.end());
  const double rank = std::ceil(share * static_cast<double>(values.size()));
  return values[static_cast<size_t>(std::max(1.0, rank)) - 1];
}

void RunRecord::Created(double at, const std::string& worker, int index, int incarnation) {
  WorkerLife& life = workers_[worker].life;
  life.name = worker;
  life.index = index;
  life.incarnation = incarnation;
  life.created = at;
}

void RunRecord::Noticed(double at, const std::string& worker) {
  const auto it = workers_.find(worker);
  // After the end machines go without a loss to anybody.
  if (it == workers_.end() || it->second.life.noticed || finished_) return;
  it->second.life.noticed = at;
  waiting_[it->second.life.index] = at;
  ++sums_.preemptions;
  last_loss_at_ = at;
}

void RunRecord::Taken(double at, const std::string& worker) {
  const auto it = workers_.find(worker);
  if (it == workers_.end() || it->second.life.taken) return;
  WorkerLife& life = it->second.life;
  life.taken = at;
  last_loss_at_ = at;
  if (life.noticed || finished_) return;  // counted when it was told
  waiting_[life.index] = at;
  ++sums_.preemptions;
}

void RunRecord::Ended(double at, const std::string& worker) {
  const auto it = workers_.find(worker);
  if (it != workers_.end() && !it->second.life.ended) it->second.life.ended = at;
}

void RunRecord::Saw(double at, const std::string& worker, const AgentSummary& summary, Told told) {
  const bool leaving = told == Told::kToLeave;
  Seen& seen = workers_[worker];
  WorkerLife& life = seen.life;
  if (summary.first_step_unix && !life.first_step) {
    const double first = *summary.first_step_unix;
    life.first_step = first;
    life.with_state = summary.joined_with_state;
    first_step_ = std::min(first_step_.value_or(first), first);
    const auto lost = waiting_.find(life.index);
    // Only a worker that the loss had made is its replacement; events of one look may be out of
    // order.
    if (lost != waiting_.end() && life.created >= lost->second - 1) {
      replacements_.push_back(std::max(0.0, first - lost->second));
      waiting_.erase(lost);
    }
    indices_started_.insert(life.index);
    // By index and not by worker: a replacement of one that never trained does not count twice.
    if (!started_at_ && indices_started_.size() >= static_cast<size_t>(replicas_))
      started_at_ = first;
  }
  const SummaryRounds &was = seen.last.rounds, &is = summary.rounds;
  // Sums of increments, since a worker's counters go with it and those of its replacement begin at
  // zero.
  sums_.rounds_completed += Grown(was.completed, is.completed);
  sums_.rounds_repaired += Grown(was.repaired, is.repaired);
  sums_.hash_mismatches += Grown(seen.last.hash_mismatches, summary.hash_mismatches);
  AddGrown(seen.last.averagings, summary.averagings, sums_.averagings);
  // The round may have ended before the notice was seen here, so the last look counts as well.
  if (!leaving && !seen.leaving) {
    const uint64_t failed = Grown(was.failed(), is.failed());
    sums_.rounds_failed += failed;
    if (at - last_loss_at_ <= kPeerLossWindow) sums_.rounds_failed_by_peer_loss += failed;
  }
  // The first steps fill caches and wait for the first view; they would pull the pace down.
  if (life.first_step && at - *life.first_step > kWarmUp && !leaving && !summary.target_met)
    Pace(at, summary, seen);
  seen.last = summary;
  seen.last_at = at;
  seen.leaving = leaving;
}

// Trainers that wait for averages step in bursts: a rate of a short stretch is of a burst or of a
// wait, by chance. So it is of all the time since the warm-up, between looks at which it had
// stepped.
void RunRecord::Pace(double at, const AgentSummary& summary, Seen& seen) {
  OwnPace& pace = seen.pace;
  if (summary.samples <= seen.last.samples) {
    if (summary.samples < seen.last.samples) pace.since = 0;  // a trainer that began anew
    return;
  }
  const auto samples = static_cast<double>(summary.samples);
  if (pace.since == 0) {
    pace.since = at;
    pace.samples = samples;
    return;
  }
  const double seconds = at - pace.since;
  if (seconds >= kMinPace) pace.per_second = (samples - pace.samples) / seconds;
}

void RunRecord::SawLineages(double at, int count) {
  if (count > 1 && lineages_at_ > 0) sums_.apart_seconds += std::max(0.0, at - lineages_at_);
  lineages_at_ = at;
}

void RunRecord::Tick(double at) {
  RecordPoint point;
  point.at = at;
  double loss = 0, rate = 0;
  int losses = 0;
  std::vector<double> p50, p95;
  bool met = false;  // whoever stops because the target is met is not missing
  for (const auto& [name, seen] : workers_) {
    met = met || seen.last.target_met;
    // A worker that said nothing for two seconds may be gone without a word.
    const bool here = seen.life.first_step && !seen.life.taken && !seen.life.ended &&
                      !seen.leaving && seen.last.state == "Training" && at - seen.last_at < 2;
    if (seen.last_at > 0) {
      point.samples = std::max(point.samples, static_cast<double>(seen.last.job_samples));
    }
    if (!here) continue;
    ++point.training;
    rate += seen.last.samples_per_second;
    if (seen.last.loss) {
      loss += *seen.last.loss;
      ++losses;
    }
    if (seen.last.round_p50 > 0) p50.push_back(seen.last.round_p50);
    if (seen.last.round_p95 > 0) p95.push_back(seen.last.round_p95);
  }
  if (losses > 0) point.loss = sums_.loss = loss / losses;
  point.round_p50 = Percentile(p50, .5).value_or(0);
  point.round_p95 = Percentile(p95, .95).value_or(0);
  // A resumed job has samples from before; goodput is of this run.
  if (!first_samples_ && first_step_) first_samples_ = point.samples;
  // What workers do, not what is merged: merging comes in steps, once an averaging.
  rate_ = rate;
  point.rate = rate_;
  // Workers that start or finish are not missing, so the least and the most leave them out.
  if (started_at_ && !finished_ && !met) {
    min_ = max_ == 0 ? point.training : std::min(min_, point.training);
    max_ = std::max(max_, point.training);
  }
  if (++skipped_ < stride_) return;
  skipped_ = 0;
  points_.push_back(point);
  if (points_.size() < kMaxPoints) return;
  // Every second point goes and the next ones come half as often: a day's run has 2,000 at most.
  for (size_t i = 0; 2 * i < points_.size(); ++i) points_[i] = points_[2 * i];
  points_.resize((points_.size() + 1) / 2);
  stride_ *= 2;
}

void RunRecord::Finish(double at) {
  if (!finished_) finished_ = at;
}

std::vector<WorkerLife> RunRecord::lives() const {
  std::vector<WorkerLife> lives;
  for (const auto& [name, seen] : workers_) lives.push_back(seen.life);
  std::sort(lives.begin(), lives.end(), [](const WorkerLife& a, const WorkerLife& b) {
    return std::pair(a.index, a.incarnation) < std::pair(b.index, b.incarnation);
  });
  return lives;
}

RunFigures RunRecord::Figures() const {
  RunFigures figures = sums_;
  const double end = finished_.value_or(points_.empty() ? launched_ : points_.back().at);
  if (first_step_) figures.duration_seconds = std::max(0.0, end - *first_step_);
  if (started_at_) figures.start_seconds = *started_at_ - launched_;
  double trained = 0, stalled = 0;
  std::vector<double> own_rates;
  for (const auto& [name, seen] : workers_) {
    // Each agent knows the job's sum as of its last average; the largest is the latest.
    figures.samples = std::max(figures.samples, seen.last.job_samples);
    if (!seen.life.first_step) continue;
    trained += std::max(0.0, seen.last_at - *seen.life.first_step);
    stalled += seen.last.stall_seconds;
    if (seen.pace.per_second > 0) own_rates.push_back(seen.pace.per_second);
  }
  const double merged = static_cast<double>(figures.samples) - first_samples_.value_or(0);
  if (figures.duration_seconds > 0) figures.samples_per_second = merged / figures.duration_seconds;
  // The median: one slow or one lucky worker says little of the machines.
  const std::optional<double> nominal = Percentile(own_rates, .5);
  if (nominal && *nominal > 0 && figures.duration_seconds > 0) {
    // All wanted workers at their own pace, for as long as the training took.
    const double ideal = replicas_ * figures.duration_seconds * *nominal;
    figures.goodput = std::min(1.0, merged / ideal);  // rates are not more exact than that
  }
  if (trained > 0) figures.averaging_stall_ratio = stalled / trained;
  figures.replacement_p50 = Percentile(replacements_, .5);
  figures.replacement_p95 = Percentile(replacements_, .95);
  figures.workers_min = min_;
  figures.workers_max = max_;
  return figures;
}

}  // namespace crowdsurf::cli
