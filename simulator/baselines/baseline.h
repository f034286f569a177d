// Baseline: a published method of decentralised training that we do not ship, in lock step; or
// PowerGossip with the start that we do not ship.
//
// A step of all workers: a gradient each, an update by local Nesterov momentum as PyTorch writes it
// (v = m v + g, u = -rate (g + m v)), then the method's communication. In the notation of the
// papers, with W of the graph:
//   AllReduce         x <- mean of (x + u)
//   DPsgd             x <- W (x + u)                        Lian et al. 2017 (1705.09056) Alg. 1
//   D2                x <- W (2 x - x' + u - u'), lazy W    Tang et al. 2018 (1803.07068) Alg. 1
//   GradientTracking  x <- W (x + y), y <- W y + u - u'     Nedic et al. 2017 (1607.03218) 1.1, in
//                     the order of Koloskova et al. 2021 (2202.03836) Alg. 1
//   QuasiGlobal       x <- W (x + u), m <- mu m + (1 - mu) (x' - x) / rate, u with m
//                                                           Lin et al. 2021 (2102.04761) Alg. 1
//   PushSum           half to rank + 2^k in turn, z = x / w Assran et al. 2019 (1811.10792) Alg. 1
//   Choco             q = C(x - h), h += q, x += g (W h - h)
//                                                           Koloskova et al. 2019 (1902.00340) Alg.
//                                                           2
//   DeepSqueeze       v = x + e, e = v - C(v), x += g (W C(v) - C(v))
//                                                           Tang et al. 2019 (1907.07346) Alg. 1
//   PowerGossip       with warm or cold factors: power_baseline.h
// D2's proof asks for eigenvalues of W above -1/3, which an even ring's Metropolis weights miss by
// nothing: hence the lazy weights. Lost messages are as in the released code of RelaySGD: a
// receiver goes on with what it has. Choco and DeepSqueeze lose none (their states would part).
// Owner: one run; single sequence. Scalar: float, or double in paper tests.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "simulator/baselines/compressor.h"
#include "simulator/baselines/gradients.h"
#include "worker/core/power/power_layout.h"
#include "worker/core/view/graph.h"

namespace crowdsurf::simulator {

enum class BaselineKind : uint8_t {
  kAllReduce,
  kDPsgd,
  kD2,
  kGradientTracking,
  kQuasiGlobal,
  kPushSum,
  kChoco,
  kDeepSqueeze,
  kPowerGossip,
};

struct BaselineOptions {
  worker::Graph graph;  // of as many nodes as there are workers
  std::function<double(uint64_t step)> rate;
  double momentum = 0;
  double loss = 0;                                               // chance that a message is lost
  uint32_t messages_a_step = 1;                                  // PushSum
  Compressor compressor = {};                                    // Choco, DeepSqueeze
  double consensus_rate = 1;                                     // Choco, DeepSqueeze: g of above
  std::shared_ptr<const worker::PowerLayout> power_layout = {};  // PowerGossip
  bool warm = true;  // PowerGossip: factors outlive an exchange
  uint64_t seed = 1;
};

template <class Scalar>
class Baseline {
 public:
  using Vector = std::vector<Scalar>;
  using Vectors = std::vector<Vector>;

  // `gradients` outlives it.
  Baseline(const BaselineOptions& options, Gradients<Scalar>& gradients);
  virtual ~Baseline() = default;
  Baseline(const Baseline&) = delete;
  Baseline& operator=(const Baseline&) = delete;

  void Step();

  uint32_t workers() const { return static_cast<uint32_t>(x_.size()); }
  // Where the worker's next gradient is taken, and what it would be judged by.
  virtual std::span<const Scalar> model(uint32_t worker) const { return x_[worker]; }
  double bytes() const { return bytes_; }  // sent by all workers so far, float32 where not packed

 protected:
  // From the gradient to u, float[elements] each.
  virtual void Update(uint32_t worker, std::span<const Scalar> gradient, std::span<Scalar> update);
  // From x and u of all workers to their next x.
  virtual void Communicate() = 0;

  const BaselineOptions& options() const { return options_; }
  double rate() const { return options_.rate(step_); }
  uint64_t step() const { return step_; }
  size_t elements() const { return x_.front().size(); }
  Vectors& x() { return x_; }
  const Vectors& x() const { return x_; }
  Vectors& updates() { return updates_; }
  void AddUpdates();  // x += u
  void CountBytes(double bytes) { bytes_ += bytes; }
  void CountVectors(uint64_t messages);
  Vectors Zeros() const { return Vectors(x_.size(), Vector(elements())); }
  // u = -rate (g + m v), v as given.
  void Nesterov(std::span<const Scalar> gradient, std::span<const Scalar> velocity,
                std::span<Scalar> update) const;

 private:
  const BaselineOptions options_;
  Gradients<Scalar>& gradients_;
  Vectors x_, updates_;
  Vectors velocities_;
  Vector gradient_;
  uint64_t step_ = 0;
  double bytes_ = 0;
};

// Pre: gradients.workers() == options.graph.nodes >= 1.
template <class Scalar>
std::unique_ptr<Baseline<Scalar>> MakeBaseline(BaselineKind kind, const BaselineOptions& options,
                                               Gradients<Scalar>& gradients);

extern template class Baseline<float>;
extern template class Baseline<double>;

}  // namespace crowdsurf::simulator
