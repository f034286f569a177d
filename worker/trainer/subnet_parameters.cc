#include "worker/trainer/subnet_parameters.h"

#include <utility>

namespace crowdsurf::trainer {
namespace {

// The whole model's tensors in their order, with the shapes that the sub-network leaves them.
ParameterTable TableOf(const ParameterTable& whole, const worker::Subnet& subnet) {
  ParameterTable table;
  for (size_t i = 0; i < whole.tensors().size(); ++i) {
    const std::vector<uint64_t>& shape = subnet.blocks()[i].shape();
    const TensorSpec& spec = whole.tensors()[i];
    table.Add(spec.name, {shape.begin(), shape.end()}, spec.units);
  }
  return table;
}

}  // namespace

SubnetParameters::SubnetParameters(const ParameterTable& whole, const worker::IndexSets& sets,
                                   const OptimizerOptions& options)
    : subnet_(whole.units(), sets),
      table_(TableOf(whole, subnet_)),
      parameters_(subnet_.size()),
      gradient_(subnet_.size()),
      optimizer_(options, table_) {}

}  // namespace crowdsurf::trainer
