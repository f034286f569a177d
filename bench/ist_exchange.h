// IstExchange: the averaging of sub-networks by the code that ships, without a network.
//
// Every member's frames are made by the encoders of production (SubnetExchange for payloads, the
// tensor plane's header, the round's codec for READY and HAVE) and read by its decoders. So bytes
// are counted on what would travel, and means are those that members would have. Deterministic
// under seed; single sequence. Source: Independent Subnet Training (arXiv 1910.02120).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "worker/core/subnet/subnet_exchange.h"

namespace crowdsurf::bench {

// One averaging of equal weights: each model then has what all have covered. Returns the bytes that
// all members sent, with the headers of all frames and with READY and HAVE of the round.
uint64_t AverageSubnets(const worker::SubnetExchange& exchange,
                        const std::vector<std::span<float>>& models);

// Bytes a member of `members` equal ones sends on average in an averaging of the built-in
// classifier with these hidden layers, of the floats of a ring all-reduce: 2 P (n - 1) / n.
double IstShareOfRing(const std::vector<size_t>& hidden, size_t members, uint64_t seed);

// Over drawn sizes of both built-in models, 1 to 64 members and any shares: gathered and scattered
// values have the bits that they had, nothing else is touched; and after an averaging all hold each
// coordinate that one member covers with that member's bits, and the others' own where nobody does.
bool IstBitsComeBack(uint64_t seed, int draws);

}  // namespace crowdsurf::bench
