// RelaySum: what one worker keeps and sends on a tree so that everybody's latest model reaches
// everybody.
//
// Source: RelaySGD (Vogels et al. 2021, arXiv 2110.04175), RelaySum/Model with counts:
//   m(i->j) = y_i + sum of m(k->i) over the other neighbours,  c(i->j) = 1 + sum of c(k->i),
//   x_i = (y_i + sum of m(j->i) + (n - C_i) r_i) / n.
// Differs from the released code: *latest-wins* edge memory. A lost message leaves the last one of
// that edge in place instead of deleting it, so 10 % loss or fully asynchronous workers still
// converge to the exact optimum (the fixed point does not depend on delays); r_i is the worker's
// own last average and stands in only for mass that an edge has never delivered in this view. Edge
// memory is dropped at every view change: a subtree may have changed. Owner: the strategy of an
// agent, or the simulator. Single sequence. Memory: degree copies of the vector, made by Reset;
// nothing is allocated in Send, Receive or Average. Scalar: float in production, double in paper
// tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "base/check.h"
#include "worker/core/strategy/edge_strategy.h"
#include "worker/core/view/graph.h"

namespace crowdsurf::worker {

template <class Scalar>
class RelaySumMemory {
 public:
  // What crosses an edge. Sums grow to n * |x|: float32 or wider on the wire, never float16.
  struct Message {
    uint64_t sequence = 0;  // the sender's step; older ones than the edge holds are ignored
    uint32_t count = 0;     // models in the sum
    std::vector<Scalar> sum;
  };

  RelaySumMemory(const Graph& tree, uint32_t self, size_t elements) { Reset(tree, self, elements); }

  // A new view: forgets every edge. Pre: `tree` is a tree with `self` in it.
  void Reset(const Graph& tree, uint32_t self, size_t elements) {
    CHECK(tree.IsTree());
    CHECK_LT(self, tree.nodes);
    nodes_ = tree.nodes;
    elements_ = elements;
    edges_.clear();
    const auto neighbours = tree.Neighbours();
    for (const uint32_t neighbour : neighbours[self]) {
      edges_[neighbour].sum.assign(elements, Scalar(0));
    }
  }

  // The message to neighbour `to`: `y` (this worker's model after its local step, Scalar[elements])
  // and what the other edges hold. `out.sum` is reused. Pre: `to` is a neighbour.
  void Send(uint32_t to, uint64_t sequence, std::span<const Scalar> y, Message& out) const {
    CHECK_EQ(y.size(), elements_);
    CHECK(edges_.contains(to));
    out.sequence = sequence;
    out.count = 1;
    out.sum.assign(y.begin(), y.end());
    for (const auto& [neighbour, edge] : edges_) {
      if (neighbour == to || edge.count == 0) continue;
      out.count += edge.count;
      for (size_t i = 0; i < elements_; ++i) out.sum[i] += edge.sum[i];
    }
  }

  // False, and nothing changes: not a neighbour, a wrong size, an impossible count, or not newer
  // than what the edge holds. The caller counts it.
  [[nodiscard]] bool Receive(uint32_t from, const Message& message) {
    const auto it = edges_.find(from);
    if (it == edges_.end() || message.sum.size() != elements_ || message.count == 0 ||
        message.count >= nodes_ ||
        (it->second.count > 0 && message.sequence <= it->second.sequence)) {
      return false;
    }
    it->second.sequence = message.sequence;
    it->second.count = message.count;
    std::copy(message.sum.begin(), message.sum.end(), it->second.sum.begin());
    return true;
  }

  // x: in, this worker's previous average (r_i); out, the new one. y as in Send. Returns C_i,
  // models counted, 1..n.
  uint32_t Average(std::span<const Scalar> y, std::span<Scalar> x) const {
    CHECK_EQ(x.size(), elements_);
    CHECK_EQ(y.size(), elements_);
    uint32_t counted = 1;
    for (const auto& [neighbour, edge] : edges_) counted += edge.count;
    // Counts of edges that were heard at different times can overlap for a moment while a tree
    // fills; never over n.
    const Scalar missing = static_cast<Scalar>(counted < nodes_ ? nodes_ - counted : 0);
    const Scalar inverse = Scalar(1) / static_cast<Scalar>(std::max(nodes_, counted));
    for (size_t i = 0; i < elements_; ++i) {
      Scalar sum = y[i] + missing * x[i];
      for (const auto& [neighbour, edge] : edges_) {
        if (edge.count > 0) sum += edge.sum[i];
      }
      x[i] = sum * inverse;
    }
    return counted;
  }

  std::vector<uint32_t> neighbours() const {
    std::vector<uint32_t> result;
    for (const auto& [neighbour, edge] : edges_) result.push_back(neighbour);
    return result;
  }

 private:
  uint32_t nodes_ = 0;
  size_t elements_ = 0;
  std::map<uint32_t, Message> edges_;  // by neighbour; at most the tree's degree
};

// The strategy of an agent. RelaySumMemory is the whole of it in one object, for paper tests; here
// the memory is the edge mailbox's, chunk by chunk, and the arithmetic is MixKernel's: the same
// sums in the same order (tested bit for bit). Momentum stays in each trainer: y is the snapshot
// after its own steps, whatever optimizer made them. DoubleBinaryTree: the first half of the vector
// travels on one tree, the rest on the other (the paper: even and odd coordinates). The learning
// rate's factor is 1 + the mean age of a model in an average, as the members measure it together
// (model_age.h): each adds its share to the job's count, and the sum gives all of them one factor.
// Factors of their own would be other weights of their losses, and move the end. It stays as it is
// while the measured one is near, is at most that of messages which come a step and hop late, and
// is approached over a diameter of steps. Until all have measured it is 1.
class RelaySum : public EdgeStrategy {
 public:
  Needs needs() const override { return NeedsOf(StrategyKind::kRelaySum); }
  double lr_scale() const override { return lr_scale_; }
  ModelAge age() const override;

 protected:
  EdgeSum edge_sum() const override { return EdgeSum::kWithOthers; }
  GraphUse graph_use() const override { return GraphUse::kTrees; }
  WireFormat wire() const override { return WireFormat::kFloat32; }  // sums grow to n |x|
  void OnGraph(const Topology& topology) override;
  void Average(StrategyActions& out) override;
  void OnAveraged(StrategyActions& out) override;
  void OnCounted(const AgesCounted& counted, StrategyActions& out) override;

 private:
  double ShareOfAge() const;
  void AimAt(double scale);

  double max_scale_ = 1;       // bound of the factor
  double diameter_ = 1;        // steps, at least one
  bool whole_ = false;         // the last average had the models of all members
  std::optional<double> age_;  // own share of the mean age, over some steps; none: not known yet
  AgreedScale agreed_;
  double lr_scale_ = 1;
  double lr_target_ = 1;
  double lr_step_ = 0;
};

}  // namespace crowdsurf::worker
