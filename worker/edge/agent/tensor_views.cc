#include "worker/edge/agent/tensor_views.h"

#include <cstdint>
#include <utility>

namespace crowdsurf::worker {

TensorViews ViewsOf(const std::vector<LinkTensor>& tensors) {
  TensorViews views;
  for (const LinkTensor& tensor : tensors) {
    // What is not averaged, or has no matrix view, has nothing to factorize.
    if (!tensor.shared() || tensor.rows == 0 || tensor.cols == 0) continue;
    if (tensor.rows > UINT32_MAX || tensor.cols > UINT32_MAX) continue;
    views.push_back(
        {.begin = tensor.offset / sizeof(float),
         .shape = {static_cast<uint32_t>(tensor.rows), static_cast<uint32_t>(tensor.cols)}});
  }
  return views;
}

UnitSchema UnitsOf(const std::vector<LinkTensor>& tensors) {
  std::vector<UnitTensor> units;
  for (const LinkTensor& tensor : tensors)
    if (tensor.shared()) units.push_back({tensor.name, tensor.shape, tensor.units});
  // The link has refused what does not match.
  return UnitSchema::Of(std::move(units)).value_or(UnitSchema());
}

}  // namespace crowdsurf::worker
