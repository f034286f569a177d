#include "bench/label_sorted.h"

#include <algorithm>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include "base/check.h"
#include "bench/digit_workers.h"
#include "worker/core/strategy/mix_kernels.h"
#include "worker/core/strategy/relay_sum.h"

namespace crowdsurf::bench {
namespace {

using Memory = worker::RelaySumMemory<float>;
using Vector = std::vector<float>;

class Mixing {
 public:
  virtual ~Mixing() = default;
  virtual double lr_scale() const { return 1; }
  virtual void Mix(std::vector<DigitWorker>& workers) = 0;
};

// x_i = sum of W_ij y_j; all-reduce with W_ij = 1 / n.
class WeightedMixing : public Mixing {
 public:
  WeightedMixing(uint32_t n, std::vector<double> weights) : n_(n), weights_(std::move(weights)) {}

  void Mix(std::vector<DigitWorker>& workers) override {
    std::vector<Vector> mixed(n_);
    for (uint32_t i = 0; i < n_; ++i) {
      std::vector<std::span<const float>> inputs;
      std::vector<double> weights;
      for (uint32_t j = 0; j < n_; ++j) {
        if (weights_[i * n_ + j] == 0) continue;
        inputs.push_back(workers[j].model());
        weights.push_back(weights_[i * n_ + j]);
      }
      mixed[i].resize(workers[i].model().size());
      worker::WeightedSum<float>(inputs, weights, 1, mixed[i]);
    }
    for (uint32_t i = 0; i < n_; ++i)
      std::copy(mixed[i].begin(), mixed[i].end(), workers[i].model().begin());
  }

 private:
  uint32_t n_;
  std::vector<double> weights_;  // [n][n]
};

// A step: everybody sends from what it held before, then receives, then averages. Two trees carry a
// half of the vector each.
class RelayMixing : public Mixing {
 public:
  RelayMixing(worker::GraphKind kind, uint32_t n, size_t elements) {
    trees_ = worker::TreesOf(kind, n).value();
    for (size_t tree = 0; tree < trees_.size(); ++tree) {
      const size_t half = elements / 2;
      begin_.push_back(tree == 0 ? 0 : half);
      count_.push_back(trees_.size() == 1 ? elements : tree == 0 ? half : elements - half);
      memories_.emplace_back();
      for (uint32_t i = 0; i < n; ++i) memories_[tree].emplace_back(trees_[tree], i, count_[tree]);
    }
    averages_.assign(n, Vector(elements));
    // As RelaySum in an agent does it (worker/core/strategy/relay_sum.cc).
    target_ = 1 + worker::MeanRelayDelay(trees_[0]);
    ramp_ = (target_ - 1) / std::max(1U, worker::Diameter(trees_[0]));
  }

  double lr_scale() const override { return lr_scale_; }

  void Mix(std::vector<DigitWorker>& workers) override {
    ++step_;
    for (size_t tree = 0; tree < trees_.size(); ++tree) MixTree(tree, workers);
    for (size_t i = 0; i < workers.size(); ++i)
      std::copy(averages_[i].begin(), averages_[i].end(), workers[i].model().begin());
    lr_scale_ = std::min(target_, lr_scale_ + ramp_);
  }

 private:
  void MixTree(size_t tree, std::vector<DigitWorker>& workers) {
    std::vector<Memory>& memories = memories_[tree];
    std::vector<std::tuple<uint32_t, uint32_t, Memory::Message>> flying;
    const auto part = [&](auto values) { return values.subspan(begin_[tree], count_[tree]); };
    for (uint32_t i = 0; i < workers.size(); ++i) {
      for (const uint32_t j : memories[i].neighbours()) {
        flying.emplace_back(i, j, Memory::Message());
        memories[i].Send(j, step_, part(std::span<const float>(workers[i].model())),
                         std::get<2>(flying.back()));
      }
    }
    // All are sent before any is received: lock step.
    for (const auto& [from, to, message] : flying) CHECK(memories[to].Receive(from, message));
    for (uint32_t i = 0; i < workers.size(); ++i) {
      if (step_ == 1)  // r_i: nothing was averaged yet
        std::copy(workers[i].model().begin(), workers[i].model().end(), averages_[i].begin());
      memories[i].Average(part(std::span<const float>(workers[i].model())),
                          part(std::span(averages_[i])));
    }
  }

  std::vector<worker::Graph> trees_;
  std::vector<size_t> begin_, count_;          // of the vector, by tree
  std::vector<std::vector<Memory>> memories_;  // by tree, by worker
  std::vector<Vector> averages_;               // by worker
  uint64_t step_ = 0;
  double lr_scale_ = 1, target_ = 1, ramp_ = 0;
};

std::unique_ptr<Mixing> MakeMixing(const LabelSortedOptions& options, size_t elements) {
  const uint32_t n = options.workers;
  switch (options.mixer) {
    case Mixer::kRelaySum:
      return std::make_unique<RelayMixing>(options.graph, n, elements);
    case Mixer::kGossip:
      return std::make_unique<WeightedMixing>(
          n, worker::MetropolisWeights(worker::MakeGraph(options.graph, n).value()));
    case Mixer::kAllReduce:
      break;
  }
  return std::make_unique<WeightedMixing>(n, std::vector<double>(size_t{n} * n, 1.0 / n));
}

}  // namespace

double LabelSortedAccuracy(const LabelSortedOptions& options) {
  std::vector<DigitWorker> workers =
      MakeDigitWorkers(options.workers, options.learning_rate, options.seed);
  const auto mixing = MakeMixing(options, workers.front().model().size());
  for (uint64_t step = 0; step < options.steps; ++step) {
    for (DigitWorker& worker : workers) worker.training->Step(mixing->lr_scale());
    mixing->Mix(workers);
  }
  return 100 * MeanMetric(workers, "heldout_accuracy");
}

}  // namespace crowdsurf::bench
