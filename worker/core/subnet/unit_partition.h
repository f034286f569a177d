// UnitPartition: which units each member of a group trains until the next averaging.
//
// A pure function of values that all members agree on, so nobody sends it: the view's seed and
// epoch, the averaging's number, the members by cell with their weights, and the model's unit
// groups. Of each group a Fisher-Yates order is drawn from its own stream, and cut by largest
// remainder. Source: Independent Subnet Training (arXiv 1910.02120), algorithm 1, lines 3-6.
// Differs from the paper: shares by weight, and more members than units. Value; any thread. Memory:
// the units of all groups, once a member that has them.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "worker/core/round/rank_set.h"
#include "worker/core/subnet/unit_schema.h"
#include "worker/core/view/averaging_id.h"

namespace crowdsurf::worker {

struct PartitionKey {
  uint64_t view_seed = 0;
  uint64_t epoch = 0;
  AveragingId averaging = {};
  bool operator==(const PartitionKey&) const = default;
};

// Units for each of `weights` by largest remainder: they sum to `units`, and each has at least one.
// Of equal remainders the lower index comes first; a unit that somebody lacks is taken from the
// largest share. Pre: 1 <= weights.size() <= units <= kMaxUnits; weights >= 1. Exact integers.
std::vector<uint32_t> ShareUnits(uint32_t units, std::span<const uint32_t> weights);

class UnitPartition {
 public:
  // weights: of the group's members by cell, equal ones for equal shares. Pre: 1 to 64 of them,
  // each >= 1. units: of each group (UnitSchema::units).
  UnitPartition(const PartitionKey& key, std::span<const uint32_t> weights,
                const std::map<uint32_t, uint32_t>& units);

  size_t members() const { return sets_.size(); }
  // The units of a member, by group.
  const IndexSets& SetsOf(size_t member) const { return sets_[member]; }
  // The members with the same units of `group`: `member` alone, unless the group has fewer units
  // than there are members. No others share a unit with it.
  RankSet Sharers(size_t member, uint32_t group) const;

 private:
  std::vector<IndexSets> sets_;
  std::map<uint32_t, uint32_t> units_;
};

}  // namespace crowdsurf::worker
