// SubnetParameters: the sub-network that a worker trains alone (IST), beside the whole model.
//
// The whole parameters stay where they are and are true at every step boundary. A step gathers the
// sub-network's values into a smaller model, moves them, and scatters them back, so it computes
// with smaller matrices, not with masks on whole ones. The optimizer is the sub-network's own and
// starts anew: moments of units that another worker trained would push these the wrong way. Owned
// by Training; one thread. Memory: the sub-network's values times 2 + moments.
#pragma once

#include <span>
#include <vector>

#include "worker/core/subnet/subnet.h"
#include "worker/trainer/optimizer.h"
#include "worker/trainer/parameters.h"

namespace crowdsurf::trainer {

class SubnetParameters {
 public:
  // Pre: whole.units().Fits(sets).
  SubnetParameters(const ParameterTable& whole, const worker::IndexSets& sets,
                   const OptimizerOptions& options);
  SubnetParameters(const SubnetParameters&) = delete;
  SubnetParameters& operator=(const SubnetParameters&) = delete;

  const ParameterTable& table() const { return table_; }  // of the smaller model
  void Gather(std::span<const float> whole) { subnet_.Gather(whole, std::span(parameters_)); }
  void Scatter(std::span<float> whole) const {
    subnet_.Scatter(std::span<const float>(parameters_), whole);
  }
  std::span<float> parameters() { return parameters_; }
  std::span<float> gradient() { return gradient_; }
  Optimizer& optimizer() { return optimizer_; }

 private:
  worker::Subnet subnet_;
  ParameterTable table_;
  std::vector<float> parameters_, gradient_;
  Optimizer optimizer_;  // of table_
};

}  // namespace crowdsurf::trainer
