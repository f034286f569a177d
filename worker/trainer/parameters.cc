#include "worker/trainer/parameters.h"

#include <utility>

#include "base/check.h"

namespace crowdsurf::trainer {

size_t TensorSpec::elements() const {
  size_t product = 1;
  for (const size_t dimension : shape) product *= dimension;
  return product;
}

size_t ParameterTable::Add(std::string name, std::vector<size_t> shape, int group_out,
                           int group_in) {
  CHECK(Find(name) == nullptr);
  for (const size_t dimension : shape) CHECK_GE(dimension, 1u);
  TensorSpec spec{.name = std::move(name),
                  .shape = std::move(shape),
                  .offset = elements_,
                  .role = TensorRole::kParameter,
                  .group_out = group_out,
                  .group_in = group_in};
  elements_ += spec.elements();
  tensors_.push_back(std::move(spec));
  return tensors_.size() - 1;
}

const TensorSpec* ParameterTable::Find(std::string_view name) const {
  for (const TensorSpec& tensor : tensors_) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

}  // namespace crowdsurf::trainer
