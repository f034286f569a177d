// ReduceWorld: a group that reduces under masks, in virtual time, for the contract that all
// transports share.
//
// Everything but the network and the trainers is the production code: the strategy's actions go
// into real GroupRounds (reduce_core.h), the bytes through real Reducers, on doubles, hosted by the
// simulator's ActionHost. The network delays, loses, repeats and overtakes; one seed, one run.
// Members hold replicas, as IST's do: all begin with the same values, each changes its own. Owner:
// one test; single sequence. Bounds: the test's.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "simulator/host/action_host.h"
#include "tests/contract/world/reduce_core.h"

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

class ReduceWorld : private simulator::ActionHost<double>::Outside {
 public:
  // Which mask each member has; the cell of member i is i.
  ReduceWorld(ReduceWorldOptions options, const MaskedAllReduce::MaskOf& mask);
  // Sub-networks of `units`, whose elements are the options'.
  ReduceWorld(ReduceWorldOptions options, const UnitSchema& units);
  ~ReduceWorld() override;

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
  // IST: the units that the member's trainer was told last; none: the whole model.
  const TellTrainerUnits& units(int member) const;
  double Refused(const std::string& reason) const;       // frames, all members
  uint64_t bad_inputs() const;                           // chunks that were not sound, all members
  uint64_t input_bytes() const { return input_bytes_; }  // sent so far
  size_t max_held() const { return max_held_; }          // bytes of inputs at one member
  uint64_t trace() const { return trace_; }

 private:
  class Node;
  Time now() const { return queue_.now(); }
  Node& At(int member) const { return *nodes_[static_cast<size_t>(member)]; }
  Node& Of(const PeerId& id) const { return At(index_.at(id)); }

  simulator::EventQueue& queue() override { return queue_; }
  void SendBody(int from, const PeerId& to, const Bytes& body) override;
  void SendTensor(int from, const PeerId& to, const simulator::TensorFrame& frame) override;
  void OnDeath(int member) override;
  // This world has neither records nor states: its view never changes.
  void Put(int, const PutRecord&) override {}
  void Watch(int, const std::string&) override {}
  void Unwatch(int, const std::string&) override {}
  simulator::HeldValues<double> FindState(int, const FetchState&) override { return {}; }

  using StrategyMaker = std::function<std::unique_ptr<Strategy>()>;
  ReduceWorld(ReduceWorldOptions options, StrategyKind kind, const StrategyMaker& make,
              const UnitSchema& units);
  void AddMember(int member, std::unique_ptr<Strategy> strategy, const UnitSchema& units);
  // `run` after a drawn delay: never, once or twice.
  void Carry(const std::function<void()>& run);
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
  uint64_t input_bytes_ = 0;
  size_t max_held_ = 0;
  uint64_t trace_ = 14695981039346656037ULL;
};

}  // namespace crowdsurf::worker
