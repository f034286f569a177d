// Changes and what their bytes leave: sums over many averagings against the sums of what went in,
// in doubles.
#include "worker/core/vector/change.h"

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <limits>
#include <vector>

#include "base/rng.h"

namespace crowdsurf::worker {
namespace {

using Floats = std::vector<float>;
using View = std::span<const float>;

constexpr size_t kElements = 2500;  // three blocks, the last a short one

// Every hundredth value is a thousand times as large as the others.
Floats Uneven(uint64_t seed) {
  Rng rng(seed);
  Floats out(kElements);
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<float>(rng.Normal() * (i % 100 == 0 ? 1 : 1e-3));
  return out;
}

Floats Sent(const Floats& snapshot, const Floats& base, View rest) {
  Floats change(snapshot.size());
  ChangeOf<float>(snapshot, base, rest, change);
  RoundAsWire<float>(WireFormat::kInt8, change, change);
  return change;
}

double LargestOf(const Floats& values) {
  double largest = 0;
  for (const float x : values) largest = std::max(largest, std::fabs(static_cast<double>(x)));
  return largest;
}

TEST(ChangeTest, WhatWasNotSentIsInTheRest) {
  const Floats snapshot = Uneven(1), base = Uneven(2);
  Floats rest(kElements, std::numeric_limits<float>::quiet_NaN());  // void
  const Floats sent = Sent(snapshot, base, {});
  KeepRest<float>(RestBefore::kVoid, snapshot, base, rest);
  for (size_t i = 0; i < kElements; ++i) {
    const double change = static_cast<double>(snapshot[i]) - static_cast<double>(base[i]);
    EXPECT_NEAR(sent[i] + static_cast<double>(rest[i]), change, 1e-6);
    EXPECT_LE(std::fabs(rest[i]), 8.0 / 127 / 2) << "half a step of the block's scale";
  }
}

// Each averaging brings the same change. With the rest all of it arrives, whatever its size beside
// others; without it what is below half a step of the scale never does.
TEST(ChangeTest, SmallChangesArriveInTheEnd) {
  constexpr int kAveragings = 2000;
  const Floats change = Uneven(3);
  const Floats base(kElements, 0);
  Floats rest(kElements, 0);
  std::vector<double> arrived(kElements, 0), without(kElements, 0);
  for (int k = 0; k < kAveragings; ++k) {
    const Floats sent = Sent(change, base, k > 0 ? View(rest) : View());
    KeepRest<float>(k > 0 ? RestBefore::kKept : RestBefore::kVoid, change, base, rest);
    const Floats alone = Sent(change, base, {});
    for (size_t i = 0; i < kElements; ++i) {
      arrived[i] += sent[i];
      without[i] += alone[i];
    }
  }
  const double step = LargestOf(change) / 127;
  int lost = 0;
  for (size_t i = 0; i < kElements; ++i) {
    const double wanted = kAveragings * static_cast<double>(change[i]);
    EXPECT_NEAR(arrived[i], wanted, step + 1e-6 * kAveragings) << i;
    lost += without[i] == 0;
  }
  EXPECT_GT(lost, 2000);
}

// The means of several members, whose rests run on apart. A mean of a small change is below half a
// step of its block, too: rounded to the nearest it would never arrive, dithered it does.
TEST(ChangeTest, SmallChangesOfSeveralMembersArriveInTheEnd) {
  constexpr int kAveragings = 2000, kMembers = 4;
  const Floats base(kElements, 0);
  std::vector<Floats> changes, rests(kMembers, Floats(kElements, 0));
  for (int i = 0; i < kMembers; ++i) {
    changes.push_back(Uneven(3 + static_cast<uint64_t>(i)));
    // They train one model: what is large is so at all of them.
    for (size_t e = 0; e < kElements; e += 100) changes.back()[e] = changes.front()[e];
  }
  std::vector<double> arrived(kElements, 0), nearest(kElements, 0), wanted(kElements, 0);
  for (const Floats& change : changes)
    for (size_t i = 0; i < kElements; ++i) wanted[i] += change[i] * kAveragings / kMembers;
  for (int k = 0; k < kAveragings; ++k) {
    Floats mean(kElements, 0), back(kElements);
    for (size_t m = 0; m < kMembers; ++m) {
      const Floats sent = Sent(changes[m], base, rests[m]);
      KeepRest<float>(RestBefore::kKept, changes[m], base, rests[m]);
      for (size_t i = 0; i < kElements; ++i) mean[i] += sent[i] / kMembers;
    }
    Bytes wire(Int8Bytes(kElements));
    EncodeMean({static_cast<uint32_t>(k), 0}, std::span<const float>(mean), wire);
    FromInt8(wire, back);
    for (size_t i = 0; i < kElements; ++i) arrived[i] += back[i];
    RoundAsWire<float>(WireFormat::kInt8, mean, back);
    for (size_t i = 0; i < kElements; ++i) nearest[i] += back[i];
  }
  double error = 0, without = 0, size = 0;
  for (size_t i = 0; i < kElements; ++i) {
    if (i % 100 == 0) continue;  // the large ones
    error += std::pow(arrived[i] - wanted[i], 2);
    without += std::pow(nearest[i] - wanted[i], 2);
    size += std::pow(wanted[i], 2);
  }
  EXPECT_LT(std::sqrt(error / size), .5);
  EXPECT_GT(std::sqrt(without / size), .7);
}

TEST(ChangeTest, AChangeBeyondAllNumbersLeavesAFiniteRest) {
  Floats snapshot(kElements, FLT_MAX), base(kElements, -FLT_MAX), rest(kElements, 0);
  for (const float x : Sent(snapshot, base, {})) EXPECT_TRUE(std::isfinite(x));
  KeepRest<float>(RestBefore::kVoid, snapshot, base, rest);
  for (const float x : rest) EXPECT_TRUE(std::isfinite(x));
  KeepRest<float>(RestBefore::kKept, snapshot, base, rest);
  for (const float x : rest) EXPECT_TRUE(std::isfinite(x));
}

}  // namespace
}  // namespace crowdsurf::worker
