#include "worker/core/strategy/tensor_needs.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "worker/core/power/power_layout.h"

namespace crowdsurf::worker {

std::string UnmetByTensors(const AveragingConfig& config, const TensorViews& tensors) {
  if (!NeedsOf(config).matrix_shapes || tensors.empty()) return {};
  const uint32_t rank = config.mixing.rank;
  size_t matrices = 0, below = 0;
  uint32_t smallest = std::numeric_limits<uint32_t>::max();
  for (const TensorView& tensor : tensors) {
    const uint32_t most = std::min(tensor.shape.rows, tensor.shape.cols);
    if (most < 2) continue;  // a vector, which always travels whole
    ++matrices;
    if (most >= rank) continue;
    ++below;
    smallest = std::min(smallest, most);
  }
  if (below > 0) {
    return absl::StrCat("spec.averaging.powerGossip.rank: ", rank, " is above the rank of ", below,
                        " of ", matrices, " matrices, as low as ", smallest,
                        "; these travel whole");
  }
  const TensorView& last = tensors.back();
  const uint64_t elements = last.begin + uint64_t{last.shape.rows} * last.shape.cols;
  if (!PowerLayout(tensors, elements, rank).matrices().empty()) return {};
  return absl::StrCat("spec.averaging.strategy: PowerGossip needs large matrices, and factors of ",
                      "rank ", rank, " make none of this model's half as large; whole vectors ",
                      "travel");
}

}  // namespace crowdsurf::worker
