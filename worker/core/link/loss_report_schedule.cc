#include "worker/core/link/loss_report_schedule.h"

#include <algorithm>

namespace crowdsurf::worker {

std::vector<std::string> LossReportSchedule::Look(Time now, const std::vector<std::string>& lost,
                                                  Reporter reporter) {
  // A worker that came back begins anew when it is lost again.
  std::erase_if(notes_, [&](const auto& note) {
    return std::find(lost.begin(), lost.end(), note.first) == lost.end();
  });
  for (const std::string& worker : lost) {
    if (notes_.contains(worker)) continue;
    if (notes_.size() >= kMaxNotes) {
      ++dropped_;
      continue;
    }
    notes_[worker] = {now, now + kPatience};
  }
  // Members keep notes as well: a view may make them witnesses while the worker is lost.
  if (reporter == Reporter::kMember) return {};
  std::vector<std::pair<Time, std::string>> due;
  for (const auto& [worker, note] : notes_) {
    if (note.due <= now && now - note.since <= kInsist) due.emplace_back(note.due, worker);
  }
  // Longest due first: those beyond kMaxNamed come first at the next look.
  std::sort(due.begin(), due.end());
  if (due.size() > kMaxNamed) due.resize(kMaxNamed);
  std::vector<std::string> named;
  for (const auto& [at, worker] : due) {
    notes_[worker].due = now + kEvery;
    named.push_back(worker);
  }
  return named;
}

}  // namespace crowdsurf::worker
