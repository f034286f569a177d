// Drawn models: small tensors with random unit groups, and what belongs to whom, element by
// element.
//
// The oracle of the sub-network tests. It walks every element of the flat vector and looks its
// units up by division, so it shares nothing with the code that walks products of positions.
// Deterministic under its seed; one thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "worker/core/subnet/unit_partition.h"
#include "worker/core/subnet/unit_schema.h"

namespace crowdsurf::worker {

inline UnitTensor DrawTensor(size_t number, const std::vector<uint32_t>& units, Rng& rng) {
  UnitTensor tensor{.name = "t" + std::to_string(number), .shape = {}, .axes = {}};
  const size_t dimensions = rng.Uniform(4);
  for (uint32_t axis = 0; axis < dimensions; ++axis) {
    if (rng.Bernoulli(0.4)) {
      tensor.shape.push_back(1 + rng.Uniform(4));
      continue;
    }
    const auto group = static_cast<uint32_t>(rng.Uniform(units.size()));
    const UnitAxis cut{.axis = axis,
                       .group = 7 * group,  // names need not be consecutive
                       .unit_size = 1 + static_cast<uint32_t>(rng.Uniform(3)),
                       .blocks = 1 + static_cast<uint32_t>(rng.Uniform(3))};
    tensor.shape.push_back(uint64_t{units[group]} * cut.unit_size * cut.blocks);
    tensor.axes.push_back(cut);
  }
  return tensor;
}

// 1 to 3 groups of up to `max_units` units; 1 to 5 tensors with up to three axes.
inline UnitSchema DrawSchema(Rng& rng, uint32_t max_units = 7) {
  std::vector<uint32_t> units(1 + rng.Uniform(3));
  for (uint32_t& count : units) count = 1 + static_cast<uint32_t>(rng.Uniform(max_units));
  std::vector<UnitTensor> tensors(1 + rng.Uniform(5));
  for (size_t i = 0; i < tensors.size(); ++i) tensors[i] = DrawTensor(i, units, rng);
  auto schema = UnitSchema::Of(std::move(tensors));
  CHECK(schema.ok());
  return *std::move(schema);
}

inline std::vector<uint32_t> DrawWeights(size_t members, Rng& rng) {
  std::vector<uint32_t> weights(members);
  for (uint32_t& weight : weights) weight = 1 + static_cast<uint32_t>(rng.Uniform(9));
  return weights;
}

// Of every element of the flat vector, the (group, unit) of each axis that has a group.
inline std::vector<std::vector<std::pair<uint32_t, uint32_t>>> UnitsOfElements(
    const UnitSchema& schema) {
  std::vector<std::vector<std::pair<uint32_t, uint32_t>>> all;
  for (const UnitTensor& tensor : schema.tensors()) {
    uint64_t elements = 1;
    for (const uint64_t dimension : tensor.shape) elements *= dimension;
    for (uint64_t element = 0; element < elements; ++element) {
      std::vector<uint64_t> index(tensor.shape.size());
      uint64_t rest = element;
      for (size_t axis = index.size(); axis-- > 0;) {
        index[axis] = rest % tensor.shape[axis];
        rest /= tensor.shape[axis];
      }
      auto& units = all.emplace_back();
      for (const UnitAxis& cut : tensor.axes) {
        const uint64_t in_a_block = tensor.shape[cut.axis] / cut.blocks;
        const uint64_t unit = index[cut.axis] % in_a_block / cut.unit_size;
        units.emplace_back(cut.group, static_cast<uint32_t>(unit));
      }
    }
  }
  return all;
}

inline bool Covers(const IndexSets& sets, const std::vector<std::pair<uint32_t, uint32_t>>& units) {
  for (const auto& [group, unit] : units) {
    const auto set = sets.find(group);
    bool active = set == sets.end();
    if (!active) {
      for (const uint32_t own : set->second) active = active || own == unit;
    }
    if (!active) return false;
  }
  return true;
}

}  // namespace crowdsurf::worker
