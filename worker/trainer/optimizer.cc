#include "worker/trainer/optimizer.h"

#include <Eigen/Core>
#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace crowdsurf::trainer {
namespace {

using Array = Eigen::Map<Eigen::ArrayXf>;
using ConstArray = Eigen::Map<const Eigen::ArrayXf>;

Array View(std::span<float> v) { return {v.data(), static_cast<Eigen::Index>(v.size())}; }
ConstArray View(std::span<const float> v) {
  return {v.data(), static_cast<Eigen::Index>(v.size())};
}
Array View(std::vector<float>& v) { return View(std::span<float>(v)); }

size_t MomentsOf(const OptimizerOptions& options) {
  if (options.kind == OptimizerKind::kSgd) return options.momentum > 0 ? 1 : 0;
  return 2;
}

// In any training a second moment is at least this times the square of the first one: both are sums
// of the same gradients, with weights that the betas say (Cauchy and Schwarz). 0: no bound is
// known.
float LeastSecond(const OptimizerOptions& options) {
  const double b1 = options.beta1, b2 = options.beta2;
  if (b1 >= 1 || b1 * b1 >= b2) return 0;
  return static_cast<float>((1 - b2) * (1 - b1 * b1 / b2) / ((1 - b1) * (1 - b1)));
}

}  // namespace

std::optional<OptimizerKind> OptimizerKindNamed(std::string_view name) {
  if (name == "sgd") return OptimizerKind::kSgd;
  if (name == "adam") return OptimizerKind::kAdam;
  if (name == "lamb") return OptimizerKind::kLamb;
  return std::nullopt;
}

Optimizer::Optimizer(const OptimizerOptions& options, const ParameterTable& table)
    : options_(options), table_(table) {
  moments_.assign(MomentsOf(options), std::vector<float>(table.elements(), 0.0f));
}

void Optimizer::Step(double rate, std::span<const float> gradient, std::span<float> parameters) {
  CHECK_EQ(gradient.size(), table_.elements());
  CHECK_EQ(parameters.size(), table_.elements());
  // First: the bias corrections of the papers count steps from 1.
  ++steps_;
  switch (options_.kind) {
    case OptimizerKind::kSgd:
      return StepSgd(rate, gradient, parameters);
    case OptimizerKind::kAdam:
      return StepAdam(rate, gradient, parameters);
    case OptimizerKind::kLamb:
      return StepLamb(rate, gradient, parameters);
  }
}

void Optimizer::StepSgd(double rate, std::span<const float> gradient, std::span<float> parameters) {
  const auto lr = static_cast<float>(rate);
  const auto decay = static_cast<float>(options_.weight_decay);
  const auto momentum = static_cast<float>(options_.momentum);
  auto p = View(parameters);
  // An expression that is computed where it is used: no vector is made of it.
  const auto g = View(gradient) + decay * p;
  if (moments_.empty()) {
    p -= lr * g;
    return;
  }
  auto v = View(moments_[0]);
  v = momentum * v + g;
  if (options_.nesterov) {
    p -= lr * (g + momentum * v);
  } else {
    p -= lr * v;
  }
}

void Optimizer::StepAdam(double rate, std::span<const float> gradient,
                         std::span<float> parameters) {
  const double steps = static_cast<double>(steps_);
  const auto b1 = static_cast<float>(options_.beta1), b2 = static_cast<float>(options_.beta2);
  // Bias corrections of Alg. 1, moved into the rate and under the root.
  const auto lr = static_cast<float>(rate / (1 - std::pow(options_.beta1, steps)));
  const auto correct2 = static_cast<float>(1 / (1 - std::pow(options_.beta2, steps)));
  // Decoupled: the decay does not pass through the moments.
  const auto keep = static_cast<float>(1 - rate * options_.weight_decay);
  const auto epsilon = static_cast<float>(options_.epsilon);
  const auto g = View(gradient);
  auto m = View(moments_[0]), v = View(moments_[1]), p = View(parameters);
  m = b1 * m + (1 - b1) * g;
  v = b2 * v + (1 - b2) * g.square();
  p = keep * p - lr * m / ((correct2 * v).sqrt() + epsilon);
}

