#include "cli/run/spot_market.h"

#include <algorithm>
#include <charconv>

#include "base/text.h"

namespace crowdsurf::cli {
namespace {

constexpr size_t kMaxEvents = 1'000'000;
constexpr size_t kLongestShown = 60;  // bytes of a word in a message

StatusOr<TraceEvent> ParseLine(std::string_view line) {
  const size_t first = line.find(',');
  const size_t second = first == std::string_view::npos ? first : line.find(',', first + 1);
  if (second == std::string_view::npos) {
    return absl::InvalidArgumentError("is not milliseconds,add|remove,node");
  }
  int64_t milliseconds = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + first, milliseconds);
  if (error != std::errc() || end != line.data() + first || milliseconds < 0) {
    return absl::InvalidArgumentError("does not begin with milliseconds");
  }
  const std::string_view what = line.substr(first + 1, second - first - 1);
  if (what != "add" && what != "remove") {
    return absl::InvalidArgumentError(
        absl::StrCat(ShownText(what, kLongestShown), " is not add or remove"));
  }
  const std::string_view node = line.substr(second + 1);
  if (node.empty()) return absl::InvalidArgumentError("names no node");
  return TraceEvent{Milliseconds(milliseconds), what == "add", std::string(node)};
}

}  // namespace

StatusOr<std::vector<TraceEvent>> ParseTrace(std::string_view csv) {
  std::vector<TraceEvent> events;
  int number = 0;
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // Excel writes one
  if (csv.starts_with(kByteOrderMark)) csv.remove_prefix(kByteOrderMark.size());
  while (!csv.empty()) {
    ++number;
    const size_t end = std::min(csv.find('\n'), csv.size());
    std::string_view line = csv.substr(0, end);
    csv.remove_prefix(std::min(end + 1, csv.size()));
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
    if (line.empty() || line[0] == '#') continue;
    StatusOr<TraceEvent> event = ParseLine(line);
    if (!event.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, ": ", event.status().message()));
    }
    if (events.size() >= kMaxEvents) return absl::InvalidArgumentError("more than a million lines");
    events.push_back(std::move(*event));
  }
  if (events.empty()) return absl::InvalidArgumentError("there is no event in it");
  // Stable: events of one instant keep the file's order.
  std::stable_sort(events.begin(), events.end(),
                   [](const TraceEvent& a, const TraceEvent& b) { return a.at < b.at; });
  return events;
}

SpotMarket::SpotMarket(MarketOptions options)
    // A stream of its own: other uses of the seed do not move the market.
    : options_(std::move(options)), rng_(Rng(options_.seed).Fork("spot market")) {}

Time SpotMarket::TraceTime(size_t i) const {
  // From the opening each time, so that rounding does not add up over a long trace.
  return opened_ + options_.trace[i].at * (1 / options_.speed);
}

void SpotMarket::Open(Time now) {
  opened_ = now;
  if (by_trace()) {
    next_ = TraceTime(0);
  } else if (options_.every) {
    next_ = now + *options_.every;
  }
}

std::vector<MarketMove> SpotMarket::Moves(Time now, const std::vector<std::string>& takeable) {
  std::vector<MarketMove> moves;
  if (now < next_) return moves;
  if (by_trace()) {
    for (; position_ < options_.trace.size() && TraceTime(position_) <= now; ++position_) {
      moves.push_back({options_.trace[position_].add, options_.trace[position_].node});
    }
    next_ = position_ < options_.trace.size() ? TraceTime(position_) : Time::Infinite();
    return moves;
  }
  std::vector<std::string> nodes = takeable;
  // The cluster's order follows its pods, and a seed must take the same machines in any order.
  std::sort(nodes.begin(), nodes.end());
  rng_.Shuffle(nodes);
  const size_t count = options_.count == 0 ? nodes.size() : static_cast<size_t>(options_.count);
  nodes.resize(std::min(count, nodes.size()));
  for (const std::string& node : nodes) moves.push_back({false, node});
  while (next_ <= now) next_ = next_ + *options_.every;  // a stall does not become a massacre
  return moves;
}

}  // namespace crowdsurf::cli
