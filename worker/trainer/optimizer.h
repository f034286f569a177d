// Optimizers: SGD with momentum, Adam and LAMB over one flat float32 vector.
//
// A step reads the gradient and changes the parameters in place; the state is the step count and
// zero to two vectors of the parameters' length ("moments"), which Save and Load carry to a joiner
// as bytes. Same input, same bits. Single sequence. Memory: moments x 4 bytes x parameters.
//   SGD   v = m v + g;  p -= lr (nesterov ? g + m v : v)          (as PyTorch writes it)
//   Adam  arXiv 1412.6980 Alg. 1, with decoupled weight decay (arXiv 1711.05101 Alg. 2)
//   LAMB  arXiv 1904.00962 Alg. 2, bias-corrected, phi the identity, trust ratio per tensor, 1
//   where
//         either norm is zero
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "worker/trainer/parameters.h"

namespace crowdsurf::trainer {

enum class OptimizerKind : uint8_t { kSgd, kAdam, kLamb };

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kAdam;
  double momentum = 0.9;    // SGD
  bool nesterov = false;    // SGD
  double beta1 = 0.9;       // Adam, LAMB
  double beta2 = 0.98;      // Adam, LAMB: short memory, because local runs are a few hundred steps
  double epsilon = 1e-8;    // Adam, LAMB
  double weight_decay = 0;  // SGD: added to the gradient; Adam, LAMB: decoupled
};

// "sgd", "adam", "lamb".
std::optional<OptimizerKind> OptimizerKindNamed(std::string_view name);

class Optimizer {
 public:
  // `table` must outlive the optimizer.
  Optimizer(const OptimizerOptions& options, const ParameterTable& table);

  // One step with learning rate `rate`. Pre: both spans have table.elements() values.
  void Step(double rate, std::span<const float> gradient, std::span<float> parameters);

  void Reset();  // as made: no steps, moments zero

  uint64_t steps() const { return steps_; }
  // Vectors of the parameters' length, in the order of the formulas above.
  size_t moments() const { return moments_.size(); }
  std::span<float> moment(size_t i) { return moments_[i]; }
  // After somebody changed the moments (averaging): a second moment is at least what the first one
  // proves. The change of a delayed averaging can leave one below zero, compression can make it
  // zero, and a step divides by its root.
  void RepairMoments();

  // kind u8, steps u64, moments u32, each a u64 count and its float32 values, little-endian.
  void Save(ByteWriter& out) const;
  // Takes the state that Save wrote; the reader then stands behind it. InvalidArgument, and nothing
  // changed, when the kind or a length differs or the bytes end early.
  Status Load(ByteReader& in);

 private:
  void StepSgd(double rate, std::span<const float> gradient, std::span<float> parameters);
  void StepAdam(double rate, std::span<const float> gradient, std::span<float> parameters);
  void StepLamb(double rate, std::span<const float> gradient, std::span<float> parameters);

  OptimizerOptions options_;
  const ParameterTable& table_;
  uint64_t steps_ = 0;
  std::vector<std::vector<float>> moments_;
};

// Scales `gradient` down to the Euclidean norm `most` where it is longer (arXiv 1211.5063, 3.2);
// most <= 0 leaves it alone. Returns the norm before; a NaN or infinite norm scales nothing.
double ClipByNorm(double most, std::span<float> gradient);

}  // namespace crowdsurf::trainer
