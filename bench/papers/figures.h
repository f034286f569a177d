// Papers options: what the parts of `bench papers` are told, with the figures that they add to.
//
// Owner: one bench; single sequence.
#pragma once

#include <cstdint>
#include <string>

#include "bench/figures.h"

namespace crowdsurf::bench {

// How much of a figure is computed.
enum class Length { kShort, kLong };

struct PapersOptions {
  Length length = Length::kLong;
  bool wide = false;       // short runs of all sizes, graphs and losses of relaysum and a2cid2
  uint64_t seed = 1;       // of the first fresh run; rates are tuned on another
  std::string trace = "";  // text of a spot trace (spot_trace.h); empty: none
  std::string text = "";   // that language models train on; empty: none
};

}  // namespace crowdsurf::bench
