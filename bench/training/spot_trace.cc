#include "bench/training/spot_trace.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include <cstdint>
#include <map>

namespace crowdsurf::bench {
namespace {

class TraceReader {
 public:
  explicit TraceReader(double faster) : faster_(faster) {}

  // What is wrong with the line; empty: it is taken.
  std::string Take(const std::string& line) {
    const std::vector<std::string> fields = absl::StrSplit(line, ',');
    int64_t milliseconds = 0;
    if (fields.size() != 3 || !absl::SimpleAtoi(fields[0], &milliseconds) || milliseconds < 0)
      return "is not `milliseconds,add|remove,node`";
    const Duration at = Seconds(static_cast<double>(milliseconds) / 1000 / faster_);
    if (at < trace_.length) return "is before the line above it";
    // The living times the seconds up to this line, for their mean.
    living_seconds_ += static_cast<double>(nodes_.size()) * (at - trace_.length).seconds();
    trace_.length = at;
    if (fields[1] == "add") return Add(at, fields[2]);
    if (fields[1] == "remove") return Remove(at, fields[2]);
    return "neither adds nor removes";
  }

  SpotTrace Finish() {
    if (trace_.length > Duration()) trace_.mean_living = living_seconds_ / trace_.length.seconds();
    return trace_;
  }
  bool empty() const { return next_ == 0; }

 private:
  std::string Add(Duration at, const std::string& name) {
    if (nodes_.contains(name)) return "adds a node that is there";
    nodes_[name] = next_++;
    // Nodes of the first instant are the job's first members.
    if (at > Duration())
      trace_.joins.push_back(at);
    else
      ++trace_.members;
    return "";
  }
  std::string Remove(Duration at, const std::string& name) {
    const auto node = nodes_.find(name);
    if (node == nodes_.end()) return "removes a node that is not there";
    trace_.deaths.push_back(at);
    trace_.victims.push_back(node->second);
    // A name may come back later: as another node.
    nodes_.erase(node);
    return "";
  }

  const double faster_;
  SpotTrace trace_;
  std::map<std::string, int> nodes_;  // that are there: their numbers in the job
  int next_ = 0;
  double living_seconds_ = 0;
};

}  // namespace

StatusOr<SpotTrace> ParseSpotTrace(const std::string& text, double faster) {
  TraceReader reader(faster);
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (line.empty()) continue;
    const std::string wrong = reader.Take(std::string(line));
    if (!wrong.empty())
      return absl::InvalidArgumentError(absl::StrCat("line ", number, " ", wrong));
  }
  if (reader.empty()) return absl::InvalidArgumentError("the trace has no nodes");
  return reader.Finish();
}

}  // namespace crowdsurf::bench
