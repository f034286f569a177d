#include "cli/run/worker_name.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "operator/core/port/plan.h"

namespace crowdsurf::cli {
namespace {

// Digits alone, as a name has them; from_chars takes a sign as well.
std::optional<int> Number(std::string_view text) {
  int number = 0;
  if (text.empty() || text.find_first_not_of("0123456789") != std::string_view::npos) return {};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

std::string NamesOf(const std::vector<WorkerName>& workers) {
  std::vector<std::string> names;
  names.reserve(workers.size());
  for (const WorkerName& worker : workers) names.push_back(worker.text());
  return Listed(names);
}

}  // namespace

std::string WorkerName::text() const { return controller::PodName(job, index, incarnation); }

std::optional<WorkerName> ParseWorkerName(std::string_view text) {
  const size_t last = text.rfind('-');
  if (last == std::string_view::npos || last == 0) return std::nullopt;
  const size_t before = text.rfind('-', last - 1);
  if (before == std::string_view::npos || before == 0) return std::nullopt;
  const auto index = Number(text.substr(before + 1, last - before - 1));
  const auto incarnation = Number(text.substr(last + 1));
  if (!index || !incarnation) return std::nullopt;
  return WorkerName{std::string(text.substr(0, before)), *index, *incarnation};
}

StatusOr<std::vector<WorkerName>> ChooseWorkers(std::vector<WorkerName> there,
                                                const std::string& wanted, Which which) {
  std::sort(there.begin(), there.end());
  const std::string known = there.empty() ? "there is none" : "there are " + NamesOf(there);
  // The workers up to the one that is meant, of each index that is.
  std::map<int, std::vector<WorkerName>> lines;
  bool found = wanted.empty();
  for (const WorkerName& worker : there) {
    const bool by_index = wanted.empty() || wanted == std::to_string(worker.index);
    const auto named = ParseWorkerName(wanted);
    const bool by_name =
        named && named->job == worker.job && named->index == worker.index && worker <= *named;
    if (by_index || by_name) lines[worker.index].push_back(worker);
    found = found || by_index || wanted == worker.text();
  }
  if (!found) return absl::NotFoundError("no worker " + wanted + "; " + known);
  std::vector<WorkerName> chosen;
  for (auto& [index, line] : lines) {
    if (which == Which::kPrevious) line.pop_back();
    if (!line.empty()) chosen.push_back(line.back());
  }
  if (!chosen.empty()) return chosen;
  if (which == Which::kNewest) return absl::NotFoundError("no worker; " + known);
  return absl::NotFoundError((wanted.empty() ? "no worker" : "worker " + wanted) + " has " +
                             (wanted.empty() ? "a" : "no") + " predecessor; " + known);
}

std::string Listed(const std::vector<std::string>& names, size_t most) {
  std::string out;
  for (size_t i = 0; i < std::min(names.size(), most); ++i) out += (i > 0 ? ", " : "") + names[i];
  if (names.size() > most) out += " and " + std::to_string(names.size() - most) + " more";
  return out;
}

}  // namespace crowdsurf::cli