void Optimizer::StepLamb(double rate, std::span<const float> gradient,
                         std::span<float> parameters) {
  const double steps = static_cast<double>(steps_);
  const auto b1 = static_cast<float>(options_.beta1), b2 = static_cast<float>(options_.beta2);
  const auto correct1 = static_cast<float>(1 / (1 - std::pow(options_.beta1, steps)));
  const auto correct2 = static_cast<float>(1 / (1 - std::pow(options_.beta2, steps)));
  const auto decay = static_cast<float>(options_.weight_decay);
  const auto epsilon = static_cast<float>(options_.epsilon);
  Eigen::ArrayXf update;
  for (size_t i = 0; i < table_.tensors().size(); ++i) {
    const auto g = View(table_.View(i, gradient));
    auto p = View(table_.View(i, parameters));
    auto m = View(table_.View(i, std::span<float>(moments_[0])));
    auto v = View(table_.View(i, std::span<float>(moments_[1])));
    m = b1 * m + (1 - b1) * g;
    v = b2 * v + (1 - b2) * g.square();
    update = correct1 * m / ((correct2 * v).sqrt() + epsilon) + decay * p;
    // The trust ratio of this tensor (Alg. 2): a step is a share of the tensor's own length.
    const float length = p.matrix().norm(), step = update.matrix().norm();
    const float trust = length > 0 && step > 0 ? length / step : 1.0f;
    p -= static_cast<float>(rate) * trust * update;
  }
}

void Optimizer::Reset() {
  steps_ = 0;
  for (std::vector<float>& moment : moments_) std::fill(moment.begin(), moment.end(), 0.0f);
}

void Optimizer::RepairMoments() {
  // Adam and LAMB take the root of their second moment; SGD's only one may have any sign.
  if (moments_.size() != 2) return;
  auto v = View(moments_[1]);
  v = v.max(LeastSecond(options_) * View(moments_[0]).square());
}

void Optimizer::Save(ByteWriter& out) const {
  out.U8(static_cast<uint8_t>(options_.kind));
  out.U64(steps_);
  out.U32(static_cast<uint32_t>(moments_.size()));
  for (const std::vector<float>& moment : moments_) {
    out.U64(moment.size());
    static_assert(std::endian::native == std::endian::little);
    out.Raw({reinterpret_cast<const uint8_t*>(moment.data()), moment.size() * sizeof(float)});
  }
}

Status Optimizer::Load(ByteReader& in) {
  const uint8_t kind = in.U8();
  const uint64_t steps = in.U64();
  const uint32_t count = in.U32();
  if (!in.ok() || kind != static_cast<uint8_t>(options_.kind) || count != moments_.size()) {
    return absl::InvalidArgumentError("optimizer state: of another optimizer, or cut short");
  }
  // Aside first, so that an error changes nothing.
  std::vector<std::vector<float>> moments;
  for (uint32_t i = 0; i < count; ++i) {
    if (in.U64() != table_.elements()) {
      return absl::InvalidArgumentError(absl::StrCat("optimizer state: moment ", i, " is not of ",
                                                     table_.elements(), " elements"));
    }
    const ByteView bytes = in.Raw(table_.elements() * sizeof(float));
    if (!in.ok()) return absl::InvalidArgumentError("optimizer state: cut short");
    std::vector<float>& moment = moments.emplace_back(table_.elements());
    std::memcpy(moment.data(), bytes.data(), bytes.size());
  }
  steps_ = steps;
  moments_ = std::move(moments);
  return absl::OkStatus();
}

double ClipByNorm(double most, std::span<float> gradient) {
  auto g = View(gradient);
  const double norm = static_cast<double>(g.matrix().norm());
  if (most > 0 && std::isfinite(norm) && norm > most) g *= static_cast<float>(most / norm);
  return norm;
}

}  // namespace crowdsurf::trainer
