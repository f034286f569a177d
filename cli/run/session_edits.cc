// An edit of the manifest while its job runs, as `kubectl apply` would bring it (session.h).
#include <sys/stat.h>

#include "cli/run/session.h"

namespace crowdsurf::cli {

// How workers mix and when the job ends may change at any time: the steward puts it into the next
// view. What else may change in a cluster needs a new run here, and is said, not done.
void Session::TakeEdits() {
  struct stat facts = {};
  if (stat(options_.manifest.c_str(), &facts) != 0) return;  // being replaced, or gone
  const WallTime written =
      WallTime::FromNanoseconds(facts.st_mtim.tv_sec * 1'000'000'000LL + facts.st_mtim.tv_nsec);
  // The file system's clock ticks in milliseconds: who writes in place may be seen at half of it.
  if (written == edited_ && facts.st_size == edited_bytes_) return;
  const bool first = edited_ == WallTime();
  edited_ = written;
  edited_bytes_ = facts.st_size;
  if (first || stopping_ || time_up_) return;
  std::vector<std::string> problems;
  const std::optional<LocalJob> edited = LoadJob(options_, problems);
  for (const std::string& problem : problems) terminal_.Print("the edit is not taken: " + problem);
  if (!edited || !problems.empty()) return;
  const controller::TrainingJobSpec& next = edited->job.spec;
  for (const char* fixed : {"roles", "what", "globalBatch"}) {
    if (next.averaging.value(fixed, nlohmann::json()) ==
        spec_.averaging.value(fixed, nlohmann::json()))
      continue;
    return terminal_.Print("the edit is not taken: averaging." + std::string(fixed) +
                           " may not change");
  }
  if (next.averaging == spec_.averaging && next.target == spec_.target) return;
  spec_.averaging = next.averaging;
  spec_.target = next.target;
  for (const std::string& remark : edited->remarks) terminal_.Print(remark);
  terminal_.Print("the manifest was edited: strategy " + spec_.averaging.value("strategy", "") +
                  " from the next view on");
  cluster_->Apply(spec_);
}

}  // namespace crowdsurf::cli
