// MixingWorld: workers with a strategy each, in virtual time, for the contract that all share.
//
// Strategies on graphs run in their real Mixing (mixing_core.h), on doubles, hosted by the
// simulator's ActionHost. Moshpit and AllReduce open rounds that this world reduces itself,
// exactly. Every view begins with a full average, as in an agent. The network delays, loses,
// repeats and overtakes; one seed, one run. Owner: one test; single sequence. Bounds: the test's.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "simulator/host/action_host.h"
#include "tests/contract/world/mixing_core.h"
#include "worker/core/view/view_plan.h"

namespace crowdsurf::worker {

struct MixingWorldOptions {
  AveragingConfig config;
  uint64_t elements = 1024;  // most of them one matrix, the rest a tensor of one dimension
  uint32_t chunk_elements = 256;
  double loss = 0, repeat = 0;       // of chunks on the way
  Duration delay = Milliseconds(2);  // greatest; uniform below it
  // A chunk keeps the way out to its neighbour busy so long, and the next waits; 0: they leave at
  // once.
  Duration chunk_time = {};
  Duration step = Milliseconds(10);
  Duration stagger = {};  // a worker's boundaries come so much after those of the one before
  // Trainers descend towards their own target by it at every step, and wait where OverlapOf says
  // so.
  double learning_rate = 0;
  uint64_t seed = 1;
};

class MixingWorld : private simulator::ActionHost<double>::Outside {
 public:
  explicit MixingWorld(MixingWorldOptions options);
  ~MixingWorld() override;

  // A worker whose parameters and target are `value` everywhere; the next MakeView has it. Its loss
  // is curvature / 2 * (parameter - target)^2 in each element.
  int Add(double value, double curvature = 1);
  void Kill(int node);  // at once; the others are told that it is down
  // The next view: of all who live. Everybody ends with the mean of their parameters.
  void MakeView();
  void RunFor(Duration time);
  // A worker that has had so many results since its first publishes no more.
  void StopAfter(uint64_t results) { max_results_ = results; }
  // Trainers stop publishing; what is under way ends.
  void Settle();
  // Nobody begins an exchange any more; what is under way ends, and trainers take what came of it.
  void Drain();
  // The worker's share is in the job's next count, and it is not told of the sum.
  void MissNextCount(int node) { misses_count_ = node; }

  std::vector<int> Living() const;
  std::vector<double>& parameters(int node);
  const std::vector<double>& extra(int node, size_t region) const;
  const Mixing& mixing(int node) const;
  const PeerId& id(int node) const;
  uint64_t reserved(int node) const;  // doubles in the extra regions
  double Mean() const;                // of element 0 over the living
  double Spread() const;              // greatest minus least of any element
  double lr_scale(int node) const;
  uint64_t trace() const { return trace_; }
  // The next chunk of `node` has a NaN; the next has another view's name.
  void PlantNaN(int node) { nan_from_ = node; }
  void PlantForeign(int node) { foreign_from_ = node; }

 private:
  class Node;
  Time now() const { return queue_.now(); }
  Node& At(int node) const { return *nodes_[static_cast<size_t>(node)]; }
  Node& Of(const PeerId& id) const { return At(index_.at(id)); }

  simulator::EventQueue& queue() override { return queue_; }
  void SendBody(int from, const PeerId& to, const Bytes& body) override;
  void SendTensor(int from, const PeerId& to, const simulator::TensorFrame& frame) override;
  void OnDeath(int node) override;
  // This world has neither records nor states: it makes the views itself.
  void Put(int, const PutRecord&) override {}
  void Watch(int, const std::string&) override {}
  void Unwatch(int, const std::string&) override {}
  simulator::HeldValues<double> FindState(int, const FetchState&) override { return {}; }

  void AverageByRounds();
  void Count();  // the job's count, as Averaging has it
  void Note(uint64_t value);

  const MixingWorldOptions options_;
  Rng rng_;
  simulator::EventQueue queue_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::map<PeerId, int> index_;
  std::optional<View> view_;
  uint64_t trace_ = 14695981039346656037ULL;
  int nan_from_ = -1;
  int foreign_from_ = -1;
  bool settling_ = false;
  uint64_t max_results_ = UINT64_MAX;
  AveragingId counts_{1};  // the view's full average was the first
  int misses_count_ = -1;
};

}  // namespace crowdsurf::worker
