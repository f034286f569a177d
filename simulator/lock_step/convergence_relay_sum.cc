#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "simulator/lock_step/convergence.h"
#include "worker/core/strategy/relay_sum.h"

namespace crowdsurf::simulator {
namespace {

using Memory = worker::RelaySumMemory<double>;
using Vector = std::vector<double>;

// n workers on the trees of `kind`; a double tree carries the first half of the vector on one, the
// rest on the other.
class RelayWorld {
 public:
  RelayWorld(worker::GraphKind kind, uint32_t n, size_t elements) : n_(n), elements_(elements) {
    trees_ = worker::TreesOf(kind, n).value();
    for (size_t t = 0; t < trees_.size(); ++t) {
      memories_.emplace_back();
      for (uint32_t i = 0; i < n; ++i) memories_[t].emplace_back(trees_[t], i, Share(t));
    }
    x_.assign(n, Vector(elements, 0.0));
    y_ = x_;
    sequence_.assign(n, 0);
  }

  Vector& x(uint32_t i) { return x_[i]; }
  Vector& y(uint32_t i) { return y_[i]; }
  double bytes() const { return bytes_; }

  // One tick of the workers in `active` (ascending): all send from what they held before, then
  // receive, then average.
  template <class Lost>
  void Tick(const std::vector<uint32_t>& active, Lost&& lost) {
    struct Flying {
      size_t tree;
      uint32_t from, to;
      Memory::Message message;
    };
    std::vector<Flying> flying;
    for (const uint32_t i : active) {
      ++sequence_[i];
      for (size_t t = 0; t < trees_.size(); ++t) {
        for (const uint32_t j : memories_[t][i].neighbours()) {
          flying.push_back({t, i, j, {}});
          memories_[t][i].Send(j, sequence_[i], Part(y_[i], t), flying.back().message);
          // Float32 on the wire, whatever is computed with here.
          bytes_ += 4.0 * static_cast<double>(Share(t));
        }
      }
    }
    for (const Flying& f : flying) {
      if (!lost()) CHECK(memories_[f.tree][f.to].Receive(f.from, f.message));
    }
    for (const uint32_t i : active) {
      for (size_t t = 0; t < trees_.size(); ++t) {
        memories_[t][i].Average(Part(y_[i], t), Part(x_[i], t));
      }
    }
  }
  void Tick() {
    std::vector<uint32_t> all(n_);
    for (uint32_t i = 0; i < n_; ++i) all[i] = i;
    Tick(all, [] { return false; });
  }

 private:
  size_t Share(size_t tree) const {
    if (trees_.size() == 1) return elements_;
    return tree == 0 ? elements_ / 2 : elements_ - elements_ / 2;
  }
  std::span<double> Part(Vector& v, size_t tree) const {
    return std::span(v).subspan(tree == 0 ? 0 : elements_ / 2, Share(tree));
  }

  uint32_t n_;
  size_t elements_;
  std::vector<worker::Graph> trees_;
  std::vector<std::vector<Memory>> memories_;  // by tree, by worker
  std::vector<Vector> x_, y_;
  std::vector<uint64_t> sequence_;
  double bytes_ = 0;
};

constexpr size_t kDimensions = 10;

// f_i = 1/2 sum of h (x - c)^2; the sum of them is least at sum of h c / sum of h.
struct Quadratics {
  std::vector<Vector> h, c;
  Vector optimum;

  Quadratics(uint32_t n, Rng rng) : h(n, Vector(kDimensions)), c(h), optimum(kDimensions) {
    for (uint32_t i = 0; i < n; ++i) {
      for (size_t k = 0; k < kDimensions; ++k) {
        h[i][k] = 0.25 + 0.75 * rng.UniformDouble();
        c[i][k] = 3 * rng.Normal();
      }
    }
    for (size_t k = 0; k < kDimensions; ++k) {
      double weighted = 0, total = 0;
      for (uint32_t i = 0; i < n; ++i) {
        weighted += h[i][k] * c[i][k];
        total += h[i][k];
      }
      optimum[k] = weighted / total;
    }
  }
};

}  // namespace

RelayResult RunRelay(const RelayOptions& options) {
  const Rng root(options.seed);
  const Quadratics problem(options.n, root.Fork("problem"));
  Rng losses = root.Fork("losses"), ticks = root.Fork("ticks");
  RelayWorld world(options.tree, options.n, kDimensions);
  RelayResult result;
  uint64_t counted = 0;
  for (uint64_t step = 0; step < options.steps; ++step) {
    std::vector<uint32_t> active;
    for (uint32_t i = 0; i < options.n; ++i) {
      if (options.active >= 1 || ticks.Bernoulli(options.active)) active.push_back(i);
    }
    for (const uint32_t i : active) {
      for (size_t k = 0; k < kDimensions; ++k) {
        const double gradient = problem.h[i][k] * (world.x(i)[k] - problem.c[i][k]);
        world.y(i)[k] = world.x(i)[k] - options.learning_rate * gradient;
      }
    }
    world.Tick(active, [&] { return options.loss > 0 && losses.Bernoulli(options.loss); });
    // The last third: the way there does not count.
    if (3 * step < 2 * options.steps) continue;
    ++counted;
    for (uint32_t i = 0; i < options.n; ++i) {
      for (size_t k = 0; k < kDimensions; ++k) {
        result.distance += std::pow(world.x(i)[k] - problem.optimum[k], 2) / options.n;
      }
    }
  }
  result.distance /= static_cast<double>(std::max<uint64_t>(counted, 1));
  result.bytes_per_step = world.bytes() / static_cast<double>(options.steps * options.n);
  return result;
}

double RelayDeliveryError(worker::GraphKind tree, uint32_t n) {
  const worker::Graph graph = worker::TreesOf(tree, n).value()[0];
  // Of an update of n, which is 1 in the mean: what arrives is damped by the delay.
  const double expected = 1.0 / (1.0 + worker::MeanRelayDelay(graph));
  double worst = 0;
  for (uint32_t source = 0; source < n; ++source) {
    RelayWorld world(tree, n, 1);
    const auto tick = [&](double update) {
      for (uint32_t i = 0; i < n; ++i) world.y(i)[0] = world.x(i)[0] + (i == source ? update : 0.0);
      world.Tick();
    };
    // First the pipeline fills. At the end all of the update has long arrived.
    for (uint32_t t = 0; t < 2 * n; ++t) tick(0);
    tick(n);
    for (uint32_t t = 0; t < 400 * n; ++t) tick(0);
    for (uint32_t i = 0; i < n; ++i) worst = std::max(worst, std::abs(world.x(i)[0] - expected));
  }
  return worst;
}

uint32_t RelayFiniteSteps(worker::GraphKind tree, uint32_t n) {
  RelayWorld world(tree, n, 2);
  double mean = 0;
  for (uint32_t i = 0; i < n; ++i) mean += (i * i + 1.0) / n;  // n a power of two: exact
  for (uint32_t step = 1; step <= 4 * n; ++step) {
    // The same inputs at every step: exact as soon as all have arrived everywhere.
    for (uint32_t i = 0; i < n; ++i) world.y(i).assign(2, i * i + 1.0);
    world.Tick();
    bool exact = true;
    for (uint32_t i = 0; i < n; ++i)
      exact = exact && world.x(i)[0] == mean && world.x(i)[1] == mean;
    if (exact) return step;
  }
  return 0;
}

}  // namespace crowdsurf::simulator
