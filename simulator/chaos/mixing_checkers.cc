#include "simulator/chaos/mixing_checkers.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cmath>

#include "base/digest.h"

namespace crowdsurf::simulator {
namespace {

// Of averages of neighbours' models as they travel, relative to the largest of them.
double HullTolerance(const worker::AveragingConfig& config) {
  const bool whole = config.strategy == worker::StrategyKind::kRelaySum;  // in float32
  if (!whole && config.compression == worker::WireFormat::kFloat16) return 1.0 / 1024;
  if (!whole && config.compression == worker::WireFormat::kBFloat16) return 1.0 / 128;
  return 1e-5;
}

ByteView BytesOf(const std::vector<float>& values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(float)};
}

}  // namespace

void MixingCheckers::Add(std::string_view statement, int node, const std::string& what) {
  violations_.Add(statement, absl::StrCat("node ", node, ": ", what));
}

bool MixingCheckers::HasHull() const {
  return config_.strategy == worker::StrategyKind::kRelaySum ||
         (config_.strategy == worker::StrategyKind::kGossip &&
          config_.mixing.gossip == worker::GossipMode::kNeighbours);
}

// ---- what trainers give and are given ----------------------------------------------------------

void MixingCheckers::OnSnapshot(int node, const std::vector<float>& values) {
  const auto view = views_.find(node);
  if (!HasHull() || view == views_.end()) return;
  Hull& hull = hulls_[view->second];
  if (hull.least.empty()) hull = {values, values};
  for (size_t i = 0; i < values.size(); ++i) {
    hull.least[i] = std::min(hull.least[i], values[i]);
    hull.most[i] = std::max(hull.most[i], values[i]);
  }
}

void MixingCheckers::OnResult(int node, const std::vector<float>& values) {
  ++totals_.results;
  if (!std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); }))
    return Add("finite", node, "a result that is not a number");
  if (!HasHull()) return;
  const Hull& hull = hulls_[views_[node]];
  if (hull.least.empty()) return Add("hull", node, "a result before any model of its view");
  double largest = 1e-3, off = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double least = hull.least[i], most = hull.most[i], value = values[i];
    largest = std::max({largest, std::abs(least), std::abs(most)});
    off = std::max({off, least - value, value - most});
  }
  if (off > HullTolerance(config_) * largest)
    Add("hull", node, absl::StrCat("a result is ", off, " beyond all models of its view"));
}

// ---- pairs -------------------------------------------------------------------------------------

// The end that was pushed moves first, and the other by the opposite of the same bytes.
void MixingCheckers::OnMove(int node, size_t model, double weight,
                            const std::vector<float>& difference) {
  // Equal models move nobody, and one such difference looks like any other.
  if (std::all_of(difference.begin(), difference.end(), [](float v) { return v == 0; })) return;
  const Difference key{views_[node], model, Sha256(BytesOf(difference))};
  if (weight > 0) {
    open_[key].push_back({node, weight});
    movers_[key].insert(node);
    return;
  }
  // Models that are nearly equal differ by the same few steps of their format, so whose end is
  // whose cannot be told. What moves must still be moved back, once.
  const bool alike = movers_[key].size() > 1;
  std::vector<Moved>& open = open_[key];
  const auto other = std::find_if(open.begin(), open.end(), [&](const Moved& moved) {
    return (moved.node != node || alike) && moved.weight == -weight;
  });
  if (other == open.end())
    return Add("mass", node,
               absl::StrCat("model ", model, " moves by ", weight,
                            " of a difference by which nobody else moves as far"));
  ++totals_.exchanges;
  open.erase(other);
  if (open.empty()) open_.erase(key);
}

// ---- PowerGossip -------------------------------------------------------------------------------

void MixingCheckers::OnStep(int node, const Step& step) {
  ByteWriter content;
  content.F64(step.weight);
  content.Raw(Sha256(step.low_frame).view());
  content.Raw(Sha256(step.high_frame).view());
  const Digest of = Sha256(content.bytes());
  const EdgeStep key{views_[node], step.low, step.high, step.number};
  const auto [at, first] = steps_.try_emplace(key, Ended{node, of, false});
  if (first) return;
  if (at->second.node == node || at->second.both)
    return Add("mass", node, absl::StrCat("step ", step.number, " of an edge ends twice"));
  at->second.both = true;
  ++totals_.exchanges;
  if (at->second.of != of)
    Add("mass", node,
        absl::StrCat("step ", step.number, " of an edge ends with other frames at node ",
                     at->second.node));
}

// ---- the end -----------------------------------------------------------------------------------

void MixingCheckers::CheckEnd(int node, uint64_t one_sided, uint64_t under_way) {
  uint64_t alone = 0;
  for (const auto& [difference, open] : open_)
    for (const Moved& moved : open) alone += std::get<1>(difference) == 0 && moved.node == node;
  for (const auto& [edge, ended] : steps_) alone += ended.node == node && !ended.both;
  totals_.one_sided += alone;
  // A new view may leave a step of PowerGossip at one end (docs/strategies/powergossip.md).
  const bool counts = config_.strategy != worker::StrategyKind::kPowerGossip;
  if (counts && alone > one_sided + under_way)
    Add("mass", node,
        absl::StrCat("it alone has moved in ", alone, " exchanges, and counts ", one_sided,
                     " as one-sided"));
}

}  // namespace crowdsurf::simulator
