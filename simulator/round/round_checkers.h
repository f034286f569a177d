// RoundCheckers: watches all members of all instances from outside and says what was broken.
//
// It knows everything: what every member put in, what was folded of it, who said what, and what was
// applied. It recomputes every sum by arithmetic of its own. Statements: docs/simulator.md (S1 to
// S6). Owner: one world; single sequence. Memory: all instances of the run.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "simulator/engine/origins.h"
#include "simulator/engine/violations.h"
#include "worker/core/round/chunk_index.h"
#include "worker/core/round/round.h"
#include "worker/core/round/round_frames.h"
#include "worker/core/view/averaging_choices.h"

namespace crowdsurf::simulator {

// How the result of a fold travels: Int8's is dithered by the place of its first value.
struct ResultForm {
  worker::WireFormat wire = worker::WireFormat::kFloat32;
  uint32_t dither = 0;
};
// The fold of docs/round.md, written again: multiply, then add, ranks ascending, one float factor
// at the end. `inputs` of `span`, by rank, as wire bytes.
Bytes RecomputeFold(const ResultForm& form, const worker::ChunkSpan& span,
                    const std::map<int, Bytes>& inputs, const std::vector<double>& weights);

// What a member with a mask holds, element by element of the whole vector.
struct MaskedInput {
  std::vector<float> own;
  std::vector<bool> covered;
};

// A node opens a round: with which rank, and what it puts in. Inputs by chunk.
struct OpenReport {
  int rank = 0;
  double weight = 0;
  worker::WireFormat wire = worker::WireFormat::kFloat32;
  std::vector<Parcel> inputs = {};
};

// A node has folded: of what, by rank, into which values of its output (`slot`, of `span`), and the
// bytes that are sent.
struct FoldReport {
  worker::FoldChunk fold;
  std::map<int, Bytes> used;
  worker::ChunkSpan span;
  std::span<const float> slot;
  bool subnet = false;  // of sub-networks: what one alone gives is the result, whatever it weighs
  Bytes result;
  ResultForm form = {};
};

// A node applies, as part of the branch that ballot `branch` formed (0: in the view itself): its
// slots (empty: nothing in it), and those of all live members in `over.members` that have not given
// up.
struct ApplyReport {
  worker::RoundOver over;
  worker::Ballot branch = 0;
  std::vector<Bytes> slots;
  std::map<int, std::vector<Bytes>> held_by_members;
};

class RoundCheckers {
 public:
  explicit RoundCheckers(Violations& violations) : violations_(violations) {}

  // Ranks whose member lies: what they say and put in is not held against the others.
  void SetHostile(int node) { hostile_.insert(node); }

  void OnOpen(int node, const worker::InstanceId& instance, OpenReport report);
  // That member's input is masked: `own` is what it holds of the whole vector, `covered` what goes
  // in. Before its rounds begin.
  void OnMask(const worker::InstanceId& instance, int rank, MaskedInput input) {
    seen_[instance].masked.insert_or_assign(rank, std::move(input));
  }
  // A stand-in said `value` for a rank without a live member.
  void OnSpoke(int node, const worker::InstanceId& instance, int rank, worker::ChunkIndex chunk,
               const Parcel& value);
  void OnFold(int node, const worker::InstanceId& instance, const FoldReport& report);
  void OnCountedTwice(int node, const worker::InstanceId& instance, worker::ChunkIndex chunk);
  // The root of the HAVE(0) that `node` said last; none when it said none.
  Digest LastHave(int node, const worker::InstanceId& instance) const;
  // A frame leaves `node`. `witnesses` and `members` of its instance, for S3.
  void OnFrame(int node, const worker::Frame& frame, const worker::RoundSpec& spec);
  void OnWitnessFrame(int node, const PeerId& id, const worker::Frame& frame,
                      const std::vector<PeerId>& witnesses);
  void OnApplied(int node, const worker::InstanceId& instance, const ApplyReport& report);

  // For whole jobs, where no RoundOver is seen: `node` uses its output of `instance` as decided.
  void OnUsed(int node, const worker::InstanceId& instance, const std::vector<Bytes>& slots);

  uint64_t applied() const { return applied_count_; }
  uint64_t folds() const { return folds_; }

 private:
  struct Input {
    int node = 0;
    double weight = 0;
    std::vector<Parcel> chunks;
  };
  struct Fold {
    int node = 0;
    worker::RankSet mask = {};
    worker::ChunkSpan span;
    bool subnet = false;
    Bytes result;
    worker::WireFormat wire = worker::WireFormat::kFloat32;
  };
  struct Applied {
    Digest root;
    std::vector<Bytes> slots;
    double weight = 0;
  };
  struct Seen {
    worker::WireFormat wire = worker::WireFormat::kFloat32;
    std::map<int, Input> inputs;                                           // by rank
    std::map<int, MaskedInput> masked;                                     // by rank
    std::map<std::pair<int, worker::ChunkIndex>, std::set<Bytes>> spoken;  // (rank, chunk)
    std::map<int, std::set<double>> voices;  // by rank: weights that stand-ins said
    std::map<std::pair<worker::ChunkIndex, worker::Ballot>, std::vector<Fold>> folds;
    std::map<worker::Ballot, Applied> applied;  // by branch, 0: none
    std::map<int, Digest> fast_haves;           // by node: root of HAVE(0)
    std::map<Digest, Digest> roots;             // accepted bytes -> root
    std::map<std::pair<worker::Ballot, Digest>, std::set<PeerId>> accepted;
    bool branched = false;  // somebody opened a branch: results may differ between views
    std::set<std::vector<Bytes>> used;  // OnUsed
    std::set<Digest> decided;           // roots
  };
  bool IsMean(int node, const Seen& seen, const FoldReport& report) const;
  void Decide(const worker::InstanceId& instance, Seen& seen, const Digest& root);
  void CheckValue(int node, const worker::InstanceId& instance, const worker::RoundOver& over,
                  const std::vector<Bytes>& slots);
  void Add(std::string_view statement, const worker::InstanceId& instance, int node,
           const std::string& what);

  Violations& violations_;
  std::set<int> hostile_;
  std::map<worker::InstanceId, Seen> seen_;
  uint64_t applied_count_ = 0;
  uint64_t folds_ = 0;
};

}  // namespace crowdsurf::simulator
