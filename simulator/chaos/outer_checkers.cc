#include "simulator/chaos/outer_checkers.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cmath>

#include "base/bytes.h"
#include "base/digest.h"

namespace crowdsurf::simulator {
namespace {

// Of a few operations in float32, relative to the largest number among them.
constexpr double kStepTolerance = 1e-6;

Digest DigestOf(const OuterCheckers::State& state) {
  ByteWriter out;
  for (const std::vector<float>* values : {&state.base, &state.velocity})
    out.Raw({reinterpret_cast<const uint8_t*>(values->data()), values->size() * sizeof(float)});
  return Sha256(out.bytes());
}

}  // namespace

void OuterCheckers::Add(int node, const std::string& what) {
  violations_.Add("outer", absl::StrCat("node ", node, ": ", what));
}

void OuterCheckers::OnStep(int node, Kind kind, const std::vector<float>& mean, const State& before,
                           const State& after) {
  const bool step = kind == Kind::kStep;
  ++(step ? steps_ : begins_);
  // In double, by the formulas of docs/outer-optimizer.md; worker/core/vector/outer_step.h is not
  // used.
  const double rate = outer_.learning_rate, momentum = outer_.momentum;
  const bool nesterov = outer_.kind == worker::OuterKind::kNesterov;
  for (size_t i = 0; i < mean.size(); ++i) {
    const double m = mean[i], old = before.base[i], v = before.velocity[i];
    const double change = old - m;
    const double velocity = step ? momentum * v + change : 0;
    const double pushed = nesterov ? change + momentum * velocity : velocity;
    const double base = step ? old - rate * pushed : m;
    const double largest =
        std::max({std::abs(m), std::abs(old), std::abs(v), std::abs(base), 1e-3});
    const double error = std::abs(base - static_cast<double>(after.base[i]));
    if (error > kStepTolerance * (1 + rate) * largest)
      return Add(node, absl::StrCat("the base is ", error, " off its step"));
    // Without momentum nobody keeps a velocity.
    if (momentum == 0) continue;
    const double lag = std::abs(velocity - static_cast<double>(after.velocity[i]));
    if (lag > kStepTolerance * largest)
      return Add(node, absl::StrCat("the velocity is ", lag, " off"));
  }
}

void OuterCheckers::OnCommitted(int node, worker::AveragingId averaging, const RegionBuffer& mean,
                                const State& state) {
  const Digest digest = DigestOf(state);
  made_[averaging].insert(digest);
  const std::set<OriginId> inside(mean.origins.begin(), mean.origins.end());
  // Elements of several sets of snapshots: chunks had different contributors.
  if (inside.size() != 1) return;
  // The first member to commit says what all others with the same snapshots must hold.
  const auto [at, fresh] = states_.try_emplace({averaging, *inside.begin()}, digest);
  if (!fresh && at->second != digest)
    Add(node, absl::StrCat("averaging ", averaging.value(),
                           ": another state than others have of the same snapshots"));
}

void OuterCheckers::OnBase(int node, const worker::ViewHash& lineage, worker::AveragingId averaging,
                           const State& state) {
  const Digest digest = DigestOf(state);
  const auto [at, fresh] = bases_.try_emplace({lineage, averaging}, digest);
  if (!fresh && at->second != digest)
    violations_.Add("base", absl::StrCat("node ", node, ": averaging ", averaging.value(),
                                         " has another average elsewhere in this lineage"));
}

void OuterCheckers::OnFetched(int node, worker::AveragingId averaging, const State& state) {
  ++fetched_;
  if (!made_[averaging].contains(DigestOf(state)))
    Add(node, absl::StrCat("averaging ", averaging.value(), ": a state that nobody has made"));
}

}  // namespace crowdsurf::simulator
