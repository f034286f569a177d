#include "worker/core/subnet/unit_schema.h"

#include <algorithm>
#include <set>
#include <utility>

namespace crowdsurf::worker {
namespace {

// What is wrong with the unit groups of `tensor`, in words; empty when nothing is. Notes its units.
std::string FlawOf(const UnitTensor& tensor, std::map<uint32_t, uint32_t>& units) {
  std::set<uint32_t> cut;
  for (const UnitAxis& axis : tensor.axes) {
    const auto count = UnitsAlong(axis, tensor.shape);
    if (axis.axis >= tensor.shape.size()) return absl::StrCat("there is no axis ", axis.axis);
    if (!count) {
      return absl::StrCat("axis ", axis.axis, " is not a whole number of ", axis.blocks,
                          " blocks of units of size ", axis.unit_size, ", at most 2^24 units");
    }
    if (!cut.insert(axis.axis).second) {
      return absl::StrCat("axis ", axis.axis, " has two unit groups");
    }
    // A group has the same units in every tensor that it cuts.
    const auto known = units.try_emplace(axis.group, *count).first;
    if (known->second != *count) {
      return absl::StrCat("axis ", axis.axis, " has ", *count, " units of group ", axis.group,
                          ", other tensors have ", known->second);
    }
  }
  return "";
}

}  // namespace

std::optional<uint32_t> UnitsAlong(const UnitAxis& axis, std::span<const uint64_t> shape) {
  if (axis.axis >= shape.size() || axis.unit_size == 0 || axis.blocks == 0) return std::nullopt;
  const uint64_t step = uint64_t{axis.unit_size} * axis.blocks;
  const uint64_t length = shape[axis.axis];
  if (length == 0 || length % step != 0 || length / step > kMaxUnits) return std::nullopt;
  return static_cast<uint32_t>(length / step);
}

StatusOr<UnitSchema> UnitSchema::Of(std::vector<UnitTensor> tensors) {
  UnitSchema schema;
  std::string wrong;
  for (const UnitTensor& tensor : tensors) {
    const std::string flaw = FlawOf(tensor, schema.units_);
    // A trainer may declare many bad tensors: the message has an end.
    if (!flaw.empty() && wrong.size() < 4096) {
      absl::StrAppend(&wrong, wrong.empty() ? "" : "; ", "tensor \"", tensor.name, "\": ", flaw);
    }
    uint64_t elements = 1;
    for (const uint64_t dimension : tensor.shape) elements *= dimension;
    schema.elements_ += elements;
  }
  if (!wrong.empty()) return absl::InvalidArgumentError(wrong);
  schema.tensors_ = std::move(tensors);
  return schema;
}

bool UnitSchema::Fits(const IndexSets& sets) const {
  return std::all_of(sets.begin(), sets.end(), [&](const auto& set) {
    const auto& [group, active] = set;
    const auto known = units_.find(group);
    return known != units_.end() && !active.empty() && active.back() < known->second &&
           std::adjacent_find(active.begin(), active.end(), std::greater_equal<>()) == active.end();
  });
}

bool UnitSchema::IsWhole(const IndexSets& sets) const {
  return std::all_of(sets.begin(), sets.end(), [&](const auto& set) {
    const auto known = units_.find(set.first);
    return known != units_.end() && set.second.size() == known->second;
  });
}

}  // namespace crowdsurf::worker
