// SubnetCheckers: watches IST from outside: what nobody covered keeps its value, and members that
// applied one value hold one model.
//
// Beside RoundCheckers, which recomputes what was covered. Statement: subnets (violations.h).
// Owner: one world; single sequence. Memory: a digest for each value that was decided.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/id.h"
#include "simulator/engine/violations.h"
#include "simulator/host/chunk_host.h"

namespace crowdsurf::simulator {

class SubnetCheckers {
 public:
  explicit SubnetCheckers(Violations& violations) : violations_(violations) {}

  // `result` is what a round of sub-networks left at the node; `base`: what it held before.
  void OnRound(int node, const ChunkHost<float>::Opened& opened, const std::vector<float>& result,
               const std::vector<float>& base);
  // The node's base is `model` after the value with this root.
  void OnCommitted(int node, const Digest& root, const std::vector<float>& model);

  uint64_t rounds() const { return rounds_; }
  uint64_t kept() const { return kept_; }  // values that nobody covered

 private:
  void Add(int node, const std::string& what);

  Violations& violations_;
  std::map<Digest, Digest> models_;  // by root
  uint64_t rounds_ = 0, kept_ = 0;
};

}  // namespace crowdsurf::simulator
