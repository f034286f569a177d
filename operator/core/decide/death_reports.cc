#include "operator/core/decide/death_reports.h"

#include <algorithm>

namespace crowdsurf::controller {
namespace {

constexpr size_t kWanted = 2;  // reporters

// Only a worker that trains with the others can miss one of them.
bool MayReport(const PodEntry& pod) { return pod.facts.ready_since && !pod.facts.deleted; }

bool IsOver(const PodFacts& pod) {
  return pod.deleted.has_value() || pod.trainer.has_value() || pod.phase == PodPhase::kSucceeded ||
         pod.phase == PodPhase::kFailed;
}

}  // namespace

std::string_view Name(ReportFate fate) {
  constexpr std::string_view kNames[] = {"taken",   "stranger", "itself", "other_job",
                                         "unknown", "gone",     "full"};
  return kNames[static_cast<size_t>(fate)];
}

std::string_view Name(ProbeResult result) {
  constexpr std::string_view kNames[] = {"answers", "silent", "blind"};
  return kNames[static_cast<size_t>(result)];
}

void LeaseAge::Saw(WallTime now, const std::string& renewed) {
  // The first look shows a renewal of unknown age. Only a change that we saw is a sign of life.
  if (renewed != renewed_ && !since_.unset()) changed_ = now;
  if (renewed != renewed_ || since_.unset()) since_ = now;
  renewed_ = renewed;
  last_ = now;
}

ReportFate DeathReports::Take(WallTime now, const PodEntry* reporter, const PodEntry* subject) {
  if (reporter == nullptr || reporter->facts.deleted) return ReportFate::kStranger;
  if (subject == nullptr) return ReportFate::kUnknown;
  if (subject->job_uid != reporter->job_uid) return ReportFate::kOtherJob;
  if (subject->facts.uid == reporter->facts.uid) return ReportFate::kItself;
  if (IsOver(subject->facts)) return ReportFate::kGone;
  // The bound refuses new cases. An old one gives way only when its reports are too old to count.
  if (cases_.size() >= kMaxCases && !cases_.contains(subject->facts.uid)) {
    Expire(now);
    if (cases_.size() >= kMaxCases) return ReportFate::kFull;
  }
  Case& one = cases_[subject->facts.uid];
  one.job = subject->job;
  one.job_uid = subject->job_uid;
  if (one.said.size() >= kMaxReporters && !one.said.contains(reporter->facts.uid)) {
    return ReportFate::kFull;
  }
  // A reporter counts once, with its last word.
  one.said[reporter->facts.uid] = now;
  return ReportFate::kTaken;
}

void DeathReports::Expire(WallTime now) {
  for (auto& [uid, one] : cases_) {
    std::erase_if(one.said, [&](const auto& said) { return now - said.second > kKept; });
  }
  std::erase_if(cases_, [](const auto& one) { return one.second.said.empty(); });
}

DeathReports::Review DeathReports::Look(
    WallTime now, const std::string& job, const std::vector<const PodEntry*>& pods,
    const std::function<bool(const std::string& node)>& lease_stale) {
  Review review;
  Expire(now);
  if (cases_.empty()) return review;
  std::map<std::string, const PodEntry*> by_uid;
  size_t able = 0;
  for (const PodEntry* pod : pods) {
    by_uid[pod->facts.uid] = pod;
    able += MayReport(*pod);
  }
  std::erase_if(cases_, [&](const auto& one) {
    if (one.second.job != job) return false;
    const auto pod = by_uid.find(one.first);
    return pod == by_uid.end() || IsOver(pod->second->facts);
  });
  for (auto& [uid, one] : cases_) {
    if (one.job != job) continue;
    const PodEntry& pod = *by_uid.at(uid);
    // The worker itself is no witness of its own death.
    const size_t others = able - MayReport(pod);
    size_t said = 0;
    std::string control;
    for (const auto& [reporter, at] : one.said) {
      const auto it = by_uid.find(reporter);
      if (it == by_uid.end() || it->second->facts.deleted) continue;
      ++said;
      // The probe asks a reporter, too. If both are silent, perhaps the operator is cut off, and
      // nobody died.
      control = it->second->http;
    }
    Finding& finding = review.findings[uid];
    // Looked at from the first report on: a Lease shows its age only to who watches it.
    finding.lease_stale = !pod.facts.node.empty() && lease_stale(pod.facts.node);
    // In a job of two there is only one other worker, and its word must do.
    if (said < std::clamp<size_t>(others, 1, kWanted)) continue;
    if (!one.asked || now - *one.asked >= kProbeAgain) {
      one.asked = now;
      review.probes.push_back({uid, pod.http, control});
    }
    // An agent that answered lives, whatever is reported. An old answer says nothing about now.
    const bool fresh = one.result && now - one.result_at <= kProbeHolds;
    if (!fresh || *one.result == ProbeResult::kAnswers) continue;
    // A probe that is blind confirms nothing. Then only a stale Lease does.
    finding.dead = finding.lease_stale || *one.result == ProbeResult::kSilent;
  }
  return review;
}

std::string DeathReports::Probed(WallTime now, const std::string& uid, ProbeResult result) {
  const auto it = cases_.find(uid);
  if (it == cases_.end()) return {};
  it->second.result = result;
  it->second.result_at = now;
  return it->second.job;
}

std::set<std::string> DeathReports::Jobs() const {
  std::set<std::string> jobs;
  for (const auto& [uid, one] : cases_) jobs.insert(one.job);
  return jobs;
}

void DeathReports::Forget(const std::string& job_uid) {
  std::erase_if(cases_, [&](const auto& one) { return one.second.job_uid == job_uid; });
}

}  // namespace crowdsurf::controller
