// ReduceWorld: a group that reduces under masks, in virtual time, for the contract that all
// transports share.
//
// Everything but the network and the trainers is the production code: the strategy's actions go
// into real GroupRounds, the bytes through real Reducers, on doubles. The network delays, loses,
// repeats and overtakes; one seed, one run. Members hold replicas, as IST's do: all begin with the
// same values, each changes its own. Owner: one test; single sequence. Bounds: the test's.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "simulator/engine/event_queue.h"
#include "tests/contract/world/masked_all_reduce.h"
#include "worker/core/averaging/group_rounds.h"
#include "worker/core/reduce/reducer.h"
#include "worker/core/view/view_plan.h"

namespace crowdsurf::worker {

struct ReduceWorldOptions {
  int members = 4;
  uint64_t elements = 1024;
  uint32_t chunk_elements = 64;
  WireFormat wire = WireFormat::kFloat32;
  double loss = 0, repeat = 0;       // of frames and chunks on the way
  Duration delay = Milliseconds(2);  // greatest; uniform below it
  std::vector<double> weights = {};  // by member; none: one each
  uint64_t seed = 1;
};

class ReduceWorld {
 public:
  // Which mask each member has; the cell of member i is i.
  ReduceWorld(ReduceWorldOptions options, const MaskedAllReduce::MaskOf& mask);
  ~ReduceWorld();

  // What the members hold: everybody the same at first. Change it before Average.
  std::vector<double>& parameters(int member);
  // Opens an averaging at everybody who lives, and runs until all rounds are over.
  void Average();
  // It dies that much after the next averaging began; zero: before it.
  void KillIn(int member, Duration after) { deaths_.emplace_back(member, after); }
  // All inputs that leave `member` are changed so on their way.
  void Spoil(int member, std::function<void(Bytes&)> how) { spoiled_[member] = std::move(how); }
  // Everybody is sent the frames and chunks of a view that is not theirs, too.
  void AddForeign() { foreign_ = true; }

  std::vector<int> Living() const;
  bool applied(int member) const;  // the last averaging
  double weight(int member) const;
  double Refused(const std::string& reason) const;  // frames, all members
  uint64_t bad_inputs() const { return bad_inputs_; }
  uint64_t input_bytes() const { return input_bytes_; }  // sent so far
  size_t max_held() const { return max_held_; }          // bytes of inputs at one member
  uint64_t trace() const { return trace_; }
  // Calls `before` and `after` around whatever the cores and reducers do.
  void Watch(std::function<void()> before, std::function<void()> after);

 private:
  struct Node;
  Time now() const { return queue_.now(); }
  // `run` after a drawn delay: never, once or twice.
  void Carry(const std::function<void()>& run);
  void Input(Node& node, const std::function<void(Actions&)>& input);
  void Run(Node& node, StrategyActions& actions, Actions& out);
  void Execute(Node& node, Action& action);
  void ExecuteChunk(Node& node, const Chunk& chunk);
  void SendChunk(const PeerId& to, ChunkArrived chunk, Bytes bytes);
  void Arrive(Node& node, ChunkArrived chunk, const Bytes& bytes);
  void ArmTimer(Node& node);
  void Note(ByteView bytes);
  bool AllOver() const;

  const ReduceWorldOptions options_;
  Rng rng_;
  AveragingId averaging_;
  simulator::EventQueue queue_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::map<PeerId, int> index_;
  Seating seating_;
  std::vector<std::pair<int, Duration>> deaths_;
  std::map<int, std::function<void(Bytes&)>> spoiled_;
  bool foreign_ = false;
  uint64_t bad_inputs_ = 0, input_bytes_ = 0;
  size_t max_held_ = 0;
  uint64_t trace_ = 14695981039346656037ULL;
  std::function<void()> before_ = [] {};
  std::function<void()> after_ = [] {};
};

}  // namespace crowdsurf::worker
