// IstDigits: Independent Subnet Training of the built-in classifier, in lock step.
//
// n workers see all digits, each in its own order. Between two averagings each trains its
// sub-network alone by the built-in trainer, and they meet by the exchange that ships
// (ist_exchange.h). Local SGD beside it is the same with whole models and plain means. Equal first
// parameters, batches, steps and learning rates. Deterministic under seed; single sequence.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/trainer/optimizer.h"

namespace crowdsurf::bench {

enum class Cut : uint8_t { kWhole, kSubnets };  // local SGD, IST

struct IstDigitsOptions {
  Cut cut = Cut::kSubnets;
  uint32_t workers = 4;
  std::vector<size_t> hidden = {128, 128};
  uint64_t averagings = 150;
  uint64_t local_steps = 10;  // between two averagings
  trainer::OptimizerOptions optimizer = {.kind = trainer::OptimizerKind::kSgd, .momentum = 0};
  double learning_rate = 0.1;
  uint64_t seed = 1;
};

struct IstDigitsResult {
  double accuracy = 0;       // held-out, of the whole model, in points (0..100)
  std::vector<float> model;  // the first worker's parameters
};
IstDigitsResult RunIstDigits(const IstDigitsOptions& options);

// One worker is plain training, to the bit: for SGD, with momentum, and Adam.
bool IstOfOneIsPlain(uint64_t seed);

}  // namespace crowdsurf::bench
