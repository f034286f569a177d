// Tensor views of a trainer's table: what the core needs to know of shapes.
//
// Pure; any thread. O(tensors). Source: docs/trainer-link.md (the table).
#pragma once

#include <vector>

#include "worker/core/link/link_layout.h"
#include "worker/core/vector/tensor_view.h"

namespace crowdsurf::worker {

// The matrix views of the shared tensors, in table order, which is that of the vector. A tensor of
// more than 2^32 rows or columns has none.
TensorViews ViewsOf(const std::vector<LinkTensor>& tensors);

// The shared tensors with their unit groups. Pre: the link has taken the table.
UnitSchema UnitsOf(const std::vector<LinkTensor>& tensors);

}  // namespace crowdsurf::worker
