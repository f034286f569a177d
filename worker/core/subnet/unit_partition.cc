#include "worker/core/subnet/unit_partition.h"

#include <algorithm>
#include <numeric>

#include "base/bytes.h"
#include "base/check.h"
#include "base/digest.h"
#include "base/rng.h"

namespace crowdsurf::worker {
namespace {

constexpr size_t kMaxMembersOfPartition = 64;  // of a group; RankSet

// A stream of its own for each group of units, from what all members know.
Rng StreamOf(const PartitionKey& key, uint32_t group) {
  ByteWriter name;
  name.String("unit-partition");
  name.U64(key.view_seed);
  name.U64(key.epoch);
  name.U64(key.averaging.value());
  name.U32(group);
  const Digest digest = Sha256(name.bytes());
  return Rng(ByteReader(digest.view()).U64());
}

std::vector<uint32_t> DrawOrder(const PartitionKey& key, uint32_t group, uint32_t units) {
  std::vector<uint32_t> order(units);
  std::iota(order.begin(), order.end(), 0U);
  StreamOf(key, group).Shuffle(order);
  return order;
}

}  // namespace

std::vector<uint32_t> ShareUnits(uint32_t units, std::span<const uint32_t> weights) {
  CHECK(!weights.empty() && weights.size() <= units && units <= kMaxUnits);
  const uint64_t sum = std::accumulate(weights.begin(), weights.end(), uint64_t{0});
  std::vector<uint32_t> shares(weights.size());
  std::vector<uint64_t> remainders(weights.size());
  uint64_t left = units;
  for (size_t i = 0; i < weights.size(); ++i) {
    CHECK_GE(weights[i], 1U);
    const uint64_t quota = uint64_t{units} * weights[i];  // below 2^56
    shares[i] = static_cast<uint32_t>(quota / sum);
    remainders[i] = quota % sum;
    left -= shares[i];
  }
  std::vector<size_t> order(weights.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return remainders[a] > remainders[b]; });
  // Largest remainder: the units that are left go to the largest, of equal ones to the first.
  for (size_t i = 0; i < left; ++i) ++shares[order[i]];
  // Nobody is left without a unit: the largest share gives one up.
  for (uint32_t& share : shares) {
    if (share > 0) continue;
    --*std::max_element(shares.begin(), shares.end());
    share = 1;
  }
  return shares;
}

UnitPartition::UnitPartition(const PartitionKey& key, std::span<const uint32_t> weights,
                             const std::map<uint32_t, uint32_t>& units)
    : sets_(weights.size()), units_(units) {
  CHECK(!weights.empty() && weights.size() <= kMaxMembersOfPartition);
  for (const auto& [group, count] : units) {
    const std::vector<uint32_t> order = DrawOrder(key, group, count);
    // With fewer units than members, member j shares the unit of subnet j mod units.
    const bool scarce = weights.size() > count;
    const std::vector<uint32_t> shares =
        scarce ? std::vector<uint32_t>(count, 1) : ShareUnits(count, weights);
    auto first = order.begin();
    for (size_t subnet = 0; subnet < shares.size(); ++subnet) {
      std::vector<uint32_t> own(first, first + shares[subnet]);
      std::sort(own.begin(), own.end());
      first += shares[subnet];
      for (size_t member = subnet; member < sets_.size(); member += shares.size())
        sets_[member][group] = own;
    }
  }
}

RankSet UnitPartition::Sharers(size_t member, uint32_t group) const {
  // Members j and j + count have the same units; where units abound nobody shares.
  const size_t count = units_.at(group);
  RankSet sharers;
  for (size_t other = member % count; other < sets_.size(); other += count) sharers.Insert(other);
  return sharers;
}

}  // namespace crowdsurf::worker
