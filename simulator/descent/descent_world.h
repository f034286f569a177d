// DescentWorld: the nodes of a descent, the links and the roster between them, who dies and joins,
// and the judge.
//
// Owner: RunDescent; single sequence. Bounds: max_events, far above what a run takes: a job that
// spins ends there, and is judged as it stands.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "simulator/descent/descent.h"
#include "simulator/descent/descent_node.h"
#include "simulator/descent/quadratic.h"
#include "simulator/engine/network.h"
#include "simulator/engine/roster_board.h"
#include "simulator/engine/trace.h"

namespace crowdsurf::simulator {

class DescentWorld : public DescentNode::Outside {
 public:
  explicit DescentWorld(const DescentOptions& options);
  DescentResult Run();

  EventQueue& queue() override { return queue_; }
  void SendBody(int from, const PeerId& to, const Bytes& body) override;
  void SendTensor(int from, const PeerId& to, const TensorFrame& frame) override;
  void Put(int from, const worker::PutRecord& record) override;
  void Watch(int node, const std::string& key) override { board_.Watch(node, key); }
  void Unwatch(int node, const std::string& key) override { board_.Unwatch(node, key); }
  HeldValues<float> FindState(int node, const worker::FetchState& fetch) override;
  void OnDeath(int node) override;

 private:
  void AddNode(Duration start);
  DescentWorker QuadraticWorker(const Rng& own);
  void Look();
  void KillOne(size_t turn);
  int Reach(int from, const PeerId& to);
  void TellDown(int to, int of);
  std::vector<double> Optimum();
  void Judge(DescentResult& result);
  DescentNode& At(int node) { return *nodes_[static_cast<size_t>(node)]; }
  std::vector<DescentNode*> Living();

  const DescentOptions options_;
  Rng rng_;
  EventQueue queue_;
  Network network_;
  RosterBoard board_;
  Trace trace_;
  Rng victims_;
  std::vector<std::unique_ptr<DescentNode>> nodes_;
  std::vector<Quadratic> losses_;  // by node; none: the models are the caller's
  uint64_t tensor_bytes_ = 0;
  bool over_ = false;  // all who live have taken their steps
  std::map<PeerId, int> index_;
  std::map<std::pair<int, int>, Time> told_down_;
};

}  // namespace crowdsurf::simulator
