// UnitSchema: which hidden units the axes of a model's tensors run over.
//
// A unit group is the width of one hidden layer. All axes that carry it are cut by one index set
// when a member trains a sub-network alone (Independent Subnet Training, Yuan et al. 2022, arXiv
// 1910.02120, section 3). Axes without a group are shared by all members. Used by the agent, by the
// link's layout and by the built-in trainer; depends on base only. Values; any thread. Bounds:
// kMaxUnits a group.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace crowdsurf::worker {

inline constexpr uint32_t kMaxUnits = 1U << 24;  // of one group

// An axis of a tensor that runs over the units of a group. Unit u has, in each of the blocks, the
// `unit_size` positions from (block * units + u) * unit_size on.
struct UnitAxis {
  uint32_t axis = 0;       // of the tensor's shape
  uint32_t group = 0;      // its name; any number
  uint32_t unit_size = 1;  // neighbouring positions that are one unit: the rows of a head
  uint32_t blocks = 1;     // all units, so many times: the gates of a recurrent layer
  bool operator==(const UnitAxis&) const = default;
};

// Units that `axis` has in a tensor of `shape`. nullopt: there is no such axis, it is no whole
// number of blocks and units, or it has more than kMaxUnits.
std::optional<uint32_t> UnitsAlong(const UnitAxis& axis, std::span<const uint64_t> shape);

struct UnitTensor {
  std::string name;             // for messages
  std::vector<uint64_t> shape;  // row-major; empty is a scalar
  std::vector<UnitAxis> axes;   // at most one an axis of the shape
};

// Active units by group, ascending. A group that is not there is active whole.
using IndexSets = std::map<uint32_t, std::vector<uint32_t>>;

class UnitSchema {
 public:
  UnitSchema() = default;
  // The tensors lie packed in this order. InvalidArgument names every tensor with an axis that
  // UnitsAlong refuses, two groups on one axis, or other units than the group has elsewhere.
  static StatusOr<UnitSchema> Of(std::vector<UnitTensor> tensors);

  const std::vector<UnitTensor>& tensors() const { return tensors_; }
  // Units of each group.
  const std::map<uint32_t, uint32_t>& units() const { return units_; }
  uint64_t elements() const { return elements_; }

  // Each group there is known, and has at least one unit, ascending, within the group.
  bool Fits(const IndexSets& sets) const;
  // Every unit of every group is active.
  bool IsWhole(const IndexSets& sets) const;

 private:
  std::vector<UnitTensor> tensors_;
  std::map<uint32_t, uint32_t> units_;
  uint64_t elements_ = 0;
};

}  // namespace crowdsurf::worker
