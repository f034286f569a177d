// Label-sorted digits: what mixing does to a model when every worker has data of one kind only.
//
// The built-in trainer's classifier (an MLP on the synthetic 8 x 8 digits,
// worker/trainer/data/digits.h: made in code from a seed, no download) on n workers, whose examples
// are the training set sorted by label and cut into n: one or two labels each. Every worker takes
// one SGD step of its own batch, then all mix, in lock step, by the very arithmetic of worker/core:
// the exact mean (AllReduce), RelaySumMemory on a tree (RelaySum, with its factor of the learning
// rate), Metropolis weights of a ring (Gossip, D-PSGD). Equal first parameters, batches, steps and
// learning rates. Deterministic under seed. Source: RelaySGD (Vogels et al. 2021) table 1: under
// label skew RelaySum stays with all-reduce and gossip falls behind.
#pragma once

#include <cstdint>

#include "worker/core/view/graph.h"

namespace crowdsurf::bench {

enum class Mixer : uint8_t { kAllReduce, kRelaySum, kGossip };

struct LabelSortedOptions {
  Mixer mixer = Mixer::kAllReduce;
  worker::GraphKind graph = worker::GraphKind::kDoubleBinaryTree;  // Gossip: its graph
  uint32_t workers = 16;
  double learning_rate = 0.1;
  uint64_t steps = 1500;
  uint64_t seed = 1;
};

// Held-out accuracy in points (0..100), the mean over the workers' own models.
double LabelSortedAccuracy(const LabelSortedOptions& options);

}  // namespace crowdsurf::bench
