// Parameters: a model as one flat vector and a table that says what lies where in it.
//
// Purpose: the only picture of a model that optimizers, files and the trainer link need. Tensors
// lie packed in table order, row-major, no gaps, so an offset is an element index. Built once by a
// model's constructor, then read by anybody. Unit axes name the hidden units that an axis runs
// over: all axes of one group are cut by the same index set when a sub-network is trained
// (worker/core/subnet/unit_schema.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "worker/core/subnet/unit_schema.h"

namespace crowdsurf::trainer {

enum class TensorRole { kParameter, kOptimizerState, kBuffer };

struct TensorSpec {
  std::string name;           // unique in its table
  std::vector<size_t> shape;  // every dimension >= 1
  size_t offset = 0;          // elements from the start of the flat vector
  TensorRole role = TensorRole::kParameter;
  std::vector<worker::UnitAxis> units = {};  // axes that a sub-network has a part of

  size_t elements() const;
  bool operator==(const TensorSpec&) const = default;
};

class ParameterTable {
 public:
  // Appends a tensor behind the last one; returns its index. Pre: the name is new.
  size_t Add(std::string name, std::vector<size_t> shape, std::vector<worker::UnitAxis> units = {});

  const std::vector<TensorSpec>& tensors() const { return tensors_; }
  size_t elements() const { return elements_; }
  worker::UnitSchema units() const;  // of its tensors
  // The tensor of that name, or nullptr. O(tensors).
  const TensorSpec* Find(std::string_view name) const;

  // The part of `flat` that tensor `index` occupies. Pre: flat.size() == elements().
  template <class S>
  std::span<S> View(size_t index, std::span<S> flat) const {
    const TensorSpec& spec = tensors_[index];
    return flat.subspan(spec.offset, spec.elements());
  }

 private:
  std::vector<TensorSpec> tensors_;
  size_t elements_ = 0;
};

}  // namespace crowdsurf::trainer
