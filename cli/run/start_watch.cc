#include "cli/run/start_watch.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/status.h"
#include "base/text.h"
#include "operator/core/job/start_cause.h"

namespace crowdsurf::cli {
namespace {

constexpr size_t kMaxNamed = 8;  // workers in one sentence

// In the words that the operator has for it; empty: the agent says no cause.
std::string CauseOf(const StartingWorker& worker) {
  if (!worker.agent_up) return "its agent is not up";
  const controller::StartCause* cause = controller::FindStartCause(worker.wait);
  return cause == nullptr ? std::string() : std::string(cause->words);
}

std::string Sentence(const std::vector<std::string>& names, const std::string& cause,
                     double seconds) {
  std::string out;
  for (size_t i = 0; i < std::min(names.size(), kMaxNamed); ++i) {
    out += (i == 0 ? "" : ", ") + ShownText(names[i]);
  }
  if (names.size() > kMaxNamed) out += absl::StrCat(" and ", names.size() - kMaxNamed, " more");
  return absl::StrCat(out, out.find(',') == std::string::npos ? " does" : " do",
                      " not train yet, for ", std::lround(seconds), " s: ", cause);
}

}  // namespace

std::vector<std::string> StartWatch::Look(double at, const std::vector<StartingWorker>& workers) {
  std::map<std::string, Known> before = std::exchange(workers_, {});
  struct Group {
    std::vector<std::string> fresh;  // of whom it was not said
    size_t all = 0;
    double seconds = 0;  // the longest
  };
  std::map<std::string, Group> groups;
  for (const StartingWorker& worker : workers) {
    const auto known = before.find(worker.name);
    Known& own = workers_[worker.name] = known == before.end() ? Known{at, {}} : known->second;
    const std::string cause = CauseOf(worker);
    const double seconds = worker.agent_up ? worker.waiting_seconds : at - own.since;
    if (cause.empty()) continue;
    Group& group = groups[cause];
    ++group.all;
    if (own.said == cause || Seconds(seconds) < kSayAfter) continue;
    own.said = cause;
    group.fresh.push_back(worker.name);
    group.seconds = std::max(group.seconds, seconds);
  }
  std::vector<std::string> sentences;
  size_t most = 0;
  for (const auto& [cause, group] : groups) {
    if (group.all > std::exchange(most, std::max(most, group.all))) why_ = cause;
    if (!group.fresh.empty()) sentences.push_back(Sentence(group.fresh, cause, group.seconds));
  }
  return sentences;
}

}  // namespace crowdsurf::cli
