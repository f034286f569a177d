#include "worker/trainer/parameters.h"

#include <utility>

#include "base/check.h"

namespace crowdsurf::trainer {

size_t TensorSpec::elements() const {
  size_t product = 1;
  for (const size_t dimension : shape) product *= dimension;
  return product;
}

size_t ParameterTable::Add(std::string name, std::vector<size_t> shape,
                           std::vector<worker::UnitAxis> units) {
  CHECK(Find(name) == nullptr);
  for (const size_t dimension : shape) CHECK_GE(dimension, 1u);
  TensorSpec spec{.name = std::move(name),
                  .shape = std::move(shape),
                  .offset = elements_,
                  .role = TensorRole::kParameter,
                  .units = std::move(units)};
  elements_ += spec.elements();
  tensors_.push_back(std::move(spec));
  return tensors_.size() - 1;
}

worker::UnitSchema ParameterTable::units() const {
  std::vector<worker::UnitTensor> tensors;
  tensors.reserve(tensors_.size());
  for (const TensorSpec& spec : tensors_)
    tensors.push_back({spec.name, {spec.shape.begin(), spec.shape.end()}, spec.units});
  // Of our own model, not of a file: axes that do not fit are a bug.
  auto schema = worker::UnitSchema::Of(std::move(tensors));
  CHECK(schema.ok());
  return *std::move(schema);
}

const TensorSpec* ParameterTable::Find(std::string_view name) const {
  for (const TensorSpec& tensor : tensors_) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

}  // namespace crowdsurf::trainer
